"""Masks over rows are those that Arrow makes, row by row, whatever is ruled out before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.warehouse.rows import row_masks
from viewkeeper.warehouse.rows.row_masks import find_values, take_masked

KINDS = st.sampled_from([pa.int8(), pa.int32(), pa.int64(), pa.uint64(), pa.date32(), pa.string()])
NUMBERS = st.lists(st.none() | st.integers(0, 100), max_size=20)


def mask_of(column: Any, values: Any) -> Any:
    return pc.is_in(column, value_set=values).to_pylist()


@given(KINDS, st.lists(NUMBERS, min_size=1, max_size=3), NUMBERS)
def test_values_are_found_as_arrow_finds_them(
    kind: pa.DataType, rows: list[list[int | None]], wanted: list[int | None]
) -> None:
    chunks = [pa.array(each, pa.int32()).cast(kind) for each in rows]
    column = pa.chunked_array(chunks)
    values = pc.unique(pa.array(wanted, pa.int32()).cast(kind))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_masks, "SIEVED_ROWS", 0)
        assert find_values(column, values).tolist() == mask_of(column, values)


@pytest.mark.parametrize("step", [1, 3, 2**20, 2**42, 11_400_714_819_323_198_485 - 2**64])
def test_numbers_in_steps_are_found(step: int) -> None:
    """Also where many of them have one place, and at both ends of what a number can be."""
    ends = np.array([-(2**63), 2**63 - 1, -1, 0])
    numbers = np.concatenate([np.arange(20_000) * np.int64(step), ends])
    column = pa.chunked_array([pa.array(numbers[:7_000]), pa.array(numbers[7_000:])])
    values = pa.array(np.unique(numbers[::97]))
    assert find_values(column, values).tolist() == mask_of(column, values)


def test_more_values_than_rows_are_found() -> None:
    column = pa.chunked_array([pa.array(np.arange(-10_000, 10_000))])
    values = pa.array(np.arange(5_000_000))
    assert find_values(column, values).tolist() == mask_of(column, values)


def test_no_values_are_found_nowhere() -> None:
    column = pa.chunked_array([pa.array([*range(row_masks.SIEVED_ROWS), None])])
    assert not find_values(column, pa.array([], pa.int64())).any()


@given(st.lists(st.booleans(), max_size=12), st.sampled_from([[], ["a", "b"]]))
def test_rows_are_taken_as_arrow_takes_them(mask: list[bool], names: list[str]) -> None:
    numbers = pa.array(range(len(mask)), pa.int64())
    rows = pa.table({"a": numbers, "b": numbers.cast(pa.string())})
    some = pa.concat_tables([rows.slice(0, 5), rows.slice(5)]).select(names)
    taken = take_masked(some, np.array(mask, bool))
    assert taken.equals(some.filter(pa.array(mask, pa.bool_())))
    assert taken.num_rows == sum(mask)


def test_where_all_rows_stay_none_is_copied() -> None:
    rows = pa.table({"a": ["x", "y"]})
    assert take_masked(rows, np.ones(2, bool)) is rows
