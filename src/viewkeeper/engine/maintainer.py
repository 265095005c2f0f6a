"""The maintainer: the one loop that keeps the views of a warehouse fresh.

It looks at the sources, often and cheaply. What it sees gets its ts when a batch is formed, in a
durable plan, before any work (`viewkeeper.engine.plan_runner`). Then the views are swept and
committed in one record, and only then is anything acknowledged to a source. A view's progress is
one ts: all transactions of its sources up to it are applied. Views at the same ts advance together
and become visible together; one that waits for a source stays behind, and catches up in a batch of
its own from where it stands.

A restart finds the plan that has no record, replays exactly that, and goes on. What no plan names
yet has left no trace here and is simply seen again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from viewkeeper.engine.batch.missing_value import is_without_value
from viewkeeper.engine.capture.acknowledgement import Acknowledger
from viewkeeper.engine.capture.blocked_views import explain_waiting
from viewkeeper.engine.capture.lookout import PATIENCE_SECONDS
from viewkeeper.engine.evolution.anchors import ANCHORED, Anchors
from viewkeeper.engine.evolution.view_adapter import ViewAdapter
from viewkeeper.engine.evolution.view_loads import ViewLoads
from viewkeeper.engine.group.lookout_choice import make_lookout
from viewkeeper.engine.load.loader import PROGRESS_SECONDS, Loader
from viewkeeper.engine.plan_runner import PlanRunner
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoices
from viewkeeper.engine.views.edited_sql import take_edits, write_first_versions
from viewkeeper.engine.views.view_troubles import Troubles
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.warehouse.metadata.head import owner_of
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
        self._acknowledger = Acknowledger(workspace, self.lookout)
        self._plans = PlanRunner(
            workspace, self.lookout, self._choices, self._troubles, self._anchors.record_gap
        )

    @property
    def batch_seconds(self) -> float:
        """How long the last batch took."""
        return self._plans.batch_seconds

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
        self._plans.stop_when(stopping)
        views, settings = self.store.head.views, self.workspace.settings
        named = (*settings.views, *settings.evolution.views, *settings.on_gap.views)
        for name in (*full_refresh, *reanchor, *named):
            self._catalogue.check_name(name)
        self._anchors.request_anchors(reanchor)
        self._catalogue.adopt_versions(self.store.head, without=full_refresh)
        take_edits(self.store, self._catalogue, self.workspace.connections, full_refresh)
        # An algorithm or SQL that is refused must be refused before anything is dropped.
        self._choices.bind_views(full_refresh)
        # What is stored of a view, its folds included, goes with it.
        gone = [Drop(n, v.table) for n, v in views.items() if owner_of(n) not in self._catalogue]
        again = [Drop(n, v.table) for n, v in views.items() if owner_of(n) in full_refresh]
        damaged = {owner_of(name) for name in self.store.damaged_views}
        stopped = [
            Resume(name)
            for name, view in views.items()
            if view.stopped and owner_of(name) in self._catalogue
            if owner_of(name) not in (*full_refresh, *damaged)
        ]
        plan, without = self.store.pending_plan(), {change.view for change in (*gone, *again)}
        if plan is not None:
            self._plans.finish_plan(
                plan, [n for n in plan.views if n not in without and self._is_able(n)]
            )
        if gone or again or stopped:
            self.store.commit([*gone, *again, *stopped])
        write_first_versions(self.store, self._catalogue)
        self._plans.clear_archive()

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
        if self.loader.has_ended:
            return True
        loading = self.loader.current is not None
        return any(
            self._has_before_it(name, newest)
            for name in self._catalogue
            if self._is_able(name)
            and not (
                self.loader.is_loading(name) or self._adapting.pending.is_blocked(name, loading)
            )
        )

    def _has_before_it(self, name: str, newest: int) -> bool:
        """Whether a view could go on or be loaded, as far as the views that it reads have come."""
        views = self.store.head.views
        parents = [views[p].ts for p in self._catalogue.parents_of(name) if p in views]
        reached = min([newest, *parents])
        if name not in views or name in self._adapting.pending.waits:
            return self.loader.current is None and reached == newest
        if is_without_value(views[name].stopped) and self._plans.is_tried(name, newest):
            return False
        return views[name].ts < reached or self._anchors.is_lost(name)

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
        for error in self._acknowledger.acknowledge_sources(
            self.loader.held_positions, now, loading
        ):
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
        entries = self._plans.record_barriers(entries)
        targets: dict[str, int] = {}
        for name in able:
            target = None
            with self._troubles.contain_view_errors(name):
                anchored = self.loader.is_loading(name) or self._anchors.anchor_if_needed(name)
                target = None if anchored else self._adapting.meet_schema_changes(name, newest)
            barrier = None if target is None else self._plans.barrier_ahead(name, target)
            if target is not None and barrier is None:
                targets[name] = target
            elif barrier is not None and not self._plans.can_cross(name):
                # What went unlisted cannot be taken out of groups: the difference is computed.
                self._adapting.anchor_view(name, f"{ANCHORED} a table was emptied")
            elif barrier is not None:
                self._plans.cross_next(name, barrier, entries)
                entries = ()
        # One that could not cross stays where it is: on this side nothing else can be done for it.
        targets = {n: t for n, t in targets.items() if self._is_able(n)}
        self._plans.advance_views(targets, newest, entries)

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
        if stored is not None and stored.stopped and not is_without_value(stored.stopped):
            return False
        if name in self._troubles.failed:
            return False
        view = self._catalogue.stored.get(name)
        if view is None or name not in self._choices:
            return False
        if self.lookout.tables.broken.keys() & {*view.sources}:
            return False
        parents = [self.store.head.views.get(parent) for parent in view.parents]
        if any(parent is None or parent.stopped for parent in parents):
            return False
        return self.workspace.connections.can_ask(view.sources)

    def waiting_views(self) -> dict[str, str]:
        """The views that do not stand at the newest ts, and why."""
        failed = {
            **self._plans.restless,
            **self._troubles.failed,
            **self._adapting.pending.adaptation_reasons(),
        }
        return explain_waiting(self.workspace, self.lookout, failed)
