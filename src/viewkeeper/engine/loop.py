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

from viewkeeper.engine.maintainer import Again, Maintainer
from viewkeeper.engine.report import BatchReport, Observer, Report
from viewkeeper.engine.upkeep import Upkeep, keep_small

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

    def __init__(self, told: Observer) -> None:
        self.report = Report()
        self.on_load_progress = told.on_load_progress
        self.on_schema_change = told.on_schema_change
        self.on_trouble = told.on_trouble
        self._told = told

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        self.report.loaded[view] = rows
        self._told.on_load_end(view, rows, seconds)

    def on_batch_commit(self, report: BatchReport) -> None:
        self.report.add_batch(report)
        self._told.on_batch_commit(report)


def refresh_views(
    maintainer: Maintainer,
    report: Report,
    full_refresh: Sequence[str] = (),
    reanchor: Sequence[str] = (),
) -> Report:
    """Everything committed up to now; views whose sources are away are named in the report.

    `report` is what the maintainer's observer sums up.
    """
    started = time.perf_counter()
    maintainer.start_run(full_refresh, reanchor)
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
    maintainer.acknowledge_commits(now=True)
    keep_small(maintainer.store)
    report.end_report(maintainer.waiting_views(), time.perf_counter() - started)
    return report


def run_until(
    maintainer: Maintainer,
    report: Report,
    stop: threading.Event,
    full_refresh: Sequence[str] = (),
    reanchor: Sequence[str] = (),
) -> Report:
    """Maintain until `stop` is set; `report` is what the maintainer's observer sums up."""
    started = time.perf_counter()
    maintainer.start_run(full_refresh, reanchor, stop.is_set)
    upkeep = Upkeep(maintainer.workspace)
    while not stop.is_set():
        maintainer.see_commits(FRESH_SECONDS)
        if is_batch_due(maintainer):
            maintainer.maintain_views()
            upkeep.run_due_steps()
        else:
            maintainer.acknowledge_commits()
            maintainer.tell_progress()
            stop.wait(LOOK_SECONDS)
    maintainer.loader.abandon_load()
    maintainer.acknowledge_commits(now=True)
    report.end_report(maintainer.waiting_views(), time.perf_counter() - started)
    return report


def is_batch_due(maintainer: Maintainer) -> bool:
    """Whether a batch should be formed now."""
    settings = maintainer.workspace.settings
    if maintainer.lookout.sightings.waiting_changes >= settings.batch.rows:
        return True
    if maintainer.lookout.sightings.oldest_committed_at is None:
        return maintainer.has_views_behind()
    age = time.time() - maintainer.lookout.sightings.oldest_committed_at
    return age + maintainer.batch_seconds >= settings.freshness
