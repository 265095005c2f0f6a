"""The maintainer: the one loop that keeps the views of a warehouse fresh.

It looks at the sources, often and cheaply. What it sees gets its ts when a batch is formed, in a
durable plan, before any work (`viewkeeper.engine.plan_runner`). Then the views are swept and
committed in one record, and only then is anything acknowledged to a source. A view's progress is
one ts: all transactions of its sources up to it are applied. Views at the same ts advance together
and become visible together; one that waits for a source stays behind, and catches up in a batch of
its own from where it stands. In `run`, views that are much more expensive than others advance apart
(`viewkeeper.engine.lanes`): this thread begins their batches and commits what they bring.

A restart finds the plan that has no record, replays exactly that, and goes on. What no plan names
yet has left no trace here and is simply seen again.

Nothing is acknowledged before it is committed on disk, and nothing that a load under way still has
to take back. A view that waits holds a source's log back, up to a limit; beyond it the view is
stale and stops, so that one view cannot fill a database.

A view waits because it has stopped, its load has failed, a source has lost what it still needs or
is away, or a view that it reads waits; the first of these that holds is what the user has to know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from viewkeeper.engine.batch.missing_value import is_without_value
from viewkeeper.engine.capture.lookout import PATIENCE_SECONDS, Lookout
from viewkeeper.engine.evolution.anchors import Anchors
from viewkeeper.engine.evolution.recomputed_views import RecomputedViews
from viewkeeper.engine.evolution.view_adapter import ANCHORED, ViewAdapter
from viewkeeper.engine.evolution.view_loads import ViewLoads
from viewkeeper.engine.group.group_lookout import make_lookout
from viewkeeper.engine.load.loader import PROGRESS_SECONDS, Loader
from viewkeeper.engine.plan_runner import PlanRunner
from viewkeeper.engine.requests.run_parts import RunParts
from viewkeeper.engine.requests.run_service import RunService
from viewkeeper.engine.state_watch import StateWatch
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoices, IfAllRefused
from viewkeeper.engine.views.edited_sql import take_edits, write_first_versions
from viewkeeper.engine.views.view_catalogue import ViewCatalogue
from viewkeeper.engine.views.view_troubles import Troubles
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import ViewkeeperError
from viewkeeper.warehouse.metadata.head import ViewHead, owner_of
from viewkeeper.warehouse.metadata.plan_files import LedgerEntry
from viewkeeper.warehouse.metadata.record import Drop, Refresh, Resume, Stop, ViewChange
from viewkeeper.warehouse.store import Store
from viewkeeper.warehouse.waiting_reasons import WaitingReasons

NOT_YET = "not maintained yet"
SHOWN_MEANWHILE = "until it is loaded again it shows its state of ts {:,}"


def explain_waiting(
    workspace: Workspace,
    lookout: Lookout,
    failed: Mapping[str, object],
    apart: Mapping[str, str],
    refused: Mapping[str, ViewkeeperError],
) -> dict[str, str]:
    """The views that do not stand at the newest ts, and why; `failed` are known to be in trouble
    of their own, those `apart` advance apart for these reasons, and `refused` are not what the
    project's files say."""
    store, catalogue, connections = workspace.store, workspace.catalogue, workspace.connections
    reasons = {}
    newest = store.ledger.next_ts - 1
    for name in catalogue:
        stored = store.head.maintained_views.get(name)
        if stored is not None and stored.stopped:
            reasons[name] = stored.stopped
        elif broken := [s for s in catalogue.sources_of(name) if s in lookout.tables.broken]:
            reasons[name] = str(lookout.tables.broken[broken[0]])
        elif name in failed:
            reasons[name] = str(failed[name])
        elif away := [s for s in catalogue.sources_of(name) if s in connections.away]:
            # Also where nothing is known to wait: nobody can say what the source has committed.
            reasons[name] = "\n".join(str(connections.away[source].error) for source in away)
        elif lookout.waiting_reason is not None:
            reasons[name] = lookout.waiting_reason
        elif held := [p for p in catalogue.parents_of(name) if p in reasons]:
            reasons[name] = f'it reads view "{held[0]}", which waits or has stopped'
        elif name in store.head.refreshes:
            reasons[name] = "being loaded again"
        elif stored is None or stored.ts < newest:
            reasons[name] = NOT_YET
            if name in apart:
                reasons[name] += f": it advances apart, because {apart[name]}"
    shown = {
        name: f"{reasons[name]}\n{SHOWN_MEANWHILE.format(store.head.views[name].ts)}"
        for name in store.head.refreshes
        if name in reasons
    }
    return {**reasons, **shown, **{name: str(error) for name, error in refused.items()}}


