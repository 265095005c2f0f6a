"""One batch of maintenance: read its changes, sweep every view, gather what came out.

A batch takes a group of views that stand at the same ts to a later one. Its changes are read once
per relation for all of them, stamped with the ts that the ledger gave them, and kept in the update
queue; then all stages of all views are computed (`viewkeeper.engine.batch.staged_run`). What a view
cannot do, for a source that is away or a value that does not fit, is its own trouble: the others
go on.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Literal

import pyarrow as pa

from viewkeeper.delta.algebra import LAST_TS
from viewkeeper.engine.batch.barrier import Sieve
from viewkeeper.engine.batch.generated_rows import generate_on_spark, split_rows
from viewkeeper.engine.batch.own_relations import (
    FindStored,
    OwnRelations,
    own_nodes,
)
from viewkeeper.engine.batch.parent_changes import BatchSpan, read_parents
from viewkeeper.engine.batch.part_sweep import (
    Batch,
    BatchMember,
    LookupTally,
    PartResult,
    PartTask,
    cast_rows,
    run_inline,
    run_late,
    run_on_spark,
    types_of,
)
from viewkeeper.engine.batch.staged_run import (
    BatchView,
    FindGroups,
    KeepRows,
    StagedRun,
    StageTools,
)
from viewkeeper.engine.batch.state_indexes import StateIndexes
from viewkeeper.engine.connections.open_sources import prepare_openers
from viewkeeper.engine.report import BatchReport
from viewkeeper.engine.views.bound_view import columns_of
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import (
    BarrierError,
    ConversionError,
    SourceAwayError,
    UnexpectedViewError,
    ViewkeeperError,
    WarehouseError,
    blame_view,
)
from viewkeeper.maintain.sweep_family.batch_sweep import split_origins
from viewkeeper.storage import disk
from viewkeeper.updates.answer_pages import Paging
from viewkeeper.updates.queue import (
    BatchChanges,
    Stamps,
    UpdateQueue,
    change_schema,
)
from viewkeeper.view.definition import Field, Generate, Relation, ViewDefinition
from viewkeeper.view.graph import needs_spark
from viewkeeper.warehouse.activity import ViewActivity, read_activity, write_activity
from viewkeeper.warehouse.metadata.head import ViewHead, owner_of
from viewkeeper.warehouse.metadata.plan_files import LedgerEntry
from viewkeeper.warehouse.metadata.record import Advance, DataFile, Stop, ViewChange
from viewkeeper.warehouse.store import Store


@dataclass(slots=True)
class BatchOutcome:
    """What a batch brought for each view that could do it, and why the others could not.

    `files` has the new files of every table, those of folds too; `waiting` are views that read one
    that could not; `merged` are views for which all of the batch is one state; `asked` is, per
    view, what the sources were asked for.
    """

    files: dict[str, tuple[DataFile, ...]] = field(default_factory=dict)
    errors: dict[str, ViewkeeperError] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    merged: set[str] = field(default_factory=set)
    written_rows: dict[str, pa.Table] = field(default_factory=dict)
    asked: dict[str, LookupTally] = field(default_factory=dict)
    where: Literal["inline", "spark"] = "inline"
    parts: int = 0
    kept: BatchChanges = field(default_factory=lambda: BatchChanges({}))
    phases: dict[str, float] = field(default_factory=dict)
    """Where the time went, in seconds."""
    view_seconds: dict[str, float] = field(default_factory=dict)
    """Per view, its own share of the sweep: how long its parts and stages took."""

    @property
    def changes(self) -> int:
        return sum(changes.rows for changes in self.kept.relations.values())

    def fail_views(self, names: Iterable[str], error: BaseException) -> None:
        """None of these views could do it, for this reason."""
        for name in names:
            ours = error if isinstance(error, ViewkeeperError) else None
            self.errors[name] = ours or UnexpectedViewError(name, error)

    @property
    def rows(self) -> int:
        return sum(file.rows for files in self.files.values() for file in files)

    def members_beside(self, members: Sequence[BatchView]) -> list[BatchView]:
        """The members that can go on: those that could not are left out, and with them, waiting,
        views that read one of these, whose own files end before this batch."""
        out = self.errors.keys() | self.waiting
        while found := [m for m in members if m.name not in out and out & {*m.view.parents}]:
            self.waiting |= {member.name for member in found}
            out |= self.waiting
        return [member for member in members if member.name not in out]

    def changes_for(
        self, member: BatchView, until: int, positions: Mapping[str, int], exact: bool = True
    ) -> list[ViewChange]:
        """The changes that take a view to a ts; none if the view has to wait."""
        error = self.errors.get(member.name)
        if member.name in self.waiting or isinstance(error, SourceAwayError | BarrierError):
            return []
        if error is not None:
            return [Stop(member.name, str(error))]
        exact = exact and member.name not in self.merged
        return [
            Advance(name, until, positions, self.files.get(name, ()), exact=exact)
            for name in member.tables
        ]

    def report_batch(
        self, number: int, entries: Sequence[LedgerEntry], seconds: float, now: float
    ) -> BatchReport:
        """The batch in numbers, `now` that it is committed."""
        return BatchReport(
            number=number,
            where=self.where,
            views=tuple(name for name in self.files if "#" not in name),
            transactions=len(entries),
            changes=self.changes,
            rows=self.rows,
            lookups=dict(sum((tally.lookups for tally in self.asked.values()), Counter())),
            parts=self.parts,
            seconds=seconds,
            freshness=max(0.0, now - min(entry.committed_at for entry in entries)),
            ts=entries[-1].ts,
            phases=dict(self.phases),
            view_rows=self._rows_by_view(),
            source_changes=self._changes_by_source(),
            view_lookups={name: tally.lookups.total() for name, tally in self.asked.items()},
        )

    def _rows_by_view(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for table, files in self.files.items():
            found[owner_of(table)] += sum(file.rows for file in files)
        return dict(found)

    def _changes_by_source(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for relation, changes in self.kept.relations.items():
            if not relation.is_own:
                found[relation.source] += changes.rows
        return dict(found)

    @contextmanager
    def measure_phase(self, name: str) -> Iterator[None]:
        """Count the time that something takes to one phase of the batch."""
        began = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - began
            self.phases[name] = self.phases.get(name, 0.0) + took


AGES_MAX = 1_000
"""Of so many batches the freshness is told."""


def percentiles_of(values: Iterable[float]) -> tuple[float, ...]:
    """The median, the 95th and the 99th percentile, in milliseconds' precision; nothing of nothing.

    >>> percentiles_of([0.004, 0.001, 0.002, 0.003])
    (0.002, 0.004, 0.004)
    """
    ordered = sorted(values)
    shares = (0.5, 0.95, 0.99) if ordered else ()
    return tuple(round(ordered[ceil(share * len(ordered)) - 1], 3) for share in shares)


def ages_of(entries: Sequence[LedgerEntry]) -> list[float]:
    """How many seconds ago the oldest of these transactions was committed, if there are any."""
    oldest = [min(entry.committed_at for entry in entries)] if entries else []
    return [max(0.0, time.time() - at) for at in oldest]


class BatchActivity:
    """What the last batches of each view were, and the indexes that go along with commits."""

    def __init__(self, store: Store, indexes: StateIndexes) -> None:
        self._store = store
        self._indexes = indexes
        self._written = read_activity(store.local_root)
        self._activity = dict(self._written)
        self._ages: dict[str, deque[float]] = {}
        """Per view, how old the oldest change of each of its last batches was when it was there."""
        self._aged: set[str] = set()
        """Views that had batches since that was last summed up."""

    def note_committed(
        self, outcome: BatchOutcome, since: int, until: int, entries: Sequence[LedgerEntry]
    ) -> None:
        """What a batch has brought is committed: the indexes of its tables go along."""
        views, ages = self._store.head.views, ages_of(entries)
        for name, rows in outcome.written_rows.items():
            self._indexes.note_rows(views[name], rows, since, until)
        known: dict[str, dict[str, int]] = {}
        for table in outcome.files:
            largest = self._indexes.largest_key(views[table])
            mine = known.setdefault(owner_of(table), {})
            mine |= {} if largest is None else {table: largest}
        for name, keys in known.items():
            self._ages.setdefault(name, deque(maxlen=AGES_MAX)).extend(ages)
            asked, before = outcome.asked.get(name), self._activity.get(name, ViewActivity())
            rows_asked = asked.rows if asked else 0
            self._activity[name] = ViewActivity(rows_asked, keys, before.freshness)
        self._aged |= known.keys()

    def write_activity(self, apart: Mapping[str, str]) -> None:
        """Let `status` know what the last batches were, if there were any; and which views advance
        apart, and why."""
        for name in self._aged:
            if ages := percentiles_of(self._ages[name]):
                self._activity[name] = replace(self._activity[name], freshness=ages)
        self._aged.clear()
        here = {
            name: replace(each, apart=apart.get(name, ""))
            for name, each in ({name: ViewActivity() for name in apart} | self._activity).items()
            if name in self._store.head.views
        }
        if here != self._written:
            write_activity(self._store.local_root, here)
            self._written = here


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """Where a batch has what it needs on its way: a folder for what it spills, rows for its record,
    and stored rows that are found by key. `confirm_wanted` raises if nobody waits for it."""

    folder: Path
    keep_rows: KeepRows
    find_groups: FindGroups
    find_stored: FindStored
    label: str = ""
    """What tells its jobs on Spark from those of other batches."""
    confirm_wanted: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class BatchWork:
    """What a batch has to do: take members over these entries; `ends` are the sources' positions
    after them, and `views` all views of the warehouse as they are when it begins."""

    number: int
    members: Sequence[BatchView]
    entries: Sequence[LedgerEntry]
    ends: Mapping[str, int]
    span: BatchSpan
    views: Mapping[str, ViewHead]


class BatchRunner:
    """Runs batches for a project, one after the other in one place."""

    def __init__(
        self,
        workspace: Workspace,
        beside: Callable[[int], Iterable[ViewDefinition]],
        place: BatchPlace,
    ) -> None:
        """`beside` gives all views that were loaded before a ts."""
        self._settings = workspace.settings
        self._connections = workspace.connections
        self._spark = workspace.spark
        self._root = workspace.store.root
        self._place = place
        self._beside = beside

    @property
    def reader(self) -> str:
        """Whose batches these are, by which jobs on Spark are known."""
        return f"{self._connections.reader}{self._place.label}"

    def run_batch(self, work: BatchWork) -> BatchOutcome:
        """Maintain the members for these entries.

        Spilled changes stay in the folder until `clean_spool`.
        """
        outcome, able = self.read_changes(work)
        self.sweep_members(work, able, outcome)
        self.note_sources(outcome, able)
        return outcome

    def read_changes(self, work: BatchWork) -> tuple[BatchOutcome, list[BatchView]]:
        """Read the changes of a batch; the members whose changes could all be read."""
        outcome = BatchOutcome()
        with outcome.measure_phase("read"):
            able = self._read_changes(work.members, work.entries, outcome, work.span.merged_ts)
        return outcome, able

    def sweep_members(
        self, work: BatchWork, able: Sequence[BatchView], outcome: BatchOutcome
    ) -> None:
        """Compute what the changes that were read mean for these members; in any thread."""
        with outcome.measure_phase("sweep"):
            self._sweep_members(replace(work, members=able), outcome)

    def note_sources(self, outcome: BatchOutcome, swept: Sequence[BatchView]) -> None:
        """Say which sources did not answer in a sweep of these members."""
        for error in (outcome.errors.get(member.name) for member in swept):
            if isinstance(error, SourceAwayError):
                self._connections.note_error(error)

    def clean_spool(self) -> None:
        """Remove what the last batch spilled."""
        if self._place.folder.exists():
            shutil.rmtree(self._place.folder, ignore_errors=True)

    def _read_changes(
        self,
        members: Sequence[BatchView],
        entries: Sequence[LedgerEntry],
        outcome: BatchOutcome,
        merged_ts: int | None,
    ) -> list[BatchView]:
        """Read the changes into `outcome.kept`; the members whose changes could all be read, and
        those of the members that they read."""
        able = list(members)
        while True:
            try:
                views = [member.view for member in able]
                outcome.kept = self.queue_changes(views, entries, merged_ts)
                break
            except WarehouseError:
                # A full disk is nobody's fault among the views.
                raise
            except Exception as error:
                if isinstance(error, SourceAwayError):
                    self._connections.note_error(error)
                found = self._unreadable_members(able, entries)
                if not found:
                    raise
                outcome.errors |= found
                able = outcome.members_beside(able)
        return able

    def queue_changes(
        self,
        views: Sequence[ViewDefinition],
        entries: Sequence[LedgerEntry],
        merged_ts: int | None = None,
    ) -> BatchChanges:
        """The changes of these entries, of the relations that these views read.

        They have the ts that the ledger gave them, or all the one in which they are merged.

        With all columns that any view reads of them by then: so what `history:` keeps of a relation
        is the same whichever view it was read for. But where another view's column cannot be read,
        these views go on without it.
        """
        mine = columns_of(views)
        others = columns_of(self._beside(entries[0].ts if entries else LAST_TS))
        all_columns = {r: _union_fields(fields, others.get(r, ())) for r, fields in mine.items()}
        # Two views may be on both sides of a change of type.
        if any(len(fields) > len({f.name for f in fields}) for fields in all_columns.values()):
            return self._fill_queue(mine, entries, merged_ts)
        try:
            return self._fill_queue(all_columns, entries, merged_ts)
        except (ConversionError, BarrierError):
            if all_columns == mine:
                raise
            return self._fill_queue(mine, entries, merged_ts)

    def cross_barrier(
        self,
        work: BatchWork,
        sieve: Sieve,
    ) -> BatchOutcome:
        """Maintain one view for entries as one transaction, with the last one's ts.

        What the sieve says has gone is for the caller to take out of the view.
        """
        outcome, member = BatchOutcome(), work.members[0]
        wanted = columns_of([member.view])
        try:
            outcome.kept = self._fill_queue(wanted, work.entries, work.span.merged_ts, sieve)
        except WarehouseError:
            raise
        except ViewkeeperError as error:
            return self.failed_outcome(member, error)
        self._sweep_members(work, outcome)
        self.note_sources(outcome, work.members)
        return outcome

    def failed_outcome(self, member: BatchView, error: ViewkeeperError) -> BatchOutcome:
        """What a batch brings for a view that cannot do it."""
        if isinstance(error, SourceAwayError):
            self._connections.note_error(error)
        return BatchOutcome(errors={member.name: error})

    def _fill_queue(
        self,
        wanted: Mapping[Relation, Sequence[Field]],
        entries: Sequence[LedgerEntry],
        merged_ts: int | None,
        sieve: Sieve | None = None,
    ) -> BatchChanges:
        self.clean_spool()
        folder = self._place.folder
        schemas = {relation: change_schema(fields) for relation, fields in wanted.items()}
        types = {relation: types_of(fields) for relation, fields in wanted.items()}
        make_folder = partial(folder.mkdir, parents=True, exist_ok=True)
        queue = UpdateQueue(schemas, str(folder), self._settings.batch.memory, make_folder)
        stamps: dict[str, Stamps] = {}
        for name in dict.fromkeys(entry.source for entry in entries):
            mine = [entry for entry in entries if entry.source == name]
            stamps[name] = Stamps(
                [entry.until for entry in mine],
                [entry.ts if merged_ts is None else merged_ts for entry in mine],
            )
            tables = {
                relation.table: [field.name for field in fields]
                for relation, fields in wanted.items()
                if relation.source == name
            }
            if not tables:
                # Nobody here reads it: whether it answers is not their trouble.
                continue
            source = self._connections.get_source(name)
            for table, batch in source.read_changes(tables, mine[0].after, mine[-1].until):
                relation = Relation(name, table)
                batch = cast_rows(relation, batch, types[relation])
                for part in (batch,) if sieve is None else sieve.sift_batch(relation, batch):
                    with disk.translate_os_errors("spill into", folder):
                        queue.append_changes(relation, stamps[name], part)
        with disk.translate_os_errors("spill into", folder):
            for relation, batch in () if sieve is None else sieve.sift_remainder():
                queue.append_changes(relation, stamps[relation.source], batch)
            return queue.seal_changes()

    def _unreadable_members(
        self, members: Sequence[BatchView], entries: Sequence[LedgerEntry]
    ) -> dict[str, ViewkeeperError]:
        """The members whose changes cannot be read, found by reading for each on its own."""
        found: dict[str, ViewkeeperError] = {}
        for member in members:
            try:
                with blame_view(member.name):
                    self.queue_changes([member.view], entries)
            except WarehouseError:
                raise
            except ViewkeeperError as error:
                found[member.name] = error
        return found

    def _sweep_members(self, work: BatchWork, outcome: BatchOutcome) -> None:
        """Compute all stages of the members from the changes in `outcome.kept`."""
        parents = read_parents(self._root, work.views, work.members, work.span)
        outcome.errors |= parents.errors
        members = outcome.members_beside(work.members)
        inline = outcome.changes <= self._settings.batch.inline_rows
        here = inline and not any(needs_spark(member.view) for member in members)
        views = [member.view for member in members]
        known = {**outcome.kept.relations, **parents.changes}
        own = self._own_relations(members, work)
        with prepare_openers(self._connections, work.ends, views, when_asked=here) as openers:
            changes = BatchChanges(known)
            batch = Batch(work.number, {}, changes, work.ends, openers, self.reader, own)
            sweep = partial(self._run_parts, outcome)
            place = self._place
            tools = StageTools(sweep, place.find_groups, self._generate_rows, place.keep_rows)
            run = StagedRun(batch, members, tools)
            found = run.run_stages()
        outcome.errors |= found.errors
        outcome.waiting |= found.waiting
        outcome.merged |= found.merged
        outcome.asked |= found.asked
        outcome.view_seconds |= found.seconds
        failed = outcome.errors.keys() | outcome.waiting
        for member in members:
            if member.name not in failed:
                outcome.files |= {name: found.files.get(name, ()) for name in member.tables}
                mine = found.written_rows.keys() & member.tables.keys()
                outcome.written_rows |= {name: found.written_rows[name] for name in mine}

    def _generate_rows(self, node: Generate, rows: pa.Table) -> pa.Table:
        if not node.needs_spark:
            return split_rows(node, rows)
        minutes = self._settings.spark.job_minutes
        return generate_on_spark(self._spark.get_session(), node, rows, minutes, self.reader)

    def _own_relations(self, members: Sequence[BatchView], work: BatchWork) -> OwnRelations:
        stored = {name: work.views[name] for member in members for name in member.view.parents}
        stored |= {name: t.head for member in members for name, t in member.tables.items()}
        nodes = own_nodes({each.name: each.view for each in members})
        paging = Paging(self._settings.batch.page_rows, str(self._place.folder))
        find = self._place.find_stored
        return OwnRelations(self._root, work.span.since, stored, nodes, find, paging)

    def _run_parts(
        self, outcome: BatchOutcome, batch: Batch, members: Sequence[BatchMember]
    ) -> list[PartResult]:
        self._place.confirm_wanted()
        early = [m for m in members if not m.plan.view.needs_spark]
        late = [m for m in members if m.plan.view.needs_spark]
        inline = _origin_rows(batch, members) <= self._settings.batch.inline_rows
        slots = 1 if inline else self._spark.get_session().sparkContext.defaultParallelism
        tasks = [task for m in early for task in self._part_tasks(batch, m, slots)]
        minutes = self._settings.spark.job_minutes
        results: list[PartResult] = []
        if tasks and inline:
            results += run_inline(batch, tasks)
        elif tasks:
            outcome.where = "spark"
            results += run_on_spark(self._spark.get_session(), batch, tasks, minutes)
        outcome.parts += len(tasks)
        for member in late:
            tasks = self._part_tasks(batch, member, slots)
            if tasks:
                outcome.where = "spark"
                outcome.parts += len(tasks)
                results += run_late(self._spark.get_session(), batch, member.name, tasks, minutes)
        return results

    def _part_tasks(self, batch: Batch, member: BatchMember, slots: int) -> list[PartTask]:
        """Parts of bounded size, as many for every task slot as for the others."""
        places = member.plan.view.places
        rows = {p.index: batch.changes.relations[p.relation].rows for p in places}
        total = sum(rows.values())
        waves = max(1, -(-total // (slots * self._settings.batch.part_rows)))
        parts = split_origins(member.plan, rows, max(1, -(-total // (slots * waves))))
        return [PartTask(member.name, number, part) for number, part in enumerate(parts)]


def _origin_rows(batch: Batch, members: Iterable[BatchMember]) -> int:
    """How many changes these members read, each relation once."""
    read = {place.relation for member in members for place in member.plan.view.places}
    return sum(batch.changes.relations[relation].rows for relation in read)


def _union_fields(some: Iterable[Field], others: Iterable[Field]) -> tuple[Field, ...]:
    return tuple(sorted({*some, *others}, key=lambda field: field.name))


def clashing_views(views: Sequence[ViewDefinition]) -> set[str]:
    """The views that know a column by another type than some other of these views does: one is
    held before a schema change that the other has followed. They are not swept together."""
    types: dict[tuple[Relation, str], set[pa.DataType]] = {}
    for view in views:
        for relation in view.relations:
            for each in view.fields_of(relation):
                types.setdefault((relation, each.name), set()).add(each.type)
    clashes = {relation for (relation, _), found in types.items() if len(found) > 1}
    return {view.name for view in views if clashes & {*view.relations}}
