"""Slices of a view: what one task reads by itself, of a state or of a span of changes.

A slice is planned from a head and carries all that its task needs: where files are, which of them
to read, and rows that only the journal has. Tasks ask nobody, and a head that is newer does not
matter to them: files that were replaced since stay for an hour.

A state is sliced as it is merged on read: each file of the body without the rows that later commits
touch, and one slice with what these rows have become. Where rows cannot be told apart by a column,
or too many have changed, one slice sums everything.

Changes are sliced by ts: all rows of a ts are in one slice, which sums them per row. The state in
which a span from the beginning starts has a slice per file; a row that is in several of its files
comes several times, and its counts add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake.data_files import stored_schema
from viewkeeper.warehouse.lake.listed_files import ActiveFile
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.rows.file_search import read_file_columns
from viewkeeper.warehouse.rows.row_masks import take_masked
from viewkeeper.warehouse.rows.touched_rows import find_touched, split_layers
from viewkeeper.warehouse.rows.view_state import (
    change_span,
    files_until,
    read_signed,
    repeat_rows,
    state_ts,
    sum_per_ts,
    sum_rows,
    table_folder,
)

SLICE_ROWS = 500_000
"""About so many signed rows are one slice of changes."""

NETTED_ROWS = 1_000_000
"""A state with more rows in its tail is summed by one task."""

BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class BodySlice:
    """A file of a state's body, without the rows at some positions."""

    root: StoragePath
    view: ViewHead
    file: ActiveFile
    skipped: Any

    def read_rows(self, names: Sequence[str], where: Any) -> pa.Table:
        folder, stored = table_folder(self.root, self.view), stored_schema(self.view.schema)
        is_whole = not len(self.skipped)
        read = [*names, COUNT] if self.file.count_max > 1 else [*names]
        rows = read_file_columns(
            folder, self.view.view, self.file, stored, read, where if is_whole else None
        )
        if not is_whole:
            kept = np.ones(rows.num_rows, bool)
            kept[self.skipped] = False
            rows = take_masked(rows, kept)
        return repeat_rows(rows).select(list(names))


@dataclass(frozen=True, slots=True)
class RowsSlice:
    """Rows that were computed when the slices were planned."""

    rows: pa.Table

    def read_rows(self, names: Sequence[str], where: Any) -> pa.Table:
        return self.rows.select(list(names))


@dataclass(frozen=True, slots=True)
class SumSlice:
    """A whole state, summed from all its files."""

    root: StoragePath
    view: ViewHead
    files: tuple[ActiveFile, ...]
    until: int

    def read_rows(self, names: Sequence[str], where: Any) -> pa.Table:
        signed = read_signed(self.root, self.view, self.files, until=self.until)
        return repeat_rows(sum_rows(signed)).select(list(names))


@dataclass(frozen=True, slots=True)
class ChangeSlice:
    """The changes with `after` < `_ts` <= `until`, as far as they are in some files."""

    root: StoragePath
    view: ViewHead
    files: tuple[ActiveFile, ...]
    after: int
    until: int

    def read_rows(self, names: Sequence[str], where: Any) -> pa.Table:
        signed = read_signed(self.root, self.view, self.files, after=self.after, until=self.until)
        return sum_per_ts(signed.drop_columns(list(self.view.hidden))).select(list(names))


ViewSlice = BodySlice | RowsSlice | SumSlice | ChangeSlice


def read_batches(
    piece: ViewSlice, schema: pa.Schema, where: Any = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a slice in batches of this schema; `where` only spares work, if it is given."""
    rows = piece.read_rows(schema.names, where).cast(schema.remove_metadata())
    yield from rows.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)


def slice_state(root: StoragePath, view: ViewHead, as_of: int | None = None) -> list[ViewSlice]:
    """The state of a view as of a ts, the newest without one; HorizonError if it is not kept."""
    until = state_ts(view, as_of)
    files = files_until(root, view, until)
    body, tail = split_layers(files, until, view.horizon)
    bare = _needed_view(view, ())
    if not tail:
        return [BodySlice(root, bare, file, ()) for file in body]
    if sum(file.rows for file in tail) <= NETTED_ROWS:
        read = partial(read_signed, root, view, until=until)
        touched = find_touched(table_folder(root, view), view, body, tail, read)
        if touched is not None:
            changed = pa.concat_tables([read(tail).drop_columns([TS]), touched.rows])
            net = sum_rows(changed).filter(pc.field(COUNT) > 0)
            pieces: list[ViewSlice] = [
                BodySlice(root, bare, file, touched.positions_in(number))
                for number, file in enumerate(body)
            ]
            return [*pieces, RowsSlice(repeat_rows(net).select(view.shown_schema.names))]
    return [SumSlice(root, _needed_view(view, files), tuple(files), until)]


def slice_changes(root: StoragePath, view: ViewHead, since: int, until: int) -> list[ViewSlice]:
    """The changes of a span; HorizonError if they are not kept."""
    after, until = change_span(view, since, until)
    files = [file for file in files_until(root, view, until) if file.ts_max > after]
    pieces: list[ViewSlice] = []
    if after < 0:
        body = [file for file in files if file.ts_max <= view.horizon]
        for file in body:
            needed = _needed_view(view, [file])
            pieces.append(ChangeSlice(root, needed, (file,), after, view.horizon))
        files = [file for file in files if file.ts_max > view.horizon]
        across = [file for file in files if file.ts_min <= view.horizon]
        if across:
            needed = _needed_view(view, across)
            pieces.append(ChangeSlice(root, needed, tuple(across), after, view.horizon))
        after = view.horizon
    for first, last in _cut_span(files, after, until):
        chosen = [file for file in files if file.ts_max > first and file.ts_min <= last]
        needed = _needed_view(view, chosen)
        pieces.append(ChangeSlice(root, needed, tuple(chosen), first, last))
    return pieces


def _cut_span(files: Sequence[ActiveFile], after: int, until: int) -> Iterator[tuple[int, int]]:
    """A span of ts in pieces of about as many rows; none if no file has any of it."""
    rows = 0
    for file in sorted(files, key=lambda each: each.ts_max):
        rows += file.rows
        if rows >= SLICE_ROWS and after < file.ts_max < until:
            yield after, file.ts_max
            after, rows = file.ts_max, 0
    if rows and after < until:
        yield after, until


def _needed_view(view: ViewHead, files: Sequence[ActiveFile]) -> ViewHead:
    """The view with the rows of the journal that these files stand for, and no others."""
    paths = {file.path for file in files}
    kept = tuple(each for each in view.unflushed if each.file.path in paths)
    return replace(view, unflushed=kept, definition="", versions=())
