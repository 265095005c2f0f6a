"""Some columns or some rows of a data file, without reading the rest of it.

A search goes through a file in two steps. First only the columns that are asked about are read, and
only of row groups whose statistics do not rule them out; then the other columns, only of row groups
in which something was found.

A search finds a superset: columns are compared one by one, and floating-point columns, whose
statistics say nothing of NaN, are not compared at all.

What is read in part is compared in part: the file's size and footer with its name, and every page
with its own checksum. Arrow gets columns by expressions, because in lists some names would be
paths. A file may be older than the columns that the view has now. It is then read whole and brought
into them (`fit_columns`) before anything is compared.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
from pyarrow.fs import LocalFileSystem

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import CorruptError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake.data_files import ListedFile, stored_schema
from viewkeeper.warehouse.lake.verified_files import (
    check_footer,
    open_parquet,
    read_whole,
    translate_read_errors,
)

_FORMAT: Any = pyarrow.dataset.ParquetFileFormat(page_checksum_verification=True)
"""Untyped: the stubs do not know that its fragments can be narrowed to some row groups."""

FEW = 50
"""Arrow holds so many values one by one against statistics; of more, we give it the range."""

Search = Mapping[str, Any]
"""Per column an array of values, one of which a row must have; without a column, all rows do."""


def fit_columns(rows: pa.Table, stored: pa.Schema) -> pa.Table:
    """The rows with exactly the columns of `stored`.

    >>> rows = pa.table({"a": [1], "b": ["x"], "_count": [1]})
    >>> now = pa.schema([("a", pa.decimal128(20, 0)), ("c", pa.string()), ("_count", pa.int64())])
    >>> fit_columns(rows, now).to_pylist()
    [{'a': Decimal('1'), 'c': None, '_count': 1}]
    """
    if rows.schema.equals(stored):
        return rows
    there = set(rows.schema.names)
    arrays = [
        rows[field.name].cast(field.type)
        if field.name in there
        else pa.nulls(rows.num_rows, field.type)
        for field in stored
    ]
    return pa.table(arrays, schema=stored)


def search_for(keys: pa.Table) -> Search:
    """The search for rows that have, in these columns, the values of one of these rows."""
    exact = [name for name in keys.column_names if not pa.types.is_floating(keys[name].type)]
    return {name: pc.unique(keys[name]) for name in exact}


def search_file(
    folder: StoragePath, view: str, file: ListedFile, wanted: pa.Schema, searches: Sequence[Search]
) -> Iterator[tuple[Any, pa.Table]]:
    """The rows of a data file that answer a search, with their positions in the file.

    `wanted` are columns that the view's files have now, the view's own ones in any case.
    """
    path = folder / file.path
    check_footer(path, file.size, view)
    with translate_read_errors(path, view):
        fragment = _open_fragment(path, stored_schema(_row_schema(wanted)))
        if fragment is None:
            yield _search_older(path, wanted, searches)
            return
        possible = reduce(operator.or_, map(_possible_groups, searches))
        sizes = [group.num_rows for group in fragment.row_groups]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        for group in fragment.subset(filter=possible).row_groups:
            narrowed = fragment.subset(row_group_ids=[group.id])
            positions, rows = _search_group(narrowed, wanted, searches)
            yield positions + starts[group.id], rows


def search_rows(rows: pa.Table, searches: Sequence[Search]) -> pa.Table:
    """Those of some rows that answer a search."""
    return rows.take(pa.array(_answering_rows(rows, searches)))


def read_file_columns(
    folder: StoragePath,
    view: str,
    file: ListedFile,
    stored: pa.Schema,
    names: Sequence[str],
    where: Any = None,
) -> pa.Table:
    """Columns of a data file, of the rows for which an expression holds, if one is given.

    `stored` are the columns that the view's files have now. An expression that has no value for
    some row is Arrow's error, unless the file is damaged.
    """
    path = folder / file.path
    check_footer(path, file.size, view)
    try:
        return _read_filtered(path, view, file, stored, names, where)
    except CorruptError as error:
        if where is None or not isinstance(error.__cause__, pa.ArrowException):
            raise
        read_whole(path, view)
        raise error.__cause__ from None


def _read_filtered(
    path: StoragePath,
    view: str,
    file: ListedFile,
    stored: pa.Schema,
    names: Sequence[str],
    where: Any,
) -> pa.Table:
    with translate_read_errors(path, view):
        fragment = _open_fragment(path, stored)
        if fragment is None:
            older = _read_older(path, stored)
            return (older if where is None else older.filter(where)).select(list(names))
        rows = _read_columns(fragment, names, where)
        if where is None and rows.num_rows != file.rows:
            raise ValueError(f"it has {rows.num_rows} rows; {file.rows} were written")
        return rows


def has_columns(folder: StoragePath, view: str, file: ListedFile, stored: pa.Schema) -> bool:
    """Whether a data file was written for the columns `stored`."""
    path = folder / file.path
    check_footer(path, file.size, view)
    with translate_read_errors(path, view):
        return _open_fragment(path, stored) is not None


def _open_fragment(path: StoragePath, stored: pa.Schema) -> Any:
    """A file as Arrow's fragment; None if it was written for other columns than these."""
    source = storage_of(path).parquet_source(path)
    system = LocalFileSystem() if isinstance(source, str) else None
    fragment = _FORMAT.make_fragment(source, system)
    return fragment if fragment.physical_schema.remove_metadata().equals(stored) else None


