"""A small shop in three SQLite databases, with views over them, for the engine's tests.

The views' rows are recomputed by SQLite itself, with the databases attached to one connection, so
that what is compared with has nothing to do with Viewkeeper or Spark.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from viewkeeper.engine.view import View

TABLES = {
    "crm": "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT)",
    "shop": """CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, placed DATE);
        CREATE TABLE item (order_id INTEGER, product_id INTEGER, quantity INTEGER);
        CREATE INDEX item_order ON item (order_id);
        CREATE INDEX item_product ON item (product_id);
        CREATE INDEX order_customer ON orders (customer_id)""",
    "catalogue": "CREATE TABLE product (id INTEGER PRIMARY KEY, title TEXT, cents INTEGER)",
}

LINES = """SELECT o.id AS order_id, c.name, p.title, i.quantity * p.cents AS cents
FROM shop.orders o
JOIN crm.customer c ON c.id = o.customer_id
JOIN shop.item i ON i.order_id = o.id
JOIN catalogue.product p ON p.id = i.product_id
WHERE i.quantity > 0"""


class Shop:
    """A project folder with its databases."""

    def __init__(self, folder: Path, views: Mapping[str, str], settings: str = "") -> None:
        self.folder = folder
        self.views = dict(views)
        for name, tables in TABLES.items():
            with self.database(name) as database:
                database.execute("PRAGMA journal_mode = wal")
                database.executescript(tables)
        sources = "".join(f"  {n}: {{kind: sqlite, path: {n}.db}}\n" for n in TABLES)
        text = f"warehouse: ./warehouse\nsources:\n{sources}{settings}"
        (folder / "viewkeeper.yml").write_text(text)
        (folder / "views").mkdir()
        for name, sql in views.items():
            self.define(name, sql)

    def define(self, name: str, sql: str) -> None:
        self.views[name] = sql
        text = f"CREATE MATERIALIZED VIEW {name} AS\n{sql};\n"
        (self.folder / "views" / f"{name}.sql").write_text(text)

    @contextmanager
    def database(self, name: str) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.folder / f"{name}.db", timeout=30)) as connection:
            yield connection
            connection.commit()

    def execute(self, name: str, *statements: str) -> None:
        """One transaction."""
        with self.database(name) as database:
            for statement in statements:
                database.execute(statement)

    def fill(self, customers: int = 8, orders: int = 40, products: int = 5) -> None:
        with self.database("crm") as crm:
            rows: list[tuple[Any, ...]] = [(i, f"c{i}", "xyz"[i % 3]) for i in range(customers)]
            crm.executemany("INSERT INTO customer VALUES (?, ?, ?)", rows)
        with self.database("catalogue") as catalogue:
            rows = [(i, f"p{i}", i * 10) for i in range(products)]
            catalogue.executemany("INSERT INTO product VALUES (?, ?, ?)", rows)
        with self.database("shop") as shop:
            rows = [(i, i % customers, "2024-01-31") for i in range(orders)]
            shop.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
            rows = [(i, i % products, i % 4) for i in range(orders)]
            shop.executemany("INSERT INTO item VALUES (?, ?, ?)", rows)

    def recomputed(self, sql: str) -> Counter[tuple[Any, ...]]:
        """A view's rows by SQLite."""
        return self.recomputed_without(sql, "")

    def recomputed_without(self, sql: str, missing: str) -> Counter[tuple[Any, ...]]:
        """The same while a database is away."""
        with closing(sqlite3.connect(":memory:")) as connection:
            for name in TABLES.keys() - {missing}:
                connection.execute(f"ATTACH '{self.folder / f'{name}.db'}' AS {name}")
            return Counter(connection.execute(sql).fetchall())


def rows_of(view: View, as_of: int | None = None) -> Counter[tuple[Any, ...]]:
    """A view's rows as a bag."""
    table = view.arrow(as_of)
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
