"""The cost model of section 5: hand-computed for Example 6, and the paper's inequalities.

The figures of Example 6 were computed by hand from its lists, with one update at each of the six
bases; the tests show the sums that they are made of.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from benchmarks.registry_times import StepTimes, pyco_times, ryco_times, uncoordinated_times
from hypothesis import given
from hypothesis import strategies as st

from tests.registry.graphs import FIGURE_10, KNOT, SHORTCUT, real_bases, view_graphs
from viewkeeper.partition.message_cost import (
    MessageCounts,
    even_updates,
    group_levels,
    pyco_messages,
    ryco_messages,
    uncoordinated_messages,
)
from viewkeeper.partition.pyco import partition_graph
from viewkeeper.partition.view_graph import ViewGraph, ViewGroup

FIGURE_13 = partition_graph(FIGURE_10)
ONE_EACH = even_updates(FIGURE_10)
UNEVEN = {"B1": 10, "B2": 5, "B3": 0, "B4": 1, "B5": 3, "B6": 7}

# Deltas that reach V1 ... V8: for every parent, the number of bases behind it.
READ = (2, 2, 3, 2, 2 + 3, 3 + 2 + 4, 1 + 1 + 2, 1 + 4)
# Each of them asks the other parents, which answer.
ASKED = (2 * 2, 2 * 2, 4 * 3, 2 * 2, 2 * 5, 4 * 9, 4 * 4, 2 * 5)
# Over V2-V5, V3-V5, V3-V6, V4-V6, V5-V6 in the first group, V1-V7 in the second, and V6-V8.
EMPTY_INSIDE = ((4 - 2) + (4 - 3) + (4 - 3) + (4 - 2) + (4 - 4), 2 - 2)
EMPTY_OVERALL = (6 - 2) + (6 - 3) + (6 - 3) + (6 - 2) + (6 - 4) + (6 - 2) + (6 - 4)


def test_ryco_in_example_6() -> None:
    assert ryco_messages(FIGURE_10, ONE_EACH) == MessageCounts(
        6, 6 * 8, sum(READ), sum(ASKED), EMPTY_OVERALL
    )
    assert (sum(READ), sum(ASKED), EMPTY_OVERALL) == (32, 96, 22)


def test_pyco_in_example_6_as_printed() -> None:
    """Groups of 5, 2 and 1 views with 4, 2 and 1 real bases; V6 brings four updates to the last."""
    found = pyco_messages(FIGURE_13, ONE_EACH, singles=True)
    assert found.registered == 4 + 2 + (1 + 4)
    assert found.ordered == 4 * 5 + 2 * 2 + (1 + 4) * 1
    assert found.empty == sum(EMPTY_INSIDE) == 6


def test_pyco_in_example_6_with_the_registries_that_are_needed() -> None:
    expected = MessageCounts(4 + 2, 4 * 5 + 2 * 2, sum(READ), sum(ASKED), sum(EMPTY_INSIDE))
    assert pyco_messages(FIGURE_13, ONE_EACH) == expected


def test_uneven_updates_in_example_6() -> None:
    assert ryco_messages(FIGURE_10, UNEVEN).registered == 26
    assert ryco_messages(FIGURE_10, UNEVEN).ordered == 26 * 8
    found = pyco_messages(FIGURE_13, UNEVEN, singles=True)
    assert found.registered == 16 + 13 + (7 + 16)
    assert found.ordered == 16 * 5 + 13 * 2 + (7 + 16) * 1


def test_no_coordination_is_maintenance_alone() -> None:
    found = uncoordinated_messages(FIGURE_10, ONE_EACH)
    assert found == MessageCounts(0, 0, 32, 96, 0)
    assert found.coordination == 0
    assert found.per_update(6).total == pytest.approx(128 / 6)


def test_k_updates_at_every_base_cost_k_times_as_much() -> None:
    assert pyco_messages(FIGURE_13, even_updates(FIGURE_10, 7)).per_update(7) == pyco_messages(
        FIGURE_13, ONE_EACH
    )


def test_the_update_times_of_example_6() -> None:
    """V8 is at level 4, its group at level 1: five transmissions, and one for the group."""
    times = StepTimes(transmission=10, change=(1, 2, 3, 4), wait=(0.5,))
    assert ryco_times(FIGURE_10, times)["V1"] == 2 * 10 + 1 + 0.5
    assert ryco_times(FIGURE_10, times)["V8"] == 5 * 10 + (1 + 2 + 3 + 4) + 4 * 0.5
    assert pyco_times(FIGURE_13, times)["V6"] == ryco_times(FIGURE_10, times)["V6"]
    assert pyco_times(FIGURE_13, times)["V8"] == ryco_times(FIGURE_10, times)["V8"] + 10
    assert uncoordinated_times(FIGURE_10, times)["V8"] == ryco_times(FIGURE_10, times)["V8"] - 10


def test_the_last_time_holds_for_all_higher_levels() -> None:
    times = StepTimes(transmission=0, change=(1, 2))
    assert ryco_times(FIGURE_10, times)["V8"] == 1 + 2 + 2 + 2


def test_the_levels_of_the_groups_of_example_6() -> None:
    """The second group reads B1, which the first has too: a real base does not come by it."""
    levels = group_levels(FIGURE_13)
    assert [levels[FIGURE_13.group_of(view).name] for view in ("V2", "V1", "V8")] == [0, 0, 1]


def test_the_level_of_a_group_is_one_more_than_the_highest_that_it_reads() -> None:
    chain = ViewGraph({"a": ("x",), "b": ("a",), "c": ("b", "y"), "d": ("c", "z"), "e": ("z",)})
    levels = group_levels(partition_graph(chain))
    assert levels == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 0}
    assert sorted(group_levels(partition_graph(SHORTCUT)).values()) == [0, 1]


def test_groups_that_read_each_other_count_as_one() -> None:
    above = ViewGraph({**KNOT.parents, "top": ("z", "b9")})
    found = partition_graph(above)
    levels = group_levels(found)
    assert [levels[found.group_of(view).name] for view in ("x", "p", "top")] == [1, 1, 2]


def virtual_updates(graph: ViewGraph, group: ViewGroup, updates: Mapping[str, int]) -> int:
    """The updates that reach a group through its virtual bases (f_i)."""
    return sum(updates.get(base, 0) for view in group.virtual for base in graph.bases_of(view))


@given(view_graphs(views_max=12, bases_max=6), st.data())
def test_inequality_6_holds_for_any_updates(graph: ViewGraph, data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 9), min_size=6, max_size=6))
    updates = dict(zip(graph.bases, counts, strict=False))
    found = partition_graph(graph)
    overall = sum(updates.values())
    difference = sum(
        len(group.views)
        * (
            virtual_updates(graph, group, updates)
            + sum(updates[base] for base in real_bases(group))
            - overall
        )
        for group in found.groups
    )
    printed, one = pyco_messages(found, updates, singles=True), ryco_messages(graph, updates)
    assert printed.ordered - one.ordered == difference <= 0
    assert printed.registered >= one.registered
    assert printed.empty <= one.empty


@given(view_graphs(views_max=12, bases_max=6))
def test_virtual_and_real_updates_of_a_group_are_of_different_bases(graph: ViewGraph) -> None:
    """So f_i <= k (m - m_i), on which inequality (6) rests."""
    updates = even_updates(graph)
    for group in partition_graph(graph).groups:
        assert virtual_updates(graph, group, updates) <= len(graph.bases) - len(real_bases(group))


@given(view_graphs(views_max=10))
def test_deltas_are_counted_one_by_one(graph: ViewGraph) -> None:
    """For every base, every edge on which a change of it travels."""
    found = uncoordinated_messages(graph, even_updates(graph))
    travelled = [
        (base, parent, view)
        for base in graph.bases
        for view, parents in graph.parents.items()
        for parent in parents
        if graph.is_ancestor(base, parent)
    ]
    assert found.deltas == len(travelled)
    assert found.asked == sum(2 * (len(graph.parents[view]) - 1) for _, _, view in travelled)
