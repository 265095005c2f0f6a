"""The batch of a family that advances apart, computed in a thread of its own.

The maintaining thread reads the changes of the batch, from ts that the ledger already has; the
lane's thread sweeps; the maintaining thread commits what it brings. Meanwhile it looks, plans and
commits for all other views. What must hold:

1. The lane's thread writes no record and no plan, and acknowledges nothing. It reads the views as
   they were when its batch began, has a folder of its own for what it spills, and keeps rows for
   the journal by itself until its record is written.
2. No other batch takes a view of the family, or one that reads such a view, until the lane has
   ended. So the indexes of the members' tables belong to the lane's thread meanwhile; it finds the
   rows of all other tables by reading files.
3. The sources' logs are kept at the positions where the batch ends, and behind them as far as any
   view needs: those of the lane have not moved.
4. What a lane brings counts only if its views are still as they were when it began. Otherwise it is
   forgotten, and so is everything of a process that dies: the views are where they were, and the
   next batch takes the same ts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from viewkeeper.engine.batch.batch_runner import (
    BatchOutcome,
    BatchPlace,
    BatchRunner,
    BatchWork,
)
from viewkeeper.engine.batch.staged_run import BatchView, KeepRows
from viewkeeper.engine.batch.state_indexes import StateIndexes
from viewkeeper.engine.spark.job_control import cancel_job
from viewkeeper.engine.views.view_catalogue import follow_parents
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import WarehouseError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.view.definition import Fold, ViewDefinition
from viewkeeper.warehouse.group_commit import is_for_journal
from viewkeeper.warehouse.lake.data_files import describe_rows, write_rows
from viewkeeper.warehouse.metadata.head import ViewHead, owner_of
from viewkeeper.warehouse.metadata.record import DataFile

LANES_MAX = 4
"""So many lanes at a time; each has a thread, and shares the slots of Spark with the others."""

LEAVE_SECONDS = 10.0
"""For so long a lane that is given up is waited for: a job is cancelled, what else is under way
ends with its present part. After that its thread is left alone; nothing of it is committed."""

CANCEL_SECONDS = 0.2
"""A lane that is given up is cancelled so often: it may just be about to begin its next job."""


@dataclass(frozen=True, slots=True)
class _HeldRows:
    folder: StoragePath
    schema: pa.Schema
    rows: pa.Table
    batch: int
    part: int


class LaneRows:
    """Rows of a lane for its record, held by the lane where they are few enough for the journal."""

    def __init__(self, is_small: Callable[[pa.Table], bool]) -> None:
        self._is_small = is_small
        self._held: dict[str, _HeldRows] = {}

    def keep_rows(
        self, folder: StoragePath, schema: pa.Schema, rows: pa.Table, batch: int, part: int
    ) -> DataFile:
        """Signed rows of a table: held if they are few, else a data file."""
        if not self._is_small(rows):
            return write_rows(folder, schema, rows, batch, part)
        name = f"held-{len(self._held)}"
        self._held[name] = _HeldRows(folder, schema, rows, batch, part)
        return describe_rows(rows, schema, name)[1]

    def hand_over(self, files: Iterable[DataFile], keep: KeepRows) -> tuple[DataFile, ...]:
        """The same files, with those that are held kept for the next record."""
        return tuple(
            file
            if (held := self._held.get(file.path)) is None
            else keep(held.folder, held.schema, held.rows, held.batch, held.part)
            for file in files
        )


@dataclass(slots=True, eq=False)
class LaneBatch:
    """One batch on its way in a lane; `family` are all views that wait for it."""

    work: BatchWork
    family: frozenset[str]
    runner: BatchRunner
    rows: LaneRows
    able: Sequence[BatchView]
    outcome: BatchOutcome
    is_unwanted: threading.Event
    started: float = field(default_factory=time.perf_counter)
    _error: WarehouseError | None = None
    _has_ended: threading.Event = field(default_factory=threading.Event)

    def start_thread(self) -> None:
        """Begin to sweep."""
        names = ", ".join(member.name for member in self.work.members)
        threading.Thread(target=self._sweep, name=f"lane {names}", daemon=True).start()

    @property
    def has_ended(self) -> bool:
        return self._has_ended.is_set()

    def wait_until_ended(self, seconds: float) -> bool:
        """Wait for some time at most; whether it has ended."""
        return self._has_ended.wait(seconds)

    def take_outcome(self, keep: KeepRows) -> BatchOutcome:
        """What it brought, with its rows kept for the next record; an error of the warehouse if
        there was one."""
        assert self.has_ended
        if self._error is not None:
            raise self._error
        files = self.outcome.files.items()
        return replace(
            self.outcome, files={name: self.rows.hand_over(each, keep) for name, each in files}
        )

    def list_jobs(self) -> list[str]:
        """The names that its jobs on Spark may have."""
        stages = [stage for member in self.work.members for stage in member.stages]
        nodes = {stage.node.number for stage in stages if stage.node is not None}
        number, reader = self.work.number, self.runner.reader
        return [
            f"batch {number} of {reader}",
            *(f"batch {number} of {stage.name} of {reader}" for stage in stages),
            *(f"generator of #{node} of {reader}" for node in nodes),
        ]

    def _sweep(self) -> None:
        try:
            self.runner.sweep_members(self.work, self.able, self.outcome)
        except WarehouseError as error:
            self._error = error
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is of these views
            self.outcome.fail_views((member.name for member in self.able), error)
        finally:
            self._has_ended.set()


class Lanes:
    """The batches that are under way beside the maintaining thread, which alone uses this."""

    def __init__(
        self,
        workspace: Workspace,
        beside: Callable[[int], Iterable[ViewDefinition]],
        indexes: StateIndexes,
    ) -> None:
        self._workspace = workspace
        self._beside = beside
        self._indexes = indexes
        self._under_way: list[LaneBatch] = []
        self._count = 0
        self._waiting: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """The views of the families that are under way."""
        return frozenset().union(*(lane.family for lane in self._under_way))

    @property
    def has_ended(self) -> bool:
        """Whether some batch has ended and was not taken."""
        return any(lane.has_ended for lane in self._under_way)

    def is_held(self, name: str) -> bool:
        """Whether a view, or one that it reads, is of a family that is under way."""
        if not self._under_way:
            return False
        parents_of = self._workspace.catalogue.parents_of
        return not self.names.isdisjoint(follow_parents(name, parents_of))

    def compare_indexes(self, table: str) -> None:
        """Compare the indexes of a table with it, and report one that was wrong and is made again.

        Those of views that are under way belong to another thread meanwhile.
        """
        if owner_of(table) not in self.names:
            for error in self._indexes.compare_table(self._workspace.store.head.views[table]):
                self._workspace.observer.on_trouble(error)

    def forget_indexes(self) -> None:
        """Let go of the indexes of tables that no view has any more."""
        views = self._workspace.store.head.views.values()
        self._indexes.forget_others({view.table for view in views})

    def is_waiting(self, name: str) -> bool:
        """Whether a view waits until one of too many lanes has ended."""
        return name in self._waiting

    def can_begin(self, family: Collection[str]) -> bool:
        """Whether there is room for one more; a family for which there is none waits."""
        if len(self._under_way) < LANES_MAX:
            return True
        self._waiting |= {*family}
        return False

    def begin_batch(self, work: BatchWork, family: frozenset[str]) -> None:
        """Read the changes of a batch, and begin to sweep it."""
        store, self._count = self._workspace.store, self._count + 1
        unwanted = threading.Event()
        rows = LaneRows(lambda rows: store.group.is_on and is_for_journal(rows))
        place = self._make_place(work, rows, unwanted)
        runner = BatchRunner(self._workspace, self._beside, place)
        outcome, able = runner.read_changes(work)
        lane = LaneBatch(work, family, runner, rows, able, outcome, unwanted)
        self._under_way.append(lane)
        lane.start_thread()

    def _make_place(self, work: BatchWork, rows: LaneRows, unwanted: threading.Event) -> BatchPlace:
        mine = {table for member in work.members for table in member.tables}

        def confirm_wanted() -> None:
            if unwanted.is_set():
                raise CancelledError

        def find_stored(head: ViewHead, keys: pa.Table, as_of: int) -> pa.Table | None:
            confirm_wanted()
            # The index of any other table goes along with what is committed meanwhile.
            return self._indexes.find_stored(head, keys, as_of) if head.view in mine else None

        def find_groups(head: ViewHead, fold: Fold, keys: pa.Table, as_of: int) -> pa.Table:
            confirm_wanted()
            return self._indexes.find_groups(head, fold, keys, as_of)

        folder: Path = self._workspace.store.local_root / "spool" / f"lane-{self._count}"
        return BatchPlace(
            folder,
            rows.keep_rows,
            find_groups,
            find_stored,
            f" apart {self._count}",
            confirm_wanted,
        )

    def take_ended(self) -> list[LaneBatch]:
        """The batches that have ended; their views are free."""
        ended = [lane for lane in self._under_way if lane.has_ended]
        if ended:
            self._under_way = [lane for lane in self._under_way if lane not in ended]
            self._waiting = frozenset()
        return ended

    def hold_beside(self, others: Callable[[str], list[int]]) -> Callable[[str], list[int]]:
        """The positions at which a source's log must be kept, for others and for the lanes."""
        found = [lane.work.ends for lane in self._under_way]
        return lambda source: [*others(source), *(e[source] for e in found if source in e)]

    def abandon_lanes(self) -> None:
        """Give up what is under way, and wait a little until it has ended."""
        lanes, self._under_way = self._under_way, []
        end = time.monotonic() + LEAVE_SECONDS
        for lane in lanes:
            lane.is_unwanted.set()
        while lanes and time.monotonic() < end:
            self._cancel_jobs(lanes)
            lanes[0].wait_until_ended(CANCEL_SECONDS)
            for lane in (lane for lane in lanes if lane.has_ended):
                lane.runner.clean_spool()
            lanes = [lane for lane in lanes if not lane.has_ended]

    def _cancel_jobs(self, lanes: Iterable[LaneBatch]) -> None:
        if self._workspace.spark.is_started:
            session = self._workspace.spark.get_session()
            for job in (job for lane in lanes for job in lane.list_jobs()):
                cancel_job(session, job)