def _read_older(path: StoragePath, wanted: pa.Schema) -> pa.Table:
    with open_parquet(path) as file:
        return fit_columns(file.read(), wanted)


def _row_schema(schema: pa.Schema) -> pa.Schema:
    """A schema without what is stored beside rows."""
    return pa.schema([field for field in schema if field.name not in (COUNT, TS)])


def _search_older(
    path: StoragePath, wanted: pa.Schema, searches: Sequence[Search]
) -> tuple[Any, pa.Table]:
    rows = _read_older(path, wanted)
    found = _answering_rows(rows, searches)
    return found, rows.take(pa.array(found))


def _search_group(
    fragment: Any, wanted: pa.Schema, searches: Sequence[Search]
) -> tuple[Any, pa.Table]:
    asked = [name for name in wanted.names if any(name in search for search in searches)]
    seen = _read_columns(fragment, asked)
    rows = _answering_rows(seen, searches)
    if not len(rows):
        return rows, wanted.empty_table()
    rest = [name for name in wanted.names if name not in asked]
    others = _read_columns(fragment, rest)
    arrays = {n: found[n].take(rows) for found in (seen, others) for n in found.column_names}
    return rows, pa.table([arrays[name] for name in wanted.names], schema=wanted)


def _read_columns(fragment: Any, names: Sequence[str], where: Any = None) -> pa.Table:
    """Whole columns, of those rows for which an expression holds."""
    columns = {f"c{i}": pc.field(name) for i, name in enumerate(names)}
    found: pa.Table = fragment.to_table(columns=columns, filter=where)
    return found.rename_columns(list(names))


def _possible_groups(search: Search) -> Any:
    """What statistics must allow, as an expression."""
    allowed = [_allowed_values(name, values) for name, values in search.items()]
    return reduce(operator.and_, allowed, pc.scalar(True))


def _allowed_values(name: str, values: Any) -> Any:
    column = pc.field(name)
    if len(values) <= FEW:
        return column.isin(values)
    ends = pc.min_max(values)
    inside = (column >= ends["min"]) & (column <= ends["max"])
    return inside | column.is_null() if values.null_count else inside


def _answering_rows(seen: pa.Table, searches: Sequence[Search]) -> Any:
    """The numbers of the rows that answer some search."""
    return np.flatnonzero(reduce(np.logical_or, (_matching_rows(seen, each) for each in searches)))


def _matching_rows(seen: pa.Table, search: Search) -> Any:
    """Which rows answer a search."""
    masks = [pc.is_in(seen[n], value_set=values).to_numpy() for n, values in search.items()]
    return reduce(np.logical_and, masks, np.ones(seen.num_rows, bool))
