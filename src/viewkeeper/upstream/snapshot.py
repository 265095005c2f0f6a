"""Reading the views of a parent: states as of a ts, and the signed rows between two.

Every state that a child may still ask for is kept by its lease, so an answer is read exactly as of
the position that was asked for: its cut is that position, and it has no tail. Keys are looked for
in the row groups whose statistics allow them.

A reader starts from the head of the moment. What the parent replaces meanwhile, by merging or
compacting, stays for its retention; should a file be gone all the same, everything is read again
from the next head. What cannot be believed although the head has not changed is damage, and counts
as a parent that is away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import (
    BrokenQueryError,
    GapError,
    SourceAwayError,
    SourceError,
    reload_hint,
)
from viewkeeper.sources.handles import HandleTarget
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import COUNT, POSITION, TS, Answer, KeyRange, Lookup, Scan
from viewkeeper.upstream.parent_project import UNREADABLE, ParentProject, progress_of
from viewkeeper.upstream.view_shapes import ViewShapeHistory, live_columns_of
from viewkeeper.view.definition import Relation
from viewkeeper.warehouse.lake.listed_files import ActiveFile
from viewkeeper.warehouse.lake.verified_files import (
    check_footer,
    open_parquet,
    translate_read_errors,
)
from viewkeeper.warehouse.metadata.head import Head, ViewHead
from viewkeeper.warehouse.rows import view_state
from viewkeeper.warehouse.rows.file_search import Search
from viewkeeper.warehouse.rows.lookup import find_rows
from viewkeeper.warehouse.rows.view_state import repeat_rows, sum_per_ts, sum_rows

BATCH_ROWS = 65_536
ATTEMPTS = 5


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HandleMeaning:
    """What a handle stands for: a table with its shapes, and from which ts on it may be asked."""

    named: HandleTarget
    history: ViewShapeHistory
    since: int


@dataclass(frozen=True, slots=True)
class ViewReader:
    """Reads the views of one parent, here or in a task; can be pickled.

    `looked` is the position up to which the child was told everything: what is not as it is meant
    to be is explained by a look if there is something beyond it.
    """

    parent: ParentProject
    meant: Mapping[str, HandleMeaning] = field(default_factory=dict)
    looked: int = 0

    def apply_to_view(
        self, handle: str, columns: Sequence[str], at: int, action: Callable[[ViewHead], T]
    ) -> T:
        """Do something with a view that has these columns and the state as of a ts."""
        seen: set[tuple[str, int, int]] = set()
        for _ in range(ATTEMPTS):
            view = self.find_view(self.parent.load_head(), handle, columns, at)
            try:
                return action(view)
            except UNREADABLE as error:
                place = view.table, view.location.version, len(view.unflushed)
                if place in seen:
                    raise self.parent.damaged_error(error) from error
                seen.add(place)
        raise self.parent.away_error(
            f'view "{name_of_handle(handle)}" is rewritten faster than it can be read',
            f"{ATTEMPTS} attempts",
        )

    def find_view(self, head: Head, handle: str, columns: Sequence[str], at: int) -> ViewHead:
        """The view that a handle means, if it can be asked as of a ts."""
        view, meant = head.views.get(name_of_handle(handle)), self.meant.get(handle)
        if view is None:
            raise self._ended_error(head, handle, "the view is gone")
        if meant is not None and meant.named.identity != view.table:
            raise self._ended_error(head, handle, "it was loaded again")
        history = (
            ViewShapeHistory.start_history(view) if meant is None else meant.history.add_seen(view)
        )
        there = live_columns_of(meant.named if meant else None, history)
        for column in columns:
            if column not in there:
                raise self._ended_error(head, handle, f"column {column} is gone, or is another one")
        if at < view.horizon:
            raise self.gap_error(view, at)
        if at > view.ts or (meant is not None and at < meant.since):
            raise SourceAwayError(
                self.parent.name,
                f'view "{view.view}" has no state as of ts {at} that can be read',
                detail=f"it stands at ts {view.ts}"
                + (f", and is read from ts {meant.since} on" if meant else ""),
                hint="nothing to do: it is waited for; `viewkeeper status` there says how it is",
            )
        return view

    def gap_error(self, view: ViewHead, at: int) -> GapError:
        return GapError(
            self.parent.name,
            f'view "{view.view}" of {self.parent.folder} no longer keeps ts {at}',
            detail=f"its past begins at ts {view.horizon}",
            hint=reload_hint(),
        )

    def _ended_error(self, head: Head, handle: str, what: str) -> SourceError:
        """What is not there any more is explained by the next look, or by the parent's next
        transaction."""
        names = {name_of_handle(each) for each in self.meant}
        views = [view for name, view in head.views.items() if name in names]
        stands = progress_of(views, self.looked)
        if stands.reach > self.looked and stands.is_shown:
            return BrokenQueryError(self.parent.name, name_of_handle(handle), what)
        return SourceAwayError(
            self.parent.name,
            f'view "{name_of_handle(handle)}" has changed its shape: {what}',
            detail="what that means is known with the next transaction there",
            hint="nothing to do: it is waited for",
        )

    def lookup_rows(self, lookup: Lookup, at: int) -> pa.Table:
        """The rows that a lookup asks for, as of a ts."""

        def rows(view: ViewHead) -> pa.Table:
            search = _search_of(lookup, view)
            if not search:
                return _state_rows(self.parent.root, view, lookup.columns, at)
            stored = find_rows(self.parent.root, view, [search], at)
            return repeat_rows(sum_rows(stored.select([*lookup.columns, COUNT])))

        return self.apply_to_view(lookup.relation.table, (*lookup.columns, *lookup.on), at, rows)

    def state_rows(self, handle: str, columns: Sequence[str], at: int) -> pa.Table:
        """All rows as of a ts."""

        def rows(view: ViewHead) -> pa.Table:
            return _state_rows(self.parent.root, view, columns, at)

        return self.apply_to_view(handle, columns, at, rows)

    def signed_changes(
        self, handle: str, columns: Sequence[str], after: int, until: int
    ) -> Iterator[pa.RecordBatch]:
        """The signed rows with `after` < ts <= `until`, in ts order, as changes of a source."""
        at = after
        while at < until:

            def piece(view: ViewHead, here: int = at) -> tuple[int, pa.Table]:
                if view.horizon > after:
                    raise self.gap_error(view, after)
                return _read_piece(self.parent.root, _narrow_view(view, columns), here, until)

            at, rows = self.apply_to_view(handle, columns, until, piece)
            yield from _changes_of_rows(rows).to_batches(max_chunksize=BATCH_ROWS)

    def count_changes(self, handle: str, after: int, until: int) -> dict[int, int]:
        """How many signed rows are stored per ts with `after` < ts <= `until`."""

        def count_stored(view: ViewHead) -> dict[int, int]:
            folder = view_state.table_folder(self.parent.root, view)
            counts: dict[int, int] = {}
            for file in _files_between(self.parent.root, view, after, until):
                for ts, rows in _count_stamps(folder, view, file):
                    if after < ts <= until:
                        counts[ts] = counts.get(ts, 0) + rows
            return counts

        return self.apply_to_view(handle, (), until, count_stored)


@dataclass(frozen=True, slots=True)
class ViewOpener:
    """Opens snapshots of a parent's views; `staging` is a folder for what Spark reads of them."""

    reader: ViewReader
    staging: StoragePath

    def __call__(self) -> ViewSnapshot:
        return ViewSnapshot(self.reader)


