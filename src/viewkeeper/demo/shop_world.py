"""The demo's world of SQLite databases: three of them, and a view that joins four tables.

`crm` has the customers, `shop` the orders with their items, `catalogue` the products; nothing spans
two of them. Orders name customers and items name products that may not exist, as happens when
databases are autonomous. An item has no key: the same line can be there twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import ClassVar

from viewkeeper.demo.demo_world import DemoSizes, DemoWorld, WriterProgram
from viewkeeper.demo.judge.evidence import JudgedQuery
from viewkeeper.demo.writers import sqlite_writer
from viewkeeper.demo.writers.sqlite_writer import (
    ROLES,
    ascii_city,
    ascii_person,
    day_text,
    product_title,
    random_price,
)

_LEDGER = "CREATE TABLE ledger (n INTEGER PRIMARY KEY AUTOINCREMENT);"
CATALOGUE = """
    CREATE TABLE product (
        id INTEGER PRIMARY KEY, sku TEXT UNIQUE, title TEXT, price_cents INTEGER);"""
_SCHEMAS = {
    "crm": "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT);",
    "shop": """
        CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, placed DATE);
        CREATE INDEX orders_customer ON orders (customer_id);
        CREATE TABLE item (order_id INTEGER, product_id INTEGER, quantity INTEGER);
        CREATE INDEX item_order ON item (order_id);
        CREATE INDEX item_product ON item (product_id);""",
    "catalogue": CATALOGUE,
}

_SOURCES = """\
  crm: {kind: sqlite, path: crm.db}
  shop: {kind: sqlite, path: shop.db}
  catalogue: {kind: sqlite, path: catalogue.db}
"""

_ORDER_LINES = """\
CREATE MATERIALIZED VIEW order_lines AS
SELECT o.id AS order_id, o.placed, c.name AS customer, c.city,
       p.title AS product, i.quantity, i.quantity * p.price_cents AS cents
FROM shop.orders o
JOIN crm.customer c ON c.id = o.customer_id
JOIN shop.item i ON i.order_id = o.id
JOIN catalogue.product p ON p.id = i.product_id
"""

QUESTION = JudgedQuery(
    tables={
        "o": ("shop", "orders"),
        "c": ("crm", "customer"),
        "i": ("shop", "item"),
        "p": ("catalogue", "product"),
    },
    outputs={
        "order_id": "o.id",
        "placed": "o.placed",
        "customer": "c.name",
        "city": "c.city",
        "product": "p.title",
        "quantity": "i.quantity",
        "cents": "i.quantity * p.price_cents",
    },
    condition="o.customer_id = c.id AND i.order_id = o.id AND i.product_id = p.id",
)
"""The same view once more, written by hand for the judge."""


class ShopWorld(DemoWorld):
    """Three SQLite databases."""

    databases: ClassVar[Mapping[str, str]] = dict.fromkeys(_SCHEMAS, "SQLite by triggers")
    question: ClassVar[JudgedQuery] = QUESTION
    shown: ClassVar[tuple[str, ...]] = tuple(QUESTION.outputs)

    def source_settings(self) -> str:
        return _SOURCES

    def view_statement(self) -> str:
        return _ORDER_LINES

    def database_path(self, name: str) -> Path:
        return self.folder / f"{name}.db"

    def final_file(self, database: str) -> Path:
        return self.database_path(database)

    def writer_programs(self) -> dict[str, WriterProgram]:
        return {
            name: WriterProgram(sqlite_writer, role, str(self.database_path(role.database)))
            for name, role in ROLES.items()
        }

    def fill_databases(self, seed: int) -> None:
        sizes, random = self.sizes, Random(seed)
        rows = {
            "crm": {"customer": _customer_rows(sizes, random)},
            "shop": {"orders": _order_rows(sizes, random), "item": _item_rows(sizes, random)},
            "catalogue": {"product": product_rows(sizes, random)},
        }
        self.stop_file.parent.mkdir(parents=True)
        for name, tables in rows.items():
            make_database(self.database_path(name), _SCHEMAS[name], tables, self.initial_file(name))

    def fill_summary(self) -> str:
        sizes = self.sizes
        return (
            f"crm has {sizes.customers:,} customers, shop {sizes.orders:,} orders with "
            f"{sizes.items:,} items, catalogue {sizes.products:,} products."
        )


def make_database(
    path: Path, schema: str, tables: Mapping[str, Iterator[Sequence[object]]], copy: Path
) -> None:
    """A SQLite database with these tables and a ledger, and a copy of it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(schema + _LEDGER)
        for table, content in tables.items():
            _insert_rows(connection, table, content)
        connection.commit()
        with closing(sqlite3.connect(copy)) as other:
            connection.backup(other)


def _insert_rows(
    connection: sqlite3.Connection, table: str, rows: Iterator[Sequence[object]]
) -> None:
    first = next(rows)
    insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(first))})"
    connection.execute(insert, first)
    connection.executemany(insert, rows)


def _customer_rows(sizes: DemoSizes, random: Random) -> Iterator[Sequence[object]]:
    return ((n, ascii_person(random), ascii_city(random)) for n in range(1, sizes.customers + 1))


def _order_rows(sizes: DemoSizes, random: Random) -> Iterator[Sequence[object]]:
    for n in range(1, sizes.orders + 1):
        yield n, random.randint(1, sizes.customers), day_text(random)


def _item_rows(sizes: DemoSizes, random: Random) -> Iterator[Sequence[object]]:
    for _ in range(sizes.items):
        order, product = random.randint(1, sizes.orders), random.randint(1, sizes.products)
        yield order, product, random.randint(1, 9)


def product_rows(sizes: DemoSizes, random: Random) -> Iterator[Sequence[object]]:
    for n in range(1, sizes.products + 1):
        yield n, f"sku-{n}", product_title(random), random_price(random)
