"""Campaigns of fleets: a seed determines the fleet, what happens in it, and all chances.

A run fails if it raises, if it comes to rest with something left to do, or if the checker finds a
view that is not base consistent, two views of a group that are not view consistent, a claim that is
wrong, or a last state that lacks something. With the order switched off that is expected, and what
was found is counted.

A *pace* is drawn per run: how much happens between two updates, how much is read or taken at a
time, which members are slow, and which faults there are. When all updates are committed, everybody
runs again and in turn, until nothing changes any more; whatever is not done then never will be.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from viewkeeper.check.fleet.fleet_checker import FleetFaultKind, FleetVerdict, check_fleet
from viewkeeper.check.fleet.fleet_explanation import explain_fleet
from viewkeeper.errors import SimulationError
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.simulate.campaigns.algorithm_campaign import SeedOutcome
from viewkeeper.simulate.fleet.fleet_registry import LEASE
from viewkeeper.simulate.fleet.fleet_scenario import Mistake, random_fleet
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
    for _ in range(2):
        member.continue_work(many)
        while not member.is_idle:
            member.continue_work(many)
    member.move_on()


@dataclass(frozen=True, slots=True)
class FleetCell:
    """What a campaign is about: fleets with an order, without one, or with a mistake."""

    ordered: bool = True
    mistake: Mistake | None = None

    @property
    def promised_level(self) -> Level:
        """A run that keeps its promises counts as complete, one that does not as nothing."""
        return Level.COMPLETE if self.ordered else Level.NONE

    def replay_command(self, seed: int) -> str:
        return (
            f"viewkeeper simulate --fleet{'' if self.ordered else ' --without-order'} --seed {seed}"
        )

    def judge_seed(self, seed: int) -> SeedOutcome:
        """Run a seed and check it."""
        world = self.make_world(seed)
        try:
            play_fleet(world, random.Random(f"{seed} pace"))
            wrong, facts = judge_fleet(world)
        except Exception as raised:  # noqa: BLE001 - whatever is raised is this seed's outcome
            wrong, facts = f"{type(raised).__name__}: {raised}", {"raised": 1}
        found = Level.NONE if wrong else Level.COMPLETE
        error = wrong if self.ordered or facts.get("raised") else None
        facts |= count_fleet_facts(world)
        return SeedOutcome(seed, found, found, world.committed, 0, 0, error, facts)

    def make_world(self, seed: int) -> FleetWorld:
        """The world of a seed, before its first step."""
        scenario = random_fleet(random.Random(f"{seed} fleet"))
        return FleetWorld(scenario, random.Random(f"{seed} chances"), self.mistake, self.ordered)


def count_fleet_facts(world: FleetWorld) -> dict[str, int]:
    """What happened in a run that a summary should say."""
    registry = world.registry
    orders = [group for group in (*registry.removed, *registry.groups) if not group.is_alone]
    return {
        "orders": len(orders),
        "removed": len(registry.removed),
        "trimmed": sum(group.trimmed for group in orders),
        "virtual": sum(not group.outside_bases.issubset(world.bases) for group in orders),
        "moves": sum(max(0, len(w.spans) - 1) for w in world.warehouses.values()),
        "crashes": world.crashes,
    }


def judge_fleet(world: FleetWorld) -> tuple[str | None, dict[str, int]]:
    """What is wrong with a run that came to rest, in words, and what was found."""
    verdict = verdict_of(world)
    stuck = [] if world.mistake is None and not world.ordered else world.describe_waits()
    facts = {
        "members": len(verdict.history.members),
        "states": sum(len(member.states) for member in verdict.history.members),
        "base": bool(verdict.faults_of(FleetFaultKind.BASE)),
        "view": bool(verdict.faults_of(FleetFaultKind.VIEW)),
        "last": bool(verdict.faults_of(FleetFaultKind.LAST)),
        "claim": bool(verdict.faults_of(FleetFaultKind.CLAIM, FleetFaultKind.BACKWARDS)),
        "unknown": bool(verdict.faults_of(FleetFaultKind.UNKNOWN)),
        "stuck": bool(stuck),
    }
    wrong = [*(f"it stands still: {said}" for said in stuck[:3]), *explain_fleet(verdict)]
    return (" ".join(wrong) if wrong else None), facts


def verdict_of(world: FleetWorld) -> FleetVerdict:
    """What the checker says; who is a member in the end must have everything."""
    history = world.fleet_history()
    return check_fleet(history, [name for name in history.member_by_name if name not in world.left])
