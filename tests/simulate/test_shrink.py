"""Shrinking: a planted bug in the compensation is found by some seed and reduced to a few lines.

What is left must still fail, also when it is read back from its own text, and must be tiny: the
bug needs two transactions and a question between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions
from viewkeeper.maintain.unit_intake import TakenUnit, UnitIntake
from viewkeeper.simulate.campaigns.algorithm_campaign import (
    AlgorithmCell,
    case_of,
    failure_of,
    replay_seed,
    run_seed,
    smallest_failure,
)
from viewkeeper.simulate.campaigns.shrink import Case, is_possible, shrink_case
from viewkeeper.simulate.scenario import AlgorithmSubject
from viewkeeper.simulate.scripts.script_format import script_of
from viewkeeper.simulate.scripts.script_reader import read_script
from viewkeeper.simulate.scripts.script_run import perform_run
from viewkeeper.simulate.simulated_world import SimulatedWorld
from viewkeeper.updates.backlog import Backlog

CELL = AlgorithmCell(AlgorithmSubject("sweep"), Transactions.LOCAL)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compensation that knows of nothing which is concurrent."""
    matching = Backlog.matching_changes
    monkeypatch.setattr(Backlog, "matching_changes", lambda *asked: matching(*asked).slice(0, 0))


@pytest.fixture
def failing(broken: None) -> Iterator[int]:
    return (seed for seed in range(50) if run_seed(CELL, seed).is_below(Level.COMPLETE))


@pytest.mark.parametrize("nth", range(3))
def test_a_planted_bug_shrinks_to_a_few_transactions(failing: Iterator[int], nth: int) -> None:
    seed = [next(failing) for _ in range(nth + 1)][-1]
    world = smallest_failure(CELL, seed, Level.COMPLETE)
    case = case_of(world)
    assert is_possible(case.scenario)
    assert failure_of(case, Level.COMPLETE) == "below"
    assert len(case.scenario.transactions) <= 3
    assert len(case.scenario.tables) <= 2
    changes = [row for t in case.scenario.transactions for p in t.parts.values() for row in p]
    assert len(changes) <= 4
    text = str(script_of(case.scenario, case.subject, case.steps, f"seed {seed}"))
    assert len(text.splitlines()) <= 20
    script = read_script(text)
    again = perform_run(script, script.runs[0])
    assert again.verdict is not None
    assert again.verdict.level < Level.COMPLETE


def test_the_budget_ends_it(failing: Iterator[int]) -> None:
    case = case_of(replay_seed(CELL, next(failing)))
    asked = []

    def fails(smaller: Case) -> bool:
        asked.append(smaller)
        return failure_of(smaller, Level.COMPLETE) is not None

    assert failure_of(shrink_case(case, fails, budget=7), Level.COMPLETE) is not None
    assert len(asked) == 7


def test_an_algorithm_that_raises_shrinks_to_what_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    take = UnitIntake.take_unit

    def second_fails(intake: UnitIntake, *given: Any) -> TakenUnit:
        taken = take(intake, *given)
        if taken.ts == 2:
            raise LookupError("planted")
        return taken

    monkeypatch.setattr(UnitIntake, "take_unit", second_fails)
    outcome = run_seed(CELL, 5)
    assert outcome.error == "LookupError: planted"
    assert outcome.is_below(Level.NONE)
    case = case_of(smallest_failure(CELL, 5, Level.COMPLETE))
    assert failure_of(case, Level.COMPLETE) == "LookupError"
    assert len(case.scenario.transactions) == 2
    assert len(case.scenario.tables) == 1


def test_a_replayed_seed_is_the_same_run() -> None:
    once, again = replay_seed(CELL, 11), replay_seed(CELL, 11)
    assert once.trace.steps == again.trace.steps
    assert once.store.states == again.store.states


def test_scenarios_that_cannot_be_are_none() -> None:
    text = """\
view SELECT r.a FROM x.r r
table x.r (a*, b)  (1,2)
transaction T1  -x.r(1,2)
transaction T2  +x.r(1,3)
"""
    assert is_possible(read_script(text).scenario)
    assert not is_possible(read_script(text.replace("(1,2)\n", "(2,2)\n", 1)).scenario)
    assert not is_possible(read_script(text.replace("-x.r(1,2)", "+x.r(2,2)")).scenario)
    assert SimulatedWorld(read_script(text).scenario, AlgorithmSubject("sweep")).is_quiet
