"""The project that is killed: three small databases, a join over all of them, and three ledgers.

Every transaction of a database inserts the next number into that database's `ledger`, and a view
of its own shows each ledger. So a view row is the receipt of a source transaction: a number that is
missing was lost, one that is there twice was applied twice, and the ledgers' rows as of a ts say
exactly which transactions every other view must contain as of that ts.

The join shows no key, so its rows repeat and have counts. Where they are wanted, reports of three
levels stand on it: aggregates of the join, and a left join of these; one of them has a fold of its
own inside. Beside them stand a window, a deduplication, a correlated and an uncorrelated scalar,
exploded texts and the orders of the last days. The days are those of a clock of the project's own,
a file, which writers move: what happens at midnight happens all the time here.

Ids come from small ranges, so inserts replace, updates hit and deletes find. Nothing of Viewkeeper
is used here, nor by the writers.
"""

from __future__ import annotations

import datetime
import os
import random
import shutil
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
JOURNAL = "journal.jsonl"

Statement = tuple[str, tuple[object, ...]]

TABLES: Mapping[str, tuple[str, ...]] = {
    "crm": ("CREATE TABLE customer (id INTEGER PRIMARY KEY, city TEXT)",),
    "shop": (
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, placed DATE)",
        "CREATE TABLE item (order_id INTEGER, product_id INTEGER, quantity INTEGER)",
        "CREATE INDEX item_order ON item (order_id)",
        "CREATE INDEX item_product ON item (product_id)",
        "CREATE INDEX orders_customer ON orders (customer_id)",
    ),
    "cat": ("CREATE TABLE product (id INTEGER PRIMARY KEY, title TEXT, cents INTEGER)",),
}
LEDGERS = {f"{name}_ledger": name for name in TABLES}
JOIN = """SELECT c.city, p.title, i.quantity * p.cents AS cents
FROM {shop}orders o JOIN {crm}customer c ON c.id = o.customer_id
JOIN {shop}item i ON i.order_id = o.id JOIN {cat}product p ON p.id = i.product_id
"""
JOIN_HERE = JOIN.format(shop="", crm="", cat="")
"""The join as plain SQL over one database that has all the tables."""

REPORTS: Mapping[str, str] = {
    "per_city": "SELECT city, count(*) AS n, sum(cents) AS cents, max(cents) AS top FROM lines "
    "GROUP BY city",
    "per_title": "SELECT title, count(*) AS n, max(cents) AS top FROM lines GROUP BY title",
    "leaders": "SELECT c.city, c.n, c.cents, t.title, t.n AS sold FROM per_city c "
    "LEFT JOIN per_title t ON t.top = c.top",
    "busy": "WITH placed AS (SELECT o.customer_id, count(*) AS n FROM {shop}orders o "
    "GROUP BY o.customer_id) SELECT c.city, p.n, count(*) AS customers FROM {crm}customer c "
    "LEFT JOIN placed p ON p.customer_id = c.id GROUP BY c.city, p.n",
    "ranked": "SELECT o.customer_id, o.id, row_number() OVER (PARTITION BY o.customer_id "
    "ORDER BY o.placed, o.id) AS place, lag(o.id) OVER (PARTITION BY o.customer_id "
    "ORDER BY o.placed, o.id) AS earlier FROM {shop}orders o",
    "largest": "SELECT i.order_id, i.product_id, i.quantity FROM {shop}item i QUALIFY "
    "row_number() OVER (PARTITION BY i.order_id ORDER BY i.quantity DESC, i.product_id) = 1",
    "loyal": "SELECT c.id, c.city, (SELECT count(*) FROM {shop}orders o "
    "WHERE o.customer_id = c.id) AS orders FROM {crm}customer c",
    "dear": "SELECT p.id, p.title, p.cents FROM {cat}product p "
    "WHERE p.cents > (SELECT avg(q.cents) FROM {cat}product q)",
    "words": "SELECT p.id, explode(split(p.title, ' ')) AS part FROM {cat}product p",
    "recent": "SELECT o.id, o.customer_id FROM {shop}orders o "
    "WHERE o.placed > current_date() - 4 AND o.placed <= current_date()",
}
"""Views on views, in the order in which they read each other, then those that stand alone."""

AGAIN = "towns"
"""A view that is computed again, which needs Spark."""
AGAIN_REPORT = "SELECT c.city, count(*) AS n FROM {crm}customer c GROUP BY c.city"

HERE: Mapping[str, str] = {
    "largest": "SELECT order_id, product_id, quantity FROM (SELECT i.*, row_number() OVER "
    "(PARTITION BY i.order_id ORDER BY i.quantity DESC, i.product_id) AS place FROM item i) "
    "WHERE place = 1",
    "words": "SELECT id, 'product' AS part FROM product UNION ALL SELECT id, substr(title, 9) "
    "FROM product",
    "recent": "SELECT id, customer_id FROM orders, today WHERE placed > date(day, '-4 days') "
    "AND placed <= day",
}
"""What SQLite cannot read as it is, in its own words; `today` is a table of one row."""

CUSTOMERS, ORDERS, PRODUCTS, DAYS = 12, 40, 10, 14
CLOCK, FIRST_DAY = "today.txt", datetime.date(2026, 1, 5)


def first_rows(database: str) -> list[Statement]:
    """What a database holds before anybody writes."""
    if database == "crm":
        return [customer(number, number) for number in range(CUSTOMERS)]
    if database == "cat":
        return [product(number, number * 10) for number in range(PRODUCTS)]
    rows = [order(number, number % CUSTOMERS) for number in range(ORDERS)]
    return rows + [item(number, number % PRODUCTS, 1 + number % 3) for number in range(ORDERS)]


def customer(number: int, city: int) -> Statement:
    return "INSERT OR REPLACE INTO customer VALUES (?, ?)", (number, f"city {city % 4}")


