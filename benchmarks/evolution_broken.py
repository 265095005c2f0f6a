"""What a broken query costs: the Dyno paper's section 7.3.

Two changes, twice: a data update and then a schema change (DU/SC), two schema changes (SC/SC). The
schema changes make a table again, so that the view has to be adapted from rows. Three settings, as
in the paper:

- *apart*: the second comes when the first has been maintained; nothing is concurrent.
- *seen before*: both are there before work begins, and detection before execution finds them.
- *broken*: the second is committed when the work for the first has begun and its source is about to
  be asked. The question breaks, the work is given up and done again.

What is timed is everything from the first look until the view is right; that it is, is checked.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.evolution_driving import Counted, before_asking, maintaining, settle
from benchmarks.evolution_world import World
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.project import Project
from viewkeeper.engine.settings.evolution_settings import Detection

Pair = Literal["DU/SC", "SC/SC"]
Setting = Literal["apart", "seen before", "broken"]
PAIRS: tuple[Pair, ...] = ("DU/SC", "SC/SC")
SETTINGS: tuple[Setting, ...] = ("apart", "seen before", "broken")
FIRST, SECOND = "s2", "s4"
"""Which sources change; the second is asked last, so that most work is done by then."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A pair of changes in one setting."""

    pair: Pair
    setting: Setting
    seconds: tuple[float, ...]
    """Of every repetition."""
    aborted_batches: int
    aborted_adaptations: int
    adaptations: int
    """Those that were committed, of one repetition, like the aborted ones."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def measure(
    project: Project, world: World, repetitions: int, settings: Sequence[Setting] = SETTINGS
) -> Iterator[Cost]:
    """Every pair in every setting; settings take turns, so that all see the same load."""
    for pair in PAIRS:
        runs: dict[Setting, list[tuple[float, Counted]]] = {each: [] for each in settings}
        for _ in range(repetitions):
            for setting in settings:
                runs[setting].append(_run(project, world, pair, setting))
        for setting in settings:
            yield _cost(pair, setting, runs[setting])


def _cost(pair: Pair, setting: Setting, runs: Sequence[tuple[float, Counted]]) -> Cost:
    counts = {(c.aborted_batches, c.aborted_adaptations, c.adapted) for _, c in runs}
    assert len(counts) == 1, f"{pair}, {setting}: repetitions differ: {counts}"
    batches, adaptations, adapted = counts.pop()
    expected = (setting == "broken" and pair == "DU/SC", setting == "broken" and pair == "SC/SC")
    aborted = f"{batches} batches and {adaptations} adaptations aborted"
    assert (batches, adaptations) == expected, f"{pair}, {setting}: {aborted}"
    seconds = tuple(taken for taken, _ in runs)
    return Cost(pair, setting, seconds, batches, adaptations, adapted)


def _run(project: Project, world: World, pair: Pair, setting: Setting) -> tuple[float, Counted]:
    detection: Detection = "optimistic" if setting == "broken" else "pessimistic"
    with maintaining(project, detection) as (maintainer, counted):
        seconds = _timed(world, pair, setting, maintainer)
    world.check(project, f"{pair}, {setting}")
    return seconds, counted


def _timed(world: World, pair: Pair, setting: Setting, maintainer: Maintainer) -> float:
    def second() -> None:
        world.reshape("recreate_table", SECOND)

    if pair == "DU/SC":
        world.update(FIRST)
    else:
        world.reshape("recreate_table", FIRST)
    match setting:
        case "apart":
            seconds = settle(maintainer)
            second()
            return seconds + settle(maintainer)
        case "seen before":
            second()
            return settle(maintainer)
        case "broken":
            with before_asking(SECOND, second):
                return settle(maintainer)


HEADER = (
    f"{'pair':<8}{'setting':<14}{'seconds':>9}{'min':>8}{'max':>8}{'batches aborted':>18}"
    f"{'adaptations aborted':>21}{'done':>6}"
)


def line(found: Cost) -> str:
    return (
        f"{found.pair:<8}{found.setting:<14}{found.median:>9.2f}{min(found.seconds):>8.2f}"
        f"{max(found.seconds):>8.2f}{found.aborted_batches:>18}{found.aborted_adaptations:>21}"
        f"{found.adaptations:>6}"
    )
