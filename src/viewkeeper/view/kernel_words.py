"""The words of the kernel: functions that it evaluates with exactly Spark's meaning.

A word is the name of a `Call` in an expression. The table says for each for which types of its
arguments and of its result the kernel computes what Spark computes, bit by bit and error by error;
`tests/delta/test_words.py` holds every one against Spark. What is not in the table, or has other
types, is written as `SparkSql` and left to Spark. Arguments are in the order of Spark's function of
the same name.

    case(condition, value, ..., otherwise)    the last may be missing
    in(value, option, ...)                    like(text, pattern, escape); the escape may be missing
    cast(value)                               its target is the type of the call
    remainder(a, b)  divide(a, b)  negate(a)  the operators %, / and -
    single_value(value, rows)                 the value; an error if there are several rows

Instants are read in UTC, the time zone of every session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.types as is_type

from viewkeeper.view.expression import Call, Expression, Literal, type_of

Types = Sequence[pa.DataType]

INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
FLOATS = (pa.float32(), pa.float64())
BOOLEAN, INT, DOUBLE, STRING = pa.bool_(), pa.int32(), pa.float64(), pa.string()
DATE, LOCAL, INSTANT = pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")
PLAIN = (*INTEGERS, *FLOATS, BOOLEAN, STRING, pa.binary(), DATE, LOCAL, INSTANT)
DIGITS_MAX = 38
ESCAPE = "\\"

TRUNC_UNITS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "QUARTER": "quarter",
    "WEEK": "week",
}
"""The units of `trunc` as Spark spells them, in any case."""
DATE_TRUNC_UNITS = {
    **TRUNC_UNITS,
    **dict.fromkeys(("DAY", "DD"), "day"),
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
    "MILLISECOND": "millisecond",
    "MICROSECOND": "microsecond",
}
"""The units of `date_trunc`."""

SIGN_DIGITS_MAX = 34
"""Spark rounds a decimal to so many digits when it changes its sign or cuts its fraction off."""
QUOTIENT_DIGITS_MAX = 39
"""Spark fails to find a remainder if the whole quotient has more digits."""
SEVERAL_ROWS = "a scalar subquery gave more than one row"
"""What is said where a subquery that must have one value has several rows."""
OPTIONS_MAX = 10
"""From here on Spark looks options up in a hash table, which tells the zeros of floats apart."""


def is_evaluable(call: Call) -> bool:
    """Whether the kernel evaluates the call, for its types, as Spark does.

    >>> from viewkeeper.view.expression import Column
    >>> is_evaluable(Call("length", (Column(0, "a", pa.string()),), pa.int32()))
    True
    >>> is_evaluable(Call("length", (Column(0, "a", pa.string()),), pa.int64()))
    False
    """
    kinds = [type_of(argument) for argument in call.arguments]
    known = [kind for kind in kinds if kind is not None and _is_known(kind)]
    fits = _FITS.get(call.function)
    if fits is None or len(known) != len(kinds) or not _is_known(call.type):
        return False
    return fits(call, known)


def _is_known(kind: pa.DataType) -> bool:
    return kind in PLAIN or is_type.is_decimal128(kind)


def literal_value(expression: Expression) -> object:
    """The value of a literal that is not NULL, else None."""
    return expression.value if isinstance(expression, Literal) else None


# -- which types fit -------------------------------------------------------------------------------


def _all_are(kinds: Types, wanted: pa.DataType) -> bool:
    return all(kind == wanted for kind in kinds)


def _fits_coalesce(call: Call, kinds: Types) -> bool:
    return len(kinds) >= 1 and _all_are(kinds, call.type)


def _fits_extreme(call: Call, kinds: Types) -> bool:
    return len(kinds) >= 2 and _all_are(kinds, call.type) and call.type != pa.binary()


def _fits_if(call: Call, kinds: Types) -> bool:
    return len(kinds) == 3 and kinds[0] == BOOLEAN and _all_are(kinds[1:], call.type)


def _fits_case(call: Call, kinds: Types) -> bool:
    paired = len(kinds) // 2 * 2
    if paired < 2 or not _all_are(kinds[:paired:2], BOOLEAN):
        return False
    return _all_are([*kinds[1:paired:2], *kinds[paired:]], call.type)


def _fits_single_value(call: Call, kinds: Types) -> bool:
    return len(kinds) == 2 and kinds[0] == call.type and kinds[1] == pa.int64()


def _fits_in(call: Call, kinds: Types) -> bool:
    if len(kinds) < 2 or call.type != BOOLEAN or not _all_are(kinds, kinds[0]):
        return False
    return not is_type.is_floating(kinds[0]) or len(kinds) <= OPTIONS_MAX + 1


def _fits_like(call: Call, kinds: Types) -> bool:
    if len(kinds) not in (2, 3) or call.type != BOOLEAN or not _all_are(kinds, STRING):
        return False
    pattern = literal_value(call.arguments[1])
    return isinstance(pattern, str) and parse_pattern(pattern, escape_of(call)) is not None


def escape_of(call: Call) -> str | None:
    """The character that takes the meaning from `%` and `_`; None where it is none."""
    if len(call.arguments) == 2:
        return ESCAPE
    escape = literal_value(call.arguments[2])
    return escape if isinstance(escape, str) and len(escape) == 1 else None


def parse_pattern(pattern: str, escape: str | None) -> tuple[str | int, ...] | None:
    """A pattern of LIKE as texts, 1 for `_` and 0 for `%`; None where Spark refuses it.

    >>> parse_pattern("a\\\\%b_c%", ESCAPE)
    ('a%b', 1, 'c', 0)
    """
    parts: list[str | int] = []
    if escape is None or escape in "%_":
        return None
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == escape:
            at += 1
            if pattern[at : at + 1] not in {"%", "_", escape}:
                return None
        part: str | int = pattern[at]
        if letter in "%_":
            part = "%_".index(letter)
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        else:
            parts.append(part)
        at += 1
    return tuple(parts)


def _fits_substring(call: Call, kinds: Types) -> bool:
    if len(kinds) not in (2, 3) or call.type != STRING:
        return False
    return kinds[0] == STRING and _all_are(kinds[1:], INT)


def _fits_strings(count: int | None, result: pa.DataType) -> Fits:
    def fits(call: Call, kinds: Types) -> bool:
        right_count = len(kinds) >= 1 if count is None else len(kinds) == count
        return right_count and _all_are(kinds, STRING) and call.type == result

    return fits


def _fits_length(call: Call, kinds: Types) -> bool:
    return call.type == INT and len(kinds) == 1 and kinds[0] in (STRING, pa.binary())


def _fits_part(*allowed: pa.DataType) -> Fits:
    def fits(call: Call, kinds: Types) -> bool:
        return call.type == INT and len(kinds) == 1 and kinds[0] in allowed

    return fits


def _fits_date_trunc(call: Call, kinds: Types) -> bool:
    unit = literal_value(call.arguments[0])
    if not isinstance(unit, str) or unit.upper() not in DATE_TRUNC_UNITS:
        return False
    return [*kinds[1:], call.type] == [INSTANT, INSTANT]


def _fits_trunc(call: Call, kinds: Types) -> bool:
    if len(kinds) != 2 or kinds[0] != DATE or call.type != DATE:
        return False
    unit = literal_value(call.arguments[1])
    return isinstance(unit, str) and unit.upper() in TRUNC_UNITS


def _fits_datediff(call: Call, kinds: Types) -> bool:
    return list(kinds) == [DATE, DATE] and call.type == INT


def _fits_date_add(call: Call, kinds: Types) -> bool:
    if len(kinds) != 2 or kinds[0] != DATE or call.type != DATE:
        return False
    return kinds[1] in (pa.int8(), pa.int16(), INT)


def _fits_add_months(call: Call, kinds: Types) -> bool:
    return list(kinds) == [DATE, INT] and call.type == DATE


def _fits_timestamp_add(call: Call, kinds: Types) -> bool:
    """A moment some microseconds later, a constant number of them."""
    if not isinstance(literal_value(call.arguments[-1]), int) or call.type not in (LOCAL, INSTANT):
        return False
    return list(kinds) == [call.type, pa.int64()]


def _fits_round(call: Call, kinds: Types) -> bool:
    """Decimals, and integers where nothing is rounded away; a double is rounded by its text."""
    scale = 0 if len(kinds) == 1 else literal_value(call.arguments[-1])
    if len(kinds) not in (1, 2) or not isinstance(scale, int) or kinds[1:] not in ([], [INT]):
        return False
    if kinds[0] in INTEGERS:
        return scale >= 0 and call.type == kinds[0]
    return isinstance(kinds[0], pa.Decimal128Type) and call.type == round_type(kinds[0], scale)


def round_type(kind: pa.Decimal128Type, scale: int) -> pa.DataType:
    """Spark's type of a decimal rounded to a scale.

    >>> round_type(pa.decimal128(10, 4), 2)
    Decimal128Type(decimal128(9, 2))
    """
    whole = kind.precision - kind.scale + 1
    if scale < 0:
        return pa.decimal128(min(max(whole, 1 - scale), DIGITS_MAX), 0)
    kept = min(kind.scale, scale)
    return pa.decimal128(min(whole + kept, DIGITS_MAX), kept)


def _fits_same_number(call: Call, kinds: Types) -> bool:
    if len(kinds) != 1 or kinds[0] != call.type or not _is_number(call.type):
        return False
    return not isinstance(kinds[0], pa.Decimal128Type) or kinds[0].precision <= SIGN_DIGITS_MAX


def _is_number(kind: pa.DataType) -> bool:
    return kind in INTEGERS or kind in FLOATS or is_type.is_decimal128(kind)


def _fits_remainder(call: Call, kinds: Types) -> bool:
    if not _fits_quotient(call, kinds, remainder_type, (*INTEGERS, *FLOATS)):
        return False
    one, other = kinds
    if not isinstance(one, pa.Decimal128Type) or not isinstance(other, pa.Decimal128Type):
        return True
    return bool(one.precision - one.scale + other.scale <= QUOTIENT_DIGITS_MAX)


def _fits_divide(call: Call, kinds: Types) -> bool:
    return _fits_quotient(call, kinds, divide_type, (DOUBLE,))


def _fits_quotient(
    call: Call,
    kinds: Types,
    result: Callable[[pa.Decimal128Type, pa.Decimal128Type], pa.DataType],
    allowed: Types,
) -> bool:
    if len(kinds) != 2:
        return False
    one, other = kinds
    if isinstance(one, pa.Decimal128Type) and isinstance(other, pa.Decimal128Type):
        return call.type == result(one, other)
    return one == other == call.type and one in allowed


def divide_type(one: pa.Decimal128Type, other: pa.Decimal128Type) -> pa.DataType:
    """Spark's type of a quotient of decimals.

    >>> divide_type(pa.decimal128(15, 2), pa.decimal128(15, 2))
    Decimal128Type(decimal128(33, 18))
    """
    scale = max(6, one.scale + other.precision + 1)
    return bounded_decimal(one.precision - one.scale + other.scale + scale, scale)


def remainder_type(one: pa.Decimal128Type, other: pa.Decimal128Type) -> pa.DataType:
    """Spark's type of a remainder of decimals."""
    scale = max(one.scale, other.scale)
    return bounded_decimal(
        min(one.precision - one.scale, other.precision - other.scale) + scale, scale
    )


