"""The figures of the Dyno paper as runs with their states: 2 to 4, 6 and 7.

Figure 10 is in `test_correction.py`. Each figure is a scene with the paper's tables and sources;
steps say when what arrives; asserted are the states that a reader sees and the definition in the
end. Wrong orders are really tried: the correction is replaced by one that keeps that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.evolution.scenes import (
    change,
    column,
    follow_reshaped,
    insert,
    meaning,
    scene,
    shape,
    shown,
    stand_in,
    started,
    steps,
    table,
)
from tests.evolution.unsafe_orders import all_dependencies, unsafe_dependencies
from viewkeeper.errors import SimulationError
from viewkeeper.evolution.correction import Unit, legal_order_of
from viewkeeper.evolution.dependencies import ReceivedUpdate
from viewkeeper.evolution.dyno.dyno_loop import OPTIMISTIC, PESSIMISTIC, Detection, DynoSetting
from viewkeeper.evolution.dyno.rewriter import Rewriter, Wishes
from viewkeeper.evolution.dyno.table_identity import (
    BoundDefinition,
    DynoShapes,
    define_view,
    token_of,
)
from viewkeeper.maintain.algorithm_protocol import Level
from viewkeeper.simulate.schema_changes.reshaped_judge import level_of
from viewkeeper.simulate.schema_changes.reshaped_scenario import (
    GoneEffect,
    MeaningEffect,
    ReshapedScenario,
)
from viewkeeper.simulate.schema_changes.reshaped_tables import (
    DropColumn,
    DropOperation,
    RenameColumn,
    RenameOperation,
)
from viewkeeper.simulate.schema_changes.reshaped_world import ReshapedWorld
from viewkeeper.view.definition import Relation

T1 = table(1, "T1", "ab", (1, 7), (2, 8))
T2 = table(2, "T2", "bc", (7, 70))
JOIN = [((0, "b"), (1, "b"))]
VIEW = "SELECT p.a AS a, q.c AS c FROM IS1.T1 p, IS2.T2 q WHERE p.b = q.b"
SHOWN = {"a": (0, "a"), "c": (1, "c")}
PLACES = [("IS1", T1), ("IS2", T2)]


def orders(*, reverse: bool) -> Callable[[Sequence[ReceivedUpdate]], tuple[Unit, ...]]:
    """A correction that moves and merges nothing, or turns the queue round."""

    def order(updates: Sequence[ReceivedUpdate]) -> tuple[Unit, ...]:
        return tuple((update,) for update in sorted(updates, key=lambda u: u.id, reverse=reverse))

    return order


# -- figures 2, 3 and 4: the broken query ----------------------------------------------------------


def figure_2(fifo: bool = True) -> ReshapedScenario:
    """DU(1) at IS2 inserts into T2; SC(2) at IS1 renames T1 to T1'."""
    changes = [change("IS2", insert(2, (8, 80))), change("IS1", RenameOperation(1, "T1x"))]
    return scene(VIEW, PLACES, JOIN, SHOWN, {"IS1": [T1], "IS2": [T2]}, changes, fifo=fifo)


FIGURE_4 = """
commit IS2
deliver IS2
commit IS1
evaluate IS1
"""
"""The query for DU(1) is sent before SC(2), and arrives at IS1 after it."""


@pytest.mark.parametrize("detection", [PESSIMISTIC, OPTIMISTIC])
def test_figures_2_to_4_a_broken_query_is_undone_and_the_schema_change_goes_first(
    detection: Detection,
) -> None:
    world = started(figure_2(), DynoSetting("sweep", detection))
    steps(world, FIGURE_4)
    assert world.broken == 1
    follow_reshaped(world, [])
    assert world.dyno.aborts == 1
    assert world.broken == 1, "the second question names T1x"
    assert "IS1.T1x p" in world.dyno.definition.parsed.text
    assert shown(world.store.states) == [
        ({"IS1": 0, "IS2": 0}, {(1, 70)}),
        ({"IS1": 1, "IS2": 0}, {(1, 70)}),
        ({"IS1": 1, "IS2": 1}, {(1, 70), (2, 80)}),
    ]
    assert level_of(world.judge, world.store.states) is Level.COMPLETE


def test_figure_3_without_in_exec_detection_the_query_breaks_for_ever() -> None:
    world = started(figure_2(), DynoSetting("sweep", Detection(during=False)))
    steps(world, FIGURE_4)
    with pytest.raises(SimulationError, match="did not end"):
        follow_reshaped(world, [])
    assert world.broken > 100
    assert shown(world.store.states) == [({"IS1": 0, "IS2": 0}, {(1, 70)})]


BOTH_QUEUED = """
commit IS2
deliver IS2 reports
commit IS2
deliver IS2 reports
evaluate IS1
commit IS1
deliver IS1 reports
deliver IS1 answers
evaluate IS1
"""
"""While the first insert is at work, the second one and then SC(2) arrive in the queue."""


