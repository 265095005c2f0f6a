"""Spark's implicit conversions, as far as they lose nothing.

Spark in ANSI mode brings both sides of a comparison or an operator to one type before it computes.
The kernel does no conversions of its own, so they are made explicit here, as `Cast` nodes or by
converting a literal at once. Every function answers None where Spark's rule is inexact, depends on
the value, or is not certain; the expression is then left to Spark.

The rules: integers widen to the wider one; an integer or a float beside a float of another width
becomes a double; an integer beside a decimal is a decimal of its own range (a bigint is a
decimal(20,0)); decimals compare at the type that holds both.
"""

from __future__ import annotations

import datetime
import decimal
import re
from typing import Literal as OneOf

import pyarrow as pa
import pyarrow.types as is_type

from viewkeeper.view.expression import Cast, Expression, Literal, columns_of, type_of
from viewkeeper.view.kernel_words import bounded_decimal

# The decimal digits that Spark gives to each integer type.
DIGITS: dict[pa.DataType, int] = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
PRECISION_MAX = 38
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def unify_types(left: Expression, right: Expression) -> tuple[Expression, Expression] | None:
    """Both sides of a comparison at one type."""
    kind = common_type(left, right)
    if kind is None:
        return None
    one, other = coerce_to(left, kind), coerce_to(right, kind)
    return None if one is None or other is None else (one, other)


def common_type(left: Expression, right: Expression) -> pa.DataType | None:
    """The type at which Spark compares two expressions."""
    one, other = type_of(left), type_of(right)
    if one is None or other is None or (is_type.is_null(one) and is_type.is_null(other)):
        return None
    if one == other or is_type.is_null(other):
        return one
    if is_type.is_null(one):
        return other
    # A string literal beside a date is read as a date; only a literal can be read in advance.
    for literal, kind in ((left, other), (right, one)):
        if _is_string_literal(literal) and is_type.is_date32(kind):
            return kind
    return _wider_number(one, other)


def wider_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of two others, as Spark chooses it."""
    return one if one == other else _wider_number(one, other)


def _wider_number(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if one in DIGITS and other in DIGITS:
        return max(one, other, key=lambda kind: DIGITS[kind])
    if _is_number(one) and _is_number(other):
        if is_type.is_floating(one) or is_type.is_floating(other):
            return pa.float64()
        return _wider_decimal(as_decimal(one), as_decimal(other))
    return None


def _wider_decimal(one: pa.Decimal128Type, other: pa.Decimal128Type) -> pa.DataType | None:
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    return pa.decimal128(precision, scale) if precision <= PRECISION_MAX else None


def as_decimal(kind: pa.DataType) -> pa.Decimal128Type:
    """A decimal or integer type as the decimal that holds it."""
    if isinstance(kind, pa.Decimal128Type):
        return kind
    return pa.decimal128(DIGITS[kind], 0)


def coerce_to(expression: Expression, kind: pa.DataType) -> Expression | None:
    """The expression at a type that `common_type` gave for it."""
    own = type_of(expression)
    if own is None or own == kind:
        return expression if own == kind else None
    if isinstance(expression, Literal):
        return _convert_literal(expression, kind)
    if is_type.is_floating(kind) and is_type.is_decimal(own):
        return None
    return Cast(expression, kind)


def _convert_literal(literal: Literal, kind: pa.DataType) -> Literal | None:
    value = literal.value
    if value is None:
        return Literal(None, kind)
    if isinstance(value, str):
        date = read_date(value)
        return None if date is None else Literal(date, kind)
    assert isinstance(value, int | float | decimal.Decimal)
    if is_type.is_floating(kind):
        # Python rounds a decimal to the nearest double, as Java's BigDecimal.doubleValue does.
        return Literal(float(value), kind)
    if is_type.is_decimal(kind):
        return Literal(decimal.Decimal(value), kind)
    return Literal(value, kind)


def read_date(text: str) -> datetime.date | None:
    """A date written in full; Spark reads shorter ways too, which are left to it."""
    try:
        return datetime.date.fromisoformat(text) if DATE.fullmatch(text) else None
    except ValueError:
        return None


Operator = OneOf["+", "-", "*"]


def coerce_operands(
    operator: Operator, left: Expression, right: Expression
) -> tuple[Expression, Expression, pa.DataType] | None:
    """Both operands of an arithmetic operator as Spark converts them, and the result's type."""
    one, other = type_of(left), type_of(right)
    if one is None or other is None or not (_is_number(one) and _is_number(other)):
        return None
    kinds = (one, other)
    if any(map(is_type.is_decimal, kinds)) and not any(map(is_type.is_floating, kinds)):
        return _decimal_operands(operator, left, right)
    both = unify_types(left, right)
    kind = common_type(left, right)
    return None if both is None or kind is None else (*both, kind)


def _decimal_operands(
    operator: Operator, left: Expression, right: Expression
) -> tuple[Expression, Expression, pa.DataType] | None:
    one, other = type_of(left), type_of(right)
    assert one is not None
    assert other is not None
    # Spark types an integer literal beside a decimal by its own digits; the translator has done
    # that where it was certain to be one.
    if any(type_of(side) in DIGITS and not columns_of(side) for side in (left, right)):
        return None
    result = decimal_result(operator, as_decimal(one), as_decimal(other))
    converted = coerce_to(left, as_decimal(one)), coerce_to(right, as_decimal(other))
    if converted[0] is None or converted[1] is None:
        return None
    return converted[0], converted[1], result


def decimal_result(
    operator: Operator, one: pa.Decimal128Type, other: pa.Decimal128Type
) -> pa.DataType:
    """Spark's type for an operation on decimals, cut to 38 digits.

    >>> decimal_result("*", pa.decimal128(10, 2), pa.decimal128(3, 2))
    Decimal128Type(decimal128(14, 4))
    """
    if operator == "*":
        scale, precision = one.scale + other.scale, one.precision + other.precision + 1
    else:
        scale = max(one.scale, other.scale)
        whole = max(one.precision - one.scale, other.precision - other.scale)
        precision = whole + scale + 1
    return bounded_decimal(precision, scale)


def _is_number(kind: pa.DataType) -> bool:
    return kind in DIGITS or kind in (pa.float32(), pa.float64()) or is_type.is_decimal128(kind)


def _is_string_literal(expression: Expression) -> bool:
    return isinstance(expression, Literal) and isinstance(expression.value, str)
