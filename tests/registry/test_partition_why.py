"""The partitioner's explanations: the common base, through which parents of which view.

What is said is checked against the graph: every sentence of togetherness names a view that reads
what it is said to read.
"""

from __future__ import annotations

import re
from itertools import combinations

from hypothesis import given

from tests.registry.graphs import FIGURE_10, KNOT, SHORTCUT, view_graphs
from viewkeeper.partition.pyco import partition_graph
from viewkeeper.partition.view_graph import ViewGraph

READS = re.compile(r"(\w+) reads (\w+) and (\w+), which both derive from (\w+)\.")
READ = re.compile(r"(v\d+) reads (\w+)")


def test_two_parents_of_one_view() -> None:
    assert partition_graph(FIGURE_10).explain_pair("V2", "V3")[:-1] == (
        "V5 reads V2 and V3, which both derive from B2.",
    )


def test_a_path_of_reasons() -> None:
    said = partition_graph(FIGURE_10).explain_pair("V2", "V4")
    assert said == (
        "V5 reads V2 and V3, which both derive from B2.",
        "V6 reads V3 and V4, which both derive from B3.",
        "One order over B1, B2, B3 and B4 keeps V2, V3, V4, V5 and V6 in step.",
    )


def test_a_base_and_a_view_that_derives_from_it() -> None:
    assert partition_graph(FIGURE_10).explain_pair("V7", "V1")[0] == (
        "V7 reads V1, which derives from B1, and reads B1 too."
    )


def test_a_view_and_one_that_derives_from_it() -> None:
    assert (
        partition_graph(SHORTCUT).explain_pair("v", "p")[0]
        == "v reads p, which derives from q, and reads q too."
    )


def test_reasons_rest_on_others() -> None:
    """c and d are together by a join of theirs; only then does what they read separately count."""
    graph = ViewGraph(
        {
            "m": ("b1", "b2"),
            "n": ("b2", "b3"),
            "c": ("b4", "m"),
            "d": ("b4", "n"),
            "e": ("c", "d"),
        }
    )
    said = partition_graph(graph).explain_pair("m", "n")
    assert said[:2] == (
        "e reads c and d, which both derive from b2.",
        "c reads m, and d reads n: both derive from b2.",
    )


def test_what_the_project_wants() -> None:
    said = partition_graph(FIGURE_10, together=[("V1", "V2")]).explain_pair("V7", "V5")
    assert "The project wants V1 and V2 together." in said


def test_views_without_a_common_base_are_apart() -> None:
    said = partition_graph(ViewGraph({"a": ("x",), "b": ("y",)})).explain_pair("a", "b")
    assert said[1].startswith("They derive from no common base")


def test_views_with_a_common_base_may_be_apart() -> None:
    said = partition_graph(FIGURE_10).explain_pair("V1", "V2")
    assert said[0] == "V1 and V2 are not together, though both derive from B1."
    assert "The group of V1 reads B5 and B1, of which no two derive from a common base." in said
    assert "at one moment the two may show different ones" in said[-2]


def test_a_virtual_base_is_named() -> None:
    found = partition_graph(FIGURE_10)
    assert found.explain_pair("V8", "V6")[1].startswith("V8 derives from V6 as from a virtual base")
    assert found.explain_pair("V3", "V8")[1].startswith(
        "V8 derives from V3, by V6, as from a virtual base"
    )
    assert partition_graph(KNOT).explain_pair("z", "r")[0].endswith("both derive from b1 and b3.")


def test_one_view_is_one_view() -> None:
    assert partition_graph(FIGURE_10).explain_pair("V1", "V1") == ("V1 is one view.",)


@given(view_graphs())
def test_what_is_said_is_so(graph: ViewGraph) -> None:
    found = partition_graph(graph)
    for one, other in combinations(graph.views, 2):
        said = found.explain_pair(one, other)
        together = found.group_of(one) is found.group_of(other)
        assert together == ("are not together" not in said[0])
        for sentence in said[:-1] if together else ():
            for reader, read in READ.findall(sentence):
                assert read in graph.parents[reader]
            for reader, first, second, base in READS.findall(sentence):
                assert {first, second} <= set(graph.parents[reader])
                assert base in graph.common_bases(first, second)
