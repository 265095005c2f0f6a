"""Decimals as Spark computes with them: 38 digits, ties away from zero, overflow an error.

Arrow adds and multiplies decimals in 76 digits, in which whatever Spark rounds is exact before it
is rounded, and rounds those of 38 rightly. What is longer, quotients and remainders are computed in
Python, row by row.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.column_values import Values, map_rows
from viewkeeper.delta.row_errors import division_error, overflow_error
from viewkeeper.view.kernel_words import DIGITS_MAX

_ROOM = 76
_UP = decimal.ROUND_HALF_UP
_EXACT = decimal.Context(prec=200, rounding=_UP, Emin=-999, Emax=999)
_CUT = decimal.Context(prec=200, rounding=decimal.ROUND_DOWN, Emin=-999, Emax=999)
_PRODUCT = decimal.Context(prec=39, rounding=decimal.ROUND_DOWN, Emin=-999, Emax=999)
"""Spark cuts a product to so many digits before it rounds it to the type of the result."""
_QUOTIENT_UNIT = decimal.Decimal(1).scaleb(-39)
"""Digits after the point at which Spark cuts a quotient before it rounds that."""
_PLAIN_DIGITS = 15
"""So many digits are exact in a double, and so is a power of ten of the same size."""


def round_decimals(values: Values, places: int, kind: Any) -> Values:
    """Values rounded to some places and brought to a decimal type with room for those."""
    try:
        return _round_quickly(values, places, kind)
    except pa.ArrowInvalid:
        unit = decimal.Decimal(1).scaleb(-places)
        return map_rows(lambda one: _round_number(_EXACT.quantize(one, unit), kind), [values], kind)


def _round_quickly(values: Values, places: int, kind: Any) -> Values:
    """The same by Arrow; ArrowInvalid where that takes more than 38 digits, or does not fit.

    Not in 76 digits, where there is room: Arrow's division is wrong there now and then.
    """
    own = values.type
    rounded = pc.cast(values, pa.decimal128(DIGITS_MAX, own.scale))
    if -places > own.precision - own.scale:
        # Less than half of what it is rounded to.
        zero: Any = pa.scalar(0, rounded.type)
        rounded = pc.if_else(pc.is_valid(rounded), zero, rounded)
    elif places < own.scale:
        _refuse_full_digits(rounded, places)
        rounded = pc.round(rounded, ndigits=places, round_mode="half_towards_infinity")
    if own.scale > kind.scale:
        rounded = pc.cast(rounded, pa.decimal128(DIGITS_MAX, kind.scale))
    elif own.scale < kind.scale:
        rounded = pc.cast(rounded, pa.decimal256(_ROOM, kind.scale))
    return pc.cast(rounded, kind)


def _refuse_full_digits(values: Values, places: int) -> None:
    """ArrowInvalid where rounding could need a digit that there is no room for: Arrow itself gives
    zero for such a value, and an error only if it is the last one."""
    most = _EXACT.subtract(
        decimal.Decimal(1).scaleb(DIGITS_MAX - values.type.scale),
        decimal.Decimal(1).scaleb(-places),
    )
    found = pc.min_max(values).as_py()
    if any(each is not None and abs(each) >= most for each in found.values()):
        raise pa.ArrowInvalid("no room for a digit more")


def fit_integers(values: Values, kind: Any) -> Values:
    """Integers as decimals, if they fit."""
    try:
        digits = pc.cast(values, pa.decimal256(DIGITS_MAX, 0))
        return pc.cast(pc.cast(digits, pa.decimal256(_ROOM, kind.scale)), kind)
    except pa.ArrowInvalid:
        raise overflow_error(kind) from None


def divide_decimals(values: Sequence[Values], kind: Any) -> Values:
    """Quotients, cut and then rounded as Spark does."""

    def divide(one: decimal.Decimal, other: decimal.Decimal) -> decimal.Decimal:
        if not other:
            raise division_error()
        long = _CUT.quantize(_CUT.divide(one, other), _QUOTIENT_UNIT)
        return _round_number(long, kind)

    return map_rows(divide, values, kind)


def take_remainders(values: Sequence[Values], kind: Any) -> Values:
    """Remainders, with the sign of the dividend."""

    def take_remainder(one: decimal.Decimal, other: decimal.Decimal) -> decimal.Decimal:
        if not other:
            raise division_error()
        return _round_number(_EXACT.remainder(one, other), kind)

    return map_rows(take_remainder, values, kind)


def calculate_decimals(operator: str, left: Values, right: Values, kind: Any) -> Values:
    """A sum, difference or product whose type Spark has cut to 38 digits."""
    exact = _calculate_exactly(operator, left, right)
    if exact is not None and (operator != "*" or _is_short(exact)):
        return round_decimals(exact, kind.scale, kind)
    calculate = {"+": _EXACT.add, "-": _EXACT.subtract, "*": _PRODUCT.multiply}[operator]
    return map_rows(lambda *sides: _round_number(calculate(*sides), kind), [left, right], kind)


def _calculate_exactly(operator: str, left: Values, right: Values) -> Values | None:
    """All digits of the results; None where there may be more than Arrow's decimals hold."""
    wide = [pc.cast(side, pa.decimal256(*_size_of(side.type))) for side in (left, right)]
    calculate = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[operator]
    try:
        return calculate(*wide)
    except pa.ArrowInvalid:
        return None


def _size_of(kind: Any) -> tuple[int, int]:
    return kind.precision, kind.scale


def _is_short(product: Values) -> bool:
    """Whether no product has so many digits that Spark cuts it before it rounds."""
    try:
        pc.cast(product, pa.decimal256(_PRODUCT.prec, product.type.scale))
    except pa.ArrowInvalid:
        return False
    return True


def _scale_number(value: decimal.Decimal, scale: int) -> decimal.Decimal:
    return _EXACT.quantize(value, decimal.Decimal(1).scaleb(-scale))


def _round_number(value: decimal.Decimal, kind: Any) -> decimal.Decimal:
    rounded = _scale_number(value, kind.scale)
    if rounded and rounded.adjusted() >= kind.precision - kind.scale:
        raise overflow_error(kind)
    return rounded


def doubles_of(values: Values) -> Values:
    """Decimals as the nearest doubles; Arrow's own cast may miss them by the last digit."""
    if values.type.precision > _PLAIN_DIGITS:
        return map_rows(float, [values], pa.float64())
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(_unscaled_numbers(values) / 10.0**values.type.scale, mask=~valid)


def _unscaled_numbers(values: Values) -> Any:
    """Decimals of at most 18 digits, as the integers in which Arrow keeps them."""
    words = np.frombuffer(values.buffers()[1], np.dtype("<i8"))
    return words[2 * values.offset : 2 * (values.offset + len(values)) : 2].astype(np.float64)


def texts_of(values: Values) -> Values:
    """Decimals as texts without an exponent."""
    if values.type.scale <= 6:
        return pc.cast(values, pa.string())
    return map_rows(lambda value: format(value, "f"), [values], pa.string())
