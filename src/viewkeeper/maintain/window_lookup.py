"""Which rows a moving window can touch, and forgetting what moved it.

`viewkeeper.view.moving_window` says for which places this is right. Here are the two things that a
sweep does about it: it asks by dates where as many rows of the place come as go at each ts, and it
forgets the place's columns once its conditions are checked, so that rows which only they tell apart
cancel at once and are not carried through the other joins.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS, Algebra, D
from viewkeeper.view.definition import Output, Place
from viewkeeper.view.expression import Column, Literal
from viewkeeper.view.moving_window import MovingWindow

DATES_MAX = 10_000
"""For more dates than this the relation is read whole."""


def window_dates(algebra: Algebra[D], window: MovingWindow, partial: D) -> pa.Table | None:
    """The dates for which the conditions of a window may have changed, as keys of a lookup; None if
    every row may be touched."""
    if window.column is None:
        return None
    named = {f"b{at}": bound for at, bound in enumerate(window.bounds)}
    shown = algebra.project(partial, [Output(name, bound) for name, bound in named.items()])
    rows = algebra.lower_delta(shown)
    balance = rows.group_by(TS).aggregate([(COUNT, "sum")])[f"{COUNT}_sum"].to_pylist()
    if any(balance):
        return None
    dates: set[datetime.date] = set()
    for name in named:
        values = [value for value in rows[name].to_pylist() if isinstance(value, datetime.date)]
        if not values or len(values) < rows.num_rows:
            return None
        low, high = min(values), max(values)
        if (high - low).days + len(dates) > DATES_MAX:
            return None
        dates |= {low + datetime.timedelta(days) for days in range((high - low).days + 1)}
    return pa.table({window.column.name: pa.array(sorted(dates), pa.date32())})


def forget_columns(algebra: Algebra[D], place: int, covered: Sequence[Place], partial: D) -> D:
    """The partial rows with NULL in the columns of a place, and those that are now alike summed."""
    outputs = [
        Output(
            f"{each.index}.{field.name}",
            Literal(None, field.type)
            if each.index == place
            else Column(each.index, field.name, field.type),
        )
        for each in covered
        for field in each.shown_fields
    ]
    return algebra.consolidate(algebra.project(partial, outputs))
