"""The views of a parent that a child follows: handles, shapes, and how far all of them have come.

A handle stands for columns of one table of a view. What it stands for, and which shapes the table
has had since, is kept in files of the child (`viewkeeper.sources.handles`,
`viewkeeper.upstream.state`), so that a child that starts again goes on with the same meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from viewkeeper.errors import SchemaError, suggest_nearest
from viewkeeper.sources.handles import HandleTarget, SourceHandles
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import Tables
from viewkeeper.upstream.parent_files import ParentFiles, ParentProgress, progress_of
from viewkeeper.upstream.parent_project import ParentProject
from viewkeeper.upstream.snapshot import HandleMeaning, ViewReader
from viewkeeper.upstream.state import (
    FollowedParent,
    ParentContinuity,
    ParentMemory,
    transaction_text,
)
from viewkeeper.upstream.view_shapes import ViewShapeHistory
from viewkeeper.warehouse.metadata.head import Head, ViewHead


class FollowedViews:
    """What a child remembers of a parent; used under the source's lock."""

    def __init__(self, parent: ParentProject, home: Path | None) -> None:
        self.parent = parent
        self.files = ParentFiles(parent)
        self.names = SourceHandles(home)
        self.memory = ParentMemory(home)
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
                raise self.no_column(view.view, column, there)
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

    def no_column(self, view: str, column: str, known: Iterable[str]) -> SchemaError:
        """A view does not have a column that was asked for."""
        return SchemaError(
            self.parent.name,
            f'view "{view}" has no column "{column}"',
            hint=f"its columns: {', '.join(known)}{suggest_nearest(column, known)}",
        )

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
