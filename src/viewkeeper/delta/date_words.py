"""Words about dates and instants, which are read in UTC.

Days and months are counted with whole numbers, so that every date that Spark can hold has the right
year, also those beyond 9999 that a calculation may give. The calendar is Gregorian throughout, in
Spark as here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.column_values import Values, is_constant, repeat_constant
from viewkeeper.delta.row_errors import overflow_error
from viewkeeper.view.expression import Call
from viewkeeper.view.kernel_words import DATE_TRUNC_UNITS, TRUNC_UNITS, literal_value

Numbers = Any
"""Whole numbers of numpy, 64 bits."""

_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
}
_DAY = _MICROSECONDS["day"]
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_LAST = 2**63 - 1
_MONDAY = 4
"""Days from a Monday to the first day that is counted, a Thursday, and one more."""


def whole_numbers(values: Values) -> Numbers:
    """Dates as days, instants as microseconds, integers as they are; 0 in place of NULL."""
    width = pa.int64() if pa.types.is_timestamp(values.type) else pa.int32()
    plain = values.cast(width) if not pa.types.is_integer(values.type) else values
    return plain.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)


def masked_array(numbers: Numbers, valid: Values, kind: pa.DataType) -> Values:
    """An array of a type whose values are such whole numbers, NULL where not valid."""
    wide = pa.types.is_timestamp(kind) or pa.types.is_int64(kind)
    width = pa.int64() if wide else pa.int32()
    missing = np.logical_not(valid.to_numpy(zero_copy_only=False))
    counted = pa.array(numbers.astype(width.to_pandas_dtype()), width, mask=missing)
    return counted.cast(kind)


def _days_of(values: Values) -> Numbers:
    numbers = whole_numbers(values)
    return numbers // _DAY if pa.types.is_timestamp(values.type) else numbers


def _months_of(days: Numbers) -> Numbers:
    """Months since January 1970."""
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)


def _first_days(months: Numbers) -> Numbers:
    """The days on which months begin."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _read_part(call: Call, values: Sequence[Values]) -> Values:
    """A part of the date: year, month, quarter or day."""
    days = _days_of(values[0])
    months = _months_of(days)
    parts: dict[str, Callable[[], Numbers]] = {
        "year": lambda: months // 12 + 1970,
        "month": lambda: months % 12 + 1,
        "quarter": lambda: months % 12 // 3 + 1,
        "day": lambda: days - _first_days(months) + 1,
    }
    return masked_array(parts[call.function](), values[0].is_valid(), call.type)


def _read_time(call: Call, values: Sequence[Values]) -> Values:
    """A part of the time of day."""
    unit = _MICROSECONDS[call.function]
    count = whole_numbers(values[0]) // unit % (24 if call.function == "hour" else 60)
    return masked_array(count, values[0].is_valid(), call.type)


def _truncate_instant(call: Call, values: Sequence[Values]) -> Values:
    unit = DATE_TRUNC_UNITS[str(literal_value(call.arguments[0])).upper()]
    if unit in _MICROSECONDS:
        instants = whole_numbers(values[1])
        begun = instants - instants % _MICROSECONDS[unit]
    else:
        begun = _truncate_days(_days_of(values[1]), unit) * _DAY
    return masked_array(begun, values[1].is_valid(), call.type)


def _truncate_date(call: Call, values: Sequence[Values]) -> Values:
    unit = TRUNC_UNITS[str(literal_value(call.arguments[1])).upper()]
    days = _truncate_days(_days_of(values[0]), unit)
    return masked_array(days, values[0].is_valid(), call.type)


def _truncate_days(days: Numbers, unit: str) -> Numbers:
    if unit == "week":
        return days - (days + _MONDAY - 1) % 7
    months = _months_of(days)
    return _first_days(months - months % _MONTHS[unit])


def _count_days(call: Call, values: Sequence[Values]) -> Values:
    later, earlier = _wide_columns(values)
    return masked_array(
        whole_numbers(later) - whole_numbers(earlier), _all_valid(values), call.type
    )


def _add_days(call: Call, values: Sequence[Values]) -> Values:
    """Days after a date; Spark lets what is too far begin again at the other end."""
    date, days = _wide_columns(values)
    return masked_array(whole_numbers(date) + whole_numbers(days), _all_valid(values), call.type)


def _add_months(call: Call, values: Sequence[Values]) -> Values:
    """The same day some months later, or the last of the month if that has fewer days."""
    date, count = _wide_columns(values)
    found, valid = shift_months(whole_numbers(date), whole_numbers(count)), _all_valid(values)
    outside = (found < -(2**31)) | (found >= 2**31)
    if (outside & valid.to_numpy(zero_copy_only=False)).any():
        raise overflow_error(call.type)
    return masked_array(found, valid, call.type)


def shift_months(days: Numbers, count: Numbers) -> Numbers:
    """Days since 1970 some months later: the same day of the month, or the last if it has fewer.

    >>> shift_months(np.array([30]), np.array([1])).tolist()
    [58]
    """
    months = _months_of(days)
    later = months + count
    day = np.minimum(days - _first_days(months), _first_days(later + 1) - _first_days(later) - 1)
    return _first_days(later) + day


def _add_microseconds(call: Call, values: Sequence[Values]) -> Values:
    """A moment some microseconds later, as days of 24 hours: all is in UTC."""
    moments, count = whole_numbers(values[0]), int(str(literal_value(call.arguments[1])))
    valid = values[0].is_valid()
    beyond = moments > _LAST - count if count > 0 else moments < -_LAST - 1 - count
    if (beyond & valid.to_numpy(zero_copy_only=False)).any():
        raise overflow_error(call.type)
    return masked_array(moments + np.where(beyond, 0, count), valid, call.type)


def _wide_columns(values: Sequence[Values]) -> list[Values]:
    rows = max(len(value) for value in values if not is_constant(value))
    return [repeat_constant(value, rows) for value in values]


def _all_valid(values: Sequence[Values]) -> Values:
    one, other = (value.is_valid() for value in _wide_columns(values))
    return pc.and_(one, other)


DATE_WORDS: dict[str, Callable[[Call, Sequence[Values]], Values]] = {
    **dict.fromkeys(("year", "month", "day", "quarter"), _read_part),
    **dict.fromkeys(("hour", "minute", "second"), _read_time),
    "date_trunc": _truncate_instant,
    "trunc": _truncate_date,
    "datediff": _count_days,
    "date_add": _add_days,
    "add_months": _add_months,
    "timestamp_add": _add_microseconds,
}
