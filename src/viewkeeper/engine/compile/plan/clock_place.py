"""The clock as a relation of the plan, wherever an expression asks for the time.

The clock has one row, so an operator whose expressions ask for the time may as well read its input
joined with the clock, and that row's columns in their place:

    Filter(placed >= current_date(), orders)  =  Filter(placed >= today, orders x clock)

A condition of an outer join asks on the side that is kept. In an aggregation, what asks outside of
groups and calls is computed above it.

Spark's optimizer puts the time into plans, wherever it can, before we see them. So the text that is
compiled has, in the place of each call, a literal of a year that nobody names, and that literal is
what is looked for here (`viewkeeper.engine.compile.clock_text`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Any

from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    PlanAggregate,
    PlanExpand,
    PlanExpression,
    PlanFilter,
    PlanItem,
    PlanJoin,
    PlanLeaf,
    PlanLiteral,
    PlanOperation,
    PlanOperator,
    PlanProject,
    walk_plan,
)
from viewkeeper.engine.compile.refusal_reasons import refuse
from viewkeeper.errors import UnsupportedError

YEAR = "9853"
DATE_VALUE, MOMENT_VALUE = f"{YEAR}-01-01", f"{YEAR}-01-01 00:00:00"
"""How Spark shows the literals that stand for the date and the moment."""

STAND_INS = (f'"{DATE_VALUE}"', f'"{MOMENT_VALUE}"')
"""The same in the JSON of a plan."""

COLUMNS = {DATE_VALUE: "today", MOMENT_VALUE: "instant"}
"""The literals that stand for the time, with the columns of the clock's row."""

HINT = "compute it in a subquery, and name it there"

FIRST_COLUMN = -2 * 10**9
"""The ids of the clock's columns, which are not in Spark's plan, go down from here."""


@dataclass(frozen=True, slots=True)
class ClockTable:
    """The clock among the tables of a query: its number, and the types of its columns by name."""

    number: int
    types: dict[str, str]

    def read_row(self, first: int) -> tuple[PlanLeaf, dict[str, Attribute]]:
        """The clock as a leaf of the plan, and its columns, with ids from `first` down."""
        columns = {
            name: Attribute(first - at, kind, name)
            for at, (name, kind) in enumerate(self.types.items())
        }
        return PlanLeaf(self.number, tuple(columns.values()), tuple(range(len(columns)))), columns


def place_clock(plan: PlanOperator, clock: ClockTable | None) -> PlanOperator:
    """The plan with the clock joined where the time is asked for; refused if there is no clock."""
    placed: PlanOperator = _ClockPlacement(clock).place_below(plan)
    return placed


