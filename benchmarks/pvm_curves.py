"""The settings of the PVM paper's experiment, and the curves that they give.

Each experiment varies one thing and has two times for every value of it: by the cost model
(`benchmarks.pvm_cost`), and as simulated with the production algorithms and real lookups in
made-up time (`benchmarks.pvm_ticks`).

The paper's charts do not survive as numbers, so the time of a lookup is chosen: 800 ms, which puts
both turning points of figure 26 inside its range of intervals. All other times follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.pvm_cost import pvm_time, pvm_time_at_interval, update_time
from benchmarks.pvm_ticks import TickSetting, run_timeline
from viewkeeper.simulate.scenario import AlgorithmSubject

LOOKUP_MS = 800
THREADS = range(1, 11)
SWEEP = AlgorithmSubject("sweep")


def pvm(parallel: int) -> AlgorithmSubject:
    return AlgorithmSubject("pvm", {"parallel": parallel})


@dataclass(frozen=True, slots=True)
class Curve:
    """Total time in seconds over what is varied: by the model, and as simulated."""

    label: str
    xs: tuple[int, ...]
    model: tuple[float, ...]
    simulated: tuple[float, ...]

    def at(self, x: int) -> float:
        """The simulated time at `x`."""
        return self.simulated[self.xs.index(x)]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One of the paper's figures."""

    number: int
    name: str
    title: str
    x_label: str
    curves: tuple[Curve, ...]

    def curve(self, label: str) -> Curve:
        return next(curve for curve in self.curves if curve.label == label)


def _curve(label: str, runs: Iterable[tuple[int, TickSetting, int]]) -> Curve:
    """A curve of what is varied, the setting that it gives, and the view changes at a time."""
    xs, model, simulated = list[int](), list[float](), list[float]()
    for x, setting, parallel in runs:
        xs.append(x)
        model.append(_model(setting, parallel) / 1000)
        subject = SWEEP if label == "SWEEP" else pvm(parallel)
        simulated.append(run_timeline(setting, subject).elapsed_ticks / 1000)
    return Curve(label, tuple(xs), tuple(model), tuple(simulated))


def _model(setting: TickSetting, parallel: int) -> float:
    """Equation 14, with the whole capacity of one lookup at a time per source (footnote 6)."""
    n, m = setting.updates, setting.sources
    each = update_time(m, setting.lookup)
    if setting.interval:
        return pvm_time_at_interval(n, parallel, m, each, setting.interval)
    return pvm_time(n, parallel, m, each, setting.start)


def _both(runs: Sequence[tuple[int, TickSetting]], parallel: int) -> tuple[Curve, Curve]:
    """SWEEP and PVM through the same settings."""
    return (
        _curve("SWEEP", ((x, setting, 1) for x, setting in runs)),
        _curve("PVM", ((x, setting, parallel) for x, setting in runs)),
    )


def _setting(sources: int, updates: int, run: int = 1, interval: int = 0) -> TickSetting:
    return TickSetting(sources, updates, run, interval, lookup=LOOKUP_MS)


def threads() -> Experiment:
    """Figure 21, section 7.2: n = 60, m = 4, p = 1 to 10.

    PVM once more with starts that are a hundredth of a lookup apart: without, all view changes go
    in step, and how the sources break ties decides.
    """
    setting = _setting(sources=4, updates=60)
    parallel = _curve("PVM", ((p, setting, p) for p in THREADS))
    apart = replace(setting, start=LOOKUP_MS // 100)
    spread = _curve(f"PVM, a = {apart.start} ms", ((p, apart, p) for p in THREADS))
    once = _curve("SWEEP", [(1, setting, 1)])
    sweep = Curve("SWEEP", parallel.xs, once.model * len(THREADS), once.simulated * len(THREADS))
    title = "60 updates over 4 sources"
    return Experiment(
        21, "threads", title, "updates at work at a time, p", (sweep, parallel, spread)
    )


def sources() -> Experiment:
    """Figure 23, section 7.3: m = 2 to 6, 10 updates per source, p = 1 to 10; p = 1 is SWEEP."""
    curves = tuple(
        _curve(f"m = {m}", ((p, _setting(m, 10 * m), p) for p in THREADS)) for m in range(2, 7)
    )
    title = "10 updates from each of m sources"
    return Experiment(23, "sources", title, "updates at work at a time, p (SWEEP: 1)", curves)


def distribution() -> Experiment:
    """Figure 24, section 7.4: m = 3, n = 30, p = 5, c = 1 to 10."""
    runs = [(c, _setting(3, 30, run=c)) for c in range(1, 11)]
    title = "30 updates over 3 sources, p = 5"
    label = "consecutive updates from one source, c"
    return Experiment(24, "distribution", title, label, _both(runs, 5))


def updates() -> Experiment:
    """Figure 25, section 7.5: m = 2, p = 5, n / m = 4 to 40."""
    runs = [(per_source, _setting(2, 2 * per_source)) for per_source in range(4, 41, 4)]
    title = "2 sources, p = 5"
    return Experiment(25, "updates", title, "updates per source, n / m", _both(runs, 5))


def intervals() -> Experiment:
    """Figure 26, section 7.6: m = 2, n = 40, p = 5, i = 0 to 1,600 ms."""
    runs = [(ms, _setting(2, 40, interval=ms)) for ms in range(0, 1601, 100)]
    title = "40 updates over 2 sources, p = 5"
    return Experiment(26, "intervals", title, "milliseconds between updates, i", _both(runs, 5))


EXPERIMENTS: tuple[Callable[[], Experiment], ...] = (
    threads,
    sources,
    distribution,
    updates,
    intervals,
)
