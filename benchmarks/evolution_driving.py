"""Maintaining under schema changes for a measurement: by steps, with breaks at chosen moments.

Nothing in the engine is changed for it. What is counted, aborted batches and aborted adaptations,
is counted where the engine notes them; a schema change that must come at the worst moment is
committed from inside the call by which a source is about to be asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from viewkeeper.engine.evolution.view_adapter import ViewAdapter
from viewkeeper.engine.maintainer import Again, Maintainer
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import BatchReport, SilentObserver
from viewkeeper.engine.settings.evolution_settings import Detection
from viewkeeper.errors import ViewkeeperError
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.updates.source_protocol import Opener, Tables

PAUSE_SECONDS = 0.02
STEPS_MAX = 1_000


@dataclass(slots=True)
class Counted(SilentObserver):
    """What maintenance did; trouble ends the benchmark."""

    batches: int = 0
    followed: int = 0
    adapted: int = 0
    aborted_batches: int = 0
    aborted_adaptations: int = 0
    said: list[str] = field(default_factory=list)

    def on_batch_commit(self, report: BatchReport) -> None:
        self.batches += bool(report.views)

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        self.adapted += 1

    def on_schema_change(self, view: str, what: str) -> None:
        self.followed += what.startswith("follows")
        self.said.append(what)

    def on_trouble(self, error: ViewkeeperError) -> None:
        raise error


@contextmanager
def maintaining(project: Project, detection: Detection) -> Iterator[tuple[Maintainer, Counted]]:
    """A maintainer that has seen everything so far, and what it does, counted."""
    evolution = replace(project.settings.evolution, detection=detection)
    project.settings = replace(project.settings, evolution=evolution)
    counted = Counted()
    with ExitStack() as stack:
        maintainer = stack.enter_context(project.open_maintainer("benchmark", counted))
        maintainer.start_run()
        settle(maintainer)
        stack.enter_context(_counting(counted))
        yield maintainer, counted


@contextmanager
def _counting(counted: Counted) -> Iterator[None]:
    """Every question that broke ends a batch, or a load, which is noted as failed before it."""
    broke, failed = ViewAdapter.note_broken_query, ViewAdapter.note_load_failure

    def count_broken(adapting: ViewAdapter, name: str) -> bool:
        counted.aborted_batches += 1
        return broke(adapting, name)

    def count_failed(adapting: ViewAdapter, name: str) -> None:
        counted.aborted_adaptations += 1
        counted.aborted_batches -= 1
        failed(adapting, name)

    with (
        mock.patch.object(ViewAdapter, "note_broken_query", count_broken),
        mock.patch.object(ViewAdapter, "note_load_failure", count_failed),
    ):
        yield


def settle(maintainer: Maintainer) -> float:
    """Maintain until everything committed is in the view; how long that took."""
    started = time.perf_counter()
    maintainer.see_commits()
    again = maintainer.maintain_views()
    for _ in range(STEPS_MAX):
        if maintainer.loader.is_busy:
            again = maintainer.finish_loads()
        elif again is Again.BARRIER or maintainer.has_views_behind():
            if again is Again.BARRIER:
                time.sleep(PAUSE_SECONDS)
            maintainer.see_commits()
            again = maintainer.maintain_views()
        else:
            return time.perf_counter() - started
    raise AssertionError("the view does not come to rest")


@contextmanager
def before_asking(source: str, act: Callable[[], None]) -> Iterator[None]:
    """Once, when a source is about to be asked, do something first; it must come to that."""
    snapshots, waiting = SqliteSource.prepare_snapshots, [act]

    @contextmanager
    def acting(asked: SqliteSource, after: int = 0, tables: Tables | None = None) -> Iterator[Any]:
        if waiting and asked.name == source:
            waiting.pop()()
        opener: Opener
        with snapshots(asked, after, tables) as opener:
            yield opener

    with mock.patch.object(SqliteSource, "prepare_snapshots", acting):
        yield
    assert not waiting, f'source "{source}" was never asked'
