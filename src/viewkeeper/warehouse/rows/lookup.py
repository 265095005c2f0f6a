"""Stored rows by the values of some columns, without reading the whole view.

A search goes through each file in two steps. First only the columns that are asked about are read,
and only of row groups whose statistics do not rule them out; then the other columns, only of row
groups in which something was found. All searches of one commit go together, so that a stored row is
found once, whichever of them it answers.

A search finds a superset: columns are compared one by one, and floating-point columns, whose
statistics say nothing of NaN, are not compared at all. The signed rows of a tuple are found all
together or not at all, so their sums are right.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake.data_files import stored_schema
from viewkeeper.warehouse.lake.verified_files import check_footer, translate_read_errors
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.rows.view_state import (
    files_until,
    fit_columns,
    state_ts,
    sum_rows,
    table_folder,
)

parquet: Any = pyarrow.dataset.ParquetFileFormat(page_checksum_verification=True)
"""Untyped: the stubs do not know that its fragments can be narrowed to some row groups."""

FEW = 50
"""Arrow holds so many values one by one against statistics; of more, we give it the range."""

Search = Mapping[str, Any]
"""Per column an array of values, one of which a row must have; without a column, all rows do."""


def search_for(keys: pa.Table) -> Search:
    """The search for rows that have, in these columns, the values of one of these rows."""
    exact = [name for name in keys.column_names if not pa.types.is_floating(keys[name].type)]
    return {name: pc.unique(keys[name]) for name in exact}


def find_rows(
    root: Path, view: ViewHead, searches: Sequence[Search], as_of: int | None = None
) -> pa.Table:
    """The rows stored as of a ts, the newest if none is given, that answer a search, and perhaps
    more.

    Each is there once, hidden columns too, with its non-zero `_count`.
    """
    folder = table_folder(root, view)
    until = state_ts(view, as_of)
    stored = stored_schema(view.schema)
    plain = pa.schema([field for field in stored if field.name != TS])
    pieces = [plain.empty_table()]
    for file in files_until(root, view, until) if searches else []:
        cut = file.ts_max > until
        check_footer(folder / file.path, file.size, view.view)
        for piece in _in_file(folder / file.path, view.view, stored if cut else plain, searches):
            found = piece.filter(pc.field(TS) <= until) if cut else piece
            pieces.append(found.select(plain.names))
    return sum_rows(pa.concat_tables(pieces))


def _in_file(
    path: Path, view: str, wanted: pa.Schema, searches: Sequence[Search]
) -> Iterator[pa.Table]:
    with translate_read_errors(path, view):
        written = pq.read_schema(path).remove_metadata()
        if not written.equals(stored_schema(_row_schema(wanted))):
            # Of the time before the view got other columns: compared as they are now.
            yield fit_columns(pq.read_table(path, page_checksum_verification=True), wanted)
            return
        file = parquet.make_fragment(str(path), LocalFileSystem())
        possible = reduce(operator.or_, map(_possible_groups, searches))
        for group in file.subset(filter=possible).row_groups:
            yield _in_group(file.subset(row_group_ids=[group.id]), wanted, searches)


def _row_schema(schema: pa.Schema) -> pa.Schema:
    """A schema without what is stored beside rows."""
    return pa.schema([field for field in schema if field.name not in (COUNT, TS)])


def _in_group(file: Any, wanted: pa.Schema, searches: Sequence[Search]) -> pa.Table:
    asked = [name for name in wanted.names if any(name in search for search in searches)]
    seen = _read_columns(file, asked)
    matching = [_matching_rows(seen, search) for search in searches]
    rows = np.flatnonzero(reduce(np.logical_or, matching))
    if not len(rows):
        return wanted.empty_table()
    rest = [name for name in wanted.names if name not in asked]
    others = _read_columns(file, rest)
    arrays = {n: found[n].take(rows) for found in (seen, others) for n in found.column_names}
    return pa.table([arrays[name] for name in wanted.names], schema=wanted)


def _read_columns(file: Any, names: Sequence[str]) -> pa.Table:
    """Whole columns. Arrow gets them by expressions: in lists, some names would be paths."""
    found: pa.Table = file.to_table(
        columns={f"c{i}": pc.field(name) for i, name in enumerate(names)}
    )
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


def _matching_rows(seen: pa.Table, search: Search) -> Any:
    """Which rows answer a search."""
    masks = [pc.is_in(seen[n], value_set=values).to_numpy() for n, values in search.items()]
    return reduce(np.logical_and, masks, np.ones(seen.num_rows, bool))
