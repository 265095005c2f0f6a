"""Expressions on Arrow tables, with Spark SQL's meaning.

Arrow is not Spark: its `or_` is not three-valued, its `add` wraps around, NaN is not equal to NaN.
This module uses the variants that agree (Kleene logic, checked arithmetic, comparisons that call
NaN equal to itself and greater than everything) and nothing else; tests compare every operator
with Spark. A row that makes an expression fail is an `ExpressionError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import ExpressionError
from viewkeeper.view.expression import (
    Arithmetic,
    Cast,
    Column,
    Compare,
    Expression,
    IsNull,
    Literal,
    Logic,
    Not,
    SparkSql,
)

Values = Any
"""An Arrow array, chunked array or scalar; pyarrow's compute functions take all three."""


def evaluate_expression(expression: Expression, table: pa.Table) -> Any:
    """The value of an expression for every row of a table whose columns are labels."""
    try:
        value: Any = _evaluate_node(expression, table)
    except pa.ArrowInvalid as error:
        raise ExpressionError(
            f"an expression of the view failed: {error}",
            hint="overflow is an error, as in Spark's ANSI mode; widen the type with CAST",
        ) from error
    if not isinstance(value, pa.Scalar):
        return value
    constant: Any = value
    return pa.repeat(constant, table.num_rows)


def _evaluate_node(expression: Expression, table: pa.Table) -> Values:
    match expression:
        case Column():
            return table[expression.label]
        case Literal():
            return pa.scalar(expression.value, expression.type)
        case Compare():
            left, right = (
                _evaluate_node(expression.left, table),
                _evaluate_node(expression.right, table),
            )
            return _COMPARE[expression.operator](left, right)
        case Logic():
            logic = pc.and_kleene if expression.operator == "and" else pc.or_kleene
            return logic(
                _evaluate_node(expression.left, table), _evaluate_node(expression.right, table)
            )
        case Not():
            return pc.invert(_evaluate_node(expression.operand, table))
        case IsNull():
            return pc.is_null(_evaluate_node(expression.operand, table))
        case Cast():
            # A bigint beyond 2^53 becomes the nearest double, in Spark as in Arrow's unsafe cast.
            widened = _evaluate_node(expression.operand, table)
            return pc.cast(widened, expression.type, safe=not pa.types.is_floating(expression.type))
        case Arithmetic():
            left, right = (
                _evaluate_node(expression.left, table),
                _evaluate_node(expression.right, table),
            )
            result = _ARITHMETIC[expression.operator](left, right)
            return result if result.type == expression.type else pc.cast(result, expression.type)
        case SparkSql():
            raise AssertionError("an expression that needs Spark reached the kernel")
        case _:
            assert_never(expression)


def _is_nan(value: Values) -> Values | None:
    return pc.is_nan(value) if pa.types.is_floating(value.type) else None


def _equal_values(left: Values, right: Values) -> Values:
    left_nan, right_nan = _is_nan(left), _is_nan(right)
    same = pc.equal(left, right)
    if left_nan is None or right_nan is None:
        return same
    return pc.or_kleene(same, pc.and_kleene(left_nan, right_nan))


def _less_values(left: Values, right: Values) -> Values:
    left_nan, right_nan = _is_nan(left), _is_nan(right)
    less = pc.less(left, right)
    if left_nan is None or right_nan is None:
        return less
    return pc.or_kleene(less, pc.and_kleene(right_nan, pc.invert(left_nan)))


def _null_safe_equal(left: Values, right: Values) -> Values:
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both_null, pc.fill_null(_equal_values(left, right), False))


_COMPARE: dict[str, Callable[[Values, Values], Values]] = {
    "=": _equal_values,
    "<=>": _null_safe_equal,
    "<>": lambda left, right: pc.invert(_equal_values(left, right)),
    "<": _less_values,
    ">": lambda left, right: _less_values(right, left),
    "<=": lambda left, right: pc.invert(_less_values(right, left)),
    ">=": lambda left, right: pc.invert(_less_values(left, right)),
}

_ARITHMETIC: dict[str, Callable[[Values, Values], Values]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
