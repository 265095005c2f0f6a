"""Reading a view with Arrow alone: no Spark, no JVM, no lock.

A reader starts from a head and reads the table's version that the head names. The state as of T is
the sum of `_count` per row over `_ts` <= T; the changes since S are the rows with `_ts` > S. Files
whose statistics say that they hold nothing of interest are not opened. As-of never uses old Delta
Lake versions: those are about files, `_ts` is about the sources.

The newest state is the sum of everything, commits ahead of the mark included; what then has a count
below one waits for a commit that is still to come and is not shown. As-of and changes end at the
mark.

Columns that are hidden are there to tell stored rows apart. What is shown is the projection of what
is stored: a stored row with a count below one is left out first, then counts are summed without the
hidden columns. `read_stored` alone shows everything.

States before the horizon are folded together and are refused, naming what can be asked for. A
`since` of 0 stands for "from the beginning": the changes then start with the initial load, or with
the folded body, under its ts.

Arrow groups every type that a view can have, NULL with NULL; `-0.0` and NaN are canonical before
they are stored. Columns are addressed by number, because a view may call a column anything.

A view that lost a column, gained one or got a wider type keeps its files as they are; the table's
own schema says what they mean from then on. What a file has too much is left out (the same row's
counts then add up wherever rows are summed), what it lacks is NULL, and narrower values are cast.
Compaction writes them anew, in time.

Rows that a small commit has put into the journal are files too, without a file behind them: the
head has the rows themselves (`unflushed_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import CorruptError, HorizonError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake.data_files import ROWS_PER_GROUP, stored_schema
from viewkeeper.warehouse.lake.listed_files import ActiveFile, active_file_of, listed_entries
from viewkeeper.warehouse.lake.verified_files import read_file, translate_read_errors
from viewkeeper.warehouse.metadata.head import ViewHead, read_head
from viewkeeper.warehouse.rows.file_search import fit_columns, stream_file_columns
from viewkeeper.warehouse.rows.row_masks import match_values, take_masked
from viewkeeper.warehouse.rows.touched_rows import (
    find_touched,
    split_layers,
    telling_columns,
)


def sum_rows(rows: pa.Table) -> pa.Table:
    """One row per tuple, with the non-zero sum of its `_count`; a `_ts` is forgotten."""
    return _sum_counts(rows.drop_columns([TS]) if TS in rows.schema.names else rows)


def sum_per_ts(rows: pa.Table) -> pa.Table:
    """One row per tuple and ts, in ts order, with the non-zero sum of its `_count`."""
    return _sum_counts(rows).select(rows.schema.names).sort_by(TS)


def repeat_rows(rows: pa.Table) -> pa.Table:
    """The bag that counted rows stand for; rows with a count below one do not appear.

    Rows without `_count` are there once.
    """
    if COUNT not in rows.column_names:
        return rows
    bag = rows.drop_columns([COUNT])
    counts = rows[COUNT].to_numpy()
    if (counts == 1).all():
        return bag
    often = numpy.repeat(numpy.arange(len(counts)), numpy.maximum(counts, 0))
    return bag.take(often)


def _sum_counts(rows: pa.Table) -> pa.Table:
    names = [name for name in rows.schema.names if name != COUNT]
    keys = [f"k{i}" for i in range(len(names))]
    plain = rows.select([*names, COUNT]).rename_columns([*keys, "n"])
    total = plain.group_by(keys).aggregate([("n", "sum")]).select([*keys, "n_sum"])
    return total.filter(pc.field("n_sum") != 0).rename_columns([*names, COUNT])


ATTEMPTS = 20
WORTH = 4
"""Rows are told apart where the body has so many times more than the tail."""


def newest_state(
    root: StoragePath,
    name: str,
    as_of: int | None = None,
    columns: Sequence[str] | None = None,
    where: Any = None,
) -> tuple[ViewHead, pa.Table]:
    """A view and its rows, or some of them, from the head of the moment.

    What cannot be believed is read again from the next head: upkeep may have replaced it while it
    was read. Only what the same head, or many heads one after the other, cannot give is damaged.
    """
    view = read_head(root).require_view(name)
    for _ in range(ATTEMPTS):
        try:
            return view, read_state(root, view, as_of, columns, where)
        except CorruptError:
            newer = read_head(root).require_view(name)
            if newer == view:
                break
            view = newer
    return view, read_state(root, view, as_of, columns, where)


def read_state(
    root: StoragePath,
    view: ViewHead,
    as_of: int | None = None,
    columns: Sequence[str] | None = None,
    where: Any = None,
) -> pa.Table:
    """The view's rows as of a ts (the newest if none is given), a row as often as it occurs.

    `columns` are some of those that are shown. `where` is an expression of Arrow over columns that
    are shown: rows for which it does not hold are left out, and row groups whose statistics rule it
    out are not read.
    """
    shown = list(view.shown_schema.names if columns is None else columns)
    until = state_ts(view, as_of)
    body, tail = split_layers(files_until(root, view, until), until, view.horizon)
    layers = _Layers(root, view, body, tail, until, where)
    rows: pa.Table | None
    if not tail:
        rows = layers.read_body(shown)
    elif where is None and columns is not None:
        rows = layers.leave_touched(shown)
    else:
        rows = layers.part_touched(shown)
    return layers.sum_all(shown) if rows is None else rows


@dataclass(frozen=True, slots=True)
class _Layers:
    """The files of a state, and of which rows of it somebody asks."""

    root: StoragePath
    view: ViewHead
    body: Sequence[ActiveFile]
    tail: Sequence[ActiveFile]
    until: int
    where: Any

    def read_body(self, shown: Sequence[str]) -> pa.Table:
        """The rows of the body, as often as they occur."""
        files = (self._stream_file(file, shown) for file in self.body)
        return self._join(shown, [repeat_rows(rows) for rows in chain.from_iterable(files)])

    def leave_touched(self, shown: Sequence[str]) -> pa.Table | None:
        """All rows, of which only these columns are read; None where no column tells rows apart."""
        folder = table_folder(self.root, self.view)
        touched = find_touched(folder, self.view, self.body, self.tail, self._signed_rows)
        if touched is None:
            return None
        changed = pa.concat_tables([self._signed_rows(self.tail).drop_columns([TS]), touched.rows])
        pieces = [repeat_rows(sum_rows(changed)).select(list(shown))]
        for number, file in enumerate(self.body):
            untouched = numpy.ones(file.rows, bool)
            untouched[touched.positions_in(number)] = False
            first = 0
            for rows in self._stream_file(file, shown):
                kept = untouched[first : first + rows.num_rows]
                pieces.append(repeat_rows(take_masked(rows, kept)))
                first += rows.num_rows
        return self._join(shown, pieces)

    def part_touched(self, shown: Sequence[str]) -> pa.Table | None:
        """All rows, read whole and once; None where no column tells rows apart, or little is left.

        Grouping all rows by all columns costs ten times as much as reading them.
        """
        begun = (self._stream_file(file, self.view.schema.names) for file in self.body)
        # The first file is read by Arrow's threads while the tail is read by this one.
        ahead = [*islice(begun, 1 if self._is_worth(sum(f.rows for f in self.tail)) else 0)]
        changed = [self._filter(self._signed_rows(self.tail).drop_columns([TS]))]
        telling = telling_columns(changed[0])[:1]
        if not telling or not self._is_worth(changed[0].num_rows):
            return None
        values = {name: pc.unique(changed[0][name]) for name in telling}
        pieces = []
        for rows in chain.from_iterable(chain(ahead, begun)):
            touched = match_values(rows, values)
            found = rows.filter(pa.array(touched))
            counted = found if COUNT in rows.column_names else _count_once(found)
            changed.append(counted.select(changed[0].column_names))
            pieces.append(repeat_rows(take_masked(rows, ~touched)).select(list(shown)))
        pieces.append(repeat_rows(sum_rows(pa.concat_tables(changed))).select(list(shown)))
        return self._join(shown, pieces)

    def sum_all(self, shown: Sequence[str]) -> pa.Table:
        """All rows, grouped by all that is stored."""
        signed = self._signed_rows([*self.body, *self.tail])
        return repeat_rows(sum_rows(self._filter(signed))).select(list(shown))

    def _stream_file(self, file: ActiveFile, names: Sequence[str]) -> Iterator[pa.Table]:
        """Rows of a file of the body; with `_count` if not all are there once."""
        stored = stored_schema(self.view.schema)
        wanted = [*names, COUNT] if file.count_max > 1 else names
        folder = table_folder(self.root, self.view)
        return stream_file_columns(folder, self.view.view, file, stored, wanted, self.where)

    def _is_worth(self, changed: int) -> bool:
        """Whether telling so many changed rows apart costs less than summing the body with them."""
        return changed * WORTH <= sum(file.rows for file in self.body)

    def _signed_rows(self, files: Sequence[ActiveFile]) -> pa.Table:
        return read_signed(self.root, self.view, files, until=self.until)

    def _filter(self, rows: pa.Table) -> pa.Table:
        return rows if self.where is None else rows.filter(self.where)

    def _join(self, shown: Sequence[str], pieces: Sequence[pa.Table]) -> pa.Table:
        schema = pa.schema([self.view.schema.field(name) for name in shown]).remove_metadata()
        return pa.concat_tables([schema.empty_table(), *pieces])


def _count_once(rows: pa.Table) -> pa.Table:
    return rows.append_column(COUNT, pa.array(numpy.ones(rows.num_rows, numpy.int64)))


def read_counted(root: StoragePath, view: ViewHead, as_of: int | None = None) -> pa.Table:
    """The view's rows as of a ts, each once, with `_count`."""
    rows = read_stored(root, view, as_of).filter(pc.field(COUNT) > 0)
    return sum_rows(rows.drop_columns(list(view.hidden))) if view.hidden else rows


