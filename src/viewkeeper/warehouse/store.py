"""The warehouse as its one writer sees it.

`Store.open` takes the lock and recovers; from then on the head is the truth. A batch is:
`write_plan`, work, `commit` with that plan's number. Nothing of a batch is visible before its
record, all of it is after the head. If anything fails once the record may have been written, the
store refuses further commits: opening it again finds out from the disk what holds, and finishes it.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from viewkeeper.errors import CorruptError, LockedError, WarehouseError, reload_hint
from viewkeeper.storage import disk
from viewkeeper.warehouse.lake.lake_table import ActiveFile, LakeTable
from viewkeeper.warehouse.lock import Lock, LockHolder
from viewkeeper.warehouse.metadata import plan_files
from viewkeeper.warehouse.metadata.batch_plan import BatchPlan, Ledger
from viewkeeper.warehouse.metadata.head import NAME, Head, encode_head, owner_of
from viewkeeper.warehouse.metadata.record import (
    Record,
    Stop,
    ViewChange,
)
from viewkeeper.warehouse.record_check import RecordCheck
from viewkeeper.warehouse.recovery import FOLDERS, recover_warehouse
from viewkeeper.warehouse.redo import OpenTables

Clock = Callable[[], float]


class Store:
    """An open warehouse; use as a context manager or `close` it."""

    def __init__(self, root: Path, lock: Lock, now: Clock) -> None:
        self.root = root
        self.now = now
        self._lock = lock
        self._tables = OpenTables(root)
        self._doubtful = False
        self.head: Head = recover_warehouse(root, self._tables, lock.confirm_held)
        entries, through, plans = plan_files.load_plans(root)
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
        self._stop_damaged()

    @staticmethod
    def open(path: Path, command: str, now: Clock) -> Store:
        """Take the lock, create what is missing, recover; LockedError says who has it.

        `command` is what others are told of the holder; `now` is in seconds since the epoch.
        """
        root = path.absolute()
        for folder in FOLDERS:
            disk.make_folder(root / folder)
        lock = Lock.take_lock(root / "lock", LockHolder.this_process(command, now()))
        try:
            return Store(root, lock, now)
        except BaseException:
            lock.release_lock()
            raise

    @property
    def next_plan(self) -> int:
        return self._last_plan + 1

    def pending_plan(self) -> BatchPlan | None:
        """The plan that has no record yet; a restart must replay it before it forms another."""
        return self._pending

    def write_plan(self, plan: BatchPlan) -> None:
        """Make a batch's transactions and their ts durable, before any work."""
        assert self._pending is None, "the open plan comes first"
        assert plan.n == self.next_plan
        assert not plan.entries or plan.entries[0].ts >= self.ledger.next_ts
        with self._refuse_existing("plan", plan.n):
            plan_files.write_plan(self.root, plan, self.confirm_lock)
        self.ledger.add_entries(plan.entries)
        self._last_plan = plan.n
        self._pending = plan

    def commit(self, changes: Iterable[ViewChange], plan: int | None = None) -> Head:
        """Commit the next record; `plan` is the number of the plan that it finishes."""
        if self._doubtful:
            raise WarehouseError(
                f'warehouse "{self.root}": an earlier commit was interrupted',
                hint="open the warehouse again: that finishes or forgets it, then go on",
            )
        record = Record(self.head.record + 1, self.now(), tuple(changes), plan)
        try:
            assert plan is None or (self._pending and plan == self._pending.n)
            RecordCheck(self.head, self._tables, self.ledger.next_ts).check_record(record)
        except (AssertionError, CorruptError):
            # Where somebody else has taken over, what we know need not be true any more.
            self.confirm_lock()
            raise
        self._doubtful = True
        try:
            with self._refuse_existing("record", record.n):
                plan_files.write_record(self.root, record, self.confirm_lock)
        except WarehouseError:
            # Refused by the disk before it had its name: nothing was committed, and we may go on.
            self._doubtful = plan_files.has_record(self.root, record.n)
            raise
        self._finish_record(record)
        self._doubtful = False
        return self.head

    def table_of(self, view: str) -> LakeTable:
        """The Delta Lake table of a view."""
        return self._tables.table_of(self.head.require_view(view))

    def active_files(self, view: str) -> tuple[ActiveFile, ...]:
        """The files of a view, as its log and the head name them."""
        try:
            return self._tables.active_files(self.head.require_view(view))
        except CorruptError:
            # Who has taken over writes other entries; that is no damage.
            self.confirm_lock()
            raise

    @property
    def damaged_views(self) -> Mapping[str, CorruptError]:
        """The views whose files cannot be believed, and why; they have stopped."""
        return self._tables.damaged

    def folder_of(self, view: str) -> Path:
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
        name = f"{readable}-{part}{self.head.record + 1}"
        disk.make_folder(self.root / "views" / name)
        return name

    def table_folder(self, table: str) -> Path:
        return self._tables.folder_of(table)

    def confirm_lock(self) -> None:
        """Be sure that nobody else has taken the warehouse over; LockedError says who has."""
        self._lock.confirm_held()

    @contextmanager
    def staging_folder(self) -> Iterator[Path]:
        """A folder for files that live as long as one job."""
        folder = self.root / "spool" / f"job-{uuid.uuid4().hex}"
        disk.make_folder(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        self._lock.release_lock()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _stop_damaged(self) -> None:
        found: dict[str, str] = {}
        for name, error in self.damaged_views.items():
            # A view whose fold cannot be believed cannot go on either.
            found |= {owner_of(name): str(error), name: str(error)}
        stops = [
            Stop(name, reason)
            for name, reason in found.items()
            if name in self.head.views and self.head.views[name].stopped != reason
        ]
        if stops:
            self.commit(stops)

    def _finish_record(self, record: Record) -> None:
        """What follows the commit point; if it fails, the next opening does it."""
        try:
            head = self._tables.redo_record(self.head, record)
            disk.replace_file(self.root / NAME, encode_head(head), self.confirm_lock)
        except LockedError:
            # The record is committed, and whoever has the lock now has redone it.
            raise
        except WarehouseError as error:
            raise WarehouseError(
                f'warehouse "{self.root}": record {record.n} is committed but not yet visible',
                detail=" ".join(str(error).split()),
                hint="remove the cause and open the warehouse again: that finishes it",
            ) from error
        self.head = head
        if record.plan is not None:
            self._pending = None

    @contextmanager
    def _refuse_existing(self, kind: str, n: int) -> Iterator[None]:
        try:
            yield
        except FileExistsError as error:
            raise WarehouseError(
                f'warehouse "{self.root}": {kind} {n} is already there',
                detail="another process writes here although this one holds the lock",
                hint="stop the other process (the lock does not hold on some network disks)",
            ) from error
