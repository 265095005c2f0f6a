"""The writers of the demo's SQLite databases; `demo_pace` says what a writer is.

They import nothing but the standard library. SQLite lets one transaction write at a time, so the
ledger's own numbering follows the order of the commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from random import Random
from typing import Any, TypeAlias

from viewkeeper.demo.writers import paced_writer
from viewkeeper.demo.writers.paced_writer import Change, WriterRole, WriterStart, run_writer

BUSY_SECONDS = 30.0

FIRST = "Ada Alan Barbara Edgar Edsger Frances Grace Jim Joan Katherine Leslie Margaret Niklaus"
LAST = "Bachman Codd Dijkstra Gray Hopper Lamport Liskov Lovelace Perlman Turing Wing Wirth Yao"
CITIES = "Aarhus Bergen Cork Delft Espoo Faro Ghent Haifa Izmir Jena Kyoto Lyon Malmo Nantes Oslo"
THINGS = "Anvil Bell Compass Drum Easel Flute Globe Hammer Inkwell Jar Kettle Lantern Mirror Needle"
KINDS = "black blue brass copper green oak red silver small steel tall white"


def ascii_person(random: Random) -> str:
    return f"{random.choice(FIRST.split())} {random.choice(LAST.split())}"


def ascii_city(random: Random) -> str:
    return random.choice(CITIES.split())


def product_title(random: Random) -> str:
    return f"{random.choice(KINDS.split())} {random.choice(THINGS.split())}".capitalize()


def random_price(random: Random) -> int:
    return random.randrange(100, 20_000, 5)


def day_text(random: Random) -> str:
    return f"2026-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"


class SqliteTransaction(paced_writer.ForeignNumbers):
    """Statements of one transaction, and what they did to which rows."""

    def __init__(self, connection: sqlite3.Connection, random: Random, sizes: Mapping[str, int]):
        super().__init__(random, sizes)
        self.changes: list[Change] = []
        self._connection = connection

    def find_rows(self, table: str, where: str, *values: object) -> list[tuple[int, list[Any]]]:
        """Rows with their rowid."""
        found = self._connection.execute(f"SELECT rowid, * FROM {table} WHERE {where}", values)
        return [(rowid, list(row)) for rowid, *row in found]

    def pick_row(self, table: str) -> tuple[int, list[Any]] | None:
        """Some row, if there is one."""
        query = f"SELECT coalesce(max(rowid), 0) FROM {table}"
        (newest,) = self._connection.execute(query).fetchone()
        found = self.find_rows(table, "rowid >= ? LIMIT 1", self.random.randint(1, max(1, newest)))
        return found[0] if found else None

    def insert_row(self, table: str, row: list[Any], verb: str = "INSERT") -> int:
        """Insert a row; a first column that is None is the key that SQLite chooses."""
        marks = ", ".join("?" * len(row))
        cursor = self._connection.execute(f"{verb} INTO {table} VALUES ({marks})", row)
        rowid = cursor.lastrowid or 0
        self.changes.append((table, 1, [rowid, *row[1:]] if row[0] is None else row))
        return rowid

    def delete_row(self, table: str, rowid: int, row: list[Any]) -> None:
        self._connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))
        self.changes.append((table, -1, row))

    def update_row(self, table: str, rowid: int, row: list[Any], **values: object) -> None:
        cursor = self._connection.execute(f"SELECT * FROM {table} LIMIT 0")
        names = [column[0] for column in cursor.description]
        new = [values.get(name, old) for name, old in zip(names, row, strict=True)]
        fields = ", ".join(f"{name} = ?" for name in values)
        self._connection.execute(
            f"UPDATE {table} SET {fields} WHERE rowid = ?", (*values.values(), rowid)
        )
        self.changes += [(table, -1, row), (table, 1, new)]

    def replace_row(self, table: str, row: list[Any], collides: str, *values: object) -> None:
        """INSERT OR REPLACE, which silently deletes all rows that `collides` finds."""
        self.changes += [(table, -1, old) for _, old in self.find_rows(table, collides, *values)]
        self.insert_row(table, row, "INSERT OR REPLACE")


Activity: TypeAlias = paced_writer.Activity[SqliteTransaction]


def add_customer(tx: SqliteTransaction) -> None:
    tx.insert_row("customer", [None, ascii_person(tx.random), ascii_city(tx.random)])


def move_customer(tx: SqliteTransaction) -> None:
    if found := tx.pick_row("customer"):
        tx.update_row("customer", *found, city=ascii_city(tx.random))


def rename_customer(tx: SqliteTransaction) -> None:
    if found := tx.pick_row("customer"):
        tx.update_row("customer", *found, name=ascii_person(tx.random))


def remove_customer(tx: SqliteTransaction) -> None:
    if found := tx.pick_row("customer"):
        tx.delete_row("customer", *found)


def replace_customer(tx: SqliteTransaction) -> None:
    number = tx.some_customer()
    tx.replace_row(
        "customer", [number, ascii_person(tx.random), ascii_city(tx.random)], "id = ?", number
    )


def place_order(tx: SqliteTransaction) -> None:
    order = tx.insert_row("orders", [None, tx.some_customer(), day_text(tx.random)])
    for _ in range(tx.random.randint(1, 5)):
        line = [order, tx.some_product(), tx.random.randint(1, 9)]
        # The same line twice is nothing special: a table is a bag of rows.
        for _ in range(2 if tx.random.random() < 0.1 else 1):
            tx.insert_row("item", line)


def cancel_order(tx: SqliteTransaction) -> None:
    if found := tx.pick_row("orders"):
        tx.delete_row("orders", *found)
        for item in tx.find_rows("item", "order_id = ?", found[0]):
            tx.delete_row("item", *item)


def hand_over_order(tx: SqliteTransaction) -> None:
    if found := tx.pick_row("orders"):
        tx.update_row("orders", *found, customer_id=tx.some_customer())


def change_quantity(tx: SqliteTransaction) -> None:
    if found := tx.pick_row("item"):
        tx.update_row("item", *found, quantity=tx.random.randint(1, 9))


def swap_product(tx: SqliteTransaction) -> None:
    if found := tx.pick_row("item"):
        tx.update_row("item", *found, product_id=tx.some_product())


def import_orders(tx: SqliteTransaction) -> None:
    for _ in range(tx.sizes["import"]):
        place_order(tx)


def change_price(tx: SqliteTransaction) -> None:
    if found := tx.pick_row("product"):
        tx.update_row("product", *found, price_cents=random_price(tx.random))


def replace_product(tx: SqliteTransaction) -> None:
    """Under another product's sku: REPLACE then deletes up to two rows."""
    number, sku = tx.some_product(), f"sku-{tx.some_product()}"
    row = [number, sku, product_title(tx.random), random_price(tx.random)]
    tx.replace_row("product", row, "id = ? OR sku = ?", number, sku)


