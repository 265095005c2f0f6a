"""A partition as a picture: groups as boxes, views by level above the bases that they read.

Lines inside a group are grey. What a group reads from another one comes in by a coloured line: a
virtual base's is orange, an external real base's blue. Text is text, without a date, so a picture
is small and changes only when the partition does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

from viewkeeper.partition.pyco import Partition
from viewkeeper.partition.svg_layout import (
    HIGH,
    LIMIT,
    MARGIN,
    PAD,
    GroupBox,
    PartitionLayout,
    Place,
    edge_places,
    lay_out,
    title_of,
    wide_of,
)
from viewkeeper.partition.view_group import ViewGroup

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
