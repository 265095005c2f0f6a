"""Projects for tests of the web page: a small shop, one in trouble, and one with 200 views."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

HOSTILE = '<img src=x onerror="document.title=1">&amp;'
"""A value, and part of a name, that would act on a page that does not escape."""


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        for statement in statements:
            database.execute(statement)


def make_shop(folder: Path, settings: str = "") -> Path:
    """Orders and items in one database, customers in another; a join, and a view on it."""
    (folder / "views").mkdir(parents=True)
    run_sql(
        folder / "shop.db",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, note TEXT)",
        "CREATE TABLE item (id INTEGER PRIMARY KEY, order_id INTEGER, cents INTEGER)",
        "CREATE INDEX item_order ON item (order_id)",
        "INSERT INTO orders VALUES (1, 1, 'first'), (2, 2, 'second')",
        "INSERT INTO item VALUES (1, 1, 100), (2, 1, 250), (3, 2, 999)",
    )
    run_sql(
        folder / "crm.db",
        "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)",
        f"INSERT INTO customer VALUES (1, 'Ada'), (2, '{HOSTILE}')",
    )
    (folder / "viewkeeper.yml").write_text(
        "warehouse: ./warehouse\nsources:\n  shop: {kind: sqlite, path: shop.db}\n"
        f"  crm: {{kind: sqlite, path: crm.db}}\n{settings}"
    )
    write_view(
        folder,
        "lines",
        "SELECT o.id AS order_id, i.id AS item_id, c.name, o.note, i.cents FROM shop.orders o"
        "\nJOIN shop.item i ON i.order_id = o.id\nJOIN crm.customer c ON c.id = o.customer",
    )
    write_view(folder, "totals", "SELECT name, sum(cents) AS cents FROM lines GROUP BY name")
    write_view(folder, "items", "SELECT id, cents FROM shop.item")
    return folder


def make_many(folder: Path, count: int) -> Path:
    """Many views over one table."""
    make_shop(folder)
    for file in (folder / "views").iterdir():
        file.unlink()
    for number in range(count):
        write_view(
            folder,
            f"items_above_{number:03}",
            f"SELECT id, order_id, cents FROM shop.item WHERE cents > {number}",
        )
    return folder


def write_view(folder: Path, name: str, query: str) -> None:
    file = folder / "views" / f"{name}.sql"
    file.write_text(f"CREATE MATERIALIZED VIEW {name} AS\n{query}\n")
