"""Expressions on Arrow tables, with Spark SQL's meaning.

Arrow is not Spark: its `or_` is not three-valued, its `add` wraps around, NaN is not equal to NaN.
This module uses the variants that agree (Kleene logic, checked arithmetic, comparisons that call
NaN equal to itself and greater than everything) and nothing else; tests compare every operator and
every word (`viewkeeper.view.kernel_words`) with Spark. A row that makes an expression fail is an
`ExpressionError`, but only if it reaches what fails (`viewkeeper.delta.branch_words`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.branch_words import (
    BRANCH_WORDS,
    evaluate_branches,
    evaluate_logic,
    evaluate_operands,
)
from viewkeeper.delta.column_values import (
    Values,
    equal_values,
    is_constant,
    less_values,
    null_safe_equal,
    repeat_constant,
)
from viewkeeper.delta.date_words import DATE_WORDS
from viewkeeper.delta.decimal_values import calculate_decimals
from viewkeeper.delta.number_words import NUMBER_WORDS
from viewkeeper.delta.row_errors import known_type, several_rows_error
from viewkeeper.delta.text_words import TEXT_WORDS
from viewkeeper.delta.type_casts import CAST_WORDS
from viewkeeper.errors import ExpressionError
from viewkeeper.view.expression import (
    Arithmetic,
    Call,
    Cast,
    Column,
    Compare,
    Expression,
    IsNull,
    Literal,
    Logic,
    Not,
    SparkSql,
    columns_of,
)


def _take_single_value(_call: Call, values: Sequence[Values]) -> Values:
    """The value of rows that a scalar subquery gave, if there are not several."""
    value, rows = values
    if pc.any(pc.greater(rows, 1)).as_py():
        raise several_rows_error()
    return value


_VALUE_WORDS = {
    **TEXT_WORDS,
    **DATE_WORDS,
    **NUMBER_WORDS,
    **CAST_WORDS,
    "single_value": _take_single_value,
}
_DIVISIONS = ("divide", "remainder")


def evaluate_expression(expression: Expression, table: pa.Table) -> Any:
    """The value of an expression for every row of a table whose columns are labels."""
    if isinstance(expression, Column):
        return table[expression.label]
    kind: Any = known_type(expression)
    if not table.num_rows:
        return pa.array([], kind)
    try:
        return _evaluate_batches(expression, table, kind)
    except pa.ArrowInvalid as error:
        raise ExpressionError(
            f"an expression of the view failed: {error}",
            hint="overflow is an error, as in Spark's ANSI mode; widen the type with CAST",
        ) from error


def _evaluate_batches(expression: Expression, table: pa.Table, kind: Any) -> Any:
    labels = sorted({column.label for column in columns_of(expression)})
    if not labels:
        constant = _evaluate_node(expression, _ONE_ROW)
        return repeat_constant(constant if is_constant(constant) else constant[0], table.num_rows)
    batches = table.select(labels).combine_chunks().to_batches()
    values = [
        repeat_constant(_evaluate_node(expression, batch), batch.num_rows) for batch in batches
    ]
    return values[0] if len(values) == 1 else pa.chunked_array(values, kind)


_ONE_ROW = pa.record_batch({"": pa.nulls(1)})
"""What a constant is evaluated on."""


def _evaluate_node(expression: Expression, batch: pa.RecordBatch) -> Values:
    match expression:
        case Column():
            return batch[expression.label]
        case Literal():
            return pa.scalar(expression.value, expression.type)
        case Compare():
            return _compare(expression, batch)
        case Logic():
            return evaluate_logic(_evaluate_node, expression, batch)
        case Not():
            return pc.invert(_evaluate_node(expression.operand, batch))
        case IsNull():
            return pc.is_null(_evaluate_node(expression.operand, batch))
        case Cast():
            # A bigint beyond 2^53 becomes the nearest double, in Spark as in Arrow's unsafe cast.
            widened = _evaluate_node(expression.operand, batch)
            return pc.cast(widened, expression.type, safe=not pa.types.is_floating(expression.type))
        case Arithmetic():
            return _calculate(expression, batch)
        case Call():
            return _evaluate_call(expression, batch)
        case SparkSql():
            raise AssertionError("an expression that needs Spark reached the kernel")
        case _:
            assert_never(expression)


def _compare(node: Compare, batch: pa.RecordBatch) -> Values:
    sides = (node.left, node.right)
    if node.operator == "<=>":
        return null_safe_equal(*(_evaluate_node(side, batch) for side in sides))
    return _COMPARE[node.operator](*evaluate_operands(_evaluate_node, sides, batch))


def _calculate(node: Arithmetic, batch: pa.RecordBatch) -> Values:
    left, right = evaluate_operands(_evaluate_node, (node.left, node.right), batch)
    if pa.types.is_decimal(node.type) and _is_cut(node, left.type, right.type):
        return _calculate_long(node, left, right)
    result = _ARITHMETIC[node.operator](left, right)
    return result if result.type == node.type else pc.cast(result, node.type)


def _is_cut(node: Arithmetic, one: Any, other: Any) -> bool:
    """Whether the exact type of the result would have more digits than there are."""
    if node.operator == "*":
        return bool(one.precision + other.precision + 1 > 38)
    scale = max(one.scale, other.scale)
    return bool(max(one.precision - one.scale, other.precision - other.scale) + scale + 1 > 38)


def _calculate_long(node: Arithmetic, left: Values, right: Values) -> Values:
    if not (is_constant(left) and is_constant(right)):
        return calculate_decimals(node.operator, left, right, node.type)
    sides = pa.repeat(left, 1), pa.repeat(right, 1)
    return calculate_decimals(node.operator, *sides, node.type)[0]


def _evaluate_call(call: Call, batch: pa.RecordBatch) -> Values:
    if call.function in BRANCH_WORDS:
        return evaluate_branches(_evaluate_node, call, batch)
    # Spark looks at the divisor first.
    order = -1 if call.function in _DIVISIONS else 1
    values = evaluate_operands(_evaluate_node, call.arguments[::order], batch)[::order]
    word = _VALUE_WORDS[call.function]
    if not all(map(is_constant, values)):
        return word(call, values)
    return word(call, [pa.repeat(value, 1) for value in values])[0]


_COMPARE: dict[str, Callable[[Values, Values], Values]] = {
    "=": equal_values,
    "<>": lambda left, right: pc.invert(equal_values(left, right)),
    "<": less_values,
    ">": lambda left, right: less_values(right, left),
    "<=": lambda left, right: pc.invert(less_values(right, left)),
    ">=": lambda left, right: pc.invert(less_values(left, right)),
}

_ARITHMETIC: dict[str, Callable[[Values, Values], Values]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
