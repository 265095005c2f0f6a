"""Calls of the kernel's words, with Spark's implicit conversions and result types.

A function gets expressions and answers the call, or None where it is not certain that Spark means
the same: other types than the word is known for, or a conversion that `viewkeeper.view.sql.coerce`
does not know. Everything is judged at the end by `viewkeeper.view.kernel_words.is_evaluable`.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.types as is_type

from viewkeeper.view.expression import Call, Cast, Expression, Literal, type_of
from viewkeeper.view.kernel_words import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INSTANT,
    INT,
    INTEGERS,
    LOCAL,
    STRING,
    divide_type,
    is_evaluable,
    literal_value,
    remainder_type,
    round_type,
)
from viewkeeper.view.sql.coerce import as_decimal, coerce_to, common_type, wider_type

_FAR = 100_000
"""Days or months that lead from no date of the calendar to one that Spark does not have."""


def make_call(function: str, arguments: Sequence[Expression]) -> Call | None:
    """The call of a word whose result has one type, or that of its first argument."""
    known = [type_of(argument) for argument in arguments]
    if None in known or not known:
        return None
    kind = _RESULTS[function](arguments)
    found = None if kind is None else Call(function, tuple(_fit_counts(function, arguments)), kind)
    return _if_evaluable(found)


def _if_evaluable(call: Call | None) -> Call | None:
    return call if call is not None and is_evaluable(call) else None


def _fit_counts(function: str, arguments: Sequence[Expression]) -> list[Expression]:
    """Small integers that count something become an int, as Spark makes them."""
    if function not in ("substring", "add_months"):
        return list(arguments)
    small = (pa.int8(), pa.int16())
    return [
        Cast(argument, INT) if at and type_of(argument) in small else argument
        for at, argument in enumerate(arguments)
    ]


Results = Callable[[Sequence[Expression]], pa.DataType | None]


def _always(kind: pa.DataType) -> Results:
    return lambda arguments: kind


def _first_type(arguments: Sequence[Expression]) -> pa.DataType | None:
    return type_of(arguments[0])


def _round_result(arguments: Sequence[Expression]) -> pa.DataType | None:
    kind, places = type_of(arguments[0]), 0
    if len(arguments) == 2:
        given = literal_value(arguments[1])
        if not isinstance(given, int):
            return None
        places = given
    return round_type(kind, places) if isinstance(kind, pa.Decimal128Type) else kind


_RESULTS: dict[str, Results] = {
    **dict.fromkeys(
        ("upper", "lower", "trim", "ltrim", "rtrim", "substring", "concat"), _always(STRING)
    ),
    **dict.fromkeys(("startswith", "endswith", "contains", "like"), _always(BOOLEAN)),
    **dict.fromkeys(
        ("length", "year", "month", "day", "quarter", "hour", "minute", "second", "datediff"),
        _always(INT),
    ),
    **dict.fromkeys(("trunc", "date_add", "add_months"), _always(DATE)),
    "date_trunc": _always(INSTANT),
    **dict.fromkeys(("abs", "negate"), _first_type),
    "round": _round_result,
}


def cast_call(operand: Expression, kind: pa.DataType) -> Call | None:
    """An explicit cast."""
    return _if_evaluable(Call("cast", (operand,), kind))


def date_part_call(part: str, operand: Expression) -> Call | None:
    """A part of a date, or of the time of day of an instant."""
    return make_call(part, [operand])


def date_trunc_call(unit: str, operand: Expression) -> Call | None:
    """The beginning of a unit; a date or an instant without a zone is read as one in UTC."""
    instant: Expression | None = operand
    if type_of(operand) in (DATE, LOCAL):
        instant = cast_call(operand, INSTANT)
    return None if instant is None else make_call("date_trunc", [Literal(unit, STRING), instant])


# -- one type for several values -------------------------------------------------------------------


def shared_type(values: Sequence[Expression]) -> pa.DataType | None:
    """The type that Spark gives to alternatives; NULL has none of its own."""
    shared: pa.DataType | None = None
    for value in values:
        kind = type_of(value)
        if kind is None:
            return None
        if is_type.is_null(kind) or kind == shared:
            continue
        shared = kind if shared is None else wider_type(shared, kind)
        if shared is None:
            return None
    return shared


def convert_value(value: Expression, kind: pa.DataType) -> Expression | None:
    """A value at a type that `shared_type` gave for it."""
    own = type_of(value)
    decimals = own is not None and is_type.is_decimal(own)
    if decimals and kind == DOUBLE and not isinstance(value, Literal):
        return cast_call(value, kind)
    return coerce_to(value, kind)


def convert_values(
    values: Sequence[Expression], kind: pa.DataType | None
) -> list[Expression] | None:
    """All values at one type."""
    if kind is None:
        return None
    converted = [convert_value(value, kind) for value in values]
    found = [value for value in converted if value is not None]
    return found if len(found) == len(values) else None


def choice_call(function: str, values: Sequence[Expression]) -> Call | None:
    """COALESCE, GREATEST or LEAST."""
    kind = shared_type(values)
    found = convert_values(values, kind)
    if found is None or kind is None:
        return None
    return _if_evaluable(Call(function, tuple(found), kind))


def case_call(conditions: Sequence[Expression], values: Sequence[Expression]) -> Call | None:
    """CASE; there is one value more than conditions if it has an ELSE."""
    kind = shared_type(values)
    found = convert_values(values, kind)
    if found is None or kind is None:
        return None
    arguments = [part for pair in zip(conditions, found, strict=False) for part in pair]
    arguments += found[len(conditions) :]
    return _if_evaluable(Call("case", tuple(arguments), kind))


def in_call(values: Sequence[Expression]) -> Call | None:
    """IN: the value and its options, compared at one type."""
    kinds = {common_type(values[0], option) for option in values[1:]}
    kind = kinds.pop() if len(kinds) == 1 else shared_type(values)
    found = convert_values(values, kind)
    return None if found is None else _if_evaluable(Call("in", tuple(found), BOOLEAN))


# -- operators -------------------------------------------------------------------------------------


def quotient_call(function: str, left: Expression, right: Expression) -> Call | None:
    """`%` or `/`: integers are divided as doubles, decimals as decimals."""
    one, other = type_of(left), type_of(right)
    if one is None or other is None or is_type.is_null(one) or is_type.is_null(other):
        return None
    decimals = any(map(is_type.is_decimal, (one, other)))
    if decimals and not any(map(is_type.is_floating, (one, other))):
        return _decimal_quotient(function, left, right)
    kind = DOUBLE if function == "divide" else shared_type([left, right])
    numbers = all(each in INTEGERS or is_type.is_floating(each) for each in (one, other))
    sides = convert_values([left, right], kind) if numbers or decimals else None
    if sides is None or kind is None:
        return None
    return _if_evaluable(Call(function, tuple(sides), kind))


def _decimal_quotient(function: str, left: Expression, right: Expression) -> Call | None:
    one, other = type_of(left), type_of(right)
    if one is None or other is None:
        return None
    if not all(kind in INTEGERS or is_type.is_decimal128(kind) for kind in (one, other)):
        return None
    kinds = as_decimal(one), as_decimal(other)
    result = (divide_type if function == "divide" else remainder_type)(*kinds)
    sides = coerce_to(left, kinds[0]), coerce_to(right, kinds[1])
    if sides[0] is None or sides[1] is None:
        return None
    return _if_evaluable(Call(function, (sides[0], sides[1]), result))


def short_decimal(literal: Literal) -> Literal:
    """An integer written beside a decimal: Spark gives it as many digits as it has.

    >>> short_decimal(Literal(100, pa.int32())).type
    Decimal128Type(decimal128(3, 0))
    """
    assert isinstance(literal.value, int)
    digits = len(str(abs(literal.value)))
    return Literal(decimal.Decimal(literal.value), pa.decimal128(digits, 0))


def date_sum_call(operator: str, date: Expression, days: Expression) -> Call | None:
    """A date plus days, or minus a constant number of days; nothing else is done with dates."""
    if operator not in ("+", "-"):
        return None
    count = literal_value(days)
    if isinstance(count, int) and type_of(days) == INT:
        return shift_date(date, count if operator == "+" else -count, "day")
    return make_call("date_add", [date, days]) if operator == "+" else None


def shift_date(date: Expression, count: int, unit: str) -> Call | None:
    """A date plus so many days or months."""
    if type_of(date) != DATE or abs(count) > _FAR:
        return None
    return make_call("date_add" if unit == "day" else "add_months", [date, Literal(count, INT)])
