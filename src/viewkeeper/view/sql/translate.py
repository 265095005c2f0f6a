"""A scalar SQL expression as data: in the kernel's words if certain, else as Spark SQL.

`translate_piece` gives the kernel's nodes only where it is certain that they mean what Spark means.
What is not certain is left whole to Spark, as the user's own text with columns replaced by their
labels.

Two things make it less than certain. Types: Spark converts implicitly, by rules that
`viewkeeper.view.sql.coerce` follows where they are exact. Grammar: sqlglot and Spark do not agree
on how `a = b < c` or `a BETWEEN 1 AND 2 = b` associate. They agree on arithmetic and on AND, OR and
NOT, so a comparison that is an operand without brackets is left to Spark.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal as OneOf

import pyarrow as pa
import pyarrow.types as is_type
from sqlglot import exp

from viewkeeper.view.expression import (
    Arithmetic,
    Column,
    Compare,
    Expression,
    IsNull,
    Literal,
    Logic,
    Not,
    SparkSql,
    type_of,
)
from viewkeeper.view.render import quote_name
from viewkeeper.view.sql.coerce import (
    PRECISION_MAX,
    Operator,
    coerce_operands,
    read_date,
    unify_types,
)
from viewkeeper.view.sql.function_words import WordReader
from viewkeeper.view.sql.sql_text import Span, SqlPiece, SqlText, leaf_span_of, own_span_of
from viewkeeper.view.sql.word_calls import (
    cast_call,
    date_sum_call,
    in_call,
    make_call,
    quotient_call,
    short_decimal,
)

COMPARISONS: dict[type[exp.Expr], OneOf["=", "<>", "<", "<=", ">", ">=", "<=>"]] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
ARITHMETIC: dict[type[exp.Expr], Operator] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
QUOTIENTS: dict[type[exp.Expr], str] = {exp.Mod: "remainder", exp.Div: "divide"}
BOUNDS: dict[pa.DataType, int] = {
    pa.int8(): 2**7,
    pa.int16(): 2**15,
    pa.int32(): 2**31,
    pa.int64(): 2**63,
}
CAST_TYPES: dict[object, pa.DataType] = {
    exp.DataType.Type.BOOLEAN: pa.bool_(),
    exp.DataType.Type.TINYINT: pa.int8(),
    exp.DataType.Type.SMALLINT: pa.int16(),
    exp.DataType.Type.INT: pa.int32(),
    exp.DataType.Type.BIGINT: pa.int64(),
    exp.DataType.Type.FLOAT: pa.float32(),
    exp.DataType.Type.DOUBLE: pa.float64(),
    exp.DataType.Type.TEXT: pa.string(),
    exp.DataType.Type.DATE: pa.date32(),
    exp.DataType.Type.TIMESTAMPNTZ: pa.timestamp("us"),
    exp.DataType.Type.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
}
INSTANT = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(\.\d{1,6})?")


class _LeftToSparkSql(Exception):  # noqa: N818 - a way out of the recursion, never seen outside
    """The kernel is not certain to mean the same."""


@dataclass(frozen=True, slots=True)
class ResolvedColumn:
    """A column reference in the text and the column that it stands for."""

    span: Span
    column: Column


def translate_piece(
    sql: SqlText, piece: SqlPiece, columns: Mapping[int, ResolvedColumn]
) -> Expression:
    """The expression of a piece; `columns` has its column references by where they start."""
    # sqlglot adds brackets where it thinks that they are missing; those prove nothing.
    written = sum(1 for _ in piece.node.find_all(exp.Paren)) == piece.brackets
    try:
        if written:
            return _Translator(sql, sql.text_of(piece.span), columns).translate_node(piece.node)
    except _LeftToSparkSql:
        pass
    return _spark_sql(sql, piece, columns)


def _spark_sql(sql: SqlText, piece: SqlPiece, columns: Mapping[int, ResolvedColumn]) -> SparkSql:
    labels = [(found.span, quote_name(found.column.label)) for found in columns.values()]
    read = sorted({found.column for found in columns.values()}, key=lambda column: column.label)
    return SparkSql(sql.replace_spans(piece.span, labels), tuple(read), _type_for_sure(piece.node))


def _type_for_sure(node: exp.Expr) -> pa.DataType | None:
    """The type that Spark will find, where the outermost operator alone decides it."""
    if isinstance(node, exp.Paren):
        return _type_for_sure(node.this)
    if isinstance(node, exp.Predicate | exp.And | exp.Or | exp.Not):
        return pa.bool_()
    if isinstance(node, exp.Cast):
        return _cast_type(node)
    return None


def _cast_type(node: exp.Cast) -> pa.DataType | None:
    target = node.to
    if target.this is exp.DataType.Type.DECIMAL:
        numbers = [int(parameter.name) for parameter in target.expressions]
        precision, scale = [*numbers, *(10, 0)[len(numbers) :]]
        return pa.decimal128(precision, scale) if precision <= PRECISION_MAX else None
    return None if target.expressions else CAST_TYPES.get(target.this)


@dataclass(frozen=True, slots=True)
class _Translator:
    sql: SqlText
    text: str
    columns: Mapping[int, ResolvedColumn]

    def translate_node(self, node: exp.Expr) -> Expression:
        match node:
            case exp.Paren():
                return self.translate_node(node.this)
            case exp.Column():
                return self.resolve_reference(node)
            case exp.Literal() | exp.Boolean() | exp.Null() | exp.Cast() | exp.Neg():
                return self.read_constant(node) or self.translate_unary(node)
            case exp.And():
                return self.translate_chain("and", node)
            case exp.Or():
                return self.translate_chain("or", node)
            case exp.Not():
                return Not(self.translate_boolean(node.this))
            case exp.Is():
                return self.translate_is_null(node)
            case exp.NullSafeNEQ():
                return Not(
                    self.make_comparison(
                        "<=>", self.translate_operand(node.left), self.translate_operand(node.right)
                    )
                )
            case exp.Between():
                return self.translate_between(node)
            case exp.In():
                return self.translate_in_list(node)
        return self.translate_operation(node)

    def translate_operation(self, node: exp.Expr) -> Expression:
        if isinstance(node, exp.Binary) and type(node) in COMPARISONS:
            left, right = self.translate_operand(node.left), self.translate_operand(node.right)
            return self.make_comparison(COMPARISONS[type(node)], left, right)
        if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
            return _certain(self.words.read_shift(node, 1 if isinstance(node, exp.Add) else -1))
        if isinstance(node, exp.Binary) and type(node) in ARITHMETIC:
            left, right = self.translate_numbers(node)
            if type_of(left) == pa.date32():
                return _certain(date_sum_call(ARITHMETIC[type(node)], left, right))
            return self.make_arithmetic(ARITHMETIC[type(node)], left, right)
        if isinstance(node, exp.Binary) and type(node) in QUOTIENTS:
            return _certain(quotient_call(QUOTIENTS[type(node)], *self.translate_numbers(node)))
        return _certain(self.words.read_node(node))

    @property
    def words(self) -> WordReader:
        return WordReader(
            self.text,
            self.translate_node,
            self.translate_operand,
            self.translate_boolean,
            lambda left, right: self.make_comparison("=", left, right),
        )

    def translate_numbers(self, node: exp.Binary) -> tuple[Expression, Expression]:
        """Both operands; an integer written beside a decimal is one of so many digits."""
        left, right = self.translate_operand(node.left), self.translate_operand(node.right)
        if _is_decimal(right) and isinstance(left, Literal) and _is_written_integer(node.left):
            return short_decimal(left), right
        if _is_decimal(left) and isinstance(right, Literal) and _is_written_integer(node.right):
            return left, short_decimal(right)
        return left, right

    def translate_operand(self, node: exp.Expr) -> Expression:
        """An operand of an operator; see the module's prose for why not every kind."""
        if isinstance(node, exp.Predicate | exp.Not | exp.And | exp.Or):
            raise _LeftToSparkSql
        return self.translate_node(node)

    def translate_boolean(self, node: exp.Expr) -> Expression:
        """An operand of AND, OR and NOT: a boolean, or NULL in its place."""
        expression = self.translate_node(node)
        if isinstance(expression, Literal) and expression.value is None:
            return Literal(None, pa.bool_())
        if type_of(expression) != pa.bool_():
            raise _LeftToSparkSql
        return expression

    def translate_chain(self, operator: OneOf["and", "or"], node: exp.And | exp.Or) -> Expression:
        """A chain of one operator, however long: which way it is bracketed does not matter."""
        return _balance_chain(
            operator, [self.translate_boolean(each) for each in node.flatten(unnest=False)]
        )

    def resolve_reference(self, node: exp.Column) -> Column:
        span = leaf_span_of(node)
        if span is None or span.start not in self.columns:
            raise _LeftToSparkSql
        return self.columns[span.start].column

    def read_constant(self, node: exp.Expr) -> Literal | None:
        match node:
            case exp.Null():
                return Literal(None, pa.null())
            case exp.Boolean():
                return Literal(bool(node.this), pa.bool_())
            case exp.Literal() if node.is_string:
                return Literal(self.read_string(node), pa.string())
            case exp.Literal():
                return number_literal(node.name)
            case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
                # Spark reads the sign as part of the number: -2147483648 is an int.
                return number_literal("-" + node.this.name)
            case exp.Cast() if not isinstance(node.this, exp.Column):
                return self.cast_constant(node)
        return None

    def read_string(self, node: exp.Literal) -> str:
        """A string without escapes, about which no two readers can differ."""
        span = own_span_of(node)
        raw = self.sql.text_of(span) if span is not None else ""
        if raw[1:-1] != node.name or "\\" in raw:
            raise _LeftToSparkSql
        return node.name

    def cast_constant(self, node: exp.Cast) -> Literal | None:
        """`10L`, `DATE '2024-01-31'`, `CAST(NULL AS STRING)`: sqlglot reads all three as casts."""
        kind, inner = _cast_type(node), node.this
        if kind is None or isinstance(inner, exp.Cast):
            raise _LeftToSparkSql
        literal = self.read_constant(inner)
        if literal is None:
            return None
        return Literal(None, kind) if literal.value is None else _typed_literal(literal, kind)

    def translate_unary(self, node: exp.Expr) -> Expression:
        """A cast, or a minus sign, before a column or a bracket."""
        if isinstance(node, exp.Cast):
            kind = None if node.args.get("safe") else _cast_type(node)
            if kind is None:
                raise _LeftToSparkSql
            return _certain(cast_call(self.translate_node(node.this), kind))
        if not isinstance(node, exp.Neg):
            raise _LeftToSparkSql
        operand = self.translate_operand(node.this)
        kind = type_of(operand)
        if kind in BOUNDS:
            return Arithmetic("-", Literal(0, kind), operand, kind)
        if kind is not None and is_type.is_floating(kind):
            # 0 - x would lose the sign of a zero.
            return Arithmetic("*", Literal(-1.0, kind), operand, kind)
        return _certain(make_call("negate", [operand]))

    def translate_is_null(self, node: exp.Is) -> Expression:
        if not isinstance(node.expression, exp.Null):
            raise _LeftToSparkSql
        operand = self.translate_operand(node.this)
        if type_of(operand) == pa.null():
            raise _LeftToSparkSql
        return IsNull(operand)

    def translate_between(self, node: exp.Between) -> Expression:
        if node.args.get("symmetric"):
            raise _LeftToSparkSql
        value = self.translate_operand(node.this)
        low, high = (
            self.translate_operand(node.args["low"]),
            self.translate_operand(node.args["high"]),
        )
        return Logic(
            "and", self.make_comparison(">=", value, low), self.make_comparison("<=", value, high)
        )

    def translate_in_list(self, node: exp.In) -> Expression:
        """IN with a list of values, all at one type as Spark compares them."""
        value = self.translate_operand(node.this)
        given = {key for key, part in node.args.items() if part}
        if given != {"this", "expressions"}:
            raise _LeftToSparkSql
        options = [self.translate_node(option) for option in node.expressions]
        kinds = [type_of(each) for each in (value, *options)]
        if None in kinds or kinds[0] == pa.null():
            raise _LeftToSparkSql
        return _certain(in_call([value, *options]))

    def make_comparison(
        self,
        operator: OneOf["=", "<>", "<", "<=", ">", ">=", "<=>"],
        left: Expression,
        right: Expression,
    ) -> Compare:
        both = unify_types(left, right)
        if both is None:
            raise _LeftToSparkSql
        kind = type_of(both[0])
        equality = operator in ("=", "<>", "<=>")
        if kind is None or not _is_comparable(kind) or not (equality or _is_ordered(kind)):
            raise _LeftToSparkSql
        return Compare(operator, *both)

    def make_arithmetic(
        self, operator: Operator, left: Expression, right: Expression
    ) -> Arithmetic:
        both = coerce_operands(operator, left, right)
        if both is None:
            raise _LeftToSparkSql
        return Arithmetic(operator, *both)


