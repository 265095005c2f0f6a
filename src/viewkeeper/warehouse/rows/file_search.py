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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import chain
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
from viewkeeper.warehouse.rows.row_masks import match_values

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
    pieces = stream_file_columns(folder, view, file, stored, names, where)
    schema = pa.schema([stored.field(name) for name in names])
    batches = chain.from_iterable(piece.to_batches() for piece in pieces)
    return pa.Table.from_batches(batches, schema)


def stream_file_columns(
    folder: StoragePath,
    view: str,
    file: ListedFile,
    stored: pa.Schema,
    names: Sequence[str],
    where: Any = None,
) -> Iterator[pa.Table]:
    """The same in pieces of a row group at most.

    Reading begins now, and goes on by threads of Arrow while the caller works on a piece.
    """
    path = folder / file.path
    check_footer(path, file.size, view)
    with _translate_search_errors(path, view, where):
        fragment = _open_fragment(path, stored)
        batches: Iterable[pa.RecordBatch]
        if fragment is not None:
            batches = _scan_columns(fragment, names, where)
        else:
            older = _read_older(path, stored)
            kept = older if where is None else older.filter(where)
            batches = kept.select(list(names)).to_batches()
    return _check_pieces(batches, path, view, file, names, where)


def _check_pieces(
    batches: Iterable[pa.RecordBatch],
    path: StoragePath,
    view: str,
    file: ListedFile,
    names: Sequence[str],
    where: Any,
) -> Iterator[pa.Table]:
    with _translate_search_errors(path, view, where):
        count = 0
        for batch in batches:
            count += batch.num_rows
            if count > file.rows:
                break
            yield pa.Table.from_batches([batch]).rename_columns(list(names))
        if count > file.rows or (where is None and count < file.rows):
            raise ValueError(f"it has {count} rows; {file.rows} were written")


@contextmanager
def _translate_search_errors(path: StoragePath, view: str, where: Any) -> Iterator[None]:
    """Errors of the file, but of the expression where the file is what was written."""
    try:
        with translate_read_errors(path, view):
            yield
    except CorruptError as error:
        if where is None or not isinstance(error.__cause__, pa.ArrowException):
            raise
        read_whole(path, view)
        raise error.__cause__ from None


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


def _read_columns(fragment: Any, names: Sequence[str]) -> pa.Table:
    """Whole columns."""
    found: pa.Table = fragment.to_table(columns=_columns_of(names))
    return found.rename_columns(list(names))


def _scan_columns(fragment: Any, names: Sequence[str], where: Any) -> Iterator[pa.RecordBatch]:
    """Columns of those rows for which an expression holds; it is read ahead from now on."""
    batches: Iterator[pa.RecordBatch] = fragment.scanner(
        columns=_columns_of(names), filter=where
    ).to_batches()
    return batches


def _columns_of(names: Sequence[str]) -> dict[str, Any]:
    return {f"c{i}": pc.field(name) for i, name in enumerate(names)}


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
    return np.flatnonzero(reduce(np.logical_or, (match_values(seen, each) for each in searches)))
