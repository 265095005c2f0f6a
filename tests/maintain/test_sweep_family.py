"""SWEEP and what grew from it: Nested SWEEP, PVM, PVM CC, batch sweep; promises and examples.

Every setting keeps its promise in random worlds, with the checker as the judge. The examples show
what each variant is for: rounds saved, messages shared, recursion bounded, nothing doubled.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.maintain.runs import has, make, random_run, rounds_of, scripted
from viewkeeper.delta.kernel import Kernel
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.maintain.algorithm_protocol import TransactionKind as Transactions
from viewkeeper.maintain.sweep_family.pvm import cheapest_stages, passes_by_level
from viewkeeper.simulate import simulated_world as world_module
from viewkeeper.simulate.campaigns.workload import define_view
from viewkeeper.simulate.simulated_world import SimulatedWorld
from viewkeeper.simulate.step_choice import drain_world
from viewkeeper.view.sweep_plan import sweep_plan_of

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("sweep", {}),
    ("sweep", {"parallel": 3}),
    ("sweep", {"arms": True}),
    ("sweep", {"arms": True, "parallel": 3}),
    ("nested_sweep", {}),
    ("nested_sweep", {"depth": 0}),
    ("nested_sweep", {"depth": 1}),
    ("pvm", {}),
    ("pvm", {"parallel": 8, "strategy": "posse"}),
    ("pvm_cc", {}),
    ("pvm_cc", {"parallel": 2, "strategy": "posse"}),
    ("batch_sweep", {}),
    ("batch_sweep", {"part_rows": 1}),
]
SEEDS = 15

CHAIN = """
view SELECT p.a, p.b, q.d, r.f FROM x.p p, y.q q, z.r r WHERE p.b = q.c AND q.d = r.e
table x.p (a, b)  (1,2)
table y.q (c, d)  (2,3)
table z.r (e, f)  (3,4)
"""
STAR = """
view SELECT h.a, p.c, q.d, r.e FROM w.h h, x.p p, y.q q, z.r r
  WHERE h.a = p.a AND h.b = q.a AND h.c = r.a
