"""Where the time of a batch goes, measured from outside: the engine's own steps, each with a watch.

The engine is not changed for it. While a `Probe` is active the functions that are its steps are
replaced by themselves with a clock around them, in the driver and, by way of the function that a
Spark task runs, in the tasks too; a task sends what it measured back with its result. The clocks
cost some microseconds per call, against milliseconds per step.

Steps in the driver do not overlap. Parts run beside each other on Spark, so what they measured is
summed and divided by the task slots that they could use; what the job took beyond that, to send the
batch, to start the tasks, to wait for the longest and to fetch the results, is called `spark`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from viewkeeper.engine.batch import batch_runner, part_sweep, staged_run
from viewkeeper.engine.batch.change_archive import ChangeArchive
from viewkeeper.engine.batch.part_sweep import Batch, PartResult, PartTask
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.sources.sqlite.snapshot import SqliteSnapshot
from viewkeeper.warehouse.store import Store

_SWEEP_PART = part_sweep.sweep_part

PHASES = (
    "look",
    "plan",
    "read changes",
    "lookups",
    "kernel",
    "write",
    "spark",
    "history",
    "commit",
    "acknowledge",
    "other",
)
"""What a batch does, in its order; `other` is what none of the clocks has seen."""

Phases = defaultdict[str, float]
"""Seconds by phase."""

_DRIVER: tuple[tuple[Any, str, str], ...] = (
    (Maintainer, "see_commits", "look"),
    (Maintainer, "acknowledge_commits", "acknowledge"),
    (Store, "write_plan", "plan"),
    (Store, "commit", "commit"),
    (batch_runner.BatchRunner, "queue_changes", "read changes"),
    (staged_run.StagedRun, "_write_rows", "write"),
    (ChangeArchive, "keep_changes", "history"),
)
_PART: tuple[tuple[Any, str, str], ...] = (
    (SqliteSnapshot, "__init__", "lookups"),
    (SqliteSnapshot, "answer_lookup", "lookups"),
    (part_sweep, "write_rows", "write"),
)


@dataclass(frozen=True, slots=True)
class MeasuredPart(PartResult):
    """A part's result, with the seconds of its steps and those of the processor."""

    cpu: float = 0.0
    phases: Phases = field(default_factory=lambda: Phases(float))


def measured_part(batch: Batch, part: PartTask) -> PartResult:
    """What a task runs instead of `sweep_part`: the same, with clocks."""
    phases = Phases(float)
    started = time.process_time()
    with _clocks(_PART, phases):
        result = _SWEEP_PART(batch, part)
    phases["kernel"] = result.seconds - sum(phases.values())
    return MeasuredPart(
        result.view,
        result.files,
        result.rows,
        result.lookups,
        result.seconds,
        result.error,
        result.asked_rows,
        time.process_time() - started,
        phases,
    )


class Probe:
    """Collects the phases and the parts of what runs while it is active."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.phases = Phases(float)
        self.parts: list[MeasuredPart] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(_clocks(_DRIVER, self.phases))
            stack.enter_context(patch.object(part_sweep, "sweep_part", measured_part))
            for name, slots in (("run_inline", 1), ("run_on_spark", self._slots)):
                watched = self._collecting(getattr(batch_runner, name), slots)
                stack.enter_context(patch.object(batch_runner, name, watched))
            yield

    def finish(self, seconds: float) -> dict[str, float]:
        """All phases of a batch that took so long."""
        self.phases["other"] = seconds - sum(self.phases.values())
        return {name: self.phases[name] for name in PHASES}

    def _collecting(
        self, run: Callable[..., list[PartResult]], slots: int
    ) -> Callable[..., list[PartResult]]:
        def collect(*arguments: Any, **options: Any) -> list[PartResult]:
            started = time.perf_counter()
            results = run(*arguments, **options)
            self._add(time.perf_counter() - started, results, slots)
            return results

        return collect

    def _add(self, seconds: float, results: Sequence[PartResult], slots: int) -> None:
        parts = [result for result in results if isinstance(result, MeasuredPart)]
        self.parts += parts
        beside = min(slots, len(parts))
        for part in parts:
            for name, took in part.phases.items():
                self.phases[name] += took / beside
        self.phases["spark"] += seconds - sum(part.seconds for part in parts) / beside


@contextmanager
def _clocks(places: Sequence[tuple[Any, str, str]], phases: Phases) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, phase in places:
            timed = _timed(getattr(owner, name), phase, phases)
            stack.enter_context(patch.object(owner, name, timed))
        yield


def _timed(function: Callable[..., Any], phase: str, phases: Phases) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            phases[phase] += time.perf_counter() - started

    return call
