"""What a record must be like before it is committed: afterwards it is too late.

A record is checked against the head that it follows: views never go back, nothing is committed
twice, and every data file is on disk as the record says. Whatever does not hold is a mistake of
ours, an assertion; only a view whose files are damaged refuses with that error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

import pyarrow as pa

from viewkeeper.warehouse.lake import data_files
from viewkeeper.warehouse.metadata.head import Head, ViewHead
from viewkeeper.warehouse.metadata.record import (
    Advance,
    Create,
    DataFile,
    Drop,
    Record,
    Redefine,
    Resume,
    Rewrite,
    Stop,
)
from viewkeeper.warehouse.redo import OpenTables


class RecordCheck:
    """Checks the record that follows a head; `next_ts` is the first ts that nothing has yet."""

    def __init__(self, head: Head, tables: OpenTables, next_ts: int) -> None:
        self._head = head
        self._tables = tables
        self._next_ts = next_ts

    def check_record(self, record: Record) -> None:
        """Believe nothing before the commit point; afterwards it is too late."""
        for change in record.changes:
            if change.view in self._tables.damaged and isinstance(
                change, Advance | Rewrite | Redefine
            ):
                raise self._tables.damaged[change.view]
            match change:
                case Create():
                    self._check_create(change)
                case Advance():
                    self._check_advance(change)
                case Rewrite():
                    self._check_rewrite(change)
                case Redefine():
                    self._check_redefine(change)
                case Drop():
                    assert change.table == self._head.require_view(change.view).table
                case Stop() | Resume():
                    self._head.require_view(change.view)
                case _:
                    assert_never(change)

    def _check_create(self, change: Create) -> None:
        old = self._head.views.get(change.view)
        assert change.replaces == (old.table if old else None), "a view is replaced by name"
        assert all(f.ts_min == f.ts_max == change.ts for f in change.files)
        assert {*change.schema.names} > {*change.hidden}, "a view shows some of its columns"
        self._check_files(change.table, change.schema, change.files)

    def _check_advance(self, change: Advance) -> None:
        view = self._head.require_view(change.view)
        assert change.ts >= view.ts, "a view never goes back"
        ahead = {*change.ahead}
        assert all(ts in ahead or ts <= change.ts for ts in view.ahead), "nothing is taken back"
        assert not ahead or max(ahead) < self._next_ts, "only what has its ts can be ahead"
        self._check_files(view.table, view.schema, change.files)
        for file in change.files:
            assert view.ts < file.ts_min, "everything up to the mark is there already"
            for ts in self._stamps_of(view, change, file):
                assert ts not in view.ahead, f"ts {ts} is there already"
                assert ts <= change.ts or ts in ahead, f"ts {ts} is above the mark, not ahead of it"

    def _stamps_of(self, view: ViewHead, change: Advance, file: DataFile) -> Iterable[int]:
        """The ts in a file, as far as they matter; read only where its ends do not tell."""
        if file.ts_min == file.ts_max or (file.ts_max <= change.ts and not view.ahead):
            return {file.ts_min, file.ts_max}
        return data_files.read_stamps(self._tables.folder_of(view.table) / file.path)

    def _check_rewrite(self, change: Rewrite) -> None:
        view = self._head.require_view(change.view)
        active = {file.path for file in self._tables.active_files(view)}
        assert active.issuperset(change.removes), "a rewrite of files that are gone"
        self._check_files(view.table, view.schema, change.files)

    def _check_redefine(self, change: Redefine) -> None:
        view = self._head.require_view(change.view)
        assert change.ts >= (view.reach_ts if change.files else view.ts), "a view never goes back"
        assert not change.files or change.ts > view.ts, "what is repaired is another state"
        assert all(f.ts_min == f.ts_max == change.ts for f in change.files)
        assert {*change.schema.names} > {*change.hidden}, "a view shows some of its columns"
        self._check_files(view.table, change.schema, change.files)

    def _check_files(self, table: str, schema: pa.Schema, added: Sequence[DataFile]) -> None:
        stored = data_files.stored_schema(schema)
        for file in added:
            data_files.check_file(self._tables.folder_of(table), stored, file)