table w.h (a, b, c)
table x.p (a, c)  (1,5)
table y.q (a, d)  (1,6)
table z.r (a, e)  (1,7)
transaction T1  +w.h(1,1,1)
"""


@pytest.mark.parametrize("transactions", Transactions)
@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_every_setting_keeps_its_promise(
    name: str, options: dict[str, Any], transactions: Transactions
) -> None:
    kind = KINDS[name]
    for seed in range(SEEDS):
        world = random_run(name, options, transactions, seed)
        assert has(world, kind.promise[transactions], kind.as_of), f"seed {seed}"
        if kind.as_of:
            assert has(world, Level.STRONG), f"seed {seed}, newest state"


@pytest.mark.parametrize("name", ["nested_sweep", "pvm"])
def test_what_promises_less_than_complete_is_not_always_complete(name: str) -> None:
    runs = (random_run(name, {}, Transactions.LOCAL, seed) for seed in range(60))
    assert not all(has(world, Level.COMPLETE) for world in runs)


@pytest.mark.parametrize(
    ("name", "options"),
    [("sweep", {"arms": True}), ("nested_sweep", {}), ("pvm", {"strategy": "posse"}),
     ("batch_sweep", {"part_rows": 2})],
)  # fmt: skip
def test_the_arrow_kernel_carries_it_too(
    monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(world_module, "plain_algebra", Kernel)
    for seed in range(6):
        world = random_run(name, options, Transactions.GLOBAL, seed)
        assert isinstance(world._make.args[0], Kernel)
        assert has(world, KINDS[name].promise[Transactions.GLOBAL], KINDS[name].as_of)


def test_every_option_of_the_catalogue_is_a_parameter() -> None:
    for name, _ in SETTINGS:
        world = scripted(CHAIN, name, **(KINDS[name].options or {}))
        drain_world(world)
        assert world.is_done


# -- arms ------------------------------------------------------------------------------------------


def test_both_arms_are_asked_at_once_and_carry_the_count_once() -> None:
    twice = CHAIN + "transaction T1  +y.q(2,9) +y.q(2,9)\ntransaction T2  +z.r(9,1)\n"
    world = scripted(twice, "sweep", arms=True)
    make(world, "commit T2", "deliver z", "evaluate y", "deliver y", "commit T1", "deliver y")
    assert {str(step) for step in world.enabled_steps()} == {"evaluate x", "evaluate z"}
    drain_world(world)
    assert world.store.visible_rows == {(1, 2, 3, 4): 1, (1, 2, 9, 1): 2}
    assert has(world, Level.COMPLETE)


def test_an_arm_does_not_wait_for_another() -> None:
    world = scripted(
        """
        view SELECT p.a, s.h FROM x.p p, y.q q, z.r r, w.s s
          WHERE p.b = q.c AND q.d = r.e AND r.f = s.g
        table x.p (a, b)  (1,2)
        table y.q (c, d)
        table z.r (e, f)  (3,4)
        table w.s (g, h)  (4,5)
        transaction T1  +y.q(2,3)
        """.replace("\n        ", "\n"),
        "sweep",
        arms=True,
    )
    make(world, "commit T1", "deliver y", "evaluate z", "deliver z", "evaluate w", "deliver w")
    assert [str(step) for step in world.enabled_steps()] == ["evaluate x"]
    drain_world(world)
    assert world.store.visible_rows == {(1, 5): 1}


# -- posse -----------------------------------------------------------------------------------------


def _asked(text: str, name: str, **options: Any) -> tuple[int, int, SimulatedWorld]:
    world = scripted(text, name, **options)
    make(world, "commit T1", "deliver w")
    rounds = rounds_of(world)
    assert world.is_done
    return sum(world.asks.values()), rounds, world


def test_posse_asks_as_many_lookups_in_fewer_rounds() -> None:
    lookups, rounds, one_by_one = _asked(STAR, "pvm", strategy="sweep")
    assert (lookups, rounds) == (3, 3)
    lookups, rounds, staged = _asked(STAR, "pvm", strategy="posse")
    assert (lookups, rounds) == (3, 1)
    assert one_by_one.store.visible_rows == staged.store.visible_rows == {(1, 5, 6, 7): 1}


def test_posse_asks_first_where_that_saves_more_than_a_round() -> None:
    view = "SELECT p0.k AS c FROM w.h p0, x.p p1, y.q p2 WHERE p0.a = p1.a AND p0.b = p2.a"
    walk = sweep_plan_of(define_view(view)).steps_from(0)

    def targets(rows: int, fan_out: dict[tuple[int, int], float]) -> list[list[int]]:
        return [
            [s.target for s in stage] for stage in cheapest_stages(walk, 0, rows, fan_out, 100.0)
        ]

    selective = {(0, 2): 0.01}
    assert targets(10, {}) == [[1, 2]]
    assert targets(10_000, {}) == [[1, 2]], "what shrinks nothing is not worth a round"
    assert targets(10, selective) == [[1, 2]], "ten keys are not worth a round"
    assert targets(10_000, selective) == [[2], [1]]


def test_posse_beyond_its_search_asks_whatever_it_can() -> None:
    tables = ", ".join(f"x.t{i} p{i}" for i in range(12))
    joins = " AND ".join(f"p0.a = p{i}.a" for i in range(1, 12))
    plan = sweep_plan_of(define_view(f"SELECT p0.k AS c FROM {tables} WHERE {joins}"))
    stages = cheapest_stages(plan.steps_from(1), 1, 1, {})
    assert [len(stage) for stage in stages] == [1, 10]


def test_the_levels_of_the_two_passes_are_all_of_their_steps() -> None:
    view = "SELECT p0.k AS c FROM x.a p0, x.b p1, x.c p2, x.d p3, x.e p4"
    joins = " WHERE p0.b = p1.a AND p1.b = p2.a AND p2.b = p3.a AND p2.k = p4.a"
    plan = sweep_plan_of(define_view(view + joins))
    stages = passes_by_level(plan)
    assert sorted(map(repr, (s for stage in stages for s in stage))) == sorted(
        map(repr, plan.steps)
    )
    assert len(stages) < len(plan.steps)


# -- PVM -------------------------------------------------------------------------------------------

OVERTAKING = CHAIN + "transaction T1  +x.p(8,2)\ntransaction T2  +z.r(3,9)\n"
T2_FIRST = (
    "commit T1", "deliver x", "commit T2", "deliver z",
    "evaluate y", "evaluate y", "deliver y", "deliver y", "evaluate x", "deliver x",
)  # fmt: skip


def test_pvm_commits_out_of_order_and_a_crash_between_doubles_nothing() -> None:
    world = scripted(OVERTAKING, "pvm")
    make(world, *T2_FIRST)
    overtaken = world.store.resume_point(())
    assert (overtaken.ts, overtaken.ahead) == (0, frozenset({2}))
    assert world.store.visible_rows == {(1, 2, 3, 4): 1, (1, 2, 3, 9): 1, (8, 2, 3, 9): 1}
    make(world, "crash")
    drain_world(world)
    assert world.store.visible_rows == {(a, 2, 3, f): 1 for a in (1, 8) for f in (4, 9)}
    assert world.store.resume_point(()).ts == 2
    assert not world.store.resume_point(()).ahead


def test_pvm_cc_queues_what_is_ready_too_early() -> None:
    world = scripted(OVERTAKING, "pvm_cc")
    make(world, *T2_FIRST)
    assert world.store.resume_point(()).ahead == frozenset()
    assert world.store.visible_rows == {(1, 2, 3, 4): 1}
    drain_world(world)
    assert has(world, Level.COMPLETE)
    assert len(world.store.states) == 3


def test_pvm_takes_no_more_than_it_may() -> None:
    updates = "".join(f"transaction T{i}  +x.p({i},2)\n" for i in range(1, 7))
    world = scripted(CHAIN + updates, "pvm", parallel=3)
    for number in range(1, 7):
        make(world, f"commit T{number}", "deliver x")
    assert len(world.store.resume_point(()).stamps) == 3
    drain_world(world)
    assert sum(world.store.visible_rows.values()) == 7


# -- Nested SWEEP ----------------------------------------------------------------------------------

INTERFERING = CHAIN + "transaction T1  +x.p(8,2)\ntransaction T2  +y.q(2,3)\n"


def _interfered(name: str, **options: Any) -> SimulatedWorld:
    world = scripted(INTERFERING, name, **options)
    make(world, "commit T1", "deliver x", "commit T2", "evaluate y", "deliver y", "deliver y")
    drain_world(world)
    return world


def test_nested_sweep_shares_what_sweep_asks_twice() -> None:
    nested, sweep = _interfered("nested_sweep"), _interfered("sweep")
    assert sum(sweep.asks.values()) == 4
    assert sum(nested.asks.values()) == 3
    assert nested.store.visible_rows == sweep.store.visible_rows
    assert len(nested.store.states) == 2, "both updates are committed in one step"
    assert has(nested, Level.STRONG)
    assert not has(nested, Level.COMPLETE)


def test_nested_sweep_of_depth_0_is_sweep() -> None:
    nested, sweep = _interfered("nested_sweep", depth=0), _interfered("sweep")
    assert nested.asks == sweep.asks
    assert has(nested, Level.COMPLETE)


def _alternating(rounds: int, depth: int) -> SimulatedWorld:
    """Each answer contains a new update of the source that answers."""
    text = """
