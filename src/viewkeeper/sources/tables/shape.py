"""The shape of a table at one moment: what it is called, its columns by identity, its key.

A column has two coordinates. Its *place* is what the database tells it from others by: a number, or
a name in files. Its *identity* is one life at that place: where a database has lasting numbers, the
place and the identity are the same; where it has names only, another column may come to the same
place later, and the identity says since when (`shape_history`). A column that cannot be kept has no
type, and where lives are counted it has no identity either.

Changes have the columns that were asked for and behind them their count and position. Rows of which
no column was asked for must still be counted, and Arrow only lets a selection do that.

A table that is kept in files has no index. A lookup skips files and row groups by their statistics
and reads the others; statistics say nothing of NaN, so floating-point columns are not compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from viewkeeper.sources.tables.column_type import ColumnRefusal, TableColumns
from viewkeeper.updates.source_protocol import COUNT, POSITION, CurrentNames, TableDescription
from viewkeeper.view.definition import Field

TableFate = Literal["", "dropped", "replaced"]

REFUSED_TYPE = "one that cannot be kept"
"""What a change of type says of a type that is refused."""


@dataclass(frozen=True, slots=True)
class ShapeColumn:
    """A column of a shape.

    `declared` is its type as the database spells it. `filled` says that rows from before it was
    added have a value in it that no change lists. `rewrites` counts how often its values became
    others without being listed. `digits` are those that an integer has at most, if it is known.
    """

    place: str
    identity: str
    name: str
    type: pa.DataType | None
    declared: str
    filled: bool = False
    rewrites: int = 0
    digits: int | None = None


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table; `key` has the places of the columns of its key.

    One that is not there any more was dropped, or replaced by another table of its name. Places
    that are `lost` had no column for a time since the shape before, whatever is there now.
    """

    identity: str
    name: str
    columns: tuple[ShapeColumn, ...]
    key: tuple[str, ...] = ()
    fate: TableFate = ""
    lost: frozenset[str] = frozenset()

    def column_by_identity(self, identity: str) -> ShapeColumn | None:
        return next((column for column in self.columns if column.identity == identity), None)

    def column_at(self, place: str) -> ShapeColumn | None:
        return next((column for column in self.columns if column.place == place), None)

    def identities_by_name(self) -> dict[str, str]:
        """The identities of the columns that have one, by the names of this shape."""
        return {column.name: column.identity for column in self.columns if column.identity}


def change_columns_of(columns: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The columns of a change batch."""
    return {**columns, COUNT: pa.int64(), POSITION: pa.int64()}


def change_schema_of(schema: pa.Schema) -> pa.Schema:
    """The schema of changes of rows that have a schema."""
    return pa.schema([*schema, (COUNT, pa.int64()), (POSITION, pa.int64())])


def batch_without_columns(rows: int) -> pa.RecordBatch:
    """So many rows of nothing: only a selection still knows how many there are.

    >>> batch_without_columns(3).num_rows
    3
    """
    return pa.record_batch([pa.nulls(rows)], names=["row"]).select([])


def split_columns(types: Mapping[str, pa.DataType | ColumnRefusal]) -> TableColumns:
    """The columns that can be kept, and why the others cannot.

    >>> split_columns({"a": pa.int64(), "b": ColumnRefusal("too wide", "narrow it")}).refused
    {'b': 'too wide; narrow it'}
    """
    kept = {name: kind for name, kind in types.items() if not isinstance(kind, ColumnRefusal)}
    refused = {name: str(kind) for name, kind in types.items() if name not in kept}
    return TableColumns(tuple(Field(*each) for each in kept.items()), refused)


def describe_file_table(
    names: CurrentNames, columns: TableColumns, key: tuple[str, ...] = ()
) -> TableDescription:
    """A table of files, in which nothing but statistics helps to find a row."""
    types = columns.types_by_name()
    comparable = frozenset(n for n, kind in types.items() if not pa.types.is_floating(kind))
    return TableDescription(
        names,
        columns.fields,
        columns.refused,
        key if types.keys() >= set(key) else (),
        comparable=comparable,
    )
