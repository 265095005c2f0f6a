"""What maintenance costs the sources: queries and bytes per maintained batch and update.

A view joins orders in PostgreSQL, customers in MariaDB and products in SQLite, one of each to an
order. A batch of n updates of one source is committed in up to 100 transactions and maintained in
the driver. Bytes are counted by a proxy in front of each server, from before the first update, so
that the change stream is whole; queries by the servers themselves: lines of PostgreSQL's log,
MariaDB's `Questions`, and statements that SQLite was given. Acknowledging is in all of them.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import psycopg
import pymysql.connections

from benchmarks.maintenance import Attentive
from benchmarks.source_proxy import Proxy, Traffic, is_mariadb_stream, is_postgres_stream
from benchmarks.source_worlds import Servers
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.project import open_project
from viewkeeper.sources.sqlite.database import SqliteDatabase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES = ("shop", "crm", "catalogue")
UPDATED = {"shop": "orders, PostgreSQL", "crm": "customer, MariaDB"}
TRANSACTIONS = 100
_LOGGED = re.compile(rb"^viewkeeper\|LOG:  (?:statement|execute [^:]*): ", re.MULTILINE)

_PROJECT = """warehouse: ./warehouse
sources:
  shop: {{kind: postgres, url: "postgresql://postgres:secret@127.0.0.1:{shop}/costs"}}
  crm: {{kind: mariadb, url: "mariadb://root:secret@127.0.0.1:{crm}/crm"}}
  catalogue: {{kind: sqlite, path: catalogue.db}}
"""
_VIEW = """CREATE MATERIALIZED VIEW order_lines AS
SELECT o.id AS order_id, c.name AS customer, c.city, p.title AS product, o.quantity,
       o.quantity * p.cents AS cents
