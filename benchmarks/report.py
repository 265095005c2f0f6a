"""What was measured, for people and for machines: a table, the aims, JSON, and a plot.

Absolute seconds belong to one machine at one time. The aims are ratios of figures from one run, and
the load of the machine stands beside every figure.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import itertools
import json
import math
import os
import platform
import sqlite3
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.maintenance import LOOKUPS_MAX, WAYS, Figure, Way
from benchmarks.probe import PHASES

FEW, MANY = 1_000, 100_000
"""The batch sizes that the aims compare."""


@dataclass(frozen=True, slots=True)
class Aim:
    """A figure of this run, and the limit that it is meant to keep."""

    name: str
    value: float
    limit: str
    holds: bool

    def __str__(self) -> str:
        return (
            f"{'holds' if self.holds else 'MISSED':7} {self.name}: {self.value:.3g} ({self.limit})"
        )


def at_most(name: str, value: float, limit: float) -> Aim:
    return Aim(name, value, f"at most {limit:g}", value <= limit)


def at_least(name: str, value: float, limit: float) -> Aim:
    return Aim(name, value, f"at least {limit:g}", value >= limit)


def aims(figures: Sequence[Figure], recompute: float | None) -> list[Aim]:
    """The aims that the measured sizes allow to judge."""
    found = []
    on_spark = [f for f in figures if f.way == "spark"]
    if figures:
        found.append(at_most("Spark jobs per batch", max(f.jobs for f in on_spark), 1))
        asked = max(f.lookups_per_part for f in figures)
        found.append(at_most("lookups per part", asked, LOOKUPS_MAX))
    few, many = _best(figures, FEW), _best(figures, MANY)
    if few and many:
        ratio = f"a batch of {MANY:,} against one of {FEW:,}"
        spark = [_seconds(figures, "spark", size) for size in (MANY, FEW)]
        found.append(at_most(f"{ratio}, on Spark", spark[0] / spark[1], 4))
        found.append(at_most(f"{ratio}, best ways", many / few, 4))
    if few and recompute:
        spark_few = _seconds(figures, "spark", FEW)
        name = f"recomputation against a batch of {FEW:,}"
        found.append(at_least(f"{name}, on Spark", recompute / spark_few, 10))
        found.append(at_least(f"{name}, best way", recompute / few, 10))
    return found


def crossover(figures: Sequence[Figure]) -> float | None:
    """The changes in a batch from which on Spark is faster, between measured sizes; if any."""
    pairs = [
        (f.changes, f.seconds / _seconds(figures, "spark", f.updates))
        for f in figures
        if f.way == "inline"
    ]
    for (size, ratio), (larger, next_ratio) in itertools.pairwise(pairs):
        if ratio < 1 <= next_ratio:
            share = math.log(1 / ratio) / math.log(next_ratio / ratio)
            return float(size * (larger / size) ** share)
    return None


def _seconds(figures: Sequence[Figure], way: Way, updates: int) -> float:
    return next(f.seconds for f in figures if f.way == way and f.updates == updates)


def _best(figures: Sequence[Figure], updates: int) -> float | None:
    return min((f.seconds for f in figures if f.updates == updates), default=None)


HEADER = (
    f"{'updates':>8} {'way':6} {'seconds':>8} {'min':>7} {'cpu':>7} {'updates/s':>10} {'ts':>4}"
    f" {'changes':>8} {'rows':>8} {'kB':>7} {'parts':>5} {'jobs':>4} {'load':>5}  lookups"
)


def line(figure: Figure) -> str:
    """One row of the table."""
    asked = ", ".join(f"{name} {count}" for name, count in sorted(figure.lookups.items()))
    return (
        f"{figure.updates:>8,} {figure.way:6} {figure.seconds:8.3f} {figure.seconds_min:7.3f}"
        f" {figure.cpu:7.3f} {figure.updates_per_second:10,.0f} {figure.transactions:>4}"
        f" {figure.changes:>8,} {figure.rows:>8,} {figure.bytes >> 10:>7,} {figure.parts:>5}"
        f" {figure.jobs:>4} {figure.load:5.1f}  {asked}"
    )


def phase_table(figures: Sequence[Figure]) -> str:
    """Milliseconds per phase."""
    lines = ["milliseconds" + " " * 4 + "".join(f"{name:>13}" for name in PHASES)]
    for f in figures:
        cells = "".join(f"{1000 * f.phases[name]:13.1f}" for name in PHASES)
        lines.append(f"{f.updates:>8,} {f.way:6} {cells}")
    return "\n".join(lines)


def environment() -> dict[str, Any]:
    """What the figures depend on."""
    packages = ("pyspark", "pyarrow", "deltalake", "numpy")
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len(_git("status", "--porcelain", "--", "src").splitlines()),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "sqlite": sqlite3.sqlite_version,
        **{name: importlib.metadata.version(name) for name in packages},
    }


def _git(*arguments: str) -> str:
    root = Path(__file__).parent
    command = ["git", "-c", "safe.directory=*", *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def write_json(
    file: Path, facts: dict[str, Any], figures: Sequence[Figure], judged: list[Aim]
) -> None:
    body = {
        **facts,
        "batches": [asdict(figure) for figure in figures],
        "aims": [asdict(aim) for aim in judged],
    }
    file.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")


def plot(file: Path, figures: Sequence[Figure], recompute: float | None, title: str) -> None:
    """Seconds against batch size, both axes logarithmic."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    canvas, axes = pyplot.subplots(figsize=(7.2, 4.5), layout="constrained")
    colours = {"inline": "#1b6ca8", "spark": "#e07b39"}
    names = {"inline": "inline, in the driver", "spark": "one Spark job"}
    for way in WAYS:
        own = [f for f in figures if f.way == way]
        axes.plot(
            [f.updates for f in own],
            [f.seconds for f in own],
            marker="o",
            color=colours[way],
            label=names[way],
        )
    if recompute is not None:
        axes.axhline(recompute, color="#555555", linestyle="--", label="recomputation on Spark")
    axes.set(xscale="log", yscale="log", title=title)
    if recompute is not None:
        # Room for the legend above the line.
        axes.set_ylim(top=8 * recompute)
    axes.set(xlabel="concurrent updates in the batch", ylabel="seconds, sources to committed view")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(visible=True, which="major", color="#dddddd")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    canvas.savefig(file, dpi=150)
    pyplot.close(canvas)
