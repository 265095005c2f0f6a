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

from viewkeeper.engine.algorithms.algorithm_runner import (
    AlgorithmRunner,
    StepTotals,
    no_quiet_error,
)
from viewkeeper.engine.batch.barrier import barrier_of
from viewkeeper.engine.batch.barrier_crossing import BarrierCrossing
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
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.evolution.anchors import Anchors
from viewkeeper.engine.evolution.view_adapter import ViewAdapter
from viewkeeper.engine.group.lookout_choice import make_lookout
from viewkeeper.engine.load.loader import PROGRESS_SECONDS, Loader
from viewkeeper.engine.report import Observer
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoices
from viewkeeper.engine.views.edited_sql import take_edits, write_first_versions
from viewkeeper.engine.views.view_catalogue import ViewCatalogue
from viewkeeper.engine.views.view_troubles import Troubles
from viewkeeper.errors import (
    BarrierError,
    GapError,
    SchemaError,
    ViewkeeperError,
    WarehouseError,
)
from viewkeeper.view.sweep_plan import sweep_plan_of
from viewkeeper.warehouse.metadata.batch_plan import BatchPlan, LedgerEntry
from viewkeeper.warehouse.metadata.record import Drop, Resume
from viewkeeper.warehouse.store import Store


class Maintainer:
    """Keeps the views of one open warehouse; used by one thread."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        catalogue: ViewCatalogue,
        connections: Connections,
        spark: SparkHandle,
        observer: Observer,
    ) -> None:
        self._settings = settings
        self.store = store
        self._catalogue = catalogue
        self._connections = connections
        self._spark = spark
        self.observer = observer
        self.lookout = make_lookout(
            settings, store, catalogue, connections, lambda error: self.observer.on_trouble(error)
        )
        self._batches = BatchRunner(
            settings, connections, spark, store.root / "spool", self.lookout.loaded_before
        )
        self._crossing = BarrierCrossing(store, connections, self._batches)
        self.loader = Loader(settings, store, connections, spark)
        self.lookout.load = lambda: self.loader.current
        self._history = ChangeArchive(store.root / "history", store.confirm_lock)
        self._stepper = AlgorithmRunner(
            settings, store, connections, self._batches, self.lookout, self._history
        )
        self._choices = AlgorithmChoices(settings, store, catalogue, connections)
        self.adapting = ViewAdapter(
            self._choices, self.lookout, lambda *told: self.observer.on_schema_change(*told)
        )
        self.troubles = Troubles(
            store,
            catalogue,
            connections,
            lambda error: self.observer.on_trouble(error),
            lambda name: self.lookout.full or self.adapting.note_broken_query(name),
        )
        self._anchors = Anchors(self._choices, self.lookout, self.adapting, self.troubles)
        self._thanks = Acknowledger(settings, store, catalogue, connections, self.lookout)
        self._restless: dict[str, ViewkeeperError] = {}
        """Views whose algorithm found no quiet moment."""
        self.stopping: Callable[[], bool] = lambda: False
        self.batch_seconds = 0.0

    @property
    def has_silent_source(self) -> bool:
        """Whether some source has not answered yet."""
        return self._connections.has_busy_source

    # -- start ---------------------------------------------------------------------------------

    def start_run(self, full_refresh: Sequence[str] = (), reanchor: Sequence[str] = ()) -> None:
        """Bring the warehouse in line with the project, and finish what a crash left open."""
        views, settings = self.store.head.views, self._settings
        named = (*settings.views, *settings.evolution.views, *settings.on_gap.views)
        for name in (*full_refresh, *reanchor, *named):
            self._catalogue.check_name(name)
        self._anchors.request_anchors(reanchor)
        self._choices.again = frozenset(full_refresh)
        self._catalogue.adopt_versions(self.store.head, without=full_refresh)
        take_edits(self.store, self._catalogue, self._connections, full_refresh)
        # An algorithm or SQL that is refused must be refused before anything is dropped.
        self.bind_views()
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
        self._choices.again = frozenset()
        write_first_versions(self.store, self._catalogue)
        if not self._settings.history:
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
        self.bind_views()
        failed = {n: e for n, e in self._connections.failed.items() if n not in self.lookout.broken}
        self.lookout.broken |= failed
        for name, error in (failed | self.lookout.look_at_sources(seconds)).items():
            if not self._anchors.record_gap(name, error):
                self.troubles.stop_source(name, error)
        self._fail_refused()

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
            and not (self.loader.is_loading(name) or self.adapting.is_blocked(name, loading))
        )

    def maintain_views(self) -> None:
        """Take everything seen into batches, bring every able view up to it, load new views."""
        self.troubles.met_barrier = self.adapting.halfway = False
        self._finish_load()
        self._advance_views()
        self._begin_load()
        self.acknowledge_commits()

    def acknowledge_commits(self, now: bool = False) -> None:
        """Tell the sources what no view will ask for again; at most once a second."""
        loading = self.loader.current.name if self.loader.current else None
        for error in self._thanks.acknowledge_sources(self.loader.held_positions, now, loading):
            self.troubles.report_trouble(error)

    def finish_loads(self) -> None:
        """Wait until every view that could be loaded is."""
        while self.loader.current is not None:
            if self.loader.current.wait_until_ended(PROGRESS_SECONDS):
                self.maintain_views()
            else:
                self.tell_progress()

    def tell_progress(self) -> None:
        """Say how far a load is; at most every few seconds."""
        if (found := self.loader.read_progress()) is not None:
            self.observer.on_load_progress(*found)

    def _advance_views(self) -> None:
        entries = self.lookout.take_entries()
        newest = entries[-1].ts if entries else self.store.ledger.next_ts - 1
        able = [n for n in self._catalogue if n in self.store.head.views and self._is_able(n)]
        if self._crossing.record_barriers(entries):
            entries = ()
        targets: dict[str, int] = {}
        for name in able:
            target = None
            with self.troubles.contain_view_errors(name):
                anchored = self.loader.is_loading(name) or self._anchors.anchor_if_needed(name)
                target = None if anchored else self.adapting.meet_schema_changes(name, newest)
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
        with self.troubles.contain_view_errors(name):
            stepped = self._stepper.advance_view(choice, until, self.stopping)
        if stepped is None:
            return
        self.batch_seconds = time.perf_counter() - started
        age = max(0.0, time.time() - min(entry.committed_at for entry in entries))
        report = stepped.report_steps(self.store.head.plan, name, self.batch_seconds, age)
        self.observer.on_batch_commit(report)
        self._restless.pop(name, None)
        if not stepped.ended and not self.stopping():
            self._restless[name] = no_quiet_error(choice)
            self.troubles.report_trouble(self._restless[name])

    def _commit_batch(self, plan: BatchPlan, names: Sequence[str]) -> None:
        """Do the work of a plan and commit what could be done; nothing is acknowledged yet."""
        started = time.perf_counter()
        members = [self._batch_member(name) for name in names]
        used = {source for member in members for source in member.plan.view.sources}
        after, until = next(iter(plan.views.values()), (0, 0))
        entries = [e for e in self.store.ledger.entries_between(after, until) if e.source in used]
        ends = {s: p for name in names for s, p in self.store.positions_until(name, until).items()}
        outcome = self._batches.run_batch(self.store.head.record + 1, members, entries, ends)
        if self._settings.history:
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
        with self.troubles.contain_view_errors(name, plan.n):
            crossed = self._crossing.commit_crossing(plan, self._batch_member(name))
        if crossed is not None:
            self._report_outcome(plan, *crossed, started)

    def _report_outcome(
        self, plan: BatchPlan, entries: Sequence[LedgerEntry], outcome: BatchOutcome, started: float
    ) -> None:
        for name, error in outcome.errors.items():
            if isinstance(error, BarrierError):
                self.troubles.fail_view(name, error)
            elif not (
                isinstance(error, GapError) and self._anchors.record_gap(error.source, error)
            ):
                self.troubles.report_trouble(error)
        self.batch_seconds = time.perf_counter() - started
        if entries:
            self.observer.on_batch_commit(
                outcome.report_batch(plan.n, entries, self.batch_seconds, time.time())
            )

    # -- views ---------------------------------------------------------------------------------

    def _begin_load(self) -> None:
        """Begin to load the next view that is new or to be redefined, as of the newest ts."""
        new = [n for n in self._catalogue if n not in self.store.head.views and self._is_able(n)]
        waits = [n for n in self.adapting.waits if self._is_able(n)]
        sources = {n: self.adapting.definition_of(n).view.sources for n in (*waits, *new)}
        wanted = [n for n in sources if self._connections.can_ask(sources[n])]
        if self.loader.current is not None or not wanted:
            return
        name, view = wanted[0], self.adapting.definition_of(wanted[0]).view
        for source, error in self.lookout.extend_capture(view.sources).items():
            if isinstance(error, SchemaError):
                self._fail_load(name, error)
                return
            self.troubles.stop_source(source, error)
        if self._fail_refused(name):
            return
        # What was committed before the columns of this view were captured gets its ts now, so that
        # the load starts after it.
        self.see_commits()
        self._advance_views()
        seen = self.lookout.can_load(view.sources)
        stands = name in self.adapting.waits or name not in self.store.head.views
        able = seen and stands and self._is_able(name)
        if not able or self.adapting.definition_of(name).view != view:
            return
        ts = self.store.ledger.next_ts - 1
        positions = {source: self.lookout.known[source] for source in view.sources}
        self.adapting.start_load(self.loader, name, ts, positions)
        self.observer.on_load_progress(name, "scanning and joining")

    def _fail_load(self, name: str, error: SchemaError) -> None:
        """What a view is to be loaded from cannot be followed, or has moved on."""
        moved = self.adapting.has_moved(name)
        self.adapting.note_load_failure(name)
        if moved:
            self.troubles.met_barrier = True
        else:
            self.troubles.fail_view(name, error)

    def _fail_refused(self, wanted: str = "") -> bool:
        """Stop views whose tables cannot be followed, and no others; whether one was that view."""
        refused = self.lookout.take_refused()
        for name, error in refused.items():
            self._fail_load(name, error)
        return wanted in refused

    def _finish_load(self) -> None:
        """Commit a load that has ended; from its ts on the view is maintained like the others."""
        if not self.loader.has_ended:
            return
        ended, change = self.loader.take_ended(), None
        try:
            with self.troubles.contain_view_errors(ended.name):
                change = ended.take_change()
        except WarehouseError as error:
            # A load needs far more room than a batch: without it the others may go on.
            self.troubles.fail_view(ended.name, error)
        if change is None:
            self.adapting.note_load_failure(ended.name)
            return
        self.store.commit([change])
        self.adapting.note_load_success(ended.name)
        self._anchors.clear_gaps(ended.name)
        rows = self.store.head.views[ended.name].rows
        self.observer.on_load_end(ended.name, rows, time.perf_counter() - ended.started)

    def bind_views(self) -> None:
        """Bind every view whose sources answer; wrong SQL or tables are an error here."""
        self._choices.bind_views()

    def _is_able(self, name: str) -> bool:
        """Whether a view can be maintained now: defined, not stopped, all its sources there."""
        stored = self.store.head.views.get(name)
        if stored is not None and stored.stopped:
            return False
        if name in self.troubles.failed:
            return False
        view = self._catalogue.stored.get(name)
        if view is None or name not in self._choices:
            return False
        if self.lookout.broken.keys() & {*view.sources}:
            return False
        return self._connections.can_ask(view.sources)

    def _batch_member(self, name: str) -> BatchMember:
        stored = self.store.head.views[name]
        plan = sweep_plan_of(self._choices[name].view)
        return BatchMember(name, plan, stored.schema, self.store.folder_of(name))

    def waiting_views(self) -> dict[str, str]:
        """The views that do not stand at the newest ts, and why."""
        failed = {**self._restless, **self.troubles.failed, **self.adapting.adaptation_reasons()}
        return explain_waiting(self.store, self._catalogue, self.lookout, self._connections, failed)
