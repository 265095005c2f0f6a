"""What reports cost beside plain joins over the same databases, as ratios measured in one run.

Every contestant is a project of its own over the same SQLite databases, with a maintainer that
stays open. A measured batch: so many changes are committed, each contestant looks, and what is
timed is maintaining from the plan to the acknowledgement. Contestants take turns, figures are
medians, and at the end every view is compared with SQLite over the same databases.

- *star*: a fact with six dimensions, by inner and by left joins.
- *fold*: count, sum and avg by segment, and min and max, over a join of four tables, and the join.
- *levels*: a join, an aggregate over it, and a join of that aggregate with another one.
- *fan-out*: one row of a dimension under many facts, for an aggregate over both, beside computing
  the aggregate again on Spark.
- *groups*: an aggregate with millions of groups: its load, its start, and batches.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.maintenance import Attentive
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.project import open_project

DIMENSIONS = 6
SEGMENTS = 20


@dataclass(frozen=True, slots=True)
class ReportSizes:
    """Rows of the fact, batch sizes with their repetitions, facts under one dimension row, and
    groups of an aggregate."""

    facts: int
    repetitions: Mapping[int, int]
    fan_out: int
    groups: int


FULL = ReportSizes(200_000, {1: 15, 1_000: 7, 100_000: 3}, 1_000_000, 10_000_000)
QUICK = ReportSizes(20_000, {1: 9, 1_000: 3}, 50_000, 100_000)
TINY = ReportSizes(300, {1: 1, 10: 1}, 500, 500)


@dataclass(frozen=True, slots=True)
class ReportFigure:
    """A contestant at one size of batch: the median, and its ratio to the first contestant."""

    workload: str
    contestant: str
    changes: int
    seconds: float
    ratio: float
    lookups: int
    where: str


class Databases:
    """A fact with six dimensions, and the four tables of a shop, in three databases."""

    def __init__(self, folder: Path, facts: int) -> None:
        self.folder = folder
        self._next = 0
        dims = "".join(
            f"CREATE TABLE d{i} (id INTEGER PRIMARY KEY, name TEXT, segment INTEGER);"
            for i in range(DIMENSIONS)
        )
        self._script("dims", dims)
        columns = ", ".join(f"d{i} INTEGER" for i in range(DIMENSIONS))
        indexes = "".join(f"CREATE INDEX fact_d{i} ON fact (d{i});" for i in range(DIMENSIONS))
        self._script(
            "facts",
            f"CREATE TABLE fact (id INTEGER PRIMARY KEY, amount INTEGER, {columns});{indexes}",
        )
        size = max(10, facts // 100)
        with closing(self.connect("dims")) as dims_db, dims_db:
            for i in range(DIMENSIONS):
                rows = [(n, f"d{i}-{n}", n % SEGMENTS) for n in range(size)]
                dims_db.executemany(f"INSERT INTO d{i} VALUES (?, ?, ?)", rows)
        self._size = size
        self.add_facts(facts)

    def connect(self, name: str) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / f"{name}.db", timeout=60)

    def _script(self, name: str, script: str) -> None:
        with closing(self.connect(name)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(script)

    def add_facts(self, count: int, under: int | None = None) -> None:
        """Insert facts in one transaction, all under one row of the first dimension if asked."""
        rows = [self._fact(self._next + n, under) for n in range(count)]
        self._next += count
        marks = ", ".join("?" * (DIMENSIONS + 2))
        with closing(self.connect("facts")) as facts, facts:
            facts.executemany(f"INSERT INTO fact VALUES ({marks})", rows)

    def _fact(self, number: int, under: int | None) -> tuple[int, ...]:
        keys = [(number * 7 + i * 13) % self._size for i in range(DIMENSIONS)]
        return (number, number % 1000, under if under is not None else keys[0], *keys[1:])

    def change_facts(self, count: int) -> None:
        """Insert half and delete half of so many facts."""
        with closing(self.connect("facts")) as facts, facts:
            oldest = facts.execute("SELECT min(id) FROM fact").fetchone()[0]
            facts.execute("DELETE FROM fact WHERE id < ?", (oldest + count // 2,))
        self.add_facts(count - count // 2)

    def move_segment(self, number: int) -> None:
        """Change one row of the first dimension."""
        with closing(self.connect("dims")) as dims, dims:
            dims.execute(
                "UPDATE d0 SET segment = (segment + 1) % ? WHERE id = ?", (SEGMENTS, number)
            )

    def recompute(self, sql: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(":memory:")) as connection:
            for name in ("dims", "facts"):
                connection.execute(f"ATTACH '{self.folder / f'{name}.db'}' AS {name}")
            return sorted(connection.execute(sql).fetchall(), key=repr)


def star(kind: str) -> str:
    names = ", ".join(f"d{i}.name AS n{i}" for i in range(DIMENSIONS))
    joins = " ".join(f"{kind} JOIN dims.d{i} d{i} ON d{i}.id = f.d{i}" for i in range(DIMENSIONS))
    return f"SELECT f.id, f.amount, {names} FROM facts.fact f {joins}"


FOUR = (
    "FROM facts.fact f JOIN dims.d0 a ON a.id = f.d0 JOIN dims.d1 b ON b.id = f.d1 "
    "JOIN dims.d2 c ON c.id = f.d2"
)
JOIN = f"SELECT f.id, f.amount, a.segment AS segment, b.name AS b, c.name AS c {FOUR}"
FOLD = (
    "SELECT a.segment AS segment, count(*) AS n, sum(f.amount) AS total, avg(f.amount) AS mean "
    f"{FOUR} GROUP BY a.segment"
)
EXTREMES = (
    "SELECT a.segment AS segment, min(f.amount) AS low, max(f.amount) AS high "
    f"{FOUR} GROUP BY a.segment"
)
LEVELS = {
    "lines": JOIN,
    "per_segment": "SELECT segment, count(*) AS n, sum(amount) AS s FROM lines GROUP BY segment",
    "per_name": "SELECT b, segment, count(*) AS n FROM lines GROUP BY b, segment",
    "shares": "SELECT p.b, p.segment, p.n, s.n AS whole FROM per_name p "
    "JOIN per_segment s ON s.segment = p.segment",
}
UNDER = (
    "SELECT a.segment AS segment, count(*) AS n, sum(f.amount) AS total "
    "FROM facts.fact f JOIN dims.d0 a ON a.id = f.d0 GROUP BY a.segment"
)

WORKLOADS: dict[str, dict[str, dict[str, str]]] = {
    "star": {"inner": {"star": star("INNER")}, "left": {"star": star("LEFT")}},
    "fold": {"join": {"view": JOIN}, "fold": {"view": FOLD}, "extremes": {"view": EXTREMES}},
    "levels": {"join": {"lines": JOIN}, "levels": LEVELS},
}


@contextmanager
def contestant(
    databases: Databases, name: str, views: Mapping[str, str]
) -> Iterator[tuple[Maintainer, Attentive]]:
    """A project with these views, loaded, and its maintainer."""
    folder = databases.folder / name
    (folder / "views").mkdir(parents=True)
    sources = "".join(
        f"  {each}: {{kind: sqlite, path: ../{each}.db}}\n" for each in ("dims", "facts")
    )
    text = f"warehouse: ./warehouse\nhistory: 0\nsources:\n{sources}"
    (folder / "viewkeeper.yml").write_text(text)
    for view, sql in views.items():
        statement = f"CREATE MATERIALIZED VIEW {view} AS\n{sql}\n"
        (folder / "views" / f"{view}.sql").write_text(statement)
    observer = Attentive()
    with (
        open_project(folder) as project,
        project.open_maintainer("benchmark", observer) as maintainer,
    ):
        maintainer.start_run()
        while any(view not in maintainer.store.head.views for view in views):
            maintainer.see_commits()
            maintainer.maintain_views()
            maintainer.finish_loads()
        yield maintainer, observer


def measure_workload(
    folder: Path, workload: str, sizes: ReportSizes, told: list[ReportFigure]
) -> None:
    """Measure all contestants of one workload, in turns."""
    databases = Databases(folder, sizes.facts)
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(contestant(databases, name, views))
            for name, views in WORKLOADS[workload].items()
        }
        for size, repetitions in sizes.repetitions.items():
            times: dict[str, list[float]] = {name: [] for name in running}
            for _ in range(repetitions + 1):
                databases.change_facts(size)
                for name, (maintainer, _) in running.items():
                    times[name].append(_timed_batch(maintainer))
            first = statistics.median(next(iter(times.values()))[1:])
            for name, (_, observer) in running.items():
                seconds = statistics.median(times[name][1:])
                assert observer.last is not None
                lookups = sum(observer.last.lookups.values())
                where = observer.last.where
                told.append(
                    ReportFigure(workload, name, size, seconds, seconds / first, lookups, where)
                )
                print(_line_of(told[-1]), flush=True)
        for name, (maintainer, _) in running.items():
            _check_views(databases, maintainer, WORKLOADS[workload][name])


def _timed_batch(maintainer: Maintainer) -> float:
    maintainer.see_commits()
    started = time.perf_counter()
    maintainer.maintain_views()
    return time.perf_counter() - started


def _check_views(databases: Databases, maintainer: Maintainer, views: Mapping[str, str]) -> None:
    """Every view is what SQLite computes from the same databases."""
    from viewkeeper.warehouse.rows.view_state import read_state

    for name, sql in views.items():
        if any(f"FROM {other}" in sql for other in views):
            continue
        table = read_state(maintainer.store.root, maintainer.store.head.views[name])
        found = sorted(zip(*(c.to_pylist() for c in table.columns), strict=True), key=repr)
        assert found == databases.recompute(sql), f"{name} is wrong"


def measure_fan_out(folder: Path, sizes: ReportSizes, told: list[ReportFigure]) -> None:
    """One row of a dimension under many facts: time and memory beside recomputing the group."""
    databases = Databases(folder, sizes.facts)
    databases.add_facts(sizes.fan_out, under=3)
    with contestant(databases, "under", {"view": UNDER}) as (maintainer, observer):
        before = _peak_mb()
        databases.move_segment(3)
        seconds = _timed_batch(maintainer)
        grown = _peak_mb() - before
        assert observer.last is not None
        lookups, where = sum(observer.last.lookups.values()), observer.last.where
        _check_views(databases, maintainer, {"view": UNDER})
    with open_project(databases.folder / "under") as project:
        project.refresh()
        started = time.perf_counter()
        project.refresh(full_refresh=["view"])
        again = time.perf_counter() - started
    told.append(
        ReportFigure("fan-out", "fold", sizes.fan_out, seconds, seconds / again, lookups, where)
    )
    print(_line_of(told[-1]), f"(ratio to a load on Spark); {grown:.0f} MB more", flush=True)


PER_ACCOUNT = (
    "SELECT account, count(*) AS n, sum(amount) AS total FROM facts.entry GROUP BY account"
)
GROUP_BATCHES = {1: 9, 1_000: 3, 100_000: 2}


def measure_groups(folder: Path, sizes: ReportSizes, told: list[ReportFigure]) -> None:
    """An aggregate with many groups: load, start and batches; memory is the driver's peak."""
    databases = Databases(folder, 100)
    with closing(databases.connect("facts")) as facts, facts:
        facts.execute(
            "CREATE TABLE entry (id INTEGER PRIMARY KEY, account INTEGER, amount INTEGER)"
        )
        facts.execute(
            "INSERT INTO entry WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n "
            "WHERE i + 1 < ?) SELECT i, i * 7919 % ?, i % 1000 FROM n",
            (sizes.groups, sizes.groups),
        )

    def note_step(step: str, changes: int, seconds: float, where: str) -> None:
        told.append(ReportFigure("groups", step, changes, seconds, 1.0, 0, where))
        print(_line_of(told[-1]), f"{_peak_mb():.0f} MB", flush=True)

    started = time.perf_counter()
    with contestant(databases, "accounts", {"view": PER_ACCOUNT}) as (maintainer, observer):
        note_step("load", sizes.groups, time.perf_counter() - started, "spark")
        for size, repetitions in GROUP_BATCHES.items():
            times = []
            for number in range(repetitions):
                _change_entries(databases, min(size, sizes.groups // 2), number)
                times.append(_timed_batch(maintainer))
                if size == 1 and number == 0:
                    note_step("first 1", 1, times.pop(), "inline")
            assert observer.last is not None
            note_step("batch", size, statistics.median(times), observer.last.where)
        _check_groups(databases, maintainer)
    started = time.perf_counter()
    with (
        open_project(databases.folder / "accounts") as project,
        project.open_maintainer("benchmark", Attentive()) as maintainer,
    ):
        maintainer.start_run()
        _change_entries(databases, 1, 0)
        _timed_batch(maintainer)
        note_step("restart, 1", 1, time.perf_counter() - started, "inline")


def _check_groups(databases: Databases, maintainer: Maintainer) -> None:
    """Every group is what SQLite computes; rows are numbers, and compared as such."""
    from viewkeeper.warehouse.rows.view_state import read_state

    table = read_state(maintainer.store.root, maintainer.store.head.views["view"])
    found = table.sort_by("account")
    with closing(databases.connect("facts")) as facts:
        rows = facts.execute(f"{PER_ACCOUNT.replace('facts.', '')} ORDER BY account")
        numbers = np.fromiter((value for row in rows for value in row), np.int64)
    expected = numbers.reshape(-1, len(found.columns))
    for at, column in enumerate(found.columns):
        assert np.array_equal(np.asarray(column), expected[:, at]), f"column {at} is wrong"


def _change_entries(databases: Databases, count: int, number: int) -> None:
    """Add to the amounts of so many accounts, spread over all of them."""
    with closing(databases.connect("facts")) as facts, facts:
        (rows,) = facts.execute("SELECT count(*) FROM entry").fetchone()
        step = max(1, rows // count)
        ids = [(number + n * step) % rows for n in range(count)]
        facts.executemany("UPDATE entry SET amount = amount + 1 WHERE id = ?", [(i,) for i in ids])


def _peak_mb() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _line_of(figure: ReportFigure) -> str:
    return (
        f"{figure.workload:<8} {figure.contestant:<9} {figure.changes:>9,} changes "
        f"{1000 * figure.seconds:>9.1f} ms  ratio {figure.ratio:5.2f}  "
        f"{figure.lookups} lookups  {figure.where}"
    )


def run_reports(out: Path, sizes: ReportSizes, only: Sequence[str] = ()) -> list[ReportFigure]:
    """Measure all workloads, or some; figures go to `reports.json`."""
    told: list[ReportFigure] = []
    for workload in (*WORKLOADS, "fan-out", "groups"):
        if only and workload not in only:
            continue
        with tempfile.TemporaryDirectory(prefix="viewkeeper-reports-") as folder:
            if workload == "fan-out":
                measure_fan_out(Path(folder), sizes, told)
            elif workload == "groups":
                measure_groups(Path(folder), sizes, told)
            else:
                measure_workload(Path(folder), workload, sizes, told)
    out.mkdir(parents=True, exist_ok=True)
    (out / "reports.json").write_text(json.dumps([asdict(each) for each in told], indent=2))
    return told


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reports")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", default=())
    options = parser.parse_args(arguments)
    run_reports(options.out, QUICK if options.quick else FULL, options.only)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
