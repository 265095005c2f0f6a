"""Plans at work: batches of views, barriers that a view crosses, views with machines of their own.

A plan comes before any of its work. What could be done of it is committed in one record, which
finishes the plan; a view that could not be maintained waits, or stops with a reason. A view that is
not swept in batches is brought up to date by its own machine afterwards, under the ts that plans
have given.

At a barrier, what went is taken out of the stored view, everything else up to the barrier is
maintained as one transaction, and both are one commit (`viewkeeper.engine.batch.barrier` says why
that is exact).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from viewkeeper.engine.algorithms.algorithm_runner import (
    AlgorithmRunner,
    StepTotals,
    no_quiet_error,
)
from viewkeeper.engine.batch.barrier import Sieve, barrier_of, keys_of, removal_files
from viewkeeper.engine.batch.batch_commit import BatchCommits
from viewkeeper.engine.batch.batch_runner import (
    BatchOutcome,
    BatchPlace,
    BatchRunner,
    BatchWork,
    clashing_views,
)
from viewkeeper.engine.batch.missing_value import MissingValues, is_without_value
from viewkeeper.engine.batch.parent_changes import BatchSpan
from viewkeeper.engine.batch.staged_run import BatchView
from viewkeeper.engine.batch.state_indexes import StateIndexes
from viewkeeper.engine.capture.lookout import Lookout
from viewkeeper.engine.lanes.lane_batch import LaneBatch, Lanes
from viewkeeper.engine.lanes.lane_runner import LaneRunner, Span
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoices
from viewkeeper.engine.views.view_troubles import Troubles
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import (
    BarrierError,
    ExpressionError,
    GapError,
    SourceError,
    ViewkeeperError,
)
from viewkeeper.warehouse.metadata.plan_files import BatchPlan, LedgerEntry
from viewkeeper.warehouse.store import Store


class BarrierCrossing:
    """Brings views over barriers, one view at a time."""

    def __init__(self, workspace: Workspace, batches: BatchRunner) -> None:
        self._store = workspace.store
        self._connections = workspace.connections
        self._batches = batches

    def commit_crossing(
        self, plan: BatchPlan, member: BatchView
    ) -> tuple[list[LedgerEntry], BatchOutcome]:
        """Do the work of a plan that takes one view over a barrier, and commit it."""
        view, (after, until) = member.view, plan.views[member.name]
        ledger = self._store.ledger.entries_between(after, until)
        entries = [entry for entry in ledger if entry.source in view.sources]
        ends = self._store.positions_until(member.name, until)
        number = self._store.head.record + 1
        try:
            sieve = Sieve(entries, keys_of(view, entries, self._connections))
        except SourceError as error:
            outcome = self._batches.failed_outcome(member, error)
        else:
            span = BatchSpan(after, entries[-1].ts, merged=True)
            views = self._store.head.views
            work = BatchWork(number, [member], entries, ends, span, views)
            outcome = self._batches.cross_barrier(work, sieve)
        if member.name not in outcome.errors:
            gone = removal_files(self._store, view, sieve, until, number)
            outcome.files[member.name] = (*gone, *outcome.files.get(member.name, ()))
        self._store.commit(outcome.changes_for(member, until, ends, exact=False), plan.n)
        self._batches.clean_spool()
        return entries, outcome


class PlanRunner:
    """Does the work of the plans of one warehouse; used by one thread."""

    def __init__(
        self,
        workspace: Workspace,
        lookout: Lookout,
        choices: AlgorithmChoices,
        troubles: Troubles,
        record_gap: Callable[[str, SourceError], bool],
    ) -> None:
        """`record_gap` says whether what a source has lost is a gap that views get over."""
        self._workspace = workspace
        self._choices = choices
        self._troubles = troubles
        self._record_gap = record_gap
        indexes = StateIndexes(self._store.root, self._store.local_root)
        place = BatchPlace(
            self._store.local_root / "spool" / "batch",
            self._store.group.keep_rows,
            indexes.find_groups,
            indexes.find_stored,
        )
        beside = lookout.tables.loaded_before
        self._batches = BatchRunner(workspace, beside, place)
        self.commits = BatchCommits(workspace, choices, indexes)
        under_way = Lanes(workspace, beside, indexes)
        self.lanes = LaneRunner(workspace, choices, self.commits, under_way)
        history = self.commits.history
        self._machines = AlgorithmRunner(workspace, self._batches, lookout, history)
        self._missing = MissingValues(workspace, self._attempt_span)
        self._stopping: Callable[[], bool] = lambda: False
        self.restless: dict[str, ViewkeeperError] = {}
        """Views whose algorithm found no quiet moment."""
        self.batch_seconds = 0.0

    @property
    def _store(self) -> Store:
        return self._workspace.store

    def stop_when(self, stopping: Callable[[], bool]) -> None:
        """Let algorithms that wait for a quiet moment go on until `stopping` says so."""
        self._stopping = stopping

    def write_activity(self) -> None:
        """Let `status` know what the last batches were."""
        self.commits.activity.write_activity(self.lanes.reasons)

    def finish_plan(self, plan: BatchPlan, members: Sequence[str]) -> None:
        """Do the work of a plan that a crash left open, for those of its views that can go on."""
        for name in members:
            if self.barrier_ahead(name, plan.views[name][1]) is not None:
                if self.can_cross(name):
                    self._cross_barrier(plan, name)
                else:
                    self._store.commit([], plan.n)
                return
        self._commit_batch(plan, self._beside_parents(plan, members))

    def _beside_parents(self, plan: BatchPlan, members: Sequence[str]) -> list[str]:
        """The members that are swept together; one whose parents stay behind does so too."""
        views, found = self._store.head.views, list[str]()
        for name in (name for name in members if self._in_batches(name)):
            parents, until = self._choices[name].view.parents, plan.views[name][1]
            if all(parent in found or views[parent].ts >= until for parent in parents):
                found.append(name)
        return found

    def record_barriers(self, entries: tuple[LedgerEntry, ...]) -> tuple[LedgerEntry, ...]:
        """Give entries their ts at once if there is a barrier or a schema change among them, which
        views must find in the ledger; the entries that still have none."""
        if not any(e.emptied or e.keyed or e.reshaped or e.gap for e in entries):
            return entries
        plan = BatchPlan(self._store.next_plan, entries)
        self._store.write_plan(plan)
        self._store.commit([], plan.n)
        return ()

    def cross_next(self, name: str, barrier: int, entries: tuple[LedgerEntry, ...]) -> None:
        """Take a view over the barrier at a ts, in a plan that also names these entries."""
        at = self._store.head.views[name].ts
        plan = BatchPlan(self._store.next_plan, entries, {name: (at, barrier)})
        self._store.write_plan(plan)
        self._cross_barrier(plan, name)

    def advance_views(
        self, targets: Mapping[str, int], newest: int, entries: tuple[LedgerEntry, ...]
    ) -> None:
        """Bring views to their ts, together where they can be, in plans that name these entries."""
        views, met = self._store.head.views, self._missing.met
        without = [n for n in targets if is_without_value(views[n].stopped) or n in met]
        together = {name: target for name, target in targets.items() if name not in without}
        self._maintain_together(together, newest, entries, without)
        for name, target in together.items():
            if not self._in_batches(name) and self._store.head.views[name].ts < target:
                self._step_view(name, target)
        for name in dict.fromkeys((*without, *self._missing.met)):
            if name in targets and not self._missing.is_tried(name, targets[name]):
                self._find_value(name, targets[name])
        self._missing.met.clear()

    def is_tried(self, name: str, newest: int) -> bool:
        """Whether a view has no value, and nothing has come since that was found."""
        return self._missing.is_tried(name, newest)

    def _find_value(self, name: str, target: int) -> None:
        """Take a view over states in which its query has no value; its trouble if there is none."""
        at, sources = self._store.head.views[name].ts, {*self._choices[name].view.sources}
        entries = self._store.ledger.entries_between(at, target)
        changed = {entry.ts for entry in entries if entry.source in sources}
        with self._troubles.contain_view_errors(name):
            error = self._missing.advance_view(name, target, changed.__contains__)
            if error is not None:
                self._troubles.report_trouble(error)

    def _attempt_span(self, name: str, until: int, merged: bool) -> ExpressionError | None:
        """Take one view to a ts, its states apart or merged; the error if it has no value there."""
        at = self._store.head.views[name].ts
        plan = BatchPlan(self._store.next_plan, (), {name: (at, until)})
        self._store.write_plan(plan)
        error = self._commit_batch(plan, [name], merged).errors.get(name)
        if error is None or isinstance(error, ExpressionError):
            return error
        raise error

    def _maintain_together(
        self,
        targets: Mapping[str, int],
        newest: int,
        entries: tuple[LedgerEntry, ...],
        without: Sequence[str],
    ) -> None:
        views = self._store.head.views
        together = [n for n in targets if self._in_batches(n)]
        alone = clashing_views([self._choices[n].view for n in together])
        spans = {n: (views[n].ts, targets[n], n if n in alone else "") for n in together}
        spans = self._wait_for_parents(spans)
        families = self.lanes.choose_families(spans, entries, without)
        apart = {name for family in families for name in family}
        here = {name: span for name, span in spans.items() if name not in apart}
        groups = sorted({span for span in here.values() if span[0] < span[1]})
        for group in groups or ([(newest, newest, "")] if entries else []):
            members = {n: span[:2] for n, span in here.items() if span == group}
            plan = BatchPlan(self._store.next_plan, entries, members)
            self._store.write_plan(plan)
            entries = ()
            self._commit_batch(plan, list(members))
        # The cheap ones are committed, and with them every ts.
        for family in families:
            self.lanes.begin_family(family, spans)

    def commit_lanes(self) -> None:
        """Commit what lanes have brought, each in a record of its own."""
        for lane in self.lanes.take_ended():
            self._commit_lane(lane)

    def _commit_lane(self, lane: LaneBatch) -> None:
        outcome = lane.take_outcome(self._store.group.keep_rows)
        self._batches.note_sources(outcome, lane.able)
        self.commits.commit_outcome(lane.work, outcome, None)
        lane.runner.clean_spool()
        self.lanes.note_batch(outcome)
        seconds = time.perf_counter() - lane.started
        self._report_outcome(self._store.head.plan, lane.work.entries, outcome, seconds)

    def end_lanes(self) -> None:
        """Commit what lanes have brought, and give up the others."""
        self.commit_lanes()
        self.lanes.under_way.abandon_lanes()

    def _wait_for_parents(self, spans: Mapping[str, Span]) -> dict[str, Span]:
        """The same spans, of views no further than the views that they read.

        A view goes along with its parents where all go the same way; otherwise it catches up to
        where they stand, from what they have stored.
        """
        views = self._store.head.views
        found: dict[str, Span] = {}
        for name, span in spans.items():
            parents = self._choices[name].view.parents
            if any(found.get(parent) != span for parent in parents):
                until = min([span[1], *(views[parent].ts for parent in parents)])
                span = (span[0], max(span[0], until), span[2])
            found[name] = span
        return found

    def barrier_ahead(self, name: str, until: int) -> int | None:
        """The first ts up to a given one at which a view meets a barrier, if any."""
        return barrier_of(self._store, self._choices[name].view, until)

    def can_cross(self, name: str) -> bool:
        """Whether a view can get over a barrier by what is stored of it: a join of tables can."""
        view = self._choices[name].view
        return view.graph is None and not view.parents

    def _in_batches(self, name: str) -> bool:
        """Whether a view is swept with others; not while commits ahead of its mark have gaps."""
        return self._choices[name].is_default and not self._store.head.views[name].ahead

    def _step_view(self, name: str, until: int) -> None:
        """Bring a view up to date by its own machine; its trouble is its own."""
        started = time.perf_counter()
        choice = self._choices[name]
        entries = self._store.ledger.entries_between(self._store.head.views[name].ts, until)
        stepped: StepTotals | None = None
        with self._troubles.contain_view_errors(name):
            stepped = self._machines.advance_view(choice, until, self._stopping)
        if stepped is None:
            return
        self.batch_seconds = time.perf_counter() - started
        age = max(0.0, time.time() - min(entry.committed_at for entry in entries))
        head = self._store.head
        report = stepped.report_steps(head.plan, head.views[name], self.batch_seconds, age)
        self._workspace.observer.on_batch_commit(report)
        self.restless.pop(name, None)
        if not stepped.ended and not self._stopping():
            self.restless[name] = no_quiet_error(choice)
            self._troubles.report_trouble(self.restless[name])

    def _commit_batch(
        self, plan: BatchPlan, names: Sequence[str], merged: bool = False
    ) -> BatchOutcome:
        """Do the work of a plan and commit what could be done; nothing is acknowledged yet.

        States that are `merged` become one.
        """
        started = time.perf_counter()
        after, until = next(iter(plan.views.values()), (0, 0))
        work = self.commits.plan_work(names, after, until, merged)
        outcome = self._batches.run_batch(work)
        self.commits.commit_outcome(work, outcome, plan.n)
        self._batches.clean_spool()
        self.lanes.note_batch(outcome)
        self.batch_seconds = time.perf_counter() - started
        self._report_outcome(plan.n, work.entries, outcome, self.batch_seconds)
        return outcome

    def _cross_barrier(self, plan: BatchPlan, name: str) -> None:
        """Take a view over a barrier: everything up to it becomes one state."""
        started = time.perf_counter()
        crossed = None
        with self._troubles.contain_view_errors(name, plan.n):
            crossing = BarrierCrossing(self._workspace, self._batches)
            crossed = crossing.commit_crossing(plan, self.commits.batch_view(name))
        if crossed is not None:
            self.batch_seconds = time.perf_counter() - started
            self._report_outcome(plan.n, *crossed, self.batch_seconds)

    def _report_outcome(
        self, plan: int, entries: Sequence[LedgerEntry], outcome: BatchOutcome, seconds: float
    ) -> None:
        for name, error in outcome.errors.items():
            stopped = self._store.head.views[name].stopped
            if isinstance(error, ExpressionError) and (not stopped or is_without_value(stopped)):
                self._missing.met[name] = error
            elif isinstance(error, BarrierError):
                self._troubles.fail_view(name, error)
            elif not (isinstance(error, GapError) and self._record_gap(error.source, error)):
                self._troubles.note_stop(name, error)
        if entries:
            self._workspace.observer.on_batch_commit(
                outcome.report_batch(plan, entries, seconds, time.time())
            )