def bounded_decimal(precision: int, scale: int) -> pa.DataType:
    """A decimal type as Spark cuts it to 38 digits: digits after the point go first, down to 6.

    >>> bounded_decimal(49, 6), bounded_decimal(60, 30)
    (Decimal128Type(decimal128(38, 6)), Decimal128Type(decimal128(38, 8)))
    """
    if precision <= DIGITS_MAX:
        return pa.decimal128(precision, scale)
    return pa.decimal128(DIGITS_MAX, max(DIGITS_MAX - (precision - scale), min(scale, 6)))


def _fits_cast(call: Call, kinds: Types) -> bool:
    if len(kinds) != 1:
        return False
    own, wanted = kinds[0], call.type
    if own == wanted:
        return True
    if own in INTEGERS or own == BOOLEAN:
        return (_is_number(wanted) and own != BOOLEAN) or wanted in (*INTEGERS, BOOLEAN, STRING)
    if own in FLOATS:
        return wanted in (*FLOATS, INT)
    if isinstance(own, pa.Decimal128Type):
        short = own.precision <= SIGN_DIGITS_MAX
        return is_type.is_decimal(wanted) or wanted in (DOUBLE, STRING, *INTEGERS[: 4 * short])
    return (own, wanted) in _CALENDAR_CASTS


