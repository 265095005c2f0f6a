"""Batches of concurrent updates, inline and on Spark, and the recomputation that they save.

A measured batch: updates are committed to all four sources in several transactions, with a look at
the sources after each, so that every source has several ts in the batch. Only then is the batch
formed: to every change, all the others are concurrent. What is timed is the looks, and maintaining
from the plan to the acknowledgement. Writers are not timed. The two ways take turns, so that both
see the same load of the machine, and figures are medians.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchmarks.probe import PHASES, Probe
from benchmarks.world import RELATIONS, VIEW, World
from viewkeeper.engine.connections import open_sources
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.load.view_recomputation import recompute_view
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.project import Project, open_project
from viewkeeper.engine.report import BatchReport, SilentObserver
from viewkeeper.engine.spark.task_errors import Courier
from viewkeeper.engine.upkeep import merge_where_due
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import ViewkeeperError
from viewkeeper.warehouse.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Way = Literal["inline", "spark"]
WAYS: tuple[Way, ...] = ("inline", "spark")
LOOKUPS_MAX = 2 * (len(RELATIONS) - 1)


@dataclass(frozen=True, slots=True)
class Sample:
    """One batch that was measured."""

    seconds: float
    cpu: float
    changes: int
    transactions: int
    rows: int
    bytes: int
    parts: int
    jobs: int
    lookups: Mapping[str, int]
    lookups_per_part: int
    phases: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Figure:
    """Batches of one size, one way: medians over the samples."""

    way: Way
    updates: int
    repetitions: int
    seconds: float
    seconds_min: float
    cpu: float
    """Seconds of the processor in Python: the driver, and the tasks where those are others."""
    updates_per_second: float
    changes: int
    transactions: int
    rows: int
    bytes: int
    parts: int
    jobs: int
    lookups: Mapping[str, int]
    lookups_per_part: int
    phases: Mapping[str, float]
    load: float


class Attentive(SilentObserver):
    """Keeps the report of the last batch; trouble ends the benchmark."""

    def __init__(self) -> None:
        self.last: BatchReport | None = None

    def on_batch_commit(self, report: BatchReport) -> None:
        self.last = report

    def on_trouble(self, error: ViewkeeperError) -> None:
        raise error


class Bench:
    """A world, its project with the view loaded, and ways to maintain it."""

    def __init__(self, world: World, project: Project, store: Store, at: Connections) -> None:
        self.world = world
        self.project = project
        self.store = store
        self._connections = at
        self._merged: dict[str, int] = {}

    def maintainer(self, inline_rows: int) -> tuple[Maintainer, Attentive]:
        """A maintainer that has seen everything so far."""
        batch = replace(self.project.settings.batch, inline_rows=inline_rows)
        settings = replace(self.project.settings, batch=batch)
        observer = Attentive()
        project, at = self.project, self._connections
        workspace = Workspace(settings, self.store, project.catalogue, at, project.spark, observer)
        maintainer = Maintainer(workspace)
        maintainer.see_commits()
        return maintainer, observer

    def load(self) -> float:
        """Load the view; how long that took."""
        maintainer, _ = self.maintainer(0)
        started = time.perf_counter()
        maintainer.maintain_views()
        maintainer.finish_loads()
        return time.perf_counter() - started

    def batch(self, way: Way, updates: int, transactions: int) -> Sample:
        """Commit updates and maintain them as one batch."""
        merge_where_due(self.store, self._merged)
        maintainer, observer = self.maintainer(10**12 if way == "inline" else 0)
        probe, before = Probe(self._slots()), self._bytes()
        with probe.active():
            for _ in self.world.commit_updates(updates, transactions):
                maintainer.see_commits()
            started, cpu = time.perf_counter(), time.process_time()
            maintainer.maintain_views()
            cpu = time.process_time() - cpu
            seconds = probe.phases["look"] + time.perf_counter() - started
        report = observer.last
        assert report is not None
        assert report.where == way
        return Sample(
            seconds=seconds,
            cpu=cpu + (sum(part.cpu for part in probe.parts) if way == "spark" else 0.0),
            changes=report.changes,
            transactions=report.transactions,
            rows=report.rows,
            bytes=self._bytes() - before,
            parts=report.parts,
            jobs=self._jobs(),
            lookups=report.lookups,
            lookups_per_part=max(sum(part.lookups.values()) for part in probe.parts),
            phases=probe.finish(seconds),
        )

    def recompute(self) -> float:
        """Compute the view from its sources on Spark and count it; how long that took."""
        head = self.store.head.require_view(VIEW)
        view = self.project.catalogue.bindings[VIEW].view
        started = time.perf_counter()
        with (
            closing(self.project.open_connections()) as connections,
            open_sources.prepare_openers(connections, head.positions, [view]) as ready,
        ):
            spark = self.project.spark.get_session()
            rows = recompute_view(spark, view, ready, head.positions, Courier()).count()
        assert rows == head.rows, f"maintained {head.rows} rows, recomputed {rows}"
        return time.perf_counter() - started

    def _slots(self) -> int:
        return int(self.project.spark.get_session().sparkContext.defaultParallelism)

    def _jobs(self) -> int:
        """How many Spark jobs the last batch started."""
        tracker = self.project.spark.get_session().sparkContext.statusTracker()
        group = f"viewkeeper batch {self.store.head.record} of {self.project.reader_name()}"
        return len(tracker.getJobIdsForGroup(group))

    def _bytes(self) -> int:
        return sum(file.stat().st_size for file in self.table_folder.glob("*.parquet"))

    @property
    def table_folder(self) -> Path:
        """Where the data files of the view are."""
        return self.store.local_root / "views" / self.store.head.views[VIEW].table


@contextmanager
def prepared(folder: Path, rows: int, spark: SparkSession | None = None) -> Iterator[Bench]:
    """A world of relations with so many rows, and a project in it, both closed in the end."""
    world = World(folder, rows)
    with open_project(folder, spark) as project:
        connections = project.open_connections()
        with Store.open(project.settings.warehouse, "benchmark", time.time) as store:
            yield Bench(world, project, store, connections)
        connections.close()
    world.close()


def measure_batches(
    bench: Bench,
    repetitions: Mapping[int, int],
    transactions: int,
    told: Callable[[Figure], None],
) -> list[Figure]:
    """Batches of every size, both ways, by turns."""
    figures = []
    for updates, count in repetitions.items():
        samples: dict[Way, list[Sample]] = {way: [] for way in WAYS}
        for _ in range(count):
            for way in WAYS:
                samples[way].append(bench.batch(way, updates, transactions))
        for way in WAYS:
            figures.append(figure(way, updates, samples[way]))
            told(figures[-1])
    return figures


def warm_up(bench: Bench, updates: int, rounds: int) -> None:
    """Start the Python workers, fill the caches, let the JVM compile."""
    for _ in range(rounds):
        for way in WAYS:
            bench.batch(way, updates, 4)


def figure(way: Way, updates: int, samples: Sequence[Sample]) -> Figure:
    """The medians of some samples; the counts are those of the sample in the middle."""
    ordered = sorted(samples, key=lambda sample: sample.seconds)
    middle = ordered[len(ordered) // 2]
    seconds = statistics.median(sample.seconds for sample in samples)
    return Figure(
        way=way,
        updates=updates,
        repetitions=len(samples),
        seconds=seconds,
        seconds_min=ordered[0].seconds,
        cpu=statistics.median(sample.cpu for sample in samples),
        updates_per_second=updates / seconds,
        changes=middle.changes,
        transactions=middle.transactions,
        rows=middle.rows,
        bytes=middle.bytes,
        parts=middle.parts,
        jobs=max(sample.jobs for sample in samples),
        lookups=middle.lookups,
        lookups_per_part=max(sample.lookups_per_part for sample in samples),
        phases={p: statistics.median(s.phases[p] for s in samples) for p in PHASES},
        load=os.getloadavg()[0],
    )


def peak_driver_mb() -> int:
    """The most memory that this process has had; tasks and the JVM are others."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
