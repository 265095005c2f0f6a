"""Databases of all kinds as SQLite files, for the judge: read with plain drivers, value by value.

What SQLite has no exact type for is text there, spelled as the writers' journals spell it: decimals
with their digits, days, and moments in UTC with six digits. Nothing of Viewkeeper reads here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from viewkeeper.demo.writers import folder_writer as folder
from viewkeeper.demo.writers.server_writer import open_mariadb, open_postgres
from viewkeeper.demo.writers.sql_writer import plain_value

_SCHEMAS = {
    "shop": """
        CREATE TABLE orders (id INTEGER, customer_id INTEGER, placed_at TEXT);
        CREATE TABLE item (order_id INTEGER, product_id INTEGER, quantity INTEGER);""",
    "crm": "CREATE TABLE customer (id INTEGER, name TEXT, city TEXT, since TEXT);",
    "prices": "CREATE TABLE price (sku TEXT, price TEXT, valid_from TEXT, offer TEXT);",
    "ratings": """
        CREATE TABLE rating (
            id INTEGER, product_id INTEGER, stars TEXT, review TEXT, rated_at TEXT);""",
}

Content = Mapping[str, Iterable[Sequence[Any]]]


def write_mirror(path: Path, database: str, content: Content) -> None:
    """A new SQLite file with these rows."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_SCHEMAS[database])
        for table, rows in content.items():
            for row in rows:
                marks = ", ".join("?" * len(row))
                connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)
        connection.commit()


def read_postgres(target: str) -> Content:
    return _read_tables(open_postgres(target), ("orders", "item"))


def read_mariadb(target: str) -> Content:
    return _read_tables(open_mariadb(target), ("customer",))


def _read_tables(opened: Any, tables: Sequence[str]) -> Content:
    found = {}
    with closing(opened) as connection, connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"SELECT * FROM {table}")
            found[table] = [[plain_value(value) for value in row] for row in cursor.fetchall()]
    return found


def read_folder(target: str) -> Content:
    return {folder.TABLE: _read_prices(Path(target, folder.TABLE))}


def _read_prices(path: Path) -> Iterator[Sequence[Any]]:
    for file in path.glob("*.csv"):
        yield from folder.read_csv(file)


def read_lake(target: str) -> Content:
    from viewkeeper.demo.writers import lake_writer as lake

    ratings, _ = lake.read_ratings(Path(target))
    return {lake.TABLE: [lake.plain_row(row) for row in ratings.values()]}
