"""Expressions of Spark's plan as expressions of a view: the kernel's words, or text for Spark.

Types need no rules here: Spark has coerced every operand, and says the type of every result. What
the kernel knows for these types becomes its words; if one part of an expression is not known, the
whole expression is text for Spark, which is analysed again and compared with the tree.

What reads no column is computed once, here, by Spark.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from typing import Literal as OneOf

import pyarrow as pa
import pyarrow.types as is_type

from viewkeeper.engine.compile.expressions.expression_text import KERNEL_CALLS, TextWriter
from viewkeeper.engine.compile.expressions.spark_types import arrow_type_of
from viewkeeper.engine.compile.expressions.text_comparison import analyse_text, is_same_tree
from viewkeeper.engine.compile.plan.plan_tree import (
    NOWHERE,
    Attribute,
    JavaNode,
    PlanExpression,
    PlanLiteral,
    PlanOperation,
    attributes_of,
)
from viewkeeper.engine.compile.refusal_reasons import refuse
from viewkeeper.view.definition import Field
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
    Scalar,
    SparkSql,
    type_of,
)
from viewkeeper.view.kernel_words import is_evaluable
from viewkeeper.view.render import quote_name, spark_type_of
from viewkeeper.view.sql.coerce import DIGITS, as_decimal, decimal_result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Columns = Mapping[int, Column]
"""The columns of places, by the ids of the plan."""

COMPARISONS: dict[str, OneOf["=", "<>", "<", "<=", ">", ">=", "<=>"]] = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
ARITHMETIC: dict[str, OneOf["+", "-", "*"]] = {"Add": "+", "Subtract": "-", "Multiply": "*"}
WORDS = {
    **KERNEL_CALLS,
    "CaseWhen": "case",
    "In": "in",
    "Like": "like",
    "Remainder": "remainder",
    "UnaryMinus": "negate",
    "Divide": "divide",
    "Cast": "cast",
}
SAFE_FACTS = frozenset(
    {
        *("left", "right", "child", "children", "evalMode", "evalContext", "dataType"),
        *("timeZoneId", "failOnError", "ansiEnabled", "predicate", "trueValue", "falseValue"),
        *("branches", "elseValue", "value", "list", "str", "pos", "len", "srcStr", "input"),
        *("startDate", "endDate", "days", "numMonths", "format", "timestamp", "date", "interval"),
        *("num-children", "escapeChar", "scale", "start"),
    }
)
"""Settings that the kernel's words know of; one that is not here leaves the call to Spark."""


NESTED_HINT = "show plain parts of it, its elements by explode(), or all of it by to_json()"


class _LeftToSpark(Exception):  # noqa: N818 - a way out of the recursion, never seen outside
    pass


class Translator:
    """Translates the expressions of one query, in the session that analysed it."""

    def __init__(self, session: SparkSession, names: Mapping[str, str]) -> None:
        self._session = session
        self._names = names

    def translate_expression(self, expression: PlanExpression, columns: Columns) -> Expression:
        """The expression over columns of places."""
        try:
            return _in_kernel(expression, columns)
        except _LeftToSpark:
            return self._as_text(expression, columns)

    def translate_in_kernel(
        self, expression: PlanExpression, columns: Columns
    ) -> Expression | None:
        """The same, if the kernel can evaluate it; else None."""
        try:
            return _in_kernel(expression, columns)
        except _LeftToSpark:
            return None

    def _as_text(self, expression: PlanExpression, columns: Columns) -> SparkSql:
        kind = _needed_type(expression)
        read = {key: columns[key] for key in sorted(attributes_of(expression))}
        labelled = {key: Field(column.label, column.type) for key, column in read.items()}
        text = self.write_text(expression, labelled)
        used = sorted(set(read.values()), key=lambda column: (column.place, column.name))
        return SparkSql(text, tuple(used), kind)

    def write_text(self, expression: PlanExpression, columns: Mapping[int, Field]) -> str:
        """The expression in Spark's SQL, over columns of these names and types.

        Its value may be of any type; the text is compared with where it came from.
        """
        labels = {key: field.name for key, field in columns.items()}
        writer = TextWriter(lambda attribute: quote_name(labels[attribute.id]), self._names)
        text = writer.write_expression(expression)
        types = {quote_name(f.name): spark_type_of(f.type) for f in columns.values()}
        again = analyse_text(self._session, text, types)
        if not is_same_tree(expression, again, labels):
            raise refuse(
                "an expression that cannot be written for Spark again", None, _java_of(expression)
            )
        return text


def plain_type_of(expression: PlanExpression) -> pa.DataType | None:
    """The Arrow type of an expression; None if a view cannot keep its values."""
    match expression:
        case Attribute() | PlanLiteral():
            return arrow_type_of(expression.type)
        case PlanOperation():
            return arrow_type_of(expression.java.type_text)


