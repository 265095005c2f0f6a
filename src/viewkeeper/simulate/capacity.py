"""What a machine can keep up with: a loop of batches in simulated time, with measured costs.

Changes arrive at random, at a rate. The loop is that of `run`: a batch takes all that waits, the
next one what came meanwhile; a small one is swept in the driver, a large one as a Spark job over
so many slots. What a batch takes is a sum of costs, which benchmarks measure; how old changes
get, and how many pile up, is what the simulation says.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, log

LOOK_SECONDS = 0.002
"""A change is seen so long after its commit, at most, while changes come often."""

SIMULATED_SECONDS = 60.0
"""Of these the first third is not counted: there, batches grow to their size."""

BATCHES_MAX = 20_000


@dataclass(frozen=True, slots=True)
class MaintenanceCosts:
    """What each part of a batch takes, in seconds; by default estimated from the processor's time
    of small batches over SQLite on two cores (`make bench`)."""

    batch: float = 0.006
    """A look, a plan, a record in the journal: whatever is in the batch."""
    view: float = 0.0015
    """For every view, beside its questions."""
    question: float = 0.0012
    """To ask one source for the rows that one view needs, without the time that it takes there."""
    read: float = 4e-6
    """To read one change from a source's log."""
    swept: float = 12e-6
    """To sweep one change for one view in the driver."""
    job: float = 0.15
    """A Spark job, whatever is in it."""
    task: float = 12e-6
    """To sweep one change for one view in a task."""

    spread: float = 0.0
    """How much batches of one size differ: the standard deviation of the logarithm of their time.
    On a machine that has other work they do."""

    @staticmethod
    def from_measured(batch: float, change: float, spread: float = 0.0) -> MaintenanceCosts:
        """Costs that were measured with the very views and sources that are asked about."""
        return MaintenanceCosts(
            batch, view=0.0, question=0.0, read=change, swept=0.0, spread=spread
        )

    @staticmethod
    def fit_batches(runs: Sequence[Sequence[tuple[float, float]]]) -> MaintenanceCosts:
        """What batches have cost, by the line that fits the medians of some runs best; a batch is
        how many changes it had, and how many seconds it took.

        Not by all batches: a batch is large because the one before it took long, so within a run
        sizes and times belong together on a busy machine, whatever a change costs.

        >>> costs = MaintenanceCosts.fit_batches([[(10, 0.011)], [(1_000, 0.11)], [(2_000, 0.21)]])
        >>> round(costs.batch, 4), round(costs.read, 7), round(costs.spread, 4)
        (0.01, 0.0001, 0.0)
        """
        middles = [tuple(map(statistics.median, zip(*run, strict=True))) for run in runs]
        sizes, seconds = ([each[n] for each in middles] for n in (0, 1))
        batch, change = statistics.median(seconds), 0.0
        if len(set(sizes)) > 1:
            line = statistics.linear_regression(sizes, seconds)
            if line.slope > 0:
                change, batch = line.slope, max(line.intercept, min(seconds) / 2)
        ratios = [
            log(taken / usual)
            for run, (_, usual) in zip(runs, middles, strict=True)
            for _, taken in run
        ]
        return MaintenanceCosts.from_measured(batch, change, statistics.pstdev(ratios))


@dataclass(frozen=True, slots=True)
class CapacityWorld:
    """What is asked for: how many changes come each second, to how many views over how many
    sources, each of which answers after `latency` seconds; and with how many slots on Spark."""

    rate: float
    views: int = 1
    sources: int = 4
    slots: int = 2
    latency: float = 0.0
    inline_rows: int = 20_000

    def batch_seconds(self, changes: int, costs: MaintenanceCosts) -> float:
        """How long a batch of so many changes takes."""
        questions = self.sources - 1
        asked = questions * (costs.question * self.views + self.latency)
        fixed = costs.batch + costs.view * self.views + asked + costs.read * changes
        if changes <= self.inline_rows:
            return fixed + costs.swept * changes * self.views
        return fixed + costs.job + costs.task * changes * self.views / self.slots


@dataclass(frozen=True, slots=True)
class CapacityFigures:
    """What the simulation gives: seconds from a change's commit to its view's, in percentiles."""

    world: CapacityWorld
    keeps_up: bool
    p50: float
    p95: float
    p99: float
    batches: float
    """A second."""
    changes: float
    """In a batch, on average."""
    share_on_spark: float
    """Of the batches."""


