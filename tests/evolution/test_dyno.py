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
    follow_reshaped,
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
from viewkeeper.evolution.dyno.dyno_events import BrokenQuestion, DynoReport
from viewkeeper.evolution.dyno.dyno_loop import (
    OPTIMISTIC,
    PESSIMISTIC,
    WIDTHS,
    Detection,
    DynoSetting,
)
from viewkeeper.evolution.dyno.table_identity import DynoColumn
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.simulate.schema_changes.reshaped_campaign import judge_reshaped
from viewkeeper.simulate.schema_changes.reshaped_judge import level_of
from viewkeeper.simulate.schema_changes.reshaped_scenario import (
    GoneEffect,
    MeaningEffect,
    PlaceMeaning,
    ReshapedScenario,
    ReshapedTransaction,
)
from viewkeeper.simulate.schema_changes.reshaped_tables import (
    AddColumn,
    CreateOperation,
    DropColumn,
    DropOperation,
    Operation,
    RenameColumn,
    RenameOperation,
    RewriteOperation,
    WidenOperation,
)
from viewkeeper.simulate.schema_changes.reshaped_world import ReshapedWorld

R = table(1, "r", "ab", (1, 7), (2, 8))
S = table(2, "s", "bc", (7, 70))
SHADOW = table(3, "o", "ab", (5, 7), (6, 8))
VIEW = "SELECT p.a AS a, q.c AS c FROM x.r p, y.s q WHERE p.b = q.b"
A, B = column(1, "a", "ab"), column(1, "b", "ab")
ROWS = change("y", insert(2, (8, 80)))


def view(
    *transactions: ReshapedTransaction, text: str = VIEW, dispensable: Sequence[str] = ()
) -> ReshapedScenario:
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


def between(scenario: ReshapedScenario, setting: DynoSetting) -> ReshapedWorld:
    world = started(scenario, setting)
    steps(world, BETWEEN)
    follow_reshaped(world, [])
    return world


# -- what only post-exec detection catches ---------------------------------------------------------

