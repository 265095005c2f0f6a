"""Small commits by one durable append, and the flush that brings them into the tables.

A commit is frames in the journal: the plan, the rows, the record, in one write and one sync. Then
the mark shows them to readers, and the head in memory is the next one. No data file is written, no
log and no `head.json`: that is the flush, for all commits since the last one together.

The order of a flush, each step durable before the next: one data file per changed table; the plans
and records, in their folders; the frame that names the files; one log entry per table, with the
record through which the flush reaches as its application transaction; `head.json`, which names the
place in the journal behind that record. Commits are made meanwhile, so a flush may leave some for
the next one. Where it dies, the next start finishes it from the journal (`resume_journal`).

What must hold:

1. What is acknowledged to a source, or shown to a reader, is durable.
2. A plan comes before every record that may name its ts, in the same journal. So a plan needs no
   sync of its own: without a record, nobody has seen its ts. Where somebody does see it before
   (`plans_first`), it is synced at once.
3. Rows in the journal have the present schema of their view, and every file that a rewrite or
   compaction reads is a data file: whatever else is committed is preceded by a flush.
4. A process that lost its lock shows nothing and acknowledges nothing (`JournalWriter`).

The engine calls `flush_tables` from a thread of its own. Two locks keep that apart from commits:
the flush has one of its own, taken first, and commits are short.

The journal has one segment at a time. It is made when it is first needed, and `head.json` names it
before anything is written to it. It ends when everything in it is in tables and `head.json` names
another one, or none; a reader that still has the older head does not find it, and reads the head
again.

A process that has lost its lock must not make others believe anything. The lock is confirmed before
a write and again after its sync: if it was still held then, whoever takes over has read the write,
because the journal is read after the lock is taken; if not, nothing is shown or acknowledged.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from viewkeeper.errors import WarehouseError
from viewkeeper.storage import stored_files
from viewkeeper.storage.disk import Guard
from viewkeeper.storage.journal_file import BEGIN, Frame, Mark, damaged_error
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.storage_protocol import JournalSegment
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.warehouse.lake.data_files import describe_rows, write_rows
from viewkeeper.warehouse.metadata import plan_files
from viewkeeper.warehouse.metadata.head import (
    NAME,
    Head,
    ViewHead,
    advance_by_journal,
    advance_head,
    encode_head,
)
from viewkeeper.warehouse.metadata.plan_files import BatchPlan, encode_plan
from viewkeeper.warehouse.metadata.record import (
    FLUSH,
    FOLDER,
    KEPT,
    KEPT_NAME,
    PLAN,
    Advance,
    DataFile,
    JournalPlace,
    JournalTail,
    Record,
    Resume,
    Stop,
    TableFlush,
    ViewChange,
    decode_tail,
    encode_commit,
    encode_flush,
    encode_kept,
    is_rows_name,
    is_small,
    new_rows_name,
    read_kept,
    rows_names_of,
)
from viewkeeper.warehouse.redo import OpenTables

SEGMENT_BYTES = 8 << 20
SEGMENT_END = 4 << 20
"""So large is a segment when it is made; from there on the next flush begins a new one."""


class JournalWriter:
    """The segment of a warehouse that is open for writing, if there is one."""

    def __init__(self, root: StoragePath, guard: Guard) -> None:
        self._root = root
        self._guard = guard
        self._storage = storage_of(root)
        self._file: JournalSegment | None = None
        self._going = range(0)
        """Numbers of a lasting journal that were flushed before the last flush, or go with it."""
        self.failure: BaseException | None = None
        """What failed, after which only another start can say what holds."""

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def is_lasting(self) -> bool:
        """Whether there is one journal without end, by which everything is committed."""
        return self._storage.has_lasting_journal

    def continue_journal(self, at: JournalPlace) -> None:
        """Write to a lasting journal, from a place on."""
        self._file = self._storage.commits.continue_journal(at.path_below(self._root), at.mark)
        self._going = range(at.offset, at.offset)

    @property
    def is_long(self) -> bool:
        """Whether it is time for a new segment."""
        if self._file is None or self.is_lasting:
            return False
        return self._file.end.offset >= SEGMENT_END

    @property
    def place(self) -> JournalPlace | None:
        """Where the next frame will be."""
        if self._file is None:
            return None
        return JournalPlace(self._file.path.name, self._file.end.offset, self._file.end.sequence)

    def begin_segment(self, head: Head, frames: Sequence[tuple[int, bytes]] = ()) -> Head:
        """Write to a new segment from now on, which has these frames; everything before them is in
        `head`. The same head, naming the segment."""
        stored_files.make_folder(self._root / FOLDER)
        unique = uuid.uuid4()
        name = f"{head.record + 1:020d}-{unique.hex[:8]}.vkj"
        number = unique.int >> 64
        file = self._storage.commits.create_segment(
            self._root / FOLDER, name, number, SEGMENT_BYTES
        )
        if frames:
            file.show_mark(file.append_frames(frames))
        named = replace(head, journal=JournalPlace(name, BEGIN.offset, BEGIN.sequence))
        self.write_head(named)
        self.remove_segment()
        self._file = file
        return named

    def copy_frames(self, head: Head, frames: Sequence[Frame]) -> tuple[Head, JournalTail]:
        """Begin a segment with frames that another process has left; the head, and the tail.

        They are written again because a sync of theirs may have failed, and because that process
        may still live and not know that it has lost its lock.
        """
        named = self.begin_segment(head, [(frame.kind, frame.data) for frame in frames])
        assert self._file is not None
        path = self._file.path
        return named, decode_tail(read_left(path, BEGIN, self._guard), path)

    def append_frames(self, frames: Sequence[tuple[int, bytes]]) -> None:
        """Make frames durable and show them to readers."""
        assert self._file is not None
        self._guard()
        try:
            mark = self._file.append_frames(frames)
        except BaseException as error:
            if not self._file.is_usable:
                self.failure = error
            raise
        with self.doubting():
            self._guard()
            self._file.show_mark(mark)

    @contextmanager
    def doubting(self) -> Iterator[None]:
        """What fails in here may have happened or not."""
        try:
            yield
        except BaseException as error:
            self.failure = error
            raise

    def refuse_failed(self) -> None:
        """A WarehouseError if something failed: what was under way must not be done half again."""
        if self.failure is not None:
            raise WarehouseError(
                f'warehouse "{self._root}": an earlier commit was interrupted',
                detail=" ".join(str(self.failure).split()) or None,
                hint="open the warehouse again: that finishes or forgets it, then go on",
            ) from self.failure

    def write_head(self, head: Head) -> None:
        """Replace `head.json`."""
        with self.doubting():
            stored_files.replace_file(self._root / NAME, encode_head(head), self._guard)
        if self.is_lasting:
            self._remove_flushed(head)

    def _remove_flushed(self, head: Head) -> None:
        """Remove the parts of a lasting journal that the head of before had in tables already.

        Those that only this one has stay until the next flush, for readers of the one before.
        """
        assert self._file is not None
        assert head.journal is not None
        going, at = self._going, head.journal.offset
        # What is left is removed at the next start.
        with suppress(WarehouseError):
            self._storage.commits.remove_numbers(self._file.path, going)
        self._going = range(going.stop, max(going.stop, at))

    def remove_segment(self) -> None:
        """Remove the segment, which no head names any more."""
        before, self._file = self._file, None
        if before is not None:
            before.close()
            stored_files.remove_file(before.path)

    def abandon_segment(self) -> None:
        """Leave the segment to the next start."""
        before, self._file = self._file, None
        if before is not None:
            before.close()


ROWS_BYTES = 1 << 20
"""Larger changes are data files at once."""

UNFLUSHED_ROWS = 5_000
UNFLUSHED_BYTES = 8 << 20
"""Beyond so much a commit waits for a flush."""

MakeLock = Callable[[], AbstractContextManager[object]]


@dataclass(slots=True)
class NextCommit:
    """What waits for the next record: rows by the names that it will have for them, and a plan."""

    rows: dict[str, pa.Table] = field(default_factory=dict)
    plan: BatchPlan | None = None
    count: int = 0
    record: int = 0

    def hold_rows(self, record: int, schema: pa.Schema, rows: pa.Table) -> DataFile:
        """Keep rows; how the record will name and describe them."""
        if record != self.record:
            # Views that failed have left some that no record has named.
            self.rows.clear()
            self.record = record
        self.count += 1
        name = new_rows_name(record, self.count)
        self.rows[name], described = describe_rows(rows, schema, name)
        return described


@dataclass(frozen=True, slots=True)
class Unflushed:
    """Plans and records that the journal has and their folders have not."""

    plans: tuple[BatchPlan, ...] = ()
    records: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True)
class LastingTail:
    """A lasting journal, open for writing, and what it has behind the last flush."""

    journal: JournalWriter
    head: Head
    unflushed: Unflushed


class GroupCommit:
    """The small commits of a warehouse that is open for writing; there are none before `begin`."""

    def __init__(
        self,
        root: StoragePath,
        tables: OpenTables,
        head: Head,
        guard: Guard,
        tail: LastingTail | None = None,
    ) -> None:
        """`tail` is what a lasting journal has behind the head."""
        self._root = root
        self._tables = tables
        self._guard = guard
        self.journal = tail.journal if tail else JournalWriter(root, guard)
        self._flushing: AbstractContextManager[object] = nullcontext()
        self._mutex: AbstractContextManager[object] = nullcontext()
        self._plans_first: bool | None = None
        self.head = tail.head if tail else head
        """The newest head, with the rows that are not in tables yet."""
        self._flushed = head
        self._next = NextCommit()
        self._unflushed = tail.unflushed if tail else Unflushed()
        self._write_first: Callable[[], None] = lambda: None

    def begin(self, make_lock: MakeLock, *, plans_first: bool = False) -> None:
        """Take small commits from now on.

        Somebody else calls `flush_tables` now and then, in a thread that the locks keep apart from
        this one. `plans_first`: a ts may be seen by others before the record that it is for.
        """
        assert not self.is_on, "once is enough"
        self._flushing, self._mutex = make_lock(), make_lock()
        self._plans_first = plans_first

    def end(self) -> None:
        """Flush, take no more small commits, and leave no journal behind."""
        with self._flushing, self._mutex:
            if self.journal.is_lasting:
                self.flush_tables()
            elif self.journal.is_open:
                self.flush_tables()
                self._flushed = replace(self._flushed, journal=None)
                self.journal.write_head(self._flushed)
                self.head = replace(self.head, journal=None)
                self.journal.remove_segment()
            self._plans_first = None

    @property
    def is_on(self) -> bool:
        return self._plans_first is not None

    def confirm_usable(self) -> None:
        """A WarehouseError if something failed after which only another start can go on."""
        self.journal.refuse_failed()

    # -- rows and plans of the next commit -----------------------------------------------------

    def keep_rows(
        self, folder: StoragePath, schema: pa.Schema, rows: pa.Table, batch: int, part: int
    ) -> DataFile:
        """Signed rows of a table for the next record: in the journal if they are few, else as a
        data file; `schema` is that of the view's rows."""
        if not self.is_on or not is_for_journal(rows):
            return write_rows(folder, schema, rows, batch, part)
        return self._next.hold_rows(self.head.record + 1, schema, rows)

    def held_rows(self, name: str) -> pa.Table:
        """Rows that are kept for the next record."""
        return self._next.rows[name]

    def hold_plan(self, plan: BatchPlan, *, is_first: bool = False) -> None:
        """Take a plan, which is written with the next record, or at once if others may see it, or
        if it `is_first` in any case."""
        self._next.plan = plan
        if self._plans_first or is_first:
            with self._mutex:
                self._append_frames([])

    def can_take(self, changes: Sequence[ViewChange]) -> bool:
        """Whether changes are small enough for the journal: no view begins or ends, gets other
        columns or other files."""
        if not self.is_on:
            return False
        if not all(isinstance(change, Advance | Stop | Resume) for change in changes):
            return False
        files = [f for c in changes if isinstance(c, Advance) for f in c.files]
        size = sum(file.size for file in files)
        return size <= ROWS_BYTES and all(is_rows_name(file.path) for file in files)

    def store_held(self, changes: Iterable[ViewChange]) -> tuple[ViewChange, ...]:
        """The same changes, with data files for the rows that were kept for the journal."""
        return tuple(
            replace(change, files=tuple(self._stored_file(change.view, f) for f in change.files))
            if isinstance(change, Advance)
            else change
            for change in changes
        )

    def _stored_file(self, view: str, file: DataFile) -> DataFile:
        if not is_rows_name(file.path):
            return file
        return self._write_file(self.head.views[view], [self._next.rows.pop(file.path)])

    def _write_file(self, view: ViewHead, pieces: Sequence[pa.Table]) -> DataFile:
        folder = self._tables.folder_of(view.table)
        return write_rows(folder, view.schema, pa.concat_tables(pieces), self.head.record, 0)

    # -- commits -------------------------------------------------------------------------------

    def commit_record(self, record: Record, kept: Sequence[bytes] = ()) -> None:
        """Commit a record that is small enough, and whose rows are kept.

        `kept` goes along: what is written by another hand before the next flush.
        """
        with self._mutex:
            rows = {name: self._next.rows[name] for name in rows_names_of(record)}
            taken = [(KEPT, data) for data in kept]
            self._append_frames([*taken, *encode_commit(record, rows)])
            if is_small(record):
                head = advance_head(self.head, record, {}, rows)
                self.head = replace(head, journal=self.journal.place)
            known = self._unflushed
            self._unflushed = replace(known, records=(*known.records, record))
            for name in rows:
                del self._next.rows[name]
        if self._has_too_much():
            # What is committed stays so; who commits next is told why that flush has failed.
            with suppress(WarehouseError):
                self.flush_tables()

    def _append_frames(self, frames: Sequence[tuple[int, bytes]]) -> None:
        """Make frames durable; a plan that waits is written before them."""
        if not self.journal.is_open:
            self._flushed = self.journal.begin_segment(self._flushed)
        plan, known = self._next.plan, self._unflushed
        plans = [(PLAN, encode_plan(plan))] if plan is not None else []
        self.journal.append_frames([*plans, *frames])
        if plan is not None:
            self._unflushed = replace(known, plans=(*known.plans, plan))
            self._next.plan = None

    def follow_head(self, head: Head) -> None:
        """The tables have a record that was committed beside the journal, or that changes tables
        and is in a lasting journal: what else only that has is written, and the head."""
        if self.journal.is_lasting:
            head, taken = replace(head, journal=self.journal.place), self._unflushed
            with self.journal.doubting():
                write_numbered(self._root, head, taken, self._guard)
            self.journal.write_head(head)
            self._unflushed = Unflushed()
        self.head = self._flushed = head

    # -- the flush -----------------------------------------------------------------------------

    def _has_too_much(self) -> bool:
        """Whether there is so much that no table has that the next commit has to wait."""
        pieces = [each.file for view in self.head.views.values() for each in view.unflushed]
        rows, size = sum(each.rows for each in pieces), sum(each.size for each in pieces)
        return rows >= UNFLUSHED_ROWS or size >= UNFLUSHED_BYTES

    def flush_tables(self) -> None:
        """Bring everything that is committed so far into the tables."""
        with self._flushing:
            self.confirm_usable()
            with self.journal.doubting():
                self._write_first()
            if not self.journal.is_long:
                self._flush_unflushed()
                return
            with self._mutex:
                # Nothing is committed meanwhile, so that a new segment can begin empty.
                with self.journal.doubting():
                    self._write_first()
                self._flush_unflushed()
                self._flushed = self.journal.begin_segment(self.head)
                self.head = self._flushed

    @contextmanager
    def flushed(self) -> Iterator[None]:
        """Everything is in the tables, and nothing is committed by others meanwhile.

        A plan that waited for the next record is a file of its own then.
        """
        with self._flushing, self._mutex:
            self.flush_tables()
            if self._next.plan is not None and not self.journal.is_lasting:
                plan_files.write_plan(self._root, self._next.plan, self._guard)
                self._next.plan = None
            yield

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """No flush changes the tables meanwhile."""
        with self._flushing:
            yield

    def write_before_flush(self, write: Callable[[], None]) -> None:
        """Call this first in every flush: it writes what commits have taken along."""
        self._write_first = write

    @contextmanager
    def left_changes(self) -> Iterator[list[bytes]]:
        """What commits of a process that died have taken along; forgotten when the block ends."""
        yield read_kept(self._root)
        stored_files.remove_file(self._root / FOLDER / KEPT_NAME)

    def _flush_unflushed(self) -> None:
        with self._mutex:
            head, taken = self.head, self._unflushed
            if head.record == self._flushed.record and not taken.plans:
                return
            self._unflushed = Unflushed()
        with self.journal.doubting():
            files = {
                name: self._write_file(view, [each.rows for each in view.unflushed])
                for name, view in head.views.items()
                if view.unflushed and name not in self._tables.damaged
            }
            if not self.journal.is_lasting:
                write_numbered(self._root, head, taken, self._guard)
                taken = Unflushed()
            flush = TableFlush(head.record, head.committed_at, files)
            with self._mutex:
                self.journal.append_frames([(FLUSH, encode_flush(flush))])
            self._finish_flush(head, flush, taken)

    def _finish_flush(self, head: Head, flush: TableFlush, taken: Unflushed) -> None:
        """Everything after the frame of a flush: logs, `head.json`, the head in memory.

        Plans and records of a lasting journal follow the frame too: who has lost its lock then
        writes the same files as its successor, or none.
        """
        flushed = self._tables.redo_flush(head, flush)
        write_numbered(self._root, head, taken, self._guard)
        self.journal.write_head(flushed)
        with self._mutex:
            self._flushed = flushed
            self.head = merge_flushed(self.head, flushed)

    def resume_journal(self, frames: Sequence[Frame]) -> None:
        """Flush what another process has left, after a copy of it was made in a new segment."""
        self._flushed, tail = self.journal.copy_frames(self._flushed, frames)
        leave_kept(self._root, tail.kept, self._guard)
        records = tail.records
        for flush in tail.flushes:
            before = [each for each in records if each.record.n <= flush.record]
            if flush.record > self._flushed.record:
                reached = advance_by_journal(self._flushed, replace(tail, records=(*before,)))
                self._finish_flush(reached, flush, Unflushed())
            records = records[len(before) :]
        newest = advance_by_journal(self._flushed, replace(tail, records=records))
        self.head = replace(newest, journal=self.journal.place)
        _, through, plans = plan_files.load_plan_files(self._root)
        last = plans[-1].n if plans else through
        found = [plan_files.decode_plan(data, self._root / FOLDER) for data in tail.plans]
        through, stored = plan_files.load_record_files(self._root)
        newest_stored = stored[-1].n if stored else through
        self._unflushed = Unflushed(
            tuple(plan for plan in found if plan.n > last),
            tuple(each.record for each in records if each.record.n > newest_stored),
        )
        self.end()

    def abandon_journal(self) -> None:
        """Leave everything to the next start."""
        self.journal.abandon_segment()


