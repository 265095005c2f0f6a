"""Moving windows: a place whose row is replaced now and then, and what of the view that can touch.

The clock's row is joined with another place by comparisons alone:

    orders x clock  where placed >= today - 7 and placed < today

When the row `today` is replaced by the next one, a row of `orders` whose conditions have the same
value for both appears once with each sign, and cancels, provided that nothing else reads `today`.
The conditions can only differ for a `placed` between the least and the greatest of the values that
it is compared with. If it is a date, these are a few dates, and the orders are asked for by them,
as by any key, instead of being read whole. If it is a timestamp, these are a few spans of time, and
the rows outside of them are left out by a condition that goes along with the lookup.

That holds for every relation of which, at one ts, as many rows come as go; whether they do is
looked at when the sweep is there (`viewkeeper.maintain.window_lookup`).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.view.definition import ViewDefinition
from viewkeeper.view.expression import (
    Call,
    Column,
    Compare,
    Expression,
    needs_spark,
    places_of,
    type_of,
)

ORDERED = ("<", "<=", ">", ">=", "=")


@dataclass(frozen=True, slots=True)
class MovingWindow:
    """A place that is read by conditions with one other place, and by nothing else.

    `column` is the date or timestamp of the other place that all these conditions compare, and
    `bounds` what they compare it with, or its date with; None if the conditions are of another
    form.
    """

    place: int
    target: int
    column: Column | None = None
    bounds: tuple[Expression, ...] = ()


def moving_window_of(view: ViewDefinition, place: int) -> MovingWindow | None:
    """The window that a place moves; None if more than conditions with one place reads it."""
    if _is_read_otherwise(view, place):
        return None
    conditions = [each for each in view.predicates if place in places_of(each)]
    others = {other for each in conditions for other in places_of(each)} - {place}
    if len(others) != 1 or any(map(needs_spark, conditions)):
        return None
    target = others.pop()
    if view.places[target].keyed is not None:
        return None
    compared = [_compared_time(each, place) for each in conditions]
    found = [each for each in compared if each is not None]
    columns = {column for column, _ in found}
    if len(found) < len(conditions) or len(columns) != 1:
        return MovingWindow(place, target)
    return MovingWindow(place, target, columns.pop(), tuple(bound for _, bound in found))


def _is_read_otherwise(view: ViewDefinition, place: int) -> bool:
    """Whether more than conditions of the view reads a place."""
    if view.places[place].keyed is not None:
        return True
    if any(place in places_of(output.expression) for output in view.outputs):
        return True
    if any(place in (each.left.place, each.right.place) for each in view.equalities):
        return True
    joins = [each.keyed for each in view.places if each.keyed is not None]
    return any(
        join.parent == place or any(place in places_of(each) for each in join.conditions)
        for join in joins
    )


def _compared_time(condition: Expression, place: int) -> tuple[Column, Expression] | None:
    """A date or timestamp of another place, and what of this place it is compared with."""
    if not isinstance(condition, Compare) or condition.operator not in ORDERED:
        return None
    for side, bound in (
        (condition.left, condition.right),
        (condition.right, condition.left),
    ):
        column = _time_column(side)
        apart = places_of(bound) == {place} and place not in places_of(side)
        if column is not None and apart and type_of(side) == type_of(bound):
            return column, bound
    return None


def _time_column(side: Expression) -> Column | None:
    """The column that an expression is: a date, a timestamp, or the moment or date of one.

    A local timestamp and the instant that it is in UTC are the same number.
    """
    if isinstance(side, Column):
        is_time = side.type == pa.date32() or pa.types.is_timestamp(side.type)
        return side if is_time else None
    if not isinstance(side, Call) or side.function != "cast":
        return None
    column = _time_column(side.arguments[0])
    keeps_order = pa.types.is_timestamp(side.type) or side.type == pa.date32()
    return column if column is not None and column.type != pa.date32() and keeps_order else None
