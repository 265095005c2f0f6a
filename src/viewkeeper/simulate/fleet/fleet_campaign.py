"""Campaigns of fleets: a seed determines the fleet, what happens in it, and all chances.

A run fails if it raises, if it comes to rest with something left to do, or if the checker finds a
view that is not base consistent, two views of a group that are not view consistent, a claim that is
wrong, or a last state that lacks something. With the order switched off that is expected, and what
was found is counted.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from viewkeeper.check.fleet.fleet_checker import FleetFaultKind, FleetVerdict, check_fleet
from viewkeeper.check.fleet.fleet_explanation import explain_fleet
from viewkeeper.maintain.promises import Level
from viewkeeper.simulate.campaigns.algorithm_campaign import SeedOutcome
from viewkeeper.simulate.fleet.fleet_pace import play_fleet
from viewkeeper.simulate.fleet.fleet_scenario import random_fleet
from viewkeeper.simulate.fleet.fleet_world import FleetWorld
from viewkeeper.simulate.fleet.mistakes import Mistake


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
        """What replays a seed."""
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