def remove_product(tx: SqliteTransaction) -> None:
    if found := tx.pick_row("product"):
        tx.delete_row("product", *found)


def revise_prices(tx: SqliteTransaction) -> None:
    """A dearer range of products: one statement per row, one transaction."""
    first = tx.some_product()
    for rowid, row in tx.find_rows("product", "id >= ? ORDER BY id LIMIT 40", first):
        tx.update_row("product", rowid, row, price_cents=row[3] + 5)


CRM: dict[Activity, int] = {
    move_customer: 5,
    rename_customer: 4,
    add_customer: 3,
    replace_customer: 3,
    remove_customer: 1,
}
DESK: dict[Activity, int] = {
    place_order: 5,
    change_quantity: 4,
    cancel_order: 3,
    hand_over_order: 3,
    swap_product: 3,
}
CATALOGUE: dict[Activity, int] = {change_price: 6, replace_product: 3, remove_product: 1}
IMPORT: dict[Activity, int] = {change_quantity: 1, swap_product: 1}

ROLES: dict[str, WriterRole[SqliteTransaction]] = {
    "crm": WriterRole("crm", 20, CRM),
    "desk": WriterRole("shop", 50, DESK),
    "import": WriterRole("shop", 10, IMPORT, import_orders, 4.0),
    "catalogue": WriterRole("catalogue", 8, CATALOGUE, revise_prices, 3.0),
}


class SqliteSession:
    """One connection to a database file."""

    def __init__(self, start: WriterStart) -> None:
        self._start = start
        self._connection = sqlite3.connect(start.target, timeout=BUSY_SECONDS, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def run_transaction(self, activity: Activity, keep: bool) -> tuple[int, list[Change]] | None:
        tx = SqliteTransaction(self._connection, self._start.random, self._start.sizes)
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            activity(tx)
            number = self._connection.execute("INSERT INTO ledger VALUES (NULL)").lastrowid
            self._connection.execute("COMMIT" if keep else "ROLLBACK")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        return (number or 0, tx.changes) if keep else None

    def close(self) -> None:
        self._connection.close()


if __name__ == "__main__":
    run_writer(ROLES, SqliteSession)