@pytest.mark.parametrize(("detection", "broken"), [(PESSIMISTIC, 0), (OPTIMISTIC, 1)])
def test_figure_2_pre_exec_detection_sees_what_is_in_the_queue(
    detection: Detection, broken: int
) -> None:
    first = [change("IS2", insert(2, (9, 90)))]
    plain = figure_2(fifo=False)
    everything = (*first, *plain.transactions)
    scenario = scene(VIEW, PLACES, JOIN, SHOWN, {"IS1": [T1], "IS2": [T2]}, everything, fifo=False)
    world = started(scenario, DynoSetting("sweep", detection))
    steps(world, BOTH_QUEUED)
    follow_reshaped(world, [])
    assert world.broken == broken
    assert world.dyno.aborts == broken
    assert shown(world.store.states)[-1] == ({"IS1": 1, "IS2": 2}, {(1, 70), (2, 80)})
    assert level_of(world.judge, world.store.states) is Level.COMPLETE


# -- figure 6: semantic dependency -----------------------------------------------------------------


def figure_6() -> ReshapedScenario:
    """SC(1) renames IS2.T2 to TT; SC(2) drops TT.c, which the view can do without."""
    dropped = DropColumn(2, column(2, "c", "bc"))
    changes = [
        change("IS2", RenameOperation(2, "TT")),
        change("IS2", dropped, effects=[GoneEffect("c")], kept=False),
    ]
    tables = {"IS1": [T1], "IS2": [T2]}
    return scene(VIEW, PLACES, JOIN, SHOWN, tables, changes, dispensable=["c"])


def test_figure_6_in_the_order_of_commits() -> None:
    world = started(figure_6(), DynoSetting("sweep"))
    follow_reshaped(world, [])
    assert shown(world.store.states) == [
        ({"IS1": 0, "IS2": 0}, {(1, 70)}),
        ({"IS1": 0, "IS2": 1}, {(1, 70)}),
        ({"IS1": 0, "IS2": 2}, {(1,)}),
    ]
    text = world.dyno.definition.parsed.text
    assert "IS2.TT q" in text
    assert [output.name for output in world.dyno.definition.view.outputs] == ["a"]
    assert level_of(world.judge, world.store.states) is Level.COMPLETE


def test_figure_6_the_other_way_round_the_table_is_not_known() -> None:
    """What the paper says: TT is undefined as long as SC(1) has not been processed. And what comes
    out of the wrong order is a shape that the source does not have."""
    before = figure_6().initial_shapes
    renamed = {2: shape(2, "TT", "bc")}
    dropped = {2: shape(2, "TT", "b")}
    assert before.shape_named(Relation("IS2", "TT")) is None
    assert before.apply_change("IS2", renamed).shape_named(Relation("IS2", "TT")) is not None
    right = before.apply_change("IS2", renamed).apply_change("IS2", dropped)
    wrong = before.apply_change("IS2", dropped).apply_change("IS2", renamed)
    assert right.shape_named(Relation("IS2", "TT")) == dropped[2]
    assert wrong.shape_named(Relation("IS2", "TT")) != dropped[2]


def test_figure_6_the_dependency_is_safe_in_one_order_only() -> None:
    names = [Relation("IS2", "#2"), Relation("IS2", "TT")]
    one = ReceivedUpdate(
        1, "IS2", frozenset([*names, Relation("IS2", "T2")]), breaks=frozenset(names[:1])
    )
    two = ReceivedUpdate(2, "IS2", frozenset(names), breaks=frozenset(names[:1]))
    found = all_dependencies([one, two])
    assert not unsafe_dependencies(found, [one.id, two.id])
    assert unsafe_dependencies(found, [two.id, one.id])
    assert legal_order_of([one, two]) == ((one,), (two,))


BOTH_BEHIND_AN_INSERT = """
commit IS2
deliver IS2
evaluate IS1
commit IS2
commit IS2
deliver IS2
deliver IS2
"""


def test_figure_6_the_wrong_order_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """SC(1) renames T2, SC(2) a column of it that the view needs; both wait behind an insert. The
    other way round the definition that comes out asks for what is not there."""
    changes = [
        change("IS2", insert(2, (8, 80))),
        change("IS2", RenameOperation(2, "TT")),
        change("IS2", RenameColumn(2, column(2, "c", "bc"), "cc")),
        change("IS1", insert(1, (3, 7))),
    ]
    scenario = scene(VIEW, PLACES, JOIN, SHOWN, {"IS1": [T1], "IS2": [T2]}, changes)

    def run() -> ReshapedWorld:
        world = started(scenario, DynoSetting("sweep"))
        steps(world, BOTH_BEHIND_AN_INSERT)
        follow_reshaped(world, [])
        return world

    world = run()
    assert "q.cc AS c" in world.dyno.definition.parsed.text
    assert shown(world.store.states)[-1] == (
        {"IS1": 1, "IS2": 3},
        {(1, 70), (2, 80), (3, 70)},
    )
    assert level_of(world.judge, world.store.states) is Level.COMPLETE
    monkeypatch.setattr("viewkeeper.evolution.dyno.dyno_loop.legal_order_of", orders(reverse=True))
    with pytest.raises(SimulationError, match="did not end"):
        run()


