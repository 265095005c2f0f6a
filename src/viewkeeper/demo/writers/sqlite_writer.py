"""The writers of the demo's SQLite databases; `paced_writer` says what a writer is.

They import nothing but the standard library. SQLite lets one transaction write at a time, so the
ledger's own numbering follows the order of the commits.
"""

from __future__ import annotations

import sqlite3
from random import Random

from viewkeeper.demo.writers.paced_writer import (
    Change,
    ForeignNumbers,
    WriterRole,
    WriterStart,
    run_writer,
)
from viewkeeper.demo.writers.sql_writer import (
    Activity,
    SqlDialect,
    SqlTransaction,
    add_customer,
    cancel_order,
    change_quantity,
    import_orders,
    move_customer,
    place_order,
    remove_customer,
    swap_product,
)

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


SQLITE = SqlDialect(
    mark="?",
    handle="rowid",
    is_row="rowid = ?",
    unset="NULL",
    person=ascii_person,
    city=ascii_city,
    moment=day_text,
    row_key="rowid",
)


def rename_customer(tx: SqlTransaction) -> None:
    if found := tx.pick_row("customer"):
        tx.update_row("customer", *found, name=ascii_person(tx.random))


def replace_customer(tx: SqlTransaction) -> None:
    number = tx.numbers.some_customer()
    tx.replace_row("customer", SQLITE.new_customer(number, tx.random), "id = ?", number)


def hand_over_order(tx: SqlTransaction) -> None:
    if found := tx.pick_row("orders"):
        tx.update_row("orders", *found, customer_id=tx.numbers.some_customer())


def change_price(tx: SqlTransaction) -> None:
    if found := tx.pick_row("product"):
        tx.update_row("product", *found, price_cents=random_price(tx.random))


def replace_product(tx: SqlTransaction) -> None:
    """Under another product's sku: REPLACE then deletes up to two rows."""
    number, sku = tx.numbers.some_product(), f"sku-{tx.numbers.some_product()}"
    row = [number, sku, product_title(tx.random), random_price(tx.random)]
    tx.replace_row("product", row, "id = ? OR sku = ?", number, sku)


def remove_product(tx: SqlTransaction) -> None:
    if found := tx.pick_row("product"):
        tx.delete_row("product", *found)


def revise_prices(tx: SqlTransaction) -> None:
    """A dearer range of products: one statement per row, one transaction."""
    first = tx.numbers.some_product()
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

ROLES: dict[str, WriterRole[SqlTransaction]] = {
    "crm": WriterRole("crm", 20, CRM),
    "desk": WriterRole("shop", 50, DESK),
    "import": WriterRole("shop", 10, IMPORT, import_orders, 4.0),
    "catalogue": WriterRole("catalogue", 8, CATALOGUE, revise_prices, 3.0),
}


class SqliteSession:
    """One connection to a database file."""

    def __init__(self, start: WriterStart) -> None:
        self._numbers = ForeignNumbers(start.random, start.sizes)
        self._connection = sqlite3.connect(start.target, timeout=BUSY_SECONDS, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def run_transaction(self, activity: Activity, keep: bool) -> tuple[int, list[Change]] | None:
        tx = SqlTransaction(self._connection.cursor(), SQLITE, self._numbers)
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
