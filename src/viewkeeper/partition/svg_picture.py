"""A partition as a picture: groups as boxes, views by level above the bases that they read.

Lines inside a group are grey. What a group reads from another one comes in by a coloured line: a
virtual base's is orange, an external real base's blue. Text is text, without a date, so a picture
is small and changes only when the partition does.

Every level has a row, bases at the bottom. A group has columns of its own, so boxes never overlap;
groups that have nothing to do with each other may stand in different bands. Inside a group, an edge
that passes a row between has a place of its own in it (the idea of Sugiyama's layered drawings), so
no line runs through a name. Rows are ordered by the mean place of what their names read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from xml.sax.saxutils import escape

from viewkeeper.partition.message_cost import group_levels
from viewkeeper.partition.pyco import Partition
from viewkeeper.partition.view_graph import ViewGraph, ViewGroup

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


LEGEND = (
    ("base", "base"),
    ("view", "view"),
    ("virtual", "a view of another group: virtual base"),
    ("external", "a base of another group: external base"),
)
FOOT = 40.0
STYLE = (
    "<style>text{font:12px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#222}"
    ".name{text-anchor:middle}.title{font-weight:bold;fill:#555}"
    ".group{fill:#f6f7f9;stroke:#aab;stroke-width:1.5}.alone{stroke-dasharray:5 4}"
    ".view{fill:#fff;stroke:#1b6ca8;stroke-width:1.5}.base{fill:#e9e4d4;stroke:#8a7a4a}"
    "path{fill:none;stroke:#8a8f98;stroke-width:1.3}"
    ".virtual{stroke:#e07b39;stroke-width:2}.external{stroke:#1b6ca8;stroke-dasharray:6 4}</style>"
)


def draw_partition(found: Partition, title: str = "Groups of views") -> str:
    """The partition as SVG."""
    layout = lay_out(found)
    wide, high = max(layout.wide, 860.0), layout.high + FOOT
    inner, outer = _draw_edges(found, layout)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" '
        f'width="{wide:.0f}" height="{high:.0f}" role="img">',
        f"<title>{escape(title)}</title>",
        STYLE,
        f'<rect width="{wide:.0f}" height="{high:.0f}" fill="#ffffff"/>',
        *map(_draw_box, layout.boxes),
        *inner,
        *outer,
        *_draw_names(found, layout),
        *_draw_legend(layout.high + FOOT / 2 - MARGIN / 2),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _draw_box(box: GroupBox) -> str:
    kind = "group" if box.group.needs_registry else "group alone"
    title = title_of(box.group)
    return (
        f'<rect class="{kind}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.wide:.1f}" '
        f'height="{box.high:.1f}" rx="8"/>'
        f'<text class="title" x="{box.x + PAD / 2:.1f}" y="{box.y + 18:.1f}">{escape(title)}</text>'
    )


def _draw_edges(found: Partition, layout: PartitionLayout) -> tuple[list[str], list[str]]:
    """Lines inside groups, and lines between them."""
    inner: list[str] = []
    outer: list[str] = []
    for group in found.groups:
        for view in group.views:
            for parent in found.graph.parents[view]:
                points = _edge_points(found, layout, group, parent, view)
                if kind := _edge_kind(group, parent):
                    outer.append(_draw_line(points, kind))
                else:
                    inner.append(_draw_line(points, ""))
    return inner, outer


def _edge_kind(group: ViewGroup, parent: str) -> str:
    if parent in group.virtual:
        return "virtual"
    return "external" if parent in group.external else ""


def _edge_points(
    found: Partition, layout: PartitionLayout, group: ViewGroup, parent: str, view: str
) -> list[tuple[float, float]]:
    """From the upper rim of the parent, by the places between, to the lower rim of the view."""
    route: list[Place] = list(edge_places(found.graph, group, parent, view))
    (x, y), *between, (end_x, end_y) = (layout.places[place] for place in route)
    read = found.graph.parents[view]
    # Lines that end at one view do so side by side.
    step = min(14.0, (wide_of(view) - 20) / max(1, len(read) - 1))
    order = sorted(
        read,
        key=lambda name: layout.places[list(edge_places(found.graph, group, name, view))[-2]][0],
    )
    end_x += step * (order.index(parent) - (len(read) - 1) / 2)
    return [(x, y - HIGH / 2), *between, (end_x, end_y + HIGH / 2)]


def _draw_line(points: Sequence[tuple[float, float]], kind: str) -> str:
    """A curve that leaves and arrives upright."""
    path = "M{:.1f},{:.1f}".format(*points[0])
    for (x1, y1), (x2, y2) in pairwise(points):
        bend = (y1 - y2) / 2
        path += f" C{x1:.1f},{y1 - bend:.1f} {x2:.1f},{y2 + bend:.1f} {x2:.1f},{y2:.1f}"
    named = f' class="{kind}"' if kind else ""
    return f'<path{named} d="{path}"/>'


def _draw_names(found: Partition, layout: PartitionLayout) -> Iterator[str]:
    levels = found.graph.levels
    for (name, level), (x, y) in layout.places.items():
        if levels[name] == level:
            yield _draw_shape(name, x, y, "view" if level else "base")


def _draw_shape(name: str, x: float, y: float, kind: str) -> str:
    wide = wide_of(name)
    told = name if len(name) <= LIMIT else name[: LIMIT - 1] + "…"
    title = "" if told == name else f"<title>{escape(name)}</title>"
    round_by = HIGH / 2 if kind == "base" else 4
    return (
        f'<rect class="{kind}" x="{x - wide / 2:.1f}" y="{y - HIGH / 2:.1f}" width="{wide:.1f}" '
        f'height="{HIGH:.0f}" rx="{round_by:.0f}"/>'
        f'<text class="name" x="{x:.1f}" y="{y + 4:.1f}">{escape(told)}{title}</text>'
    )


def _draw_legend(y: float) -> Iterator[str]:
    x = MARGIN
    for kind, text in LEGEND:
        if kind in ("view", "base"):
            yield _draw_shape(text, x + 26, y, kind)
            x += 70
            continue
        yield f'<path class="{kind}" d="M{x:.1f},{y:.1f} h34"/>'
        yield f'<text x="{x + 42:.1f}" y="{y + 4:.1f}">{escape(text)}</text>'
        x += 42 + 7.4 * len(text) + 24
