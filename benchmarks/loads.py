"""What a first load costs beside reading the same rows: `make bench ONLY=loads`.

The table is that of `benchmarks.source_worlds`, in SQLite and in PostgreSQL. Three views are
loaded, each of them into a project of its own, on one warm session of Spark: `table`, all columns
of the table; `joined`, the table with a smaller one; `folded`, sums by city. What they are compared
with is the least that reading the rows can cost: `COPY ... TO STDOUT` in binary, thrown away
(PostgreSQL), and a SELECT of all columns into Arrow by Python's own driver (SQLite).

Everything is in seconds of processors: of this process, of all below it (the JVM, its workers) and
of the database's server. So the figures are per core, however many there are. The share is what
reading alone would take of what the load takes; the aim for `table` is 60 %.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

import viewkeeper
from benchmarks import report
from benchmarks.source_worlds import COLUMNS, TABLE, PostgresWorld, SourceWorld, SqliteWorld
from viewkeeper.engine.settings.project_file import SparkSettings
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.testing.private_servers import PrivatePostgres

ROOT = Path(__file__).resolve().parent.parent
ROWS = 1_000_000
AIM = 0.6
CITIES = 500
VIEWS = {
    "table": f"SELECT {', '.join(f'o.{column}' for column in COLUMNS)} FROM shop.{TABLE} o",
    "joined": "SELECT o.id, o.name, o.price, c.land "
    f"FROM shop.{TABLE} o JOIN shop.city c ON c.name = o.city",
    "folded": f"SELECT o.city, count(*) AS n, sum(o.price) AS price FROM shop.{TABLE} o "
    "GROUP BY o.city",
}


@dataclass(frozen=True, slots=True)
class LoadFigure:
    """What a load, or reading alone, took: seconds of the clock and of processors."""

    source: str
    what: str
    rows: int
    seconds: float
    cpu: float
    share: float | None = None

    def __str__(self) -> str:
        share = "" if self.share is None else f"{100 * self.share:>9.0f} %"
        speed = self.rows / self.cpu
        return (
            f"{self.source:<10}{self.what:<10}{self.seconds:>8.2f}{self.cpu:>8.2f}"
            f"{speed:>14,.0f}{share}"
        )


HEADER = f"{'':<20}{'s':>8}{'cpu s':>8}{'rows/cpu s':>14}{'share':>11}"


def measure_action(action: Callable[[], None]) -> tuple[float, float]:
    """Seconds of the clock, and of processors in this process and all below it."""
    before, started = used_seconds(), time.perf_counter()
    action()
    return time.perf_counter() - started, used_seconds() - before


def used_seconds() -> float:
    """Linux tells it in ticks; those of a process that has ended are its parent's."""
    parents, ticks = dict[int, int](), dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            facts = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(facts[1])
            ticks[int(path.parent.name)] = sum(map(int, facts[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    used: float = sum(ticks.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")
    return used


def read_sqlite(world: SqliteWorld) -> None:
    """All rows of the table into Arrow, column by column."""
    with closing(world.connect()) as connection:
        cursor = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM {TABLE}")
        batches = []
        while rows := cursor.fetchmany(50_000):
            batches.append(pa.table([pa.array(c) for c in zip(*rows, strict=True)], [*COLUMNS]))
        assert pa.concat_tables(batches).num_rows >= world.rows


def copy_postgres(world: PostgresWorld) -> None:
    """All rows of the table by COPY, thrown away."""
    with psycopg.connect(world.server.url_of(world.database)) as connection:
        query = f"COPY (SELECT {', '.join(COLUMNS)} FROM {TABLE}) TO STDOUT (FORMAT binary)"
        with connection.cursor().copy(query.encode()) as copy:
            size = sum(len(piece) for piece in copy)
    assert size > world.rows


def add_cities(world: SourceWorld) -> None:
    """The smaller table."""
    values = ", ".join(f"('city {n}', 'land {n % 7}')" for n in range(CITIES))
    statements = ("CREATE TABLE city (name VARCHAR(20) PRIMARY KEY, land VARCHAR(20))",
                  f"INSERT INTO city VALUES {values}")  # fmt: skip
    if isinstance(world, SqliteWorld):
        with closing(world.connect()) as connection:
            for statement in statements:
                connection.execute(statement)
    elif isinstance(world, PostgresWorld):
        with world.connect() as connection:
            for statement in (*statements, "ALTER TABLE city REPLICA IDENTITY FULL"):
                connection.execute(statement.encode())


@contextmanager
def project_of(world: SourceWorld, name: str, number: int) -> Iterator[Path]:
    """A project with one view over the world."""
    folder = world.folder / f"{name}-{number}"
    (folder / "views").mkdir(parents=True)
    options = dict(world.options())
    if "path" in options:
        options["path"] = str(world.folder / str(options["path"]))
    lines = "".join(f"    {key}: {value}\n" for key, value in options.items())
    text = f"warehouse: ./warehouse\nsources:\n  shop:\n    kind: {world.kind}\n{lines}"
    (folder / "viewkeeper.yml").write_text(text)
    sql = f"CREATE MATERIALIZED VIEW {name} AS\n{VIEWS[name]};\n"
    (folder / "views" / f"{name}.sql").write_text(sql)
    yield folder


def measure_world(
    world: SourceWorld, read: Callable[[], None], spark: SparkHandle, times: int
) -> Iterator[LoadFigure]:
    """Reading alone, then every load; medians."""
    taken = [measure_action(read) for _ in range(times)]
    clock, alone = (statistics.median(each) for each in zip(*taken, strict=True))
    yield LoadFigure(world.kind, "read", world.rows, clock, alone)
    for name in VIEWS:
        taken = []
        for number in range(times):
            with (
                project_of(world, name, number) as folder,
                viewkeeper.open(folder, spark=spark.get_session()) as project,
            ):

                def load() -> None:
                    found = project.refresh()
                    assert name in found.loaded, found  # noqa: B023

                taken.append(measure_action(load))
                check_rows(project.view(name).arrow(), name, world.rows)
        clock, cpu = (statistics.median(each) for each in zip(*taken, strict=True))
        yield LoadFigure(world.kind, name, world.rows, clock, cpu, alone / cpu)


def check_rows(rows: pa.Table, name: str, wanted: int) -> None:
    """The view has the rows that it must have; the tests compare them one by one."""
    if name == "folded":
        assert rows.num_rows == CITIES
        assert pc.sum(rows["n"]).as_py() == wanted
    else:
        assert rows.num_rows == wanted
        assert len(rows["id"].unique()) == wanted


def warm_up(spark: SparkHandle, folder: Path) -> None:
    """A load of a few rows, on Spark: workers, classes and code are there afterwards."""
    world = SqliteWorld(folder / "warm", 2_000)
    world.create()
    add_cities(world)
    for name in VIEWS:
        with project_of(world, name, 0) as home:
            settings = home / "viewkeeper.yml"
            settings.write_text(settings.read_text() + "batch: {inline_rows: 0}\n")
            with viewkeeper.open(home, spark=spark.get_session()) as project:
                project.refresh()


def measure(rows: int, times: int, kinds: Sequence[str]) -> list[LoadFigure]:
    """All figures, in one run."""
    found: list[LoadFigure] = []
    spark = SparkHandle(SparkSettings())
    with tempfile.TemporaryDirectory(prefix="viewkeeper-bench-") as name:
        folder, server = Path(name), PrivatePostgres(Path(name, "postgres"))
        try:
            server.start()
            warm_up(spark, folder)
            worlds: list[tuple[SourceWorld, Callable[[], None]]] = []
            if "sqlite" in kinds:
                sqlite = SqliteWorld(folder / "sqlite", rows)
                worlds.append((sqlite, lambda: read_sqlite(sqlite)))
            if "postgres" in kinds:
                postgres = PostgresWorld(folder / "shop", rows, server, "decoding")
                worlds.append((postgres, lambda: copy_postgres(postgres)))
            print(HEADER, flush=True)
            for world, read in worlds:
                world.create()
                add_cities(world)
                for figure in measure_world(world, read, spark, times):
                    found.append(figure)
                    print(figure, flush=True)
        finally:
            spark.stop_session()
            server.stop()
    return found


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.loads", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", default=["sqlite", "postgres"])
    options = parser.parse_args(arguments)
    rows = 20_000 if options.quick else options.rows
    figures = measure(rows, 1 if options.quick else options.times, options.kinds)
    for figure in figures:
        if figure.what == "table" and figure.share is not None:
            met = "met" if figure.share >= AIM else "missed"
            print(f"{met}: {figure.source}, {100 * figure.share:.0f} % of reading alone (aim 60 %)")
    options.out.mkdir(parents=True, exist_ok=True)
    facts = report.environment() | {"rows": rows}
    written = {"facts": facts, "figures": [asdict(figure) for figure in figures]}
    (options.out / "loads.json").write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
