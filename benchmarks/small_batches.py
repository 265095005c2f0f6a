"""What a small batch costs, and a refresh with nothing to do: `python -m benchmarks.small_batches`.

The world is the four-way join of `benchmarks.world`, loaded without Spark. Each figure is the
median, the 95th percentile and the least of its samples, in milliseconds of the clock and of this
process's processor, with the SQLite statements that one sample takes:

- `refresh, idle`: `Project.refresh()` when nothing was committed, on one open project;
- `refresh, n`: after one transaction with n changes;
- `run, often` and `run, idle`: from the commit of one row to its commit in the warehouse, while
  `Project.run()` goes on in a thread: as soon as the last one was there, or after a pause.

`refresh, idle again` comes after all records that the refreshes have written. The processor's time
of `run` is that of the loop and of the writer, in this process; Spark, which `run` starts in the
background for what may come, has started before the first sample.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest import mock

from benchmarks import report
from benchmarks.world import RELATIONS, VIEW, World
from viewkeeper.engine.project import Project, open_project
from viewkeeper.engine.report import BatchReport, SilentObserver
from viewkeeper.errors import ViewkeeperError
from viewkeeper.sources.sqlite.database import SqliteDatabase

ROOT = Path(__file__).resolve().parent.parent
ROWS = 20_000
SIZES = {1: 300, 1_000: 12, 10_000: 5}
"""How often a batch of so many changes is measured."""

PAUSE_SECONDS = 0.3
WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured, in milliseconds."""

    name: str
    samples: int
    median: float
    p95: float
    least: float
    cpu: float
    statements: float

    def __str__(self) -> str:
        return (
            f"{self.name:<20}{self.samples:>8}{self.median:>9.1f}{self.p95:>9.1f}"
            f"{self.least:>9.1f}{self.cpu:>9.1f}{self.statements:>12.0f}"
        )


HEADER = (
    f"{'':<20}{'samples':>8}{'p50 ms':>9}{'p95 ms':>9}{'min ms':>9}{'cpu ms':>9}{'statements':>12}"
)


