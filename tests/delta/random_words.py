"""Random expressions of the kernel's words, nested, of a wanted type."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

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
)
from viewkeeper.view.kernel_words import divide_type, remainder_type, round_type

BOOL, INT, LONG, DOUBLE, TEXT = pa.bool_(), pa.int32(), pa.int64(), pa.float64(), pa.string()
DATE, INSTANT, DECIMAL = pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(12, 2)
WORDS = ["", "a", "Ab ", " b", "abc", "😀x", "ÄÖ", "x%y", None]
VALUES: dict[pa.DataType, list[Any]] = {
    BOOL: [True, False, None],
    INT: [-(2**31), -7, -1, 0, 1, 2, 3, 40, 2**31 - 1, None],
    LONG: [-(2**63), -5, 0, 1, 3, 2**40, None],
    DOUBLE: [0.0, -1.5, 0.1, 2.0, 1e300, float("nan"), float("inf"), None],
    TEXT: WORDS,
    DATE: [datetime.date(*d) for d in [(1, 1, 1), (1999, 12, 31), (2024, 2, 29), (9999, 12, 31)]],
    INSTANT: [
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, datetime.UTC),
        datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC),
        None,
    ],
    DECIMAL: [*(decimal.Decimal(d) for d in ["0.00", "-0.01", "1.50", "9999999999.99"]), None],
}
TYPES = list(VALUES)


def random_table(rng: random.Random, rows: int) -> pa.Table:
    """Two columns of each type."""
    return pa.table(
        {
            f"0.{name}": pa.array([rng.choice(values) for _ in range(rows)], kind)
            for kind, values in VALUES.items()
            for name in names_of(kind)
        }
    )


def names_of(kind: pa.DataType) -> list[str]:
    return [f"{place}{TYPES.index(kind)}" for place in "ab"]


@dataclass(frozen=True, slots=True)
class Grower:
    """Grows expressions, from the same random numbers always the same."""

    rng: random.Random

    def grow(self, kind: pa.DataType, depth: int) -> Expression:
        if depth == 0 or self.rng.random() < 0.15:
            return self.leaf(kind)
        ways: list[Callable[[int], Expression]] = [
            *_ways(self, kind),
            lambda below: self.branch(kind, below),
        ]
        return self.rng.choice(ways)(depth - 1)

    def leaf(self, kind: pa.DataType) -> Expression:
        if self.rng.random() < 0.75:
            return Column(0, self.rng.choice(names_of(kind)), kind)
        return Literal(self.rng.choice(VALUES[kind]), kind)

    def branch(self, kind: pa.DataType, below: int) -> Expression:
        function = self.rng.choice(["case", "if", "coalesce", "greatest", "least"])
        values = [self.grow(kind, below) for _ in range(self.rng.choice([2, 3]))]
        if function == "if":
            return Call("if", (self.grow(BOOL, below), *values[:2]), kind)
        if function != "case":
            return Call(function, tuple(values), kind)
        parts = [part for value in values[1:] for part in (self.grow(BOOL, below), value)]
        return Call("case", (*parts, *values[: self.rng.choice([0, 1])]), kind)

    def call(self, function: str, kind: pa.DataType, *kinds: pa.DataType) -> Way:
        return lambda below: Call(function, tuple(self.grow(k, below) for k in kinds), kind)

    def with_literal(
        self, function: str, kind: pa.DataType, own: pa.DataType, *literals: Literal
    ) -> Way:
        return lambda below: Call(function, (self.grow(own, below), *literals), kind)

    def arithmetic(self, kind: pa.DataType) -> Way:
        def make(below: int) -> Expression:
            both = self.grow(kind, below), self.grow(kind, below)
            return Arithmetic(self.rng.choice(["+", "-", "*"]), *both, kind)

        return make

    def comparison(self) -> Way:
        def make(below: int) -> Expression:
            kind = self.rng.choice([each for each in TYPES if each != BOOL])
            both = self.grow(kind, below), self.grow(kind, below)
            return Compare(self.rng.choice(["=", "<>", "<", "<=", ">", ">=", "<=>"]), *both)

        return make

    def condition(self) -> Way:
        def make(below: int) -> Expression:
            left, right = self.grow(BOOL, below), self.grow(BOOL, below)
            both = Logic(self.rng.choice(["and", "or"]), left, right)
            ways: list[Expression] = [both, both, Not(left), IsNull(left)]
            return self.rng.choice(ways)

        return make

    def membership(self) -> Way:
        def make(below: int) -> Expression:
            kinds: list[pa.DataType] = [INT, TEXT, DATE, DECIMAL]
            kind = self.rng.choice(kinds)
            values = [self.grow(kind, below) for _ in range(self.rng.choice([2, 3, 4]))]
            return Call("in", tuple(values), BOOL)

        return make

    def cast(self, kind: pa.DataType, *own: pa.DataType) -> Way:
        return lambda below: Call("cast", (self.grow(self.rng.choice(own), below),), kind)


Way = Callable[[int], Expression]


def _ways(grower: Grower, kind: pa.DataType) -> list[Way]:
    return (_number_ways(grower) | _other_ways(grower))[kind]


def _number_ways(grower: Grower) -> dict[pa.DataType, list[Way]]:
    call, cast = grower.call, grower.cast
    quotient, rounded = divide_type(DECIMAL, DECIMAL), round_type(DECIMAL, 1)
    return {
        INT: [
            *(grower.arithmetic(INT), call("remainder", INT, INT, INT), call("abs", INT, INT)),
            *(
                call("negate", INT, INT),
                call("length", INT, TEXT),
                call("datediff", INT, DATE, DATE),
            ),
            *(call(name, INT, DATE) for name in ("year", "month", "day", "quarter")),
            *(call(name, INT, INSTANT) for name in ("hour", "minute", "second", "year")),
            cast(INT, LONG, BOOL, DECIMAL, DOUBLE),
        ],
        LONG: [
            *(
                grower.arithmetic(LONG),
                call("remainder", LONG, LONG, LONG),
                call("abs", LONG, LONG),
            ),
            *(cast(LONG, INT, DECIMAL), lambda below: Cast(grower.grow(INT, below), LONG)),
        ],
        DOUBLE: [
            *(grower.arithmetic(DOUBLE), call("divide", DOUBLE, DOUBLE, DOUBLE)),
            *(call("remainder", DOUBLE, DOUBLE, DOUBLE), cast(DOUBLE, INT, LONG, DECIMAL)),
        ],
        DECIMAL: [
            *(call("negate", DECIMAL, DECIMAL), call("abs", DECIMAL, DECIMAL)),
            *(cast(DECIMAL, INT, LONG), nested(grower, "divide", quotient)),
            nested(grower, "remainder", remainder_type(DECIMAL, DECIMAL)),
            lambda below: to_decimal(
                Call("round", (grower.grow(DECIMAL, below), Literal(1, INT)), rounded)
            ),
        ],
    }


def _other_ways(grower: Grower) -> dict[pa.DataType, list[Way]]:
    call, literal, cast = grower.call, grower.with_literal, grower.cast
    text = {pattern: Literal(pattern, TEXT) for pattern in ("%a%", "_b%", "MONTH", "WEEK")}
    two = Literal(2, INT)
    return {
        BOOL: [
            *(grower.comparison(), grower.comparison(), grower.condition(), grower.membership()),
            *(literal("like", BOOL, TEXT, text["%a%"]), literal("like", BOOL, TEXT, text["_b%"])),
            *(call(name, BOOL, TEXT, TEXT) for name in ("startswith", "endswith", "contains")),
        ],
        TEXT: [
            *(call(name, TEXT, TEXT) for name in ("upper", "lower", "trim", "ltrim", "rtrim")),
            *(call("concat", TEXT, TEXT, TEXT), call("substring", TEXT, TEXT, INT, INT)),
            *(literal("substring", TEXT, TEXT, two), cast(TEXT, INT, LONG, BOOL, DATE, INSTANT)),
            cast(TEXT, DECIMAL),
        ],
        DATE: [
            *(call("date_add", DATE, DATE, INT), call("add_months", DATE, DATE, INT)),
            *(literal("trunc", DATE, DATE, text["MONTH"]), cast(DATE, INSTANT)),
        ],
        INSTANT: [
            lambda below: Call("date_trunc", (text["WEEK"], grower.grow(INSTANT, below)), INSTANT),
            lambda below: Call("date_trunc", (text["MONTH"], grower.leaf(INSTANT)), INSTANT),
            literal("timestamp_add", INSTANT, INSTANT, Literal(-129_600_000_001, LONG)),
            literal("timestamp_add", INSTANT, INSTANT, Literal(2_592_000_000_000, LONG)),
        ],
    }


def nested(grower: Grower, function: str, kind: pa.DataType) -> Way:
    return lambda below: to_decimal(grower.call(function, kind, DECIMAL, DECIMAL)(below))


def to_decimal(expression: Expression) -> Expression:
    return Call("cast", (expression,), DECIMAL)