def product(number: int, cents: int) -> Statement:
    title = f"product {number % 5}"
    return "INSERT OR REPLACE INTO product VALUES (?, ?, ?)", (number, title, cents)


def order(number: int, customer_id: int) -> Statement:
    placed = FIRST_DAY + datetime.timedelta(days=(number + customer_id) % DAYS - 3)
    return "INSERT OR REPLACE INTO orders VALUES (?, ?, ?)", (
        number,
        customer_id,
        placed.isoformat(),
    )


def item(order_id: int, product_id: int, quantity: int) -> Statement:
    return "INSERT INTO item VALUES (?, ?, ?)", (order_id, product_id, quantity)


def transaction(rng: random.Random, database: str) -> list[Statement]:
    """Some statements over the tables of one database."""
    statements = {"crm": _customers, "shop": _orders, "cat": _products}[database]
    return [one for _ in range(rng.randint(1, 3)) for one in statements(rng)]


def _customers(rng: random.Random) -> list[Statement]:
    number = rng.randrange(CUSTOMERS)
    if rng.random() < 0.2:
        return [("DELETE FROM customer WHERE id = ?", (number,))]
    if rng.random() < 0.3:
        return [("UPDATE customer SET city = city || ? WHERE id < ?", ("", number))]
    return [customer(number, rng.randrange(4))]


def _orders(rng: random.Random) -> list[Statement]:
    number, choice = rng.randrange(ORDERS), rng.random()
    if choice < 0.25:
        tables = ("DELETE FROM item WHERE order_id = ?", "DELETE FROM orders WHERE id = ?")
        return [(sql, (number,)) for sql in tables]
    if choice < 0.5:
        return [("UPDATE item SET quantity = quantity + 1 WHERE order_id = ?", (number,))]
    if choice < 0.7:
        return [order(number, rng.randrange(CUSTOMERS))]
    items = [item(number, rng.randrange(PRODUCTS), rng.randint(1, 3)) for _ in range(2)]
    emptied: Statement = ("DELETE FROM item WHERE order_id = ?", (number,))
    return [order(number, rng.randrange(CUSTOMERS)), emptied, *items]


def _products(rng: random.Random) -> list[Statement]:
    number = rng.randrange(PRODUCTS)
    if rng.random() < 0.2:
        return [("DELETE FROM product WHERE id = ?", (number,))]
    if rng.random() < 0.4:
        return [("UPDATE product SET cents = cents + 1 WHERE id = ?", (number,))]
    return [product(number, rng.randrange(100))]


def reports_here() -> dict[str, str]:
    """The reports as plain SQL over one database that has all the tables, and `lines`."""
    texts = {**REPORTS, AGAIN: AGAIN_REPORT, **HERE}
    return {name: text.format(shop="", crm="", cat="") for name, text in texts.items()}


def read_day(folder: Path) -> datetime.date:
    """What the clock of a project shows."""
    return datetime.date.fromisoformat((folder / CLOCK).read_text())


def move_clock(folder: Path) -> None:
    """A day later."""
    fresh = folder / f".{CLOCK}"
    fresh.write_text((read_day(folder) + datetime.timedelta(days=1)).isoformat())
    os.replace(fresh, folder / CLOCK)


def make_project(
    folder: Path, settings: str = "", reports: bool = False, again: bool = False
) -> Path:
    """The databases and the project file, not loaded yet.

    With `again` one more report is computed again instead of maintained.
    """
    (folder / "views").mkdir(parents=True)
    (folder / CLOCK).write_text(FIRST_DAY.isoformat())
    for database in TABLES:
        _make_database(folder / f"{database}.db", database)
    sources = "".join(
        f"  {name}: {{kind: sqlite, path: {name}.db, busy_seconds: 0.2}}\n" for name in TABLES
    )
    join = JOIN.format(shop="shop.", crm="crm.", cat="cat.")
    _write_view(folder, "lines", join)
    texts = {**(REPORTS if reports else {}), **({AGAIN: AGAIN_REPORT} if again else {})}
    for name, text in texts.items():
        _write_view(folder, name, text.format(shop="shop.", crm="crm.", cat="cat."))
    for view, database in LEDGERS.items():
        _write_view(folder, view, f"SELECT n FROM {database}.ledger")
    write_settings(folder, settings, sources)
    (folder / JOURNAL).touch()
    return folder


def write_settings(folder: Path, settings: str, sources: str | None = None) -> None:
    """The project file; without `sources`, those that it has.

    Commits come quickly, and a slow machine's large batches still run inline.
    """
    file = folder / "viewkeeper.yml"
    if sources is None:
        sources = file.read_text().partition("sources:\n")[2]
    quick = "warehouse: ./warehouse\nfreshness: 30ms\n"
    inline = "" if "batch:" in settings else "batch: {inline_rows: 10000000}\n"
    if (folder / "views" / f"{AGAIN}.sql").exists():
        settings += f"views:\n  {AGAIN}: {{refresh: full}}\n"
    file.write_text(f"{quick}{inline}{settings}sources:\n{sources}")


def _write_view(folder: Path, name: str, select: str) -> None:
    (folder / "views" / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS\n{select}")


def _make_database(path: Path, name: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE ledger (n INTEGER PRIMARY KEY)")
    for statement in TABLES[name]:
        connection.execute(statement)
    run_all(connection, first_rows(name))
    connection.execute("COMMIT")
    connection.close()


def run_all(connection: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    for sql, values in statements:
        connection.execute(sql, values)


def copy_project(loaded: Path, folder: Path, settings: str = "") -> Path:
    """A copy to kill; nobody may use the original just now."""
    shutil.copytree(loaded, folder)
    write_settings(folder, settings)
    return folder
