"""When to look, when to form a batch, when to stop.

Looking is cheap and frequent: the more often, the finer the transactions that a source without
transaction ids reports. A batch is formed when the oldest change would otherwise get older than the
freshness target, given how long batches take, or when enough changes wait. So a quiet system
commits quickly, and a busy one commits few and large batches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.report import BatchReport, Observer, Report
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.engine.upkeep import Upkeep
from viewkeeper.errors import ViewkeeperError

LOOK_SECONDS = 0.02
FRESH_SECONDS = 0.2
"""For so long a look waits for its sources, while other views are to be kept fresh."""

AGAIN_MAX = 10_000
"""How often a refresh looks again, because there was more than one look takes, or because a batch
met what only the next look reports."""

OTHERS_SECONDS = 15.0
"""For how long a refresh waits for other members of its group, as long as nothing goes on: longer
than the lease of a reporter that has died."""


class SummingObserver:
    """An observer that sums up for a report and passes everything on."""

    def __init__(self, report: Report, told: Observer) -> None:
        self.report = report
        self._told = told

    def on_load_progress(self, view: str, stage: str) -> None:
        self._told.on_load_progress(view, stage)

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        self.report.loaded[view] = rows
        self._told.on_load_end(view, rows, seconds)

    def on_batch_commit(self, report: BatchReport) -> None:
        self.report.add_batch(report)
        self._told.on_batch_commit(report)

    def on_schema_change(self, view: str, what: str) -> None:
        self._told.on_schema_change(view, what)

    def on_trouble(self, error: ViewkeeperError) -> None:
        self._told.on_trouble(error)


def refresh_views(
    maintainer: Maintainer,
    observer: Observer,
    full_refresh: Sequence[str],
    reanchor: Sequence[str] = (),
) -> Report:
    """Everything committed up to now; views whose sources are away are named in the report."""
    started = time.perf_counter()
    report = Report()
    maintainer.observer = SummingObserver(report, observer)
    maintainer.start_run(full_refresh, reanchor)
    maintainer.bind_views()
    at, stands = maintainer.store.head.record, _ts_by_view(maintainer)
    maintainer.see_commits()
    maintainer.maintain_views()
    there = maintainer.store.ledger.next_ts - 1
    end = time.monotonic() + OTHERS_SECONDS
    for _ in range(AGAIN_MAX):
        before, at = at, maintainer.store.head.record
        end = time.monotonic() + OTHERS_SECONDS if at > before else end
        # A view that crosses a barrier has the rest of what was there before it; but one whose
        # algorithm waits for a quiet moment may commit something and not get any further.
        stood, stands = stands, _ts_by_view(maintainer)
        crosses = stood != stands and maintainer.has_views_behind(there)
        advances = at > before and (maintainer.adapting.halfway or crosses)
        if maintainer.lookout.full or maintainer.troubles.met_barrier or advances:
            if maintainer.troubles.met_barrier:
                # What was met is committed, but a log may take a moment to tell of it.
                time.sleep(LOOK_SECONDS)
            maintainer.see_commits()
            maintainer.maintain_views()
        elif maintainer.loader.current is not None:
            maintainer.finish_loads()
        elif maintainer.has_silent_source or (
            maintainer.lookout.has_pending and time.monotonic() < end
        ):
            # All else is up to date: now a source that answers late, or others, are waited for.
            time.sleep(LOOK_SECONDS)
            maintainer.see_commits()
            maintainer.maintain_views()
            there = maintainer.store.ledger.next_ts - 1
        else:
            break
    maintainer.finish_loads()
    maintainer.acknowledge_commits(now=True)
    report.waiting = maintainer.waiting_views()
    report.seconds = time.perf_counter() - started
    return report


def _ts_by_view(maintainer: Maintainer) -> dict[str, int]:
    """The ts of every view."""
    return {name: view.ts for name, view in maintainer.store.head.views.items()}


def run_until(
    maintainer: Maintainer,
    settings: Settings,
    observer: Observer,
    stop: threading.Event,
    full_refresh: Sequence[str],
    spark: SparkHandle,
    reanchor: Sequence[str] = (),
) -> Report:
    """Maintain until told to stop."""
    report = Report()
    started = time.perf_counter()
    maintainer.observer = SummingObserver(report, observer)
    maintainer.stopping = stop.is_set
    maintainer.start_run(full_refresh, reanchor)
    maintainer.bind_views()
    upkeep = Upkeep(maintainer.store, settings, spark, observer)
    while not stop.is_set():
        maintainer.see_commits(FRESH_SECONDS)
        if is_batch_due(maintainer, settings):
            maintainer.maintain_views()
            upkeep.run_due_steps()
        else:
            maintainer.acknowledge_commits()
            maintainer.tell_progress()
            stop.wait(LOOK_SECONDS)
    maintainer.loader.abandon_load()
    maintainer.acknowledge_commits(now=True)
    report.waiting = maintainer.waiting_views()
    report.seconds = time.perf_counter() - started
    return report


def is_batch_due(maintainer: Maintainer, settings: Settings) -> bool:
    """Whether a batch should be formed now."""
    if maintainer.lookout.waiting_changes >= settings.batch.rows:
        return True
    if maintainer.lookout.oldest_committed_at is None:
        return maintainer.has_views_behind()
    age = time.time() - maintainer.lookout.oldest_committed_at
    return age + maintainer.batch_seconds >= settings.freshness