_CALENDAR_CASTS = {
    *((own, STRING) for own in (DATE, LOCAL, INSTANT)),
    *((DATE, wanted) for wanted in (LOCAL, INSTANT)),
    *((own, DATE) for own in (LOCAL, INSTANT)),
    (LOCAL, INSTANT),
    (INSTANT, LOCAL),
}

Fits = Callable[[Call, Types], bool]
_ONE_TEXT, _TWO_TEXTS = _fits_strings(1, STRING), _fits_strings(2, BOOLEAN)
_DATE_PART, _TIME_PART = _fits_part(DATE, LOCAL, INSTANT), _fits_part(LOCAL, INSTANT)
_FITS: dict[str, Fits] = {
    "coalesce": _fits_coalesce,
    **dict.fromkeys(("greatest", "least"), _fits_extreme),
    "if": _fits_if,
    "case": _fits_case,
    "in": _fits_in,
    "like": _fits_like,
    "substring": _fits_substring,
    **dict.fromkeys(("upper", "lower", "trim", "ltrim", "rtrim"), _ONE_TEXT),
    "concat": _fits_strings(None, STRING),
    "length": _fits_length,
    **dict.fromkeys(("startswith", "endswith", "contains"), _TWO_TEXTS),
    **dict.fromkeys(("year", "month", "day", "quarter"), _DATE_PART),
    **dict.fromkeys(("hour", "minute", "second"), _TIME_PART),
    "date_trunc": _fits_date_trunc,
    "trunc": _fits_trunc,
    "datediff": _fits_datediff,
    "date_add": _fits_date_add,
    "add_months": _fits_add_months,
    "timestamp_add": _fits_timestamp_add,
    "round": _fits_round,
    **dict.fromkeys(("abs", "negate"), _fits_same_number),
    "remainder": _fits_remainder,
    "divide": _fits_divide,
    "cast": _fits_cast,
    "single_value": _fits_single_value,
}
WORDS = frozenset(_FITS)