def read_stored(root: StoragePath, view: ViewHead, as_of: int | None = None) -> pa.Table:
    """The rows as they are stored, hidden columns and counts below zero too, each with `_count`."""
    until = state_ts(view, as_of)
    return sum_rows(read_signed(root, view, files_until(root, view, until), until=until))


def read_view_changes(
    root: StoragePath, view: ViewHead, since: int, until: int | None = None
) -> pa.Table:
    """The signed rows with `since` < `_ts` <= `until`, summed per row and ts, in ts order."""
    since, until = change_span(view, since, until)
    files = [file for file in files_until(root, view, until) if file.ts_max > since]
    rows = read_signed(root, view, files, after=since, until=until)
    return sum_per_ts(rows.drop_columns(list(view.hidden)))


def state_ts(view: ViewHead, as_of: int | None) -> int:
    """The ts to read, or HorizonError."""
    if as_of is None:
        return view.reach_ts
    if not view.horizon <= as_of <= view.ts:
        raise _outside_error(view, f"no state as of {as_of}")
    return as_of


def change_span(view: ViewHead, since: int, until: int | None) -> tuple[int, int]:
    """The span of ts to read, or HorizonError; -1 stands for before the initial load."""
    end = view.ts if until is None else state_ts(view, until)
    if since == 0:
        return -1, end
    if not view.horizon <= since <= view.ts:
        raise _outside_error(view, f"no changes since {since}")
    return since, end


