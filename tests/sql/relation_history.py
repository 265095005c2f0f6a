"""Four small relations in two SQLite databases, and what has ever been in them.

`orders` and `tickets` have keys and columns of every type, `customers` is a dimension whose key is
what others join on, and `visits` has no key, so that rows are there several times.

Every transaction has a number of its own, which it also writes into the `ledger` table of its
database: a view over that table tells later which ts it got. Nothing here is read back from the
databases: rows, with the numbers of the transactions that brought and took them, are kept beside
what is written.
"""

from __future__ import annotations

import datetime
import decimal
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table of a source: how SQLite declares its columns, and what they are in Arrow.

    `key` says that the first column is the key.
    """

    source: str
    name: str
    columns: Mapping[str, tuple[str, pa.DataType]]
    key: bool

    @property
    def relation(self) -> str:
        return f"{self.source}.{self.name}"

    @property
    def statement(self) -> str:
        parts = [f"{name} {declared}" for name, (declared, _) in self.columns.items()]
        return f"CREATE TABLE {self.name} ({', '.join(parts)})"


INTEGER, TEXT, DATE = ("INTEGER", pa.int64()), ("TEXT", pa.string()), ("DATE", pa.date32())
KEY = ("INTEGER PRIMARY KEY", pa.int64())
DOUBLE = ("DOUBLE", pa.float64())
MOMENT = ("DATETIME", pa.timestamp("us"))


def decimal_column(precision: int, scale: int) -> tuple[str, pa.DataType]:
    return f"DECIMAL({precision},{scale})", pa.decimal128(precision, scale)


TABLES = (
    TableShape(
        "shop",
        "orders",
        {
            "id": KEY,
            "customer": INTEGER,
            "kind": INTEGER,
            "weight": DOUBLE,
            "note": TEXT,
            "day": DATE,
            "price": decimal_column(10, 2),
        },
        True,
    ),
    TableShape("shop", "visits", {"customer": INTEGER, "level": INTEGER}, False),
    TableShape(
        "crm",
        "tickets",
        {
            "id": KEY,
            "customer": INTEGER,
            "kind": INTEGER,
            "level": INTEGER,
            "note": TEXT,
            "day": DATE,
            "cost": decimal_column(8, 3),
        },
        True,
    ),
    TableShape("crm", "customers", {"customer": KEY, "name": TEXT, "rank": INTEGER}, True),
)
SHAPES = {shape.relation: shape for shape in TABLES}
SOURCES = ("shop", "crm")


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row of a relation that comes, goes, or becomes another; `row` is its SQLite rowid.

    A row with a key has that as its rowid. One that comes without a `values` goes.
    """

    relation: str
    row: int
    values: Row | None
    is_new: bool = False


Transaction = tuple[RowChange, ...]
"""Changes of relations of one source, committed together."""

Step = Transaction | datetime.timedelta
"""A transaction, or a move of the clock."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A row, and the numbers of the transactions that brought it and took it away again."""

    relation: str
    values: Row
    born: int
    died: int | None


