"""What detection costs while sources change only their rows: the Dyno paper's section 7.2.

n updates are committed one by one, with a look after each, so that the view has n transactions
before it, and are then maintained. What is timed is all looks and the maintaining, not the writers.
Half of the runs have detection switched off: nothing that waits is scanned, and sources take for
granted that their tables are what they were. Runs with and without it take turns, in pairs; a pair
gives a ratio, and the figure is the median of the ratios.

On a machine that others use too, pairs differ by more than what is measured. So a third kind of run
has clocks around everything that detection consists of (`evolution_places`), and gives its share
directly: of the time by the clock, and of the time of the processor, in which waiting for others
does not count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.evolution_places import PLACES, Clocks, Mode, Spent, detecting
from benchmarks.evolution_world import World
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import SilentObserver
from viewkeeper.engine.settings.algorithm_settings import AlgorithmSettings
from viewkeeper.engine.upkeep import merge_where_due
from viewkeeper.errors import ViewkeeperError


class Strict(SilentObserver):
    """Trouble ends the benchmark: with data updates only there is none."""

    def on_trouble(self, error: ViewkeeperError) -> None:
        raise error


@dataclass(frozen=True, slots=True)
class Run:
    """One run: seconds by the clock and of the processor, and what detection had of them."""

    seconds: float
    cpu: float
    spent: Mapping[str, Spent]

    @property
    def share(self) -> float:
        return sum(each.seconds for each in self.spent.values()) / self.seconds

    @property
    def cpu_share(self) -> float:
        return sum(each.cpu for each in self.spent.values()) / self.cpu


@dataclass(frozen=True, slots=True)
class Quartiles:
    """The lower quartile, the median and the upper quartile of some figures."""

    low: float
    median: float
    high: float

    @staticmethod
    def of(figures: Sequence[float]) -> Quartiles:
        if len(figures) < 2:
            return Quartiles(figures[0], figures[0], figures[0])
        low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
        return Quartiles(low, median, high)

    def __str__(self) -> str:
        return f"{self.low:.3f} - {self.high:.3f}"


@dataclass(frozen=True, slots=True)
class Overhead:
    """n updates under one algorithm: what they cost with and without detection."""

    kind: str
    algorithm: str
    updates: int
    pairs: int
    seconds_with: float
    seconds_without: float
    ratio: Quartiles
    """Of the times by the clock."""
    cpu_ratio: Quartiles
    """Of the times of the processor."""
    share: float
    """The part of the time by the clock that is spent in detection, by clocks around it."""
    cpu_share: float
    """The same for the time of the processor."""
    places: Mapping[str, Spent]
    """What each place of detection had, in the run whose share is the one in the middle."""

    @property
    def what(self) -> str:
        return f"{self.kind}, {self.algorithm}, n = {self.updates:,}"


def measure(
    project: Project, world: World, algorithm: str, repetitions: Mapping[int, int]
) -> Iterator[Overhead]:
    """Every number of updates, in so many pairs of runs; the view must be right after each."""
    project.settings = replace(project.settings, algorithm=AlgorithmSettings(algorithm))
    with project.open_maintainer("benchmark", Strict()) as maintainer:
        maintainer.start_run()
        bench = _Bench(project, world, maintainer)
        bench.run("with", min(repetitions))
        for updates, pairs in repetitions.items():
            yield bench.overhead(algorithm, updates, pairs)


class _Bench:
    def __init__(self, project: Project, world: World, maintainer: Maintainer) -> None:
        self._project = project
        self._world = world
        self._maintainer = maintainer
        self._merged: dict[str, int] = {}

    def overhead(self, algorithm: str, updates: int, pairs: int) -> Overhead:
        runs: dict[Mode, list[Run]] = {"with": [], "without": [], "clocked": []}
        turns: tuple[Mode, ...] = ("with", "without")
        for pair in range(pairs):
            # What the machine does meanwhile may fall on the first or on the second.
            for mode in turns if pair % 2 else reversed(turns):
                runs[mode].append(self.run(mode, updates))
            if pair % 2 == 0:
                runs["clocked"].append(self.run("clocked", updates))
        on, off, clocked = runs["with"], runs["without"], runs["clocked"]
        middle = sorted(clocked, key=lambda run: run.share)[len(clocked) // 2]
        return Overhead(
            self._world.kind,
            algorithm,
            updates,
            pairs,
            statistics.median(run.seconds for run in on),
            statistics.median(run.seconds for run in off),
            Quartiles.of([a.seconds / b.seconds for a, b in zip(on, off, strict=True)]),
            Quartiles.of([a.cpu / b.cpu for a, b in zip(on, off, strict=True)]),
            statistics.median(run.share for run in clocked),
            statistics.median(run.cpu_share for run in clocked),
            middle.spent,
        )

    def run(self, mode: Mode, updates: int) -> Run:
        """Commit the updates, see each, maintain them."""
        merge_where_due(self._maintainer.store, self._merged)
        self._maintainer.acknowledge_commits(now=True)
        clocks, seconds, cpu = Clocks(), 0.0, 0.0
        with detecting(PLACES[self._world.kind], mode, clocks):
            acts: list[Callable[[], object]] = [self._maintainer.see_commits] * updates
            for act in (*acts, self._maintainer.maintain_views):
                if act == self._maintainer.see_commits:
                    self._world.update()
                started, began = time.perf_counter(), time.process_time()
                act()
                seconds += time.perf_counter() - started
                cpu += time.process_time() - began
        self._world.check(self._project, f"{updates} updates {mode} detection")
        return Run(seconds, cpu, clocks.net())


HEADER = (
    f"{'sources':<10}{'algorithm':<13}{'n':>7}{'pairs':>7}{'with, s':>10}{'without':>10}"
    f"{'ratio':>8}{'quartiles':>16}{'cpu':>8}{'quartiles':>16}{'share':>9}{'cpu':>9}"
)


def line(found: Overhead) -> str:
    return (
        f"{found.kind:<10}{found.algorithm:<13}{found.updates:>7,}{found.pairs:>7}"
        f"{found.seconds_with:>10.3f}{found.seconds_without:>10.3f}{found.ratio.median:>8.3f}"
        f"{found.ratio!s:>16}{found.cpu_ratio.median:>8.3f}{found.cpu_ratio!s:>16}"
        f"{100 * found.share:>7.2f} %{100 * found.cpu_share:>7.2f} %"
    )


def place_lines(found: Overhead) -> Iterator[str]:
    """Where detection spends its time, and how often."""
    for name, spent in sorted(found.places.items(), key=lambda item: -item[1].cpu):
        each = 1e6 * spent.cpu / spent.calls
        yield f"    {name}: {spent.calls:,} calls of {each:.0f} microseconds of the processor"
