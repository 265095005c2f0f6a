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
from viewkeeper.demo.writers.paced_writer import Change, Role, Start, run

BUSY_SECONDS = 30.0

FIRST = "Ada Alan Barbara Edgar Edsger Frances Grace Jim Joan Katherine Leslie Margaret Niklaus"
LAST = "Bachman Codd Dijkstra Gray Hopper Lamport Liskov Lovelace Perlman Turing Wing Wirth Yao"
CITIES = "Aarhus Bergen Cork Delft Espoo Faro Ghent Haifa Izmir Jena Kyoto Lyon Malmo Nantes Oslo"
THINGS = "Anvil Bell Compass Drum Easel Flute Globe Hammer Inkwell Jar Kettle Lantern Mirror Needle"
KINDS = "black blue brass copper green oak red silver small steel tall white"


def person(random: Random) -> str:
    return f"{random.choice(FIRST.split())} {random.choice(LAST.split())}"


def city(random: Random) -> str:
    return random.choice(CITIES.split())


def thing(random: Random) -> str:
    return f"{random.choice(KINDS.split())} {random.choice(THINGS.split())}".capitalize()


def price(random: Random) -> int:
    return random.randrange(100, 20_000, 5)


def day(random: Random) -> str:
    return f"2026-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"


class Transaction(paced_writer.Choosing):
    """Statements of one transaction, and what they did to which rows."""

    def __init__(self, connection: sqlite3.Connection, random: Random, sizes: Mapping[str, int]):
        super().__init__(random, sizes)
        self.changes: list[Change] = []
        self._connection = connection

    def find(self, table: str, where: str, *values: object) -> list[tuple[int, list[Any]]]:
        """Rows with their rowid."""
        found = self._connection.execute(f"SELECT rowid, * FROM {table} WHERE {where}", values)
        return [(rowid, list(row)) for rowid, *row in found]

    def pick(self, table: str) -> tuple[int, list[Any]] | None:
        """Some row, if there is one."""
        query = f"SELECT coalesce(max(rowid), 0) FROM {table}"
        (newest,) = self._connection.execute(query).fetchone()
        found = self.find(table, "rowid >= ? LIMIT 1", self.random.randint(1, max(1, newest)))
        return found[0] if found else None

    def insert(self, table: str, row: list[Any], verb: str = "INSERT") -> int:
        """Insert a row; a first column that is None is the key that SQLite chooses."""
        marks = ", ".join("?" * len(row))
        cursor = self._connection.execute(f"{verb} INTO {table} VALUES ({marks})", row)
        rowid = cursor.lastrowid or 0
        self.changes.append((table, 1, [rowid, *row[1:]] if row[0] is None else row))
        return rowid

    def delete(self, table: str, rowid: int, row: list[Any]) -> None:
        self._connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))
        self.changes.append((table, -1, row))

    def update(self, table: str, rowid: int, row: list[Any], **values: object) -> None:
        cursor = self._connection.execute(f"SELECT * FROM {table} LIMIT 0")
        names = [column[0] for column in cursor.description]
        new = [values.get(name, old) for name, old in zip(names, row, strict=True)]
        fields = ", ".join(f"{name} = ?" for name in values)
        self._connection.execute(
            f"UPDATE {table} SET {fields} WHERE rowid = ?", (*values.values(), rowid)
        )
        self.changes += [(table, -1, row), (table, 1, new)]

    def replace(self, table: str, row: list[Any], collides: str, *values: object) -> None:
        """INSERT OR REPLACE, which silently deletes all rows that `collides` finds."""
        self.changes += [(table, -1, old) for _, old in self.find(table, collides, *values)]
        self.insert(table, row, "INSERT OR REPLACE")


Activity: TypeAlias = paced_writer.Activity[Transaction]


def add_customer(tx: Transaction) -> None:
    tx.insert("customer", [None, person(tx.random), city(tx.random)])


def move_customer(tx: Transaction) -> None:
    if found := tx.pick("customer"):
        tx.update("customer", *found, city=city(tx.random))


def rename_customer(tx: Transaction) -> None:
    if found := tx.pick("customer"):
        tx.update("customer", *found, name=person(tx.random))


def remove_customer(tx: Transaction) -> None:
    if found := tx.pick("customer"):
        tx.delete("customer", *found)


def replace_customer(tx: Transaction) -> None:
    number = tx.some_customer()
    tx.replace("customer", [number, person(tx.random), city(tx.random)], "id = ?", number)


def place_order(tx: Transaction) -> None:
    order = tx.insert("orders", [None, tx.some_customer(), day(tx.random)])
    for _ in range(tx.random.randint(1, 5)):
        line = [order, tx.some_product(), tx.random.randint(1, 9)]
        # The same line twice is nothing special: a table is a bag of rows.
        for _ in range(2 if tx.random.random() < 0.1 else 1):
            tx.insert("item", line)


def cancel_order(tx: Transaction) -> None:
    if found := tx.pick("orders"):
        tx.delete("orders", *found)
        for item in tx.find("item", "order_id = ?", found[0]):
            tx.delete("item", *item)


def hand_over_order(tx: Transaction) -> None:
    if found := tx.pick("orders"):
        tx.update("orders", *found, customer_id=tx.some_customer())


def change_quantity(tx: Transaction) -> None:
    if found := tx.pick("item"):
        tx.update("item", *found, quantity=tx.random.randint(1, 9))


def swap_product(tx: Transaction) -> None:
    if found := tx.pick("item"):
        tx.update("item", *found, product_id=tx.some_product())


def import_orders(tx: Transaction) -> None:
    for _ in range(tx.sizes["import"]):
        place_order(tx)


def change_price(tx: Transaction) -> None:
    if found := tx.pick("product"):
        tx.update("product", *found, price_cents=price(tx.random))


def replace_product(tx: Transaction) -> None:
    """Under another product's sku: REPLACE then deletes up to two rows."""
    number, sku = tx.some_product(), f"sku-{tx.some_product()}"
    row = [number, sku, thing(tx.random), price(tx.random)]
    tx.replace("product", row, "id = ? OR sku = ?", number, sku)


def remove_product(tx: Transaction) -> None:
    if found := tx.pick("product"):
        tx.delete("product", *found)


def revise_prices(tx: Transaction) -> None:
    """A dearer range of products: one statement per row, one transaction."""
    first = tx.some_product()
    for rowid, row in tx.find("product", "id >= ? ORDER BY id LIMIT 40", first):
        tx.update("product", rowid, row, price_cents=row[3] + 5)


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

ROLES: dict[str, Role[Transaction]] = {
    "crm": Role("crm", 20, CRM),
    "desk": Role("shop", 50, DESK),
    "import": Role("shop", 10, IMPORT, import_orders, 4.0),
    "catalogue": Role("catalogue", 8, CATALOGUE, revise_prices, 3.0),
}


class SqliteSession:
    """One connection to a database file."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._connection = sqlite3.connect(start.target, timeout=BUSY_SECONDS, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def transact(self, activity: Activity, keep: bool) -> tuple[int, list[Change]] | None:
        tx = Transaction(self._connection, self._start.random, self._start.sizes)
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
    run(ROLES, SqliteSession)