def _needed_type(expression: PlanExpression) -> pa.DataType:
    kind = plain_type_of(expression)
    if kind is None:
        java = _java_of(expression)
        text = expression.type if not isinstance(expression, PlanOperation) else java.type_text
        if text == "void":
            raise refuse("a NULL without a type", "give it one, like CAST(NULL AS STRING)", java)
        if text.startswith("{"):
            shown = java.get_node().dataType().simpleString() if java is not NOWHERE else text
            raise refuse(f"a column of type {shown}", NESTED_HINT, java)
        raise refuse(f"a value of type {text}", "cast it to a type that a table has", java)
    return kind


def _java_of(expression: PlanExpression) -> JavaNode:
    return expression.java if not isinstance(expression, Attribute) else NOWHERE


def _in_kernel(expression: PlanExpression, columns: Columns) -> Expression:
    match expression:
        case Attribute():
            return columns[expression.id]
        case PlanLiteral():
            return _literal_of(expression)
        case PlanOperation():
            return _operation_in_kernel(expression, columns)


def _operation_in_kernel(operation: PlanOperation, columns: Columns) -> Expression:
    if not attributes_of(operation):
        return _computed_literal(operation)
    facts = dict(operation.facts)
    modes = f"{facts.get('evalMode')} {facts.get('evalContext')}"
    if not facts.keys() <= SAFE_FACTS or "TRY" in modes or "LEGACY" in modes:
        raise _LeftToSpark
    kind = operation.kind
    if kind == "DateAddYMInterval":
        return _add_months(operation, columns)
    if kind == "TimestampAddInterval":
        return _add_interval(operation, columns)
    parts = tuple(_in_kernel(each, columns) for each in operation.operands)
    match kind, parts:
        case (("And" | "Or"), (left, right)):
            return Logic("and" if kind == "And" else "or", left, right)
        case "Not", (operand,):
            return _negation_of(operand)
        case "IsNull", (operand,):
            return IsNull(operand)
        case "IsNotNull", (operand,):
            return Not(IsNull(operand))
        case "NullIfResult", (condition, value):
            kind_of_value = certain_type_of(value)
            none = Literal(None, kind_of_value)
            return _checked_call(Call("if", (condition, none, value), kind_of_value))
        case "SingleValue", (value, rows):
            return _checked_call(Call("single_value", (value, rows), certain_type_of(value)))
        case "ParseToDate", (moment,) if is_type.is_timestamp(certain_type_of(moment)):
            return _checked_call(Call("cast", (moment,), pa.date32()))
        case "DateSub", (start, Literal(int() as days, days_type)):
            return _checked_call(Call("date_add", (start, Literal(-days, days_type)), pa.date32()))
    if kind in COMPARISONS:
        return _comparison_of(COMPARISONS[kind], *parts)
    if kind in ARITHMETIC:
        return _arithmetic_of(ARITHMETIC[kind], operation, *parts)
    return _word_of(operation, parts)


def _negation_of(operand: Expression) -> Expression:
    if isinstance(operand, Compare) and operand.operator == "=":
        return Compare("<>", operand.left, operand.right)
    return Not(operand)


def _comparison_of(
    operator: OneOf["=", "<>", "<", "<=", ">", ">=", "<=>"], left: Expression, right: Expression
) -> Compare:
    if certain_type_of(left) != certain_type_of(right):
        raise _LeftToSpark
    return Compare(operator, left, right)


def _arithmetic_of(
    operator: OneOf["+", "-", "*"], operation: PlanOperation, left: Expression, right: Expression
) -> Arithmetic:
    one, other, result = certain_type_of(left), certain_type_of(right), plain_type_of(operation)
    wanted: pa.DataType | None = None
    if isinstance(one, pa.Decimal128Type) and isinstance(other, pa.Decimal128Type):
        wanted = decimal_result(operator, one, other)
    elif one == other and one in (*DIGITS, pa.float32(), pa.float64()):
        wanted = one
    if wanted is None or result != wanted:
        raise _LeftToSpark
    return Arithmetic(operator, left, right, wanted)


def _add_months(operation: PlanOperation, columns: Columns) -> Expression:
    start, interval = operation.operands
    if not isinstance(interval, PlanLiteral) or interval.value is None:
        raise _LeftToSpark
    months = Literal(int(interval.value), pa.int32())
    return _checked_call(Call("add_months", (_in_kernel(start, columns), months), pa.date32()))


