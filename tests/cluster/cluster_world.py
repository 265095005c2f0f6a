"""A shop over PostgreSQL and MariaDB servers, and what its views should be."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pymysql

import viewkeeper
from tests.faults.processes import Process
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres

CUSTOMERS = 2_000
ORDERS = 60_000
SECONDS = 600.0

LINES = """CREATE MATERIALIZED VIEW lines AS
SELECT o.id, o.amount, c.name, c.segment
FROM shop.orders o JOIN crm.customer c ON o.customer_id = c.id"""
SEGMENTS = """CREATE MATERIALIZED VIEW segments AS
SELECT c.segment, count(*) AS orders, sum(o.amount) AS amount
FROM shop.orders o JOIN crm.customer c ON o.customer_id = c.id
GROUP BY c.segment"""


class ClusterWorld:
    """The databases, and a project folder for each machine that a driver is started on."""

    def __init__(self, folder: Path, postgres: PrivatePostgres, mariadb: PrivateMariadb) -> None:
        self._folder = folder
        self._rng = random.Random(11)
        self._next = ORDERS
        self._shop_url, self._crm_url = postgres.url_of("cluster"), mariadb.url_of("cluster")
        with psycopg.connect(postgres.url_of(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE cluster")
        with psycopg.connect(self._shop_url) as shop:
            shop.execute("CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int, amount int)")
            shop.execute(
                f"INSERT INTO orders SELECT n, n * 7919 % {CUSTOMERS}, n % 1000"
                f" FROM generate_series(0, {ORDERS - 1}) n"
            )
            shop.execute("CREATE INDEX ON orders (customer_id)")
            shop.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
        self._crm = pymysql.connect(
            host="127.0.0.1", port=mariadb.port, user="root", password="secret", autocommit=True
        )
        with self._crm.cursor() as crm:
            crm.execute("CREATE DATABASE cluster")
            crm.execute("USE cluster")
            crm.execute("CREATE TABLE customer (id int PRIMARY KEY, name varchar(40), segment int)")
            rows = [(n, f"customer {n}", n % 7) for n in range(CUSTOMERS)]
            crm.executemany("INSERT INTO customer VALUES (%s, %s, %s)", rows)

    def make_machine(
        self, name: str, master: str, settings: str = "", warehouse: str | None = None
    ) -> Path:
        """A project folder of its own, over the same warehouse."""
        project = self._folder / name
        (project / "views").mkdir(parents=True)
        (project / "viewkeeper.yml").write_text(
            f"warehouse: {warehouse or self._folder / 'shared'}\n"
            "batch: {inline_rows: 0, part_rows: 2000}\n"
            f"sources:\n  shop: {{kind: postgres, url: '{self._shop_url}'}}\n"
            f"  crm: {{kind: mariadb, url: '{self._crm_url}'}}\n"
            f"spark:\n  master: {master}\n  memory: 1g\n  config:\n"
            "    spark.executor.memory: 512m\n    spark.driver.host: 127.0.0.1\n"
            "    spark.ui.enabled: 'false'\n    spark.sql.shuffle.partitions: '4'\n" + settings
        )
        (project / "views" / "lines.sql").write_text(LINES)
        (project / "views" / "segments.sql").write_text(SEGMENTS)
        return project

    def write_some(self, customers: int = 300, orders: int = 2_000) -> None:
        """Transactions in both databases: renamed customers, new, changed and deleted orders."""
        with psycopg.connect(self._shop_url) as shop:
            new = [
                (self._next + n, self._rng.randrange(CUSTOMERS), self._rng.randrange(1000))
                for n in range(orders)
            ]
            self._next += orders
            with shop.cursor().copy("COPY orders FROM STDIN") as copy:
                for row in new:
                    copy.write_row(row)
            low = self._rng.randrange(self._next)
            shop.execute("DELETE FROM orders WHERE id BETWEEN %s AND %s", (low, low + 500))
            low = self._rng.randrange(self._next)
            shop.execute(
                "UPDATE orders SET amount = amount + 1 WHERE id BETWEEN %s AND %s", (low, low + 500)
            )
        with self._crm.cursor() as crm:
            low = self._rng.randrange(CUSTOMERS - customers)
            crm.execute(
                "UPDATE customer SET name = concat(name, 'x'), segment = (segment + 1) %% 7"
                " WHERE id BETWEEN %s AND %s",
                (low, low + customers),
            )

    def expected_rows(self) -> dict[str, Counter[tuple[Any, ...]]]:
        """What the views should be now, computed here from both tables."""
        with psycopg.connect(self._shop_url) as shop:
            orders = shop.execute("SELECT id, customer_id, amount FROM orders").fetchall()
        with self._crm.cursor() as crm:
            crm.execute("SELECT id, name, segment FROM customer")
            customers = {key: (name, segment) for key, name, segment in crm.fetchall()}
        lines = [(i, a, *customers[c]) for i, c, a in orders if c in customers]
        counts: Counter[int] = Counter()
        sums: Counter[int] = Counter()
        for _, amount, _, segment in lines:
            counts[segment] += 1
            sums[segment] += amount
        segments = [(segment, n, sums[segment]) for segment, n in counts.items()]
        return {"lines": Counter(lines), "segments": Counter(segments)}

    def check(self, project: Path) -> None:
        """Compare what a reader without Spark finds with that."""
        expected = self.expected_rows()
        with viewkeeper.open(project) as opened:
            for name, rows in expected.items():
                table = opened.view(name).arrow()
                columns = ["id", "amount", "name", "segment"]
                if name == "segments":
                    columns = ["segment", "orders", "amount"]
                found = Counter(zip(*(table[c].to_pylist() for c in columns), strict=True))
                assert found == rows, f"{name}: {(found - rows)} and {(rows - found)}"[:2000]

    def close(self) -> None:
        self._crm.close()


class Driver:
    """A process that maintains a project, asked by lines."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def begin(self, work: str) -> None:
        """Ask for something, and wait until it has begun."""
        self.process.say(work)
        self.process.wait_for("began", SECONDS)

    def result(self) -> dict[str, Any]:
        """Wait until it is done; what came of it."""
        found: dict[str, Any] = json.loads(self.process.wait_for("done", SECONDS)[5:])
        return found

    def refresh(self) -> dict[str, Any]:
        self.begin("refresh")
        return self.result()


@contextmanager
def driver_of(project: Path) -> Iterator[Driver]:
    """A driver for as long as the block lasts."""
    with Process("tests.cluster.driver", [str(project)]) as process:
        process.wait_for("ready", SECONDS)
        yield Driver(process)
