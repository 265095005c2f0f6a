"""The PVM paper's experiment on real databases: `python -m benchmarks.latency`.

Four SQLite databases with one relation each, joined in a chain as in the paper's figure 20. Each
answers one question at a time and takes 20 ms longer for it than SQLite does. All updates are
committed, and seen one by one, before the first is maintained, so each is concurrent with all
others. What is timed is maintaining them, commits included; every run is compared with SQLite's own
answer.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from benchmarks import report
from viewkeeper.engine.project import Project, open_project
from viewkeeper.engine.report import BatchReport, SilentObserver
from viewkeeper.engine.settings.algorithm_settings import AlgorithmSettings
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.updates.source_protocol import (
    Answer,
    KeyRange,
    Lookup,
    Opener,
    Scan,
    Snapshot,
    Tables,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
RELATIONS = 4
ROWS = 5_000
LATENCY_SECONDS = 0.02

SQL = """CREATE MATERIALIZED VIEW chain AS
SELECT r1.a AS a1, r2.a AS a2, r3.a AS a3, r4.a AS a4
FROM s1.r1 JOIN s2.r2 ON r1.a = r2.b JOIN s3.r3 ON r2.a = r3.b JOIN s4.r4 ON r3.a = r4.b
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """One algorithm on n concurrent updates."""

    algorithm: str
    parallel: int | None
    updates: int
    lookups: int
    records: int
    seconds: float

    @property
    def label(self) -> str:
        return self.algorithm + (f" p={self.parallel}" if self.parallel is not None else "")


class Slow:
    """A snapshot that takes its time, one question of its source at a time."""

    def __init__(self, snapshot: Snapshot, lock: threading.Lock, seconds: float) -> None:
        self._snapshot = snapshot
        self._lock = lock
        self._seconds = seconds

    def answer_lookup(self, lookup: Lookup, after: int) -> Answer:
        with self._lock:
            time.sleep(self._seconds)
            return self._snapshot.answer_lookup(lookup, after)

    def scan_relation(
        self, relation: Any, columns: Sequence[str], after: int, part: KeyRange | None = None
    ) -> Scan:
        return self._snapshot.scan_relation(relation, columns, after, part)

    def find_key_range(self, relation: Any, columns: Sequence[str]) -> KeyRange | None:
        return self._snapshot.find_key_range(relation, columns)

    def close(self) -> None:
        self._snapshot.close()


@contextmanager
def slow_sources(seconds: float) -> Iterator[None]:
    """Every question of maintenance takes longer."""
    locks = {f"s{i}": threading.Lock() for i in range(1, RELATIONS + 1)}

    snapshots = SqliteSource.prepare_snapshots

    @contextmanager
    def slowed(source: SqliteSource, after: int, tables: Tables) -> Iterator[Opener]:
        with snapshots(source, after, tables) as opener:
            yield lambda: Slow(opener(), locks[source.name], seconds)

    with mock.patch.object(SqliteSource, "prepare_snapshots", slowed):
        yield


