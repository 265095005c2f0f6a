"""Texts and decimals in decimal types: the number that Python's Decimal reads, or refused.

Arrow's own cast takes some of these for other numbers, and ends the process at others; the numbers
here lie as often beyond their type as in it.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from viewkeeper.delta.exact_cast import decimals_of, exact_cast

EXACT = decimal.Context(prec=400, Emin=-(10**9), Emax=10**9)

types = st.integers(1, 38).flatmap(
    lambda digits: st.builds(pa.decimal128, st.just(digits), st.integers(0, digits))
)
digits = st.text("0123456789", max_size=60)
exponents = st.one_of(st.just(""), st.builds("e{}".format, st.integers(-120, 120)))
numbers = st.builds(
    lambda sign, whole, fraction, exponent: f"{sign}{whole}{fraction}{exponent}",
    st.sampled_from(["", "-", "+"]),
    digits,
    st.one_of(st.just(""), st.builds(".{}".format, digits)),
    exponents,
)


def wanted(text: str, kind: Any) -> decimal.Decimal | None:
    """The number that a text says, if it is one of the type."""
    number = decimal.Decimal(text, EXACT)
    if not number:
        return number
    shortest = number.normalize(EXACT)
    exponent = shortest.as_tuple().exponent
    assert isinstance(exponent, int)
    fits = exponent >= -kind.scale and shortest.adjusted() < kind.precision - kind.scale
    return number if fits else None


def found(read: Callable[[], Any]) -> Any:
    """The only value of an array; None if it was refused."""
    try:
        (value,) = read().to_pylist()
    except ValueError:
        return None
    return value


@given(numbers.filter(lambda text: any(c.isdigit() for c in text.partition("e")[0])), types)
@example("9" * 37 + ".99", pa.decimal128(38, 2))
@example("1e-41", pa.decimal128(10, 2))
@example("0." + "0" * 60, pa.decimal128(5, 1))
def test_a_text_is_the_number_that_it_says_or_refused(text: str, kind: pa.DataType) -> None:
    assert found(lambda: decimals_of(pa.array([text]), kind)) == wanted(text, kind)


@given(st.lists(numbers, min_size=1, max_size=20), types)
def test_many_texts_are_what_each_is_alone(texts: list[str], kind: pa.DataType) -> None:
    each = [found(partial(decimals_of, pa.array([text]), kind)) for text in texts]
    good = [text for text, value in zip(texts, each, strict=True) if value is not None]
    values = [None, *(value for value in each if value is not None)]
    assert decimals_of(pa.array([None, *good], pa.string()), kind).to_pylist() == values


ODD = ("", "+", ".", "e5", "1e", "1e+", " 1", "1 ", "1\n", "1_0", "1,5", "--1", "NaN", "inf", "0x1")
FAR = ("1e-99999999", "1e99999999", "1e-99999999999999999999", "1" * 5000, "٣", "１", "1\0", "²")


@pytest.mark.parametrize("text", [*ODD, *FAR])
def test_what_is_no_number_of_the_type_is_refused(text: str) -> None:
    assert found(lambda: decimals_of(pa.array([text]), pa.decimal128(10, 2))) is None
    assert found(lambda: decimals_of(pa.array(["1.00"]), pa.decimal128(10, 2))) == 1


@given(st.integers(-(10**38) + 1, 10**38 - 1), types, types)
def test_a_decimal_in_another_type_is_itself_or_refused(
    unscaled: int, stored: Any, kind: Any
) -> None:
    value = decimal.Decimal(unscaled).scaleb(-stored.scale, EXACT)
    values = pa.chunked_array([pa.array([value], pa.decimal128(38, stored.scale))])
    assert found(lambda: exact_cast(values, kind)) == wanted(str(value), kind)


def test_floating_point_numbers_are_not_rounded() -> None:
    assert exact_cast(pa.array([0.5, None]), pa.float32()).to_pylist() == [0.5, None]
    assert found(lambda: exact_cast(pa.array([0.1]), pa.float32())) is None
    assert found(lambda: exact_cast(pa.array([0.5]), pa.decimal128(10, 2))) is None
