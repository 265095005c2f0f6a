"""What the demo's writers do in SQL, in the dialect of their database.

A dialect says how a row is found again and locked, and what customers and orders look like there.
The journal has what the database says that it has stored; values that JSON has no type for are
noted as text.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from viewkeeper.demo.writers import paced_writer
from viewkeeper.demo.writers.paced_writer import Change, ForeignNumbers

Found: TypeAlias = tuple[Any, list[Any]]
"""What a row is found by again, and the row."""


@dataclass(frozen=True, slots=True)
class SqlDialect:
    """How a database is written to.

    `handle` reads what a row is found by again, `is_row` compares it; `mark` stands for a value,
    `unset` for a key that the database chooses. `lock` waits for rows that others have locked,
    `skip` passes over them. `row_key` is the key that rows of all tables have, if they have one.
    """

    mark: str
    handle: str
    is_row: str
    unset: str
    person: Callable[[Random], str]
    city: Callable[[Random], str | None]
    moment: Callable[[Random], object]
    lock: str = ""
    skip: str = ""
    row_key: str = ""
    birthday: Callable[[Random], object] | None = None

    def new_customer(self, number: int | None, random: Random) -> list[Any]:
        """The row of a customer; without a number, the database chooses it."""
        row = [number, self.person(random), self.city(random)]
        return [*row, self.birthday(random)] if self.birthday else row


class SqlTransaction:
    """Statements of one transaction, and what they did to which rows."""

    def __init__(self, cursor: Any, dialect: SqlDialect, numbers: ForeignNumbers) -> None:
        self.dialect = dialect
        self.numbers = numbers
        self.random = numbers.random
        self.changes: list[Change] = []
        self._cursor = cursor

    def find_rows(self, table: str, where: str, *values: object) -> list[Found]:
        """Rows with what they are found by; `?` in the condition stands for a value."""
        where = where.replace("?", self.dialect.mark)
        query = f"SELECT {self.dialect.handle}, t.* FROM {table} t WHERE {where}"
        self._cursor.execute(query, values)
        return [(found, list(row)) for found, *row in self._cursor.fetchall()]

    def pick_row(self, table: str, key: str = "id") -> Found | None:
        """Some row that nobody else has locked, if there is one."""
        key = self.dialect.row_key or key
        self._cursor.execute(f"SELECT coalesce(max({key}), 0) FROM {table}")
        (newest,) = self._cursor.fetchone()
        where = f"{key} >= ? ORDER BY {key} LIMIT 1{self.dialect.skip}"
        found = self.find_rows(table, where, self.random.randint(1, max(1, newest)))
        return found[0] if found else None

    def insert_row(self, table: str, row: list[Any], verb: str = "INSERT") -> int:
        """Insert a row; a first column that is None is the key that the database chooses."""
        values = row[1:] if row[0] is None else row
        marks = [self.dialect.unset] * (row[0] is None) + [self.dialect.mark] * len(values)
        self._cursor.execute(f"{verb} INTO {table} VALUES ({', '.join(marks)}) RETURNING *", values)
        (stored,) = self._cursor.fetchall()
        self._note_change(table, 1, stored)
        return int(stored[0])

    def delete_row(self, table: str, handle: object, row: list[Any]) -> None:
        self._cursor.execute(f"DELETE FROM {table} WHERE {self.dialect.is_row}", (handle,))
        assert self._cursor.rowcount == 1, f"{table}: a locked row has gone"
        self._note_change(table, -1, row)

    def update_row(self, table: str, handle: object, row: list[Any], **values: object) -> None:
        self._cursor.execute(f"SELECT * FROM {table} LIMIT 0")
        names = [column[0] for column in self._cursor.description]
        new = [values.get(name, old) for name, old in zip(names, row, strict=True)]
        fields = ", ".join(f"{name} = {self.dialect.mark}" for name in values)
        where = (*values.values(), handle)
        self._cursor.execute(f"UPDATE {table} SET {fields} WHERE {self.dialect.is_row}", where)
        self._note_change(table, -1, row)
        self._note_change(table, 1, new)

    def replace_row(self, table: str, row: list[Any], collides: str, *values: object) -> None:
        """REPLACE, which silently deletes all rows that `collides` finds."""
        for _, old in self.find_rows(table, collides, *values):
            self._note_change(table, -1, old)
        self.insert_row(table, row, "REPLACE")

    def undo_activity(self, activity: Activity) -> None:
        """Do something and take it back, within the transaction."""
        before = len(self.changes)
        self._cursor.execute("SAVEPOINT maybe")
        activity(self)
        self._cursor.execute("ROLLBACK TO SAVEPOINT maybe")
        del self.changes[before:]

    def _note_change(self, table: str, sign: int, row: list[Any]) -> None:
        self.changes.append((table, sign, [plain_value(value) for value in row]))


Activity: TypeAlias = paced_writer.Activity[SqlTransaction]


def plain_value(value: Any) -> Any:
    """A value as numbers and text; times are in UTC, with six digits.

    >>> plain_value(datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC))
    '2026-01-02 03:04:05.000000'
    """
    match value:
        case datetime.datetime(tzinfo=None):
            return value.isoformat(" ", "microseconds")
        case datetime.datetime():
            return plain_value(value.astimezone(datetime.UTC).replace(tzinfo=None))
        case datetime.date() | decimal.Decimal():
            return str(value)
        case _:
            return value


def add_customer(tx: SqlTransaction) -> None:
    tx.insert_row("customer", tx.dialect.new_customer(None, tx.random))


def move_customer(tx: SqlTransaction) -> None:
    if found := tx.pick_row("customer"):
        tx.update_row("customer", *found, city=tx.dialect.city(tx.random))


def remove_customer(tx: SqlTransaction) -> None:
    if found := tx.pick_row("customer"):
        tx.delete_row("customer", *found)


def place_order(tx: SqlTransaction) -> None:
    moment = tx.dialect.moment(tx.random)
    order = tx.insert_row("orders", [None, tx.numbers.some_customer(), moment])
    for _ in range(tx.random.randint(1, 5)):
        line = [order, tx.numbers.some_product(), tx.random.randint(1, 9)]
        # The same line twice is nothing special: a table is a bag of rows.
        for _ in range(2 if tx.random.random() < 0.1 else 1):
            tx.insert_row("item", line)


def cancel_order(tx: SqlTransaction) -> None:
    if found := tx.pick_row("orders"):
        tx.delete_row("orders", *found)
        for item in tx.find_rows("item", f"order_id = ?{tx.dialect.lock}", found[1][0]):
            tx.delete_row("item", *item)


def change_quantity(tx: SqlTransaction) -> None:
    if found := tx.pick_row("item", "order_id"):
        tx.update_row("item", *found, quantity=tx.random.randint(1, 9))


def swap_product(tx: SqlTransaction) -> None:
    if found := tx.pick_row("item", "order_id"):
        tx.update_row("item", *found, product_id=tx.numbers.some_product())


def import_orders(tx: SqlTransaction) -> None:
    for _ in range(tx.numbers.sizes["import"]):
        place_order(tx)
