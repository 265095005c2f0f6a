"""Descriptions of tables that several kinds make alike.

A table that is kept in files has no index. A lookup skips files and row groups by their statistics
and reads the others; statistics say nothing of NaN, so floating-point columns are not compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from viewkeeper.sources.tables.column_type import ColumnRefusal, TableColumns
from viewkeeper.updates.source_protocol import CurrentNames, TableDescription
from viewkeeper.view.definition import Field


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
