"""Expressions of a plan beside texts that SQLite knows, for random plans.

Spark says the type of every expression that it has analysed; where a plan asks for it, a
`TypedNode` stands for Spark's own node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    JavaNode,
    PlanAggregate,
    PlanExpression,
    PlanItem,
    PlanLiteral,
    PlanOperation,
    PlanOperator,
    PlanSort,
    PlanSortKey,
)

LONG, TEXT, TRUTH, INT = "long", "string", "boolean", "integer"
ARROW: dict[str, pa.DataType] = {LONG: pa.int64(), TEXT: pa.string()}
COMPARISONS = {
    "=": "EqualTo",
    "<": "LessThan",
    ">=": "GreaterThanOrEqual",
    ">": "GreaterThan",
    "IS NOT DISTINCT FROM": "EqualNullSafe",
}


@dataclass(frozen=True, slots=True)
class TypedNode:
    """What stands for Spark's expression where its type is asked for."""

    type_text: str

    def dataType(self) -> TypedNode:  # noqa: N802 - as Spark calls it
        return self

    def json(self) -> str:
        return self.type_text


@dataclass(frozen=True, slots=True)
class Term:
    """An expression, its text and its type."""

    plan: PlanExpression
    text: str
    type: str


def operation_of(kind: str, type_text: str, *operands: PlanExpression) -> PlanOperation:
    """An operation whose type is known."""
    node = TypedNode(type_text)
    return PlanOperation(kind, operands, java=JavaNode(lambda: node))


@dataclass(frozen=True, slots=True)
class OverWords:
    """How rows are parted and put in order, in a plan and in its text."""

    part: Sequence[Attribute]
    key: PlanSortKey
    columns: Sequence[Attribute]

    def sort(self, plan: PlanOperator) -> PlanSort:
        """The rows in an order that all their columns complete."""
        by = [PlanSortKey(each, False, False) for each in self.part]
        rest = [PlanSortKey(each, False, False) for each in self.columns]
        return PlanSort(plan, (*by, self.key, *rest))

    def order(self, complete: bool) -> str:
        assert isinstance(self.key.expression, Attribute)
        first = self.key.expression.name + (" DESC" if self.key.descending else "")
        rest = [column.name for column in self.columns] if complete else []
        return ", ".join([first, *rest])

    def over(self, complete: bool = False, frame: str = "") -> str:
        by = f"PARTITION BY {', '.join(c.name for c in self.part)} " if self.part else ""
        return f"OVER ({by}ORDER BY {self.order(complete)}{' ' * bool(frame)}{frame})"


def term_of(column: Attribute) -> Term:
    return Term(column, column.name, column.type)


def number_of(value: int) -> PlanLiteral:
    return PlanLiteral(str(value), INT)


def quote_value(value: int | str | None) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def compare_terms(word: str, one: Term, other: Term) -> Term:
    plan = operation_of(COMPARISONS[word], TRUTH, one.plan, other.plan)
    return Term(plan, f"{one.text} {word} {other.text}", TRUTH)


def join_conditions(kind: str, one: Term, other: Term) -> Term:
    plan = operation_of(kind, TRUTH, one.plan, other.plan)
    return Term(plan, f"({one.text} {kind.upper()} {other.text})", TRUTH)


def negate_condition(term: Term) -> Term:
    return Term(operation_of("Not", TRUTH, term.plan), f"NOT ({term.text})", TRUTH)


def distinct_rows(plan: PlanOperator) -> PlanAggregate:
    items = tuple(PlanItem(column, column) for column in plan.output)
    return PlanAggregate(plan, plan.output, items)


def call_aggregate(function: PlanOperation) -> PlanOperation:
    facts = (("isDistinct", False),)
    return PlanOperation("AggregateExpression", (function,), facts, function.java)


def frame_of(kind: str, *bounds: PlanExpression) -> PlanOperation:
    return PlanOperation("SpecifiedWindowFrame", bounds, (("frameType", kind),))


_START, _HERE = PlanOperation("UnboundedPreceding", ()), PlanOperation("CurrentRow", ())
ROWS_SO_FAR = frame_of("RowFrame", _START, _HERE)
RANGE_SO_FAR = frame_of("RangeFrame", _START, _HERE)
ROWS_AROUND = frame_of("RowFrame", number_of(-1), number_of(1))