# -- figure 7: a cycle -----------------------------------------------------------------------------

T3 = table(3, "T3", "ab", (5, 7), (4, 9))
T4 = table(4, "T4", "bc", (7, 71), (9, 90))


def figure_7() -> ReshapedScenario:
    """SC(1) drops IS1.T1, for which IS3.T3 stands in; SC(2) drops IS2.T2, for which IS4.T4 does."""
    one = MeaningEffect(0, meaning("IS3", T3))
    two = MeaningEffect(1, meaning("IS4", T4))
    changes = [
        change("IS1", DropOperation(1), effects=[one], kept=False),
        change("IS2", DropOperation(2), effects=[two], kept=False),
    ]
    tables = {"IS1": [T1], "IS2": [T2], "IS3": [T3], "IS4": [T4]}
    stand_ins = [stand_in("IS1", T1, "IS3", T3), stand_in("IS2", T2, "IS4", T4)]
    return scene(VIEW, PLACES, JOIN, SHOWN, tables, changes, stand_ins)


BOTH_DROPPED = "commit IS1\ncommit IS2"


@pytest.mark.parametrize("setting", [DynoSetting("sweep"), DynoSetting("sweep", asking="handle")])
def test_figure_7_merged_both_are_one_step(setting: DynoSetting) -> None:
    world = started(figure_7(), setting)
    steps(world, BOTH_DROPPED)
    follow_reshaped(world, [])
    assert world.dyno.merged == 1
    nothing = {"IS1": 0, "IS2": 0, "IS3": 0, "IS4": 0}
    assert shown(world.store.states) == [
        (nothing, {(1, 70)}),
        ({**nothing, "IS1": 1, "IS2": 1}, {(5, 71), (4, 90)}),
    ]
    text = world.dyno.definition.parsed.text
    assert "IS3.T3 p" in text
    assert "IS4.T4 q" in text
    assert level_of(world.judge, world.store.states) is Level.STRONG


@pytest.mark.parametrize("reverse", [False, True])
def test_figure_7_no_order_of_the_two_can_succeed(
    monkeypatch: pytest.MonkeyPatch, reverse: bool
) -> None:
    monkeypatch.setattr(
        "viewkeeper.evolution.dyno.dyno_loop.legal_order_of", orders(reverse=reverse)
    )
    world = started(figure_7(), DynoSetting("sweep"))
    steps(world, BOTH_DROPPED)
    with pytest.raises(SimulationError, match="did not end"):
        follow_reshaped(world, [])
    assert world.broken > 100
    assert len(world.store.states) == 1, "the view never moves"


def test_figure_7_the_adaptation_of_each_reads_what_the_other_drops() -> None:
    """The cycle as the paper draws it, from the rewritten definitions."""
    scenario = figure_7()
    definition = define_view(scenario.text, scenario.initial_shapes)
    rewriter = Rewriter(scenario.wishes)
    reads = []
    for source, id in (("IS1", 1), ("IS2", 2)):
        after = scenario.initial_shapes.apply_change(source, {id: None})
        found = rewriter.rewritten(definition, after)
        assert isinstance(found, BoundDefinition)
        reads.append(frozenset(token_of(key) for key in found.table_keys.values()))
    one = ReceivedUpdate(
        1, "IS1", frozenset([token_of(("IS1", 1))]), reads[0], frozenset([token_of(("IS1", 1))])
    )
    two = ReceivedUpdate(
        2, "IS2", frozenset([token_of(("IS2", 2))]), reads[1], frozenset([token_of(("IS2", 2))])
    )
    assert reads == [
        {token_of(("IS3", 3)), token_of(("IS2", 2))},
        {token_of(("IS1", 1)), token_of(("IS4", 4))},
    ]
    assert legal_order_of([one, two]) == ((one, two),)


def test_without_a_stand_in_there_is_no_rewriting() -> None:
    scenario = figure_7()
    shapes = DynoShapes(
        {key: shape for key, shape in scenario.initial_shapes.tables.items() if key[1] < 3}
    )
    dropped = shapes.apply_change("IS1", {1: None})
    found = Rewriter(Wishes()).rewritten(define_view(scenario.text, shapes), dropped)
    assert not isinstance(found, BoundDefinition)
    assert "IS1.T1" in found.reason
