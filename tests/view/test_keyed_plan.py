"""Join trees and sweep plans with keyed places, by hand; and that nothing changes without them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from viewkeeper.delta.row_errors import can_fail
from viewkeeper.view.definition import (
    EXISTS,
    Equality,
    Field,
    KeyedJoin,
    Output,
    Place,
    Relation,
    ViewDefinition,
)
from viewkeeper.view.expression import Arithmetic, Column, Compare, Expression, Literal
from viewkeeper.view.join_tree import JoinKey, join_tree_of
from viewkeeper.view.sweep_plan import SweepPlan, sweep_plan_of

INT = pa.int64()
FIELDS = (Field("k", INT), Field("p", INT))


def column(place: int, name: str = "k") -> Column:
    return Column(place, name, INT)


def equal(one: int, other: int, name: str = "k", null_safe: bool = False) -> Equality:
    return Equality(column(one, name), column(other, name), null_safe)


def keyed(
    kind: str,
    parent: int,
    place: int,
    *conditions: Expression,
    on: tuple[Equality, ...] | None = None,
    unique: bool = False,
) -> KeyedJoin:
    key = on or (equal(parent, place),)
    return KeyedJoin(kind, parent, key, conditions, unique)  # type: ignore[arg-type]  # one of the four


def view_of(
    joins: dict[int, KeyedJoin], places: int, equalities: tuple[Equality, ...] = ()
) -> ViewDefinition:
    found = tuple(
        Place(i, f"r{i}", Relation("s", f"t{i}"), FIELDS, joins.get(i)) for i in range(places)
    )
    outputs = (Output("k", column(0)),)
    return ViewDefinition("v", found, equalities, (), outputs, query="", text="")


def edges_of(view: ViewDefinition) -> list[tuple[int, int]]:
    return [(edge.parent, edge.child) for edge in join_tree_of(view).edges]


def steps_of(plan: SweepPlan) -> list[tuple[int, int, str]]:
    def sort_of(match: object, is_own: bool) -> str:
        return "own" if is_own else "keyed" if match else ""

    return [(s.via, s.target, sort_of(s.match, s.is_own)) for s in plan.steps]


def test_a_fact_with_left_dimensions_is_the_root() -> None:
    view = view_of({1: keyed("left", 0, 1), 2: keyed("left", 0, 2), 3: keyed("left", 0, 3)}, 4)
    assert join_tree_of(view).root == 0
    assert edges_of(view) == [(0, 1), (0, 2), (0, 3)]


def test_the_root_is_the_best_connected_of_those_around_place_0() -> None:
    joins = {2: keyed("left", 1, 2), 3: keyed("left", 1, 3)}
    assert join_tree_of(view_of(joins, 5, (equal(0, 1), equal(3, 4)))).root == 1


def test_what_is_joined_through_a_left_place_hangs_below_it() -> None:
    view = view_of({1: keyed("left", 0, 1)}, 3, (equal(1, 2, "p"),))
    tree = join_tree_of(view)
    assert edges_of(view) == [(0, 1), (1, 2)]
    assert [match.place.index for match in tree.matches_above(2)] == [1]
    assert tree.matches_above(1) == []


def test_a_keyed_place_comes_after_all_that_its_on_reads() -> None:
    needy = keyed("left", 0, 1, Compare("<", column(3, "p"), column(1, "p")))
    view = view_of({1: needy, 2: keyed("left", 0, 2)}, 4, (equal(2, 3, "p"), equal(1, 3)))
    tree = join_tree_of(view)
    assert edges_of(view) == [(0, 2), (2, 3), (0, 1)]
    assert tree.residual == (equal(1, 3),), "it would close a cycle"


def test_a_null_safe_equality_with_a_left_place_is_checked_and_never_asked() -> None:
    view = view_of({1: keyed("left", 0, 1)}, 3, (equal(1, 2, "p", null_safe=True),))
    tree = join_tree_of(view)
    assert [(e.parent, e.child) for e in tree.edges if not e.on] == [(0, 2)]
    assert tree.residual == view.equalities


def test_a_column_is_in_a_key_once() -> None:
    twice = Equality(column(0, "p"), column(1), null_safe=False)
    view = view_of({1: keyed("semi", 0, 1, on=(equal(0, 1), twice))}, 2)
    match = sweep_plan_of(view).match_at(1)
    assert match is not None
    assert match.on == (JoinKey(column(0), column(1), null_safe=False),)
    assert match.conditions == (Compare("=", column(0, "p"), column(1)),)


def test_an_equality_in_where_between_parent_and_left_place_is_no_key() -> None:
    view = view_of({1: keyed("left", 0, 1)}, 2, (equal(0, 1, "p"),))
    plan = sweep_plan_of(view)
    assert plan.conditions == (Compare("=", column(0, "p"), column(1, "p")),)
    assert all(step.on == tuple(step.on[:1]) for step in plan.steps)


def test_own_steps_come_as_soon_as_their_places_are_there() -> None:
    late = keyed("anti", 0, 2, Compare("<", column(1, "p"), column(2, "p")))
    plan = sweep_plan_of(view_of({1: keyed("left", 0, 1), 2: late}, 3))
    assert steps_of(plan) == [
        (2, 0, ""),
        (1, 0, ""),
        (0, 1, "own"),
        (0, 1, "keyed"),
        (0, 2, "own"),
        (0, 2, "keyed"),
    ]


def test_a_unique_key_asks_nobody_for_its_own_rows() -> None:
    plan = sweep_plan_of(view_of({1: keyed("left", 0, 1, unique=True)}, 2))
    assert [step.asks_somebody for step in plan.steps] == [True, False, True]


def test_a_place_shows_what_its_kind_shows() -> None:
    kinds = ("left", "semi", "anti", "exists")
    view = view_of({i: keyed(kind, 0, i) for i, kind in enumerate(kinds, start=1)}, 5)
    shown = [[field.name for field in place.shown_fields] for place in view.places]
    assert shown == [["k", "p"], ["k", "p"], [], [], [EXISTS]]


def test_without_keyed_places_the_tree_is_breadth_first() -> None:
    chain = (equal(0, 1), equal(1, 2), equal(2, 3))
    view = view_of({}, 6, (*chain, equal(1, 4)))
    assert join_tree_of(view).root == 1
    assert edges_of(view) == [(1, 0), (1, 2), (1, 4), (1, 5), (2, 3)]
    assert all(not s.is_own and s.match is None for s in sweep_plan_of(view).steps)


def test_a_constant_in_on_is_checked_where_its_place_is_met_from_below() -> None:
    never = Compare("=", Literal(1, INT), Literal(2, INT))
    view = view_of({1: keyed("left", 0, 1, never), 2: keyed("left", 1, 2)}, 3)
    plan, below = sweep_plan_of(view), frozenset({2})
    assert plan.decidable_conditions(below | {1}, below, origin=2) == [never]
    assert plan.decidable_conditions(below | {0}, below, origin=2) == []
    assert plan.decidable_conditions(frozenset({0, 1}), frozenset({0}), origin=0) == []


def conditions_asked(view: ViewDefinition) -> dict[tuple[int, int, str], list[tuple[str, str]]]:
    """What each step of a view asks of its target besides keys: column and operator."""
    plan = sweep_plan_of(view)
    asked = [plan.local_conditions(step, can_fail) for step in plan.steps]
    return {
        step: [(each.column, each.operator) for each in found]
        for step, found in zip(steps_of(plan), asked, strict=True)
    }


def test_conditions_on_one_place_are_asked_with_its_keys() -> None:
    below_five = Compare("<", column(1, "p"), Literal(5, INT))
    both = Compare("<", column(0, "p"), column(1, "p"))
    view = replace(view_of({}, 2, (equal(0, 1),)), predicates=(below_five, both))
    assert conditions_asked(view) == {(0, 1, ""): [("p", "<")], (1, 0, ""): []}


def test_a_condition_hides_no_row_from_one_before_it_that_can_fail() -> None:
    below_five = Compare("<", column(1, "p"), Literal(5, INT))
    share = Compare("<", Arithmetic("*", column(1, "k"), column(1, "k"), INT), Literal(9, INT))
    joined = view_of({}, 2, (equal(0, 1),))
    asked = [
        conditions_asked(replace(joined, predicates=order))[0, 1, ""]
        for order in ((below_five, share), (share, below_five))
    ]
    assert asked == [[("p", "<")], []]


def test_a_left_place_is_asked_under_its_own_conditions_alone() -> None:
    """WHERE may hold where nothing matches, and would then find a match that has gone."""
    in_on, in_where = (
        Compare(">=", column(1, "p"), Literal(1, INT)),
        Compare("=", column(1, "k"), Literal(7, INT)),
    )
    view = replace(view_of({1: keyed("left", 0, 1, in_on)}, 2), predicates=(in_where,))
    asked = conditions_asked(view)
    assert asked == {
        (1, 0, ""): [],
        (0, 1, "own"): [("p", ">=")],
        (0, 1, "keyed"): [("p", ">=")],
    }
