"""Fleets in random worlds: consistent with an order, not without one, and no mistake unnoticed.

Every seed is a fleet with crashes, outages, members that come and go; all of it must be base
consistent, and view consistent inside groups, with nothing lost, doubled or standing still. `make
simulate` runs many more of them. Example 1 of the paper is played step by step.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from viewkeeper.check.fleet.fleet_checker import FleetFaultKind
from viewkeeper.check.fleet.fleet_explanation import explain_fleet
from viewkeeper.simulate.campaigns.algorithm_campaign import CampaignTally
from viewkeeper.simulate.fleet import fleet_registry
from viewkeeper.simulate.fleet.fleet_campaign import FleetCell, play_fleet, settle_fleet, verdict_of
from viewkeeper.simulate.fleet.fleet_scenario import BaseUpdate, FleetScenario, Mistake, member_plan
from viewkeeper.simulate.fleet.fleet_world import FleetWorld


def campaign(cell: FleetCell, seeds: int) -> CampaignTally[FleetCell]:
    tally = CampaignTally(cell, cell.promised_level)
    tally.add_outcomes(cell.judge_seed(seed) for seed in range(seeds))
    return tally


def test_with_an_order_every_fleet_is_consistent() -> None:
    tally = campaign(FleetCell(), 100)
    assert [(outcome.seed, outcome.error) for outcome in tally.failed] == []
    # So that what is promised was also tried.
    tried = ("virtual", "moves", "crashes", "removed", "trimmed")
    assert min(tally.facts[what] for what in tried) > 10
    assert tally.facts["states"] > 1_000


@pytest.mark.parametrize(
    ("rule", "mistake", "found"),
    [
        ("order_cut", lambda reached, last, trimmed, windows: last, "is kept from"),
        ("is_done", lambda opened, closed, now, places, windows: True, "was removed, and a member"),
    ],
)
def test_a_registry_that_forgets_too_much_is_found(
    rule: str, mistake: object, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_registry, rule, mistake)
    errors = [outcome.error or "" for outcome in campaign(FleetCell(), 30).failed]
    assert any(found in error for error in errors)


def test_without_an_order_many_are_not() -> None:
    tally = campaign(FleetCell(ordered=False), 100)
    assert tally.failed == []
    assert tally.facts["view"] > 10
    assert tally.facts["base"] > 1
    assert tally.facts["last"] == 0


@pytest.mark.parametrize(
    ("mistake", "seeds", "found"),
    [
        (Mistake.NO_PARENT_WAIT, 30, "base"),
        (Mistake.NO_LOG_WAIT, 60, "last"),
        (Mistake.TAKES_HIDDEN, 30, "claim"),
        (Mistake.READS_NEWEST, 30, "base"),
        (Mistake.REGISTERS_EARLY, 30, "stuck"),
        (Mistake.NO_FIRST_REPORT, 20, "stuck"),
        (Mistake.LOADS_ANYWHERE, 120, "claim"),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Mistake) else "",
)
def test_a_mistake_is_found(mistake: Mistake, seeds: int, found: str) -> None:
    cell = FleetCell(mistake=mistake)
    for seed in range(seeds):
        outcome = cell.judge_seed(seed)
        if outcome.facts.get(found):
            assert outcome.error
            return
    pytest.fail(f"not found within {seeds} seeds")


def test_a_seed_is_always_the_same() -> None:
    histories = []
    for _ in range(2):
        world = FleetCell().make_world(7)
        play_fleet(world, random.Random("7 pace"))
        histories.append([(m.name, m.states) for m in world.fleet_history().members])
    assert histories[0] == histories[1]


# -- Example 1 -------------------------------------------------------------------------------------

JOIN = "SELECT p0.k AS k, p0.a AS a, p1.b AS b, p1.v AS v FROM b1.t p0, b2.t p1 WHERE p0.b = p1.a"
TOP = "SELECT p0.k AS k, p0.b AS a, p1.b AS b, p1.v AS v FROM V1.v p0, V2.v p1 WHERE p0.k = p1.k"
EXAMPLE_1 = FleetScenario(
    {"b1": {"t": {(1, 0, 0, 0): 1}}, "b2": {"t": {(7, 0, 5, 1): 1}}},
    (
        BaseUpdate("b1", {"t": (((2, 0, 0, 0), 1),)}),
        BaseUpdate("b2", {"t": (((8, 0, 6, 2), 1),)}),
    ),
    tuple(member_plan(name, {"v": JOIN if name != "V0" else TOP}) for name in ("V1", "V2", "V0")),
)


def finish(world: FleetWorld, name: str) -> None:
    """Take what can be taken, and commit it."""
    world.members[name].continue_work(1)
    while not world.members[name].is_idle:
        world.members[name].continue_work(1)


def example_1(ordered: bool) -> FleetWorld:
    """V1 hears of b1's update first, V2 of b2's; V0 hears of all that they did, and takes it."""
    world = FleetWorld(EXAMPLE_1, random.Random(1), ordered=ordered)
    world.commit_update()
    world.commit_update()
    for source in ("b1", "b2"):
        world.members["V1"].report_source(source)
    for name, first, second in (("V1", "b1", "b2"), ("V2", "b2", "b1")):
        for source in (first, second):
            world.members[name].hear_order(9)
            world.members[name].hear_source(source, 1)
            finish(world, name)
        finish(world, name)
    for name in ("V1", "V2"):
        world.members["V0"].hear_order(9)
        world.members["V0"].hear_source(name, 9)
    finish(world, "V0")
    settle_fleet(world)
    return world


def test_example_1_without_a_registry() -> None:
    verdict = verdict_of(example_1(ordered=False))
    assert [(f.view.source, f.state) for f in verdict.faults_of(FleetFaultKind.BASE)] == [("V0", 1)]
    said = "\n".join(explain_fleet(verdict))
    assert "V0.v shows b2 before and after b2@1: before it through V1.v, after it through" in said


def test_example_1_with_a_registry() -> None:
    world = example_1(ordered=True)
    assert [str(each.id) for each in world.registry.groups[0].order] == ["b1@1", "b2@1"]
    assert verdict_of(world).faults == ()
    shown = {name: [str(e.id) for e in w.entries] for name, w in world.warehouses.items()}
    assert shown == {name: ["b1@1", "b2@1"] for name in ("V1", "V2", "V0")}


@pytest.mark.parametrize("seed", range(20))
def test_example_1_with_a_registry_under_any_schedule(seed: int) -> None:
    world = FleetWorld(EXAMPLE_1, random.Random(seed))
    play_fleet(world, random.Random(seed))
    assert verdict_of(world).faults == ()


# -- groups that change ----------------------------------------------------------------------------


def test_a_new_member_brings_others_together_and_nothing_is_lost() -> None:
    """Two warehouses over one base are alone and apart; a third one reads both."""
    one = "SELECT p0.k AS k, p0.a AS a, p0.b AS b, p0.v AS v FROM b1.t p0"
    both = "SELECT p0.k AS k, p0.a AS a, p1.b AS b, p1.v AS v FROM A.v p0, B.v p1 WHERE p0.a = p1.k"
    late = replace(member_plan("C", {"v": both}), joins=2)
    updates = tuple(BaseUpdate("b1", {"t": (((n, 0, n, n), 1),)}) for n in range(1, 4))
    members = (member_plan("A", {"v": one}), member_plan("B", {"v": one}), late)
    world = FleetWorld(FleetScenario({"b1": {"t": {}}}, updates, members), random.Random(1))
    world.commit_update()
    world.members["A"].hear_source("b1", 1)
    finish(world, "A")
    world.commit_update()
    settle_fleet(world)
    assert [sorted(group.facts) for group in world.registry.groups if not group.closed] == [
        ["A", "B", "C"]
    ]
    world.commit_update()
    settle_fleet(world)
    assert verdict_of(world).faults == ()
    assert world.warehouses["C"].positions == {n: world.warehouses[n].ts for n in ("A", "B")}
