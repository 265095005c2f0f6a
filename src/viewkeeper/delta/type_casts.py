"""CAST as Spark's ANSI mode does it: what does not fit is an error, ties go away from zero.

Arrow's casts are asked where they are exact; its texts of instants, its doubles of decimals and its
truncated floats are not Spark's, and are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as is_type

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.column_values import Values, map_distinct, map_rows
from viewkeeper.delta.date_words import masked_array, whole_numbers
from viewkeeper.delta.decimal_values import doubles_of, fit_integers, round_decimals, texts_of
from viewkeeper.delta.row_errors import overflow_error
from viewkeeper.view.expression import Call

_DAY = 86_400_000_000


def _cast_values(call: Call, values: Sequence[Values]) -> Values:
    value, kind = values[0], call.type
    own = value.type
    if own == kind:
        return value
    if is_type.is_decimal(own):
        return _cast_decimals(value, kind)
    if is_type.is_temporal(own):
        return _cast_dates(value, kind)
    if is_type.is_decimal(kind):
        return fit_integers(value, kind)
    if is_type.is_floating(own) and is_type.is_integer(kind):
        return _truncate_floats(value, kind)
    return _cast_plainly(value, kind)


def _cast_plainly(value: Values, kind: pa.DataType) -> Values:
    try:
        return pc.cast(value, kind, safe=not is_type.is_floating(kind))
    except pa.ArrowInvalid:
        raise overflow_error(kind) from None


def _cast_decimals(value: Values, kind: Any) -> Values:
    if is_type.is_decimal(kind):
        return round_decimals(value, kind.scale, kind)
    if is_type.is_floating(kind):
        return doubles_of(value)
    if is_type.is_string(kind):
        return texts_of(value)
    bound = 1 << (kind.bit_width - 1)

    def truncate(number: Any) -> int:
        whole = int(number)
        if not -bound <= whole < bound:
            raise overflow_error(kind)
        return whole

    return map_rows(truncate, [value], kind)


def _truncate_floats(value: Values, kind: Any) -> Values:
    """Without what is behind the point; NaN and what is too large are errors."""
    wide = pc.trunc(pc.cast(value, pa.float64()))
    bound = float(1 << (kind.bit_width - 1))
    fits = pc.and_(pc.greater_equal(wide, -bound), pc.less(wide, bound))
    if not pc.all(fits, min_count=0).as_py():
        raise overflow_error(kind)
    return pc.cast(wide, kind)


def _cast_dates(value: Values, kind: pa.DataType) -> Values:
    if is_type.is_string(kind):
        text = _instant_text if is_type.is_timestamp(value.type) else _date_text
        return map_distinct(text, whole_array(value), kind)
    numbers = whole_numbers(value)
    if is_type.is_timestamp(value.type) and is_type.is_date(kind):
        numbers = numbers // _DAY
    elif is_type.is_date(value.type):
        numbers = _instants_of(numbers, kind)
    return masked_array(numbers, value.is_valid(), kind)


def _instants_of(days: Any, kind: pa.DataType) -> Any:
    if len(days) and np.abs(days).max() >= 2**63 // _DAY:
        raise overflow_error(kind)
    return days * _DAY


def whole_array(value: Values) -> Values:
    """Dates as days and instants as microseconds, NULL where they are."""
    kind = pa.int64() if is_type.is_timestamp(value.type) else pa.int32()
    return masked_array(whole_numbers(value), value.is_valid(), kind)


def _date_text(days: int) -> str:
    """A date by its day, with a sign beyond the year 9999 as Java writes it."""
    month = np.datetime64(days, "D").astype("datetime64[M]")
    count = int(month.astype(np.int64))
    day = days - int(month.astype("datetime64[D]").astype(np.int64)) + 1
    return f"{_year_text(count // 12 + 1970)}-{count % 12 + 1:02}-{day:02}"


def _year_text(year: int) -> str:
    if year > 9999:
        return f"+{year}"
    return f"{year:04}" if year >= 0 else f"-{-year:04}"


def _instant_text(instant: int) -> str:
    """An instant with as many digits of its second as it needs."""
    days, rest = divmod(instant, _DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    digits = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{_date_text(days)} {clock}{digits}"


CAST_WORDS: dict[str, Callable[[Call, Sequence[Values]], Values]] = {"cast": _cast_values}
