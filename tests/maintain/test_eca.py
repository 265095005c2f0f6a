"""ECA: what a transaction adds to a query, what is collected, and how questions grow.

ECA's promises are tried with the others' (`test_strobe_family`). Here: the signs of its terms for
transactions of several places, that nothing is shown before everything is answered, and the
quadratic size of questions that the SWEEP paper holds against it.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.maintain.runs import Recorded, has, make, scripted
from viewkeeper.maintain.algorithm_protocol import Level, Term
from viewkeeper.maintain.eca import substitute_changes
from viewkeeper.simulate.step_choice import drain_world
from viewkeeper.updates.view_actions import AddRows

PAIR = """
view SELECT p.k AS pk, q.k AS qk FROM x.p p, x.q q WHERE p.j = q.j
table x.p (k, j)  (1,7)
table x.q (k, j)  (5,7)
"""
ROWS = pa.table({"k": [2], "_count": [1]})


def test_sets_of_changed_places_have_alternating_signs() -> None:
    terms = list(substitute_changes([Term(1, {})], {0: ROWS, 1: ROWS, 2: ROWS}))
    assert [(term.sign, tuple(term.bound)) for term in terms] == [
        (1, (0,)), (1, (1,)), (1, (2,)),
        (-1, (0, 1)), (-1, (0, 2)), (-1, (1, 2)),
        (1, (0, 1, 2)),
    ]  # fmt: skip


def test_a_place_that_is_given_already_is_not_given_again() -> None:
    (term,) = substitute_changes([Term(-1, {0: ROWS})], {0: ROWS, 1: ROWS})
    assert (term.sign, set(term.bound)) == (-1, {0, 1})


@pytest.mark.parametrize(
    "change", ["+x.p(2,7) +x.q(6,7)", "-x.p(1,7) -x.q(5,7)", "-x.p(1,7) +x.p(1,8) +x.q(6,8)"]
)
def test_a_transaction_over_several_relations_counts_every_pair_once(change: str) -> None:
    world = scripted(PAIR + f"transaction T1 {change}\n", "eca")
    drain_world(world)
    assert has(world, Level.COMPLETE)


def test_nothing_is_shown_before_everything_is_answered() -> None:
    world = scripted(PAIR + "transaction T1 +x.p(2,7)\ntransaction T2 +x.q(6,7)\n", "eca")
    recorded = Recorded(world)
    make(world, "commit T1", "commit T2", "deliver x", "deliver x")
    make(world, "evaluate x", "deliver x")
    assert not recorded.commits
    make(world, "evaluate x", "deliver x")
    (commit,) = recorded.commits
    assert [type(change) for change in commit.changes] == [AddRows]
    assert (commit.ts, commit.positions) == (2, {"x": 2})
    assert world.store.visible_rows == {(1, 5): 1, (2, 5): 1, (1, 6): 1, (2, 6): 1}


def test_an_update_of_columns_that_the_view_does_not_use_asks_nobody() -> None:
    wider = PAIR.replace("x.p (k, j)  (1,7)", "x.p (k, j, v)  (1,7,0)")
    world = scripted(wider + "transaction T1 -x.p(1,7,0) +x.p(1,7,1)\n", "eca")
    drain_world(world)
    assert not world.asks


@pytest.mark.parametrize("pairs", [1, 3, 6])
def test_questions_grow_with_the_square_of_the_updates_that_overlap(pairs: int) -> None:
    updates = "".join(
        f"transaction P{i} +x.p({10 + i},7)\ntransaction Q{i} +x.q({10 + i},7)\n"
        for i in range(pairs)
    )
    world = scripted(PAIR + updates, "eca")
    recorded = Recorded(world)
    for i in range(pairs):
        make(world, f"commit P{i}", f"commit Q{i}", "deliver x", "deliver x")
    # Each of the 2n updates asks for itself and takes back what it does to all of the other
    # relation that are under way: 2n + n^2 = (n + 1)(n + 1) - 1 terms, the latter with two rows.
    assert len(recorded.asks) == 2 * pairs
    assert sum(len(ask.terms) for ask in recorded.asks) == 2 * pairs + pairs**2
    assert world.asked_rows == 2 * pairs + 2 * pairs**2
    drain_world(world)
    assert len(recorded.commits) == 1
    assert sum(world.store.visible_rows.values()) == (pairs + 1) ** 2
