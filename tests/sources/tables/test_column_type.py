"""The first value that does not fit is found, and no other."""

from __future__ import annotations

import datetime
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from viewkeeper.errors import SchemaError
from viewkeeper.sources.tables.column_type import (
    ColumnRefusal,
    MisfitError,
    TableColumns,
    convert_or_blame,
    find_misfit,
    find_outside_calendar,
)
from viewkeeper.view.definition import Field


def as_integers(texts: Any) -> list[int]:
    return [int(text) for text in texts]


@given(st.lists(st.sampled_from(["1", "22", "x", ""]), min_size=1))
def test_the_first_misfit_is_found(texts: list[str]) -> None:
    wrong = [index for index, text in enumerate(texts) if not text.isdigit()]
    if wrong:
        assert find_misfit(texts, as_integers) == wrong[0]
        with pytest.raises(MisfitError) as caught:
            convert_or_blame(texts, as_integers, lambda n: MisfitError(n, texts[n], "an integer"))
        assert caught.value.index == wrong[0]
        assert str(caught.value) == f"{texts[wrong[0]]!r} is not an integer"
    else:
        assert convert_or_blame(texts, as_integers, lambda n: MisfitError(n, "")) == as_integers(
            texts
        )


@given(st.lists(st.one_of(st.none(), st.integers(-(2**62), 2**62))))
def test_times_outside_the_calendar_are_found(numbers: list[int | None]) -> None:
    first = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, datetime.UTC)
    zero, tick = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), datetime.timedelta(0, 0, 1)
    low, high = (first - zero) // tick, (last - zero) // tick
    outside = [n for n, each in enumerate(numbers) if each is not None and not low <= each <= high]
    values = pa.array(numbers, pa.int64()).cast(pa.timestamp("us", "UTC"))
    assert find_outside_calendar(values) == (outside[0] if outside else None)


def test_a_misfit_without_expectation_is_its_value() -> None:
    assert str(MisfitError(0, "0000-00-00")) == "0000-00-00"
    assert len(str(MisfitError(0, "x" * 1000, "text"))) < 100
    assert str(ColumnRefusal("no digits", "declare some")) == "no digits; declare some"


def test_missing_and_refused_columns_say_why() -> None:
    columns = TableColumns((Field("name", pa.string()),), {"odd": "it is nested"})
    assert columns.require_types("s", "t", ["name"]) == {"name": pa.string()}
    with pytest.raises(SchemaError, match="it is nested"):
        columns.require_types("s", "t", ["odd"])
    with pytest.raises(SchemaError) as caught:
        columns.require_types("s", "t", ["nam"])
    assert '"name"' in (caught.value.hint or "")
