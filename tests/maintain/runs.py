"""Runs for the tests of algorithms: seeded worlds, and the judgement of how they went.

A seed determines the scenario, the tempo and every step; the same seed gives the same run to every
algorithm that asks the same questions. Judging recomputes the view from the sources' transactions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from viewkeeper.check.checker import check
from viewkeeper.check.levels import Answer
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import Action, Ask, Commit, Event
from viewkeeper.maintain.promises import Level
from viewkeeper.maintain.promises import Scenario as Transactions
from viewkeeper.simulate.campaigns.workload import Shape, Workload, random_scenario
from viewkeeper.simulate.scenario import Subject
from viewkeeper.simulate.scripts.script_reader import read_script
from viewkeeper.simulate.simulated_world import World
from viewkeeper.simulate.step_choice import play, random_tempo
from viewkeeper.simulate.world_steps import Deliver, Evaluate, read_step

SHAPES = ("chain:3", "star:3", "chain:2", "self:3", "cycle:3", "chain:4")


def random_run(
    name: str,
    options: Mapping[str, Any],
    transactions: Transactions,
    seed: int,
    shapes: tuple[str, ...] = SHAPES,
) -> World:
    """A world that was run to its end by chance."""
    rng = random.Random(seed)
    shape = Shape.read(rng.choice(shapes))
    kind = KINDS[name]
    scenario = random_scenario(rng, Workload(shape, transactions, kind.keyed, kind.one_source))
    world = World(scenario, Subject(name, options))
    play(world, rng, random_tempo(rng, world))
    return world


def has(world: World, level: Level, as_of: bool = False) -> bool:
    """Whether the run had a level, in its newest states or in those as of every ts."""
    return check(world.history(as_of), at_least=level).has(level) is Answer.YES


def scripted(text: str, name: str, **options: Any) -> World:
    """A world at its beginning, from the statements of a script."""
    script = read_script(f"{text}\nalgorithm sweep\nrun\n  drain\n")
    return World(script.scenario, Subject(name, options))


def make(world: World, *steps: str) -> None:
    """Make steps, each of which must be possible."""
    for text in steps:
        step = read_step(text)
        assert str(step) == "crash" or step in world.enabled(), (text, world.enabled())
        world.make(step)


class Recorded:
    """A world's algorithm, with everything that it does noted; a crash ends the recording."""

    def __init__(self, world: World) -> None:
        self._algorithm = world.algorithm
        self.actions: list[Action] = []
        world.algorithm = self

    def receive(self, event: Event) -> list[Action]:
        actions = self._algorithm.receive(event)
        self.actions += actions
        return actions

    @property
    def idle(self) -> bool:
        return self._algorithm.idle

    @property
    def asks(self) -> list[Ask]:
        return [action for action in self.actions if isinstance(action, Ask)]

    @property
    def commits(self) -> list[Commit]:
        return [action for action in self.actions if isinstance(action, Commit)]


def rounds_of(world: World) -> int:
    """Answer everything that is asked, then hand over everything, until nothing is asked."""
    rounds = 0
    while evaluations := [step for step in world.enabled() if isinstance(step, Evaluate)]:
        rounds += 1
        for step in evaluations:
            world.make(step)
        while deliveries := [step for step in world.enabled() if isinstance(step, Deliver)]:
            world.make(deliveries[0])
    return rounds
