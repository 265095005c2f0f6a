"""The maintainer: the one loop that keeps the views of a warehouse fresh.

It looks at the sources, often and cheaply. What it sees gets its ts when a batch is formed, in a
durable plan, before any work. Then the views are swept and committed in one record, and only then
is anything acknowledged to a source. A view's progress is one ts: all transactions of its sources
up to it are applied. Views at the same ts advance together and become visible together; one that
waits for a source stays behind, and catches up in a batch of its own from where it stands.

A restart finds the plan that has no record, replays exactly that, and goes on. What no plan names
yet has left no trace here and is simply seen again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from viewkeeper.engine.algorithms.algorithm_runner import (
    AlgorithmRunner,
    StepTotals,
    no_quiet_error,
)
from viewkeeper.engine.batch.barrier import barrier_of
from viewkeeper.engine.batch.barrier_commit import BarrierCrossing
from viewkeeper.engine.batch.batch_runner import (
    BatchOutcome,
    BatchRunner,
    clashing_views,
)
from viewkeeper.engine.batch.change_archive import ChangeArchive
from viewkeeper.engine.batch.part_sweep import BatchMember
from viewkeeper.engine.capture.acknowledgement import Acknowledger
from viewkeeper.engine.capture.blocked_views import explain_waiting
from viewkeeper.engine.capture.lookout import PATIENCE_SECONDS
from viewkeeper.engine.evolution.anchors import Anchors
from viewkeeper.engine.evolution.view_adapter import ViewAdapter
from viewkeeper.engine.evolution.view_loads import ViewLoads
from viewkeeper.engine.group.lookout_choice import make_lookout
from viewkeeper.engine.load.loader import PROGRESS_SECONDS, Loader
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoices
from viewkeeper.engine.views.edited_sql import take_edits, write_first_versions
from viewkeeper.engine.views.view_troubles import Troubles
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import (
    BarrierError,
    GapError,
    ViewkeeperError,
)
from viewkeeper.view.sweep_plan import sweep_plan_of
from viewkeeper.warehouse.metadata.batch_plan import BatchPlan, LedgerEntry
from viewkeeper.warehouse.metadata.record import Drop, Resume


class Again(Enum):
    """Why it is worth to go round again; the first reason that holds."""

    BARRIER = "a view met what only the next look reports"
    FULL = "a source had more to report than one look takes"
    ADVANCED = "a view has the rest of what was there before it"
    LOADING = "a view is being loaded"
    SILENT = "a source has not answered yet"
    PENDING = "what was seen waits for others"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the warehouse is: its last record, and the ts of every view."""

    record: int
    views: Mapping[str, int]


