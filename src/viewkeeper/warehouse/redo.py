"""From a record to the Delta Lake logs and the next head; run at once and again after a crash.

A commit is: data files synced, the record written (the commit point), then this. Everything here
can be stopped anywhere and done again from the record: a log entry is applied once, by record
number; a new table starts from an empty log; a checkpoint counts only when the head names it. A
view that advances without rows gets no log entry. A flush of the journal is redone in the same way,
from the frame that names its files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import assert_never

from viewkeeper.errors import CorruptError
from viewkeeper.storage.disk import Guard, no_guard
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.warehouse.lake import delta_log
from viewkeeper.warehouse.lake.data_files import list_digest, stored_schema
from viewkeeper.warehouse.lake.lake_table import LakeTable, refuse_other_version
from viewkeeper.warehouse.lake.listed_files import ActiveFile, check_list
from viewkeeper.warehouse.metadata import head as heads
from viewkeeper.warehouse.metadata.head import Head, TableLocation, ViewHead
from viewkeeper.warehouse.metadata.record import (
    Advance,
    Create,
    DataFile,
    Drop,
    Record,
    Redefine,
    Refresh,
    Resume,
    Rewrite,
    Stop,
    TableFlush,
)
from viewkeeper.warehouse.stable_paths import link_table


class OpenTables:
    """The open tables of a warehouse, one per view; opened when first needed.

    `guard` is asked before a log entry gets its name.
    """

    def __init__(self, root: StoragePath, guard: Guard = no_guard) -> None:
        self._views = root / "views"
        self._guard = guard
        self._open: dict[str, LakeTable] = {}
        self.damaged: dict[str, CorruptError] = {}
        """Views whose files cannot be believed: nothing is done to them until they are loaded
        again."""

    def folder_of(self, table: str) -> StoragePath:
        return self._views / table

    def table_of(self, view: ViewHead) -> LakeTable:
        if view.table not in self._open:
            folder = self.folder_of(view.table)
            stored, version = (
                stored_schema(view.schema),
                self._redone_version(view.location.version),
            )
            table = LakeTable.open_listed(folder, stored, self._guard, view)
            if table is None:
                table = LakeTable.open(folder, stored, self._guard, version)
                refuse_other_version(folder, table.version, view.location.version)
            self._open[view.table] = table
        return self._open[view.table]

    def _redone_version(self, version: int) -> int | None:
        """At which version a table is opened: where entries are never removed, some may be beyond
        the head, and redo finds them again."""
        return version if storage_of(self._views).has_lasting_journal else None

    def active_files(self, view: ViewHead) -> tuple[ActiveFile, ...]:
        """The files of a view's newest version; a CorruptError if its log has other ones."""
        files = self.table_of(view).active_files()
        check_list(self.folder_of(view.table), view, files)
        return files

    @contextmanager
    def noting_damage(self, view: str) -> Iterator[None]:
        """Note what cannot be believed of a view, and go on."""
        try:
            yield
        except CorruptError as error:
            self.damaged[view] = error

    def redo_record(self, head: Head, record: Record) -> Head:
        """Bring the tables to a record; the head that then holds."""
        locations: dict[str, TableLocation] = {}
        for change in record.changes:
            if change.view in self.damaged and not isinstance(change, Create | Drop):
                continue
            self.damaged.pop(change.view, None)
            match change:
                case Create():
                    locations[change.view] = self._redo_create(change, record)
                case Advance() if change.files:
                    locations[change.view] = self._redo_advance(head.views, change, record)
                case Rewrite():
                    locations[change.view] = self._redo_rewrite(head.views, change, record)
                case Redefine():
                    locations[change.view] = self._redo_redefine(head.views, change, record)
                case Advance() | Stop() | Resume() | Refresh() | Drop():
                    pass
                case _:
                    assert_never(change)
        after = heads.advance_head(head, record, locations)
        for change in record.changes:
            if isinstance(change, Create) and not after.views[change.view].is_inner:
                link_table(self._views, change.view, change.table, self._guard)
        return after

    def redo_flush(self, head: Head, flush: TableFlush) -> Head:
        """Bring the tables to a flush; `head` is that of the record through which it reaches."""
        assert head.record == flush.record, "a flush is of one head"
        views = dict(head.views)
        for name, view in head.views.items():
            file = flush.files.get(name)
            if file is None or name in self.damaged:
                views[name] = replace(view, unflushed=())
                continue
            version = self.table_of(view).commit(flush.record, flush.at, [file])
            at = _location_after(view, version, [file])
            views[name] = replace(view, location=at, files=view.files + 1, unflushed=())
        return replace(head, views=views)

    def _redo_create(self, change: Create, record: Record) -> TableLocation:
        folder = self.folder_of(change.table)
        stored = stored_schema(change.schema)
        if not storage_of(folder).has_lasting_journal:
            # Whatever is there was left by an attempt at this very record.
            delta_log.cut_back(folder, delta_log.NOTHING)
        at = record.committed_at
        table = LakeTable.create(folder, stored, change.view, at, self._guard)
        self._open[change.table] = table
        version = table.commit(record.n, record.committed_at, change.files)
        return TableLocation(version, None, list_digest(change.files))

    def _redo_advance(
        self, views: Mapping[str, ViewHead], change: Advance, record: Record
    ) -> TableLocation:
        view = views[change.view]
        version = self.table_of(view).commit(record.n, record.committed_at, change.files)
        return _location_after(view, version, change.files)

    def _redo_redefine(
        self, views: Mapping[str, ViewHead], change: Redefine, record: Record
    ) -> TableLocation:
        view = views[change.view]
        same = change.schema.equals(view.schema)
        if same and not change.files:
            return view.location
        table, stored = self.table_of(view), stored_schema(change.schema)
        if same:
            version = table.commit(record.n, record.committed_at, change.files)
        else:
            version = table.commit_schema(record.n, record.committed_at, stored, change.files)
            folder = self.folder_of(view.table)
            redone = self._redone_version(version)
            self._open[view.table] = LakeTable.open(folder, stored, self._guard, redone)
        return _location_after(view, version, change.files)

    def _redo_rewrite(
        self, views: Mapping[str, ViewHead], change: Rewrite, record: Record
    ) -> TableLocation:
        view = views[change.view]
        if not change.files and not change.removes:
            return view.location
        table = self.table_of(view)
        gone = {file.path: file for file in table.active_files() if file.path in {*change.removes}}
        table.commit(record.n, record.committed_at, change.files, change.removes, rows_change=False)
        checkpoint, listed = table.write_checkpoint(), view.location.listed
        if listed is not None:
            listed = list_digest([*gone.values(), *change.files], listed)
        return TableLocation(table.version, checkpoint, listed)


def _location_after(view: ViewHead, version: int, files: Sequence[DataFile]) -> TableLocation:
    """Where a table is after files were added to it; what was not digested before stays so."""
    at = view.location
    listed = None if at.listed is None else list_digest(files, at.listed)
    return TableLocation(version, at.checkpoint, listed)