class ViewSnapshot:
    """Answers exactly as of the position that is asked for."""

    def __init__(self, reader: ViewReader) -> None:
        self._reader = reader

    def answer_lookup(self, lookup: Lookup, after: int) -> Answer:
        rows = self._reader.lookup_rows(lookup, after)
        return Answer(rows, Cut(after), after, _no_changes(rows.schema))

    def find_key_range(self, relation: Relation, columns: Sequence[str]) -> KeyRange | None:
        """Views of other projects are read by Spark itself."""
        return None

    def scan_relation(
        self,
        relation: Relation,
        columns: Sequence[str],
        after: int,
        part: KeyRange | None = None,
    ) -> Scan:
        rows = self._reader.state_rows(relation.table, columns, after)
        tail = _no_changes(rows.schema)
        batches = rows.to_batches(max_chunksize=BATCH_ROWS)
        return Scan(Cut(after), iter(batches), iter(tail.to_batches()))

    def close(self) -> None:
        pass


def _no_changes(schema: pa.Schema) -> pa.Table:
    own = [pa.field(COUNT, pa.int64()), pa.field(POSITION, pa.int64())]
    return pa.schema([*schema, *own]).empty_table()


def _narrow_view(view: ViewHead, columns: Sequence[str]) -> ViewHead:
    """A view with some of its columns; counts of what is then the same row are summed."""
    schema = pa.schema([view.schema.field(name) for name in columns])
    return replace(view, schema=schema, hidden=())


