"""The paper's Examples 5 and 6 with every list, level and group, and what its text gets wrong.

Figures 10, 11 and 13 are lost; their content follows from the lists of Example 6 and from what
Example 5 says of the groups. Where figure 12 or a lemma contradicts the definitions, the test is
named after what the definitions say.
"""

from __future__ import annotations

import pytest

from tests.registry.graphs import (
    FIGURE_10,
    KNOT,
    SHORTCUT,
    as_defined,
    as_lemma_6,
    dependent_group_bases,
    dependents_of,
    figure_12,
    is_valid,
    real_bases,
)
from viewkeeper.errors import ProjectError
from viewkeeper.partition.pyco import Partition, partition_graph
from viewkeeper.partition.view_graph import ViewGraph, group_bases


def views_of(found: Partition) -> set[frozenset[str]]:
    return {frozenset(group.views) for group in found.groups}


# -- Example 6 -------------------------------------------------------------------------------------


def test_the_base_dependency_lists_of_example_6() -> None:
    assert {base: set(dependents_of(FIGURE_10, base)) for base in FIGURE_10.bases} == {
        "B1": {"B1", "V1", "V2", "V5", "V6", "V7", "V8"},
        "B2": {"B2", "V2", "V3", "V5", "V6", "V8"},
        "B3": {"B3", "V3", "V4", "V5", "V6", "V8"},
        "B4": {"B4", "V3", "V4", "V5", "V6", "V8"},
        "B5": {"B5", "V1", "V7"},
        "B6": {"B6", "V8"},
    }


def test_the_view_parent_lists_of_example_6_name_every_view_and_base() -> None:
    assert FIGURE_10.parents["V6"] == ("V3", "V4", "V5")
    assert FIGURE_10.bases == ("B1", "B2", "B3", "B4", "B5", "B6")
    assert sorted(FIGURE_10.views) == [f"V{number}" for number in range(1, 9)]


def test_the_levels_of_example_6() -> None:
    levels = dict.fromkeys(FIGURE_10.bases, 0) | dict.fromkeys(("V1", "V2", "V3", "V4"), 1)
    assert FIGURE_10.levels == levels | {"V5": 2, "V7": 2, "V6": 3, "V8": 4}


def test_step_2_of_example_6() -> None:
    assert dependent_group_bases(FIGURE_10, ["V5"]) == ("V2", "V3")
    assert FIGURE_10.common_bases("V2", "V3") == ("B2",)
    merged = ["V5", "V2", "V3"]
    assert group_bases(FIGURE_10, merged) == ("B1", "B2", "B3", "B4")
    assert is_valid(FIGURE_10, merged)


def test_the_groups_of_figure_13() -> None:
    assert views_of(partition_graph(FIGURE_10)) == {
        frozenset({"V2", "V3", "V4", "V5", "V6"}),
        frozenset({"V1", "V7"}),
        frozenset({"V8"}),
    }


def test_the_repaired_figure_12_gives_the_groups_of_figure_13() -> None:
    assert figure_12(FIGURE_10, as_lemma_6) == views_of(partition_graph(FIGURE_10))


# -- Example 5 -------------------------------------------------------------------------------------


def test_the_bases_of_the_groups_in_example_5() -> None:
    found = partition_graph(FIGURE_10)
    first, second, third = (found.group_of(view) for view in ("V2", "V1", "V8"))
    assert first.internal == ("B1", "B2", "B3", "B4")
    assert first.external == first.virtual == ()
    # V1 and V7 both read B1 of the first group: that is one external base, and a real one.
    assert (second.internal, second.external, second.virtual) == (("B5",), ("B1",), ())
    assert (third.internal, third.external, third.virtual) == (("B6",), ("V6",), ("V6",))
    assert real_bases(second) == ("B5", "B1")
    assert real_bases(third) == ("B6",)


def test_a_group_of_one_view_needs_no_registry() -> None:
    found = partition_graph(FIGURE_10)
    assert [found.group_of(view).needs_registry for view in ("V2", "V1", "V8")] == [
        True,
        True,
        False,
    ]


# -- where the text and the definitions differ -----------------------------------------------------


def test_one_base_of_a_group_alone_is_not_dependent() -> None:
    """CheckGroup counts j >= 1, which every group with any base meets; two are needed."""
    assert is_valid(ViewGraph({"v": ("b1", "b2")}), ["v"])