DISGUISED: dict[str, ReshapedTransaction] = {
    "two tables swap their names": change("x", RenameOperation(1, "o"), RenameOperation(3, "r")),
    "dropped and recreated": change(
        "x",
        DropOperation(1),
        CreateOperation(table(4, "r", "ab", (9, 8))),
        effects=[MeaningEffect(0, meaning("x", table(4, "r", "ab")))],
        kept=False,
    ),
    "two columns swap their names": change("x", RenameColumn(1, A, "b"), RenameColumn(1, B, "a")),
    "a column is rewritten": change(
        "x",
        RewriteOperation(1, A, DynoColumn(99, "a", pa.int64()), ((1, 11), (2, 12))),
        effects=[MeaningEffect(0, PlaceMeaning(("x", 1), {"a": 99, "b": B}))],
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
    world = between(scenario, DynoSetting(algorithm, Detection(before=before)))
    assert world.broken == 0, "the query succeeds"
    assert world.dyno.aborts == 1
    assert judge_reshaped(world) >= Level.STRONG
    without = between(scenario, DynoSetting(algorithm, Detection(before=before, after=False)))
    assert without.broken == 0
    assert without.dyno.aborts == 0
    assert judge_reshaped(without) < Level.STRONG, "the view is wrong"


@pytest.mark.parametrize("disguised", DISGUISED)
def test_by_handle_the_source_itself_knows(disguised: str) -> None:
    setting = DynoSetting("batch_sweep", Detection(after=False), "handle")
    world = between(view(ROWS, DISGUISED[disguised]), setting)
    assert judge_reshaped(world) >= Level.STRONG
    assert world.broken == (0 if DISGUISED[disguised].keeps_values else 1)


# -- the three classes -----------------------------------------------------------------------------


def asked_by(transaction: ReshapedTransaction, dispensable: Sequence[str] = ()) -> ReshapedWorld:
    world = started(view(transaction, dispensable=dispensable), DynoSetting("sweep"))
    follow_reshaped(world, [])
    assert judge_reshaped(world) >= Level.STRONG
    return world


@pytest.mark.parametrize(
    "operation",
    [
        RenameOperation(1, "q"),
        RenameColumn(1, A, "n"),
        AddColumn(1, DynoColumn(99, "n", pa.int64())),
        WidenOperation(1, A, pa.decimal128(20, 0)),
    ],
)
def test_what_keeps_values_asks_nothing(operation: Operation) -> None:
    world = asked_by(change("x", operation))
    assert world.asked == 0
    assert shown(world.store.states)[-1] == ({"x": 1, "y": 0}, {(1, 70)})


def test_a_dispensable_column_is_folded_without_a_question() -> None:
    dropped = change("x", DropColumn(1, A), effects=[GoneEffect("a")], kept=False)
    world = asked_by(dropped, dispensable=["a"])
    assert world.asked == 0
    assert shown(world.store.states)[-1] == ({"x": 1, "y": 0}, {(70,)})


def test_what_changes_values_reads_every_source_once() -> None:
    world = asked_by(DISGUISED["a column is rewritten"])
    assert world.asked == 2
    assert shown(world.store.states)[-1] == ({"x": 1, "y": 0}, {(11, 70)})


def test_what_a_reading_saw_too_early_is_taken_back() -> None:
    """Rows come at y while the sources are read for x; they are a state of their own."""
    world = started(view(DISGUISED["a column is rewritten"], ROWS), DynoSetting("sweep"))
    steps(world, "commit x\ndeliver x\ncommit y\nevaluate y\nevaluate x")
    follow_reshaped(world, [])
    assert shown(world.store.states) == [
        ({"x": 0, "y": 0}, {(1, 70)}),
        ({"x": 1, "y": 0}, {(11, 70)}),
        ({"x": 1, "y": 1}, {(11, 70), (12, 80)}),
    ]


def test_rows_in_the_transaction_of_a_rename_follow_it() -> None:
    both = change("x", RenameOperation(1, "q"), insert(1, (3, 7)))
    world = started(view(both), DynoSetting("sweep"))
    follow_reshaped(world, [])
    assert shown(world.store.states)[-1] == ({"x": 1, "y": 0}, {(1, 70), (3, 70)})
    assert judge_reshaped(world) is Level.COMPLETE


def test_a_relation_at_two_places_is_merged_with_its_rename() -> None:
    """Rows of r ask r, by the name that it had; the rename must not go before them."""
    scenario = scene(
        "SELECT p.a AS a, q.a AS c FROM x.r p, x.r q WHERE p.b = q.b",
        [("x", R), ("x", R)],
        [((0, "b"), (1, "b"))],
        {"a": (0, "a"), "c": (1, "a")},
        {"x": [R]},
        [change("x", insert(1, (3, 7))), change("x", RenameOperation(1, "q"))],
    )
    world = started(scenario, DynoSetting("sweep"))
    steps(world, "commit x\ndeliver x\ncommit x\nevaluate x")
    follow_reshaped(world, [])
    assert world.dyno.merged == 1
    assert world.broken == 1
    assert judge_reshaped(world) is Level.COMPLETE


# -- stars -----------------------------------------------------------------------------------------

STAR = "SELECT p.*, q.c AS c FROM x.r p, y.s q WHERE p.b = q.b"


@pytest.mark.parametrize(("value", "asked"), [(None, 0), (5, 2)])
def test_a_star_takes_in_a_column_that_is_added(value: int | None, asked: int) -> None:
    """NULL in all rows: nothing is read. With a value: everything is."""
    scenario = view(
        change("x", AddColumn(1, DynoColumn(99, "n", pa.int64()), value)),
        change("x", insert(1, (3, 7, 4))),
        text=STAR,
    )
    world = started(scenario, DynoSetting("sweep"))
    steps(world, "commit x\ndeliver x")
    assert world.asked == asked
    follow_reshaped(world, [])
    last = world.store.states[-1]
    at = {name: i for i, name in enumerate(last.columns)}
    rows = {(row[at["a"]], row[at["n"]], row[at["c"]]) for row, _ in last.rows}
    assert rows == {(1, value, 70), (3, 4, 70)}


# -- the ends --------------------------------------------------------------------------------------


def test_what_cannot_be_rewritten_stops_the_view() -> None:
    gone = change("x", DropColumn(1, B), kept=False)
    world = started(view(gone, ROWS), DynoSetting("sweep"))
    with pytest.raises(SimulationError, match="the view stopped"):
        follow_reshaped(world, [])
    assert world.dyno.stopped is not None
    assert "b" in world.dyno.stopped.reason
    assert world.dyno.stopped.mends
    assert world.dyno.is_idle
    assert world.dyno.receive_event(DynoReport("y", 1)) == []
    assert shown(world.store.states) == [({"x": 0, "y": 0}, {(1, 70)})]


def test_a_reply_to_what_was_undone_is_passed_over() -> None:
    world = between(view(ROWS, change("x", RenameOperation(1, "q"))), DynoSetting("sweep"))
    assert world.dyno.receive_event(BrokenQuestion(1, "an old question")) == []
    assert judge_reshaped(world) is Level.COMPLETE


@pytest.mark.parametrize("detection", [PESSIMISTIC, OPTIMISTIC])
def test_rows_alone_cost_no_rewriting_and_no_graph(
    monkeypatch: pytest.MonkeyPatch, detection: Detection
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing has changed its shape")

    world = started(view(ROWS, change("x", insert(1, (3, 8)))), DynoSetting("sweep", detection))
    monkeypatch.setattr("viewkeeper.evolution.synchronization.synchronize.synchronize_view", refuse)
    monkeypatch.setattr("viewkeeper.evolution.dyno.rewriter.synchronize_view", refuse)
    monkeypatch.setattr(correction, "graph_of", refuse)
    follow_reshaped(world, [])
    assert shown(world.store.states)[-1] == ({"x": 1, "y": 1}, {(1, 70), (2, 80), (3, 80)})


@pytest.mark.parametrize("algorithm", WIDTHS)
def test_every_inner_algorithm_survives_a_broken_query(algorithm: str) -> None:
    world = between(view(ROWS, change("x", RenameOperation(1, "q"))), DynoSetting(algorithm))
    assert world.broken == 1
    assert level_of(world.judge, world.store.as_of) is Level.COMPLETE
