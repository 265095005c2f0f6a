"""The picture of a partition: everything is in it, nothing covers anything, it is well-formed."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

from hypothesis import given, settings

from tests.registry.graphs import FIGURE_10, KNOT, view_graphs
from viewkeeper.partition.pyco import partition_graph
from viewkeeper.partition.svg_picture import HIGH, PartitionLayout, draw_partition, lay_out, wide_of
from viewkeeper.partition.view_graph import ViewGraph

FIGURE_13 = Path(__file__).parents[2] / "docs" / "figures" / "registry-figure-13.svg"
SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> set[str]:
    return {each.text or "" for each in ElementTree.fromstring(picture).iter(f"{SVG}text")}


def shapes(graph: ViewGraph, layout: PartitionLayout) -> list[tuple[float, float, float, float]]:
    """The left, upper, right and lower rim of every name."""
    found = []
    for (name, level), (x, y) in layout.places.items():
        if graph.levels[name] == level:
            wide = wide_of(name)
            found.append((x - wide / 2, y - HIGH / 2, x + wide / 2, y + HIGH / 2))
    return found


def test_every_name_and_group_is_drawn() -> None:
    found = partition_graph(FIGURE_10)
    drawn = texts(draw_partition(found))
    assert {*FIGURE_10.bases, *FIGURE_10.views} <= drawn
    assert {"V8  (no registry)", found.group_of("V1").name, found.group_of("V2").name} <= drawn


def test_figure_13_of_the_documentation_is_current() -> None:
    drawn = draw_partition(partition_graph(FIGURE_10), "Figure 13: the groups of Example 6")
    message = "write what `draw_partition` gives to docs/figures/registry-figure-13.svg"
    assert FIGURE_13.read_text(encoding="utf-8") == drawn, message


def test_lines_between_groups_say_what_they_are() -> None:
    def kinds(graph: ViewGraph) -> tuple[int, int, int]:
        paths = re.findall(
            r"<path( class=\"(\w+)\")? d=\"M[^\"]* C", draw_partition(partition_graph(graph))
        )
        found = [kind for _, kind in paths]
        return found.count(""), found.count("virtual"), found.count("external")

    edges = sum(map(len, FIGURE_10.parents.values()))
    # V6 to V8; B1 to V1 and to V7.
    assert kinds(FIGURE_10) == (edges - 3, 1, 2)
    assert kinds(KNOT) == (8, 2, 0)


def test_names_are_escaped_and_long_ones_shortened() -> None:
    name = "a<b&c." + "long" * 20
    drawn = draw_partition(partition_graph(ViewGraph({name: ("base",)})))
    assert any(text.startswith("a<b&c.long") and text.endswith("…") for text in texts(drawn))
    assert name in {each.text for each in ElementTree.fromstring(drawn).iter(f"{SVG}title")}


@settings(max_examples=40)
@given(view_graphs(views_max=12, bases_max=6))
def test_nothing_covers_anything(graph: ViewGraph) -> None:
    layout = lay_out(partition_graph(graph))
    boxes = [(box.x, box.y, box.x + box.wide, box.y + box.high) for box in layout.boxes]
    for rims in (shapes(graph, layout), boxes):
        for one, other in combinations(rims, 2):
            apart = one[2] <= other[0] or other[2] <= one[0]
            assert apart or one[3] <= other[1] or other[3] <= one[1]
    for left, upper, right, lower in shapes(graph, layout):
        assert any(
            b[0] <= left and b[1] <= upper and right <= b[2] and lower <= b[3] for b in boxes
        )


@settings(max_examples=40)
@given(view_graphs(views_max=8))
def test_lines_inside_a_group_run_through_no_other_name(graph: ViewGraph) -> None:
    """An edge that passes a row has a place in it which is apart from every name there."""
    layout = lay_out(partition_graph(graph))
    for (name, level), (x, y) in layout.places.items():
        if graph.levels[name] != level:
            for left, upper, right, lower in shapes(graph, layout):
                assert not (left <= x <= right and upper <= y <= lower)