def test_level_1_views_over_the_same_bases_stay_apart_until_a_view_joins_them() -> None:
    apart = {"v1": ("b1", "b2"), "v2": ("b1", "b2")}
    assert views_of(partition_graph(ViewGraph(apart))) == {frozenset({"v1"}), frozenset({"v2"})}
    joined = ViewGraph(apart | {"v0": ("v1", "v2")})
    assert views_of(partition_graph(joined)) == {frozenset({"v0", "v1", "v2"})}


def test_a_base_does_not_drag_its_group_along() -> None:
    """MergeGroup as printed unites the groups in which dependent bases lie, real ones included."""
    graph = ViewGraph(
        {"v1": ("b1", "b5"), "v7": ("b1", "v1"), "v2": ("b1", "b2"), "v9": ("b1", "v2")}
    )
    assert views_of(partition_graph(graph)) == {frozenset({"v1", "v7"}), frozenset({"v2", "v9"})}
    assert is_valid(graph, ["v1", "v7"])
    assert is_valid(graph, ["v2", "v9"])


def test_a_parent_from_which_the_other_parent_derives_may_stay_outside() -> None:
    """Lemma 6 makes one group of all three, which splits into valid ones: it is not atomic."""
    assert figure_12(SHORTCUT, as_lemma_6) == {frozenset("pqv")}
    assert is_valid(SHORTCUT, ["q"])
    assert is_valid(SHORTCUT, ["p", "v"])
    found = partition_graph(SHORTCUT)
    assert views_of(found) == {frozenset("q"), frozenset("pv")} == figure_12(SHORTCUT, as_defined)
    assert found.group_of("v").virtual == ("q",)


def test_a_parent_from_which_the_other_derives_joins_if_that_has_another_way_to_its_bases() -> None:
    graph = ViewGraph({"q": ("b1",), "p": ("q", "b1"), "v": ("p", "q")})
    assert views_of(partition_graph(graph)) == {frozenset("pqv")}


def test_atomic_groups_may_read_each_other() -> None:
    """The paper holds that a group cannot have both parents and descendents in another one."""
    found = partition_graph(KNOT)
    assert views_of(found) == {frozenset("xyz"), frozenset("pqr")}
    assert (found.group_of("x").virtual, found.group_of("p").virtual) == (("p",), ("x",))


# -- views that the project wants together ---------------------------------------------------------


def test_views_that_are_wanted_together_are() -> None:
    found = partition_graph(FIGURE_10, together=[("V1", "V2")])
    assert views_of(found) == {frozenset(FIGURE_10.views) - {"V8"}, frozenset({"V8"})}


def test_wanting_views_together_merges_further_where_that_is_needed() -> None:
    """a and c alone would read b and x, and b derives from x."""
    graph = ViewGraph({"b": ("x",), "a": ("b", "y"), "c": ("x", "z")})
    assert not is_valid(graph, ["a", "c"])
    assert views_of(partition_graph(graph)) == {frozenset("a"), frozenset("b"), frozenset("c")}
    assert views_of(partition_graph(graph, together=[["a", "c"]])) == {frozenset("abc")}


def test_wanting_an_unknown_view_is_refused() -> None:
    with pytest.raises(ProjectError, match='"V9" is to be kept together'):
        partition_graph(FIGURE_10, together=[["V1", "V9"]])
    with pytest.raises(ProjectError, match='"B1" is to be kept together'):
        partition_graph(FIGURE_10, together=[["V1", "B1"]])


# -- names and refusals ----------------------------------------------------------------------------


def test_the_name_of_a_group_depends_on_its_views_alone() -> None:
    before = partition_graph(FIGURE_10)
    unrelated = {"V9": ("B1", "B7"), "V10": ("B1", "V9"), "V11": ("B6", "V8")}
    after = partition_graph(ViewGraph({**FIGURE_10.parents, **unrelated}))
    for view in ("V2", "V1"):
        assert before.group_of(view).name == after.group_of(view).name
    assert before.group_of("V8").name != after.group_of("V8").name
    assert len({each.name for each in after.groups}) == len(after.groups)


def test_views_in_a_circle_are_refused() -> None:
    with pytest.raises(ProjectError, match=r"in a circle: (a <- b <- a|b <- a <- b)\n"):
        ViewGraph({"a": ("b", "base"), "b": ("a",), "c": ("a",)})


def test_a_view_of_nothing_is_refused() -> None:
    with pytest.raises(ProjectError, match='view "a": it reads nothing'):
        ViewGraph({"a": ()})


def test_an_unknown_view_has_no_group() -> None:
    with pytest.raises(ProjectError, match='there is no view "V99"') as refused:
        partition_graph(FIGURE_10).group_of("V99")
    assert "V8" in (refused.value.hint or "")
