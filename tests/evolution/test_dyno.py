"""Dyno at work, scene by scene: what each detection catches, and what each class of change costs.

What only post-exec detection can catch is shown by switching it off: no query breaks, and the view
is wrong. The three classes of schema changes (values kept; dispensable drop; values changed or
gone) are told apart by the questions that are asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from tests.evolution.scenes import (
    change,
    column,
    insert,
    meaning,
    scene,
    shown,
    started,
    steps,
    table,
)
from viewkeeper.errors import SimulationError
from viewkeeper.evolution import correction
from viewkeeper.evolution.dyno.dyno_events import Broke, Report
from viewkeeper.evolution.dyno.dyno_loop import OPTIMISTIC, PESSIMISTIC, WIDTHS, Detection, Setting
from viewkeeper.evolution.dyno.table_identity import Thing
from viewkeeper.maintain.promises import Level
from viewkeeper.simulate.schema_changes.reshaped_campaign import judged
from viewkeeper.simulate.schema_changes.reshaped_judge import level
from viewkeeper.simulate.schema_changes.reshaped_scenario import (
    Gone,
    Meaning,
    Means,
    Scenario,
    Transaction,
)
from viewkeeper.simulate.schema_changes.reshaped_tables import (
    AddColumn,
    Create,
    Drop,
    DropColumn,
    Operation,
    Rename,
    RenameColumn,
    Rewrite,
    Widen,
)
from viewkeeper.simulate.schema_changes.reshaped_world import ReshapingWorld, follow

R = table(1, "r", "ab", (1, 7), (2, 8))
S = table(2, "s", "bc", (7, 70))
SHADOW = table(3, "o", "ab", (5, 7), (6, 8))
VIEW = "SELECT p.a AS a, q.c AS c FROM x.r p, y.s q WHERE p.b = q.b"
A, B = column(1, "a", "ab"), column(1, "b", "ab")
ROWS = change("y", insert(2, (8, 80)))


def view(*transactions: Transaction, text: str = VIEW, dispensable: Sequence[str] = ()) -> Scenario:
    return scene(
        text,
        [("x", R), ("y", S)],
        [((0, "b"), (1, "b"))],
        {"a": (0, "a"), "c": (1, "c")},
        {"x": [R, SHADOW], "y": [S]},
        transactions,
        dispensable=dispensable,
    )


BETWEEN = "commit y\ndeliver y\ncommit x\nevaluate x"
"""Rows come at y; the source x changes between the question and its evaluation."""


def between(scenario: Scenario, setting: Setting) -> ReshapingWorld:
    world = started(scenario, setting)
    steps(world, BETWEEN)
    follow(world, [])
    return world


# -- what only post-exec detection catches ---------------------------------------------------------

DISGUISED: dict[str, Transaction] = {
    "two tables swap their names": change("x", Rename(1, "o"), Rename(3, "r")),
    "dropped and recreated": change(
        "x",
        Drop(1),
        Create(table(4, "r", "ab", (9, 8))),
        effects=[Means(0, meaning("x", table(4, "r", "ab")))],
        kept=False,
    ),
    "two columns swap their names": change("x", RenameColumn(1, A, "b"), RenameColumn(1, B, "a")),
    "a column is rewritten": change(
        "x",
        Rewrite(1, A, Thing(99, "a", pa.int64()), ((1, 11), (2, 12))),
        effects=[Means(0, Meaning(("x", 1), {"a": 99, "b": B}))],
        kept=False,
    ),
}


@pytest.mark.parametrize("algorithm", ["sweep", "pvm"])
@pytest.mark.parametrize("disguised", DISGUISED)
@pytest.mark.parametrize("before", [True, False])
def test_post_exec_detection_catches_what_nothing_else_does(
    algorithm: str, disguised: str, before: bool
) -> None:
    scenario = view(ROWS, DISGUISED[disguised])
    world = between(scenario, Setting(algorithm, Detection(before=before)))
    assert world.broken == 0, "the query succeeds"
    assert world.dyno.aborts == 1
    assert judged(world) >= Level.STRONG
    without = between(scenario, Setting(algorithm, Detection(before=before, after=False)))
    assert without.broken == 0
    assert without.dyno.aborts == 0
    assert judged(without) < Level.STRONG, "the view is wrong"


@pytest.mark.parametrize("disguised", DISGUISED)
def test_by_handle_the_source_itself_knows(disguised: str) -> None:
    setting = Setting("batch_sweep", Detection(after=False), "handle")
    world = between(view(ROWS, DISGUISED[disguised]), setting)
    assert judged(world) >= Level.STRONG
    assert world.broken == (0 if DISGUISED[disguised].keeps_values else 1)


# -- the three classes -----------------------------------------------------------------------------


def asked_by(transaction: Transaction, dispensable: Sequence[str] = ()) -> ReshapingWorld:
    world = started(view(transaction, dispensable=dispensable), Setting("sweep"))
    follow(world, [])
    assert judged(world) >= Level.STRONG
    return world


@pytest.mark.parametrize(
    "operation",
    [
        Rename(1, "q"),
        RenameColumn(1, A, "n"),
        AddColumn(1, Thing(99, "n", pa.int64())),
        Widen(1, A, pa.decimal128(20, 0)),
    ],
)
def test_what_keeps_values_asks_nothing(operation: Operation) -> None:
    world = asked_by(change("x", operation))
    assert world.asked == 0
    assert shown(world.store.states)[-1] == ({"x": 1, "y": 0}, {(1, 70)})


def test_a_dispensable_column_is_folded_without_a_question() -> None:
    dropped = change("x", DropColumn(1, A), effects=[Gone("a")], kept=False)
    world = asked_by(dropped, dispensable=["a"])
    assert world.asked == 0
    assert shown(world.store.states)[-1] == ({"x": 1, "y": 0}, {(70,)})


def test_what_changes_values_reads_every_source_once() -> None:
    world = asked_by(DISGUISED["a column is rewritten"])
    assert world.asked == 2
    assert shown(world.store.states)[-1] == ({"x": 1, "y": 0}, {(11, 70)})


def test_what_a_reading_saw_too_early_is_taken_back() -> None:
    """Rows come at y while the sources are read for x; they are a state of their own."""
    world = started(view(DISGUISED["a column is rewritten"], ROWS), Setting("sweep"))
    steps(world, "commit x\ndeliver x\ncommit y\nevaluate y\nevaluate x")
    follow(world, [])
    assert shown(world.store.states) == [
        ({"x": 0, "y": 0}, {(1, 70)}),
        ({"x": 1, "y": 0}, {(11, 70)}),
        ({"x": 1, "y": 1}, {(11, 70), (12, 80)}),
    ]


def test_rows_in_the_transaction_of_a_rename_follow_it() -> None:
    both = change("x", Rename(1, "q"), insert(1, (3, 7)))
    world = started(view(both), Setting("sweep"))
    follow(world, [])
    assert shown(world.store.states)[-1] == ({"x": 1, "y": 0}, {(1, 70), (3, 70)})
    assert judged(world) is Level.COMPLETE


def test_a_relation_at_two_places_is_merged_with_its_rename() -> None:
    """Rows of r ask r, by the name that it had; the rename must not go before them."""
    scenario = scene(
        "SELECT p.a AS a, q.a AS c FROM x.r p, x.r q WHERE p.b = q.b",
        [("x", R), ("x", R)],
        [((0, "b"), (1, "b"))],
        {"a": (0, "a"), "c": (1, "a")},
        {"x": [R]},
        [change("x", insert(1, (3, 7))), change("x", Rename(1, "q"))],
    )
    world = started(scenario, Setting("sweep"))
    steps(world, "commit x\ndeliver x\ncommit x\nevaluate x")
    follow(world, [])
    assert world.dyno.merged == 1
    assert world.broken == 1
    assert judged(world) is Level.COMPLETE


# -- stars -----------------------------------------------------------------------------------------

STAR = "SELECT p.*, q.c AS c FROM x.r p, y.s q WHERE p.b = q.b"


@pytest.mark.parametrize(("value", "asked"), [(None, 0), (5, 2)])
def test_a_star_takes_in_a_column_that_is_added(value: int | None, asked: int) -> None:
    """NULL in all rows: nothing is read. With a value: everything is."""
    scenario = view(
        change("x", AddColumn(1, Thing(99, "n", pa.int64()), value)),
        change("x", insert(1, (3, 7, 4))),
        text=STAR,
    )
    world = started(scenario, Setting("sweep"))
    steps(world, "commit x\ndeliver x")
    assert world.asked == asked
    follow(world, [])
    last = world.store.states[-1]
    at = {name: i for i, name in enumerate(last.columns)}
    rows = {(row[at["a"]], row[at["n"]], row[at["c"]]) for row, _ in last.rows}
    assert rows == {(1, value, 70), (3, 4, 70)}


# -- the ends --------------------------------------------------------------------------------------


def test_what_cannot_be_rewritten_stops_the_view() -> None:
    gone = change("x", DropColumn(1, B), kept=False)
    world = started(view(gone, ROWS), Setting("sweep"))
    with pytest.raises(SimulationError, match="the view stopped"):
        follow(world, [])
    assert world.dyno.stopped is not None
    assert "b" in world.dyno.stopped.reason
    assert world.dyno.stopped.mends
    assert world.dyno.idle
    assert world.dyno.receive(Report("y", 1)) == []
    assert shown(world.store.states) == [({"x": 0, "y": 0}, {(1, 70)})]


def test_a_reply_to_what_was_undone_is_passed_over() -> None:
    world = between(view(ROWS, change("x", Rename(1, "q"))), Setting("sweep"))
    assert world.dyno.receive(Broke(1, "an old question")) == []
    assert judged(world) is Level.COMPLETE


@pytest.mark.parametrize("detection", [PESSIMISTIC, OPTIMISTIC])
def test_rows_alone_cost_no_rewriting_and_no_graph(
    monkeypatch: pytest.MonkeyPatch, detection: Detection
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing has changed its shape")

    world = started(view(ROWS, change("x", insert(1, (3, 8)))), Setting("sweep", detection))
    monkeypatch.setattr("viewkeeper.evolution.synchronization.synchronize", refuse)
    monkeypatch.setattr("viewkeeper.evolution.dyno.rewriter.synchronize", refuse)
    monkeypatch.setattr(correction, "graph_of", refuse)
    follow(world, [])
    assert shown(world.store.states)[-1] == ({"x": 1, "y": 1}, {(1, 70), (2, 80), (3, 80)})


@pytest.mark.parametrize("algorithm", WIDTHS)
def test_every_inner_algorithm_survives_a_broken_query(algorithm: str) -> None:
    world = between(view(ROWS, change("x", Rename(1, "q"))), Setting(algorithm))
    assert world.broken == 1
    assert level(world.judge, world.store.as_of) is Level.COMPLETE
