"""Who chooses the next step: a seeded generator with a temper, or a list and then a fixed rule.

A *tempo* is drawn per run, so that some runs are nearly sequential, some have everything in flight
at once, and some have a source that is slow or silent until the end. Faults come in some runs only,
each with its own probability.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from viewkeeper.errors import SimulationError
from viewkeeper.simulate.simulated_world import World
from viewkeeper.simulate.world_steps import Commit, Crash, Deliver, Evaluate, Repeat, Reveal, Step

BUDGET = 5_000
"""Steps after which a run that does not end is called stuck."""

CRASHES = 20
"""A run has no more crashes than this: work that takes longer than a life would never be done."""


@dataclass(frozen=True, slots=True)
class Tempo:
    """How likely each kind of step is, against the others, and the probabilities of faults."""

    commit: float
    evaluate: float
    deliver: float
    reveal: float
    slow: str | None
    crash: float
    repeat: float


def random_tempo(rng: random.Random, world: World, faults: bool = True) -> Tempo:
    return Tempo(
        commit=rng.choice([0.1, 0.5, 2.0, 10.0]),
        evaluate=rng.choice([0.3, 1.0, 3.0]),
        deliver=rng.choice([0.3, 1.0, 3.0]),
        reveal=rng.choice([0.05, 0.5]),
        slow=rng.choice(sorted(world.sources)) if rng.random() < 0.3 else None,
        crash=0.03 if faults and rng.random() < 0.3 else 0.0,
        repeat=0.05 if faults and rng.random() < 0.3 else 0.0,
    )


def play(world: World, rng: random.Random, tempo: Tempo) -> None:
    """Run a world to its end by chance."""
    crashes = 0
    for _ in range(BUDGET):
        if world.done:
            return
        step = _choice(world, rng, tempo)
        world.make(step)
        crashes += isinstance(step, Crash)
        if crashes == CRASHES:
            tempo = replace(tempo, crash=0.0)
    raise SimulationError(f"the run did not end within {BUDGET} steps")


def follow(world: World, steps: Iterable[Step]) -> None:
    """Make those of the given steps that are possible, then run to the end in a fixed order."""
    for step in steps:
        possible = [*world.enabled(), *world.repeatable(), Crash()]
        if step in possible:
            world.make(step)
    drain(world)


def drain(world: World) -> None:
    """Run to the end: oldest messages first, then what is still to be committed."""
    for _ in range(BUDGET):
        if world.done:
            return
        world.make(min(world.enabled(), key=_rank))
    raise SimulationError(f"the run did not end within {BUDGET} steps")


def _rank(step: Step) -> int:
    order: tuple[type[Step], ...] = (Reveal, Deliver, Evaluate, Commit)
    return order.index(type(step))


def _choice(world: World, rng: random.Random, tempo: Tempo) -> Step:
    if rng.random() < tempo.crash:
        return Crash()
    repeatable = world.repeatable()
    if repeatable and rng.random() < tempo.repeat:
        return rng.choice(repeatable)
    steps = world.enabled()
    return rng.choices(steps, [_weight(step, tempo) for step in steps])[0]


def _weight(step: Step, tempo: Tempo) -> float:
    match step:
        case Commit():
            return tempo.commit
        case Reveal():
            return tempo.reveal
        case Evaluate():
            weight = tempo.evaluate
        case Deliver() | Repeat():
            weight = tempo.deliver
        case Crash():
            return tempo.crash
    return weight / 50 if step.source == tempo.slow else weight
