"""What maintenance costs: `python -m benchmarks.run`, or `make bench`.

Prints, from one run, the time of batches of concurrent updates inline and on Spark, where it goes,
how often the sources are asked, the time of recomputation on Spark, and whether the aims hold. The
same goes to `maintenance.json` and `maintenance.png` in the folder of `--out`. The section `pvm` is
the PVM paper's experiment in simulated time, `latency` the same on real databases that are slow,
`sources` what every kind of source gives and costs, `evolution` the Dyno paper's experiments,
`registry` how long partitioning takes and how many messages it saves, `reports` what outer joins,
aggregates and views on views cost beside plain joins, `loads` what a first load costs beside
reading the same rows, `peers` a race against other systems, which are installed for it,
`small_batches` what one row costs, `rates` how fresh views are while changes keep coming, `lanes`
what an expensive view costs a cheap one beside it, `reading` what a view costs beside plain
Parquet, `cluster` two workers beside one, `wake_up` what waiting for a server costs, `backlog` a
million changes that wait at once, `object_commits` what one row costs in object storage.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import evolution, latency, loads, pvm_experiment, registry, report, reports, sources
from benchmarks.maintenance import Bench, Figure, measure_batches, peak_driver_mb, prepared, warm_up
from benchmarks.peers import race

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = (
    "pvm",
    "latency",
    "sources",
    "evolution",
    "registry",
    "reports",
    "loads",
    "peers",
    "small_batches",
    "rates",
    "lanes",
    "reading",
    "cluster",
    "wake_up",
    "backlog",
    "object_commits",
    "batches",
    "recompute",
)

APART = (
    "small_batches",
    "rates",
    "lanes",
    "reading",
    "cluster",
    "wake_up",
    "backlog",
    "object_commits",
)
"""Sections that are processes of their own, with a Spark session of their own or with none."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the world is, how often each batch size is measured, and by how many looks."""

    rows: int
    repetitions: Mapping[int, int]
    recomputations: int
    transactions: int
    warm_up: int
    warm_ups: int


FULL = Sizes(200_000, {1: 12, 100: 9, 1_000: 9, 10_000: 7, 100_000: 5}, 5, 10, 1_000, 3)
QUICK = Sizes(2_000, {1: 3, 100: 3, 1_000: 3}, 2, 4, 100, 2)
TINY = Sizes(200, {1: 1, 100: 1}, 1, 2, 10, 0)


def main(arguments: Sequence[str]) -> None:
    options = _options(arguments)
    # Tasks on Spark import these modules too.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    sizes = QUICK if options.quick else FULL
    if "pvm" in options.sections:
        pvm_experiment.draw(options.out)
    if "latency" in options.sections:
        latency.main(["--out", str(options.out)])
    further = ["--out", str(options.out), *(["--quick"] if options.quick else [])]
    sections = {
        "sources": sources.main,
        "evolution": evolution.main,
        "registry": registry.main,
        "reports": reports.main,
        "loads": loads.main,
        "peers": race.main,
    }
    for name, run_section in sections.items():
        if name in options.sections:
            run_section(further)
    for name in APART:
        if name in options.sections:
            subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *further], check=True)
    if not {"batches", "recompute"} & {*options.sections}:
        return
    with (
        tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as folder,
        prepared(Path(folder, "world"), sizes.rows) as bench,
    ):
        print(f"initial load: {bench.load():.1f} s", flush=True)
        measure(bench, sizes, options.out, options.sections)


def measure(bench: Bench, sizes: Sizes, out: Path, sections: Sequence[str] = SECTIONS) -> None:
    """Measure, print and write; an aim that is missed is a figure like the others."""
    out.mkdir(parents=True, exist_ok=True)
    facts = report.environment() | {"rows_per_relation": sizes.rows, "java": _java(bench)}
    print(" ".join(f"{name}={value}" for name, value in facts.items()), flush=True)
    figures = _batches(bench, sizes) if "batches" in sections else []
    recompute = _recompute(bench, sizes) if "recompute" in sections else None
    _conclude(out, facts, figures, recompute)


def _batches(bench: Bench, sizes: Sizes) -> list[Figure]:
    warm_up(bench, sizes.warm_up, sizes.warm_ups)
    print(report.HEADER)

    def told(figure: Figure) -> None:
        print(report.line(figure), flush=True)

    return measure_batches(bench, sizes.repetitions, sizes.transactions, told)


def _recompute(bench: Bench, sizes: Sizes) -> float:
    seconds = [bench.recompute() for _ in range(sizes.recomputations)]
    median, load = statistics.median(seconds), os.getloadavg()[0]
    print(f"recomputation on Spark: {median:.3f} s (min {min(seconds):.3f}, load {load:.1f})")
    return median


def _conclude(
    out: Path, facts: dict[str, Any], figures: Sequence[Figure], recompute: float | None
) -> None:
    judged = report.aims(figures, recompute)
    meeting = report.crossover(figures) if figures else None
    if figures:
        print(report.phase_table(figures))
        crossing = (
            "not between the measured sizes" if meeting is None else f"{meeting:,.0f} changes"
        )
        print(f"Spark is faster from: {crossing}; peak memory of the driver {peak_driver_mb()} MB")
    for aim in judged:
        print(aim)
    facts |= {"recompute_seconds": recompute, "crossover_changes": meeting}
    facts["driver_mb_max"] = peak_driver_mb()
    report.write_json(out / "maintenance.json", facts, figures, judged)
    if figures:
        rows, cores = facts["rows_per_relation"], facts["cores"]
        title = f"View over 4 relations of {rows:,} rows, {cores} cores"
        report.plot(out / "maintenance.png", figures, recompute, title)
    print(f"written to {out}")


def _java(bench: Bench) -> str:
    # The gateway to the JVM is not typed.
    jvm: Any = bench.project.spark.get_session().sparkContext._jvm
    return str(jvm.System.getProperty("java.version"))


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=SECTIONS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
