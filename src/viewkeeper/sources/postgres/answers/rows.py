"""Rows of PostgreSQL as Arrow: from the text of an answer, from ADBC, and from the spool.

All three end in the same types. A value that does not fit names its table and column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from psycopg import pq

from viewkeeper.errors import ConversionError
from viewkeeper.sources.postgres.schema import PostgresTable
from viewkeeper.sources.postgres.types import (
    Array,
    PostgresKind,
    convert_native,
    convert_text,
    quote_name,
)
from viewkeeper.sources.tables.column_type import MisfitError
from viewkeeper.sources.tables.row_layout import batch_without_columns, change_schema_of
from viewkeeper.updates.source_protocol import COUNT, POSITION


@dataclass(frozen=True, slots=True)
class PostgresLayout:
    """The asked columns of a table, in order, and how each is kept."""

    source: str
    table: str
    names: tuple[str, ...]
    kinds: tuple[PostgresKind, ...]
    sql: tuple[str, ...] = ()
    """What the columns are called in a query now."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(n, k.arrow) for n, k in zip(self.names, self.kinds, strict=True)])

    @property
    def change_schema(self) -> pa.Schema:
        return change_schema_of(self.schema)

    def select_list(self, native: bool) -> str:
        """The select list; `native` is for ADBC, which does not read every type itself."""
        columns = [f"r.{name}" for name in self.sql]
        if native:
            kinds = zip(columns, self.kinds, self.names, strict=True)
            columns = [f"{kind.select.format(c)} AS {quote_name(name)}" for c, kind, name in kinds]
        return ", ".join(columns) or "1"

    def from_result(self, result: pq.abc.PGresult) -> pa.Table:
        """The rows of an answer in text format."""
        rows, get = range(result.ntuples), result.get_value
        texts = [[get(row, number) for row in rows] for number in range(len(self.names))]
        arrays = [
            self._convert_column(n, pa.array(t, pa.binary()), convert_text)
            for n, t in enumerate(texts)
        ]
        if not arrays:
            return pa.Table.from_batches([batch_without_columns(len(rows))])
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def changes_from_result(self, result: pq.abc.PGresult) -> pa.Table:
        """Changes in text format: the columns, then count and position."""
        width = len(self.names)
        rows, get = range(result.ntuples), result.get_value
        texts = [pa.array([get(r, n) for r in rows], pa.binary()) for n in range(width + 2)]
        arrays = [
            self._convert_column(n, each, convert_text) for n, each in enumerate(texts[:width])
        ]
        arrays += [each.cast(pa.string()).cast(pa.int64()) for each in texts[width:]]
        return pa.Table.from_arrays(arrays, schema=self.change_schema)

    def from_native(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """The batches of an answer of ADBC."""
        for batch in reader:
            arrays = [
                self._convert_column(number, batch.column(number), convert_native)
                for number in range(len(self.names))
            ]
            if arrays:
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            else:
                yield batch_without_columns(batch.num_rows)

    def from_spool(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Changes with the asked columns typed."""
        arrays = [
            self._convert_column(number, batch.column(name), convert_text)
            for number, name in enumerate(self.names)
        ]
        arrays += [batch.column(COUNT), batch.column(POSITION)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.change_schema)

    def _convert_column(
        self, number: int, values: Any, how: Callable[[Array, PostgresKind], Array]
    ) -> Array:
        try:
            return how(values, self.kinds[number])
        except MisfitError as error:
            raise ConversionError(
                self.source,
                f'table "{self.table}", column "{self.names[number]}": {error}',
                hint="correct the value, or leave the column out of the views",
            ) from None


def layout_of(source: str, table: PostgresTable, columns: Sequence[str]) -> PostgresLayout:
    """How these columns are read; a SchemaError for one that cannot be kept."""
    kinds = tuple(table.kind_of_column(source, column) for column in columns)
    sql = tuple(table.column_named(source, column).sql for column in columns)
    return PostgresLayout(source, table.asked, tuple(columns), kinds, sql)