# -- how it is written -----------------------------------------------------------------------------


def call_sql(call: Call, arguments: Sequence[str], kind: str) -> str:
    """The call as Spark SQL, from its arguments and the type of its result, as Spark SQL.

    >>> call_sql(Call("remainder", (), pa.int32()), ["a", "b"], "INT")
    '(a % b)'
    """
    match call.function:
        case "case":
            return _case_sql(arguments)
        case "in":
            return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
        case "like":
            return _like_sql(call, arguments)
        case "cast":
            return f"CAST({arguments[0]} AS {kind})"
        case "remainder":
            return f"({arguments[0]} % {arguments[1]})"
        case "divide":
            return f"({arguments[0]} / {arguments[1]})"
        case "negate":
            return f"(- {arguments[0]})"
        case "timestamp_add":
            return f"({arguments[0]} + {interval_sql(literal_value(call.arguments[1]))})"
        case "single_value":
            value, rows = arguments
            return f"CASE WHEN {rows} > 1 THEN raise_error('{SEVERAL_ROWS}') ELSE {value} END"
        case name:
            return f"{name}({', '.join(arguments)})"


def interval_sql(microseconds: object) -> str:
    """So many microseconds as an interval.

    >>> interval_sql(-129_600_000_001)
    "INTERVAL '-1 12:00:00.000001' DAY TO SECOND"
    """
    assert isinstance(microseconds, int), "a call that is not evaluable has no text"
    seconds, fraction = divmod(abs(microseconds), 10**6)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    sign = "-" if microseconds < 0 else ""
    text = f"{sign}{days} {hour:02}:{minute:02}:{second:02}.{fraction:06}"
    return f"INTERVAL '{text}' DAY TO SECOND"


def _case_sql(arguments: Sequence[str]) -> str:
    paired = len(arguments) // 2 * 2
    pairs = zip(arguments[:paired:2], arguments[1:paired:2], strict=True)
    branches = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
    otherwise = f" ELSE {arguments[-1]}" if len(arguments) > paired else ""
    return f"CASE {branches}{otherwise} END"


def _like_sql(call: Call, arguments: Sequence[str]) -> str:
    escape = escape_of(call)
    assert escape is not None, "a call that is not evaluable has no text"
    quoted = escape.replace("\\", "\\\\").replace("'", "\\'")
    return f"({arguments[0]} LIKE {arguments[1]} ESCAPE '{quoted}')"
