"""The PVM paper's experiment, simulated and drawn: `python -m benchmarks.pvm_experiment`.

SWEEP and PVM, the production state machines, run through the settings of the paper's sections 7.2
to 7.6 in simulated time, beside the curves of its cost model (`benchmarks.pvm_curves`). The figures
go to docs/figures, what was found to the terminal; both are the same on every machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import pvm_plots
from benchmarks.pvm_curves import EXPERIMENTS, SWEEP, Curve, Experiment, pvm
from benchmarks.pvm_ticks import TickSetting, run_timeline

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures"


def speed_ups(curve: Curve) -> dict[int, float]:
    """How many times faster than with one update at a time."""
    return {
        x: curve.simulated[0] / seconds
        for x, seconds in zip(curve.xs, curve.simulated, strict=True)
    }


def turning_point(curve: Curve) -> int:
    """The last x up to which the time is within 5 % of that of the first."""
    return max(x for x in curve.xs if curve.at(x) <= 1.05 * curve.simulated[0])


def findings(experiments: Sequence[Experiment]) -> list[str]:
    """One sentence for each experiment, with its numbers."""
    by_threads, by_sources, by_run, by_number, by_interval = experiments
    return [
        _of_threads(by_threads),
        _of_sources(by_sources),
        _of_distribution(by_run),
        _of_updates(by_number),
        _of_intervals(by_interval),
    ]


def _of_threads(found: Experiment) -> str:
    _, in_step, apart = found.curves
    ups = speed_ups(in_step)
    listed = ", ".join(f"{ups[p]:.1f}" for p in (2, 3, 4))
    best = max(ups, key=lambda p: ups[p])
    return (
        f"speed-up {listed} at p = 2, 3, 4; at most {ups[best]:.2f}, first at p = {best};"
        f" with starts a little apart {speed_ups(apart)[4]:.2f} already at p = 4"
    )


def _of_sources(found: Experiment) -> str:
    parts = []
    for m, curve in enumerate(found.curves, 2):
        ups = speed_ups(curve)
        parts.append(f"m = {m}: {ups[m]:.1f} at p = m, at most {max(ups.values()):.1f}")
    return "speed-up " + "; ".join(parts)


def _of_distribution(found: Experiment) -> str:
    sweep, parallel = found.curve("SWEEP"), found.curve("PVM")
    longer = sweep.at(10) / parallel.at(10) - 1
    flat = min(c for c in parallel.xs if parallel.at(c) == parallel.at(10))
    return (
        f"PVM {parallel.at(1):.1f} s at c = 1, {parallel.at(10):.1f} s from c = {flat} on; SWEEP"
        f" {sweep.at(1):.0f} s at every c, {100 * longer:.0f} % longer at c = 10"
    )


def _of_updates(found: Experiment) -> str:
    sweep, parallel = found.curve("SWEEP"), found.curve("PVM")
    ratios = [one / other for one, other in zip(sweep.simulated, parallel.simulated, strict=True)]
    low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
    return f"SWEEP takes {low if low == high else f'{low} to {high}'} times as long as PVM"


def _of_intervals(found: Experiment) -> str:
    sweep, parallel = found.curve("SWEEP"), found.curve("PVM")
    same = min(x for x in sweep.xs if sweep.at(x) == parallel.at(x))
    return (
        f"PVM turns at {turning_point(parallel)} ms, SWEEP at {turning_point(sweep)} ms;"
        f" from {same} ms on they are the same"
    )


# -- all of it -------------------------------------------------------------------------------------


def draw(folder: Path) -> None:
    """Run everything, write the figures, print what was found."""
    folder.mkdir(parents=True, exist_ok=True)
    figure_22 = [run_timeline(TickSetting(3, 3), subject) for subject in (SWEEP, pvm(2), pvm(3))]
    pvm_plots.draw_ticks(folder / "pvm-ticks.svg", figure_22)
    ticks = ", ".join(str(line.elapsed_ticks) for line in figure_22)
    print(f"figure 22: {ticks} ticks for SWEEP, p = 2, p = 3")
    found = [experiment() for experiment in EXPERIMENTS]
    for experiment, sentence in zip(found, findings(found), strict=True):
        print(f"figure {experiment.number}: {sentence}", flush=True)
        pvm_plots.draw_curves(folder / f"pvm-{experiment.name}.svg", experiment)
    print(f"figures written to {folder}")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.pvm_experiment", description=__doc__)
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the figures")
    draw(parser.parse_args(arguments).out)


if __name__ == "__main__":
    main(sys.argv[1:])