def simulate_capacity(
    world: CapacityWorld, costs: MaintenanceCosts, seed: int = 0
) -> CapacityFigures:
    """Let changes come for a while; the figures of what is left after the beginning.

    >>> slow = simulate_capacity(CapacityWorld(rate=10), MaintenanceCosts())
    >>> slow.keeps_up, 0.01 < slow.p50 < 0.03, slow.share_on_spark
    (True, True, 0.0)
    >>> simulate_capacity(CapacityWorld(rate=10_000_000), MaintenanceCosts()).keeps_up
    False
    """
    rng = random.Random(seed)
    ages: list[tuple[float, int]] = []
    sizes: list[int] = []
    on_spark, ends = 0, list[float]()
    now, waiting, oldest = 0.0, 0, 0.0
    while now < SIMULATED_SECONDS and len(sizes) < BATCHES_MAX:
        if not waiting:
            oldest = now + rng.expovariate(world.rate)
            now, waiting = oldest + rng.uniform(0, LOOK_SECONDS), 1
        size, began = waiting, now
        took = world.batch_seconds(size, costs) * exp(rng.gauss(0.0, costs.spread))
        now += took
        if began > SIMULATED_SECONDS / 3:
            ages += _ages_between(oldest, began, now, size)
            sizes.append(size)
            on_spark += size > world.inline_rows
            ends.append(now)
        waiting, oldest = _arrivals(rng, world.rate, took), began
    span = max(ends[-1] - ends[0], took) if ends else took
    p50, p95, p99 = _percentiles(ages, (0.5, 0.95, 0.99)) if ages else (took, took, took)
    return CapacityFigures(
        world,
        took < SIMULATED_SECONDS and not _has_grown(sizes),
        p50,
        p95,
        p99,
        batches=len(sizes) / span,
        changes=sum(sizes) / max(len(sizes), 1),
        share_on_spark=on_spark / max(len(sizes), 1),
    )


def find_ceiling(world: CapacityWorld, costs: MaintenanceCosts, p95: float) -> float:
    """The highest rate that is kept up with, with 95 of 100 changes shown within `p95` seconds;
    0 if none is."""
    low, high = 0.0, 1.0
    while high < 1e9 and _is_fine(world, costs, high, p95):
        low, high = high, high * 2
    while high - low > low / 50 + 0.5:
        middle = (low + high) / 2
        low, high = (middle, high) if _is_fine(world, costs, middle, p95) else (low, middle)
    return low


def _is_fine(world: CapacityWorld, costs: MaintenanceCosts, rate: float, p95: float) -> bool:
    found = simulate_capacity(replace(world, rate=rate), costs)
    return found.keeps_up and found.p95 <= p95


def _arrivals(rng: random.Random, rate: float, seconds: float) -> int:
    """How many changes come in a time: Poisson's distribution, by its normal limit where many."""
    expected = rate * seconds
    if expected > 50:
        return max(0, round(rng.gauss(expected, expected**0.5)))
    count, left = 0, rng.expovariate(1.0)
    while left < expected:
        count += 1
        left += rng.expovariate(1.0)
    return count


def _ages_between(
    oldest: float, began: float, done: float, size: int
) -> Iterator[tuple[float, int]]:
    """Ages at the end of a batch, with how many changes have each: spread evenly."""
    steps = min(size, 20)
    for step in range(steps):
        came = oldest + (began - oldest) * step / steps
        yield done - came, size // steps + (step < size % steps)


def _has_grown(sizes: Sequence[int]) -> bool:
    """Whether batches are still growing at the end: what waits is never worked off."""
    if len(sizes) < 8:
        return bool(sizes) and sizes[-1] > 2 * sizes[0] + 10
    quarter = len(sizes) // 4
    first, last = sizes[quarter : 2 * quarter], sizes[-quarter:]
    return sum(last) / len(last) > 1.5 * sum(first) / len(first) + 10


def _percentiles(ages: Sequence[tuple[float, int]], shares: Sequence[float]) -> list[float]:
    ordered = sorted(ages)
    total, found, seen, at = sum(count for _, count in ordered), list[float](), 0, 0
    for share in shares:
        while seen + ordered[at][1] < share * total:
            seen += ordered[at][1]
            at += 1
        found.append(ordered[at][0])
    return found
