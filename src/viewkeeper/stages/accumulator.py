"""What is kept for each group so that aggregate functions can be computed from it.

An accumulator is linear: it is a sum over the group's rows, so that signed rows can be added to it
in any order and in any parts. It counts rows, or sums a column or a product of two, over rows that
have a value in all `arguments`. NaN and infinities cannot be summed and are counted apart.

What min and max keep is not linear; `viewkeeper.stages.extreme` has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from typing import Literal as OneOf

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT
from viewkeeper.stages.exact_floats import (
    Amounts,
    decode_amounts,
    encode_amounts,
    scale_amounts,
    split_doubles,
)
from viewkeeper.stages.exact_numbers import (
    LIMIT,
    Numbers,
    decimal_array,
    numbers_of,
    plain_array,
    reach_of,
    valid_mask,
    wide_array,
    wide_numbers_of,
)
from viewkeeper.view.definition import Field

Mask = npt.NDArray[np.bool_]

DIGITS = 38
"""Digits of a stored decimal."""
_SHORT = DIGITS - 10
"""Digits of decimals of which ten thousand million can be summed in a stored one."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A sum over the rows of a group for which `where` is true and no argument is NULL.

    A `count` counts these rows; `true` and `false` those whose argument is so; `nan`, `above` and
    `below` those whose argument is NaN or an infinity, `odd` those with such a value in a factor.
    A `sum` adds the product of `factors`, over rows in which they are all finite.
    """

    measure: OneOf["count", "true", "false", "nan", "above", "below", "odd", "sum"]
    arguments: tuple[Field, ...] = ()
    where: str | None = None
    factors: tuple[Field, ...] = ()

    @property
    def is_binary(self) -> bool:
        """Whether no type of a number has room for it: sums of doubles, and of long decimals."""
        if self.measure != "sum":
            return False
        kind: Any = self.factors[0].type
        if pa.types.is_decimal(kind):
            return bool(kind.precision > _SHORT)
        return pa.types.is_floating(kind)

    @property
    def stored_type(self) -> pa.DataType:
        """The type of the column in a stored table."""
        if self.measure != "sum":
            return pa.int64()
        kind: Any = self.factors[0].type
        if self.is_binary:
            return pa.binary()
        return pa.decimal128(DIGITS, kind.scale if pa.types.is_decimal(kind) else 0)

    @property
    def partial_type(self) -> pa.DataType:
        """The type of the column in partials, where a sum may be larger than any that is stored."""
        return pa.binary() if self.measure == "sum" else pa.int64()


ROWS = Accumulator("count")
"""The number of rows of a group."""


def measure_rows(accumulator: Accumulator, rows: pa.Table) -> Amounts:
    """What each signed row adds to an accumulator."""
    counts = numbers_of(rows[COUNT])
    if accumulator == ROWS:
        return Amounts(counts)
    taken = _taken_rows(accumulator, rows)
    if accumulator.measure != "sum":
        return Amounts(np.where(taken, counts, 0))
    factors = [_factor_of(field, taken, rows) for field in accumulator.factors]
    product = factors[0] if len(factors) == 1 else factors[0].multiply_with(factors[1])
    return product.multiply_by(counts)


def _taken_rows(accumulator: Accumulator, rows: pa.Table) -> Mask:
    """Which rows count."""
    taken = where_mask(accumulator.where, rows)
    for field in accumulator.arguments:
        taken = taken & valid_mask(plain_array(rows[field.name]))
    if accumulator.measure in _PICKS:
        (field,) = accumulator.arguments
        picked: Mask = _PICKS[accumulator.measure](plain_array(rows[field.name]))
        return taken & picked
    finite = np.ones(rows.num_rows, np.bool_)
    for field in accumulator.factors:
        if pa.types.is_floating(field.type):
            finite &= np.isfinite(_floats_of(plain_array(rows[field.name])))
    return taken & (~finite if accumulator.measure == "odd" else finite)


def where_mask(where: str | None, rows: pa.Table) -> Mask:
    """Which rows a call looks at."""
    if where is None:
        return np.ones(rows.num_rows, np.bool_)
    return _truths_of(plain_array(rows[where]))


def _truths_of(array: Any) -> Mask:
    return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False))


def _floats_of(array: Any) -> npt.NDArray[np.float64]:
    filled = array.fill_null(0.0) if array.null_count else array
    return np.asarray(filled).astype(np.float64, copy=False)


_PICKS: Any = {
    "true": _truths_of,
    "false": lambda array: ~_truths_of(array),
    "nan": lambda array: np.isnan(_floats_of(array)),
    "above": lambda array: np.isposinf(_floats_of(array)),
    "below": lambda array: np.isneginf(_floats_of(array)),
}


def _factor_of(field: Field, taken: Mask, rows: pa.Table) -> Amounts:
    """The numbers of a column; zero where the row does not count."""
    array = plain_array(rows[field.name])
    if pa.types.is_floating(field.type):
        return split_doubles(np.where(taken, _floats_of(array), 0.0))
    numbers = numbers_of(array)
    return Amounts(numbers if taken.all() else np.where(taken, numbers, 0))


def read_stored(accumulator: Accumulator, column: Any) -> Amounts:
    """A column of a stored table as numbers."""
    if not accumulator.is_binary:
        return Amounts(numbers_of(column))
    found = decode_amounts(column)
    return found if _sums_floats(accumulator) else scale_amounts(found, 0)


def write_stored(accumulator: Accumulator, amounts: Amounts) -> pa.Array[Any]:
    """Numbers as a column of a stored table; an OverflowError if one is too large.

    >>> write_stored(ROWS, Amounts(np.array([1, 2]))).to_pylist()
    [1, 2]
    """
    if accumulator.is_binary:
        return encode_amounts(amounts)
    if accumulator.measure == "sum":
        return decimal_array(amounts.numbers, accumulator.stored_type)
    return pa.array(_counts_of(amounts.numbers), pa.int64())


def read_partial(accumulator: Accumulator, column: Any) -> Amounts:
    """A column of partials as numbers."""
    if accumulator.measure != "sum":
        return Amounts(numbers_of(column))
    return decode_amounts(column) if _sums_floats(accumulator) else Amounts(wide_numbers_of(column))


def write_partial(accumulator: Accumulator, amounts: Amounts) -> pa.Array[Any]:
    """Numbers as a column of partials."""
    if accumulator.measure != "sum":
        return pa.array(_counts_of(amounts.numbers), pa.int64())
    return encode_amounts(amounts) if _sums_floats(accumulator) else wide_array(amounts.numbers)


def _sums_floats(accumulator: Accumulator) -> bool:
    return pa.types.is_floating(accumulator.factors[0].type)


def _counts_of(numbers: Numbers) -> Numbers:
    if numbers.dtype == object and reach_of(numbers) >= LIMIT:
        raise OverflowError("a count of rows needs more than 64 bits")
    return numbers.astype(np.int64)
