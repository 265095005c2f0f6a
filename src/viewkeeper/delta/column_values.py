"""What the words of the kernel share: columns and constants, comparisons, Python row by row.

A value is an Arrow array, or a scalar where it is the same for all rows. Arrow's compute functions
take both. Comparisons are Spark's: NaN is equal to itself and greater than every number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc

Values = Any
"""An Arrow array or scalar; pyarrow's compute functions take both."""


def is_constant(value: Values) -> bool:
    """Whether the value is the same for all rows."""
    return isinstance(value, pa.Scalar)


def repeat_constant(value: Values, rows: int) -> Values:
    """The value as an array of so many rows."""
    return pa.repeat(value, rows) if is_constant(value) else value


def map_rows(
    function: Callable[..., object], values: Sequence[Values], kind: pa.DataType
) -> pa.Array[Any]:
    """A Python function of each row's values; NULL where one of them is.

    >>> map_rows(lambda a, b: a * b, [pa.array([2, None]), pa.scalar(3)], pa.int64()).to_pylist()
    [6, None]
    """
    rows = max((len(value) for value in values if not is_constant(value)), default=1)
    columns = [_python_column(value, rows) for value in values]
    results: list[Any] = [
        None if any(each is None for each in row) else function(*row)
        for row in zip(*columns, strict=True)
    ]
    return pa.array(results, kind)


def _python_column(value: Values, rows: int) -> Sequence[Any]:
    return [value.as_py()] * rows if is_constant(value) else value.to_pylist()


def map_distinct(
    function: Callable[[Any], object], values: pa.Array[Any], kind: pa.DataType
) -> Values:
    """A Python function of each row's value, asked once for each that occurs."""
    encoded: Any = values.dictionary_encode()
    return map_rows(function, [encoded.dictionary], kind).take(encoded.indices)


def is_not_number(value: Values) -> Values | None:
    """Where the value is NaN; None for types that have none."""
    return pc.is_nan(value) if pa.types.is_floating(value.type) else None


def equal_values(left: Values, right: Values) -> Values:
    left_nan, right_nan = is_not_number(left), is_not_number(right)
    same = pc.equal(left, right)
    if left_nan is None or right_nan is None:
        return same
    return pc.or_kleene(same, pc.and_kleene(left_nan, right_nan))


def less_values(left: Values, right: Values) -> Values:
    left_nan, right_nan = is_not_number(left), is_not_number(right)
    less = pc.less(left, right)
    if left_nan is None or right_nan is None:
        return less
    return pc.or_kleene(less, pc.and_kleene(right_nan, pc.invert(left_nan)))


def null_safe_equal(left: Values, right: Values) -> Values:
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both_null, pc.fill_null(equal_values(left, right), False))
