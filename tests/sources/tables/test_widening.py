"""Widening is what it says: every value of the old type is one of the new, and no others are."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from viewkeeper.delta.exact_cast import exact_cast
from viewkeeper.sources.tables.column_type import can_keep_values, classify_type_change, is_widening

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
DECIMALS = st.integers(1, 38).flatmap(
    lambda digits: st.builds(pa.decimal128, st.just(digits), st.integers(0, digits))
)
TYPES = st.one_of(
    DECIMALS,
    st.sampled_from([*INTEGERS, pa.float32(), pa.float64(), pa.string(), pa.date32(), pa.bool_()]),
)


@given(TYPES, TYPES)
def test_widening_is_an_order(one: pa.DataType, other: pa.DataType) -> None:
    assert not is_widening(one, one)
    assert not (is_widening(one, other) and is_widening(other, one))


@given(TYPES, TYPES, TYPES)
def test_widening_twice_is_widening(a: pa.DataType, b: pa.DataType, c: pa.DataType) -> None:
    if is_widening(a, b) and is_widening(b, c):
        assert is_widening(a, c)


def extremes(kind: Any) -> list[Any]:
    if pa.types.is_integer(kind):
        return [-(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1]
    nines = (9,) * kind.precision
    return [Decimal((sign, nines, -kind.scale)) for sign in (0, 1)] + [
        Decimal((0, (1,), -kind.scale))
    ]


@given(st.one_of(st.sampled_from(INTEGERS), DECIMALS), DECIMALS)
def test_a_wider_decimal_holds_the_extremes(old: pa.DataType, new: pa.DataType) -> None:
    values: Any = pa.array(extremes(old), old)
    if is_widening(old, new):
        assert exact_cast(values, new).to_pylist() == values.to_pylist()
    elif old != new and pa.types.is_decimal(old):
        with pytest.raises(ValueError, match=r"."):
            exact_cast(values, new)


def test_fewer_digits_need_less_room() -> None:
    assert classify_type_change(pa.int64(), pa.decimal128(10, 0)) == "change_type"
    assert classify_type_change(pa.int64(), pa.decimal128(10, 0), digits=10) == "widen_type"


def test_a_refused_type_keeps_nothing() -> None:
    assert classify_type_change(None, None) is None
    assert classify_type_change(pa.int64(), None) == "change_type"
    assert not can_keep_values(None, None)
    assert can_keep_values(pa.int64(), pa.int64())