def number_literal(text: str) -> Literal:
    """A number as Spark types it: int, else bigint; decimal with a point; double with an exponent.

    >>> number_literal("1.50").type
    Decimal128Type(decimal128(3, 2))
    """
    if "e" in text.lower():
        return Literal(float(text), pa.float64())
    if "." not in text:
        value = int(text)
        fitting = (kind for kind in (pa.int32(), pa.int64()) if _is_in_range(value, kind))
        if (kind := next(fitting, None)) is None:
            raise _LeftToSparkSql
        return Literal(value, kind)
    exact = decimal.Decimal(text)
    _, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    precision = max(len(digits), -exponent)
    if precision > PRECISION_MAX:
        raise _LeftToSparkSql
    return Literal(exact, pa.decimal128(precision, -exponent))


def _typed_literal(literal: Literal, kind: pa.DataType) -> Literal:
    """A constant with the type that the text gives it, if that is plain."""
    value = literal.value
    if (
        isinstance(value, int)
        and literal.type in BOUNDS
        and kind in BOUNDS
        and _is_in_range(value, kind)
    ):
        return Literal(value, kind)
    if isinstance(value, str) and kind == pa.date32() and (date := read_date(value)):
        return Literal(date, kind)
    if isinstance(value, str) and kind == pa.timestamp("us") and INSTANT.fullmatch(value):
        return Literal(_read_instant(value), kind)
    # Without a zone an instant depends on the session; with Z it does not.
    if isinstance(value, str) and kind == pa.timestamp("us", "UTC") and value.endswith("Z"):
        if not INSTANT.fullmatch(value[:-1]):
            raise _LeftToSparkSql
        return Literal(_read_instant(value[:-1]).replace(tzinfo=datetime.UTC), kind)
    raise _LeftToSparkSql


