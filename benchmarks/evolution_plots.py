"""The figures of the Dyno experiments, each laid out as the paper's own.

SVG with its text as text and without a date, as the figures of the PVM experiment. What the paper
reports is in the titles, in words: its figures have no numbers that could be drawn beside ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.evolution_broken import PAIRS, SETTINGS, Cost
from benchmarks.evolution_mixed import Mixed
from benchmarks.evolution_overhead import Overhead
from benchmarks.pvm_plots import STYLE, save

BLUE, ORANGE, GREEN, GREY = "#1b6ca8", "#e07b39", "#4b9b5f", "#777777"
SHADES = {"apart": "#222222", "seen before": "#9a9a9a", "broken": "#ffffff"}
"""The paper's colours: black, grey and white boxes."""
NAMES = {
    "apart": "far apart",
    "seen before": "with pre-exec detection",
    "broken": "without: the query breaks",
}


def draw_overheads(file: Path, found: Sequence[Overhead]) -> None:
    """Figure 12: total time with and without detection; below it, the ratio with its quartiles."""
    with mpl.rc_context(STYLE):
        canvas = Figure(figsize=(8, 4.6), layout="constrained")
        groups = list(dict.fromkeys((each.kind, each.algorithm) for each in found))
        panels = canvas.subplots(2, len(groups), squeeze=False, sharey="row", sharex="col")
        for column, group in enumerate(groups):
            own = [each for each in found if (each.kind, each.algorithm) == group]
            _draw_times(panels[0][column], own)
            _draw_ratios(panels[1][column], own)
            panels[0][column].set_title(f"{group[0]}, {group[1].replace('_', ' ')}")
        panels[0][0].set_ylabel("total maintenance, seconds")
        panels[1][0].set_ylabel("with / without")
        handles, labels = panels[0][0].get_legend_handles_labels()
        more, names = panels[1][0].get_legend_handles_labels()
        canvas.legend(
            handles + more, labels + names, loc="outside lower center", ncols=4, frameon=False
        )
        canvas.suptitle("As in figure 12: data updates only (paper: less than 5 % in all cases)")
        save(canvas, file)


def _draw_times(panel: Axes, found: Sequence[Overhead]) -> None:
    xs = [each.updates for each in found]
    with_it = [each.seconds_with for each in found]
    panel.plot(xs, with_it, color=BLUE, marker="o", linewidth=3, label="with detection")
    without = [each.seconds_without for each in found]
    panel.plot(xs, without, color=ORANGE, marker="o", linewidth=1.2, label="without")
    panel.set(xscale="log", yscale="log")
    panel.grid(visible=True, color="#e4e4e4", linewidth=0.8)


def _draw_ratios(panel: Axes, found: Sequence[Overhead]) -> None:
    xs = [each.updates for each in found]
    for quartiles, colour, label, shift in (
        ([each.ratio for each in found], BLUE, "ratio of times, quartiles", 0.94),
        ([each.cpu_ratio for each in found], GREEN, "of processor times", 1.06),
    ):
        middles = [each.median for each in quartiles]
        below = [each.median - each.low for each in quartiles]
        above = [each.high - each.median for each in quartiles]
        panel.errorbar(
            [shift * x for x in xs],
            middles,
            yerr=[below, above],
            color=colour,
            marker="o",
            markersize=4,
            linestyle="none",
            capsize=3,
            label=label,
        )
    panel.axhline(1.0, color=GREY, linewidth=0.8)
    panel.axhline(1.05, color=GREY, linewidth=0.8, linestyle=":")
    panel.set(xlabel="updates", xticks=xs, xticklabels=[f"{x:,}" for x in xs])
    panel.set_xlim(min(xs) / 1.7, max(xs) * 1.7)
    panel.minorticks_off()


def draw_costs(file: Path, found: Sequence[Cost]) -> None:
    """Figure 13: black, grey and white boxes for both kinds of pairs."""
    with mpl.rc_context(STYLE):
        canvas = Figure(figsize=(6.4, 4), layout="constrained")
        panel = canvas.subplots()
        settings = [each for each in SETTINGS if any(c.setting == each for c in found)]
        for number, setting in enumerate(settings):
            own = [next(c for c in found if (c.pair, c.setting) == (p, setting)) for p in PAIRS]
            heights = [cost.median for cost in own]
            below = [cost.median - min(cost.seconds) for cost in own]
            above = [max(cost.seconds) - cost.median for cost in own]
            panel.bar(
                [pair + 0.27 * (number - 1) for pair in range(len(PAIRS))],
                heights,
                width=0.24,
                color=SHADES[setting],
                edgecolor="#222222",
                yerr=[below, above],
                capsize=3,
                ecolor=ORANGE,
                label=NAMES[setting],
            )
        panel.set(xticks=range(len(PAIRS)), xticklabels=PAIRS, ylabel="total maintenance, seconds")
        panel.set_title(
            "As in figure 13: cost of a broken query\n"
            "(paper: significant for SC/SC, none for DU/SC; pre-exec avoids it)"
        )
        canvas.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
        save(canvas, file)


def draw_mixed(file: Path, found: Sequence[Mixed]) -> None:
    """Figure 14: maintenance by interval, with and without pre-exec detection; aborts below it."""
    with mpl.rc_context(STYLE):
        canvas = Figure(figsize=(6.4, 5), layout="constrained")
        upper, lower = canvas.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        for detection, colour, label, shift in (
            ("pessimistic", BLUE, "with pre-exec detection", 0.97),
            ("optimistic", ORANGE, "without", 1.03),
        ):
            own = [each for each in found if each.detection == detection]
            xs = [shift * each.interval_ms for each in own]
            middles = [each.ms_per_update for each in own]
            below = [each.ms_per_update - min(each.ms_per_update_all) for each in own]
            above = [max(each.ms_per_update_all) - each.ms_per_update for each in own]
            upper.errorbar(
                xs, middles, yerr=[below, above], color=colour, marker="o", capsize=3, label=label
            )
            aborts = [
                (each.aborted_adaptations + each.aborted_batches) / each.repetitions for each in own
            ]
            lower.plot(xs, aborts, color=colour, marker="o")
        intervals = sorted({each.interval_ms for each in found})
        upper.set(ylabel="maintenance per update, ms", xscale="log")
        lower.set(ylabel="aborts per run", xlabel="interval between updates, ms")
        lower.set(xticks=intervals, xticklabels=[f"{each:g}" for each in intervals])
        lower.minorticks_off()
        for panel in (upper, lower):
            panel.set_ylim(0, 1.1 * panel.get_ylim()[1])
            panel.grid(visible=True, color="#e4e4e4", linewidth=0.8)
        upper.set_title(
            "As in figure 14: 95 % data updates, 5 % schema changes\n"
            "(paper: pre-exec detection helps under high load)"
        )
        canvas.legend(
            *upper.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False
        )
        save(canvas, file)