class Maintainer:
    """Keeps the views of one open warehouse; used by one thread."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.store = workspace.store
        self.loader = Loader(workspace)
        self.lookout = make_lookout(workspace, lambda: self.loader.current)
        self._catalogue = workspace.catalogue
        self._batches = BatchRunner(workspace, self.lookout.tables.loaded_before)
        self._crossing = BarrierCrossing(workspace, self._batches)
        self._history = ChangeArchive(self.store.root / "history", self.store.confirm_lock)
        self._stepper = AlgorithmRunner(workspace, self._batches, self.lookout, self._history)
        self._choices = AlgorithmChoices(workspace)
        self._adapting = ViewAdapter(workspace, self._choices, self.lookout)
        self._troubles = Troubles(
            workspace,
            lambda name: self.lookout.sightings.full or self._adapting.note_broken_query(name),
        )
        self._anchors = Anchors(workspace, self.lookout, self._adapting, self._troubles)
        self._loads = ViewLoads(
            workspace, self.loader, self.lookout, self._adapting, self._troubles
        )
        self._thanks = Acknowledger(workspace, self.lookout)
        self._restless: dict[str, ViewkeeperError] = {}
        """Views whose algorithm found no quiet moment."""
        self._stopping: Callable[[], bool] = lambda: False
        self.batch_seconds = 0.0

    # -- start ---------------------------------------------------------------------------------

    def start_run(
        self,
        full_refresh: Sequence[str] = (),
        reanchor: Sequence[str] = (),
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """Bring the warehouse in line with the project, and finish what a crash left open.

        An algorithm that waits for a quiet moment goes on until `stopping` says so.
        """
        self._stopping = stopping
        views, settings = self.store.head.views, self.workspace.settings
        named = (*settings.views, *settings.evolution.views, *settings.on_gap.views)
        for name in (*full_refresh, *reanchor, *named):
            self._catalogue.check_name(name)
        self._anchors.request_anchors(reanchor)
        self._catalogue.adopt_versions(self.store.head, without=full_refresh)
        take_edits(self.store, self._catalogue, self.workspace.connections, full_refresh)
        # An algorithm or SQL that is refused must be refused before anything is dropped.
        self._choices.bind_views(full_refresh)
        gone = [Drop(name, v.table) for name, v in views.items() if name not in self._catalogue]
        again = [Drop(name, views[name].table) for name in full_refresh if name in views]
        stopped = [
            Resume(name)
            for name, view in views.items()
            if view.stopped and name in self._catalogue
            if name not in (*full_refresh, *self.store.damaged_views)
        ]
        self._finish_plan({change.view for change in (*gone, *again)})
        if gone or again or stopped:
            self.store.commit([*gone, *again, *stopped])
        write_first_versions(self.store, self._catalogue)
        if not self.workspace.settings.history:
            self._history.clear_archive()

    def _finish_plan(self, without: set[str]) -> None:
        plan = self.store.pending_plan()
        if plan is None:
            return
        members = [n for n in plan.views if n not in without and self._is_able(n)]
        for name in members:
            if self._barrier_ahead(name, plan.views[name][1]) is not None:
                self._cross_barrier(plan, name)
                return
        self._commit_batch(plan, [name for name in members if self._in_batches(name)])

    # -- looking -------------------------------------------------------------------------------

    def see_commits(self, seconds: float = PATIENCE_SECONDS) -> None:
        """See what the sources have committed since the last look, as far as they tell in time."""
        self._choices.bind_views()
        failed = self.lookout.tables.note_failed(self.workspace.connections.failed)
        for name, error in (failed | self.lookout.look_at_sources(seconds)).items():
            if not self._anchors.record_gap(name, error):
                self._troubles.stop_source(name, error)
        self._loads.fail_refused()

    # -- maintaining ---------------------------------------------------------------------------

    def has_views_behind(self, ts: int | None = None) -> bool:
        """Whether some view could advance or be loaded now; or has not come to a ts."""
        newest = self.store.ledger.next_ts - 1 if ts is None else ts
        views = self.store.head.views
        if self.loader.has_ended:
            return True
        loading = self.loader.current is not None
        return any(
            views[name].ts < newest if name in views else not loading
            for name in self._catalogue
            if self._is_able(name)
            and not (self.loader.is_loading(name) or self._adapting.is_blocked(name, loading))
        )

    def maintain_views(
        self, since: Progress | None = None, until: int | None = None
    ) -> Again | None:
        """Take everything seen into batches, bring every able view up to it, load new views.

        Whether and why to look and maintain again; given `since`, also because a view has advanced
        since then and is not at `until`, or the newest ts.
        """
        self._troubles.take_barrier()
        self._adapting.take_halfway()
        if (loaded := self._loads.commit_ended()) is not None:
            self._anchors.clear_gaps(loaded)
        self._advance_views()
        self._begin_load()
        self.acknowledge_commits()
        return self._why_again(since, until)

    def _why_again(self, since: Progress | None, until: int | None) -> Again | None:
        if self._troubles.take_barrier():
            return Again.BARRIER
        if self.lookout.sightings.full:
            return Again.FULL
        if self._has_advanced(since, until):
            return Again.ADVANCED
        if self.loader.current is not None:
            return Again.LOADING
        if self.workspace.connections.has_busy_source:
            return Again.SILENT
        return Again.PENDING if self.lookout.has_pending else None

    def _has_advanced(self, since: Progress | None, until: int | None) -> bool:
        """Whether a view has advanced since then and has the rest before it.

        A view that crosses a barrier has; but one whose algorithm waits for a quiet moment may
        commit something and not get any further.
        """
        halfway, now = self._adapting.take_halfway(), self.read_progress()
        if since is None or now.record <= since.record:
            return False
        return halfway or (now.views != since.views and self.has_views_behind(until))

    def read_progress(self) -> Progress:
        """How far the warehouse is."""
        head = self.store.head
        return Progress(head.record, {name: view.ts for name, view in head.views.items()})

    def acknowledge_commits(self, now: bool = False) -> None:
        """Tell the sources what no view will ask for again; at most once a second."""
        loading = self.loader.current.name if self.loader.current else None
        for error in self._thanks.acknowledge_sources(self.loader.held_positions, now, loading):
            self._troubles.report_trouble(error)

    def finish_loads(self, since: Progress | None = None, until: int | None = None) -> Again | None:
        """Wait until every view that could be loaded is, and maintain them."""
        again = None
        while self.loader.current is not None:
            if self.loader.current.wait_until_ended(PROGRESS_SECONDS):
                again = self.maintain_views(since, until)
            else:
                self.tell_progress()
        return again

    def tell_progress(self) -> None:
        """Say how far a load is; at most every few seconds."""
        if (found := self.loader.read_progress()) is not None:
            self.workspace.observer.on_load_progress(*found)

    def _advance_views(self) -> None:
        entries = self.lookout.sightings.take_entries()
        newest = entries[-1].ts if entries else self.store.ledger.next_ts - 1
        able = [n for n in self._catalogue if n in self.store.head.views and self._is_able(n)]
        if self._crossing.record_barriers(entries):
            entries = ()
        targets: dict[str, int] = {}
        for name in able:
            target = None
            with self._troubles.contain_view_errors(name):
                anchored = self.loader.is_loading(name) or self._anchors.anchor_if_needed(name)
                target = None if anchored else self._adapting.meet_schema_changes(name, newest)
            barrier = None if target is None else self._barrier_ahead(name, target)
            if target is not None and barrier is None:
                targets[name] = target
            elif barrier is not None:
                at = self.store.head.views[name].ts
                plan = BatchPlan(self.store.next_plan, entries, {name: (at, barrier)})
                self.store.write_plan(plan)
                entries = ()
                self._cross_barrier(plan, name)
        # One that could not cross stays where it is: on this side nothing else can be done for it.
        targets = {n: t for n, t in targets.items() if self._is_able(n)}
        self._maintain_together(targets, newest, entries)
        for name, target in targets.items():
            if not self._in_batches(name) and self.store.head.views[name].ts < target:
                self._step_view(name, target)

    def _maintain_together(
        self, targets: Mapping[str, int], newest: int, entries: tuple[LedgerEntry, ...]
    ) -> None:
        views = self.store.head.views
        together = [n for n in targets if self._in_batches(n)]
        alone = clashing_views([self._choices[n].view for n in together])
        spans = {n: (views[n].ts, targets[n], n if n in alone else "") for n in together}
        groups = sorted({span for span in spans.values() if span[0] < span[1]})
        for group in groups or ([(newest, newest, "")] if entries else []):
            members = {n: span[:2] for n, span in spans.items() if span == group}
            plan = BatchPlan(self.store.next_plan, entries, members)
            self.store.write_plan(plan)
            entries = ()
            self._commit_batch(plan, list(members))

    def _barrier_ahead(self, name: str, until: int) -> int | None:
        return barrier_of(self.store, self._choices[name].view, until)

    def _in_batches(self, name: str) -> bool:
        """Whether a view is swept with others; not while commits ahead of its mark have gaps."""
        return self._choices[name].is_default and not self.store.head.views[name].ahead

    def _step_view(self, name: str, until: int) -> None:
        """Bring a view up to date by its own machine; its trouble is its own."""
        started = time.perf_counter()
        choice = self._choices[name]
        entries = self.store.ledger.entries_between(self.store.head.views[name].ts, until)
        stepped: StepTotals | None = None
        with self._troubles.contain_view_errors(name):
            stepped = self._stepper.advance_view(choice, until, self._stopping)
        if stepped is None:
            return
        self.batch_seconds = time.perf_counter() - started
        age = max(0.0, time.time() - min(entry.committed_at for entry in entries))
        report = stepped.report_steps(self.store.head.plan, name, self.batch_seconds, age)
        self.workspace.observer.on_batch_commit(report)
        self._restless.pop(name, None)
        if not stepped.ended and not self._stopping():
            self._restless[name] = no_quiet_error(choice)
            self._troubles.report_trouble(self._restless[name])

    def _commit_batch(self, plan: BatchPlan, names: Sequence[str]) -> None:
        """Do the work of a plan and commit what could be done; nothing is acknowledged yet."""
        started = time.perf_counter()
        members = [self._batch_member(name) for name in names]
        used = {source for member in members for source in member.plan.view.sources}
        after, until = next(iter(plan.views.values()), (0, 0))
        entries = [e for e in self.store.ledger.entries_between(after, until) if e.source in used]
        ends = {s: p for name in names for s, p in self.store.positions_until(name, until).items()}
        outcome = self._batches.run_batch(self.store.head.record + 1, members, entries, ends)
        if self.workspace.settings.history:
            self._history.keep_changes(outcome.kept, after, until)
        changes = [
            outcome.change_for(name, until, self.store.positions_until(name, until))
            for name in names
        ]
        self.store.commit([change for change in changes if change is not None], plan.n)
        self._batches.clean_spool()
        self._report_outcome(plan, entries, outcome, started)

    def _cross_barrier(self, plan: BatchPlan, name: str) -> None:
        """Take a view over a barrier: everything up to it becomes one state."""
        started = time.perf_counter()
        crossed = None
        with self._troubles.contain_view_errors(name, plan.n):
            crossed = self._crossing.commit_crossing(plan, self._batch_member(name))
        if crossed is not None:
            self._report_outcome(plan, *crossed, started)

    def _report_outcome(
        self, plan: BatchPlan, entries: Sequence[LedgerEntry], outcome: BatchOutcome, started: float
    ) -> None:
        for name, error in outcome.errors.items():
            if isinstance(error, BarrierError):
                self._troubles.fail_view(name, error)
            elif not (
                isinstance(error, GapError) and self._anchors.record_gap(error.source, error)
            ):
                self._troubles.report_trouble(error)
        self.batch_seconds = time.perf_counter() - started
        if entries:
            self.workspace.observer.on_batch_commit(
                outcome.report_batch(plan.n, entries, self.batch_seconds, time.time())
            )

    # -- views ---------------------------------------------------------------------------------

    def _begin_load(self) -> None:
        """Begin to load the next view that is new or to be redefined, as of the newest ts."""
        chosen = self._loads.choose_next(self._is_able)
        if chosen is not None:
            # What was committed before the columns of this view were captured gets its ts now, so
            # that the load starts after it.
            self.see_commits()
            self._advance_views()
            self._loads.begin_load(chosen, self._is_able)

    def _is_able(self, name: str) -> bool:
        """Whether a view can be maintained now: defined, not stopped, all its sources there."""
        stored = self.store.head.views.get(name)
        if stored is not None and stored.stopped:
            return False
        if name in self._troubles.failed:
            return False
        view = self._catalogue.stored.get(name)
        if view is None or name not in self._choices:
            return False
        if self.lookout.tables.broken.keys() & {*view.sources}:
            return False
        return self.workspace.connections.can_ask(view.sources)

    def _batch_member(self, name: str) -> BatchMember:
        stored = self.store.head.views[name]
        plan = sweep_plan_of(self._choices[name].view)
        return BatchMember(name, plan, stored.schema, self.store.folder_of(name))

    def waiting_views(self) -> dict[str, str]:
        """The views that do not stand at the newest ts, and why."""
        failed = {**self._restless, **self._troubles.failed, **self._adapting.adaptation_reasons()}
        return explain_waiting(self.workspace, self.lookout, failed)