def _state_rows(root: StoragePath, view: ViewHead, columns: Sequence[str], at: int) -> pa.Table:
    return repeat_rows(view_state.read_stored(root, _narrow_view(view, columns), at))


def _search_of(lookup: Lookup, view: ViewHead) -> Search:
    """What statistics and columns are compared with; only values of exactly the column's type."""
    found: dict[str, Any] = {}
    for name, null_safe in zip(lookup.on, lookup.null_safe, strict=True):
        if lookup.keys is None:
            break
        values = pc.unique(lookup.keys[name])
        same = values.type == view.schema.field(name).type
        if same and not pa.types.is_floating(values.type):
            found[name] = values if null_safe else values.drop_null()
    return found


def _files_between(root: StoragePath, view: ViewHead, after: int, until: int) -> list[ActiveFile]:
    found = [file for file in view_state.files_until(root, view, until) if file.ts_max > after]
    return sorted(found, key=lambda file: (file.ts_min, file.path))


def _read_piece(root: StoragePath, view: ViewHead, after: int, until: int) -> tuple[int, pa.Table]:
    """The signed rows from a ts on, as far as they lie in files that overlap; up to which ts."""
    taken: list[ActiveFile] = []
    end = after
    for file in _files_between(root, view, after, until):
        if taken and file.ts_min > end:
            break
        taken.append(file)
        end = max(end, file.ts_max)
    else:
        end = until
    end = min(end, until)
    return end, sum_per_ts(view_state.read_signed(root, view, taken, after=after, until=end))


def _changes_of_rows(rows: pa.Table) -> pa.Table:
    """Counted rows as changes: each of them +1 or -1, with its ts as position."""
    counts = rows[COUNT].to_numpy()
    each = np.repeat(np.arange(len(counts)), np.abs(counts))
    ones = pa.array(np.sign(counts)[each], pa.int64())
    repeated_rows = rows.take(each)
    names = [name for name in rows.column_names if name not in (COUNT, TS)]
    plain = repeated_rows.select(names)
    return plain.append_column(COUNT, ones).append_column(POSITION, repeated_rows[TS])


def _count_stamps(
    folder: StoragePath, view: ViewHead, file: ActiveFile
) -> Iterator[tuple[int, int]]:
    if file.ts_min == file.ts_max:
        yield file.ts_min, file.rows
        return
    unflushed = view_state.unflushed_rows(view, file)
    if unflushed is not None:
        stamps = unflushed[TS].to_numpy()
    else:
        path = folder / file.path
        check_footer(path, file.size, view.view)
        with (
            translate_read_errors(path, view.view),
            open_parquet(path) as parquet,
        ):
            stamps = parquet.read(columns=[TS])[TS].to_numpy()
    for ts, rows in zip(*np.unique(stamps, return_counts=True), strict=True):
        yield int(ts), int(rows)
