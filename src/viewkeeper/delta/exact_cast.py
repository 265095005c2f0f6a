"""Values in another type, exact or refused: what must hold before Arrow's own cast may be asked.

Arrow's casts to decimals believe what they are given. A text with more digits than 128 bits hold
comes out as another number, `1e-41` as 0, and an exponent far enough away ends the process; a
decimal that is brought to a larger scale may wrap around, and a floating-point number is rounded.
So every text is held against the type first, and every decimal goes through a type that has room.

    decimals_of(texts, type)       the numbers that texts say
    exact_cast(values, type)       values of any type in another one

Both raise a ValueError if a value is not one of the type: too many digits before the point, digits
other than zero beyond the scale, blanks, underscores, digits of other scripts, NaN, infinities.
(What Arrow raises, `ArrowInvalid`, is a ValueError.)
"""

from __future__ import annotations

import decimal
import functools
import re
from typing import Any

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc

_ROOM = 76
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,12})?")


def decimals_of(texts: Any, target: pa.DataType) -> pa.Array[Any]:
    """An array of texts as decimals.

    >>> decimals_of(pa.array(["12.50", "-.5", "1e2", None]), pa.decimal128(5, 2)).to_pylist()
    [Decimal('12.50'), Decimal('-0.50'), Decimal('100.00'), None]
    >>> decimals_of(pa.array(["1000.00"]), pa.decimal128(5, 2))
    Traceback (most recent call last):
    ...
    ValueError: '1000.00' is no decimal128(5, 2)
    """
    plain = pc.match_substring_regex(texts, _readable_pattern(target))
    if not pc.all(plain, min_count=0).as_py():
        odd = pc.invert(plain)
        spelled = [_plain_text(text, target) for text in texts.filter(odd).to_pylist()]
        texts = pc.replace_with_mask(texts, odd.fill_null(False), pa.array(spelled, texts.type))
    found: pa.Array[Any] = texts.cast(target)
    return found


@functools.cache
def _readable_pattern(target: Any) -> str:
    """Texts that Arrow reads rightly: as many digits on both sides of the point as the type has."""
    whole, places = target.precision - target.scale, target.scale
    return rf"^[+-]?0*[0-9]{{0,{whole}}}(\.[0-9]{{0,{places}}})?$"


def _plain_text(text: str, target: Any) -> str:
    """A number with an exponent, or with zeros beyond the scale, as a text without."""
    if _NUMBER.fullmatch(text) is not None:
        number = decimal.Decimal(text)
        sign, parts, exponent = number.as_tuple()
        assert isinstance(exponent, int), "a finite number has an exponent"
        digits = "".join(map(str, parts))
        bare = digits.rstrip("0")
        if not bare:
            return "0"
        last = exponent + len(digits) - len(bare)
        if last >= -target.scale and number.adjusted() < target.precision - target.scale:
            return ("-" if sign else "") + _positional_text(bare, last)
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    raise ValueError(f"{shown!r} is no {target}")


def _positional_text(digits: str, last: int) -> str:
    """A number whose last digit counts 10 ** last, without an exponent."""
    if last >= 0:
        return digits + "0" * last
    padded = digits.rjust(1 - last, "0")
    return f"{padded[:last]}.{padded[last:]}"


def exact_cast(values: Any, target: pa.DataType) -> Any:
    """An array, chunked or not, in another type.

    >>> exact_cast(pa.array([decimal.Decimal("1.50")]), pa.decimal128(38, 3)).to_pylist()
    [Decimal('1.500')]
    >>> exact_cast(pa.array([0.1]), pa.decimal128(38, 3))
    Traceback (most recent call last):
    ...
    ValueError: values of type double are not exact as decimal128(38, 3)
    """
    wanted: Any = target
    if values.type == target:
        return values
    if isinstance(values, pa.ChunkedArray):
        chunks: Any = [exact_cast(each, target) for each in values.chunks]
        return pa.chunked_array(chunks, wanted)
    if not pa.types.is_decimal(target):
        return _narrow_floats(values) if target == pa.float32() else values.cast(target)
    if pa.types.is_string(values.type):
        return decimals_of(values, target)
    if pa.types.is_decimal(values.type):
        # Every decimal of 128 bits fits there in every scale; only then is its precision looked at.
        return values.cast(pa.decimal256(_ROOM, wanted.scale)).cast(target)
    if pa.types.is_floating(values.type):
        raise ValueError(f"values of type {values.type} are not exact as {target}")
    return values.cast(target)


def _narrow_floats(values: Any) -> Any:
    """Numbers in 32 bits, if none needs more."""
    kept = values.cast(pa.float32())
    if pa.types.is_float64(values.type):
        same = pc.or_(pc.equal(kept.cast(pa.float64()), values), pc.is_nan(values))
        if not pc.all(same, min_count=0).as_py():
            raise ValueError("a number needs more than 32 bits")
    return kept