class RelationHistory:
    """The databases of one case, written transaction by transaction."""

    def __init__(self, folder: Path, tables: Sequence[TableShape] = TABLES) -> None:
        self._folder = folder
        self._shapes = {shape.relation: shape for shape in tables}
        self._here: dict[tuple[str, int], tuple[Row, int]] = {}
        self._gone: list[Lifetime] = []
        self.touched: list[frozenset[str]] = []
        """The relations that every transaction changes, by its number."""
        for source in SOURCES:
            with closing(sqlite3.connect(folder / f"{source}.db")) as database:
                database.execute("PRAGMA journal_mode = wal")
                for shape in tables:
                    if shape.source == source:
                        database.execute(shape.statement)
                database.execute("CREATE TABLE ledger (n INTEGER PRIMARY KEY)")
                database.commit()

    def apply_transaction(self, changes: Transaction) -> None:
        """Commit changes; one of a row that is not there any more, or is already, is left out."""
        source = self._shapes[changes[0].relation].source
        number = len(self.touched)
        path = self._folder / f"{source}.db"
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO ledger VALUES (?)", (number,))
            for change in changes:
                assert self._shapes[change.relation].source == source, "one transaction, one source"
                self._apply_change(database, change, number)
            database.execute("COMMIT")
        self.touched.append(frozenset(change.relation for change in changes))

    def _apply_change(self, database: sqlite3.Connection, change: RowChange, number: int) -> None:
        shape, place = self._shapes[change.relation], (change.relation, change.row)
        target = change.row
        if change.values is not None and shape.key:
            target = change.values[0]
        new_place = (change.relation, target)
        clash = new_place in self._here and (change.is_new or new_place != place)
        if clash or (not change.is_new and place not in self._here):
            return
        if change.is_new:
            _insert_row(database, shape, target, change)
        elif change.values is None:
            database.execute(f"DELETE FROM {shape.name} WHERE rowid = ?", (change.row,))
        else:
            _update_row(database, shape, change.row, change.values)
        if not change.is_new:
            self._end_lifetime(place, number)
        if change.values is not None:
            self._here[new_place] = (change.values, number)

    def _end_lifetime(self, place: tuple[str, int], number: int) -> None:
        values, born = self._here.pop(place)
        if born < number:
            self._gone.append(Lifetime(place[0], values, born, number))

    def lifetimes(self) -> list[Lifetime]:
        """Everything that was ever committed."""
        here = [
            Lifetime(relation, values, born, None)
            for (relation, _), (values, born) in self._here.items()
        ]
        return self._gone + here

    def as_tables(self, stamps: Sequence[int]) -> dict[str, pa.Table]:
        """Every relation with all rows that were ever in it, from `_from` on and before `_until`.

        `stamps` are the ts of the transactions, by their numbers.
        """
        found: dict[str, list[tuple[Any, ...]]] = {relation: [] for relation in self._shapes}
        for each in self.lifetimes():
            until = LAST if each.died is None else stamps[each.died]
            if stamps[each.born] < until:
                found[each.relation].append((*each.values, stamps[each.born], until))
        return {name: _arrow_table(self._shapes[name], rows) for name, rows in found.items()}


LAST = 2**40
"""A ts after all others."""


def _insert_row(
    database: sqlite3.Connection, shape: TableShape, row: int, change: RowChange
) -> None:
    assert change.values is not None
    names, values = list(shape.columns), [*map(_as_stored, change.values)]
    if not shape.key:
        names, values = ["rowid", *names], [row, *values]
    marks = ", ".join("?" * len(names))
    database.execute(f"INSERT INTO {shape.name} ({', '.join(names)}) VALUES ({marks})", values)


def _update_row(database: sqlite3.Connection, shape: TableShape, row: int, values: Row) -> None:
    parts = ", ".join(f"{name} = ?" for name in shape.columns)
    stored = [*map(_as_stored, values), row]
    database.execute(f"UPDATE {shape.name} SET {parts} WHERE rowid = ?", stored)


def _as_stored(value: Any) -> Any:
    match value:
        case decimal.Decimal():
            return float(value)
        case datetime.datetime():
            return value.isoformat(" ")
        case datetime.date():
            return value.isoformat()
    return value


def _arrow_table(shape: TableShape, rows: Sequence[Row]) -> pa.Table:
    types = [kind for _, kind in shape.columns.values()]
    names = [*shape.columns, "_from", "_until"]
    columns = [
        pa.array([row[number] for row in rows], kind)
        for number, kind in enumerate([*types, pa.int64(), pa.int64()])
    ]
    return pa.table(columns, names=names)


def empty_tables(tables: Sequence[TableShape] = TABLES) -> dict[str, pa.Table]:
    """The relations before anything was in them."""
    return {shape.relation: _arrow_table(shape, []) for shape in tables}