class StatementCount:
    """How many statements our connections to SQLite have run."""

    def __init__(self) -> None:
        self.statements = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count, on every connection that is opened inside."""
        connect = SqliteDatabase._connect_mode

        def counted(database: SqliteDatabase, mode: str) -> sqlite3.Connection:
            connection = connect(database, mode)
            connection.set_trace_callback(self._add)
            return connection

        with mock.patch.object(SqliteDatabase, "_connect_mode", counted):
            yield

    def _add(self, _: str) -> None:
        self.statements += 1


class Stopwatch:
    """Takes samples of one figure."""

    def __init__(self, name: str, count: StatementCount) -> None:
        self._name = name
        self._count = count
        self._clock: list[float] = []
        self._cpu: list[float] = []
        self._statements: list[int] = []

    def take_sample(self, action: Callable[[], float | None]) -> None:
        """Time an action, or take the seconds that it says."""
        before, cpu, clock = self._count.statements, time.process_time(), time.perf_counter()
        said = action()
        clock = time.perf_counter() - clock
        self._clock.append(1000 * (clock if said is None else said))
        self._cpu.append(1000 * (time.process_time() - cpu))
        self._statements.append(self._count.statements - before)

    def read_figure(self) -> Figure:
        ordered = sorted(self._clock)
        return Figure(
            self._name,
            len(ordered),
            statistics.median(ordered),
            ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))],
            ordered[0],
            statistics.median(self._cpu),
            statistics.median(self._statements),
        )


class Watcher(SilentObserver):
    """Says when a batch is committed; trouble ends the benchmark."""

    def __init__(self) -> None:
        self.committed = threading.Event()
        self.at = 0.0

    def on_batch_commit(self, report: BatchReport) -> None:
        self.at = time.perf_counter()
        self.committed.set()

    def on_trouble(self, error: ViewkeeperError) -> None:
        raise error


def measure_refresh(project: Project, world: World, count: StatementCount) -> Iterator[Figure]:
    """Refreshes of one open project, with nothing and with something to do."""
    idle = Stopwatch("refresh, idle", count)
    for _ in range(60):
        idle.take_sample(lambda: _refresh(project, 0))
    yield idle.read_figure()
    for size, samples in SIZES.items():
        watch = Stopwatch(f"refresh, n = {size:,}", count)
        for _ in range(samples + 1):
            for _ in world.commit_updates(size, 1):
                pass
            watch.take_sample(lambda: _refresh(project, 1))
        yield watch.read_figure()
    idle = Stopwatch("refresh, idle again", count)
    for _ in range(60):
        idle.take_sample(lambda: _refresh(project, 0))
    yield idle.read_figure()


def _refresh(project: Project, batches: int) -> None:
    report = project.refresh()
    assert (report.batches > 0) == (batches > 0), report


def measure_run(
    project: Project, world: World, count: StatementCount, samples: int
) -> Iterator[Figure]:
    """One row at a time, while the project runs: often, then with pauses."""
    watcher, stop = Watcher(), threading.Event()
    runner = threading.Thread(target=lambda: project.run(watcher, stop))
    runner.start()
    project.spark.get_session()
    _commit_one(world, watcher)
    try:
        for name, pause in (("run, often", 0.0), ("run, from idle", PAUSE_SECONDS)):
            watch = Stopwatch(name, count)
            for _ in range(samples):
                time.sleep(pause)
                watch.take_sample(lambda: _commit_one(world, watcher))
            yield watch.read_figure()
        watch = Stopwatch("run, idle second", count)
        time.sleep(2.0)
        for _ in range(3):
            watch.take_sample(lambda: time.sleep(1.0))
        yield watch.read_figure()
    finally:
        stop.set()
        runner.join()


def _commit_one(world: World, watcher: Watcher) -> float:
    """Commit one change; the seconds until it is committed in the warehouse."""
    watcher.committed.clear()
    for _ in world.commit_updates(1, 1):
        pass
    at = time.perf_counter()
    assert watcher.committed.wait(WAIT_SECONDS), "nothing was committed"
    return watcher.at - at


def verify_rows(project: Project, world: World) -> None:
    """The view is what SQLite makes of the four databases."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for relation in RELATIONS:
            path = world.folder / f"{relation.database}.db"
            connection.execute(f"ATTACH '{path}' AS {relation.database}")
        text = (world.folder / "views" / f"{VIEW}.sql").read_text().split(" AS\n", 1)[1]
        wanted = sorted(map(str, connection.execute(text).fetchall()))
    rows = project.view(VIEW).arrow().to_pylist()
    placed = ({**row, "placed": str(row["placed"])} for row in rows)
    found = sorted(str(tuple(row.values())) for row in placed)
    assert found == wanted, "the view is wrong"


def measure(folder: Path, rows: int, samples: int, freshness: str | None = None) -> list[Figure]:
    """All figures, in one run."""
    count, found = StatementCount(), list[Figure]()
    with closing(World(folder, rows)) as world, count.counting():
        settings = folder / "viewkeeper.yml"
        more = "" if freshness is None else f"freshness: {freshness}\n"
        more += f"batch: {{inline_rows: {4 * rows}}}\n"
        settings.write_text(settings.read_text() + more)
        with open_project(folder) as project:
            project.refresh()
            print(f"load {os.getloadavg()[0]:.1f}\n{HEADER}", flush=True)
            for figure in measure_refresh(project, world, count):
                found.append(figure)
                print(figure, flush=True)
            for figure in measure_run(project, world, count, samples):
                found.append(figure)
                print(figure, flush=True)
            verify_rows(project, world)
    return found


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.small_batches", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--freshness", help="for `run`, instead of the default")
    parser.add_argument("--quick", action="store_true", help="a small world, to see that it works")
    options = parser.parse_args(arguments)
    rows, samples = (1_000, 5) if options.quick else (options.rows, options.samples)
    with tempfile.TemporaryDirectory(prefix="viewkeeper-small-") as folder:
        found = measure(Path(folder) / "world", rows, samples, options.freshness)
    options.out.mkdir(parents=True, exist_ok=True)
    body = {**report.environment(), "figures": [asdict(figure) for figure in found]}
    (options.out / "small_batches.json").write_text(json.dumps(body, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
