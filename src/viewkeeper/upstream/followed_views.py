"""The views of a parent that a child follows: handles, shapes, and how far all of them have come.

A handle stands for columns of one table of a view. What it stands for, and which shapes the table
has had since, is kept in files of the child (`viewkeeper.sources.handles`,
`viewkeeper.upstream.state`), so that a child that starts again goes on with the same meaning.

A handle shows only columns that it stands for, or that came later under a new name: a column that
only has the name of an earlier one is another column. A view that was loaded again is another
table, and its old handles show nothing.

A ts of the parent is a transaction. Ts that one of the followed views shows as one state are one
transaction, and nothing is reported beyond what all of these views have committed.

A schema change that is noticed now is told with the first transaction that has not been reported,
and that position is remembered before it is reported: a child that dies in between asks again, and
gets the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from viewkeeper.errors import SchemaError, suggest_nearest
from viewkeeper.sources.handles import Book, HandleTarget, SourceHandles
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.sources.tables.column_type import TableColumns
from viewkeeper.sources.tables.shape import describe_file_table
from viewkeeper.updates.schema_change import SchemaChange, name_of_handle
from viewkeeper.updates.source_protocol import (
    LOOK_TRANSACTIONS,
    Boundary,
    CurrentNames,
    TableDescription,
    Tables,
)
from viewkeeper.upstream.parent_project import (
    ParentFiles,
    ParentProgress,
    ParentProject,
    group_by_state,
    progress_of,
)
from viewkeeper.upstream.snapshot import HandleMeaning, ViewReader
from viewkeeper.upstream.state import (
    FollowedParent,
    ParentContinuity,
    ParentMemory,
    transaction_text,
)
from viewkeeper.upstream.view_shapes import ViewShapeHistory, live_columns_of
from viewkeeper.view.definition import Field
from viewkeeper.warehouse.metadata.head import Head, ViewHead


class FollowedViews:
    """What a child remembers of a parent; used under the source's lock."""

    def __init__(
        self, parent: ParentProject, files: StateFiles | None, steady: Callable[[], float]
    ) -> None:
        """`steady` gives seconds that never decrease."""
        self.parent = parent
        self.files = ParentFiles(parent, steady)
        self.names = SourceHandles(files)
        self.memory = ParentMemory(files)
        self._continuity = ParentContinuity(parent, self.files, self.memory)
        self._wanted: set[str] = set()
        self.reported = 0
        """The position up to which looks have reported everything."""

    def note_reported(self, position: int) -> None:
        self.reported = max(self.reported, position)

    def check_position(self, after: int) -> Head:
        """The head, if the parent is still the one that was left at a position."""
        head = self.files.current_head()
        self._continuity.check_position(after)
        return head

    def find_loaded(self, name: str) -> ViewHead:
        """A view by its name; an error that says why if it is not there."""
        views = self.files.current_head().views
        if name in views:
            return views[name]
        if self.parent.has_definition(name):
            raise self.parent.away_error(f'its view "{name}" is not loaded yet')
        known = tuple(views)
        raise SchemaError(
            self.parent.name,
            f'there is no view "{name}" in {self.parent.folder}',
            detail=f"views that are loaded there: {', '.join(known) or 'none'}",
            hint=f"`viewkeeper run` there loads its views{suggest_nearest(name, known)}",
        )

    def shapes_of(self, view: ViewHead) -> ViewShapeHistory:
        """The shapes of a view's table; only the present one if the table is not followed."""
        known = self.memory.now.tables.get(view.table) if self.memory.now else None
        return ViewShapeHistory.start_history(view) if known is None else known.add_seen(view)

    def follow_tables(self, tables: Tables) -> None:
        """Let handles stand for columns from now on, beside those that were followed before."""
        self.files.current_head()
        if self.memory.now is None or not self._continuity.is_same():
            self.names.forget_all()
            self.memory.save_parent(FollowedParent(self.parent.load_identity()))
        for handle, columns in tables.items():
            self._follow_handle(handle, columns)
        self._wanted |= {*tables}

    def _follow_handle(self, handle: str, columns: Sequence[str]) -> None:
        """Let a handle stand for columns; a table that is gone is passed over."""
        named = self.names.target_of(handle)
        if named is None:
            view = self.find_loaded(name_of_handle(handle))
        else:
            found = self.files.current_head().views.get(name_of_handle(handle))
            if found is None or found.table != named.identity:
                return
            view = found
        history, known = self.shapes_of(view), named.columns if named else {}
        there = history.column_identities()
        for column in columns:
            if column not in there and column not in known:
                raise SchemaError(
                    self.parent.name,
                    f'view "{view.view}" has no column "{column}"',
                    hint=f"its columns: {', '.join(there)}{suggest_nearest(column, there)}",
                )
        self._remember_shapes(view, history)
        fresh = {column: there[column] for column in columns if column not in known}
        self.names.add_target(handle, view.table, {**known, **fresh})

    def _remember_shapes(self, view: ViewHead, history: ViewShapeHistory) -> None:
        assert self.memory.now is not None
        if view.table not in self.memory.now.since:
            # What was reported before may lie between two states of this view.
            since = view.exact_ts if self.reported <= view.ts else self.reported + 1
            known = {**self.memory.now.since, view.table: max(since, view.horizon)}
            self.memory.save_parent(replace(self.memory.now, since=known))
        self.memory.save_shapes(view.table, history)

    def common_progress(self) -> ParentProgress:
        """How far the views that are read have come together."""
        views = self.files.current_head().views
        names = dict.fromkeys(name_of_handle(handle) for handle in self._wanted or self.names)
        return progress_of((views[n] for n in names if n in views), self.files.last_ts)

    def views_followed_at(self, head: Head, ts: int) -> Iterator[tuple[str, ViewHead]]:
        """The views that are read and were followed at a ts, each under one of its handles."""
        since = self.memory.now.since if self.memory.now else {}
        seen: set[str] = set()
        for handle in self._wanted or self.names:
            named, view = self.names.target_of(handle), head.views.get(name_of_handle(handle))
            if named is None or view is None or named.identity != view.table:
                continue
            if since.get(view.table, ts + 1) <= ts and view.table not in seen:
                seen.add(view.table)
                yield handle, view

    def make_reader(self) -> ViewReader:
        """A reader of these views, which may go to a task."""
        book = self.names.copy_book() if self.memory.now else {}
        meanings = {handle: self._meaning_of(named) for handle, named in book.items()}
        return ViewReader(self.parent, meanings, self.reported)

    def _meaning_of(self, named: HandleTarget) -> HandleMeaning:
        assert self.memory.now is not None
        history = self.memory.now.tables[named.identity]
        return HandleMeaning(named, history, self.memory.now.since[named.identity])

    def note_acknowledged(self, position: int) -> None:
        """Remember what the parent's ledger has at a position; what lies before may go."""
        if self.memory.now is not None and self.memory.now.ts < position:
            here = transaction_text(self.files.entries_between(position - 1, position))
            self.memory.save_parent(replace(self.memory.now, ts=position, transaction=here))
            self.files.trim_entries(position)

    def forget_all(self) -> bool:
        """Follow nothing any more; whether anything was followed."""
        followed = self.memory.now is not None
        self.names.forget_all()
        self.memory.forget_parent()
        self._wanted.clear()
        return followed


