"""Data updates and schema changes mixed: the Dyno paper's section 7.4.

A thread commits an update of a random source at every interval; one in twenty is a schema change:
by turns a rename, and a table made again, which needs rows. A table that is renamed
and then dropped between two looks is one that was dropped, as far as SQLite lets one know, and the
view would stop with that as its cause; so two sources make their tables again and the two others
rename.

Beside it the view is maintained as fast as it can be. The shorter the interval, the more is
concurrent. *Maintenance* is the time during which the maintainer works or an adaptation is under
way; it goes on after the last update until the view has everything, and then the view is compared
with recomputation.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.evolution_driving import Counted, maintaining
from benchmarks.evolution_world import RESHAPES, Reshape, World
from viewkeeper.engine.maintainer import Again, Maintainer
from viewkeeper.engine.project import Project
from viewkeeper.engine.settings.evolution_settings import DETECTIONS, Detection

SCHEMA_SHARE = 0.05
IDLE_SECONDS = 0.002
REBUILT, RENAMED = ("s1", "s3"), ("s2", "s4")
"""Which sources make their table again, and which change names."""
LATE_SECONDS = 300.0
"""So long after the last update the view must have come to rest."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """One detection at one interval: medians over the repetitions, and sums of what was aborted."""

    detection: Detection
    interval_ms: float
    updates: int
    schema_changes: int
    repetitions: int
    ms_per_update: float
    """Maintenance for one update."""
    ms_per_update_all: tuple[float, ...]
    batches: float
    adaptations: float
    aborted_batches: int
    aborted_adaptations: int


class Writer(threading.Thread):
    """Commits the updates at their times; an error of it is raised by `finish`."""

    def __init__(self, world: World, plan: Sequence[Reshape | None], interval: float) -> None:
        super().__init__(name="writer", daemon=True)
        self._world = world
        self._plan = plan
        self._interval = interval
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._write()
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            self._error = error

    def _write(self) -> None:
        due = time.monotonic()
        for kind in self._plan:
            time.sleep(max(0.0, due - time.monotonic()))
            due += self._interval
            if kind is None:
                self._world.update()
            else:
                sources = REBUILT if kind == "recreate_table" else RENAMED
                self._world.reshape(kind, self._world.draw.choice(sources))

    def finish(self) -> None:
        self.join()
        if self._error is not None:
            raise self._error


def planned(world: World, updates: int) -> list[Reshape | None]:
    """The updates in their order: what each schema change is, and None for data updates."""
    changes = max(1, round(updates * SCHEMA_SHARE))
    renames = [kind for kind in RESHAPES if kind != "recreate_table"]
    kinds: list[Reshape] = [
        "recreate_table" if number % 2 else renames[number // 2 % len(renames)]
        for number in range(changes)
    ]
    world.draw.shuffle(kinds)
    plan: list[Reshape | None] = [None] * updates
    for place, kind in zip(sorted(world.draw.sample(range(updates), changes)), kinds, strict=True):
        plan[place] = kind
    return plan


def measure(
    project: Project,
    world: World,
    intervals: Sequence[float],
    updates: int,
    repetitions: int,
) -> Iterator[Mixed]:
    """Every interval with both detections, which take turns."""
    for interval in intervals:
        runs: dict[Detection, list[tuple[float, Counted]]] = {each: [] for each in DETECTIONS}
        for _ in range(repetitions):
            plan = planned(world, updates)
            for detection in DETECTIONS:
                runs[detection].append(_run(project, world, plan, interval, detection))
        for detection in DETECTIONS:
            yield _mixed(detection, interval, updates, runs[detection])


def _mixed(
    detection: Detection, interval: float, updates: int, runs: Sequence[tuple[float, Counted]]
) -> Mixed:
    per_update = tuple(1000 * busy / updates for busy, _ in runs)
    return Mixed(
        detection,
        interval,
        updates,
        max(1, round(updates * SCHEMA_SHARE)),
        len(runs),
        statistics.median(per_update),
        per_update,
        statistics.median(counted.batches for _, counted in runs),
        statistics.median(counted.adapted for _, counted in runs),
        sum(counted.aborted_batches for _, counted in runs),
        sum(counted.aborted_adaptations for _, counted in runs),
    )


def _run(
    project: Project,
    world: World,
    plan: Sequence[Reshape | None],
    interval_ms: float,
    detection: Detection,
) -> tuple[float, Counted]:
    with maintaining(project, detection) as (maintainer, counted):
        writer = Writer(world, plan, interval_ms / 1000)
        writer.start()
        busy = _busy(maintainer, writer)
        writer.finish()
    world.check(project, f"mixed updates every {interval_ms:g} ms, {detection}")
    return busy, counted


def _busy(maintainer: Maintainer, writer: threading.Thread) -> float:
    """Maintain beside the writer and to the end; for how long there was something to do."""
    busy, end, again = 0.0, None, None
    while True:
        # Asked before the look: what it committed last is seen by that look.
        writing = writer.is_alive()
        started = time.perf_counter()
        maintainer.see_commits()
        loading = maintainer.loader.is_busy
        if (
            maintainer.lookout.sightings.oldest_committed_at is not None
            or maintainer.has_views_behind()
            or again is Again.BARRIER
        ):
            again = maintainer.maintain_views()
        elif loading:
            maintainer.loader.wait_for_end(IDLE_SECONDS)
        elif writing:
            time.sleep(IDLE_SECONDS)
            continue
        else:
            return busy
        busy += time.perf_counter() - started
        if not writing:
            end = end or time.monotonic() + LATE_SECONDS
            assert time.monotonic() < end, (
                f"the view does not come to rest: {maintainer.waiting_views()}"
            )


HEADER = (
    f"{'detection':<13}{'interval':>10}{'n':>6}{'changes':>9}{'ms/update':>11}{'min':>8}"
    f"{'max':>8}{'batches':>9}{'adapted':>9}{'batches aborted':>17}{'adaptations aborted':>21}"
)


def line(found: Mixed) -> str:
    return (
        f"{found.detection:<13}{found.interval_ms:>7g} ms{found.updates:>6}"
        f"{found.schema_changes:>9}{found.ms_per_update:>11.1f}"
        f"{min(found.ms_per_update_all):>8.1f}{max(found.ms_per_update_all):>8.1f}"
        f"{found.batches:>9g}{found.adaptations:>9g}{found.aborted_batches:>17}"
        f"{found.aborted_adaptations:>21}"
    )