view SELECT p.a, q.d FROM x.p p, y.q q WHERE p.b = q.c
table x.p (a, b)  (0,1)
table y.q (c, d)  (1,0)
transaction T0  +x.p(100,1)
"""
    for i in range(1, rounds + 1):
        text += f"transaction T{i}  " + (f"+y.q(1,{i})\n" if i % 2 else f"+x.p({i},1)\n")
    world = scripted(text, "nested_sweep", depth=depth)
    make(world, "commit T0", "deliver x")
    for i in range(1, rounds + 1):
        source = "y" if i % 2 else "x"
        if f"evaluate {source}" not in map(str, world.enabled_steps()):
            break
        make(world, f"commit T{i}", f"evaluate {source}", f"deliver {source}", f"deliver {source}")
    return world


@pytest.mark.parametrize("rounds", [6, 12])
def test_alternating_updates_hold_the_view_for_as_long_as_nesting_is_free(rounds: int) -> None:
    endless = _alternating(rounds, depth=1_000)
    assert len(endless.committed) == rounds + 1
    assert len(endless.store.states) == 1, "the view has not moved"
    drain_world(endless)
    assert has(endless, Level.STRONG)


def test_the_bound_lets_the_view_move_under_alternating_updates() -> None:
    world = _alternating(12, depth=3)
    assert len(world.committed) == 13, "every answer was interfered with"
    assert len(world.store.states) > 1, "and all the same the view has moved"
    drain_world(world)
    assert has(world, Level.STRONG)


def test_nested_sweep_takes_what_precedes_an_interfering_update_at_its_source() -> None:
    text = CHAIN.replace("table z.r", "table y.r").replace("z.r r", "y.r r")
    text += "transaction T1  +x.p(8,2)\ntransaction T2  +y.r(3,6)\ntransaction T3  +y.q(2,7)\n"
    world = scripted(text, "nested_sweep")
    make(world, "commit T1", "deliver x", "commit T2", "commit T3")
    make(world, "evaluate y", "deliver y", "deliver y", "deliver y")
    stamped = [stamp.transactions for stamp in world.store.resume_point(()).stamps]
    assert stamped == [(("x", 1),), (("y", 1),), (("y", 2),)]
    drain_world(world)
    assert has(world, Level.STRONG)
    assert world.store.positions == {"x": 1, "y": 2}


# -- batch sweep -----------------------------------------------------------------------------------

ROWS = ("x.p({},2)", "y.q(2,3)", "z.r(3,{})")
MANY = CHAIN + "".join(f"transaction T{i}  +{ROWS[i % 3].format(i)}\n" for i in range(1, 13))
"""T1 is at y, T2 at z, T3 at x, and so on."""


def test_a_batch_of_any_size_asks_at_most_twice_per_edge() -> None:
    world = scripted(MANY, "batch_sweep")
    make(world, "commit T1", "deliver y", *(f"commit T{i}" for i in range(2, 13)))
    drain_world(world)
    batches = len(world.store.states) - 1
    assert batches < 6
    assert sum(world.asks.values()) <= 4 * batches
    assert len(world.store.as_of) == 13
    assert has(world, Level.COMPLETE, as_of=True)


def test_after_a_crash_the_same_batch_is_swept_and_a_new_one_only_after_it() -> None:
    world = scripted(MANY, "batch_sweep")
    make(world, "commit T1", "deliver y", "commit T2", "deliver z", "commit T3", "deliver x")
    begun = world.store.resume_point(()).stamps
    assert [stamp.transactions for stamp in begun] == [(("y", 1),)]
    make(world, "commit T4", "crash", "deliver x", "deliver z")
    assert not any(world.life.channels.questions.values()), "what was begun has not come again"
    make(world, "deliver y")
    assert world.store.resume_point(()).stamps == begun
    drain_world(world)
    assert has(world, Level.COMPLETE, as_of=True)


def test_parts_of_a_batch_are_swept_at_the_same_time() -> None:
    rows = " ".join(f"+x.p({i},2)" for i in range(5))
    world = scripted(CHAIN + f"transaction T1  {rows}\n", "batch_sweep", part_rows=2)
    make(world, "commit T1", "deliver x")
    assert len(world.life.channels.questions["y"]) == 3
    drain_world(world)
    assert sum(world.store.visible_rows.values()) == 6