class ViewTables:
    """Describes the views of a parent; used under the source's lock."""

    def __init__(self, views: FollowedViews) -> None:
        self._views = views

    def handle_of(self, name: str) -> str:
        view = self._views.find_loaded(name)
        identities = self._views.shapes_of(view).column_identities()
        return self._views.names.choose_handle(name, view.table, identities)

    def describe_table(self, handle: str) -> TableDescription:
        """Whatever a view can show, a view can read; a view is a bag, so it has no key."""
        view = self._views.find_loaded(name_of_handle(handle))
        named = self._views.names.target_of(handle)
        if named is not None and named.identity != view.table:
            raise SchemaError(
                self._views.parent.name,
                f'view "{view.view}" was loaded again, and is another table now',
                hint="nothing to do: the next look reports that, and the views follow it",
            )
        there = live_columns_of(named, self._views.shapes_of(view))
        fields = tuple(Field(f.name, f.type) for f in view.shown_schema if f.name in there)
        names = {name: name for name in (named.columns if named else there) if name in there}
        return describe_file_table(CurrentNames(view.view, names), TableColumns(fields, {}))


def place_schema_changes(
    head: Head, book: Book, memory: ParentMemory, after: int, positions: Sequence[int]
) -> dict[int, tuple[SchemaChange, ...]]:
    """The schema changes that belong to transactions at these positions, all beyond `after`."""
    if memory.now is None or not positions:
        return {}
    _note_shapes(head, memory, positions)
    _note_ends(head, book, memory, positions)
    found: dict[int, tuple[SchemaChange, ...]] = {}
    for at, change in _all_changes(book, memory):
        place = bisect_left(positions, at)
        if after < at and place < len(positions):
            here = positions[place]
            found[here] = (*found.get(here, ()), change)
    return found