def files_until(root: StoragePath, view: ViewHead, until: int) -> list[ActiveFile]:
    """The files that can hold rows up to a ts, those of which only the journal has rows too."""
    active = files_of(table_folder(root, view), view)
    unflushed = [active_file_of(each.file) for each in view.unflushed]
    return [file for file in (*active, *unflushed) if file.ts_min <= until]


def files_of(folder: StoragePath, view: ViewHead) -> tuple[ActiveFile, ...]:
    """The files that a head names; for readers, who hold no lock."""
    entries = listed_entries(folder, view)
    if entries is not None:
        return entries.files
    # Most logs are short: whoever reads no other waits for no library.
    from viewkeeper.warehouse.lake.lake_table import library_files_of

    return library_files_of(folder, view)


def unflushed_rows(view: ViewHead, file: ActiveFile) -> pa.Table | None:
    """The rows of a file that only the journal has; None if it is a data file."""
    found = (each.rows for each in view.unflushed if each.file.path == file.path)
    return next(found, None)


def table_folder(root: StoragePath, view: ViewHead) -> StoragePath:
    return root.absolute() / "views" / view.table


def read_signed(
    root: StoragePath, view: ViewHead, files: Iterable[ActiveFile], *, after: int = -1, until: int
) -> pa.Table:
    """The signed rows of files with `after` < `_ts` <= `until`."""
    folder = table_folder(root, view)
    stored = stored_schema(view.schema)
    pieces = [stored.empty_table()]
    for file in files:
        rows = fit_columns(read_file_rows(folder, view, file), stored)
        inside = after < file.ts_min and file.ts_max <= until
        pieces.append(
            rows if inside else rows.filter((pc.field(TS) > after) & (pc.field(TS) <= until))
        )
    return pa.concat_tables(pieces)


def read_file_rows(folder: StoragePath, view: ViewHead, file: ActiveFile) -> pa.Table:
    """All rows of a file of a view, with the columns that it was written with."""
    unflushed = unflushed_rows(view, file)
    if unflushed is not None:
        return unflushed
    path = folder / file.path
    data = read_file(path, file.size, view.view)
    with translate_read_errors(path, view.view):
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as parquet:
            # Arrow's threads may be busy with a body: who asks them waits until that is read.
            rows = parquet.read(use_threads=file.rows > ROWS_PER_GROUP)
        if rows.num_rows != file.rows:
            raise ValueError(f"it has {rows.num_rows} rows; {file.rows} were written")
    return rows.replace_schema_metadata(None)


def _outside_error(view: ViewHead, what: str) -> HorizonError:
    end = "the mark: above it commits are still missing" if view.ahead else "the newest"
    return HorizonError(
        f'view "{view.view}": {what}',
        detail=f"states from ts {view.horizon} (the horizon) to ts {view.ts} ({end}) are kept",
        hint=f"ask for a ts from {view.horizon} to {view.ts}; changes also from 0, the beginning",
    )
