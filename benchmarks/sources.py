"""What sources cost and give: `python -m benchmarks.sources`, or the section `sources`.

Three tables, for every kind of source. *Capture*: changes per second, from transactions that are
there to Arrow. *Lookups*: milliseconds for N keys of a large table, beside the fastest raw way to
ask that database, measured in the same run. *Cost*: queries and bytes at each source per maintained
update. The same goes to `sources.json` in the folder of `--out`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import report, source_capture, source_costs, source_lookups
from benchmarks.source_folders import DeltaLakeWorld, FilesWorld
from benchmarks.source_worlds import (
    MariadbWorld,
    PostgresWorld,
    Servers,
    SourceWorld,
    SqliteWorld,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
CAPTURE_AIM = 20_000
"""Changes per second that PostgreSQL shall be captured with at least."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. Captures map changes per transaction to changes, lookups map keys to
    rounds."""

    rows: int
    transactions: Mapping[int, int]
    states: Sequence[int]
    versions: Mapping[int, int]
    rounds: int
    lookups: Mapping[int, int]
    cost_rows: int
    batches: Sequence[int]


FULL = Sizes(
    rows=1_000_000,
    transactions={2: 20_000, 1_000: 200_000},
    states=(2, 1_000, 100_000),
    versions={2: 200, 1_000: 100_000},
    rounds=3,
    lookups={1: 9, 100: 9, 10_000: 7, 100_000: 3},
    cost_rows=200_000,
    batches=(1, 100, 10_000),
)
QUICK = Sizes(
    rows=20_000,
    transactions={2: 400, 1_000: 4_000},
    states=(2, 1_000),
    versions={2: 20, 1_000: 10_000},
    rounds=1,
    lookups={1: 3, 100: 3, 1_000: 3},
    cost_rows=2_000,
    batches=(1, 100),
)
TINY = Sizes(
    rows=400,
    transactions={2: 20, 10: 40},
    states=(2, 20),
    versions={2: 8},
    rounds=1,
    lookups={1: 1, 20: 1},
    cost_rows=100,
    batches=(1, 10),
)


def worlds(folder: Path, servers: Servers, rows: int) -> Sequence[SourceWorld]:
    """Every kind of database, not filled yet."""
    return (
        SqliteWorld(folder / "sqlite", rows),
        PostgresWorld(folder / "decoding", rows, servers.postgres, "decoding"),
        PostgresWorld(folder / "triggers", rows, servers.postgres, "triggers"),
        MariadbWorld(folder / "binlog", rows, servers.mariadb),
        FilesWorld(folder / "parquet", rows, "parquet"),
        FilesWorld(folder / "csv", rows, "csv"),
        DeltaLakeWorld(folder / "feed", rows, feed=True),
        DeltaLakeWorld(folder / "no-feed", rows, feed=False),
    )


def captures(world: SourceWorld, sizes: Sizes) -> Mapping[int, int]:
    """What is captured of a world: changes per transaction, state or version, and in all."""
    match world.kind:
        case "files":
            return {changes: changes for changes in sizes.states}
        case "delta_lake":
            return sizes.versions
        case _:
            return sizes.transactions


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that was measured."""

    captured: list[source_capture.Captured]
    looked_up: list[source_lookups.LookedUp]
    costs: list[source_costs.Cost]

    def aims(self) -> list[report.Aim]:
        """The aims that the measured sizes allow to judge: few changes measure the connection."""
        decoded = [
            each
            for each in self.captured
            if each.kind == "postgres" and each.changes >= CAPTURE_AIM
        ]
        return [
            *(
                report.at_least(
                    f"changes/s from PostgreSQL, transactions of {each.size:,}",
                    each.changes_per_second,
                    CAPTURE_AIM,
                )
                for each in decoded
            ),
            *source_lookups.aims(self.looked_up),
        ]


def measure(folder: Path, sizes: Sizes, spark: SparkSession | None = None) -> Figures:
    """All three tables, printed while they grow."""
    figures = Figures([], [], [])
    with closing(Servers(folder / "servers")) as servers:
        for world in worlds(folder / "worlds", servers, sizes.rows):
            world.create()
            _world(world, sizes, figures)
        print(f"\n{source_costs.HEADER}")
        for cost in source_costs.measure(
            folder / "costs", servers, sizes.cost_rows, sizes.batches, spark
        ):
            figures.costs.append(cost)
            print(*source_costs.lines(cost), sep="\n", flush=True)
    return figures


def _world(world: SourceWorld, sizes: Sizes, figures: Figures) -> None:
    """Lookups first, on the table as it was filled."""
    print(f"\n{source_lookups.HEADER}")
    for looked_up in source_lookups.measure(world, sizes.lookups):
        figures.looked_up.append(looked_up)
        print(source_lookups.line(looked_up), flush=True)
    print(source_capture.HEADER)
    for size, changes in captures(world, sizes).items():
        captured = source_capture.measure(world, changes, size, sizes.rounds)
        figures.captured.append(captured)
        print(source_capture.line(captured), flush=True)


def section(folder: Path, sizes: Sizes, out: Path, spark: SparkSession | None = None) -> None:
    """Measure, judge, and write `sources.json`."""
    facts = report.environment()
    print(" ".join(f"{name}={value}" for name, value in facts.items()))
    figures = measure(folder, sizes, spark)
    judged = figures.aims()
    for aim in judged:
        print(aim)
    out.mkdir(parents=True, exist_ok=True)
    body = {
        **facts,
        "rows": sizes.rows,
        "capture": [_capture(each) for each in figures.captured],
        "lookups": [_lookup(each) for each in figures.looked_up],
        "costs": [_cost(each) for each in figures.costs],
        "aims": [asdict(aim) for aim in judged],
    }
    (out / "sources.json").write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")


def _capture(each: source_capture.Captured) -> dict[str, Any]:
    return {**asdict(each), "changes_per_second": each.changes_per_second}


def _lookup(each: source_lookups.LookedUp) -> dict[str, Any]:
    return {**asdict(each), "fastest": each.fastest, "ratio": each.ratio}


def _cost(each: source_costs.Cost) -> dict[str, Any]:
    per_update = {"queries": each.queries / each.updates, "bytes": each.bytes / each.updates}
    return {**asdict(each), "per_update": per_update}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.sources", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(prefix="viewkeeper-sources-") as folder:
        section(Path(folder), sizes, options.out)


if __name__ == "__main__":
    main(sys.argv[1:])
