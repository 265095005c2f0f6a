"""Figures for Prometheus: counters of events, and gauges of the status, under one prefix.

Counters are kept by an observer, as events happen; gauges are made of the status when somebody
asks, with no call into the maintainer. Labels are names of views, sources and kinds of errors,
never values. `docs/watching.md` lists all of them, and a test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric

from viewkeeper.engine.operations.project_status import ProjectStatus, ViewStatus
from viewkeeper.engine.report import BatchReport, Observer, StateChange
from viewkeeper.errors import ViewkeeperError

FRESHNESS_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
)
BATCH_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0)


def make_counter(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Counter:
    return Counter(f"viewkeeper_{name}", text, labels, registry=registry)


class BatchMetrics:
    """What is counted of batches."""

    def __init__(self, registry: CollectorRegistry) -> None:
        count = partial(make_counter, registry)
        self._freshness = Histogram(
            "viewkeeper_freshness_seconds",
            "From the commit at the source until the view shows it: the oldest change of a batch.",
            ["view"],
            registry=registry,
            buckets=FRESHNESS_BUCKETS,
        )
        self._seconds = Histogram(
            "viewkeeper_batch_seconds",
            "How long batches take.",
            ["where"],
            registry=registry,
            buckets=BATCH_BUCKETS,
        )
        self._batches = count("batches", "Batches that were committed.", "where")
        self._phases = count("batch_phase_seconds", "Where the time of batches goes.", "phase")
        self._transactions = count("transactions", "Transactions of sources that were maintained.")
        self._changes = count("changes", "Changed rows that were read.", "source")
        self._rows = count("rows_written", "Signed rows that were written.", "view")
        self._lookups = count("lookups", "Questions that sources answered.", "source")
        self._asked = count("view_lookups", "Questions that sources answered for it.", "view")

    def count_batch(self, report: BatchReport) -> None:
        """A batch was committed."""
        self._batches.labels(report.where).inc()
        self._seconds.labels(report.where).observe(report.seconds)
        self._transactions.inc(report.transactions)
        for phase, seconds in report.phases.items():
            self._phases.labels(phase).inc(seconds)
        for source, changes in report.source_changes.items():
            self._changes.labels(source).inc(changes)
        for source, lookups in report.lookups.items():
            self._lookups.labels(source).inc(lookups)
        for view in report.views:
            self._rows.labels(view).inc(report.view_rows.get(view, 0))
            self._asked.labels(view).inc(report.view_lookups.get(view, 0))
            if report.freshness is not None:
                self._freshness.labels(view).observe(report.freshness)


class ProjectMetrics(Observer):
    """Counts, in a registry of its own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        count = partial(make_counter, registry)
        self._batches = BatchMetrics(registry)
        self._errors = count("errors", "Troubles, by the kind of the error.", "kind")
        self._loads = count("loads", "Loads that ended.", "view")
        self._shapes = count("schema_changes", "Schema changes that a view met.", "view")
        self._states = count("state_changes", "Views that stop, sources that go away ...", "kind")

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        self._loads.labels(view).inc()

    def on_batch_commit(self, report: BatchReport) -> None:
        self._batches.count_batch(report)

    def on_schema_change(self, view: str, what: str) -> None:
        self._shapes.labels(view).inc()

    def on_trouble(self, error: ViewkeeperError) -> None:
        self._errors.labels(type(error).__name__).inc()

    def on_state_change(self, change: StateChange) -> None:
        self._states.labels(change.kind).inc()


class StatusCollector:
    """Gauges of the status that was read last, made when Prometheus asks."""

    def __init__(self, read_status: Callable[[], ProjectStatus | None], version: str) -> None:
        self._read_status = read_status
        self._version = version

    def collect(self) -> Iterator[Metric]:
        """All gauges; those of views and sources only once a status is there."""
        yield InfoMetricFamily("viewkeeper", "The program.", {"version": self._version})
        status = self._read_status()
        if status is not None:
            at = GaugeMetricFamily("viewkeeper_status_time_seconds", "When the gauges were read.")
            at.add_metric([], status.at)
            yield at
            yield from view_gauges(status.views)
            yield from source_gauges(status)


Fact = tuple[str, str, Callable[[ViewStatus], float | None]]

VIEW_FACTS: tuple[Fact, ...] = (
    ("view_up", "1 if the view is loaded, and neither held nor stopped.", lambda v: float(v.is_up)),
    ("view_rows", "Rows of the newest state.", lambda v: v.rows),
    ("view_ts", "The ts up to which everything is in the view.", lambda v: v.ts),
    ("view_files", "Data files of its table.", lambda v: v.files),
    ("view_state_bytes", "Size of all that is stored of it.", lambda v: v.bytes),
    ("view_asked_rows", "Rows that sources gave for its last batch.", lambda v: v.asked_rows),
    ("view_commit_time_seconds", "When it was last committed.", lambda v: v.committed_at),
    (
        "view_lag_seconds",
        "Age of its oldest missing change.",
        lambda v: v.lag_seconds,
    ),
)


def view_gauges(views: tuple[ViewStatus, ...]) -> Iterator[Metric]:
    """One gauge for each fact of a view that is known, and one with its state as a label."""
    for name, text, fact_of in VIEW_FACTS:
        gauge = GaugeMetricFamily(f"viewkeeper_{name}", text, labels=["view"])
        for view in views:
            value = fact_of(view)
            if value is not None:
                gauge.add_metric([view.name], float(value))
        yield gauge
    state = GaugeMetricFamily("viewkeeper_view_state", "1 for its state.", labels=["view", "state"])
    for view in views:
        state.add_metric([view.name, view.state], 1.0)
    yield state


def source_gauges(status: ProjectStatus) -> Iterator[Metric]:
    """The gauges of sources."""

    def gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"viewkeeper_source_{name}", text, labels=["source", *labels])

    up = gauge("up", "1 if the source answers.", "kind")
    position = gauge("position", "How far it has committed, in its own count.")
    kept = gauge("log_kept", "How much of its log it keeps, in a unit.", "unit")
    warnings = gauge("warnings", "How many warnings it has, as of a log in danger.")
    seconds = gauge("lag_seconds", "Age of its oldest change that some view does not show.")
    changes = gauge("lag_changes", "Changes that the view furthest behind does not show.")
    for source in status.sources:
        up.add_metric([source.name, source.kind], float(source.error is None))
        warnings.add_metric([source.name], len(source.warnings))
        if source.position is not None:
            position.add_metric([source.name], source.position)
            kept.add_metric([source.name, source.unit], source.retained)
        lag = status.lag_of(source.name)
        if lag is not None:
            changes.add_metric([source.name], lag[0])
            seconds.add_metric([source.name], lag[1])
    yield from (up, position, kept, warnings, seconds, changes)


def make_registry(
    read_status: Callable[[], ProjectStatus | None], version: str
) -> tuple[CollectorRegistry, ProjectMetrics]:
    """A registry with everything in it, and the observer that feeds it."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(StatusCollector(read_status, version))
    return registry, ProjectMetrics(registry)
