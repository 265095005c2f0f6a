"""Which rows a moving window can touch, and forgetting what moved it.

`viewkeeper.view.moving_window` says for which places this is right. Here are the two things that a
sweep does about it: it asks by dates, or for the spans of time that have passed, where as many rows
of the place come as go at each ts. Rows outside of a span, and changes of them, contribute once
with each sign, whether the answer has them or not. And it
forgets the place's columns once its conditions are checked, so that rows which only they tell apart
cancel at once and are not carried through the other joins.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS, Algebra, D
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.updates.source_protocol import Lookup
from viewkeeper.view.definition import Output, Place
from viewkeeper.view.expression import Column, Literal, type_of
from viewkeeper.view.local_condition import LocalCondition
from viewkeeper.view.moving_window import MovingWindow

DATES_MAX = 10_000
"""For more dates than this the relation is read whole."""
_DAY = 86_400_000_000
_EPOCH = datetime.datetime(1970, 1, 1)


def window_lookup(
    algebra: Algebra[D], window: MovingWindow, target: Place, partial: D
) -> Lookup | None:
    """The question for the rows for which the conditions of a window may have changed; None if
    every row may be touched."""
    if window.column is None:
        return None
    reaches = _reaches_of(algebra, window, partial)
    if reaches is None:
        return None
    lookup = Lookup(target.index, target.relation, target.columns, (), (), None)
    name, kind = window.column.name, window.column.type
    if kind != pa.date32():
        spans = _merge_spans([_span_of(low, high) for low, high in reaches])
        zone = datetime.UTC if kind == pa.timestamp("us", "UTC") else None
        moments = [_moment_of(each, zone) for span in spans for each in span]
        values = tuple(moment for moment in moments if moment is not None)
        if len(values) < len(moments):
            return None
        return replace(lookup, conditions=(LocalCondition(name, "within", values, kind),))
    dates = _dates_in(reaches)
    if dates is None:
        return None
    return replace(lookup, on=(name,), null_safe=(False,), keys=pa.table({name: dates}))


def _reaches_of(
    algebra: Algebra[D], window: MovingWindow, partial: D
) -> list[tuple[_Bound, _Bound]] | None:
    """From where to where each bound moves; None if more rows come than go, or go than come."""
    named = {f"b{at}": bound for at, bound in enumerate(window.bounds)}
    shown = algebra.project(partial, [Output(name, bound) for name, bound in named.items()])
    rows = algebra.lower_delta(shown)
    balance = rows.group_by(TS).aggregate([(COUNT, "sum")])[f"{COUNT}_sum"].to_pylist()
    if any(balance):
        return None
    found = []
    for name, bound in named.items():
        kind = type_of(bound)
        assert kind is not None, "what is compared with a column has its type"
        width = pa.int64() if pa.types.is_timestamp(kind) else pa.int32()
        values = rows[name].cast(kind).cast(width).drop_null()
        if not len(values) or len(values) < rows.num_rows:
            return None
        low, high = (int(each.as_py()) for each in pc.min_max(values).values())
        found.append((_Bound(low, width == pa.int32()), _Bound(high, width == pa.int32())))
    return found


@dataclass(frozen=True, slots=True)
class _Bound:
    """A value that a column is compared with: a number of days, or of microseconds."""

    number: int
    is_day: bool


def _span_of(low: _Bound, high: _Bound) -> tuple[int, int]:
    """The microseconds between two bounds; a day ends where the next one begins."""
    first = low.number * _DAY if low.is_day else low.number
    last = (high.number + 1) * _DAY if high.is_day else high.number
    return first, last


def _merge_spans(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that do not overlap.

    >>> _merge_spans([(5, 9), (1, 2), (2, 3)])
    [(1, 3), (5, 9)]
    """
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _moment_of(number: int, zone: datetime.timezone | None) -> datetime.datetime | None:
    """A number of microseconds as a moment; None if the calendar has no year for it."""
    try:
        found = _EPOCH + datetime.timedelta(microseconds=number)
    except OverflowError:
        return None
    return found.replace(tzinfo=zone)


def _dates_in(reaches: Sequence[tuple[_Bound, _Bound]]) -> Any:
    """All days between bounds, if they are not too many."""
    days: set[int] = set()
    for low, high in reaches:
        if high.number - low.number + len(days) > DATES_MAX:
            return None
        days |= {*range(low.number, high.number + 1)}
    return pa.array(sorted(days), pa.int32()).cast(pa.date32())


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
