"""Campaigns: many seeds of one algorithm in one scenario, and what came of them.

A seed determines everything: the view's shape, the workload, the schedule with its faults. Neither
the algorithm nor its options go into it, so that all algorithms meet the same worlds, as far as
their needs allow (keys, one source). A seed is run and checked in one call, and its outcome is
small enough to be sent between processes; whoever wants the run itself makes it again.

Failing means: the checker refuted the level that was promised, the run did not end, or the
algorithm raised. What the checker could not decide is counted apart.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, Protocol, TypeVar

from viewkeeper.check.checker import Verdict, check_history
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions
from viewkeeper.simulate.campaigns.shrink import Case, shrink_case
from viewkeeper.simulate.campaigns.workload import JoinShape, Workload, random_scenario
from viewkeeper.simulate.scenario import AlgorithmSubject, Scenario, read_step
from viewkeeper.simulate.simulated_world import SimulatedWorld
from viewkeeper.simulate.step_choice import follow_steps, play_randomly, random_tempo

SHAPES = ("chain:1", "chain:2", "chain:3", "star:3", "self:3", "cycle:3", "chain:4")
"""What is drawn from where no view is asked for."""


class CampaignCell(Protocol):
    """What a campaign is about: something that can be run by seeds and promises a level."""

    @property
    def promised_level(self) -> Level: ...

    def judge_seed(self, seed: int) -> SeedOutcome: ...


C = TypeVar("C", bound=CampaignCell)


@dataclass(frozen=True, slots=True)
class AlgorithmCell:
    """What a campaign is about: an algorithm under one kind of transactions."""

    subject: AlgorithmSubject
    transactions: Transactions
    shape: JoinShape | None = None
    """The view; None: drawn by the seed."""

    @property
    def promised_level(self) -> Level:
        return KINDS[self.subject.name].promise[self.transactions]

    def judge_seed(self, seed: int) -> SeedOutcome:
        return run_seed(self, seed)


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """What came of one seed; `found` is proven, `possible` not refuted; `facts` are what else was
    counted."""

    seed: int
    found: Level
    possible: Level
    updates: int
    lookups: int
    rows_sent: int
    error: str | None = None
    facts: Mapping[str, int] = field(default_factory=dict)

    def is_below(self, level: Level) -> bool:
        return self.error is not None or self.possible < level


def scenario_of(cell: AlgorithmCell, seed: int) -> Scenario:
    kind = KINDS[cell.subject.name]
    return _draw_scenario(seed, cell.shape, cell.transactions, kind.keyed, kind.one_source)


@lru_cache(maxsize=1024)
def _draw_scenario(
    seed: int, shape: JoinShape | None, transactions: Transactions, keyed: bool, one_source: bool
) -> Scenario:
    """The scenario of a seed; kept, because most algorithms are tried in the same ones."""
    rng = random.Random(f"{seed} scenario")
    drawn = JoinShape.read_shape(rng.choice(SHAPES))
    return random_scenario(rng, Workload(shape or drawn, transactions, keyed, one_source))


def run_seed(cell: AlgorithmCell, seed: int) -> SeedOutcome:
    """Run a seed and check it."""
    world = SimulatedWorld(scenario_of(cell, seed), cell.subject)
    error, verdict = None, None
    try:
        _play_seed(world, seed)
        verdict = judge_world(world)
    except Exception as raised:  # noqa: BLE001 - whatever an algorithm raises is this seed's outcome
        error = f"{type(raised).__name__}: {raised}"
    return SeedOutcome(
        seed,
        verdict.level if verdict else Level.NONE,
        verdict.possible_level if verdict else Level.NONE,
        len(world.committed),
        sum(world.asks.values()),
        world.asked_rows,
        error,
    )


def replay_seed(cell: AlgorithmCell, seed: int) -> SimulatedWorld:
    """The world of a seed after its run, as far as it came."""
    world = SimulatedWorld(scenario_of(cell, seed), cell.subject, observed=True)
    # Whatever it raises, run_seed has said so; here the steps up to it are wanted.
    with suppress(Exception):
        _play_seed(world, seed)
    return world


def _play_seed(world: SimulatedWorld, seed: int) -> None:
    rng = random.Random(f"{seed} schedule")
    play_randomly(world, rng, random_tempo(rng, world))


def judge_world(world: SimulatedWorld) -> Verdict:
    """What the checker says of a run.

    Where the promise is over the states as of every ts, they are judged; but if a reader of the
    newest state sees less than strong consistency, that is what is said.
    """
    newest = check_history(world.run_history(), at_least=Level.STRONG if world.kind.as_of else None)
    if not world.kind.as_of or newest.possible_level < Level.STRONG:
        return newest
    return check_history(world.run_history(as_of=True))


def case_of(world: SimulatedWorld) -> Case:
    """The run of a world, to be made again."""
    steps = tuple(map(read_step, world.trace.steps))
    return Case(world.scenario, world.subject, steps)


def failure_of(case: Case, level: Level) -> str | None:
    """How a case fails when it is made again: by its level, or by what it raises."""
    world = SimulatedWorld(case.scenario, case.subject)
    try:
        follow_steps(world, case.steps)
        return "below" if judge_world(world).possible_level < level else None
    except Exception as raised:  # noqa: BLE001 - to raise is to fail
        return type(raised).__name__


def smallest_failure(cell: AlgorithmCell, seed: int, level: Level) -> SimulatedWorld:
    """The smallest run found that fails like a seed, made and observed."""
    case = case_of(replay_seed(cell, seed))
    how = failure_of(case, level)
    if how is not None:
        case = shrink_case(case, lambda smaller: failure_of(smaller, level) == how)
    world = SimulatedWorld(case.scenario, case.subject, observed=True)
    # It may fail by raising; the steps up to it are the answer.
    with suppress(Exception):
        follow_steps(world, case.steps)
    return world


@dataclass(slots=True)
class CampaignTally(Generic[C]):
    """Outcomes of one cell, summed up."""

    cell: C
    level: Level
    """What every seed must have."""
    seeds: int = 0
    lowest: Level = Level.COMPLETE
    incomplete: int = 0
    """Seeds that were refuted to be complete."""
    undecided: int = 0
    updates: int = 0
    lookups: int = 0
    rows_sent: int = 0
    facts: Counter[str] = field(default_factory=Counter)
    failed: list[SeedOutcome] = field(default_factory=list)

    def add_outcomes(self, outcomes: Iterable[SeedOutcome]) -> None:
        for outcome in outcomes:
            self.seeds += 1
            self.lowest = min(self.lowest, outcome.possible)
            self.incomplete += outcome.possible < Level.COMPLETE
            self.undecided += outcome.found < outcome.possible
            self.updates += outcome.updates
            self.lookups += outcome.lookups
            self.rows_sent += outcome.rows_sent
            self.facts.update(outcome.facts)
            if outcome.is_below(self.level):
                self.failed.append(outcome)

    @property
    def messages_per_update(self) -> float:
        """Questions per update."""
        return self.lookups / max(1, self.updates)
