"""The warehouse as its one writer sees it.

`Store.open` takes the lock and recovers; from then on the head is the truth. A batch is:
`write_plan`, work, `commit` with that plan's number. Nothing of a batch is visible before its
record, all of it is after the head. Small commits can go into the journal, and the tables follow
(`group_commit`). If anything fails once the record may have been written,
the store refuses further commits: opening it again finds out from the disk what holds, and finishes
it.

A record is checked against the head that it follows: views never go back, nothing is committed
twice, and every data file is on disk as the record says. Whatever does not hold is a mistake of
ours, an assertion; only a view whose files are damaged refuses with that error.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import assert_never

import pyarrow as pa

from viewkeeper.errors import CorruptError, LockedError, WarehouseError, reload_hint
from viewkeeper.storage import disk, stored_files
from viewkeeper.storage.disk import Guard
from viewkeeper.storage.local_lock import LockHolder
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.storage_protocol import Clock, HeldLock
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.storage.warehouse_address import require_address
from viewkeeper.updates.source_protocol import TS
from viewkeeper.warehouse.group_commit import GroupCommit
from viewkeeper.warehouse.lake import data_files
from viewkeeper.warehouse.lake.lake_table import LakeTable
from viewkeeper.warehouse.lake.listed_files import ActiveFile
from viewkeeper.warehouse.lasting_recovery import recover_lasting
from viewkeeper.warehouse.metadata import plan_files
from viewkeeper.warehouse.metadata.head import NAME, Head, ViewHead, encode_head, owner_of
from viewkeeper.warehouse.metadata.plan_files import BatchPlan, Ledger
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
    ViewChange,
)
from viewkeeper.warehouse.recovery import FOLDERS, NAMED, recover_warehouse
from viewkeeper.warehouse.redo import OpenTables


class RecordCheck:
    """Checks the record that follows a head; `next_ts` is the first ts that nothing has yet.

    `held_rows` gives rows that the record will put into the journal, by their names.
    """

    def __init__(
        self,
        head: Head,
        tables: OpenTables,
        next_ts: int,
        held_rows: Callable[[str], pa.Table] | None = None,
    ) -> None:
        self._head = head
        self._tables = tables
        self._next_ts = next_ts
        self._held_rows = held_rows

    def check_guarded(self, record: Record, pending: BatchPlan | None, guard: Guard) -> None:
        """The same, of a record that finishes at most the plan that is open."""
        try:
            assert record.plan is None or (pending and record.plan == pending.n)
            self.check_record(record)
        except (AssertionError, CorruptError):
            # Where somebody else has taken over, what we know need not be true any more.
            guard()
            raise

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
                case Stop() | Resume() | Refresh():
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
        if self._held_rows is not None:
            return {int(ts) for ts in self._held_rows(file.path)[TS].to_numpy()}
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
            if self._held_rows is not None:
                assert self._held_rows(file.path).schema.equals(stored), "rows of another shape"
            else:
                data_files.check_file(self._tables.folder_of(table), stored, file)


def _take_lock(
    root: StoragePath, command: str, now: Clock, steady: Clock, over: object = None
) -> HeldLock:
    holder = LockHolder.this_process(command, now())
    return storage_of(root).commits.take_lock(root, holder, steady, over)


def has_barrier(plan: BatchPlan) -> bool:
    """Whether a plan names what views must find in the ledger whatever happens to its work."""
    return any(e.emptied or e.keyed or e.reshaped or e.gap for e in plan.entries)


def _read_marks(root: StoragePath, head: Head, tables: OpenTables) -> tuple[object, ...]:
    """What differs once anybody has committed, cleaned up, or removed something here.

    Every commit gives the head another file. What folders hold is told by their time, and what is
    kept of sources by that of the files.
    """
    tables_of_views = [tables.folder_of(view.table) for view in head.views.values()]
    return storage_of(root).read_marks(root, (NAME, *NAMED, "views"), tables_of_views)


def _recover_group(
    root: StoragePath, tables: OpenTables, lock: HeldLock, guard: Guard
) -> GroupCommit:
    if storage_of(root).has_lasting_journal:
        return recover_lasting(root, tables, guard, lock.is_after_death)
    return GroupCommit(root, tables, recover_warehouse(root, tables, guard), guard)


class Store:
    """An open warehouse; use as a context manager or `close` it."""

    def __init__(self, root: StoragePath, lock: HeldLock, now: Clock, steady: Clock) -> None:
        self.root = root
        self.now = now
        self._steady = steady
        self.lock = lock
        self.local_root = stored_files.local_folder(root)
        """Where files of this machine belong that can be lost."""
        self._left: tuple[object, ...] | None = None
        self._tables = OpenTables(root, self.confirm_lock)
        self._doubtful = False
        self.group = _recover_group(root, self._tables, lock, self.confirm_lock)
        """Small commits; they are grouped once somebody begins with that."""
        entries, through, plans = plan_files.load_plan_files(root)
        self.ledger = Ledger(entries)
        for plan in plans:
            self.ledger.add_entries(plan.entries)
        self._last_plan = plans[-1].n if plans else through
        if self._last_plan < self.head.plan:
            raise CorruptError(
                f'warehouse folder "{root / "plans"}": the newest plans are missing',
                detail=f"plans reach to {self._last_plan}; the head has finished {self.head.plan}",
                hint=f"restore the folder from a backup; without one, {reload_hint()}",
            )
        self._pending = plans[-1] if plans and plans[-1].n > self.head.plan else None
        if stops := _stops_of(self.head, self.damaged_views):
            self.commit(stops)

    @staticmethod
    def open(
        path: StoragePath,
        command: str,
        now: Clock,
        steady: Clock | None = None,
        over: object = None,
    ) -> Store:
        """Take the lock, create what is missing, recover; LockedError says who has it.

        `command` is what others are told of the holder; `now` is in seconds since the epoch,
        `steady` a clock that only goes forward. A lock that still is what `over` says is taken
        over, whoever has it.
        """
        require_address(path, "warehouse")
        root = path.absolute()
        for folder in FOLDERS:
            stored_files.make_folder(root / folder)
        disk.make_folder(stored_files.local_folder(root) / "spool")
        lock = _take_lock(root, command, now, steady or now, over)
        try:
            return Store(root, lock, now, steady or now)
        except BaseException:
            lock.release_lock(is_clean=False)
            raise

    @property
    def head(self) -> Head:
        """The newest committed state."""
        return self.group.head

    @property
    def next_plan(self) -> int:
        return self._last_plan + 1

    def pending_plan(self) -> BatchPlan | None:
        """The plan that has no record yet; a restart must replay it before it forms another."""
        return self._pending

    def write_plan(self, plan: BatchPlan) -> None:
        """Give a batch's transactions their ts, before any work.

        They are durable before anybody else can see them: at once, or with the next record.
        """
        assert self._pending is None, "the open plan comes first"
        assert plan.n == self.next_plan
        assert not plan.entries or plan.entries[0].ts >= self.ledger.next_ts
        if self.group.journal.is_lasting or (self.group.is_on and not has_barrier(plan)):
            self.confirm_usable()
            self.group.hold_plan(plan, is_first=has_barrier(plan))
        else:
            with self.group.flushed(), _refuse_existing(self.root, "plan", plan.n):
                plan_files.write_plan(self.root, plan, self.confirm_lock)
        self.ledger.add_entries(plan.entries)
        self._last_plan = plan.n
        self._pending = plan

    def commit(
        self, changes: Iterable[ViewChange], plan: int | None = None, kept: Sequence[bytes] = ()
    ) -> Head:
        """Commit the next record; `plan` is the number of the plan that it finishes.

        `kept` is what the journal takes along; who commits beside it has it written by the flush.
        """
        self.confirm_usable()
        changes = tuple(changes)
        if not self.group.can_take(changes):
            with self.group.flushed():
                return self._commit_beside(self.group.store_held(changes), plan)
        record = Record(self.head.record + 1, self.now(), changes, plan)
        check = RecordCheck(self.head, self._tables, self.ledger.next_ts, self.group.held_rows)
        check.check_guarded(record, self._pending, self.confirm_lock)
        self.group.commit_record(record, kept)
        if plan is not None:
            self._pending = None
        return self.head

    def _commit_beside(self, changes: tuple[ViewChange, ...], plan: int | None) -> Head:
        """Commit by a record of its own, while the journal is flushed, and redo it at once."""
        record = Record(self.head.record + 1, self.now(), changes, plan)
        check = RecordCheck(self.head, self._tables, self.ledger.next_ts)
        check.check_guarded(record, self._pending, self.confirm_lock)
        self._doubtful = True
        try:
            if self.group.journal.is_lasting:
                self.group.commit_record(record)
            else:
                with _refuse_existing(self.root, "record", record.n):
                    plan_files.write_record(self.root, record, self.confirm_lock)
        except WarehouseError:
            if self.group.journal.is_lasting:
                raise
            # Refused by the disk before it had its name: nothing was committed, and we may go on.
            self._doubtful = plan_files.has_record(self.root, record.n)
            raise
        self._finish_record(record)
        self._doubtful = False
        return self.head

    def confirm_usable(self) -> None:
        """A WarehouseError if something failed after which only another start can go on."""
        self.group.confirm_usable()
        if self._doubtful:
            raise WarehouseError(
                f'warehouse "{self.root}": an earlier commit was interrupted',
                hint="open the warehouse again: that finishes or forgets it, then go on",
            )

    def table_of(self, view: str) -> LakeTable:
        """The Delta Lake table of a view."""
        with self.group.at_rest():
            return self._tables.table_of(self.head.require_view(view))

    def active_files(self, view: str) -> tuple[ActiveFile, ...]:
        """The files of a view, as its log and the head name them."""
        try:
            with self.group.at_rest():
                return self._tables.active_files(self.head.require_view(view))
        except CorruptError:
            # Who has taken over writes other entries; that is no damage.
            self.confirm_lock()
            raise

    @property
    def damaged_views(self) -> Mapping[str, CorruptError]:
        """The views whose files cannot be believed, and why; they have stopped."""
        return self._tables.damaged

    def folder_of(self, view: str) -> StoragePath:
        """Where the data files of a view belong."""
        return self._tables.folder_of(self.head.require_view(view).table)

    def positions_until(self, view: str, ts: int) -> dict[str, int]:
        """Where a view's sources stand as of a ts that it has not reached yet."""
        head = self.head.views[view]
        positions = dict(head.positions)
        for entry in self.ledger.entries_between(head.ts, ts):
            if entry.source in positions:
                positions[entry.source] = entry.until
        return positions

    def new_table(self, view: str) -> str:
        """A folder for a table that a `Create` will name; removed at start-up if none does."""
        owner, mark, fold = view.partition("#")
        readable = re.sub(r"[^A-Za-z0-9]+", "-", owner).strip("-")[:40] or "view"
        part = f"fold{fold}-" if mark else ""
        name = whole = f"{readable}-{part}{self.head.record + 1}"
        if self.group.journal.is_lasting:
            # Folders are not there before their files.
            return f"{whole}-{uuid.uuid4().hex[:12]}"
        more = 2
        while (folder := self.root / "views" / name).is_dir():
            # Another view that is being loaded reads alike.
            name, more = f"{whole}-{more}", more + 1
        stored_files.make_folder(folder)
        return name

    def table_folder(self, table: str) -> StoragePath:
        return self._tables.folder_of(table)

    def confirm_lock(self) -> None:
        """Be sure that nobody else has taken the warehouse over; LockedError says who has."""
        self.lock.confirm_held()

    @contextmanager
    def staging_folder(self) -> Iterator[StoragePath]:
        """A folder for files that live as long as one job."""
        folder = self.local_root / "spool" / f"job-{uuid.uuid4().hex}"
        stored_files.make_folder(folder)
        try:
            yield folder
        finally:
            with suppress(WarehouseError):
                stored_files.remove_tree(folder)

    def pause_work(self) -> None:
        """Give the lock back, and note how the warehouse is left."""
        assert not self.group.is_on, "who groups commits works on"
        self._left = (
            None
            if self._doubtful or self._pending
            else _read_marks(self.root, self.head, self._tables)
        )
        self.lock.release_lock()

    def resume_work(self, command: str) -> Store | None:
        """Take the lock again; None, without the lock, if the warehouse is not as it was left.

        Then whoever wants to go on has to open it.
        """
        lock = _take_lock(self.root, command, self.now, self._steady)
        try:
            is_same = self._left is not None and self._left == _read_marks(
                self.root, self.head, self._tables
            )
            # Where commits do not change the head, nobody else may have had the lock.
            if self.group.journal.is_lasting:
                is_same = is_same and lock.epoch == self.lock.epoch + 1
        except BaseException:
            lock.release_lock()
            raise
        if not is_same:
            lock.release_lock()
            return None
        self.lock = lock
        return self

    def close(self) -> None:
        """Flush what is only in the journal, and give the lock back."""
        try:
            self.group.end()
        finally:
            self.abandon_store()

    def abandon_store(self) -> None:
        """Give the lock back and leave everything else to the next start."""
        is_clean = not self._doubtful and self.group.journal.failure is None
        self.group.abandon_journal()
        self.lock.release_lock(is_clean=is_clean)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close() if kind is None else self.abandon_store()

    def _finish_record(self, record: Record) -> None:
        """What follows the commit point; if it fails, the next opening does it."""
        try:
            head = self._tables.redo_record(self.head, record)
            if not self.group.journal.is_lasting:
                stored_files.replace_file(self.root / NAME, encode_head(head), self.confirm_lock)
            self.group.follow_head(head)
        except LockedError:
            # The record is committed, and whoever has the lock now has redone it.
            raise
        except WarehouseError as error:
            raise WarehouseError(
                f'warehouse "{self.root}": record {record.n} is committed but not yet visible',
                detail=" ".join(str(error).split()),
                hint="remove the cause and open the warehouse again: that finishes it",
            ) from error
        if record.plan is not None:
            self._pending = None


def _stops_of(head: Head, damaged: Mapping[str, CorruptError]) -> list[Stop]:
    """What stops views that cannot be believed."""
    found: dict[str, str] = {}
    for name, error in damaged.items():
        # A view whose fold cannot be believed cannot go on either.
        found |= {owner_of(name): str(error), name: str(error)}
    return [
        Stop(name, reason)
        for name, reason in found.items()
        if name in head.views and head.views[name].stopped != reason
    ]


@contextmanager
def _refuse_existing(root: StoragePath, kind: str, n: int) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise WarehouseError(
            f'warehouse "{root}": {kind} {n} is already there',
            detail="another process writes here although this one holds the lock",
            hint="stop the other process (the lock does not hold on some network disks)",
        ) from error
