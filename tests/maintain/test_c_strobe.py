"""C-Strobe and C-TStrobe: what answers lack, what they have too much, and how many queries.

Promises are tried with the others' (`test_strobe_family`). Here: single steps of compensation, the
row that is deleted and comes back, versions that differ only in columns that the view does not
read, the periodic form, a crash in the middle, and the paper's bounds on the number of queries.
"""

from __future__ import annotations

from math import factorial

import pytest

from tests.maintain.runs import Recorded, has, make, scripted
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.maintain.strobe_family.c_strobe import CStrobe
from viewkeeper.simulate.simulated_world import SimulatedWorld
from viewkeeper.simulate.step_choice import drain_world

PAIR = """
view SELECT p.k AS pk, q.k AS qk FROM x.p p, y.q q WHERE p.j = q.j
table x.p (k*, j)
table y.q (k*, j, v)  (5,7,0)
transaction T1 +x.p(1,7)
"""
TWICE = """
view SELECT p.k AS pk, q.k AS qk, r.k AS rk FROM x.p p, y.q q, y.q r
  WHERE p.j = q.j AND p.j = r.j
table x.p (k*, j)
table y.q (k*, j)  (5,7)
transaction T1 +x.p(1,7)
transaction T2 -y.q(5,7)
"""


def counts(world: SimulatedWorld) -> tuple[int, int]:
    """The queries of insertions, and those that compensate."""
    assert isinstance(world.life.algorithm, CStrobe)
    return world.life.algorithm.queries, world.life.algorithm.compensating


def shown(world: SimulatedWorld) -> list[set[tuple[object, ...]]]:
    """The states after the first, as sets of rows."""
    return [set(state.rows) for state in world.store.states[1:]]


# -- compensation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["c_strobe", "c_t_strobe"])
def test_a_row_that_a_later_update_inserts_is_taken_out(name: str) -> None:
    world = scripted(PAIR + "transaction T2 +y.q(6,7,0)\n", name)
    make(world, "commit T1", "deliver x", "commit T2", "deliver y")
    drain_world(world)
    assert shown(world) == [{(1, 5)}, {(1, 5), (1, 6)}]


@pytest.mark.parametrize("version", [0, 1])
def test_a_row_that_was_deleted_and_came_back_was_there_all_the_time(version: int) -> None:
    """Also as another version that looks the same to the view."""
    world = scripted(
        PAIR + f"transaction T2 -y.q(5,7,0)\ntransaction T3 +y.q(5,7,{version})\n", "c_strobe"
    )
    make(world, "commit T1", "deliver x", "commit T2", "commit T3", "deliver y", "deliver y")
    drain_world(world)
    assert shown(world) == [{(1, 5)}, set(), {(1, 5)}]


def test_versions_of_one_key_are_told_apart() -> None:
    text = PAIR.replace("q.k AS qk", "q.k AS qk, q.v")
    world = scripted(text + "transaction T2 -y.q(5,7,0)\ntransaction T3 +y.q(5,7,1)\n", "c_strobe")
    make(world, "commit T1", "deliver x", "commit T2", "commit T3", "deliver y", "deliver y")
    drain_world(world)
    assert shown(world) == [{(1, 5, 0)}, set(), {(1, 5, 1)}]


def test_a_relation_at_two_places_is_put_right_at_both() -> None:
    world = scripted(TWICE, "c_strobe")
    make(world, "commit T1", "deliver x", "commit T2", "deliver y")
    drain_world(world)
    assert shown(world) == [{(1, 5, 5)}, set()]


def test_a_transaction_deletes_by_key_and_inserts_by_query_in_one_commit() -> None:
    world = scripted(
        PAIR + "transaction T2 -x.p(1,7) +x.p(1,8) +x.p(2,7)\ntransaction T3 +y.q(6,8,0)\n",
        "c_t_strobe",
    )
    drain_world(world)
    assert shown(world) == [{(1, 5)}, {(2, 5)}, {(2, 5), (1, 6)}]


def test_a_crash_while_compensating_does_the_same_again() -> None:
    world = scripted(PAIR + "transaction T2 -y.q(5,7,0)\n", "c_strobe")
    make(world, "commit T1", "deliver x", "commit T2", "deliver y", "evaluate y", "crash")
    drain_world(world)
    assert shown(world) == [{(1, 5)}, set()]


