"""Recompute, conventional, Strobe, T-Strobe and G-Strobe: promises in random worlds, and examples.

The checker judges random runs of every setting, C-Strobe's and ECA's too; their own examples are in
files of their own. The examples here are about the machinery that the papers only name: pending
deletes, the order of the action list, pairs, parts that wait, what a commit claims when it shows
part of a transaction, and what a crash at that moment leaves.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.maintain.runs import Recorded, has, make, random_run, scripted
from viewkeeper.delta.kernel import Kernel
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions
from viewkeeper.maintain.strobe_family.key_delete import comparable_rows, net_of, rows_without
from viewkeeper.simulate import simulated_world as world_module
from viewkeeper.simulate.campaigns.workload import define_view
from viewkeeper.simulate.step_choice import drain_world
from viewkeeper.updates.view_actions import DeleteKeys, InsertMissing, ReplaceRows
from viewkeeper.view.definition import Relation
from viewkeeper.view.sweep_plan import sweep_plan_of

NAMES = ("recompute", "eca", "strobe", "t_strobe", "g_strobe", "c_strobe", "c_t_strobe")
SHAPES = ("chain:1", "chain:2", "chain:3", "star:3", "self:3", "cycle:3", "chain:4")
SEEDS = 10

PAIR = """
view SELECT p.k AS pk, p.j, q.k AS qk FROM x.p p, y.q q WHERE p.j = q.j
table x.p (k*, j)  (1,7)
table y.q (k*, j)  (5,7)
"""
CHAIN = """
view SELECT p.k AS pk, p.v, q.k AS qk, r.k AS rk
  FROM x.p p, y.q q, z.r r WHERE p.j = q.i AND q.j = r.i
