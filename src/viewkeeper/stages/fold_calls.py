"""The aggregate functions of a fold: which types they take, what is kept for them, their values.

`fold_result_type` says whether, and with which type, a function can be folded. `accumulators_of`
and `extreme_of` say what is kept per group. `finish_call` computes the value from that, with
Spark's meaning and type: it is the only function that makes a shown value, at the load, inline and
in tasks, so a retraction has the very bits of the insertion.

Sums are exact until here and rounded once. Overflow is judged on the finished value and is an
`ExpressionError` that names the call, as in Spark's ANSI mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import ExpressionError
from viewkeeper.stages.accumulator import DIGITS, Accumulator, Mask
from viewkeeper.stages.exact_floats import (
    Amounts,
    align_amounts,
    divide_amounts,
    doubles_of,
    nearest_double,
    nearest_root,
)
from viewkeeper.stages.exact_numbers import (
    Numbers,
    Places,
    decimal_array,
    multiply_numbers,
    reach_of,
    widen_numbers,
)
from viewkeeper.stages.extreme import Extreme
from viewkeeper.view.definition import Field, FoldCall

Types = Sequence[pa.DataType]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FoldState:
    """What is kept of some groups, each at some ts: what calls are finished from."""

    amounts: Mapping[Accumulator, Amounts]
    extremes: Mapping[Extreme, tuple[Any, ...]]
    ts: Places

    def numbers_of(self, accumulator: Accumulator) -> Numbers:
        return self.amounts[accumulator].numbers


Finish = Callable[[FoldCall, FoldState], Any]


@dataclass(frozen=True, slots=True)
class CallRule:
    """One aggregate function: its type by those of its arguments, what it keeps, its value."""

    result: Callable[[Types], pa.DataType | None]
    kept: Callable[[FoldCall], tuple[Accumulator, ...]]
    finish: Finish
    extreme: bool | None = None
    """For functions that pick a row: whether it is the one with the largest value."""


def fold_result_type(function: str, arguments: Types) -> pa.DataType | None:
    """The type of a call's value; None if it cannot be folded.

    >>> fold_result_type("sum", [pa.int32()]), fold_result_type("sum", [pa.string()])
    (DataType(int64), None)
    """
    rule = RULES.get(function)
    return rule.result(arguments) if rule else None


def accumulators_of(call: FoldCall) -> tuple[Accumulator, ...]:
    """What is kept for a call and can be summed."""
    return RULES[call.function].kept(call)


def extreme_of(call: FoldCall) -> Extreme | None:
    """The row that is kept for min, max, min_by and max_by."""
    is_largest = RULES[call.function].extreme
    if is_largest is None:
        return None
    *shown, order = call.arguments
    return Extreme(is_largest, order, shown[0] if shown else None, call.where)


def text_of_call(call: FoldCall) -> str:
    """A call as errors name it."""
    return f"{call.function}({', '.join(field.name for field in call.arguments) or '*'})"


def finish_call(call: FoldCall, state: FoldState) -> Any:
    """The value of a call for each group of a state, as an Arrow array."""
    found = RULES[call.function].finish(call, state)
    assert found.type == call.type, f"{text_of_call(call)} is {found.type}, not {call.type}"
    return found


def overflow_error(what: str, kind: pa.DataType, state: FoldState, bad: Mask) -> ExpressionError:
    """The error for a value that its type cannot hold."""
    ts = int(state.ts[np.flatnonzero(bad)[0]])
    return ExpressionError(
        f"{what} overflowed: a value does not fit into {kind}",
        detail=f"at ts {ts}",
        hint="overflow is an error, as in Spark's ANSI mode; widen the type with CAST",
    )


# -- what is kept ----------------------------------------------------------------------------------


def _count_of(call: FoldCall) -> Accumulator:
    return Accumulator("count", call.arguments, call.where)


def _measure_of(call: FoldCall, measure: Any) -> Accumulator:
    return Accumulator(measure, call.arguments, call.where)


def _sum_of(call: FoldCall, *factors: Field) -> Accumulator:
    return Accumulator("sum", call.arguments, call.where, factors or call.arguments[:1])


def _keep_sum(call: FoldCall) -> tuple[Accumulator, ...]:
    kept = (_count_of(call), _sum_of(call))
    if not pa.types.is_floating(call.arguments[0].type):
        return kept
    return (*kept, *(_measure_of(call, measure) for measure in ("nan", "above", "below")))


def _keep_moments(call: FoldCall) -> tuple[Accumulator, ...]:
    """Sums of the arguments and of their products, and where they cannot be summed."""
    x, y = call.arguments[0], call.arguments[-1]
    own = [(x, x), (y, y)] if call.function == "corr" else []
    products: list[tuple[Field, ...]] = [(x,), (y,), (x, y), *own]
    sums = [_sum_of(call, *factors) for factors in dict.fromkeys(products)]
    return (_count_of(call), *(_odd_of(call, field) for field in dict.fromkeys((x, y))), *sums)


def _odd_of(call: FoldCall, field: Field) -> Accumulator:
    return Accumulator("odd", call.arguments, call.where, (field,))


def _keep_picks(*measures: str) -> Callable[[FoldCall], tuple[Accumulator, ...]]:
    return lambda call: tuple(_measure_of(call, measure) for measure in measures)


# -- types -----------------------------------------------------------------------------------------


def _is_number(kind: pa.DataType) -> bool:
    return (
        pa.types.is_signed_integer(kind)
        or pa.types.is_decimal128(kind)
        or kind in (pa.float32(), pa.float64())
    )


def _bounded_decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(min(precision, DIGITS), min(scale, DIGITS))


def _type_of_sum(types: Types) -> pa.DataType | None:
    if len(types) != 1 or not _is_number(types[0]):
        return None
    kind: Any = types[0]
    if pa.types.is_decimal(kind):
        return _bounded_decimal(kind.precision + 10, kind.scale)
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


def _type_of_average(types: Types) -> pa.DataType | None:
    if len(types) != 1 or not _is_number(types[0]):
        return None
    kind: Any = types[0]
    if pa.types.is_decimal(kind):
        return _bounded_decimal(kind.precision + 4, kind.scale + 4)
    return pa.float64()


def _type_of_moment(size: int) -> Callable[[Types], pa.DataType | None]:
    wanted = [pa.float64()] * size
    return lambda types: pa.float64() if list(types) == wanted else None


def _type_of_truth(result: pa.DataType) -> Callable[[Types], pa.DataType | None]:
    return lambda types: result if list(types) == [pa.bool_()] else None


def _has_order(kind: pa.DataType) -> bool:
    return (
        _is_number(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_timestamp(kind)
    )


def _type_of_extreme(size: int) -> Callable[[Types], pa.DataType | None]:
    def find_type(types: Types) -> pa.DataType | None:
        fine = len(types) == size and all(_has_order(kind) for kind in types)
        return types[0] if fine else None

    return find_type


# -- values ----------------------------------------------------------------------------------------


def _put_nulls(values: Any, empty: Mask) -> Any:
    """The values, NULL where nothing was counted."""
    if not empty.any():
        return values
    return pc.if_else(pa.array(~empty), values, pa.scalar(None, values.type))


def _finish_count(call: FoldCall, state: FoldState) -> Any:
    (kept,) = accumulators_of(call)
    return pa.array(state.numbers_of(kept).astype(np.int64))


def _finish_sum(call: FoldCall, state: FoldState) -> Any:
    kind: Any = call.type
    total = state.amounts[_sum_of(call)]
    empty = state.numbers_of(_count_of(call)) == 0
    if pa.types.is_floating(kind):
        return _put_nulls(pa.array(_with_odd(call, state, doubles_of(total))), empty)
    is_decimal = pa.types.is_decimal(kind)
    limit = 10**kind.precision if is_decimal else 1 << 63
    lowest = 1 - limit if is_decimal else -limit
    if reach_of(total.numbers) >= limit:
        bad = (total.numbers < lowest) | (total.numbers >= limit)
        if bad.any():
            raise overflow_error(text_of_call(call), kind, state, bad)
    if is_decimal:
        return _put_nulls(decimal_array(total.numbers, kind), empty)
    return _put_nulls(pa.array(total.numbers.astype(np.int64)), empty)


def _finish_average(call: FoldCall, state: FoldState) -> Any:
    total, counts = state.amounts[_sum_of(call)], state.numbers_of(_count_of(call))
    empty, divisors = counts == 0, np.maximum(counts, 1)
    if not pa.types.is_decimal(call.type):
        quotients = divide_amounts(total, divisors)
        if pa.types.is_floating(call.arguments[0].type):
            quotients = _with_odd(call, state, quotients)
        return _put_nulls(pa.array(quotients), empty)
    kind: Any = call.type
    argument: Any = call.arguments[0].type
    scaled = multiply_numbers(total.numbers, np.array([10 ** (kind.scale - argument.scale)]))
    quotients = divide_half_up(scaled, divisors)
    if reach_of(quotients) >= 10**kind.precision:
        bad = np.abs(quotients) >= 10**kind.precision
        raise overflow_error(text_of_call(call), kind, state, bad)
    return _put_nulls(decimal_array(quotients, kind), empty)


def divide_half_up(numbers: Numbers, divisors: Numbers) -> Numbers:
    """Quotients by positive numbers, rounded to the nearest whole one, halves away from zero.

    >>> divide_half_up(np.array([5, -5, 4]), np.array([2, 2, 3])).tolist()
    [3, -3, 1]
    """
    if numbers.dtype == object or 2 * reach_of(numbers) + reach_of(divisors) >= 1 << 63:
        numbers, divisors = widen_numbers(numbers), widen_numbers(divisors)
    rounded: Numbers = (2 * np.abs(numbers) + divisors) // (2 * divisors)
    return np.where(numbers < 0, -rounded, rounded)


def _with_odd(call: FoldCall, state: FoldState, finite: Floats) -> Floats:
    """The values of a sum, where NaN and infinities are among its terms."""
    nan, above, below = (
        state.numbers_of(_measure_of(call, measure)) > 0 for measure in ("nan", "above", "below")
    )
    if not (nan | above | below).any():
        return finite
    found = np.where(above, np.inf, np.where(below, -np.inf, finite))
    return np.where(nan | (above & below), np.nan, found)


def _central_product(call: FoldCall, state: FoldState, x: Field, y: Field) -> Amounts:
    """n times the sum of x y, less the product of their sums: n squared times the covariance."""
    counts = state.numbers_of(_count_of(call))
    ours = state.amounts[_sum_of(call, x, y)].multiply_by(counts)
    means = state.amounts[_sum_of(call, x)].multiply_with(state.amounts[_sum_of(call, y)])
    left, right = align_amounts([ours, means])
    return Amounts(widen_numbers(left.numbers) - widen_numbers(right.numbers), left.exponent)


def _finish_moment(is_root: bool, is_sample: bool) -> Finish:
    """Variances, deviations and covariances: of all rows, or of a sample."""

    def finish(call: FoldCall, state: FoldState) -> Any:
        x, y = call.arguments[0], call.arguments[-1]
        product = _central_product(call, state, x, y)
        counts, odd = state.numbers_of(_count_of(call)), _has_odd(call, state, x, y)
        nearest = nearest_root if is_root else nearest_double
        empty = counts <= is_sample
        pairs = zip(product.numbers.tolist(), counts.tolist(), (odd | empty).tolist(), strict=True)
        found = [
            np.nan if bad else nearest(number, n * (n - is_sample), product.exponent)
            for number, n, bad in pairs
        ]
        return _put_nulls(pa.array(found, pa.float64()), empty)

    return finish


def _has_odd(call: FoldCall, state: FoldState, *fields: Field) -> Mask:
    """Where NaN or an infinity is among the values."""
    counts = [state.numbers_of(_odd_of(call, field)) > 0 for field in fields]
    return np.asarray(np.logical_or.reduce(counts), np.bool_)


def _finish_correlation(call: FoldCall, state: FoldState) -> Any:
    x, y = call.arguments
    xy, xx, yy = (_central_product(call, state, *pair) for pair in ((x, y), (x, x), (y, y)))
    # A column that has one value only is correlated with nothing.
    empty = state.numbers_of(_count_of(call)) <= 1
    for field, spread in ((x, xx), (y, yy)):
        is_constant = (spread.numbers == 0).astype(np.bool_)
        empty |= is_constant & ~_has_odd(call, state, field)
    bad = (_has_odd(call, state, x, y) | empty).tolist()
    power = 2 * xy.exponent - xx.exponent - yy.exponent
    columns = (column.numbers.tolist() for column in (xy, xx, yy))
    found = [
        np.nan if is_bad else _correlation_of(product, a * b, power)
        for product, a, b, is_bad in zip(*columns, bad, strict=True)
    ]
    return _put_nulls(pa.array(found, pa.float64()), empty)


def _correlation_of(product: int, spread: int, power: int) -> float:
    root = nearest_root(product * product, spread, power)
    return -root if product < 0 else root


def _finish_all(call: FoldCall, state: FoldState) -> Any:
    trues, falses = (state.numbers_of(kept) for kept in accumulators_of(call))
    return _put_nulls(pa.array(falses == 0), trues + falses == 0)


def _finish_any(call: FoldCall, state: FoldState) -> Any:
    trues, falses = (state.numbers_of(kept) for kept in accumulators_of(call))
    return _put_nulls(pa.array(trues > 0), trues + falses == 0)


def _finish_extreme(call: FoldCall, state: FoldState) -> Any:
    extreme = extreme_of(call)
    assert extreme is not None, f"{text_of_call(call)} picks a row"
    # What is ordered by comes first, what is shown of that row behind it.
    return state.extremes[extreme][-1]


def _count_result(types: Types) -> pa.DataType | None:
    return pa.int64()


def _extreme_rule(is_largest: bool, size: int) -> CallRule:
    return CallRule(_type_of_extreme(size), lambda call: (), _finish_extreme, is_largest)


def _moment_rule(size: int, *, is_root: bool = False, is_sample: bool = False) -> CallRule:
    return CallRule(_type_of_moment(size), _keep_moments, _finish_moment(is_root, is_sample))


_ALL = CallRule(_type_of_truth(pa.bool_()), _keep_picks("true", "false"), _finish_all)
_ANY = CallRule(_type_of_truth(pa.bool_()), _keep_picks("true", "false"), _finish_any)
_VARIANCE = _moment_rule(1, is_sample=True)
_DEVIATION = _moment_rule(1, is_root=True, is_sample=True)

RULES: dict[str, CallRule] = {
    "count": CallRule(_count_result, lambda call: (_count_of(call),), _finish_count),
    "count_if": CallRule(_type_of_truth(pa.int64()), _keep_picks("true"), _finish_count),
    "sum": CallRule(_type_of_sum, _keep_sum, _finish_sum),
    "avg": CallRule(_type_of_average, _keep_sum, _finish_average),
    "min": _extreme_rule(False, 1),
    "max": _extreme_rule(True, 1),
    "min_by": _extreme_rule(False, 2),
    "max_by": _extreme_rule(True, 2),
    "bool_and": _ALL,
    "every": _ALL,
    "bool_or": _ANY,
    "some": _ANY,
    "any": _ANY,
    "variance": _VARIANCE,
    "var_samp": _VARIANCE,
    "var_pop": _moment_rule(1),
    "stddev": _DEVIATION,
    "std": _DEVIATION,
    "stddev_samp": _DEVIATION,
    "stddev_pop": _moment_rule(1, is_root=True),
    "covar_samp": _moment_rule(2, is_sample=True),
    "covar_pop": _moment_rule(2),
    "corr": CallRule(_type_of_moment(2), _keep_moments, _finish_correlation),
}
"""Every aggregate function that can be folded, by Spark's name."""
