"""A core while it grows: places, conditions and what is shown, still in the plan's own columns.

Operators that only join, filter and project are melted into one draft. Its places know their
columns by the ids of the plan; `shown` says how each column that the operators above may read is
computed from them. Expressions are translated when the draft is finished, so that each of them is
one tree over columns of places, however many projections it came through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal as OneOf

import pyarrow as pa

from viewkeeper.engine.compile.expressions.expression_translation import (
    Columns,
    Translator,
    is_true,
)
from viewkeeper.engine.compile.plan.plan_tree import (
    NOWHERE,
    Attribute,
    PlanExpression,
    PlanOperation,
    attributes_of,
    substitute_columns,
)
from viewkeeper.engine.compile.refusal_reasons import refuse
from viewkeeper.errors import UnsupportedError
from viewkeeper.view.definition import (
    EXISTS,
    Core,
    Equality,
    Field,
    KeyedJoin,
    Output,
    Place,
    Relation,
    ViewDefinition,
)
from viewkeeper.view.expression import Column, Expression, columns_of, needs_spark

EQUALITIES = {"EqualTo": False, "EqualNullSafe": True}
"""Operators that can make a join key; whether they call NULL equal to NULL."""


@dataclass(frozen=True, slots=True)
class DraftKey:
    """How a keyed place is joined. `pairs` are the positions in `conjuncts` that make the key."""

    kind: OneOf["left", "semi", "anti", "exists"]
    parent: int
    conjuncts: tuple[PlanExpression, ...]
    pairs: frozenset[int]
    unique: bool = False


@dataclass(frozen=True, slots=True)
class DraftPlace:
    """A relation with the columns that may be read of it, by id; `exists` is the id of the
    column that an existence place shows."""

    relation: Relation
    columns: Mapping[int, Field]
    required: frozenset[int] = frozenset()
    """The columns that are never NULL."""
    keyed: DraftKey | None = None
    exists: int | None = None

    @property
    def is_left(self) -> bool:
        return self.keyed is not None and self.keyed.kind == "left"


@dataclass(frozen=True, slots=True)
class CoreDraft:
    """Places that are joined, conditions over their columns, and what is shown."""

    places: tuple[DraftPlace, ...]
    conditions: tuple[PlanExpression, ...]
    shown: Mapping[int, PlanExpression]
    scalars: tuple[int, ...] = ()
    """The places with one row each that stand beside the first one."""

    def place_of(self, column: int) -> int | None:
        """The place whose relation has the column."""
        for index, place in enumerate(self.places):
            if column in place.columns:
                return index
        return None

    def compute_column(self, expression: PlanExpression) -> PlanExpression:
        """An expression over shown columns as one over columns of places."""
        return substitute_columns(expression, self.shown)

    @property
    def keys(self) -> frozenset[int]:
        """The ids of all columns of all places."""
        return frozenset(key for place in self.places for key in place.columns)

    @property
    def bare_node(self) -> DraftPlace | None:
        """The one place, if it is a node of the graph of which every row is shown."""
        (first, *others) = self.places
        if others or self.conditions or first.relation.node is None:
            return None
        return first

    def is_required(self, column: int) -> bool:
        """Whether a column of a place is never NULL."""
        index = self.place_of(column)
        if index is None or self.places[index].is_left:
            return False
        return column in self.places[index].required


def filter_draft(draft: CoreDraft, conjuncts: Sequence[PlanExpression]) -> CoreDraft:
    """The draft with more conditions, over shown columns."""
    added = tuple(draft.compute_column(conjunct) for conjunct in conjuncts)
    return replace(draft, conditions=(*draft.conditions, *added))


def columns_of_places(draft: CoreDraft) -> Columns:
    """The columns of all places, by id."""
    found: dict[int, Column] = {}
    for index, place in enumerate(draft.places):
        for key, field in place.columns.items():
            found[key] = Column(index, field.name, field.type)
        if place.exists is not None:
            found[place.exists] = Column(index, EXISTS, pa.bool_())
    return found


def equated_columns(expression: PlanExpression) -> tuple[Attribute, Attribute, bool] | None:
    """Two columns that a condition equates, and whether NULL is equal to NULL."""
    if isinstance(expression, PlanOperation) and expression.kind in EQUALITIES:
        left, right = expression.operands
        if isinstance(left, Attribute) and isinstance(right, Attribute):
            return left, right, EQUALITIES[expression.kind]
    return None


def finish_core(
    draft: CoreDraft,
    number: int,
    outputs: Sequence[tuple[str, PlanExpression]],
    translator: Translator,
) -> Core:
    """The draft as a node with these outputs, given over columns of places."""
    columns = columns_of_places(draft)
    equalities: list[Equality] = []
    predicates: list[Expression] = []
    for condition in draft.conditions:
        if (equality := _equality_of(draft, condition, columns)) is not None:
            equalities.append(equality)
        elif not is_true(translated := translator.translate_expression(condition, columns)):
            predicates.append(translated)
    shown = tuple(
        Output(name, translator.translate_expression(expression, columns))
        for name, expression in outputs
    )
    keyed = [_keyed_join(draft, index, columns, translator) for index in range(len(draft.places))]
    read = _read_columns(equalities, [*predicates, *(o.expression for o in shown)], keyed)
    places = tuple(
        Place(index, str(place.relation), place.relation, _fields_of(place, index, read), key)
        for index, (place, key) in enumerate(zip(draft.places, keyed, strict=True))
    )
    view = ViewDefinition(
        name=f"#{number}",
        places=places,
        equalities=tuple(equalities),
        predicates=tuple(predicates),
        outputs=shown,
        query="",
        text="",
    )
    return Core(number, view, scalars=draft.scalars)


def _equality_of(draft: CoreDraft, condition: PlanExpression, columns: Columns) -> Equality | None:
    """A condition that can be a join key: plain columns of one type at two inner places."""
    pair = equated_columns(condition)
    if pair is None:
        return None
    left, right = columns[pair[0].id], columns[pair[1].id]
    keyed = any(draft.places[side.place].keyed for side in (left, right))
    if keyed or left.place == right.place or left.type != right.type:
        return None
    return Equality(left, right, null_safe=pair[2])


def _keyed_join(
    draft: CoreDraft, index: int, columns: Columns, translator: Translator
) -> KeyedJoin | None:
    key = draft.places[index].keyed
    if key is None:
        return None
    on, conditions = [], []
    for number, conjunct in enumerate(key.conjuncts):
        if number in key.pairs:
            pair = equated_columns(conjunct)
            assert pair is not None, "the key of a place is made of equalities"
            sides = sorted(
                (columns[pair[0].id], columns[pair[1].id]), key=lambda c: c.place == index
            )
            on.append(Equality(sides[0], sides[1], null_safe=pair[2]))
        elif not is_true(condition := translator.translate_expression(conjunct, columns)):
            if needs_spark(condition):
                raise _beyond_kernel(conjunct)
            conditions.append(condition)
    return KeyedJoin(key.kind, key.parent, tuple(on), tuple(conditions), key.unique)


def _beyond_kernel(conjunct: PlanExpression) -> UnsupportedError:
    what = "a condition over both sides of an outer join, IN or EXISTS, with a function like this,"
    java = conjunct.java if isinstance(conjunct, PlanOperation) else NOWHERE
    return refuse(what, "compute its parts in a derived table on each side", java)


def _read_columns(
    equalities: Sequence[Equality],
    expressions: Sequence[Expression],
    keyed: Sequence[KeyedJoin | None],
) -> set[Column]:
    keys = [key for key in keyed if key is not None]
    pairs = [*equalities, *(pair for key in keys for pair in key.on)]
    conditions = [condition for key in keys for condition in key.conditions]
    read = {column for each in (*expressions, *conditions) for column in columns_of(each)}
    return read | {column for pair in pairs for column in (pair.left, pair.right)}


def _fields_of(place: DraftPlace, index: int, read: set[Column]) -> tuple[Field, ...]:
    """What is read of a place; a relation of which only the number of rows matters is counted by
    its first column."""
    known = set(place.columns.values())
    used = {Field(column.name, column.type) for column in read if column.place == index}
    fields = sorted(used & known, key=lambda field: field.name)
    return tuple(fields or list(place.columns.values())[:1])


def required_columns(draft: CoreDraft, expressions: Sequence[PlanExpression]) -> list[bool]:
    """For each expression whether it is a column that is never NULL."""
    return [isinstance(e, Attribute) and draft.is_required(e.id) for e in expressions]


def reads_places(draft: CoreDraft, expression: PlanExpression) -> frozenset[int]:
    """The places that an expression over columns of places reads."""
    found = set()
    for column in attributes_of(expression):
        for index, place in enumerate(draft.places):
            if column in place.columns or column == place.exists:
                found.add(index)
    return frozenset(found)