def read_left(path: StoragePath, after: Mark, guard: Guard) -> list[Frame]:
    """The frames of a segment, for a process that takes over."""
    try:
        return storage_of(path).commits.read_prefix(path, after)
    except FileNotFoundError as error:
        # Whoever has taken the lock over from us has removed it, after a copy.
        guard()
        raise damaged_error(path, "the file is missing") from error


def is_for_journal(rows: pa.Table) -> bool:
    """Whether rows are few enough for the journal."""
    return rows.nbytes <= ROWS_BYTES and rows.num_rows <= UNFLUSHED_ROWS


def leave_kept(root: StoragePath, kept: Sequence[bytes], guard: Guard) -> None:
    """Leave what commits have taken along where `left_changes` finds it."""
    if kept:
        found = encode_kept([*read_kept(root), *kept])
        stored_files.replace_file(root / FOLDER / KEPT_NAME, found, guard)


def write_numbered(root: StoragePath, head: Head, taken: Unflushed, guard: Guard) -> None:
    """Plans and records into their folders; a plan without its record is a file of its own."""
    done = [plan for plan in taken.plans if plan.n <= head.plan]
    plan_files.write_plans(root, done, guard)
    for plan in taken.plans[len(done) :]:
        plan_files.write_plan(root, plan, guard)
    plan_files.write_records(root, taken.records, guard)


def merge_flushed(newest: Head, flushed: Head) -> Head:
    """The newest head, once everything up to another one is in tables."""
    views = dict(newest.views)
    for name, view in flushed.views.items():
        left = tuple(each for each in views[name].unflushed if each.record > flushed.record)
        views[name] = replace(views[name], location=view.location, files=view.files, unflushed=left)
    return replace(newest, views=views)
