"""What goes without being listed: TRUNCATE, and rows that are deleted by their key.

The view loses what it has of them, what is uncommitted becomes visible together with that, and what
comes later goes on as ever; also when the table is emptied just before a lookup asks it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pymysql
import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.live.judge import arrow_rows
from viewkeeper.engine.connections.open_sources import PreparedOpeners
from viewkeeper.engine.project import Project
from viewkeeper.errors import ProjectError
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres

SQL = """CREATE MATERIALIZED VIEW lines AS
SELECT o.id, o.note, c.name, i.quantity FROM shop.orders o
JOIN shop.item i ON i.order_id = o.id JOIN crm.customer c ON c.id = o.customer_id"""
CREATE = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer_id bigint, note text)",
    "CREATE TABLE item (order_id bigint, quantity bigint)",
    "INSERT INTO orders VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'c')",
    "INSERT INTO item VALUES (1, 10), (1, 10), (2, 20), (3, 30)",
)

NUMBER, TEXT = pa.int64(), pa.string()
COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "orders": {"id": NUMBER, "customer_id": NUMBER, "note": TEXT},
    "item": {"order_id": NUMBER, "quantity": NUMBER},
    "customer": {"id": NUMBER, "name": TEXT},
}


class World:
    """A project over one real database and a SQLite one."""

    def __init__(self, folder: Path, connection: Any, source: str) -> None:
        self.folder = folder
        self._connection = connection
        for statement in CREATE:
            self.shop(statement)
        with closing(sqlite3.connect(folder / "crm.db")) as crm:
            crm.execute("PRAGMA journal_mode = WAL")
            crm.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)")
            crm.execute("INSERT INTO customer VALUES (1, 'Ada'), (2, 'Bob')")
            crm.commit()
        (folder / "views").mkdir()
        (folder / "views" / "lines.sql").write_text(SQL)
        self.write(source)

    def write(self, source: str) -> None:
        (self.folder / "viewkeeper.yml").write_text(
            f"warehouse: ./warehouse\nhistory: 1h\nsources:\n  shop: {source}\n"
            "  crm: {kind: sqlite, path: crm.db}\n"
        )

    def shop(self, *statements: str) -> None:
        with self._connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        self._connection.commit()

    def crm(self, statement: str) -> None:
        with closing(sqlite3.connect(self.folder / "crm.db")) as crm:
            crm.execute(statement)
            crm.commit()

    def tables(self) -> dict[str, pa.Table]:
        """The tables as they are now, by the names that views have for them."""
        found = {}
        with self._connection.cursor() as cursor:
            for table in ("orders", "item"):
                cursor.execute(f"SELECT * FROM {table}")
                found[f"shop.{table}"] = (pa.schema(COLUMNS[table]), cursor.fetchall())
        self._connection.commit()
        with closing(sqlite3.connect(self.folder / "crm.db")) as crm:
            customers = crm.execute("SELECT * FROM customer").fetchall()
        found["crm.customer"] = (pa.schema(COLUMNS["customer"]), customers)
        return {
            name: pa.Table.from_pylist(
                [dict(zip(schema.names, row, strict=True)) for row in rows], schema
            )
            for name, (schema, rows) in found.items()
        }

    def expected(self) -> Counter[tuple[Any, ...]]:
        tables = {}
        with self._connection.cursor() as cursor:
            for table in ("orders", "item"):
                cursor.execute(f"SELECT * FROM {table}")
                tables[table] = cursor.fetchall()
        self._connection.commit()
        with closing(sqlite3.connect(self.folder / "crm.db")) as crm:
            names = dict(crm.execute("SELECT id, name FROM customer"))
        return Counter(
            (order, note, names[customer], quantity)
            for order, customer, note in tables["orders"]
            for of, quantity in tables["item"]
            if of == order and customer in names
        )


def check(project: Project, world: World) -> None:
    report = project.refresh()
    assert report.waiting == {}
    assert arrow_rows(project.view("lines").arrow()) == world.expected()


@pytest.fixture(params=["postgres", "mariadb"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    name = f"barriers_{abs(hash(request.node.name)) % 10**9}"
    if request.param == "postgres":
        server: PrivatePostgres = request.getfixturevalue("postgres_server")
        yield from postgres_world(server, tmp_path, name)
    else:
        yield from mariadb_world(request.getfixturevalue("mariadb_server"), tmp_path, name)


def postgres_world(server: PrivatePostgres, folder: Path, name: str) -> Iterator[World]:
    with psycopg.connect(server.url_of(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(server.url_of(name)) as connection:
        made = World(folder, connection, f"{{kind: postgres, url: '{server.url_of(name)}'}}")
        made.shop(*(f"ALTER TABLE {t} REPLICA IDENTITY FULL" for t in ("orders", "item")))
        yield made
    with viewkeeper.open(folder) as project, closing(project.open_connections()) as connections:
        connections.get_source("shop").detach_source()


def mariadb_world(server: PrivateMariadb, folder: Path, name: str) -> Iterator[World]:
    address: dict[str, Any] = {"host": "127.0.0.1", "port": server.port, "user": "root"}
    with closing(pymysql.connect(**address, password="secret")) as admin:
        admin.cursor().execute(f"CREATE DATABASE {name}")
    with closing(pymysql.connect(**address, password="secret", database=name)) as connection:
        yield World(folder, connection, f"{{kind: mariadb, url: '{server.url_of(name)}'}}")


@pytest.mark.parametrize("algorithm", ["batch_sweep", "pvm"])
def test_a_table_that_is_emptied_takes_its_share_of_the_view(
    world: World, spark: SparkSession, algorithm: str
) -> None:
    with viewkeeper.open(world.folder, spark=spark) as project:
        project.settings = project.settings.with_algorithm(algorithm, "convergence")
        check(project, world)
        world.crm("UPDATE customer SET name = 'Cy' WHERE id = 1")
        world.shop("INSERT INTO item VALUES (2, 21)", "UPDATE orders SET note = 'z' WHERE id = 3")
        world.shop("TRUNCATE TABLE item")
        world.shop("INSERT INTO item VALUES (1, 11), (3, 33)")
        world.crm("UPDATE customer SET name = 'Di' WHERE id = 2")
        check(project, world)
        world.shop("UPDATE item SET quantity = 12 WHERE order_id = 1")
        check(project, world)
        (verdict,) = project.verify(every_state=True)
        assert verdict.ok, verdict.differences.to_pylist()


def test_states_before_a_barrier_stay(world: World, spark: SparkSession) -> None:
    with viewkeeper.open(world.folder, spark=spark) as project:
        check(project, world)
        before, ts = world.expected(), project.view("lines").ts
        world.shop("TRUNCATE TABLE orders")
        check(project, world)
        assert not project.view("lines").arrow().num_rows
        assert arrow_rows(project.view("lines").arrow(as_of=ts)) == before


def test_a_table_that_is_emptied_while_it_is_asked(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch was formed before the TRUNCATE, its lookup comes after it."""
    with viewkeeper.open(world.folder, spark=spark) as project:
        check(project, world)
        world.crm("UPDATE customer SET name = 'Cy' WHERE id = 1")
        once(monkeypatch, lambda: world.shop("TRUNCATE TABLE orders"))
        check(project, world)
        world.shop("INSERT INTO orders VALUES (1, 1, 'again')")
        check(project, world)
        assert project.view("lines").arrow().num_rows == 2


