"""The demo's world: three databases, a project over them, and the evidence that a judge needs.

`crm` has the customers, `shop` the orders with their items, `catalogue` the products; nothing spans
two of them. Orders name customers and items name products that may not exist, as happens when
databases are autonomous. An item has no key: the same line can be there twice. Every database has a
ledger, into which each transaction puts one row, and the project has one view over each ledger, so
that the ts of every transaction can be read off.

Views are loaded in the order of their names, so the ledgers' before `order_lines`: every
transaction that `order_lines` is loaded with then has a ts at most that of its load.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

from viewkeeper.check.evidence import Database, Question
from viewkeeper.cli.demo_writers import ROLES, city, day, person, price, thing

DATABASES = ("crm", "shop", "catalogue")
VIEW = "order_lines"

_LEDGER = "CREATE TABLE ledger (n INTEGER PRIMARY KEY AUTOINCREMENT);"
_SCHEMAS = {
    "crm": "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT);",
    "shop": """
        CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, placed DATE);
        CREATE INDEX orders_customer ON orders (customer_id);
        CREATE TABLE item (order_id INTEGER, product_id INTEGER, quantity INTEGER);
        CREATE INDEX item_order ON item (order_id);
        CREATE INDEX item_product ON item (product_id);""",
    "catalogue": """
        CREATE TABLE product (
            id INTEGER PRIMARY KEY, sku TEXT UNIQUE, title TEXT, price_cents INTEGER);""",
}

_PROJECT = """\
warehouse: ./warehouse
sources:
  crm: {kind: sqlite, path: crm.db}
  shop: {kind: sqlite, path: shop.db}
  catalogue: {kind: sqlite, path: catalogue.db}
freshness: 1s
batch:
  # Low, so that the demo shows both: what trickles in runs inline, bursts run on Spark.
  inline_rows: 1000
spark:
  memory: 1g
  config:
    spark.sql.shuffle.partitions: 4
    # A minute is too short for the optimising compiler to pay.
    spark.driver.extraJavaOptions: >-
      -XX:+ExitOnOutOfMemoryError -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
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

QUESTION = Question(
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


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many rows there are at the start, and how many orders one bulk import brings."""

    customers: int = 2_000
    orders: int = 20_000
    items: int = 60_000
    products: int = 500
    imported: int = 500


@dataclass(frozen=True, slots=True)
class Shop:
    """The folder of a demo: project, databases, their copies, the writers' journals."""

    folder: Path
    sizes: Sizes

    def database(self, name: str) -> Path:
        return self.folder / f"{name}.db"

    def copy(self, name: str) -> Path:
        return self.folder / "evidence" / f"{name}.db"

    def journal(self, role: str) -> Path:
        return self.folder / "evidence" / f"{role}.jsonl"

    @property
    def stop_file(self) -> Path:
        """Writers end when this appears."""
        return self.folder / "evidence" / "stop"

    def evidence(self) -> dict[str, Database]:
        """What the judge is given of each database."""
        return {
            name: Database(
                self.copy(name),
                self.database(name),
                tuple(self.journal(role) for role, r in ROLES.items() if r.database == name),
            )
            for name in DATABASES
        }


def write_project(shop: Shop) -> None:
    """The project file and the views; needs no database yet."""
    views = {VIEW: _ORDER_LINES}
    for name in DATABASES:
        text = f"CREATE MATERIALIZED VIEW ledger_{name} AS SELECT l.n FROM {name}.ledger l\n"
        views[ledger_view(name)] = text
    (shop.folder / "views").mkdir(parents=True)
    for name, text in views.items():
        (shop.folder / "views" / f"{name}.sql").write_text(text)
    (shop.folder / "viewkeeper.yml").write_text(_PROJECT)


def fill_databases(shop: Shop, seed: int) -> None:
    """Make the databases, fill them, and copy them for the judge."""
    sizes, random = shop.sizes, Random(seed)
    rows = {
        "crm": {"customer": _customers(sizes, random)},
        "shop": {"orders": _orders(sizes, random), "item": _items(sizes, random)},
        "catalogue": {"product": _products(sizes, random)},
    }
    shop.stop_file.parent.mkdir(parents=True)
    for name, tables in rows.items():
        with closing(sqlite3.connect(shop.database(name))) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_SCHEMAS[name] + _LEDGER)
            for table, content in tables.items():
                _fill(connection, table, content)
            connection.commit()
            with closing(sqlite3.connect(shop.copy(name))) as copy:
                connection.backup(copy)


def ledger_view(database: str) -> str:
    return f"ledger_{database}"


def _fill(connection: sqlite3.Connection, table: str, rows: Iterator[Sequence[object]]) -> None:
    first = next(rows)
    insert = f"INSERT INTO {table} VALUES ({', '.join('?' * len(first))})"
    connection.execute(insert, first)
    connection.executemany(insert, rows)


def _customers(sizes: Sizes, random: Random) -> Iterator[Sequence[object]]:
    return ((n, person(random), city(random)) for n in range(1, sizes.customers + 1))


def _orders(sizes: Sizes, random: Random) -> Iterator[Sequence[object]]:
    for n in range(1, sizes.orders + 1):
        yield n, random.randint(1, sizes.customers), day(random)


def _items(sizes: Sizes, random: Random) -> Iterator[Sequence[object]]:
    for _ in range(sizes.items):
        order, product = random.randint(1, sizes.orders), random.randint(1, sizes.products)
        yield order, product, random.randint(1, 9)


def _products(sizes: Sizes, random: Random) -> Iterator[Sequence[object]]:
    for n in range(1, sizes.products + 1):
        yield n, f"sku-{n}", thing(random), price(random)