def start_changes(
    store: Store, catalogue: ViewCatalogue, full_refresh: Collection[str]
) -> list[ViewChange]:
    """What a start commits: views that are gone are dropped, those that have stopped go on, and
    those that are to be loaded again are shown as they are until then.

    What cannot be believed cannot be shown either: a damaged view is dropped before its load. What
    is stored of a view, its folds included, is dropped with it.
    """
    head = store.head
    damaged = {owner_of(name) for name in store.damaged_views}
    is_dropped = catalogue.written.is_dropped
    gone = {owner_of(name) for name in head.views if is_dropped(owner_of(name))}
    gone |= damaged & {*full_refresh}
    going = {name: view for name, view in head.views.items() if owner_of(name) not in gone}
    again = {*full_refresh}
    resumed = [
        name
        for name, view in going.items()
        if view.stopped and owner_of(name) not in damaged and owner_of(name) in catalogue
    ]
    return [
        *(Drop(name, view.table) for name, view in head.views.items() if name not in going),
        *(Resume(name) for name in resumed if owner_of(name) not in again),
        *(Refresh(name) for name in going if name in again and name not in head.refreshes),
    ]


ACKNOWLEDGE_SECONDS = 1.0
REST_SECONDS = 60.0


class Acknowledger:
    """Acknowledges for all views of a project together."""

    def __init__(self, workspace: Workspace, lookout: Lookout) -> None:
        self._settings = workspace.settings
        self._store = workspace.store
        self._catalogue = workspace.catalogue
        self._connections = workspace.connections
        self._lookout = lookout
        self._told = 0.0
        self._rests: dict[str, float] = {}

    def acknowledge_sources(
        self,
        held: Callable[[str], list[int]],
        now: bool,
        loading: Collection[str] = (),
    ) -> list[ViewkeeperError]:
        """Acknowledge, at most once a second unless `now`; what went wrong.

        `held` gives positions of a source that must be kept for other reasons. Views that are
        `loading` again need nothing of what waits for them, and those in lanes do not wait, so that
        they cannot become stale.
        """
        if not now and time.monotonic() - self._told < ACKNOWLEDGE_SECONDS:
            return []
        self._told = time.monotonic()
        is_dropped, head = self._catalogue.written.is_dropped, self._store.head
        views = [v for name, v in head.maintained_views.items() if not is_dropped(name)]
        troubles = []
        for source in self._lookout.tables.watched_sources():
            # A view before a gap needs nothing of what follows it but a load.
            gap_after = self._store.ledger.gap_after
            held_by = [view for view in views if source in view.positions]
            using = [view for view in held_by if gap_after(view.ts, (source,)) is None]
            waiting = [view for view in using if view.view not in loading]
            stale = [view for view in waiting if self._is_stale(view, source)]
            if any(not view.stopped for view in stale):
                self._store.commit(
                    Stop(v.view, _stale_reason(v, source)) for v in stale if not v.stopped
                )
            positions = [view.positions[source] for view in using if view not in stale]
            positions += held(source)
            if positions:
                troubles += self._acknowledge_source(source, min(positions))
        return troubles

    def _is_stale(self, view: ViewHead, source: str) -> bool:
        """Whether a view that waits would hold back more of a source's log than it may."""
        ledger = self._store.ledger
        waiting = ledger.entries_between(view.ts, ledger.next_ts)
        changes = sum(entry.changes for entry in waiting if entry.source == source)
        return changes + self._lookout.sightings.changes_of(source) > self._settings.batch.wait_rows

    def _acknowledge_source(self, name: str, position: int) -> list[ViewkeeperError]:
        if time.monotonic() < self._rests.get(name, 0.0):
            return []
        try:
            self._connections.try_action(name, lambda source: source.acknowledge_position(position))
        except ViewkeeperError as error:
            # Nothing is lost by trying less often what goes wrong each time.
            self._rests[name] = time.monotonic() + REST_SECONDS
            return [error]
        return []


