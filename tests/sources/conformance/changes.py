"""What the suite writes into every kind of database, and the state that it must then have.

A state is a bag of rows per table. Rows are compared as tuples in which a floating-point number is
its text, so that NaN equals NaN and the sign of zero shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, assert_never

import pyarrow as pa

Row: TypeAlias = tuple[Any, ...]
Bag: TypeAlias = Counter[Row]
Word = Literal["int", "text", "decimal", "date", "timestamp", "double", "bytes", "bool"]

ARROW: Mapping[Word, pa.DataType] = {
    "int": pa.int64(),
    "text": pa.string(),
    "decimal": pa.decimal128(15, 2),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "bool": pa.bool_(),
}
"""The types of the suite's own columns, which every kind can keep, and how they must arrive."""


@dataclass(frozen=True, slots=True)
class Insert:
    table: str
    row: Row


@dataclass(frozen=True, slots=True)
class Delete:
    """One row goes; one that is there twice stays once."""

    table: str
    row: Row


@dataclass(frozen=True, slots=True)
class Update:
    table: str
    old: Row
    new: Row


Change: TypeAlias = Insert | Delete | Update


def inserts(table: str, rows: Iterable[Row]) -> list[Change]:
    return [Insert(table, row) for row in rows]


def comparable(row: Iterable[Any]) -> Row:
    return tuple(repr(value) if isinstance(value, float) else value for value in row)


def bag_of(rows: Iterable[Row]) -> Bag:
    return Counter(map(comparable, rows))


def without_zeros(bag: Bag) -> Bag:
    return Counter({row: count for row, count in bag.items() if count})


def minus(one: Bag, other: Bag) -> Bag:
    """The signed difference of two bags."""
    result = Counter(one)
    result.subtract(other)
    return without_zeros(result)


def plus(one: Bag, other: Bag) -> Bag:
    result = Counter(one)
    for row, count in other.items():
        result[row] += count
    return without_zeros(result)


def project(bag: Bag, columns: Sequence[str], chosen: Sequence[str]) -> Bag:
    """The bag of some columns."""
    places = [columns.index(name) for name in chosen]
    result: Bag = Counter()
    for row, count in bag.items():
        result[tuple(row[place] for place in places)] += count
    return result


def applied(state: Mapping[str, Bag], changes: Iterable[Change]) -> dict[str, Bag]:
    """The state after a transaction; it must have held what is deleted."""
    after = {table: Counter(bag) for table, bag in state.items()}
    for change in changes:
        bag = after[change.table]
        match change:
            case Insert(row=row):
                bag[comparable(row)] += 1
            case Delete(row=row):
                bag[comparable(row)] -= 1
            case Update(old=old, new=new):
                bag[comparable(old)] -= 1
                bag[comparable(new)] += 1
            case _:
                assert_never(change)
        assert min(bag.values(), default=0) >= 0, f"{change}: there was no such row"
    return {table: without_zeros(bag) for table, bag in after.items()}
