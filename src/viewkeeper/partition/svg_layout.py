"""The layout of a drawn partition: groups side by side, views above what they read.

Every level has a row, bases at the bottom. A group has columns of its own, so boxes never overlap;
groups that have nothing to do with each other may stand in different bands. Inside a group, an edge
that passes a row between has a place of its own in it (the idea of Sugiyama's layered drawings), so
no line runs through a name. Rows are ordered by the mean place of what their names read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from viewkeeper.partition.group_levels import group_levels
from viewkeeper.partition.pyco import Partition
from viewkeeper.partition.view_graph import ViewGraph
from viewkeeper.partition.view_group import ViewGroup

ROW, HIGH, GAP, PAD, MARGIN = 84.0, 28.0, 26.0, 20.0, 24.0
TITLE = 34.0
"""Room for a group's name above its views."""
BAND = 1500.0
"""Unrelated groups begin a new band beyond this width."""
CHARACTER = 7.5
LIMIT = 28
"""Characters of a name that are shown."""

Place = tuple[str, int]
"""A name and a row: its own, or one that an edge from it passes."""


@dataclass(frozen=True, slots=True)
class GroupBox:
    """A group's box."""

    group: ViewGroup
    x: float
    y: float
    wide: float
    high: float


@dataclass(slots=True)
class PartitionLayout:
    """The middle of every place, the box of every group, and the size of it all."""

    places: dict[Place, tuple[float, float]] = field(default_factory=dict)
    boxes: list[GroupBox] = field(default_factory=list)
    wide: float = 0.0
    high: float = 0.0


def wide_of(name: str) -> float:
    """How wide the shape around a name is."""
    return max(52.0, 20 + CHARACTER * min(len(name), LIMIT))


def title_of(group: ViewGroup) -> str:
    """The title above a group."""
    return group.name + ("" if group.needs_registry else "  (no registry)")


def lay_out(found: Partition) -> PartitionLayout:
    """Place every name of a partition."""
    levels = group_levels(found)
    layout = PartitionLayout()
    x, top, below = MARGIN, MARGIN, MARGIN
    for band in _connected_groups(found):
        band.sort(key=lambda group: (levels[group.name], group.name))
        columns = [_Column(found.graph, group) for group in band]
        if x > MARGIN and x + sum(column.wide + GAP for column in columns) > BAND:
            x, top = MARGIN, below + GAP
        highest = max(found.graph.levels[view] for group in band for view in group.views)
        for column in columns:
            column.place_rows(layout, x, top + TITLE + HIGH / 2, highest)
            x += column.wide + GAP
        layout.wide = max(layout.wide, x - GAP + MARGIN)
        below = max(below, *(box.y + box.high for box in layout.boxes[-len(columns) :]))
    layout.high = below + MARGIN
    return layout


def edge_places(graph: ViewGraph, group: ViewGroup, parent: str, child: str) -> Iterator[Place]:
    """The places of an edge, from its parent to its child."""
    first, last = graph.levels[parent], graph.levels[child]
    inside = parent in group.views or parent in group.internal
    yield parent, first
    for level in range(first + 1, last if inside else first + 1):
        yield parent, level
    yield child, last


class _Column:
    """A group's own columns: a list of places for every level, with the widest deciding."""

    def __init__(self, graph: ViewGraph, group: ViewGroup) -> None:
        self._graph = graph
        self._group = group
        self._rows: dict[int, list[Place]] = {}
        names = (*group.internal, *group.views)
        edges = [(parent, view) for view in group.views for parent in graph.parents[view]]
        found = [(name, graph.levels[name]) for name in names]
        found += [
            place
            for parent, view in edges
            if parent in names
            for place in edge_places(graph, group, parent, view)
        ]
        for place in dict.fromkeys(found):
            self._rows.setdefault(place[1], []).append(place)
        rows = max(self._row_wide(row) for row in self._rows.values())
        self.wide = max(rows, CHARACTER * len(title_of(group))) + 2 * PAD

    def _place_width(self, place: Place) -> float:
        own = self._graph.levels[place[0]] == place[1]
        return wide_of(place[0]) if own else 8.0

    def _row_wide(self, row: Sequence[Place]) -> float:
        return sum(map(self._place_width, row)) + GAP * (len(row) - 1)

    def place_rows(self, layout: PartitionLayout, left: float, top: float, highest: int) -> None:
        """Put the rows between `left` and `left + wide`, that of level `highest` at `top`."""
        for level in sorted(self._rows):
            row = self._rows[level]
            row.sort(key=lambda place: (self._mean_place(layout, place), place[0]))
            x = left + (self.wide - self._row_wide(row)) / 2
            for place in row:
                size = self._place_width(place)
                layout.places[place] = x + size / 2, top + ROW * (highest - level)
                x += size + GAP
        above = top + ROW * (highest - max(self._rows)) - HIGH / 2 - TITLE
        under = top + ROW * (highest - min(self._rows)) + HIGH / 2 + PAD
        layout.boxes.append(GroupBox(self._group, left, above, self.wide, under - above))

    def _mean_place(self, layout: PartitionLayout, place: Place) -> float:
        """The mean place of what a name reads, or of where its edge comes from."""
        name, level = place
        if self._graph.levels[name] < level:
            return layout.places[name, level - 1][0]
        below = [
            layout.places[list(edge_places(self._graph, self._group, parent, name))[-2]][0]
            for parent in self._graph.parents.get(name, ())
            if parent in self._group.views or parent in self._group.internal
        ]
        return fmean(below) if below else 0.0


def _connected_groups(found: Partition) -> Iterable[list[ViewGroup]]:
    """Groups that are connected by what they read, directly or by others."""
    homes = {base: group.name for group in found.groups for base in group.internal}
    homes |= {view: group.name for group in found.groups for view in group.views}
    band = {group.name: [group] for group in found.groups}
    for group in found.groups:
        for base in group.external:
            one, other = band[group.name], band[homes[base]]
            if one is not other:
                large, small = (one, other) if len(one) >= len(other) else (other, one)
                large += small
                band |= dict.fromkeys((each.name for each in small), large)
    return {id(groups): groups for groups in band.values()}.values()