def _stale_reason(view: ViewHead, source: str) -> str:
    return (
        f'stale: too many changes of source "{source}" came while this view waited\n'
        f"  hint: `viewkeeper run --reanchor {view.view}`"
    )


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
        loader = Loader(workspace)
        self.lookout = make_lookout(workspace, loader.list_points)
        self.choices = AlgorithmChoices(workspace)
        self._adapting = ViewAdapter(workspace, self.choices, self.lookout)
        self._troubles = Troubles(
            workspace,
            lambda name: self.lookout.sightings.full or self._adapting.note_broken_query(name),
        )
        self._recomputed = RecomputedViews(workspace, self._adapting)
        self._anchors = Anchors(workspace, self.lookout, self._adapting, self._troubles)
        self._loads = ViewLoads(workspace, loader, self.lookout, self._adapting, self._troubles)
        self._acknowledger = Acknowledger(workspace, self.lookout)
        self.plans = PlanRunner(
            workspace, self.lookout, self.choices, self._troubles, self._anchors.record_gap
        )
        self.plans.lanes.await_parents(lambda: self._loads.awaited_parents(self._is_able))
        self.states = StateWatch(workspace, self.lookout, self._troubles.recent, self.choices)
        parts = RunParts(
            workspace, loader, self.lookout, self.choices, self._adapting, self._troubles
        )
        self.service = RunService(
            parts, lambda: self.states.notes.note_waiting(self._waiting_reasons, now=True)
        )

    @property
    def loader(self) -> Loader:
        return self._loads.loader

    @property
    def _catalogue(self) -> ViewCatalogue:
        return self.workspace.catalogue

    @property
    def store(self) -> Store:
        return self.workspace.store

    def start_run(
        self,
        full_refresh: Sequence[str] = (),
        reanchor: Sequence[str] = (),
        stopping: Callable[[], bool] = lambda: False,
        if_all_refused: IfAllRefused = "raise",
    ) -> None:
        """Bring the warehouse in line with the project, and finish what a crash left open.

        An algorithm that waits for a quiet moment goes on until `stopping` says so. A refused view
        is an error if it is named here; `if_all_refused` says what it is if all of them are.
        """
        self.plans.stop_when(stopping)
        self._catalogue.written.reconsider_edits()
        self._catalogue.written.check_all_written((*full_refresh, *reanchor))
        wanted = [name for name in self.store.head.refreshes if name in self._catalogue]
        named, full_refresh = full_refresh, tuple(dict.fromkeys((*full_refresh, *wanted)))
        self._anchors.request_anchors(reanchor)
        self._catalogue.adopt_versions(self.store.head, without=full_refresh)
        take_edits(self.store, self._catalogue, self.workspace.connections, full_refresh)
        # An algorithm or SQL that is refused must be refused before anything is dropped.
        self.choices.bind_views(full_refresh)
        self.choices.refuse_views(self._recomputed.find_refused(full_refresh))
        self.choices.raise_refused(named, if_all_refused)
        changes = start_changes(self.store, self._catalogue, full_refresh)
        without = {change.view for change in changes if isinstance(change, Drop)}
        if (plan := self.store.pending_plan()) is not None:
            members = [n for n in plan.views if n not in without and n not in full_refresh]
            self.plans.finish_plan(plan, [name for name in members if self._is_able(name)])
        if changes:
            self.store.commit(changes)
        write_first_versions(self.store, self._catalogue)
        self._loads.forget_strangers()
        self.plans.commits.clear_archive()
        self.states.compare_refused()

    def see_commits(self, seconds: float = PATIENCE_SECONDS) -> None:
        """See what the sources have committed since the last look, as far as they tell in time."""
        self.choices.bind_views()
        failed = self.lookout.tables.note_failed(self.workspace.connections.failed)
        for name, error in (failed | self.lookout.look_at_sources(seconds)).items():
            if self._loads.begin_again_without(name, error):
                continue
            if not self._anchors.record_gap(name, error):
                self._troubles.stop_source(name, error)
        self._loads.fail_refused()

    def has_views_behind(self, ts: int | None = None) -> bool:
        """Whether some view could advance or be loaded now; or has not come to a ts."""
        newest = self.store.ledger.next_ts - 1 if ts is None else ts
        if self.loader.has_ended or self.plans.lanes.has_ended:
            return True
        loading = not self.loader.has_room
        return any(
            self._has_before_it(name, newest)
            for name in self._catalogue
            if self._is_able(name) and not self.plans.lanes.has_to_wait(name)
            if not (
                self.loader.is_loading(name) or self._adapting.pending.is_blocked(name, loading)
            )
        )

    def _has_before_it(self, name: str, newest: int) -> bool:
        """Whether a view could go on or be loaded, as far as the views that it reads have come."""
        views = self.store.head.maintained_views
        parents = [views[p].ts for p in self._catalogue.parents_of(name) if p in views]
        reached = min([newest, *parents])
        if name not in views or name in self._adapting.pending.waits:
            return self.loader.has_room and reached == newest
        if is_without_value(views[name].stopped) and self.plans.is_tried(name, newest):
            return False
        if self._recomputed.is_recomputed(name) and not self._recomputed.is_due(name):
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
        self.plans.commit_lanes()
        for loaded in self._loads.commit_ended():
            self._anchors.clear_gaps(loaded)
            self._recomputed.note_loaded(loaded)
        self._advance_views()
        self._begin_loads()
        self.acknowledge_commits()
        self.states.compare_states()
        self.states.notes.note_waiting(self._waiting_reasons)
        return self._why_again(since, until)

    def _why_again(self, since: Progress | None, until: int | None) -> Again | None:
        if self._troubles.take_barrier():
            return Again.BARRIER
        if self.lookout.sightings.full:
            return Again.FULL
        if self._has_advanced(since, until):
            return Again.ADVANCED
        if self.loader.is_busy:
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
        lanes = self.plans.lanes.under_way
        held, names = lanes.hold_beside(self.loader.held_positions), self.loader.names | lanes.names
        for error in self._acknowledger.acknowledge_sources(held, now, names):
            self._troubles.report_trouble(error)

    def finish_loads(self, since: Progress | None = None, until: int | None = None) -> Again | None:
        """Wait until every view that could be loaded is, and maintain them.

        Somebody should look again where something was loaded: a view whose columns only that load
        tells lets others be bound now that read it.
        """
        again, before = None, self.store.head.record
        while self.loader.is_busy:
            if self.loader.wait_for_end(PROGRESS_SECONDS):
                again = self.maintain_views(since, until)
            else:
                self.tell_progress()
        return Again.ADVANCED if again is None and self.store.head.record > before else again

    def tell_progress(self, now: bool = False) -> None:
        """Say how far loads are, at most every few seconds, what the last batches were, why views
        wait, and which views and sources are in another state than before."""
        self.plans.write_activity()
        self.states.compare_states(now)
        self.states.notes.note_waiting(self._waiting_reasons, now)
        for name, far in self.loader.read_progress().items():
            self.workspace.observer.on_load_progress(name, far)

    def _advance_views(self) -> None:
        entries = self.lookout.sightings.take_entries()
        newest = entries[-1].ts if entries else self.store.ledger.next_ts - 1
        views = self.store.head.maintained_views
        able = [n for n in self._catalogue if n in views and self._is_able(n)]
        entries = self.plans.record_barriers(entries)
        targets: dict[str, int] = {}
        for name in able:
            target = None
            with self._troubles.contain_view_errors(name):
                target = self._target_of(name, newest, entries)
            barrier = None if target is None else self.plans.barrier_ahead(name, target)
            if target is not None and barrier is None:
                targets[name] = target
            elif barrier is not None and not self.plans.can_cross(name):
                # What went unlisted cannot be taken out of groups: the difference is computed.
                self._adapting.anchor_view(name, f"{ANCHORED} a table was emptied")
            elif barrier is not None:
                self.plans.cross_next(name, barrier, entries)
                entries = ()
        # One that could not cross stays where it is: on this side nothing else can be done for it.
        targets = {n: t for n, t in targets.items() if self._is_able(n)}
        self.plans.advance_views(targets, newest, entries)

    def _target_of(self, name: str, newest: int, entries: Sequence[LedgerEntry]) -> int | None:
        """The ts to which a view may be maintained; None if it waits, or is to be loaded."""
        if self.loader.is_loading(name) or self.plans.lanes.under_way.is_held(name):
            return None
        if self._recomputed.is_recomputed(name):
            target = self._adapting.meet_schema_changes(name, newest)
            return self._recomputed.advance_to(name, target, entries)
        anchored = self._anchors.anchor_if_needed(name)
        return None if anchored else self._adapting.meet_schema_changes(name, newest)

    def _begin_loads(self) -> None:
        """Begin to load views that are new or to be redefined, each as of the newest ts."""
        while (chosen := self._loads.choose_next(self._is_able)) is not None:
            # What was committed before the columns of this view were captured gets its ts now, so
            # that the load starts after it.
            self.see_commits()
            self._advance_views()
            if not self._loads.begin_load(chosen, self._is_able):
                return

    def _is_able(self, name: str) -> bool:
        """Whether a view can be maintained now: defined, not stopped, all its sources there."""
        views = self.store.head.maintained_views
        stored = views.get(name)
        if stored is not None and stored.stopped and not self._is_tried_again(stored):
            return False
        if name in self._troubles.failed:
            return False
        view = self._catalogue.stored.get(name)
        if view is None or not {name, *view.parents} <= self.choices.keys():
            return False
        if self.lookout.tables.broken.keys() & {*view.sources}:
            return False
        parents = [views.get(parent) for parent in view.parents]
        if any(parent is None or parent.stopped for parent in parents):
            return False
        return self.workspace.connections.can_ask(view.sources)

    def _is_tried_again(self, stored: ViewHead) -> bool:
        """Whether a view that has stopped is maintained all the same."""
        return is_without_value(stored.stopped) or stored.view in self._troubles.retried

    @property
    def is_at_rest(self) -> bool:
        """Whether everything is maintained and nothing is under way: a later refresh that finds the
        warehouse as it is now may go on from here."""
        settings, connections = self.workspace.settings, self.workspace.connections
        under_way = (
            settings.registry is not None
            or self.loader.is_busy
            or not self.lookout.sightings.is_empty
            or self.lookout.sightings.full
            or connections.has_trouble
            or self._adapting.pending.has_any
            or bool(self.choices.provisional)
            or bool(self.store.damaged_views)
            or any(self._recomputed.is_recomputed(name) for name in self._catalogue)
        )
        return not under_way and not self.waiting_views()

    def _waiting_reasons(self) -> WaitingReasons:
        waiting = self.waiting_views().items()
        found = {name: why for name, why in waiting if not why.startswith(NOT_YET)}
        return WaitingReasons(found, tuple(sorted(self._troubles.failed)))

    def waiting_views(self) -> dict[str, str]:
        """The views that do not stand at the newest ts, and why."""
        failed = {
            **self.plans.restless,
            **self._troubles.failed,
            **self._adapting.pending.adaptation_reasons(),
        }
        refused = self.choices.refused_views()
        apart = self.plans.lanes.reasons
        return explain_waiting(self.workspace, self.lookout, failed, apart, refused)
