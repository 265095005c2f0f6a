"""Dyno in random worlds: every inner algorithm under every setting, a few seeds of each.

`make simulate` runs 2,000 of each. Strong consistency is demanded of all, complete where all schema
changes keep values and the inner algorithm is complete. The worlds must be mean enough: queries
break, work is undone, units are merged, and all kinds of schema changes happen.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.evolution.scenes import change, follow_reshaped, insert, scene, table
from viewkeeper.evolution.dyno.dyno_loop import DynoSetting
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.simulate.schema_changes.reshaped_campaign import (
    ALGORITHMS,
    SETTINGS,
    ReshapedCell,
    random_reshaped_scenario,
    world_of,
)
from viewkeeper.simulate.schema_changes.reshaped_judge import ReshapedState, first_fault, level_of
from viewkeeper.simulate.schema_changes.reshaped_world import (
    ReshapedWorld,
    play_reshaped,
)
from viewkeeper.simulate.schema_changes.scenario_model import KEPT, LOST

SEEDS = 25
CELLS = [ReshapedCell(name, setting) for name in ALGORITHMS for setting in SETTINGS]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_strong_in_random_worlds(cell: ReshapedCell) -> None:
    outcomes = [cell.judge_seed(seed) for seed in range(SEEDS)]
    for outcome in outcomes:
        assert outcome.error is None, f"{cell.replay_command(outcome.seed)}: {outcome.error}"
        assert outcome.found >= Level.STRONG
    for fact in ("broken", "undone", "merged"):
        assert sum(outcome.facts[fact] for outcome in outcomes), f"nothing {fact}: too tame"


def test_pvm_cc_is_complete_where_values_are_kept() -> None:
    cell = ReshapedCell("pvm_cc", "pessimistic")
    assert [cell.judge_seed(seed).error for seed in range(10)] == [None] * 10


def test_the_worlds_are_mean() -> None:
    kinds: Counter[str] = Counter()
    facts: Counter[str] = Counter()
    for seed in range(60):
        scenario = random_reshaped_scenario(random.Random(f"{seed} scenario"))
        kinds.update(transaction.kind for transaction in scenario.transactions)
        facts["kept"] += scenario.keeps_values
        facts["fifo"] += scenario.fifo
        facts["self-join"] += len({m.table for m in scenario.sketch.places}) < len(
            scenario.sketch.places
        )
        facts["with rows"] += any(
            transaction.kind != "rows" and len(transaction.operations) > 2
            for transaction in scenario.transactions
        )
    assert {*KEPT, *LOST, "rows"} <= set(kinds)
    assert all(0 < count < 60 for count in facts.values()), facts


def played(seed: int) -> ReshapedWorld:
    world = world_of(DynoSetting("batch_sweep"), seed)
    play_reshaped(world, random.Random(f"{seed} pace"))
    return world


def test_a_seed_replays() -> None:
    one, other = played(7), played(7)
    assert one.steps == other.steps
    assert one.store.states == other.store.states
    again = ReshapedWorld(one.scenario, DynoSetting("batch_sweep"))
    follow_reshaped(again, one.steps)
    assert again.store.states == one.store.states


# -- the judge -------------------------------------------------------------------------------------


def _states(seed: int) -> tuple[ReshapedWorld, list[ReshapedState]]:
    world = world_of(DynoSetting("sweep"), seed)
    play_reshaped(world, random.Random(f"{seed} pace"))
    return world, list(world.store.states)


def test_the_judge_sees_a_wrong_row_a_wrong_claim_and_a_step_back() -> None:
    world, states = _states(3)
    judge = world.judge
    assert first_fault(judge, states) is None
    extra = frozenset({(tuple(99 for _ in states[1].columns), 1)})
    wrong = [*states[:1], replace(states[1], rows=states[1].rows | extra), *states[2:]]
    found = first_fault(judge, wrong)
    assert found is not None
    assert found.state == 1
    assert level_of(judge, wrong) is Level.CONVERGENCE
    back = first_fault(judge, [states[-1], *states])
    assert back is not None
    assert "goes back" in back.what
    early = first_fault(judge, states[:1])
    assert early is not None
    assert level_of(judge, [replace(states[0], rows=extra)]) is Level.NONE


def test_a_state_that_is_skipped_is_not_complete() -> None:
    r = table(1, "r", "ab", (1, 7))
    inserts = [change("x", insert(1, (2, 7))), change("x", insert(1, (3, 7)))]
    scenario = scene(
        "SELECT p.a AS a FROM x.r p", [("x", r)], [], {"a": (0, "a")}, {"x": [r]}, inserts
    )
    world = ReshapedWorld(scenario, DynoSetting("sweep"))
    follow_reshaped(world, [])
    first, middle, last = world.store.states
    assert level_of(world.judge, [first, middle, last]) is Level.COMPLETE
    assert level_of(world.judge, [first, last]) is Level.STRONG