class _ClockPlacement:
    def __init__(self, clock: ClockTable | None) -> None:
        self._clock = clock
        self._ids = count(FIRST_COLUMN, -1)

    def place_below(self, plan: Any) -> Any:
        """An operator, and everything below it."""
        below = {
            field.name: self._placed_inputs(getattr(plan, field.name)) for field in fields(plan)
        }
        plan = replace(plan, **{name: value for name, value in below.items() if value is not None})
        asking = [each for each in _own_expressions(plan) if has_time_call(each)]
        return self._place_operator(plan, asking) if asking else plan

    def _placed_inputs(self, value: object) -> object:
        if isinstance(value, PlanOperator):
            return self.place_below(value)
        if isinstance(value, tuple) and value and all(isinstance(v, PlanOperator) for v in value):
            return tuple(self.place_below(each) for each in value)
        return None

    def _place_operator(self, plan: PlanOperator, asking: Sequence[PlanExpression]) -> PlanOperator:
        match plan:
            case PlanFilter():
                below, row = self._join_clock(plan.input)
                placed = PlanFilter(below, replace_time(plan.condition, row), plan.java)
                return _keep_columns(placed, plan.output)
            case PlanProject():
                below, row = self._join_clock(plan.input)
                return replace(plan, input=below, items=_replace_items(plan.items, row))
            case PlanJoin():
                return self._place_join(plan)
            case PlanAggregate():
                return self._place_aggregate(plan)
            case PlanExpand():
                below, row = self._join_clock(plan.input)
                rows = tuple(tuple(replace_time(e, row) for e in r) for r in plan.projections)
                return replace(plan, input=below, projections=rows)
            case _:
                raise refuse_time(asking[0])

    def _join_clock(self, below: PlanOperator) -> tuple[PlanOperator, dict[str, Attribute]]:
        """An input joined with the clock, and the clock's columns."""
        assert self._clock is not None, "only a text with the clock has its literals"
        leaf, row = self._clock.read_row(next(self._ids))
        for _ in row:
            next(self._ids)
        return PlanJoin("Inner", below, leaf, None), row

    def _place_join(self, plan: PlanJoin) -> PlanOperator:
        assert plan.condition is not None, "the condition asks for the time"
        side = "right" if plan.kind == "RightOuter" else "left"
        below, row = self._join_clock(plan.right if side == "right" else plan.left)
        placed = replace(plan, condition=replace_time(plan.condition, row))
        placed = replace(placed, right=below) if side == "right" else replace(placed, left=below)
        return _keep_columns(placed, plan.output)

    def _place_aggregate(self, plan: PlanAggregate) -> PlanOperator:
        """The clock below for groups and calls, and above for what else asks for it."""
        inner: dict[PlanExpression, PlanItem] = {}

        def cut_inner(expression: PlanExpression) -> PlanExpression:
            is_call = isinstance(expression, PlanOperation) and (
                expression.kind == "AggregateExpression"
            )
            if expression in plan.grouping or is_call:
                made = PlanItem(Attribute(next(self._ids), ""), expression)
                return inner.setdefault(expression, made).attribute
            return _map_operands(expression, cut_inner)

        outer = tuple(PlanItem(i.attribute, cut_inner(i.expression)) for i in plan.items)
        below_asks = any(has_time_call(each) for each in (*plan.grouping, *inner))
        placed = replace(plan, items=tuple(inner.values()))
        if below_asks:
            below, row = self._join_clock(plan.input)
            groups = tuple(replace_time(each, row) for each in plan.grouping)
            items = _replace_items(placed.items, row)
            placed = replace(placed, input=below, grouping=groups, items=items)
        if not any(has_time_call(item.expression) for item in outer):
            return PlanProject(placed, outer, plan.java)
        above, row = self._join_clock(placed)
        return PlanProject(above, _replace_items(outer, row), plan.java)


def has_time_call(expression: PlanExpression) -> bool:
    """Whether an expression asks for the present time."""
    return any(_column_of(part) is not None for part in walk_plan(expression))


def _column_of(expression: PlanExpression) -> str | None:
    """The column of the clock that an expression stands for."""
    if isinstance(expression, PlanLiteral) and expression.type in ("date", "timestamp"):
        return COLUMNS.get(str(expression.value))
    return None


def refuse_time(expression: PlanExpression) -> UnsupportedError:
    """The error that refuses an expression because of where it asks for the time."""
    asking = next(part for part in walk_plan(expression) if _column_of(part) is not None)
    assert isinstance(asking, PlanLiteral)
    return refuse("the present time at this place", HINT, asking.java)


def replace_time(expression: PlanExpression, row: dict[str, Attribute]) -> PlanExpression:
    """The expression with the clock's columns in place of calls for the time."""
    column = _column_of(expression)
    if column is not None:
        return row[column]
    return _map_operands(expression, lambda each: replace_time(each, row))


def _map_operands(expression: PlanExpression, change: Any) -> PlanExpression:
    match expression:
        case Attribute() | PlanLiteral():
            return expression
        case PlanOperation():
            call = expression.call
            if call is not None:
                call = replace(call, operands=tuple(map(change, call.operands)))
            return replace(expression, operands=tuple(map(change, expression.operands)), call=call)


def _replace_items(items: Sequence[PlanItem], row: dict[str, Attribute]) -> tuple[PlanItem, ...]:
    return tuple(PlanItem(i.attribute, replace_time(i.expression, row)) for i in items)


def _keep_columns(plan: PlanOperator, columns: Sequence[Attribute]) -> PlanProject:
    """An operator without the columns of the clock."""
    return PlanProject(plan, tuple(PlanItem(each, each) for each in columns), plan.java)


def _own_expressions(plan: PlanOperator) -> Iterator[PlanExpression]:
    """The expressions of an operator itself, wherever its fields have them."""
    for field in fields(plan):
        if field.name != "output":
            yield from _expressions_in(getattr(plan, field.name))


def _expressions_in(value: object) -> Iterator[PlanExpression]:
    if isinstance(value, Attribute | PlanLiteral | PlanOperation):
        yield value
    elif isinstance(value, PlanItem):
        yield value.expression
    elif isinstance(value, tuple):
        for each in value:
            yield from _expressions_in(each)
