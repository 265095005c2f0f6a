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
from viewkeeper.simulate.scenario import (
    CommitStep,
    CrashStep,
    DeliverStep,
    EvaluateStep,
    RepeatStep,
    RevealStep,
    Step,
)
from viewkeeper.simulate.simulated_world import SimulatedWorld

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


def random_tempo(rng: random.Random, world: SimulatedWorld, faults: bool = True) -> Tempo:
    return Tempo(
        commit=rng.choice([0.1, 0.5, 2.0, 10.0]),
        evaluate=rng.choice([0.3, 1.0, 3.0]),
        deliver=rng.choice([0.3, 1.0, 3.0]),
        reveal=rng.choice([0.05, 0.5]),
        slow=rng.choice(sorted(world.sources)) if rng.random() < 0.3 else None,
        crash=0.03 if faults and rng.random() < 0.3 else 0.0,
        repeat=0.05 if faults and rng.random() < 0.3 else 0.0,
    )


def play_randomly(world: SimulatedWorld, rng: random.Random, tempo: Tempo) -> None:
    """Run a world to its end by chance."""
    crashes = 0
    for _ in range(BUDGET):
        if world.is_done:
            return
        step = _choose_step(world, rng, tempo)
        world.make_step(step)
        crashes += isinstance(step, CrashStep)
        if crashes == CRASHES:
            tempo = replace(tempo, crash=0.0)
    raise SimulationError(f"the run did not end within {BUDGET} steps")


def follow_steps(world: SimulatedWorld, steps: Iterable[Step]) -> None:
    """Make those of the given steps that are possible, then run to the end in a fixed order."""
    for step in steps:
        possible = [*world.enabled_steps(), *world.repeatable_steps(), CrashStep()]
        if step in possible:
            world.make_step(step)
    drain_world(world)


def drain_world(world: SimulatedWorld) -> None:
    """Run to the end: oldest messages first, then what is still to be committed."""
    for _ in range(BUDGET):
        if world.is_done:
            return
        world.make_step(min(world.enabled_steps(), key=_drain_rank))
    raise SimulationError(f"the run did not end within {BUDGET} steps")


def _drain_rank(step: Step) -> int:
    order: tuple[type[Step], ...] = (RevealStep, DeliverStep, EvaluateStep, CommitStep)
    return order.index(type(step))


def _choose_step(world: SimulatedWorld, rng: random.Random, tempo: Tempo) -> Step:
    if rng.random() < tempo.crash:
        return CrashStep()
    repeatable = world.repeatable_steps()
    if repeatable and rng.random() < tempo.repeat:
        return rng.choice(repeatable)
    steps = world.enabled_steps()
    return rng.choices(steps, [_step_weight(step, tempo) for step in steps])[0]


def _step_weight(step: Step, tempo: Tempo) -> float:
    match step:
        case CommitStep():
            return tempo.commit
        case RevealStep():
            return tempo.reveal
        case EvaluateStep():
            weight = tempo.evaluate
        case DeliverStep() | RepeatStep():
            weight = tempo.deliver
        case CrashStep():
            return tempo.crash
    return weight / 50 if step.source == tempo.slow else weight
