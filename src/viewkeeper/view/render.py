"""Expressions back to Spark SQL text, over labels in backticks.

Used where Spark finishes what the kernel cannot: a view's outputs and late conditions on the joined
rows of a sweep. Every literal is written with its type, so that Spark reads back what was meant.

Recomputation runs exactly what the user wrote; what it needs besides, counts or lifetimes of the
rows that were joined, is put in front of the user's select list as text, so that no parser and no
generator stands between the user's SQL and Spark.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from typing import assert_never

import pyarrow as pa

from viewkeeper.view.definition import ViewDefinition
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
)
from viewkeeper.view.kernel_words import call_sql


def spark_sql_of(expression: Expression) -> str:
    """The expression as Spark SQL.

    >>> spark_sql_of(Compare(">", Column(0, "a", pa.int64()), Literal(1, pa.int64())))
    '(`0.a` > 1L)'
    """
    match expression:
        case Column():
            return quote_name(expression.label)
        case Literal():
            return _literal_sql(expression)
        case Compare() | Arithmetic():
            left, right = spark_sql_of(expression.left), spark_sql_of(expression.right)
            return f"({left} {expression.operator} {right})"
        case Logic():
            left, right = spark_sql_of(expression.left), spark_sql_of(expression.right)
            return f"({left} {expression.operator.upper()} {right})"
        case Not():
            return f"(NOT {spark_sql_of(expression.operand)})"
        case IsNull():
            return f"({spark_sql_of(expression.operand)} IS NULL)"
        case Cast():
            return f"CAST({spark_sql_of(expression.operand)} AS {spark_type_of(expression.type)})"
        case Call():
            arguments = [spark_sql_of(argument) for argument in expression.arguments]
            return call_sql(expression, arguments, spark_type_of(expression.type))
        case SparkSql():
            return f"({expression.text})"
        case _:
            assert_never(expression)


def quote_name(name: str) -> str:
    """A name as Spark SQL reads it, whatever characters it has.

    >>> quote_name("0.order")
    '`0.order`'
    """
    return "`" + name.replace("`", "``") + "`"


def spark_type_of(kind: pa.DataType) -> str:
    """Spark's name of an Arrow type.

    >>> [spark_type_of(kind) for kind in (pa.int64(), pa.decimal128(10, 2), pa.timestamp("us"))]
    ['BIGINT', 'DECIMAL(10,2)', 'TIMESTAMP_NTZ']
    """
    if isinstance(kind, pa.Decimal128Type):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, pa.TimestampType):
        return "TIMESTAMP_NTZ" if kind.tz is None else "TIMESTAMP"
    return _NAMES[kind]


_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
}


def _literal_sql(literal: Literal) -> str:
    value = literal.value
    if value is None:
        return f"CAST(NULL AS {spark_type_of(literal.type)})"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int) and literal.type == pa.int64() and value > -(2**63):
        return f"{value}L"
    if isinstance(value, float) and not math.isfinite(value):
        return f"CAST('{value}' AS {spark_type_of(literal.type)})"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return f"CAST({_quote_text(value)} AS {spark_type_of(literal.type)})"


def _quote_text(value: int | float | str | decimal.Decimal | datetime.date) -> str:
    text = value if isinstance(value, str) else str(value)
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def extend_query(view: ViewDefinition, extra: Sequence[str]) -> str:
    """The view's SELECT with these expressions before its own outputs."""
    keyword, rest = view.query[:6], view.query[6:]
    assert keyword.upper() == "SELECT", view.query
    return f"SELECT {', '.join(extra)}, {rest.lstrip()}"
