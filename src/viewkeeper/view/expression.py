"""Scalar expressions of a view as plain data.

An expression is a tree of frozen values, typed with Arrow types. What Arrow evaluates with the same
meaning as Spark SQL is spelled out here, node by node, and runs in the kernel
(`viewkeeper.delta.evaluate`). Everything else is one opaque node, `SparkSql`, that holds Spark SQL
text and is evaluated by Spark itself, in the same job.

In a partial row of a sweep the column `name` of the relation at place `p` is called `p.name`; that
is what `Column.label` says and what the text of a `SparkSql` node uses, in backticks.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOf

import pyarrow as pa

Scalar = (
    None | bool | int | float | str | bytes | decimal.Decimal | datetime.date | datetime.datetime
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the relation at a place."""

    place: int
    name: str
    type: pa.DataType

    @property
    def label(self) -> str:
        return f"{self.place}.{self.name}"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of a known type; NULL has the type of its neighbour."""

    value: Scalar
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison; `<=>` is equality that calls NULL equal to NULL. Both sides have one type."""

    operator: OneOf["=", "<>", "<", "<=", ">", ">=", "<=>"]
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Logic:
    """Three-valued AND and OR."""

    operator: OneOf["and", "or"]
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Not:
    """Three-valued NOT."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    """`operand IS NULL`; never NULL itself."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Cast:
    """A widening that loses nothing, or a bigint as a double, as Spark does it implicitly."""

    operand: Expression
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Checked `+`, `-` and `*`: overflow is an error, as in Spark's ANSI mode.

    Both sides have one type, except for decimals, whose result type follows Spark's rules.
    """

    operator: OneOf["+", "-", "*"]
    left: Expression
    right: Expression
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class SparkSql:
    """Anything else: Spark SQL text over labels, with the columns it reads.

    `type` is None until Spark has analysed the view, at its initial load.
    """

    text: str
    columns: tuple[Column, ...]
    type: pa.DataType | None


@dataclass(frozen=True, slots=True)
class Call:
    """A function that the kernel knows (`viewkeeper.view.kernel_words`), with Spark's meaning.

    `CASE WHEN a THEN b WHEN c THEN d ELSE e END` is `case(a, b, c, d, e)`; the last argument may be
    missing.
    """

    function: str
    arguments: tuple[Expression, ...]
    type: pa.DataType


Expression = Column | Literal | Compare | Logic | Not | IsNull | Cast | Arithmetic | Call | SparkSql


def operands_of(expression: Expression) -> tuple[Expression, ...]:
    """The operands of an expression, left to right."""
    match expression:
        case Column() | Literal():
            return ()
        case Compare() | Logic() | Arithmetic():
            return (expression.left, expression.right)
        case Not() | IsNull() | Cast():
            return (expression.operand,)
        case Call():
            return expression.arguments
        case SparkSql():
            return expression.columns


def walk_expression(expression: Expression) -> Iterator[Expression]:
    """The expression and everything in it."""
    yield expression
    for child in operands_of(expression):
        yield from walk_expression(child)


def columns_of(expression: Expression) -> frozenset[Column]:
    """Every column that the expression reads."""
    return frozenset(node for node in walk_expression(expression) if isinstance(node, Column))


def places_of(expression: Expression) -> frozenset[int]:
    """Every place that the expression reads from."""
    return frozenset(column.place for column in columns_of(expression))


def needs_spark(expression: Expression) -> bool:
    """Whether the kernel must leave this expression to Spark."""
    return any(isinstance(node, SparkSql) for node in walk_expression(expression))


def type_of(expression: Expression) -> pa.DataType | None:
    """The Arrow type of the expression's value; None where only Spark knows it."""
    match expression:
        case Compare() | Logic() | Not() | IsNull():
            return pa.bool_()
        case _:
            return expression.type
