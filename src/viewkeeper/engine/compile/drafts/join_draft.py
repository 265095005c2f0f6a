"""Joins, melted into drafts.

An inner join puts the places of both sides together. Every other join makes its right side one
keyed place: a relation with conditions of its own stays as it is, anything more becomes a node.
Its key are the equalities of plain columns with one place of the left side; other conditions of ON
are checked row by row. Where ON equates computed values only, the value becomes a column of a node.

Two things are turned round. A left place whose columns an inner join equates below can have no row
of NULLs, so it is an inner place. And NULL must not be equal to NULL below a left place, where a
row of NULLs would match: then the left join becomes a node of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal as OneOf

from viewkeeper.engine.compile.drafts.core_draft import (
    EQUALITIES,
    CoreDraft,
    DraftKey,
    DraftPlace,
    equated_columns,
    reads_places,
)
from viewkeeper.engine.compile.drafts.graph_draft import GraphDraft
from viewkeeper.engine.compile.drafts.lifted_conditions import is_decided_in_kernel, lift_conditions
from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    JavaNode,
    PlanExpression,
    PlanOperation,
    attributes_of,
    substitute_columns,
)
from viewkeeper.engine.compile.refusal_reasons import refuse
from viewkeeper.errors import UnsupportedError
from viewkeeper.view.definition import EXISTS

KeyedKind = OneOf["left", "semi", "anti", "exists"]


@dataclass(frozen=True, slots=True)
class KeyedSide:
    """What a keyed join is asked to do; `needed` are the columns that are read above it."""

    kind: KeyedKind
    conjuncts: Sequence[PlanExpression]
    needed: frozenset[int]
    exists: int | None
    java: JavaNode


def join_inner(
    graph: GraphDraft, left: CoreDraft, right: CoreDraft, conjuncts: Sequence[PlanExpression]
) -> CoreDraft:
    """Both sides in one draft."""
    _check_apart(left, right)
    shown = {**left.shown, **right.shown}
    for conjunct in conjuncts:
        left, right = _part_from_pads(graph, conjunct, left, right, tuple(shown))
    shown = {**left.shown, **right.shown}
    shift = len(left.places)
    places = (*left.places, *(_shift_place(place, shift) for place in right.places))
    added = tuple(substitute_columns(conjunct, shown) for conjunct in conjuncts)
    return _strengthen(CoreDraft(places, (*left.conditions, *right.conditions, *added), shown))


def _check_apart(left: CoreDraft, right: CoreDraft) -> None:
    """Columns are known by ids that Spark gives; one on both sides would be ambiguous."""
    if left.keys & right.keys:
        hint = "make the query that is read twice a view of its own"
        raise refuse("a query that is read twice and whose columns Spark does not tell apart", hint)


def _part_from_pads(
    graph: GraphDraft,
    conjunct: PlanExpression,
    left: CoreDraft,
    right: CoreDraft,
    needed: Sequence[int],
) -> tuple[CoreDraft, CoreDraft]:
    """A side becomes a node if `<=>` would meet a row of NULLs in it."""
    pair = equated_columns(conjunct)
    if pair is None or not pair[2]:
        return left, right
    keys = {pair[0].id, pair[1].id}
    sides = [
        graph.seal_draft(side, needed) if _reads_left_place(side, keys) else side
        for side in (left, right)
    ]
    return sides[0], sides[1]


def _reads_left_place(draft: CoreDraft, keys: set[int]) -> bool:
    shown = [draft.shown[key] for key in keys if key in draft.shown]
    return any(draft.places[at].is_left for each in shown for at in reads_places(draft, each))


def _shift_place(place: DraftPlace, shift: int) -> DraftPlace:
    if place.keyed is None:
        return place
    return replace(place, keyed=replace(place.keyed, parent=place.keyed.parent + shift))


def _strengthen(draft: CoreDraft) -> CoreDraft:
    """Left places that a condition of an inner join equates are inner places."""
    for condition in draft.conditions:
        pair = equated_columns(condition)
        if pair is None or pair[2]:
            continue
        for side in pair[:2]:
            index = draft.place_of(side.id)
            if index is not None and draft.places[index].is_left:
                return _strengthen(_make_inner(draft, index))
    return draft


def _make_inner(draft: CoreDraft, index: int) -> CoreDraft:
    place = draft.places[index]
    assert place.keyed is not None
    places = (*draft.places[:index], replace(place, keyed=None), *draft.places[index + 1 :])
    return replace(draft, places=places, conditions=(*draft.conditions, *place.keyed.conjuncts))


def join_keyed(graph: GraphDraft, left: CoreDraft, right: CoreDraft, side: KeyedSide) -> CoreDraft:
    """The left side with the right one as a keyed place."""
    _check_apart(left, right)
    conjuncts = [drop_null_test(left, right, each) for each in side.conjuncts]
    left, right, conjuncts = _compute_keys(graph, left, right, conjuncts)
    left, right, conjuncts = lift_conditions(graph, left, right, conjuncts)
    right = _as_one_place(graph, right, side, conjuncts)
    if _meets_pads(left, right, conjuncts):
        left = graph.seal_draft(left, sorted(left.shown))
    place = right.places[0]
    shown = {**left.shown, **right.shown}
    on = (*(substitute_columns(each, shown) for each in conjuncts), *right.conditions)
    parent, pairs = _choose_parent(left, place, on, side)
    columns = [_own_column(place, on[number]) for number in pairs]
    unique = graph.is_unique(place.relation, frozenset(columns)) and not any(
        _is_null_safe(on[number]) for number in pairs
    )
    key = DraftKey(side.kind, parent, on, frozenset(pairs), unique)
    keyed = replace(place, keyed=key, exists=side.exists)
    return CoreDraft((*left.places, keyed), left.conditions, _shown_by(left, right, side))


def _shown_by(left: CoreDraft, right: CoreDraft, side: KeyedSide) -> dict[int, PlanExpression]:
    if side.kind == "left":
        return {**left.shown, **right.shown}
    if side.exists is not None:
        return {**left.shown, side.exists: Attribute(side.exists, "boolean")}
    return dict(left.shown)


def _compute_keys(
    graph: GraphDraft, left: CoreDraft, right: CoreDraft, conjuncts: list[PlanExpression]
) -> tuple[CoreDraft, CoreDraft, list[PlanExpression]]:
    """If ON equates no plain columns but computed values, these become columns of nodes."""
    if any(_plain_pair(left, right, each) for each in conjuncts):
        return left, right, conjuncts
    for number, conjunct in enumerate(conjuncts):
        sides = sides_of_equality(left, right, conjunct)
        if sides is None:
            continue
        one, other = sides
        left, mine = _with_column(graph, left, one)
        right, theirs = _with_column(graph, right, other)
        assert isinstance(conjunct, PlanOperation)
        made = PlanOperation(conjunct.kind, (mine, theirs), conjunct.facts, conjunct.java)
        return left, right, [*conjuncts[:number], made, *conjuncts[number + 1 :]]
    return left, right, conjuncts


def _with_column(
    graph: GraphDraft, draft: CoreDraft, expression: PlanExpression
) -> tuple[CoreDraft, PlanExpression]:
    """A draft that has an expression as a plain column."""
    computed = draft.compute_column(expression)
    if isinstance(computed, Attribute) and draft.place_of(computed.id) is not None:
        return draft, expression
    column = graph.new_column()
    return graph.seal_draft(draft, sorted(draft.shown), {column.id: computed}), column


def sides_of_equality(
    left: CoreDraft, right: CoreDraft, conjunct: PlanExpression
) -> tuple[PlanExpression, PlanExpression] | None:
    """The operands of an equality between the two sides, the left one first."""
    if not isinstance(conjunct, PlanOperation) or conjunct.kind not in EQUALITIES:
        return None
    for one, other in (conjunct.operands, conjunct.operands[::-1]):
        mine, theirs = attributes_of(one), attributes_of(other)
        if mine and theirs and mine <= left.shown.keys() and theirs <= right.shown.keys():
            return one, other
    return None


def _plain_pair(left: CoreDraft, right: CoreDraft, conjunct: PlanExpression) -> bool:
    sides = sides_of_equality(left, right, conjunct)
    if sides is None:
        return False
    columns = (left.compute_column(sides[0]), right.compute_column(sides[1]))
    found = [isinstance(column, Attribute) for column in columns]
    return all(found) and _is_column(left, columns[0]) and _is_column(right, columns[1])


def _is_column(draft: CoreDraft, expression: PlanExpression) -> bool:
    return isinstance(expression, Attribute) and draft.place_of(expression.id) is not None


def drop_null_test(left: CoreDraft, right: CoreDraft, conjunct: PlanExpression) -> PlanExpression:
    """`a = b OR (a = b) IS NULL`, as NOT IN has it, is `a = b` where neither can be NULL."""
    equality = null_aware_equality(conjunct)
    if equality is None:
        return conjunct
    for operand in equality.operands:
        for draft in (left, right):
            column = draft.shown.get(operand.id) if isinstance(operand, Attribute) else None
            if isinstance(column, Attribute) and draft.is_required(column.id):
                break
        else:
            return conjunct
    return equality


def null_aware_equality(conjunct: PlanExpression) -> PlanOperation | None:
    if not isinstance(conjunct, PlanOperation) or conjunct.kind != "Or":
        return None
    for equality, test in (conjunct.operands, conjunct.operands[::-1]):
        if (
            isinstance(test, PlanOperation)
            and test.kind == "IsNull"
            and test.operands == (equality,)
        ):
            return equality if isinstance(equality, PlanOperation) else None
    return None


def _as_one_place(
    graph: GraphDraft, right: CoreDraft, side: KeyedSide, conjuncts: Sequence[PlanExpression]
) -> CoreDraft:
    """The right side as one relation; what is shown of it above must be plain columns."""
    read = side.needed | {key for each in conjuncts for key in attributes_of(each)}
    needed = sorted(read & right.shown.keys())
    shown = [right.shown[key] for key in needed if side.kind == "left" and key in side.needed]
    plain = all(isinstance(expression, Attribute) for expression in shown)
    taken = any(field.name == EXISTS for field in right.places[0].columns.values())
    fine = plain and not (side.kind == "exists" and taken) and is_decided_in_kernel(graph, right)
    if len(right.places) == 1 and fine:
        return right
    return graph.seal_draft(right, needed)


def _meets_pads(left: CoreDraft, right: CoreDraft, conjuncts: Sequence[PlanExpression]) -> bool:
    """Whether `<=>` in ON could match a row of NULLs of a left place."""
    pairs = [(equated_columns(each), each) for each in conjuncts]
    return any(
        pair is not None and pair[2] and _reads_left_place(left, set(attributes_of(each)))
        for pair, each in pairs
    )


def _choose_parent(
    left: CoreDraft, place: DraftPlace, on: Sequence[PlanExpression], side: KeyedSide
) -> tuple[int, list[int]]:
    """The place of the left side that gives most of the key, and the equalities that make it."""
    found: dict[int, int] = {}
    for number, conjunct in enumerate(on):
        if (parent := _key_parent(left, place, conjunct)) is not None:
            found[number] = parent
    if not found:
        raise _without_equality(side)
    votes = Counter(found.values())
    inner = [at for at in votes if left.places[at].keyed is None]
    parent = max(inner or votes, key=lambda at: (votes[at], -at))
    pairs: dict[str, int] = {}
    for number, at in found.items():
        if at == parent:
            pairs.setdefault(_own_column(place, on[number]), number)
    return parent, sorted(pairs.values())


def _key_parent(left: CoreDraft, place: DraftPlace, conjunct: PlanExpression) -> int | None:
    pair = equated_columns(conjunct)
    if pair is None:
        return None
    for mine, theirs in (pair[:2], pair[1::-1]):
        at = left.place_of(mine.id)
        if at is not None and theirs.id in place.columns:
            same = left.places[at].columns[mine.id].type == place.columns[theirs.id].type
            return at if same else None
    return None


def _own_column(place: DraftPlace, conjunct: PlanExpression) -> str:
    pair = equated_columns(conjunct)
    assert pair is not None
    return next(place.columns[side.id].name for side in pair[:2] if side.id in place.columns)


def _is_null_safe(conjunct: PlanExpression) -> bool:
    pair = equated_columns(conjunct)
    return pair is not None and pair[2]


def _without_equality(side: KeyedSide) -> UnsupportedError:
    if any(null_aware_equality(each) is not None for each in side.conjuncts):
        return refuse(
            "NOT IN (SELECT ...) over columns that may be NULL",
            "write NOT EXISTS (SELECT ... WHERE inner = outer), or declare both columns NOT NULL",
            side.java,
        )
    words = {"left": "an outer join", "semi": "EXISTS or IN", "anti": "NOT EXISTS or NOT IN"}
    what = words.get(side.kind, "EXISTS or IN")
    hint = "join on an equality; an OR in the condition can be written as a UNION of two queries"
    return refuse(f"{what} without an equality between the two sides", hint, side.java)
