"""What waiting for a server costs, and how soon a commit is seen: `python -m benchmarks.wake_up`.

A project runs over a database of PostgreSQL or MariaDB, in this process. First nothing happens for
some seconds: what share of a core does that take? Then one row at a time is committed, after a
rest: how many milliseconds later does the warehouse have it? Both with the hints of the sources,
and without them, as if the source could not tell whether a look is worthwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pymysql.connections

from benchmarks import report
from benchmarks.small_batches import Watcher
from viewkeeper.engine.connections.guarded_source import GuardedSource
from viewkeeper.engine.project import open_project
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres

ROOT = Path(__file__).resolve().parent.parent
WAIT_SECONDS = 120.0
SETTLE_SECONDS = 2.0
VIEW = """CREATE MATERIALIZED VIEW lines AS
SELECT i.id, i.amount, o.placed FROM shop.item i JOIN shop.orders o ON i.order_id = o.id
"""
TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, placed varchar(20))",
    "CREATE TABLE item (id int PRIMARY KEY, order_id int, amount int)",
    "INSERT INTO orders VALUES (1, 'monday'), (2, 'tuesday')",
    "INSERT INTO item VALUES (0, 1, 5)",
)
FULL_IDENTITY = (
    "ALTER TABLE orders REPLICA IDENTITY FULL",
    "ALTER TABLE item REPLICA IDENTITY FULL",
)


@dataclass(frozen=True, slots=True)
class WakeUp:
    """One way of waiting: the share of a core while nothing happens, and milliseconds to a row."""

    kind: str
    is_hinted: bool
    idle_core: float
    p50: float
    p95: float

    def __str__(self) -> str:
        return (
            f"{self.kind:<10}{'hints' if self.is_hinted else 'no hints':<10}"
            f"{100 * self.idle_core:>7.1f} %{self.p50:>9.1f}{self.p95:>9.1f}"
        )


HEADER = f"{'':<20}{'idle core':>9}{'p50 ms':>9}{'p95 ms':>9}"
Execute = Callable[[str], object]


@contextmanager
def postgres_database(folder: Path) -> Iterator[tuple[str, Execute]]:
    """The settings of a source, and how to commit a statement there."""
    server = PrivatePostgres(folder / "postgres")
    server.start()
    try:
        url = server.url_of()
        with psycopg.connect(url, autocommit=True) as connection:
            yield (
                f"{{kind: postgres, url: '{url}'}}",
                lambda text: connection.execute(text.encode()),
            )
    finally:
        server.stop()


@contextmanager
def mariadb_database(folder: Path) -> Iterator[tuple[str, Execute]]:
    server = PrivateMariadb(folder / "mariadb")
    server.start()
    try:
        connection: pymysql.connections.Connection[Any] = pymysql.connections.Connection(
            host="127.0.0.1", port=server.port, user="root", password="secret", autocommit=True
        )
        with closing(connection):
            connection.query("CREATE DATABASE shop")
            connection.select_db("shop")
            yield f"{{kind: mariadb, url: '{server.url_of('shop')}'}}", connection.query
    finally:
        server.stop()


KINDS = {"postgres": postgres_database, "mariadb": mariadb_database}


def measure_waiting(
    folder: Path, source: str, execute: Execute, options: argparse.Namespace
) -> Iterator[tuple[bool, float, list[float]]]:
    """With hints and without: the share of a core while idle, and milliseconds to each row."""
    (folder / "views").mkdir(parents=True)
    (folder / "views" / "lines.sql").write_text(VIEW)
    (folder / "viewkeeper.yml").write_text(
        f"warehouse: ./warehouse\nsources:\n  shop: {source}\nspark: {{master: 'local[2]'}}\n"
    )
    numbers = iter(range(1, 1_000_000))
    for is_hinted in (False, True):
        unhinted = mock.patch.object(GuardedSource, "has_news", return_value=None)
        with open_project(folder) as project, mock.patch.object(SparkHandle, "begin_start"):
            project.refresh()
            watcher, stop = Watcher(), threading.Event()
            runner = threading.Thread(target=lambda w, s: project.run(w, s), args=(watcher, stop))
            if not is_hinted:
                unhinted.start()
            runner.start()
            try:
                for _ in range(3):
                    _commit_row(execute, watcher, next(numbers))
                time.sleep(SETTLE_SECONDS)
                used = time.process_time()
                time.sleep(options.seconds)
                idle = (time.process_time() - used) / options.seconds
                taken = []
                for _ in range(options.samples):
                    time.sleep(random.uniform(1.2, 1.5))
                    taken.append(_commit_row(execute, watcher, next(numbers)))
            finally:
                stop.set()
                runner.join()
                mock.patch.stopall()
        yield is_hinted, idle, taken


def _commit_row(execute: Execute, watcher: Watcher, number: int) -> float:
    """Milliseconds from the commit of a row to the warehouse's."""
    watcher.committed.clear()
    execute(f"INSERT INTO item VALUES ({number}, {1 + number % 2}, {number})")
    at = time.perf_counter()
    assert watcher.committed.wait(WAIT_SECONDS), "nothing was committed"
    return 1000 * (watcher.at - at)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.wake_up", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seconds", type=float, default=8.0, help="how long nothing happens")
    parser.add_argument("--samples", type=int, default=25)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out")
    parser.add_argument("--quick", action="store_true", help="few samples, to see that it works")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seconds, options.samples = 1.0, 2
    print(f"load {os.getloadavg()[0]:.1f}\n{HEADER}", flush=True)
    found = []
    for kind in options.kinds:
        with (
            tempfile.TemporaryDirectory(prefix="viewkeeper-wake-") as folder,
            KINDS[kind](Path(folder)) as (source, execute),
        ):
            for statement in (*TABLES, *(FULL_IDENTITY if kind == "postgres" else ())):
                execute(statement)
            project = Path(folder) / "project"
            for is_hinted, idle, taken in measure_waiting(project, source, execute, options):
                ordered = sorted(taken)
                p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
                figure = WakeUp(kind, is_hinted, idle, statistics.median(ordered), p95)
                found.append(figure)
                print(figure, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    body = {**report.environment(), "figures": [asdict(figure) for figure in found]}
    (options.out / "wake_up.json").write_text(json.dumps(body, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
