"""The checker agrees with a brute-force enumeration of all serial schedules.

This is the argument for the searches: on random histories, whole and spoiled, every predicate is
what trying everything says. And what a schedule shows is recognised for what it is.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.check.brute import Brute
from tests.check.histories import random_history, random_orders
from viewkeeper.check.checker import check_history
from viewkeeper.check.explanation import explain_verdict
from viewkeeper.check.history.recorded_history import RecordedHistory
from viewkeeper.check.levels import CheckAnswer, Predicate, all_of, predicates_of
from viewkeeper.check.recomputation import Recomputation
from viewkeeper.check.serial_schedules import Schedule
from viewkeeper.maintain.algorithm_protocol import Level

SEEDS = st.integers(min_value=0, max_value=2**32)


def word(answer: bool) -> CheckAnswer:
    return CheckAnswer.YES if answer else CheckAnswer.NO


def unclaimed(history: RecordedHistory) -> RecordedHistory:
    return replace(history, states=tuple(replace(s, claim=None) for s in history.states))


@settings(max_examples=600)
@given(seed=SEEDS)
def test_every_predicate_is_what_trying_everything_says(seed: int) -> None:
    history = random_history(random.Random(seed))
    expected = {p: word(held) for p, held in Brute(history).answers().items()}
    assert check_history(history).answers == expected
    assert check_history(unclaimed(history)).answers == expected


def test_the_random_histories_are_of_every_kind() -> None:
    found = Counter(
        tuple(Brute(random_history(random.Random(seed))).answers().values()) for seed in range(600)
    )
    convergent, legal, ordered, complete = (
        [n for answers, n in found.items() if answers[i]] for i in range(4)
    )
    assert min(map(sum, (convergent, legal, ordered, complete))) > 60
    kinds = [(c, le, o, f) for c, le, o, f in found]
    assert set(kinds) >= {
        (False, False, False, False),
        (True, False, False, False),
        (False, True, False, False),
        (True, True, False, False),
        (False, True, True, False),
        (True, True, True, False),
        (True, True, True, True),
    }


@given(seed=SEEDS)
def test_a_level_alone_is_decided_as_in_the_whole(seed: int) -> None:
    history = random_history(random.Random(seed))
    expected = {p: word(held) for p, held in Brute(history).answers().items()}
    for level in Level:
        verdict = check_history(history, at_least=level)
        assert verdict.has_level(level) is all_of(expected[p] for p in predicates_of(level)), level
        wrong = {
            p: a for p, a in verdict.answers.items() if a not in (CheckAnswer.UNKNOWN, expected[p])
        }
        assert not wrong


@given(seed=SEEDS)
def test_all_states_of_a_schedule_are_complete(seed: int) -> None:
    history = random_history(random.Random(seed), spoil=False)
    assert check_history(history).level is Level.COMPLETE
    assert check_history(unclaimed(history)).level is Level.COMPLETE
    assert explain_verdict(check_history(history)) == []


@given(seed=SEEDS)
def test_some_states_of_a_schedule_with_the_last_are_strong(seed: int) -> None:
    rng = random.Random(seed)
    history = random_history(rng, spoil=False)
    kept = [s for s in history.states[:-1] if rng.random() < 0.5]
    verdict = check_history(replace(history, states=(*kept, history.states[-1])))
    assert verdict.level >= Level.STRONG


@given(seed=SEEDS)
def test_the_chain_is_a_proof(seed: int) -> None:
    """Each state is the view over its vector, and the vectors are atomic and grow."""
    history = random_history(random.Random(seed))
    verdict = check_history(history)
    assert (verdict.chain is not None) == (verdict.answers[Predicate.ORDERED] is CheckAnswer.YES)
    if verdict.chain is None:
        return
    brute = Brute(history)
    vectors = [dict(zip(brute.sources, point, strict=True)) for point in verdict.chain]
    for vector, state in zip(vectors, history.states, strict=True):
        assert dict(brute.view(vector)) == dict(state.rows)
        for unit in brute.components():
            parts = [
                log.index(n) < vector[s] for s, log in brute.logs.items() for n in log if n in unit
            ]
            assert len(set(parts)) == 1
    for one, other in pairwise(vectors):
        assert all(one[source] <= other[source] for source in one)


@given(seed=SEEDS)
def test_within_a_small_limit_nothing_wrong_is_said(seed: int) -> None:
    rng = random.Random(seed)
    history = random_history(rng)
    expected = {p: word(held) for p, held in Brute(history).answers().items()}
    found = check_history(history, limit=rng.randint(0, 6))
    assert all(a in (CheckAnswer.UNKNOWN, expected[p]) for p, a in found.answers.items())
    assert found.level <= check_history(history).level <= found.possible_level


@given(seed=SEEDS)
def test_whatever_is_wrong_is_explained(seed: int) -> None:
    verdict = check_history(random_history(random.Random(seed)))
    said = {explanation.about for explanation in explain_verdict(verdict)}
    no = {p.value for p, answer in verdict.answers.items() if answer is CheckAnswer.NO}
    assert said - {"claims"} <= no
    assert bool(said - {"claims"}) == bool(no)
    assert ("claims" in said) == bool(verdict.claim_faults)


@given(seed=SEEDS)
def test_recomputation_is_the_view_by_definition(seed: int) -> None:
    rng = random.Random(seed)
    history = random_history(rng)
    schedule, brute = Schedule(history), Brute(history)
    views = Recomputation(history, schedule)
    for _ in range(5):
        point = tuple(rng.randint(0, n) for n in schedule.final)
        expected = dict(brute.view(schedule.vector_of(point)))
        assert dict(views.bag_of(views.number_at(point))) == expected


@settings(max_examples=200)
@given(seed=SEEDS)
def test_the_units_are_what_no_order_can_separate(seed: int) -> None:
    history = random_orders(random.Random(seed))
    brute = Brute(history)
    units = [frozenset(unit.names) for unit in Schedule(history).units]
    assert sorted(units, key=sorted) == sorted(brute.components(), key=sorted)
    for before, unit in enumerate(units):
        later = [name for other in units[before + 1 :] for name in other]
        assert all(brute.may_precede(unit, name) for name in later)


@pytest.mark.parametrize("limit", [0, 1])
def test_beyond_the_limit_the_answer_is_unknown(limit: int) -> None:
    unknown = 0
    for seed in range(100):
        answers = check_history(unclaimed(random_history(random.Random(seed))), limit=limit).answers
        unknown += CheckAnswer.UNKNOWN in answers.values()
    assert unknown > 20
