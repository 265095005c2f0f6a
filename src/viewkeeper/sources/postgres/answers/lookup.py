"""How a lookup is put to PostgreSQL: keys as array literals, in conditions that can use an index.

One column is compared by `= ANY(array)`, several by `IN (SELECT ... FROM unnest(arrays))`; both
find every row at most once, also where PostgreSQL's equality is coarser than that of the keys (a
collation that ignores case). Keys that hold NULL in a null-safe column ask for rows that are NULL
there: the keys are split by which of their columns are NULL, and each split is a query of its own,
so that the other columns can still search an index. No row answers two of them.

Arrays work in read-only transactions and under an imported snapshot; temporary tables do not.

Rows from the text of an answer, from ADBC and from the spool end in the same types. A value that
does not fit names its table and column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from psycopg import pq

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import ConversionError
from viewkeeper.sources.postgres.schema import PostgresTable
from viewkeeper.sources.postgres.types import (
    Array,
    PostgresKind,
    array_literal,
    convert_native,
    convert_text,
    quote_literal,
    quote_name,
)
from viewkeeper.sources.tables.column_type import MisfitError
from viewkeeper.sources.tables.shape import batch_without_columns, change_schema_of
from viewkeeper.updates.source_protocol import COUNT, POSITION
from viewkeeper.view.local_condition import LocalCondition

SCAN_SHARE = 0.15
"""Beyond this share of a table's rows, reading all of them is cheaper than finding the keys."""


@dataclass(frozen=True, slots=True)
class PostgresKeyColumn:
    """A column that a lookup compares."""

    name: str
    kind: PostgresKind
    null_safe: bool
    sql: str

    @property
    def compared_sql(self) -> str:
        return self.kind.compared.format(f"r.{self.sql}")


def key_columns(
    source: str, table: PostgresTable, on: Sequence[str], null_safe: Sequence[bool]
) -> tuple[PostgresKeyColumn, ...]:
    return tuple(
        PostgresKeyColumn(
            name, table.kind_of_column(source, name), safe, table.column_named(source, name).sql
        )
        for name, safe in zip(on, null_safe, strict=True)
    )


def key_conditions(columns: Sequence[PostgresKeyColumn], keys: pa.Table) -> Iterator[str]:
    """What the rows `r` must satisfy to match one of the keys; disjoint conditions."""
    for nulls, split in _split_by_nulls(columns, keys):
        missing = [f"r.{c.sql} IS NULL" for c, null in zip(columns, nulls, strict=True) if null]
        compared = [c for c, null in zip(columns, nulls, strict=True) if not null]
        matches = [_match_condition(compared, split)] if compared else []
        if all(matches):
            yield " AND ".join([*missing, *matches])


def _split_by_nulls(
    columns: Sequence[PostgresKeyColumn], keys: pa.Table
) -> Iterator[tuple[tuple[bool, ...], pa.Table]]:
    """The keys by which of their columns are NULL; a NULL that equals nothing is left out."""
    rest = keys
    for column in columns:
        if not column.null_safe:
            rest = rest.filter(pc.is_valid(rest[column.name]))
    patterns = [pc.is_null(rest[column.name]) for column in columns]
    if not any(pc.any(pattern).as_py() for pattern in patterns):
        if rest.num_rows:
            yield (False,) * len(columns), rest
        return
    names = [f"n{number}" for number in range(len(columns))]
    found = pa.table(dict(zip(names, patterns, strict=True))).group_by(names).aggregate([])
    for row in found.to_pylist():
        nulls = tuple(bool(row[name]) for name in names)
        mask: Any = pa.scalar(True)
        for pattern, null in zip(patterns, nulls, strict=True):
            mask = pc.and_(mask, pattern if null else pc.invert(pattern))
        yield nulls, rest.filter(mask)


def _match_condition(columns: Sequence[PostgresKeyColumn], keys: pa.Table) -> str:
    """The condition for keys without NULL; empty if none of them can match."""
    spelled = [
        column.kind.spell(keys[column.name].combine_chunks().cast(column.kind.arrow))
        for column in columns
    ]
    mask: Any = pc.is_valid(spelled[0])
    for values in spelled[1:]:
        mask = pc.and_(mask, pc.is_valid(values))
    arrays = [
        f"{quote_literal(array_literal(values.filter(mask)))}::{column.kind.key}[]"
        for column, values in zip(columns, spelled, strict=True)
    ]
    if not pc.any(mask, min_count=0).as_py():
        return ""
    if len(columns) == 1:
        return f"{columns[0].compared_sql} = ANY({arrays[0]})"
    compared = ", ".join(column.compared_sql for column in columns)
    return f"({compared}) IN (SELECT * FROM unnest({', '.join(arrays)}))"


_ORDERED = ("bigint", "numeric", "date")
_MOMENTS = ("timestamp", "timestamptz")


def filter_conditions(
    source: str, table: PostgresTable, conditions: Sequence[LocalCondition]
) -> list[str]:
    """What of these conditions PostgreSQL decides as the kernel does, or calls true more often."""
    found = []
    for condition in conditions:
        (column,) = key_columns(source, table, [condition.column], [False])
        values = pa.array(condition.values, condition.type)
        if column.kind.arrow != condition.type:
            # The column has another type by now.
            continue
        if condition.operator == "in":
            found.append(_match_condition([column], pa.table({column.name: values})) or "FALSE")
        elif condition.operator == "within" and column.kind.key in (*_ORDERED, *_MOMENTS):
            found.append(_within_condition(column, values))
        elif column.kind.key in _ORDERED:
            (text,) = column.kind.spell(values).to_pylist()
            bound = f"{quote_literal(text)}::{column.kind.key}"
            found.append(f"r.{column.sql} {condition.operator} {bound}")
    return found


def _within_condition(column: PostgresKeyColumn, values: Array) -> str:
    """Whether a column lies in one of some spans, each from one value to the next."""
    spelled = [text.strip('"') for text in column.kind.spell(values).to_pylist()]
    texts = [f"{quote_literal(text)}::{column.kind.key}" for text in spelled]
    spans = zip(texts[::2], texts[1::2], strict=True)
    inside = [f"r.{column.sql} BETWEEN {low} AND {high}" for low, high in spans]
    return f"({' OR '.join(inside)})"


def is_indexed(table: PostgresTable, columns: Sequence[PostgresKeyColumn]) -> bool:
    """Whether an index begins with one of these columns."""
    wanted = {column.name for column in columns if column.kind.is_indexable}
    return any(index.searchable and index.columns[0] in wanted for index in table.indexes)


def is_scan_cheaper(table: PostgresTable, columns: Sequence[PostgresKeyColumn], keys: int) -> bool:
    """Whether so many keys are better answered by the whole table."""
    return table.rows >= 0 and is_indexed(table, columns) and keys > SCAN_SHARE * table.rows > 1000


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
