"""PIVOT, as Spark plans it, in calls that can be folded.

Spark aggregates by the groups and the pivot column first, and then gathers the values of a group
into an array, by a function that it calls PivotFirst. A place of that array is the value of the one
row whose column has the place's value: max(value) FILTER (WHERE column <=> that). So each array is
replaced by as many calls as it has places, and what takes a place out of it by the column of one.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    JavaNode,
    PlanExpression,
    PlanItem,
    PlanLiteral,
    PlanOperation,
)
from viewkeeper.engine.compile.refusal_reasons import refuse

WHOLE = frozenset({"byte", "short", "integer", "long"})
CALL_FACTS = (("isDistinct", False),)


class PivotArrays:
    """The arrays of one plan: by their column, the columns of their places."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[Attribute, ...]] = {}
        # Below the ids that Spark gives, and those of columns that are made later.
        self._keys = count(10**8)

    def unfold_items(self, items: tuple[PlanItem, ...]) -> tuple[PlanItem, ...]:
        """The items of an aggregation with each array as columns of its own."""
        found: list[PlanItem] = []
        for item in items:
            pivot = _pivot_of(item.expression)
            if pivot is None:
                found.append(item)
                continue
            made = [PlanItem(self._new_column(), call) for call in _calls_of(pivot)]
            self._places[item.attribute.id] = tuple(each.attribute for each in made)
            found += made
        return tuple(found)

    def _new_column(self) -> Attribute:
        return Attribute(-next(self._keys), "")

    def take_places(self, expression: PlanExpression) -> PlanExpression:
        """The expression with places of arrays as columns."""
        if not self._places or not isinstance(expression, PlanOperation):
            return expression
        if (place := _place_of(expression, self._places)) is not None:
            return place
        operands = tuple(self.take_places(each) for each in expression.operands)
        return replace(expression, operands=operands)


def _pivot_of(expression: PlanExpression) -> PlanOperation | None:
    if isinstance(expression, PlanOperation) and expression.kind == "AggregateExpression":
        function = expression.operands[0]
        if isinstance(function, PlanOperation) and function.kind == "PivotFirst":
            return function
    return None


def _place_of(
    expression: PlanOperation, arrays: Mapping[int, tuple[Attribute, ...]]
) -> Attribute | None:
    if expression.kind != "GetArrayItem":
        return None
    array, index = expression.operands
    if not isinstance(array, Attribute) or not isinstance(index, PlanLiteral):
        return None
    return arrays[array.id][int(str(index.value))] if array.id in arrays else None


def _calls_of(pivot: PlanOperation) -> list[PlanOperation]:
    column, value = pivot.operands
    type_of_value = pivot.java.part(lambda node: node.valueColumn())
    values = pivot.java.get_node().pivotColumnValues()
    calls = []
    for index in range(values.size()):
        literal = _literal_of(values.apply(index), column, pivot.java)
        mine = PlanOperation("EqualNullSafe", (column, literal), (("left", 0), ("right", 1)))
        largest = PlanOperation("Max", (value,), (("child", 0),), type_of_value)
        calls.append(PlanOperation("AggregateExpression", (largest, mine), CALL_FACTS))
    return calls


def _literal_of(value: Any, column: PlanExpression, java: JavaNode) -> PlanLiteral:
    kind = column.type if isinstance(column, Attribute) else ""
    if value is None:
        return PlanLiteral(None, kind)
    if kind in WHOLE or kind == "boolean":
        return PlanLiteral(str(value).lower(), kind)
    if kind == "string" or kind.startswith("decimal"):
        return PlanLiteral(str(value.toString()), kind)
    if kind == "date":
        day = datetime.date(1970, 1, 1) + datetime.timedelta(days=int(value))
        return PlanLiteral(day.isoformat(), kind)
    raise refuse(f"PIVOT over a column of type {kind}", "write max(...) FILTER (WHERE ...)", java)
