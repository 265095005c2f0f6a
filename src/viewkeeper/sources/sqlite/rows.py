"""Rows fetched from SQLite as Arrow record batches, with errors that say where a bad value is.

The select lists the columns of `fields` first; whatever comes after them (a sign, a position) is
turned into int64 columns. The last column of all may be there only to name a row in errors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import pyarrow as pa

from viewkeeper.errors import ConversionError, SchemaError, reload_hint
from viewkeeper.sources.sqlite.schema import SqliteTable
from viewkeeper.sources.sqlite.types import (
    Array,
    SqliteKind,
    convert_values,
    kind_of,
)
from viewkeeper.sources.tables.column_type import ColumnRefusal, MisfitError
from viewkeeper.sources.tables.row_layout import batch_without_columns

ROWS_PER_BATCH = 50_000
# Few enough that the rows of a fetch die young: the garbage collector never walks through them.
ROWS_PER_FETCH = 2_000

Columns = Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class SqliteLayout:
    """What a select returns: columns of a table under the asked names, then plain integers."""

    source: str
    table: str
    names: tuple[str, ...]
    kinds: tuple[SqliteKind, ...]
    integers: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        fields = [
            pa.field(name, kind.arrow) for name, kind in zip(self.names, self.kinds, strict=True)
        ]
        return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in self.integers)])

    def read_batches(self, cursor: sqlite3.Cursor) -> Iterator[pa.RecordBatch]:
        while columns := self._next_columns(cursor):
            yield from self._convert_batch(columns)

    def read_all(self, cursor: sqlite3.Cursor) -> pa.Table:
        return pa.Table.from_batches(self.read_batches(cursor), self.schema)

    def _next_columns(self, cursor: sqlite3.Cursor) -> Columns:
        """The next rows, by column; nothing at the end."""
        columns: list[list[object]] = []
        size = 0
        while size < ROWS_PER_BATCH and (rows := self._fetch_rows(cursor)):
            columns = columns or [[] for _ in rows[0]]
            for number, column in enumerate(columns):
                column.extend(map(itemgetter(number), rows))
            size += len(rows)
        return columns

    def _fetch_rows(self, cursor: sqlite3.Cursor) -> list[tuple[object, ...]]:
        try:
            return cursor.fetchmany(ROWS_PER_FETCH)
        except sqlite3.OperationalError as error:
            # Raised by Python, not by SQLite; the message names the column and shows the text.
            if "decode to UTF-8" not in str(error):
                raise
            raise ConversionError(
                self.source,
                f'table "{self.table}": a text is not valid UTF-8',
                detail=str(error)[:200],
                hint="correct the value, or declare the column as BLOB",
            ) from None

    def _convert_batch(self, columns: Columns) -> Iterator[pa.RecordBatch]:
        width = len(self.names)
        arrays = [self._convert_column(number, columns) for number in range(width)]
        if any(isinstance(array, pa.ChunkedArray) for array in arrays):
            # Arrow gives one array at most 2 GB of text: such rows go into smaller batches.
            half = len(columns[0]) // 2
            yield from self._convert_batch([column[:half] for column in columns])
            yield from self._convert_batch([column[half:] for column in columns])
            return
        arrays += [self._convert_integers(columns[width + n], n) for n in range(len(self.integers))]
        if not arrays:
            yield batch_without_columns(len(columns[0]))
            return
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _convert_integers(self, values: Sequence[object], number: int) -> Array:
        """What the log itself has of a change: the sign, which comes first, and the position."""
        odd = [v for v in values if type(v) is not int or (number == 0 and v not in (1, -1))]
        if odd:
            raise ConversionError(
                self.source,
                f'table "{self.table}": the change log holds what no trigger of ours has written',
                detail=f"{self.integers[number]} is {str(odd[0])[:50]!r}",
                hint=reload_hint(),
            )
        return pa.array(values, pa.int64())

    def _convert_column(self, number: int, columns: Columns) -> Array:
        try:
            return convert_values(columns[number], self.kinds[number])
        except MisfitError as error:
            extra = len(self.names) + len(self.integers)
            row = ""
            if len(columns) > extra:
                row = f", row {columns[extra][error.index]}"
            elif self.integers:
                row = f", change {columns[extra - 1][error.index]}"
            raise ConversionError(
                self.source,
                f'table "{self.table}", column "{self.names[number]}"{row}: {error}',
                hint="correct the value, or declare a type that all values of the column have",
            ) from None


def kind_or_refuse(source: str, table: SqliteTable, column: str) -> SqliteKind:
    """How a column of a table is kept; a SchemaError for one that cannot be."""
    found = table.column_named(source, column)
    return kind_of_declared(source, table.name, found.name, found.declared)


def kind_of_declared(source: str, table: str, column: str, declared: str) -> SqliteKind:
    """How a column of a declared type is kept; a SchemaError for one that cannot be."""
    kind = kind_of(declared)
    if isinstance(kind, ColumnRefusal):
        raise SchemaError(
            source,
            f'table "{table}": column "{column}" cannot be kept exactly',
            detail=kind.reason,
            hint=kind.hint,
        )
    return kind
