"""The figures of partitioning: its time, messages for one update, and delays, by size and clusters.

SVG with its text as text and without a date, so that a figure is small and changes only when its
numbers do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.pvm_plots import STYLE, save

WAYS = {
    "ryco": ("one registry (RyCo)", "#e07b39"),
    "pyco": ("one per group (PyCo)", "#1b6ca8"),
    "none": ("no coordination", "#777777"),
}


class Size(Protocol):
    """The size of a graph."""

    @property
    def views(self) -> int: ...

    @property
    def clusters(self) -> int: ...


class Delays(Protocol):
    """How long updates took."""

    @property
    def delay_mean(self) -> float: ...


class Point(Protocol):
    """What was found for one graph."""

    @property
    def shape(self) -> Size: ...

    @property
    def seconds(self) -> float: ...

    @property
    def messages(self) -> Mapping[str, Mapping[str, float]]: ...

    @property
    def traffic(self) -> Mapping[str, Delays]: ...


def draw(folder: Path, growing: Sequence[Point], clustered: Sequence[Point]) -> None:
    """Three pictures: `registry-time.svg`, `registry-messages.svg`, `registry-delays.svg`."""
    with mpl.rc_context(STYLE):
        _draw_time(folder / "registry-time.svg", growing)
        _draw_messages(folder / "registry-messages.svg", growing, clustered)
        _draw_delays(folder / "registry-delays.svg", growing, clustered)


def _draw_time(file: Path, growing: Sequence[Point]) -> None:
    canvas = Figure(figsize=(5, 3.4), layout="constrained")
    axes = canvas.subplots()
    views = [each.shape.views for each in growing]
    axes.plot(views, [each.seconds for each in growing], color="#1b6ca8", marker="o")
    axes.set(xlabel="views, in clusters of 100", ylabel="seconds of one core")
    axes.set(xscale="log", yscale="log", title="Partitioning")
    _decorate(axes)
    save(canvas, file)


def _draw_messages(file: Path, growing: Sequence[Point], clustered: Sequence[Point]) -> None:
    canvas = Figure(figsize=(8, 3.8), layout="constrained")
    left, right = canvas.subplots(1, 2, sharey=True)
    most = max(each.shape.views for each in clustered)
    for name, (label, colour) in WAYS.items():
        for panel, points, xs in (
            (left, growing, [each.shape.views for each in growing]),
            (right, clustered, [each.shape.clusters for each in clustered]),
        ):
            totals = [each.messages[name]["total"] for each in points]
            panel.plot(xs, totals, color=colour, marker="o", markersize=4, label=label)
    left.set(xlabel="views, in clusters of 100", ylabel="messages per update", xscale="log")
    left.set(yscale="log", title="more clusters")
    right.set(xlabel=f"clusters that {most:,} views are in", xscale="log", title="smaller clusters")
    for panel in (left, right):
        _decorate(panel)
    handles, labels = left.get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    save(canvas, file)


def _draw_delays(file: Path, growing: Sequence[Point], clustered: Sequence[Point]) -> None:
    """Means; RyCo's line is wide, because PyCo's lies on it."""
    canvas = Figure(figsize=(8, 3.8), layout="constrained")
    left, right = canvas.subplots(1, 2, sharey=True)
    most = max(each.shape.views for each in clustered)
    for name, (label, colour) in WAYS.items():
        for panel, points, xs in (
            (left, growing, [each.shape.views for each in growing]),
            (right, clustered, [each.shape.clusters for each in clustered]),
        ):
            means = [each.traffic[name].delay_mean for each in points]
            wide = 5.0 if name == "ryco" else 1.5
            panel.plot(xs, means, color=colour, marker="o", markersize=4, lw=wide, label=label)
    left.set(xlabel="views, in clusters of 100", ylabel="delay, in transmissions", xscale="log")
    left.set(ylim=(0, None), title="more clusters")
    right.set(xlabel=f"clusters that {most:,} views are in", xscale="log", title="smaller clusters")
    for panel in (left, right):
        _decorate(panel)
    handles, labels = left.get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    save(canvas, file)


def _decorate(axes: Axes) -> None:
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.grid(visible=True, color="#e4e4e4", linewidth=0.8)
