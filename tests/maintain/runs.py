"""Runs for the tests of algorithms: seeded worlds, and the judgement of how they went.

A seed determines the scenario, the tempo and every step; the same seed gives the same run to every
algorithm that asks the same questions. Judging recomputes the view from the sources' transactions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from viewkeeper.check.checker import check_history
from viewkeeper.check.levels import CheckAnswer
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import (
    Action,
    AskAction,
    CommitAction,
    Event,
    Level,
)
from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions
from viewkeeper.simulate.campaigns.workload import JoinShape, Workload, random_scenario
from viewkeeper.simulate.scenario import AlgorithmSubject, DeliverStep, EvaluateStep, read_step
from viewkeeper.simulate.scripts.script_reader import read_script
from viewkeeper.simulate.simulated_world import SimulatedWorld
from viewkeeper.simulate.step_choice import play_randomly, random_tempo

SHAPES = ("chain:3", "star:3", "chain:2", "self:3", "cycle:3", "chain:4")


def random_run(
    name: str,
    options: Mapping[str, Any],
    transactions: Transactions,
    seed: int,
    shapes: tuple[str, ...] = SHAPES,
) -> SimulatedWorld:
    """A world that was run to its end by chance."""
    rng = random.Random(seed)
    shape = JoinShape.read_shape(rng.choice(shapes))
    kind = KINDS[name]
    scenario = random_scenario(rng, Workload(shape, transactions, kind.keyed, kind.one_source))
    world = SimulatedWorld(scenario, AlgorithmSubject(name, options))
    play_randomly(world, rng, random_tempo(rng, world))
    return world


def has(world: SimulatedWorld, level: Level, as_of: bool = False) -> bool:
    """Whether the run had a level, in its newest states or in those as of every ts."""
    return (
        check_history(world.run_history(as_of), at_least=level).has_level(level) is CheckAnswer.YES
    )


def scripted(text: str, name: str, **options: Any) -> SimulatedWorld:
    """A world at its beginning, from the statements of a script."""
    script = read_script(f"{text}\nalgorithm sweep\nrun\n  drain\n")
    return SimulatedWorld(script.scenario, AlgorithmSubject(name, options))


def make(world: SimulatedWorld, *steps: str) -> None:
    """Make steps, each of which must be possible."""
    for text in steps:
        step = read_step(text)
        assert str(step) == "crash" or step in world.enabled_steps(), (text, world.enabled_steps())
        world.make_step(step)


class Recorded:
    """A world's algorithm, with everything that it does noted; a crash ends the recording."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._algorithm = world.life.algorithm
        self.actions: list[Action] = []
        world.life.algorithm = self

    def receive_event(self, event: Event) -> list[Action]:
        actions = self._algorithm.receive_event(event)
        self.actions += actions
        return actions

    @property
    def is_idle(self) -> bool:
        return self._algorithm.is_idle

    @property
    def asks(self) -> list[AskAction]:
        return [action for action in self.actions if isinstance(action, AskAction)]

    @property
    def commits(self) -> list[CommitAction]:
        return [action for action in self.actions if isinstance(action, CommitAction)]


def rounds_of(world: SimulatedWorld) -> int:
    """Answer everything that is asked, then hand over everything, until nothing is asked."""
    rounds = 0
    while evaluations := [step for step in world.enabled_steps() if isinstance(step, EvaluateStep)]:
        rounds += 1
        for step in evaluations:
            world.make_step(step)
        while deliveries := [
            step for step in world.enabled_steps() if isinstance(step, DeliverStep)
        ]:
            world.make_step(deliveries[0])
    return rounds