def _note_shapes(head: Head, memory: ParentMemory, positions: Sequence[int]) -> None:
    """Give a position to the shapes that were not reported yet."""
    assert memory.now is not None
    for view in head.views.values():
        known = memory.now.tables.get(view.table)
        if known is None:
            continue
        seen = known.add_seen(view)
        at = _first_position(positions, view.versions[-1].ts if view.versions else 0)
        if not seen.is_reported and at is not None:
            memory.save_shapes(view.table, seen.mark_reported(at))


def _note_ends(head: Head, book: Book, memory: ParentMemory, positions: Sequence[int]) -> None:
    """Give what became of tables that are not there any more its position."""
    assert memory.now is not None
    ended = dict(memory.now.ended)
    for handle, named in book.items():
        view = head.views.get(name_of_handle(handle))
        if handle in ended or (view is not None and view.table == named.identity):
            continue
        at = _first_position(positions, view.created_ts if view else 0)
        if at is not None:
            ended[handle] = at, _end_change(handle, view)
    memory.save_parent(replace(memory.now, ended=ended))


def _end_change(handle: str, view: ViewHead | None) -> SchemaChange:
    return SchemaChange("drop_table" if view is None else "recreate_table", handle)


def _first_position(positions: Sequence[int], since: int) -> int | None:
    """The first position that is not before a ts."""
    return next((position for position in positions if position >= since), None)


def _all_changes(book: Book, memory: ParentMemory) -> list[tuple[int, SchemaChange]]:
    """All schema changes that were ever reported, with their positions."""
    assert memory.now is not None
    found: list[tuple[int, SchemaChange]] = []
    for handle, named in book.items():
        history = memory.now.tables[named.identity]
        found += [(at, c) for at, c in history.changes_of(handle, named) if at is not None]
    found += memory.now.ended.values()
    return sorted(found, key=lambda each: each[0])


def look_for_transactions(views: FollowedViews, after: int) -> tuple[Boundary, ...]:
    """The transactions of a parent beyond a position."""
    head = views.check_position(after)
    progress = views.common_progress()
    if after >= progress.reach or not progress.is_shown:
        views.note_reported(after)
        return ()
    entries = views.files.entries_between(after, progress.reach)
    merged = group_by_state(entries, progress, LOOK_TRANSACTIONS)
    last = max(merged, default=after)
    reshaped = place_schema_changes(
        head, views.names.copy_book(), views.memory, after, sorted(merged)
    )
    counts = _count_rows(views, head, after, last)
    found = tuple(
        Boundary(
            at,
            min(entry.committed_at for entry in together),
            sum(counts.get(ts, 0) for ts in {entry.ts for entry in together}),
            reshaped=reshaped.get(at, ()),
        )
        for at, together in merged.items()
    )
    views.note_reported(last)
    return found


def _count_rows(views: FollowedViews, head: Head, after: int, until: int) -> dict[int, int]:
    """How many rows changed per ts in the views that are followed."""
    reader, counts = views.make_reader(), dict[int, int]()
    for handle, view in views.views_followed_at(head, after):
        if view.horizon > after:
            raise reader.gap_error(view, after)
        for ts, rows in reader.count_changes(handle, after, until).items():
            counts[ts] = counts.get(ts, 0) + rows
    return counts
