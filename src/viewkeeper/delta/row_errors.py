"""Which expressions can fail for a row, and what a failure says.

Spark in ANSI mode raises an error for a row that overflows or divides by zero, unless the row does
not reach the expression. The kernel evaluates whole columns, so where a row might not reach an
expression that can fail, the others are picked out first. An error says what went wrong and never
what the row holds: it is shown and stored where the data itself is not.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as is_type

from viewkeeper.errors import ExpressionError
from viewkeeper.view.expression import (
    Arithmetic,
    Call,
    Expression,
    SparkSql,
    type_of,
    walk_expression,
)
from viewkeeper.view.kernel_words import DIGITS_MAX, SEVERAL_ROWS

_FAILING = frozenset(
    {
        "abs",
        "negate",
        "remainder",
        "divide",
        "round",
        "cast",
        "add_months",
        "single_value",
        "timestamp_add",
    }
)


def can_fail(expression: Expression) -> bool:
    """Whether the expression may raise an error for some row."""
    return any(_can_node_fail(node) for node in walk_expression(expression))


def _can_node_fail(node: Expression) -> bool:
    match node:
        case Arithmetic():
            # A decimal of fewer digits than there can be has room for every result.
            if isinstance(node.type, pa.Decimal128Type):
                return bool(node.type.precision >= DIGITS_MAX)
            return not is_type.is_floating(node.type)
        case Call():
            return node.function in _FAILING
        case _:
            return isinstance(node, SparkSql)


def known_type(expression: Expression) -> pa.DataType:
    """The type of an expression that the kernel evaluates: always known."""
    kind = type_of(expression)
    assert kind is not None, "an expression that needs Spark reached the kernel"
    return kind


def overflow_error(kind: pa.DataType) -> ExpressionError:
    """A row's value does not fit into a type."""
    return ExpressionError(
        f"an expression of the view failed: a value does not fit into {kind}",
        hint="overflow is an error, as in Spark's ANSI mode; widen the type with CAST",
    )


def division_error() -> ExpressionError:
    """A row divides by zero."""
    return ExpressionError(
        "an expression of the view failed: division by zero",
        hint="it is an error, as in Spark's ANSI mode; divide by NULLIF(x, 0) to get NULL",
    )


def several_rows_error() -> ExpressionError:
    """A scalar subquery has more than one row."""
    return ExpressionError(
        f"an expression of the view failed: {SEVERAL_ROWS}",
        hint="it is an error, as in Spark; aggregate in the subquery, as by max()",
    )
