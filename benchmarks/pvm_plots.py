"""The figures of the PVM experiment: the model on the left, the simulation on the right.

SVG with its text as text and without a date, so that a figure is small and changes only when its
numbers do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.pvm_curves import Curve, Experiment
from benchmarks.pvm_ticks import Timeline

COLOURS = {"SWEEP": "#e07b39", "PVM": "#1b6ca8", "PVM, a = 8 ms": "#4b9b5f"}
WIDTHS = {"SWEEP": 3.0, "PVM": 1.5, "PVM, a = 8 ms": 0.8}
"""What lies behind is wider and so is seen where curves are the same."""
SHADES = ("#9ccbe8", "#5a9fd0", "#1b6ca8", "#134b76", "#08203a")
"""For curves that differ by a number: the darker, the more."""
UPDATES = ("#1b6ca8", "#e07b39", "#4b9b5f")
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "viewkeeper",
    "font.sans-serif": ["DejaVu Sans", "sans-serif"],
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw_curves(file: Path, experiment: Experiment) -> None:
    """Two panels with one scale; in the second, the model once more behind the simulation."""
    with mpl.rc_context(STYLE):
        canvas = Figure(figsize=(8, 3.6), layout="constrained")
        left, right = canvas.subplots(1, 2, sharex=True, sharey=True)
        for curve, colour in _coloured(experiment.curves):
            _draw_curve(left, right, curve, colour)
        for panel, title in ((left, "cost model"), (right, "simulation")):
            panel.set(title=title, xlabel=experiment.x_label)
            panel.grid(visible=True, color="#e4e4e4", linewidth=0.8)
        xs = experiment.curves[0].xs
        left.set(ylabel="total time, seconds", xticks=xs[:: 4 if len(xs) > 10 else 1])
        left.set_ylim(bottom=0)
        handles, labels = right.get_legend_handles_labels()
        handles.append(Line2D([], [], color="#777777", linewidth=1, linestyle=":"))
        labels.append("model, repeated")
        canvas.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        canvas.suptitle(f"As in figure {experiment.number}: {experiment.title}", fontsize=11)
        save(canvas, file)


def _coloured(curves: Sequence[Curve]) -> list[tuple[Curve, str]]:
    if all(curve.label in COLOURS for curve in curves):
        return [(curve, COLOURS[curve.label]) for curve in curves]
    return list(zip(curves, SHADES, strict=True))


def _draw_curve(left: Axes, right: Axes, curve: Curve, colour: str) -> None:
    width = WIDTHS.get(curve.label, 1.5)
    left.plot(curve.xs, curve.model, color=colour, linewidth=width)
    right.plot(curve.xs, curve.model, color=colour, linewidth=1, linestyle=":")
    right.plot(
        curve.xs,
        curve.simulated,
        color=colour,
        linewidth=width,
        marker="o",
        markersize=width + 2.5,
        label=curve.label,
    )


def draw_ticks(file: Path, lines: Sequence[Timeline]) -> None:
    """Figure 22: which source works for which update in which tick; SWEEP, then PVM, p = 2, ..."""
    names = ("SWEEP", *(f"PVM, p = {p}" for p in range(2, len(lines) + 1)))
    with mpl.rc_context(STYLE):
        canvas = Figure(figsize=(8, 2.2), layout="constrained")
        panels = canvas.subplots(1, len(lines), sharex=True, sharey=True)
        for panel, name, line in zip(panels, names, lines, strict=True):
            _draw_line(panel, line)
            panel.set(title=f"{name}: {line.elapsed_ticks} ticks", xlabel="tick")
        sources = range(1, 1 + max(lookup.source for lookup in lines[0].served))
        panels[0].set(yticks=sources, yticklabels=[f"IS{source}" for source in sources])
        panels[0].set(xticks=range(0, lines[0].elapsed_ticks + 1, 2))
        panels[0].invert_yaxis()
        save(canvas, file)


def _draw_line(panel: Axes, line: Timeline) -> None:
    for lookup in line.served:
        width, colour = lookup.end - lookup.begin, UPDATES[lookup.update - 1]
        bar = panel.barh(lookup.source, width, left=lookup.begin, color=colour, edgecolor="white")
        panel.bar_label(bar, [f"DU{lookup.update}"], label_type="center", color="white", fontsize=8)
    panel.axvline(line.elapsed_ticks, color="#555555", linestyle=":", linewidth=1)


def save(canvas: Figure, file: Path) -> None:
    undated = {"Date": None, "Creator": None} if file.suffix == ".svg" else None
    canvas.savefig(file, metadata=undated)