def once(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Make something happen before the next source is asked."""
    prepare, left = PreparedOpeners._prepare_opener, [happens]

    def interfered(preparing: PreparedOpeners, name: str) -> Any:
        if left:
            left.pop()()
        return prepare(preparing, name)

    monkeypatch.setattr(PreparedOpeners, "_prepare_opener", interfered)


@pytest.fixture
def by_key(
    postgres_server: PrivatePostgres, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[World]:
    """PostgreSQL tables of which only the key of old rows is logged."""
    name = f"keyed_{abs(hash(request.node.name)) % 10**9}"
    for made in postgres_world(postgres_server, tmp_path, name):
        made.shop("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
        url = postgres_server.url_of(name)
        made.write(f"{{kind: postgres, url: '{url}', delete_by_key: [orders]}}")
        yield made


def test_rows_are_deleted_by_their_key(by_key: World, spark: SparkSession) -> None:
    with viewkeeper.open(by_key.folder, spark=spark) as project:
        check(project, by_key)
        by_key.shop("UPDATE orders SET note = 'x' WHERE id = 1")
        check(project, by_key)
        by_key.crm("UPDATE customer SET name = 'Cy' WHERE id = 1")
        by_key.shop("INSERT INTO item VALUES (2, 21)", "DELETE FROM orders WHERE id = 3")
        by_key.shop("UPDATE orders SET customer_id = 2 WHERE id = 2")
        by_key.shop("INSERT INTO orders VALUES (3, 1, 'new')")
        check(project, by_key)
        by_key.shop("UPDATE orders SET id = 7 WHERE id = 1", "INSERT INTO item VALUES (7, 77)")
        check(project, by_key)
        by_key.shop("DELETE FROM orders")
        check(project, by_key)


def test_a_report_over_rows_that_are_deleted_by_key_is_refused(
    by_key: World, spark: SparkSession
) -> None:
    text = "CREATE MATERIALIZED VIEW notes AS SELECT o.note, count(*) AS n FROM shop.orders o"
    (by_key.folder / "views" / "notes.sql").write_text(f"{text} GROUP BY o.note")
    with viewkeeper.open(by_key.folder, spark=spark) as project:
        waiting = project.refresh(strict=False).waiting
        assert {*waiting} == {"notes"}
        assert "rows of shop.orders are deleted by key, which only plain joins" in waiting["notes"]
        assert arrow_rows(project.view("lines").arrow()) == by_key.expected()
        with pytest.raises(ProjectError, match="REPLICA IDENTITY FULL and take it off") as refused:
            project.refresh()
    assert 'view "notes"' in str(refused.value)


def test_a_view_without_the_key_is_refused(by_key: World, spark: SparkSession) -> None:
    sql = SQL.replace("SELECT o.id, o.note", "SELECT o.note")
    (by_key.folder / "views" / "lines.sql").write_text(sql)
    refused = pytest.raises(ProjectError, match=r"does not show the key of shop\.orders")
    with viewkeeper.open(by_key.folder, spark=spark) as project, refused:
        project.refresh()
