"""Tables that change their shape: what a transaction can do to them, and what they are after it.

A table and each of its columns have identities; names are just what they are called. An operation
is a value, applied by a pure function to all tables of a source, so that the source, the judge and
the generator of workloads agree on what happened without sharing anything else. Rows are tuples in
the order of the table's columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never

import pyarrow as pa

from viewkeeper.evolution.dyno.table_identity import DynoColumn, DynoShape

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ReshapedTable:
    """A table with its rows."""

    shape: DynoShape
    rows: Mapping[Row, int]


Tables = Mapping[int, ReshapedTable]
"""The tables of a source, by identity."""


@dataclass(frozen=True, slots=True)
class WriteOperation:
    """Rows come and go."""

    table: int
    rows: tuple[tuple[Row, int], ...]


@dataclass(frozen=True, slots=True)
class RenameOperation:
    """The table gets another name; two tables can swap theirs within one transaction."""

    table: int
    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """A column gets another name."""

    table: int
    column: int
    name: str


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A column is added; `value` is what all rows have in it."""

    table: int
    column: DynoColumn
    value: Any = None


@dataclass(frozen=True, slots=True)
class DropColumn:
    """A column is dropped with its values."""

    table: int
    column: int


@dataclass(frozen=True, slots=True)
class RewriteOperation:
    """Every value of a column becomes another one, and perhaps of another type, without a word in
    the stream: it is another column from then on."""

    table: int
    column: int
    now: DynoColumn
    values: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, slots=True)
class WidenOperation:
    """A column gets a type that has room for all of its values."""

    table: int
    column: int
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class DropOperation:
    """A table is dropped with its rows."""

    table: int


@dataclass(frozen=True, slots=True)
class CreateOperation:
    """A table comes, with rows that the stream does not list."""

    table: ReshapedTable


Operation = (
    WriteOperation
    | RenameOperation
    | RenameColumn
    | AddColumn
    | DropColumn
    | RewriteOperation
    | WidenOperation
    | DropOperation
    | CreateOperation
)


def apply_operation(tables: Tables, operation: Operation) -> Tables:
    """The tables of a source after an operation."""
    match operation:
        case CreateOperation():
            return {**tables, operation.table.shape.id: operation.table}
        case DropOperation():
            return {id: table for id, table in tables.items() if id != operation.table}
        case _:
            return {**tables, operation.table: _change_table(tables[operation.table], operation)}


def _change_table(table: ReshapedTable, operation: Operation) -> ReshapedTable:
    shape = table.shape
    match operation:
        case WriteOperation():
            rows = Counter(dict(table.rows))
            for row, count in operation.rows:
                rows[row] += count
            assert min(rows.values(), default=0) >= 0, "only what is there is deleted"
            return ReshapedTable(shape, {row: count for row, count in rows.items() if count})
        case RenameOperation():
            return replace(table, shape=replace(shape, name=operation.name))
        case RenameColumn() | WidenOperation():
            columns = tuple(_alter_column(column, operation) for column in shape.columns)
            return replace(table, shape=replace(shape, columns=columns))
        case AddColumn():
            columns = (*shape.columns, operation.column)
            filled = {(*row, operation.value): count for row, count in table.rows.items()}
            return ReshapedTable(replace(shape, columns=columns), filled)
        case DropColumn():
            return _drop_column(table, operation.column)
        case RewriteOperation():
            return _rewrite_column(table, operation)
        case CreateOperation() | DropOperation():
            raise AssertionError("not within a table")
        case _:
            assert_never(operation)


def _alter_column(column: DynoColumn, operation: RenameColumn | WidenOperation) -> DynoColumn:
    if column.id != operation.column:
        return column
    if isinstance(operation, WidenOperation):
        return replace(column, type=operation.type)
    return replace(column, name=operation.name)


def _column_index(shape: DynoShape, column: int) -> int:
    return next(i for i, each in enumerate(shape.columns) if each.id == column)


def _drop_column(table: ReshapedTable, column: int) -> ReshapedTable:
    at = _column_index(table.shape, column)
    rows: Counter[Row] = Counter()
    for row, count in table.rows.items():
        rows[row[:at] + row[at + 1 :]] += count
    columns = table.shape.columns[:at] + table.shape.columns[at + 1 :]
    return ReshapedTable(replace(table.shape, columns=columns), dict(rows))


def _rewrite_column(table: ReshapedTable, operation: RewriteOperation) -> ReshapedTable:
    at, values = _column_index(table.shape, operation.column), dict(operation.values)
    rows: Counter[Row] = Counter()
    for row, count in table.rows.items():
        rows[(*row[:at], values[row[at]], *row[at + 1 :])] += count
    columns = (*table.shape.columns[:at], operation.now, *table.shape.columns[at + 1 :])
    return ReshapedTable(replace(table.shape, columns=columns), dict(rows))