class Chain:
    """The project and its databases."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder
        self._rows = rows
        self._next = 0
        (folder / "views").mkdir(parents=True)
        (folder / "views" / "chain.sql").write_text(SQL)
        sources = "".join(f"  s{i}: {{kind: sqlite, path: s{i}.db}}\n" for i in _numbers())
        (folder / "viewkeeper.yml").write_text(f"warehouse: ./warehouse\nsources:\n{sources}")
        for i in _numbers():
            with self._database(i) as database:
                database.execute("PRAGMA journal_mode = wal")
                database.execute(f"CREATE TABLE r{i} (a INTEGER, b INTEGER)")
                database.execute(f"CREATE INDEX r{i}_a ON r{i} (a)")
                database.execute(f"CREATE INDEX r{i}_b ON r{i} (b)")
                pairs = [(n, n) for n in range(rows)]
                database.executemany(f"INSERT INTO r{i} VALUES (?, ?)", pairs)
                database.commit()

    @contextmanager
    def _database(self, number: int) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.folder / f"s{number}.db")) as connection:
            yield connection

    def update(self) -> None:
        """One update; they go round the relations, and each finds a row in every other."""
        number, self._next = self._next, self._next + 1
        i, value = number % RELATIONS + 1, number // RELATIONS % self._rows
        with self._database(i) as database:
            database.execute(f"INSERT INTO r{i} VALUES (?, ?)", (value, value))
            database.commit()

    def recomputed(self) -> Counter[tuple[Any, ...]]:
        with closing(sqlite3.connect(":memory:")) as connection:
            for i in _numbers():
                connection.execute(f"ATTACH '{self.folder / f's{i}.db'}' AS s{i}")
            return Counter(connection.execute(SQL.split(" AS\n", 1)[1]).fetchall())


def _numbers() -> range:
    return range(1, RELATIONS + 1)


class _Counting(SilentObserver):
    def __init__(self) -> None:
        self.lookups: Counter[str] = Counter()
        self.records = 0

    def on_batch_commit(self, report: BatchReport) -> None:
        self.lookups.update(report.lookups)
        self.records += report.parts


def run(
    project: Project, chain: Chain, algorithm: AlgorithmSettings, updates: int, latency: float
) -> Measured:
    """Commit the updates, then maintain them by one algorithm; the view must be right."""
    project.settings = replace(project.settings, algorithm=algorithm)
    counting = _Counting()
    with project.open_maintainer("benchmark", counting) as maintainer:
        maintainer.start_run()
        for _ in range(updates):
            chain.update()
            maintainer.see_commits()
        with slow_sources(latency):
            started = time.perf_counter()
            maintainer.maintain_views()
            seconds = time.perf_counter() - started
    rows = project.view("chain").arrow()
    found = Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    assert found == chain.recomputed(), f"{algorithm.name} is wrong"
    parallel = algorithm.options.get("parallel")
    lookups = sum(counting.lookups.values())
    return Measured(algorithm.name, parallel, updates, lookups, counting.records, seconds)


def algorithms(threads: Sequence[int]) -> list[AlgorithmSettings]:
    """SWEEP, PVM with ever more threads, Nested SWEEP and the batch sweep."""
    pvm = [AlgorithmSettings("pvm", Level.CONVERGENCE, {"parallel": p}) for p in threads]
    return [
        AlgorithmSettings("sweep"),
        *pvm,
        AlgorithmSettings("nested_sweep"),
        AlgorithmSettings("batch_sweep"),
    ]


def measure(
    folder: Path,
    runs: Mapping[int, Sequence[int]],
    rows: int = ROWS,
    latency: float = LATENCY_SECONDS,
    spark: SparkSession | None = None,
) -> list[Measured]:
    """All algorithms on every number of updates; `runs` maps it to PVM's numbers of threads."""
    chain = Chain(folder, rows)
    measured = []
    with open_project(folder, spark) as project:
        project.refresh()
        for updates, threads in runs.items():
            for algorithm in algorithms(threads):
                found = run(project, chain, algorithm, updates, latency)
                measured.append(found)
                print(line(found, measured), flush=True)
    return measured


HEADER = (
    f"{'algorithm':<16}{'updates':>8}{'lookups':>9}{'records':>9}{'seconds':>9}{'speed-up':>10}"
)


def line(found: Measured, measured: Sequence[Measured]) -> str:
    return (
        f"{found.label:<16}{found.updates:>8}{found.lookups:>9}{found.records:>9}"
        f"{found.seconds:>9.2f}{speed_up(found, measured):>10.1f}"
    )


def speed_up(found: Measured, measured: Sequence[Measured]) -> float:
    """How many times faster than SWEEP on the same number of updates."""
    sweep = next(m for m in measured if m.algorithm == "sweep" and m.updates == found.updates)
    return sweep.seconds / found.seconds


def aims(measured: Sequence[Measured]) -> list[report.Aim]:
    """What the batch sweep is for, on the largest number of updates."""
    most = max(found.updates for found in measured)
    batch = next(m for m in measured if m.algorithm == "batch_sweep" and m.updates == most)
    return [
        report.at_least(f"batch sweep against SWEEP at n={most}", speed_up(batch, measured), 20),
        report.at_most("lookups of the batch sweep", batch.lookups, 2 * (RELATIONS - 1)),
    ]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.latency", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="viewkeeper-latency-") as folder:
        section(Path(folder), options.out)


def section(folder: Path, out: Path) -> None:
    """The whole experiment; figures to the terminal and to `latency.json`."""
    print(f"\n{RELATIONS} SQLite sources, {LATENCY_SECONDS * 1000:.0f} ms per question\n{HEADER}")
    measured = measure(folder / "chain", {60: range(1, 11), 200: (4, 10)})
    judged = aims(measured)
    for aim in judged:
        print(aim)
    out.mkdir(parents=True, exist_ok=True)
    facts = {**report.environment(), "latency_seconds": LATENCY_SECONDS}
    body = {**facts, "runs": [asdict(m) for m in measured], "aims": [str(aim) for aim in judged]}
    (out / "latency.json").write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