def _read_instant(text: str) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        raise _LeftToSparkSql from None


def _certain(expression: Expression | None) -> Expression:
    if expression is None:
        raise _LeftToSparkSql
    return expression


def _is_decimal(expression: Expression) -> bool:
    kind = type_of(expression)
    return kind is not None and is_type.is_decimal(kind)


def _is_written_integer(node: exp.Expr) -> bool:
    """A number written with digits alone; one with a type is a cast to sqlglot."""
    node = node.unnest()
    if isinstance(node, exp.Neg):
        node = node.this
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()


def _is_in_range(value: int, kind: pa.DataType) -> bool:
    return -BOUNDS[kind] <= value < BOUNDS[kind]


def _is_comparable(kind: pa.DataType) -> bool:
    return not (is_type.is_nested(kind) or is_type.is_null(kind))


def _is_ordered(kind: pa.DataType) -> bool:
    return not (is_type.is_boolean(kind) or is_type.is_binary(kind))


def _balance_chain(operator: OneOf["and", "or"], tests: Sequence[Expression]) -> Expression:
    if len(tests) == 1:
        return tests[0]
    middle = (len(tests) + 1) // 2
    left, right = _balance_chain(operator, tests[:middle]), _balance_chain(operator, tests[middle:])
    return Logic(operator, left, right)