def test_a_crash_within_a_transaction_neither_loses_nor_doubles() -> None:
    world = scripted(PAIR + "transaction T2 +x.p(2,7) -x.p(1,7) +x.p(3,7)\n", "c_strobe")
    make(world, "commit T1", "deliver x", "evaluate y", "deliver y")
    make(world, "commit T2", "deliver x", "evaluate y", "deliver y")
    # Two of the three updates are shown; the claim is still what precedes them.
    assert set(world.store.visible_rows) == {(2, 5)}
    assert world.store.positions["x"] == 1
    make(world, "crash")
    drain_world(world)
    assert world.store.visible_rows == {(2, 5): 1, (3, 5): 1}
    assert world.store.positions["x"] == 2


# -- the periodic form -----------------------------------------------------------------------------


@pytest.mark.parametrize(("period", "commits"), [(1, [1, 2, 3, 4, 5]), (3, [1, 4, 5])])
def test_a_period_shows_that_many_updates_at_a_time(period: int, commits: list[int]) -> None:
    more = "transaction T2 +x.p(2,7)\ntransaction T3 +x.p(3,7)\ntransaction T4 -x.p(2,7)\n"
    world = scripted(PAIR + more + "transaction T5 +x.p(5,7)\n", "c_strobe", period=period)
    recorded = Recorded(world)
    for number in range(1, 6):
        make(world, f"commit T{number}", "deliver x")
    drain_world(world)
    assert [commit.ts for commit in recorded.commits] == commits
    assert has(world, Level.STRONG)
    assert has(world, Level.COMPLETE) is (period == 1)


# -- how many queries ------------------------------------------------------------------------------

SOURCES = "wxyz"
CHAIN = (
    "view SELECT w.k AS wk, x.k AS xk, y.k AS yk, z.k AS zk FROM w.t w, x.t x, y.t y, z.t z "
    "WHERE w.b = x.a AND x.b = y.a AND y.b = z.a\n"
    + "table w.t (k*, a, b)\n"
    + "".join(f"table {s}.t (k*, a, b)  (1,0,0) (2,0,0) (3,0,0)\n" for s in "xyz")
    + "transaction T +w.t(1,0,0)\n"
)


def deletions(text: str) -> tuple[str, list[str]]:
    """Transactions like `x1`, row 1 of the table at x is deleted, and steps that deliver them."""
    names = text.split()
    told = "".join(f"transaction {n} -{n[0]}.t({n[1]},0,0)\n" for n in names)
    return told, [step for n in names for step in (f"commit {n}", f"deliver {n[0]}")]


def test_queries_are_grouped_by_relation_and_all_rounds_count() -> None:
    """Two rounds of deletions: 3 queries, then 6 with two deleted relations: more than 3!."""
    told, steps = deletions("x1 y1 z1 x2 y2 z2")
    world = scripted(CHAIN + told, "c_strobe")
    make(world, "commit T", "deliver w", *steps)
    drain_world(world)
    relations = len(SOURCES)
    by_hand = (relations - 1) + (relations - 1) * (relations - 2)
    assert counts(world)[1] == by_hand == 9
    assert by_hand > factorial(relations - 1)
    assert has(world, Level.COMPLETE)


@pytest.mark.parametrize(("grouped", "expected"), [(False, 7), (True, 5)])
def test_deletions_during_every_query_make_more_than_the_printed_bound(
    grouped: bool, expected: int
) -> None:
    """Two deletions during the first query, two more during those that they cause."""
    told, steps = deletions("x1 y1 z1 z2")
    world = scripted(CHAIN + told, "c_strobe", grouped=grouped)
    make(world, "commit T", "deliver w", *steps[:4])
    for source in "xyz":
        make(world, f"evaluate {source}", f"deliver {source}")
    make(world, *steps[4:])
    drain_world(world)
    during, relations = 2, len(SOURCES)
    assert counts(world) == (1, expected)
    assert expected > during ** (relations - 2)
    assert grouped is (expected <= factorial(relations - 1))
    assert has(world, Level.COMPLETE)


def test_without_overlap_nothing_is_compensated() -> None:
    told, steps = deletions("x1 y1")
    world = scripted(CHAIN + told, "c_strobe")
    make(world, *steps, "commit T", "deliver w")
    drain_world(world)
    assert counts(world) == (1, 0)
