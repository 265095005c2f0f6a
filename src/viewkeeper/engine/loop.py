"""When to look, when to form a batch, when to stop.

Looking is cheap and frequent: the more often, the finer the transactions that a source without
transaction ids reports. Where changes come, more are expected: for a second after one, a look
follows within two milliseconds. Otherwise it waits twenty; or a hundred, if all sources can tell
without being asked (`HintedSource`) whether there may be something, and none does.

A batch is formed as soon as the last one has ended: a quiet system commits at once, and a busy one
makes batches as large as the last one took. With a `freshness:` above zero it waits until the
oldest change would otherwise get older than that, given how long batches take, or until enough
changes wait: fewer commits, for those who need no fresher views.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext

from viewkeeper.engine.capture.lookout import Lookout
from viewkeeper.engine.maintainer import Again, Maintainer
from viewkeeper.engine.reload.project_reload import ProjectReload
from viewkeeper.engine.report import BatchReport, Observer, Report
from viewkeeper.engine.state_watch import StateWatch
from viewkeeper.engine.upkeep import Upkeep, grouping_commits, keep_small
from viewkeeper.engine.views.algorithm_choice import IfAllRefused
from viewkeeper.errors import DefinitionError, ProjectError

LOOK_SECONDS = 0.02
HINTED_LOOK_SECONDS = 0.1
"""The longest time between two looks: at sources that cannot tell, and at those that can."""

EAGER_SECONDS = 1.0
"""For so long after a change more are expected at once."""

GLANCE_SECONDS = 0.002
CALM_GLANCE_SECONDS = 0.005
"""How often hints are read between two looks: while changes are expected, and otherwise."""

ROUTINE_SECONDS = 0.1
"""How often the loop does what is not urgent."""

FRESH_SECONDS = 0.2
"""For so long a look waits for its sources, while other views are to be kept fresh."""

AGAIN_MAX = 10_000
"""How often a refresh looks again, because there was more than one look takes, or because a batch
met what only the next look reports."""

OTHERS_SECONDS = 15.0
"""For how long a refresh waits for other members of its group, as long as nothing goes on: longer
than the lease of a reporter that has died."""


class SummingObserver(Observer):
    """An observer that sums up for a report."""

    def __init__(self) -> None:
        self.report = Report()

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        self.report.loaded[view] = rows

    def on_batch_commit(self, report: BatchReport) -> None:
        self.report.add_batch(report)


def refresh_views(maintainer: Maintainer, report: Report, started: float | None = None) -> Report:
    """Everything committed up to now; views whose sources are away are named in the report.

    The maintainer has begun its run; `report` is what its observer sums up, from the time when it
    was `started`. Whoever ends the run acknowledges.
    """
    started = time.perf_counter() if started is None else started
    since = maintainer.read_progress()
    maintainer.see_commits()
    again = maintainer.maintain_views(since)
    there = maintainer.store.ledger.next_ts - 1
    end = time.monotonic() + OTHERS_SECONDS
    for _ in range(AGAIN_MAX):
        before, since = since, maintainer.read_progress()
        end = time.monotonic() + OTHERS_SECONDS if since.record > before.record else end
        if again is None or (again is Again.PENDING and time.monotonic() >= end):
            break
        if again is Again.LOADING:
            again = maintainer.finish_loads(since, there)
            continue
        if again not in (Again.FULL, Again.ADVANCED):
            # What was met is committed, but a log may take a moment to tell of it. And where all
            # else is up to date, a source that answers late, or others, are waited for.
            time.sleep(LOOK_SECONDS)
        maintainer.see_commits()
        if again in (Again.SILENT, Again.PENDING):
            again = maintainer.maintain_views(since)
            there = maintainer.store.ledger.next_ts - 1
        else:
            again = maintainer.maintain_views(since, there)
    maintainer.finish_loads()
    maintainer.tell_progress(now=True)
    keep_small(maintainer.store)
    report.end_report(maintainer.waiting_views(), time.perf_counter() - started)
    return report


def run_sessions(
    open_session: Callable[[], AbstractContextManager[Maintainer]],
    report: Report,
    stop: threading.Event,
    reload: ProjectReload,
    full_refresh: Sequence[str] = (),
    reanchor: Sequence[str] = (),
    sync_tables: bool = False,
) -> Report:
    """Maintain until `stop` is set, in a new session whenever the project's files have changed.

    Files that turn out not to be usable at the start of a session are given up for those before.
    """
    started = time.perf_counter()
    states: StateWatch | None = None
    while True:
        with open_session() as maintainer:
            if states is not None:
                maintainer.states.go_on_from(states)
            states = maintainer.states
            try:
                run_until(maintainer, report, stop, full_refresh, reanchor, sync_tables, reload)
            except (ProjectError, DefinitionError) as error:
                if not reload.take_back(error):
                    raise
        if stop.is_set():
            report.end_report(report.waiting, time.perf_counter() - started)
            return report
        if reload.is_pending:
            reload.take_up()
        full_refresh = reanchor = ()


def run_until(
    maintainer: Maintainer,
    report: Report,
    stop: threading.Event,
    full_refresh: Sequence[str] = (),
    reanchor: Sequence[str] = (),
    sync_tables: bool = False,
    reload: ProjectReload | None = None,
) -> Report:
    """Maintain until `stop` is set, or a `reload` is due; `report` is what the maintainer's
    observer sums up.

    Small commits are grouped: their tables follow every second, or with each if `sync_tables`.
    """
    started = time.perf_counter()
    is_reload = reload is not None and reload.is_pending
    # Who only reloads goes on with whatever there is, and a run waits for sources to be mended.
    if_all_refused: IfAllRefused = "go on" if is_reload else "retry"
    maintainer.start_run(full_refresh, reanchor, stop.is_set, if_all_refused)
    if reload is not None:
        reload.note_start(maintainer)
    store, settings = maintainer.store, maintainer.workspace.settings
    group = nullcontext() if sync_tables else grouping_commits(store, settings)
    maintainer.plans.lanes.allow_lanes()
    with closing(maintainer.service.requests), group, maintainer.states.asking_sources():
        try:
            _maintain_until(maintainer, stop, reload)
        finally:
            maintainer.plans.lanes.under_way.abandon_lanes()
    report.end_report(maintainer.waiting_views(), time.perf_counter() - started)
    return report


def _maintain_until(
    maintainer: Maintainer, stop: threading.Event, reload: ProjectReload | None
) -> None:
    lanes, pace = maintainer.plans.lanes.under_way, LookPace()
    upkeep = Upkeep(maintainer.workspace, lanes)
    while not stop.is_set():
        maintainer.service.requests.answer_all()
        maintainer.service.retry_troubles(maintainer.maintain_views)
        maintainer.see_commits(FRESH_SECONDS)
        is_routine = pace.take_routine()
        if is_routine and reload is not None and reload.is_due(maintainer):
            break
        if is_batch_due(maintainer, is_routine):
            maintainer.maintain_views()
            upkeep.run_due_steps()
            pace.note_change()
            continue
        if is_routine:
            maintainer.store.confirm_usable()
            # Who was stopped for long finds out here that another process has taken over.
            maintainer.store.confirm_lock()
            maintainer.acknowledge_commits()
            maintainer.tell_progress()
        pace.wait_for_news(maintainer.lookout, stop)
    maintainer.plans.end_lanes()
    maintainer.loader.abandon_loads()
    maintainer.tell_progress(now=True)
    maintainer.acknowledge_commits(now=True)


def is_batch_due(maintainer: Maintainer, is_routine: bool = True) -> bool:
    """Whether a batch should be formed now; as a routine, also for views that are behind."""
    settings = maintainer.workspace.settings
    if maintainer.plans.lanes.has_ended:
        return True
    if maintainer.lookout.sightings.waiting_changes >= settings.batch.rows:
        return True
    if maintainer.lookout.sightings.oldest_committed_at is None:
        return is_routine and maintainer.has_views_behind()
    age = time.time() - maintainer.lookout.sightings.oldest_committed_at
    return not settings.freshness or age + maintainer.plans.batch_seconds >= settings.freshness


class LookPace:
    """How long the loop waits until it looks again."""

    def __init__(self) -> None:
        self._eager_until = 0.0
        self._routine_at = 0.0

    def note_change(self) -> None:
        """Something was maintained: more may follow, and a view may have the rest before it."""
        self._eager_until = time.monotonic() + EAGER_SECONDS
        self._routine_at = 0.0

    def take_routine(self) -> bool:
        """Whether it is time for what is not urgent; then that is done now."""
        now = time.monotonic()
        if now < self._routine_at:
            return False
        self._routine_at = now + ROUTINE_SECONDS
        return True

    def wait_for_news(self, lookout: Lookout, stop: threading.Event) -> None:
        """Wait until a look is due, or may be worthwhile, or all is to end."""
        began = time.monotonic()
        is_eager = began < self._eager_until
        glance = GLANCE_SECONDS if is_eager else CALM_GLANCE_SECONDS
        while not stop.wait(glance):
            hint, waited = lookout.has_news(), time.monotonic() - began
            longest = LOOK_SECONDS if hint is None else HINTED_LOOK_SECONDS
            if hint or waited >= longest or (hint is None and is_eager):
                return
