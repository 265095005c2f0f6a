"""Who makes the next step of a fleet: a seeded generator with a temper; in the end, everybody.

A *pace* is drawn per run: how much happens between two updates, how much is read or taken at a
time, which members are slow, and which faults there are. When all updates are committed, everybody
runs again and in turn, until nothing changes any more; whatever is not done then never will be.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from viewkeeper.errors import SimulationError
from viewkeeper.simulate.fleet.fleet_registry import LEASE
from viewkeeper.simulate.fleet.fleet_world import FleetWorld
from viewkeeper.simulate.fleet.simulated_member import SimulatedMember

ROUNDS_MAX = 2_000
"""Rounds after which a run that does not end is called stuck."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much happens between two updates, and how likely the faults are, per step."""

    steps: int
    reach: int
    """How many messages are read, and ids taken, at a time at most."""
    slow: frozenset[str]
    crash: float
    restart: float
    outage: float
    loss: float


def random_pace(rng: random.Random, world: FleetWorld) -> Pace:
    names = sorted(world.warehouses)
    faults = world.ordered and rng.random() < 0.6
    return Pace(
        steps=rng.choice([3, 10, 40, 100]),
        reach=rng.choice([1, 2, 5]),
        slow=frozenset(name for name in names if rng.random() < 0.2),
        crash=rng.choice([0.0, 0.01, 0.05]) if faults else 0.0,
        restart=rng.choice([0.02, 0.2]),
        outage=rng.choice([0.0, 0.02]) if faults else 0.0,
        loss=rng.choice([0.0, 0.2]) if faults else 0.0,
    )


def play_fleet(world: FleetWorld, rng: random.Random) -> None:
    """Run a world to its end by chance."""
    pace = random_pace(rng, world)
    world.link.lose_answers(pace.loss)
    updates = len(world.scenario.updates)
    while world.committed < updates:
        for _ in range(rng.randint(0, 2 * pace.steps)):
            _make_step(world, rng, pace)
        world.commit_update()
    for _ in range(rng.randint(0, 2 * pace.steps)):
        _make_step(world, rng, pace)
    settle_fleet(world)


def _make_step(world: FleetWorld, rng: random.Random, pace: Pace) -> None:
    world.link.pass_time(1)
    if rng.random() < pace.outage:
        world.link.toggle_outage()
    if world.stopped_members and rng.random() < pace.restart:
        world.start_member(rng.choice(world.stopped_members))
    if not world.members:
        return
    name = rng.choice(sorted(world.members))
    if name in pace.slow and rng.random() < 0.8:
        return
    act_once(world.members[name], rng, pace.reach)
    if rng.random() < pace.crash:
        world.crash_member(name)


def act_once(member: SimulatedMember, rng: random.Random, reach: int) -> None:
    """One thing that a member can do, by chance."""
    limit = rng.randint(1, reach)
    match rng.choice(["order", "source", "source", "report", "work", "work", "other"]):
        case "order":
            member.hear_order(limit)
        case "source":
            member.hear_source(rng.choice(sorted(member.warehouse.plan.facts.read_names)), limit)
        case "report" if member.outside_sources:
            member.report_source(rng.choice(member.outside_sources))
        case "work":
            member.continue_work(limit)
        case _:
            member.load_when_ready()
            member.hear_reached()
            member.move_on()


def settle_fleet(world: FleetWorld) -> None:
    """Let everybody run in turn until nothing changes; a SimulationError if that never comes."""
    world.link.end_faults()
    for name in world.stopped_members:
        world.start_member(name)
    before: tuple[object, ...] = ()
    for _ in range(ROUNDS_MAX):
        world.link.pass_time(LEASE)
        for member in world.members.values():
            act_fully(member)
        if world.fingerprint == before and all(m.is_idle for m in world.members.values()):
            return
        before = world.fingerprint
    raise SimulationError(f"the fleet did not come to rest within {ROUNDS_MAX} rounds")


def act_fully(member: SimulatedMember) -> None:
    """All that a member can do, once; what it takes it finishes."""
    many = 1_000
    member.load_when_ready()
    for source in member.outside_sources:
        member.report_source(source)
    member.hear_order(many)
    for source in sorted(member.warehouse.plan.facts.read_names):
        member.hear_source(source, many)
    member.hear_reached()
    member.continue_work(many)
    while not member.is_idle:
        member.continue_work(many)
    member.continue_work(many)
    while not member.is_idle:
        member.continue_work(many)
    member.move_on()