FROM shop.orders o
JOIN crm.customer c ON c.id = o.customer_id
JOIN catalogue.product p ON p.id = o.product_id
"""


@dataclass(frozen=True, slots=True)
class SourceCost:
    """What one batch cost one source; `traffic` is None where there is no connection."""

    lookups: int
    queries: int
    traffic: Traffic | None


@dataclass(frozen=True, slots=True)
class Cost:
    """One batch of updates of one source."""

    updated: str
    updates: int
    changes: int
    seconds: float
    sources: Mapping[str, SourceCost]

    @property
    def queries(self) -> int:
        return sum(each.queries for each in self.sources.values())

    @property
    def bytes(self) -> int:
        return sum(each.traffic.bytes for each in self.sources.values() if each.traffic)


class CostWorld:
    """The three databases, the proxies before two of them, and what counts queries."""

    def __init__(self, folder: Path, servers: Servers, rows: int, stack: ExitStack) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.rows = rows
        self._round = 0
        self._postgres, self._mariadb = servers.postgres, servers.mariadb
        self.proxies = {
            "shop": Proxy(self._postgres.port, is_postgres_stream),
            "crm": Proxy(self._mariadb.port, is_mariadb_stream),
        }
        self._shop = stack.enter_context(closing(self._fill_shop()))
        self._crm = stack.enter_context(closing(self._fill_crm()))
        self._fill_catalogue()
        for proxy in self.proxies.values():
            stack.callback(proxy.close)
            proxy.start()
        self._statements = stack.enter_context(_counted_statements())
        ports = {name: proxy.port for name, proxy in self.proxies.items()}
        (folder / "viewkeeper.yml").write_text(_PROJECT.format(**ports))
        (folder / "views").mkdir()
        (folder / "views" / "order_lines.sql").write_text(_VIEW)

    def _fill_shop(self) -> psycopg.Connection[Any]:
        with psycopg.connect(self._postgres.url_of(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE costs")
            connection.execute("ALTER DATABASE costs SET log_statement = 'all'")
        connection = psycopg.connect(self._postgres.url_of("costs"), autocommit=True)
        for statement in (
            "CREATE TABLE orders (id bigint PRIMARY KEY, customer_id bigint, product_id bigint,"
            " quantity int)",
            "ALTER TABLE orders REPLICA IDENTITY FULL",
            f"INSERT INTO orders SELECT i, 1 + i * 7919 % {self.rows},"
            f" 1 + i * 104729 % {self.rows}, 1 + i % 9"
            f" FROM generate_series(1::bigint, {self.rows}) AS s(i)",
            "CREATE INDEX ON orders (customer_id)",
            "CREATE INDEX ON orders (product_id)",
            "VACUUM ANALYZE orders",
        ):
            connection.execute(statement.encode())
        return connection

    def _fill_crm(self) -> pymysql.connections.Connection[Any]:
        connection = pymysql.connections.Connection(
            host="127.0.0.1",
            port=self._mariadb.port,
            user="root",
            password=b"secret",
            autocommit=True,
            ssl_disabled=True,
        )
        with connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE crm")
            cursor.execute("USE crm")
            cursor.execute(
                "CREATE TABLE customer (id BIGINT PRIMARY KEY, name VARCHAR(80), city VARCHAR(80))"
            )
            cursor.execute(
                "INSERT INTO customer SELECT seq, CONCAT('customer ', seq),"
                f" CONCAT('city ', seq % 500) FROM seq_1_to_{self.rows}"
            )
            cursor.execute("ANALYZE TABLE customer")
        return connection

    def _fill_catalogue(self) -> None:
        with closing(sqlite3.connect(self.folder / "catalogue.db")) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(
                "CREATE TABLE product (id INTEGER PRIMARY KEY, title TEXT, cents INTEGER)"
            )
            rows = ((n, f"product {n}", 100 + n % 10_000) for n in range(1, self.rows + 1))
            connection.executemany("INSERT INTO product VALUES (?, ?, ?)", rows)
            connection.commit()

    def update(self, source: str, count: int) -> None:
        """Commit updates of that many rows, next to each other, in up to 100 transactions."""
        rounds = min(TRANSACTIONS, count)
        self._round += 1
        first = 1 + self._round * 7919 % max(1, self.rows - count)
        for number in range(rounds):
            start, end = count * number // rounds, count * (number + 1) // rounds - 1
            self._update(source, first + start, first + end)

    def _update(self, source: str, first: int, last: int) -> None:
        if source == "shop":
            self._shop.execute(
                "UPDATE orders SET customer_id = 1 + (customer_id + %s) %% %s,"
                " quantity = quantity %% 9 + 1 WHERE id BETWEEN %s AND %s",
                (self._round, self.rows, first, last),
            )
            return
        with self._crm.cursor() as cursor:
            cursor.execute(
                "UPDATE customer SET city = CONCAT('city ', id %% 500, ' ', %s)"
                " WHERE id BETWEEN %s AND %s",
                (self._round, first, last),
            )

    def queries(self) -> dict[str, int]:
        """How many queries each source has been asked; MariaDB counts this one too."""
        log = (self._postgres.folder / "server.log").read_bytes()
        with self._crm.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
            row = cursor.fetchone()
            assert row is not None
        return {
            "shop": len(_LOGGED.findall(log)),
            "crm": int(row[1]),
            "catalogue": len(self._statements),
        }


@contextmanager
def _counted_statements() -> Iterator[list[str]]:
    """The statements that SQLite is given on connections that are opened from now on."""
    statements: list[str] = []
    opened: Callable[..., sqlite3.Connection] = SqliteDatabase.open_connection

    def open_traced(
        database: SqliteDatabase, *arguments: Any, **options: Any
    ) -> sqlite3.Connection:
        connection = opened(database, *arguments, **options)
        connection.set_trace_callback(statements.append)
        return connection

    with mock.patch.object(SqliteDatabase, "open_connection", open_traced):
        yield statements


def measure(
    folder: Path,
    servers: Servers,
    rows: int,
    batches: Sequence[int],
    spark: SparkSession | None = None,
) -> Iterator[Cost]:
    """Batches of updates of PostgreSQL, then of MariaDB."""
    with ExitStack() as stack:
        world = CostWorld(folder, servers, rows, stack)
        project = stack.enter_context(open_project(folder, spark))
        project.refresh()
        inline = replace(project.settings.batch, inline_rows=10**9)
        project.settings = replace(project.settings, batch=inline)
        observer = Attentive()
        maintainer = stack.enter_context(project.open_maintainer("benchmark", observer))
        maintainer.start_run()
        for source in UPDATED:
            _batch(world, maintainer, observer, source, 1)
            for updates in batches:
                yield _batch(world, maintainer, observer, source, updates)


def _batch(
    world: CostWorld, maintainer: Maintainer, observer: Attentive, source: str, updates: int
) -> Cost:
    marks = {name: proxy.mark() for name, proxy in world.proxies.items()}
    world.update(source, updates)
    before = world.queries()
    started = time.perf_counter()
    maintainer.see_commits()
    maintainer.maintain_views()
    seconds = time.perf_counter() - started
    maintainer.acknowledge_commits(now=True)
    after = world.queries()
    after["crm"] -= 1
    report = observer.last
    assert report is not None
    assert report.changes == 2 * updates, f"{report.changes} changes of {updates} updates"
    lookups = _by_source(report.lookups)
    costs = {}
    for name in SOURCES:
        traffic = world.proxies[name].since(marks[name]) if name in marks else None
        costs[name] = SourceCost(lookups[name], after[name] - before[name], traffic)
    return Cost(UPDATED[source], updates, report.changes, seconds, costs)


def _by_source(lookups: Mapping[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, count in lookups.items():
        found[name.split(".")[0]] += count
    return found


HEADER = (
    f"{'updated':<22}{'updates':>8}  {'source':<10}{'lookups':>8}{'queries':>8}{'conns':>6}"
    f"{'stream B':>11}{'standing B':>11}{'asked B':>10}{'answered B':>11}"
    f"{'queries/upd':>12}{'bytes/upd':>10}"
)


def lines(cost: Cost) -> Iterator[str]:
    """A row for each source."""
    for name, each in cost.sources.items():
        start = (
            f"{cost.updated:<22}{cost.updates:>8,}  {name:<10}{each.lookups:>8}{each.queries:>8}"
        )
        share = each.queries / cost.updates
        if each.traffic is None:
            yield f"{start}{'-':>6}{'-':>11}{'-':>11}{'-':>10}{'-':>11}{share:>12.4f}{'-':>10}"
            continue
        sent, received = each.traffic.sent, each.traffic.received
        standing = sent["standing"] + received["standing"]
        yield (
            f"{start}{each.traffic.connections:>6}{sent['stream'] + received['stream']:>11,}"
            f"{standing:>11,}{sent['opened']:>10,}{received['opened']:>11,}"
            f"{share:>12.4f}{each.traffic.bytes / cost.updates:>10,.1f}"
        )
