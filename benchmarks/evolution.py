"""The Dyno paper's three experiments on real sources: `python -m benchmarks.evolution`.

Its setting: four sources with one relation each of two attributes and 10,000 rows, and one view
that joins them. The experiments are in `evolution_overhead`, `evolution_broken` and
`evolution_mixed`. Figures go to the terminal, to `evolution.json` and to three pictures in the
folder of `--out`, each with what the paper found in its title.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import (
    evolution_broken,
    evolution_mixed,
    evolution_overhead,
    evolution_plots,
    report,
)
from benchmarks.evolution_broken import SETTINGS, Cost, Setting
from benchmarks.evolution_mixed import Mixed
from benchmarks.evolution_overhead import Overhead
from benchmarks.evolution_world import PostgresSources, SqliteSources, World
from viewkeeper.engine.project import Project, open_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
LIMIT, AIM = 0.05, 0.01
"""What detection may cost of the time of maintenance, and what it is meant to cost."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured; numbers of updates are mapped to pairs of runs."""

    rows: int
    batch_sweep: Mapping[int, int]
    sweep: Mapping[int, int]
    postgres: Mapping[int, int]
    broken: int
    settings: Sequence[Setting]
    mixed: int
    intervals: Sequence[float]
    mixed_repetitions: int


FULL = Sizes(
    rows=10_000,
    batch_sweep={100: 20, 1_000: 10, 3_000: 5, 10_000: 3},
    sweep={100: 5},
    postgres={100: 8, 1_000: 4},
    broken=3,
    settings=SETTINGS,
    mixed=100,
    intervals=(5, 20, 100, 250, 500),
    mixed_repetitions=2,
)
QUICK = Sizes(
    rows=2_000,
    batch_sweep={100: 6, 300: 3},
    sweep={20: 2},
    postgres={100: 2},
    broken=1,
    settings=SETTINGS,
    mixed=40,
    intervals=(5, 50),
    mixed_repetitions=1,
)
TINY = Sizes(
    rows=40,
    batch_sweep={4: 2},
    sweep={3: 1},
    postgres={},
    broken=1,
    settings=("broken",),
    mixed=20,
    intervals=(2,),
    mixed_repetitions=1,
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that was measured."""

    overheads: list[Overhead] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    mixed: list[Mixed] = field(default_factory=list)
    loads: dict[str, float] = field(default_factory=dict)
    """The load of the machine at the end of each of the experiments."""

    def aims(self) -> list[report.Aim]:
        """By ratios of whole runs, and by clocks where those are finer than the noise of runs."""
        most = max(self.overheads, key=lambda found: found.ratio.median)
        clocked = max(self.overheads, key=lambda found: found.share)
        return [
            report.at_most(
                f"time with detection against without, {most.what}", most.ratio.median, 1 + LIMIT
            ),
            report.at_most(f"share of detection by clocks, {clocked.what}", clocked.share, LIMIT),
            report.at_most(f"the same, as it is meant to be, {clocked.what}", clocked.share, AIM),
        ]


@contextmanager
def opened(world: World, spark: SparkSession | None) -> Iterator[Project]:
    """The project over a world, its view loaded; both closed in the end."""
    with closing(world), open_project(world.folder, spark) as project:
        project.refresh()
        world.check(project, "the initial load")
        yield project


def measure(folder: Path, sizes: Sizes, spark: SparkSession | None = None) -> Figures:
    """All three experiments, printed while they grow."""
    figures = Figures()
    print(f"\n{evolution_overhead.HEADER}")
    sqlite = SqliteSources(folder / "sqlite", sizes.rows)
    with opened(sqlite, spark) as project:
        for algorithm, pairs in (("batch_sweep", sizes.batch_sweep), ("sweep", sizes.sweep)):
            _overheads(figures, project, sqlite, algorithm, pairs)
    if sizes.postgres:
        postgres = PostgresSources(folder / "postgres", sizes.rows)
        with opened(postgres, spark) as project:
            _overheads(figures, project, postgres, "batch_sweep", sizes.postgres)
    figures.loads["overhead"] = os.getloadavg()[0]
    reshaped = SqliteSources(folder / "reshaped", sizes.rows)
    with opened(reshaped, spark) as project:
        print(f"\n{evolution_broken.HEADER}")
        for cost in evolution_broken.measure(project, reshaped, sizes.broken, sizes.settings):
            figures.costs.append(cost)
            print(evolution_broken.line(cost), flush=True)
        figures.loads["broken"] = os.getloadavg()[0]
        print(f"\n{evolution_mixed.HEADER}")
        for mixed in evolution_mixed.measure(
            project, reshaped, sizes.intervals, sizes.mixed, sizes.mixed_repetitions
        ):
            figures.mixed.append(mixed)
            print(evolution_mixed.line(mixed), flush=True)
        figures.loads["mixed"] = os.getloadavg()[0]
    return figures


def _overheads(
    figures: Figures, project: Project, world: World, algorithm: str, pairs: Mapping[int, int]
) -> None:
    for found in evolution_overhead.measure(project, world, algorithm, pairs):
        figures.overheads.append(found)
        print(evolution_overhead.line(found))
        print(*evolution_overhead.place_lines(found), sep="\n", flush=True)


def section(folder: Path, sizes: Sizes, out: Path, spark: SparkSession | None = None) -> None:
    """Measure, judge, draw, and write `evolution.json`."""
    facts = report.environment()
    print(" ".join(f"{name}={value}" for name, value in facts.items()))
    figures = measure(folder, sizes, spark)
    judged = figures.aims()
    for aim in judged:
        print(aim)
    out.mkdir(parents=True, exist_ok=True)
    evolution_plots.draw_overheads(out / "evolution-overhead.svg", figures.overheads)
    evolution_plots.draw_costs(out / "evolution-broken.svg", figures.costs)
    evolution_plots.draw_mixed(out / "evolution-mixed.svg", figures.mixed)
    body = {
        **facts,
        "rows": sizes.rows,
        **asdict(figures),
        "aims": [asdict(aim) for aim in judged],
    }
    (out / "evolution.json").write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    print(f"written to {out}")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.evolution", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(prefix="viewkeeper-evolution-") as folder:
        section(Path(folder), sizes, options.out)


if __name__ == "__main__":
    main(sys.argv[1:])
