"""Words about numbers: operators that may fail, signs, rounding.

Spark evaluates them in ANSI mode: what overflows or divides by zero is an error, also for doubles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as is_type

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.column_values import Values, is_constant, repeat_constant
from viewkeeper.delta.decimal_values import divide_decimals, round_decimals, take_remainders
from viewkeeper.delta.row_errors import division_error, overflow_error
from viewkeeper.view.expression import Call
from viewkeeper.view.kernel_words import literal_value


def _take_remainder(call: Call, values: Sequence[Values]) -> Values:
    if is_type.is_decimal(call.type):
        return take_remainders(values, call.type)
    _refuse_zeros(values)
    if is_type.is_integer(call.type):
        # The least number divided by -1 overflows; its remainder does not, and is that by 1.
        divisor = pc.if_else(pc.equal(values[1], -1), pa.scalar(1, call.type), values[1])
        return _remainder_of(values[0], _nonzero_values(divisor))
    return _float_remainder(call, values)


def _remainder_of(one: Values, other: Values) -> Values:
    return pc.subtract(one, pc.multiply(pc.divide(one, other), other))


def _nonzero_values(divisor: Values) -> Values:
    """A zero beside a NULL is left over; what comes of it is NULL."""
    return pc.if_else(pc.equal(divisor, 0), pa.scalar(None, divisor.type), divisor)


def _float_remainder(call: Call, values: Sequence[Values]) -> Values:
    rows = max(len(value) for value in values if not is_constant(value))
    one, other = (repeat_constant(value, rows) for value in values)
    with np.errstate(all="ignore"):
        found: Any = np.fmod(
            one.to_numpy(zero_copy_only=False), other.to_numpy(zero_copy_only=False)
        )
    missing = pc.or_(pc.is_null(one), pc.is_null(other)).to_numpy(zero_copy_only=False)
    return pa.array(found, call.type, mask=missing)


def _refuse_zeros(values: Sequence[Values]) -> None:
    dividend, divisor = values
    zero = pc.and_(pc.fill_null(pc.equal(divisor, 0), False), pc.is_valid(dividend))
    if zero.as_py() if is_constant(zero) else zero.true_count:
        raise division_error()


def _divide_values(call: Call, values: Sequence[Values]) -> Values:
    if is_type.is_decimal(call.type):
        return divide_decimals(values, call.type)
    _refuse_zeros(values)
    return pc.divide(*values)


def _change_sign(call: Call, values: Sequence[Values]) -> Values:
    checked = is_type.is_integer(call.type)
    if call.function == "abs":
        function = pc.abs_checked if checked else pc.abs
    else:
        function = pc.negate_checked if checked else pc.negate
    try:
        return function(values[0])
    except pa.ArrowInvalid:
        raise overflow_error(call.type) from None


def _round_values(call: Call, values: Sequence[Values]) -> Values:
    if is_type.is_integer(call.type):
        return values[0]
    places = literal_value(call.arguments[1]) if len(call.arguments) == 2 else 0
    assert isinstance(places, int)
    return round_decimals(values[0], places, call.type)


NUMBER_WORDS: dict[str, Callable[[Call, Sequence[Values]], Values]] = {
    "remainder": _take_remainder,
    "divide": _divide_values,
    **dict.fromkeys(("abs", "negate"), _change_sign),
    "round": _round_values,
}