table x.p (k*, j, v)  (1,2,0)
table y.q (k*, i, j)
table z.r (k*, i)  (8,3)
"""


# -- promises --------------------------------------------------------------------------------------


@pytest.mark.parametrize("transactions", Transactions)
@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_keeps_its_promise(name: str, transactions: Transactions) -> None:
    for seed in range(SEEDS):
        world = random_run(name, {}, transactions, seed, SHAPES)
        assert has(world, KINDS[name].promise[transactions]), f"seed {seed}"


@pytest.mark.parametrize(
    ("name", "options", "transactions", "level"),
    [
        ("t_strobe", {"gather": True}, Transactions.LOCAL, Level.STRONG),
        ("t_strobe", {"gather": True}, Transactions.GLOBAL, Level.CONVERGENCE),
        ("c_strobe", {"grouped": False}, Transactions.SINGLE, Level.COMPLETE),
        ("c_strobe", {"period": 3}, Transactions.SINGLE, Level.STRONG),
        ("c_t_strobe", {"grouped": False}, Transactions.LOCAL, Level.COMPLETE),
        ("c_t_strobe", {"period": 3}, Transactions.LOCAL, Level.STRONG),
        ("c_t_strobe", {"gather": True}, Transactions.GLOBAL, Level.COMPLETE),
        ("c_t_strobe", {"gather": True, "period": 2}, Transactions.GLOBAL, Level.STRONG),
    ],
)
def test_every_option_has_its_level(
    name: str, options: dict[str, Any], transactions: Transactions, level: Level
) -> None:
    for seed in range(SEEDS):
        world = random_run(name, options, transactions, seed, SHAPES)
        assert has(world, level), f"seed {seed}"


@pytest.mark.parametrize("transactions", Transactions)
def test_conventional_maintenance_ends_wrong_in_some_runs(transactions: Transactions) -> None:
    runs = (random_run("conventional", {}, transactions, seed, SHAPES) for seed in range(60))
    assert not all(has(world, Level.CONVERGENCE) for world in runs)


@pytest.mark.parametrize("name", NAMES)
def test_the_arrow_kernel_carries_it_too(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(world_module, "plain_algebra", Kernel)
    for seed in range(6):
        world = random_run(name, {}, Transactions.LOCAL, seed, SHAPES)
        assert isinstance(world._make.args[0], Kernel)
        assert has(world, KINDS[name].promise[Transactions.LOCAL]), f"seed {seed}"


# -- deleting by key -------------------------------------------------------------------------------


def test_what_a_transaction_inserts_and_deletes_again_is_left_out() -> None:
    plan = sweep_plan_of(define_view("SELECT p.k, p.v FROM x.r p"))
    relation = Relation("x", "r")
    rows = [(1, 0, -1), (1, 1, 1), (1, 1, -1), (1, 2, 1), (2, 0, 1), (2, 0, -1), (3, 0, 1)]
    columns = map(list, zip(*rows, strict=True))
    changes = pa.table(dict(zip(("k", "v", "_count"), columns, strict=True)))
    net = net_of(plan, {0: (("k", "k"),)}, {relation: changes})
    assert comparable_rows(net.deleted[relation], ("k", "v")) == [(1, 0)]
    assert comparable_rows(net.inserted[relation], ("k", "v")) == [(1, 2), (3, 0)]


def test_rows_are_compared_as_values_and_null_is_one() -> None:
    rows = pa.table({"a": [1.0, float("nan"), None], "b": [1, 2, 3]})
    taken = set(comparable_rows(rows.slice(1), ["a"]))
    assert rows_without(rows, ["a"], taken)["b"].to_pylist() == [1]


# -- Strobe ----------------------------------------------------------------------------------------


def test_a_delete_is_pending_only_for_queries_that_were_under_way() -> None:
    world = scripted(
        CHAIN + "transaction T1 +y.q(4,2,3)\n"
        "transaction T2 -x.p(1,2,0)\ntransaction T3 +x.p(1,2,9)\n",
        "strobe",
    )
    recorded = Recorded(world)
    make(world, "commit T1", "deliver y", "evaluate x", "deliver x")
    # The query for T1 has read the row that T2 deletes; T3 uses its key again.
    make(world, "commit T2", "deliver x", "commit T3", "deliver x")
    make(world, "evaluate z", "deliver z")
    assert not recorded.commits
    drain_world(world)
    (commit,) = recorded.commits
    assert [type(change) for change in commit.changes] == [DeleteKeys, InsertMissing]
    assert world.store.visible_rows == {(1, 9, 4, 8): 1}


def test_the_action_list_keeps_the_order_of_arrival() -> None:
    world = scripted(
        PAIR + "transaction T1 +x.p(2,7)\ntransaction T2 +y.q(6,7)\ntransaction T3 -x.p(2,7)\n",
        "strobe",
    )
    recorded = Recorded(world)
    make(world, "commit T1", "deliver x", "commit T2", "deliver y", "evaluate y", "deliver y")
    make(world, "commit T3", "deliver x", "evaluate x", "deliver x")
    (commit,) = recorded.commits
    assert [type(change) for change in commit.changes] == [InsertMissing, DeleteKeys, InsertMissing]
    assert world.store.visible_rows == {(1, 7, 5): 1, (1, 7, 6): 1}


def test_a_row_that_two_answers_bring_is_stored_once() -> None:
    world = scripted(PAIR + "transaction T1 +x.p(2,8)\ntransaction T2 +y.q(6,8)\n", "strobe")
    recorded = Recorded(world)
    make(world, "commit T1", "commit T2", "deliver x", "deliver y")
    drain_world(world)
    (commit,) = recorded.commits
    brought = [
        change.rows.to_pylist() for change in commit.changes if isinstance(change, InsertMissing)
    ]
    assert brought == [[{"pk": 2, "j": 8, "qk": 6}]] * 2
    assert world.store.visible_rows == {(1, 7, 5): 1, (2, 8, 6): 1}


UPDATE = PAIR + "transaction T1 -x.p(1,7) +x.p(2,7)\n"


def test_a_crash_within_a_transaction_neither_loses_nor_doubles() -> None:
    world = scripted(UPDATE, "strobe")
    recorded = Recorded(world)
    make(world, "commit T1", "deliver x")
    (half,) = recorded.commits
    assert half.ts == 0
    assert half.positions["x"] == 0
    assert world.sources["x"].acknowledged == 0
    assert world.store.visible_rows == {}
    make(world, "crash")
    drain_world(world)
    assert world.store.visible_rows == {(2, 7, 5): 1}
    assert world.store.positions["x"] == 1


@pytest.mark.parametrize(("name", "states"), [("strobe", 2), ("t_strobe", 1), ("g_strobe", 1)])
def test_only_strobe_shows_a_transaction_in_part(name: str, states: int) -> None:
    world = scripted(UPDATE, name)
    recorded = Recorded(world)
    drain_world(world)
    assert len(recorded.commits) == states
    assert has(world, Level.STRONG) is (name != "strobe")


# -- T-Strobe and G-Strobe -------------------------------------------------------------------------


def test_one_query_asks_for_all_that_a_transaction_inserts() -> None:
    world = scripted(PAIR + "transaction T1 +x.p(2,7) +x.p(3,8) +x.p(4,9) -x.p(4,9)\n", "t_strobe")
    recorded = Recorded(world)
    make(world, "commit T1", "deliver x")
    (ask,) = recorded.asks
    keys = ask.lookups[0].keys
    assert keys is not None
    assert set(keys["j"].to_pylist()) == {7, 8}


MIXED = PAIR.replace("(5,7)", "") + "transaction T1 +x.p(2,7)\ntransaction T2 +y.q(5,7) +x.p(3,7)\n"
"""A part of T2 is at work in the answer for T1, while the stored rows do not have it."""


@pytest.mark.parametrize(
    ("name", "options", "legal"),
    [("t_strobe", {}, True), ("t_strobe", {"gather": True}, False), ("g_strobe", {}, True)],
)
def test_a_part_that_waits_must_hold_back_the_commit_or_be_handled(
    name: str, options: dict[str, Any], legal: bool
) -> None:
    world = scripted(MIXED, name, **options)
    make(world, "commit T1", "deliver x", "commit T2", "deliver y", "evaluate y", "deliver y")
    drain_world(world)
    assert has(world, Level.CONVERGENCE)
    assert has(world, Level.WEAK) is legal


def test_g_strobe_waits_for_what_precedes_a_part_at_its_source() -> None:
    world = scripted(
        PAIR + "transaction T1 -y.q(5,7)\ntransaction T2 +y.q(6,7) +x.p(2,7)\nreporter T2 at x\n",
        "g_strobe",
    )
    recorded = Recorded(world)
    make(world, "commit T1", "commit T2", "deliver x")
    assert not recorded.actions
    make(world, "deliver y")
    assert recorded.asks
    drain_world(world)
    assert world.store.visible_rows == {(1, 7, 6): 1, (2, 7, 6): 1}
    assert has(world, Level.STRONG)


# -- recompute -------------------------------------------------------------------------------------


def test_what_arrives_during_a_recomputation_makes_one_more() -> None:
    more = "".join(f"transaction T{i} +x.p({i},7)\n" for i in range(2, 7))
    world = scripted(PAIR + more, "recompute")
    recorded = Recorded(world)
    make(world, "commit T2", "deliver x", "evaluate x", "evaluate y")
    make(world, *(f"commit T{i}" for i in range(3, 7)), *["deliver x"] * 5)
    drain_world(world)
    assert [type(c) for commit in recorded.commits for c in commit.changes] == [ReplaceRows] * 2
    assert len(recorded.asks) == 4
    assert [commit.positions["x"] for commit in recorded.commits] == [1, 5]


def test_a_cut_with_holes_is_asked_for_again() -> None:
    world = scripted(PAIR + "transaction T2 +x.p(2,7)\nlate T2 at x\nchannels cuts\n", "recompute")
    recorded = Recorded(world)
    make(world, "commit T2", "deliver x reports", "evaluate y", "deliver y answers")
    make(world, "evaluate x", "deliver x answers")
    assert not recorded.commits
    assert [ask.source for ask in recorded.asks] == ["x", "y", "x"]
    drain_world(world)
    assert world.store.visible_rows == {(1, 7, 5): 1, (2, 7, 5): 1}


def test_a_recomputation_that_saw_more_waits_for_its_report() -> None:
    world = scripted(
        PAIR + "transaction T2 +x.p(2,7)\ntransaction T3 -y.q(5,7)\nchannels tails\n", "recompute"
    )
    recorded = Recorded(world)
    make(world, "commit T2", "deliver x reports", "evaluate x", "deliver x answers")
    make(world, "commit T3", "evaluate y", "deliver y answers")
    assert not recorded.commits
    make(world, "deliver y reports")
    (commit,) = recorded.commits
    assert commit.positions == {"x": 1, "y": 1}
    assert world.store.visible_rows == {}
