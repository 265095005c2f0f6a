"""What a start does in a warehouse whose journal has no end: finish what it has behind the head.

Everything there is committed by the journal, small records and those that change tables alike, so
the journal alone says what holds. After a holder that has not given the lock back it is sealed
first: what was in it before counts, and nothing can come any more.

Then its parts are gone through in their order. A record that changes tables is redone; a flush is
finished with the files that it names; small records without a flush are flushed now. Whatever is
written has the name and the content that the last holder would have given it, because both follow
from the journal: log entries beyond the head, files of plans and records that are there already,
and those that a holder without a lock still writes, are the same.

What nobody knows is removed if its name says that it is of an earlier epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from viewkeeper.storage import stored_files
from viewkeeper.storage.disk import Guard
from viewkeeper.storage.journal_file import Frame
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.warehouse.group_commit import (
    GroupCommit,
    JournalWriter,
    LastingTail,
    Unflushed,
    leave_kept,
    write_numbered,
)
from viewkeeper.warehouse.lake.verified_files import PATTERN, epoch_of_name
from viewkeeper.warehouse.metadata import plan_files
from viewkeeper.warehouse.metadata.head import Head, advance_by_journal, read_flushed_head
from viewkeeper.warehouse.metadata.plan_files import BatchPlan
from viewkeeper.warehouse.metadata.record import (
    FOLDER,
    JOURNAL_BEGIN,
    JournalPlace,
    JournalRecord,
    JournalTail,
    Record,
    TableFlush,
    decode_tail,
)
from viewkeeper.warehouse.metadata.unfinished_load import unfinished_tables
from viewkeeper.warehouse.recovery import (
    check_lists,
    empty_folder,
    refuse_gap,
    removed_files,
    retired_tables,
)
from viewkeeper.warehouse.redo import OpenTables


def recover_lasting(
    root: StoragePath, tables: OpenTables, guard: Guard, is_after_death: bool
) -> GroupCommit:
    """Bring a warehouse to the last record of its journal, which is open for writing then."""
    commits, head = storage_of(root).commits, read_flushed_head(root)
    begin = head.journal or JOURNAL_BEGIN
    folder = begin.path_below(root)
    read = commits.seal_journal if is_after_death else commits.read_shown
    end, frames = read(folder, begin.mark)
    for view in head.views.values():
        with tables.noting_damage(view.view):
            tables.active_files(view)
    recovery = LastingRecovery(root, tables, replace(head, journal=begin), guard)
    group = recovery.finish_parts(frames, begin.moved_to(end))
    group.flush_tables()
    group.follow_head(check_lists(tables, group.head))
    through, records = plan_files.load_record_files(root)
    refuse_gap(root, group.head, through, records)
    remove_earlier(tables, root, group.head, records, guard)
    commits.remove_older(folder, (group.head.journal or begin).offset)
    empty_folder(stored_files.local_folder(root) / "spool", guard)
    return group


class LastingRecovery:
    """One start: the head as far as tables have followed, and what waits to be written."""

    def __init__(self, root: StoragePath, tables: OpenTables, head: Head, guard: Guard) -> None:
        self._root = root
        self._tables = tables
        self._guard = guard
        self._journal = JournalWriter(root, guard)
        self._flushed = head
        self._records: list[JournalRecord] = []
        self._plans: list[BatchPlan] = []

    def finish_parts(self, frames: Sequence[Frame], end: JournalPlace) -> GroupCommit:
        """Finish what the journal has in its parts; small records at its end are left."""
        place = self._root / FOLDER
        self._journal.continue_journal(end)
        leave_kept(self._root, decode_tail(frames, place).kept, self._guard)
        for part in _decode_parts(frames, place):
            self._plans += [plan_files.decode_plan(data, place) for data in part.plans]
            for each in part.records:
                if each.is_beside:
                    self._redo_record(each)
                else:
                    self._records.append(each)
            for flush in part.flushes:
                if flush.record > self._flushed.record:
                    self._redo_flush(flush)
        newest = advance_by_journal(self._flushed, JournalTail((), tuple(self._records)))
        missing = self._missing_files(self._records)
        tail = LastingTail(self._journal, replace(newest, journal=end), missing)
        return GroupCommit(self._root, self._tables, self._flushed, self._guard, tail)

    def _redo_record(self, each: JournalRecord) -> None:
        assert not self._records, "what changes tables comes after a flush"
        assert self._flushed.journal is not None
        head = self._tables.redo_record(self._flushed, each.record)
        self._write_head(replace(head, journal=self._flushed.journal.moved_to(each.end)), [each])

    def _redo_flush(self, flush: TableFlush) -> None:
        done = [each for each in self._records if each.record.n <= flush.record]
        reached = advance_by_journal(self._flushed, JournalTail((), tuple(done)))
        self._records = self._records[len(done) :]
        self._write_head(self._tables.redo_flush(reached, flush), done)

    def _write_head(self, head: Head, done: Sequence[JournalRecord]) -> None:
        """Write plans and records that are not there yet, then the head."""
        write_numbered(self._root, head, self._missing_files(done), self._guard)
        self._plans.clear()
        self._flushed = head
        self._journal.write_head(head)

    def _missing_files(self, records: Sequence[JournalRecord]) -> Unflushed:
        """The plans so far, and some records, as far as their folders have them not."""
        _, through, known = plan_files.load_plan_files(self._root)
        last_plan = known[-1].n if known else through
        through, stored = plan_files.load_record_files(self._root)
        last_record = stored[-1].n if stored else through
        return Unflushed(
            tuple(plan for plan in self._plans if plan.n > last_plan),
            tuple(each.record for each in records if each.record.n > last_record),
        )


def _decode_parts(frames: Sequence[Frame], place: StoragePath) -> Iterator[JournalTail]:
    """What the parts of a lasting journal stand for, one after the other."""
    for _, part in groupby(frames, key=lambda frame: frame.sequence):
        yield decode_tail(part, place)


def remove_earlier(
    tables: OpenTables, root: StoragePath, head: Head, records: Sequence[Record], guard: Guard
) -> None:
    """Remove data files of earlier epochs that neither the head nor a kept record knows.

    Those of unfinished loads stay. A process that finds a load gone because another one has
    committed it holds the lock no more, and is refused before it removes anything.
    """
    epoch = storage_of(root).epoch
    known = {view.table: view for view in head.views.values()}
    kept = set(retired_tables(records)) | unfinished_tables(root)
    removed = {path for _, path in removed_files(records)}
    used = {
        (view.table, file.path)
        for view in head.views.values()
        if view.view not in tables.damaged
        for file in tables.active_files(view)
    }
    for path in (root / "views").rglob(PATTERN):
        table, view = path.parent.name, known.get(path.parent.name)
        is_damaged = view is not None and view.view in tables.damaged
        if is_damaged or table in kept or path.name in removed or (table, path.name) in used:
            continue
        if epoch_of_name(path.name) < epoch:
            guard()
            stored_files.remove_file(path)