def _add_interval(operation: PlanOperation, columns: Columns) -> Expression:
    """A moment plus days, hours and smaller units, which Spark counts in microseconds."""
    start, interval = operation.operands
    sign = 1
    if isinstance(interval, PlanOperation) and interval.kind == "UnaryMinus":
        sign, (interval,) = -1, interval.operands
    if not isinstance(interval, PlanLiteral) or not str(interval.value).lstrip("-").isdigit():
        raise _LeftToSpark
    if not interval.type.startswith("interval ") or {"year", "month"} & {*interval.type.split()}:
        raise _LeftToSpark
    moment = _in_kernel(start, columns)
    amount = Literal(sign * int(str(interval.value)), pa.int64())
    return _checked_call(Call("timestamp_add", (moment, amount), certain_type_of(moment)))


def _word_of(operation: PlanOperation, parts: tuple[Expression, ...]) -> Expression:
    word, result = WORDS.get(operation.kind), plain_type_of(operation)
    if word is None or result is None:
        raise _LeftToSpark
    if word == "cast" and _is_widening(certain_type_of(parts[0]), result):
        return Cast(parts[0], result)
    if word == "like" and (escape := dict(operation.facts).get("escapeChar", "\\")) != "\\":
        parts = (*parts, Literal(str(escape), pa.string()))
    return _checked_call(Call(word, parts, result))


def _checked_call(call: Call) -> Call:
    if not is_evaluable(call):
        raise _LeftToSpark
    return call


def certain_type_of(expression: Expression) -> pa.DataType:
    """The type of a translated expression."""
    kind = type_of(expression)
    assert kind is not None, "a translated expression has a type"
    return kind


def _is_widening(own: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast is one that `Cast` does: nothing is lost, or a number becomes a double."""
    if own in DIGITS and wanted in DIGITS:
        return DIGITS[own] <= DIGITS[wanted]
    if is_type.is_decimal(wanted) and (own in DIGITS or is_type.is_decimal(own)):
        one, other = as_decimal(own), as_decimal(wanted)
        room = (other.precision - other.scale) - (one.precision - one.scale)
        return bool(one.scale <= other.scale and room >= 0)
    return wanted == pa.float64() and (own in DIGITS or own == pa.float32())


def _literal_of(literal: PlanLiteral) -> Literal:
    kind = arrow_type_of(literal.type)
    if kind is None:
        raise _LeftToSpark
    if literal.value is None or isinstance(literal.value, bytes):
        return Literal(literal.value, kind)
    return Literal(_value_of(literal.value, kind), kind)


def _value_of(text: str, kind: pa.DataType) -> Scalar:
    if is_type.is_boolean(kind):
        return text == "true"
    if is_type.is_integer(kind):
        return int(text)
    if is_type.is_floating(kind):
        return float(text.replace("Infinity", "inf"))
    if is_type.is_decimal(kind):
        return decimal.Decimal(text)
    return _moment_of(text, kind) if is_type.is_temporal(kind) else text


def _moment_of(text: str, kind: pa.DataType) -> Scalar:
    """A date or an instant; one beyond Python's years is left to Spark."""
    try:
        if is_type.is_date(kind):
            return datetime.date.fromisoformat(text)
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise _LeftToSpark from None
    zoned = isinstance(kind, pa.TimestampType) and kind.tz is not None
    return moment.replace(tzinfo=datetime.UTC) if zoned else moment


EPOCH = datetime.datetime(1970, 1, 1)


def _computed_literal(operation: PlanOperation) -> Literal:
    """What an expression without columns is, as Spark computes it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    kind = plain_type_of(operation)
    java = operation.java.get_node()
    if kind is None or not java.foldable():
        raise _LeftToSpark
    try:
        value = java.eval(None)
    except (Py4JJavaError, PySparkException):
        # A constant that fails does so only in rows that reach it: that is left to Spark.
        raise _LeftToSpark from None
    return Literal(_value_of_java(value, kind), kind)


def _value_of_java(value: Any, kind: pa.DataType) -> Scalar:
    """A value as Spark has it inside: dates in days, instants in microseconds."""
    if value is None or isinstance(value, bool | bytes):
        return value
    try:
        if is_type.is_date(kind):
            return EPOCH.date() + datetime.timedelta(days=int(value))
        if isinstance(kind, pa.TimestampType):
            moment = EPOCH + datetime.timedelta(microseconds=int(value))
            return moment.replace(tzinfo=datetime.UTC) if kind.tz else moment
    except OverflowError:
        raise _LeftToSpark from None
    if is_type.is_integer(kind):
        return int(value)
    if is_type.is_floating(kind):
        return float(value)
    return decimal.Decimal(value.toString()) if is_type.is_decimal(kind) else str(value.toString())


def is_true(expression: Expression) -> bool:
    """Whether a condition is always true."""
    return isinstance(expression, Literal) and expression.value is True
