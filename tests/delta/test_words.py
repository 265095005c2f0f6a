"""Every word of the kernel against Spark, on the values at which the two could differ."""

from __future__ import annotations

import datetime
import decimal
import itertools
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from typing import Literal as OneOf

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.delta.word_judge import judge
from viewkeeper.delta.evaluate import evaluate_expression
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
    type_of,
)
from viewkeeper.view.kernel_words import (
    DATE_TRUNC_UNITS,
    TRUNC_UNITS,
    WORDS,
    bounded_decimal,
    divide_type,
    is_evaluable,
    remainder_type,
    round_type,
)

BOOL, INT, LONG, FLOAT, DOUBLE = pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64()
TEXT, DATE, LOCAL = pa.string(), pa.date32(), pa.timestamp("us")
INSTANT = pa.timestamp("us", "UTC")
INTEGERS = [pa.int8(), pa.int16(), INT, LONG]

TEXTS = [
    *("", "a", "ab", "abc", " a b ", "  ", "PROMO x", "promo", "a%b", "a_b", "a\\b", "A.*b", "a+"),
    *("äöüß", "ÄÖÜ", "日本語", "a\nb", "\r\n", "\ta ", "\u00a0a\u3000", "😀", "a😀b", "ΟΔΟΣ", "Σ"),
    *("İı", "ǆ", "ﬁn", "e\u0301", "\u2028", "\0", "x" * 300, "special xx requests", "ŉ", "ᾳ", "A1"),
    None,
]
DAYS = [-719162, 2932896, 0, -1, 11016, 19782, 19783, 19787, -141428, -141427, 18992, 59, None]
MICROS = [
    *(-62135596800000000, 253402300799999999, 0, -1, 1, 1_700_000_000_123_456, -86_400_000_000),
    *(951_782_399_999_999, 1_709_164_800_000_000, -12_219_292_800_000_001, 120_000, None),
]
DOUBLES = [
    *(0.0, 1.0, -1.0, 0.1, 2.5, -2.5, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan, 1e16),
    *(2147483647.0, 2147483647.9, 2147483648.0, -2147483648.9, 9007199254740993.0, None),
]


def bounds(kind: pa.DataType) -> list[int | None]:
    top = 1 << (kind.bit_width - 1)
    return [-top, 1 - top, -7, -2, -1, 0, 1, 2, 3, 7, top - 1, None]


def decimals(precision: int, scale: int) -> list[decimal.Decimal | None]:
    most = 10**precision - 1
    unscaled = {
        0,
        1,
        -1,
        5,
        -5,
        15,
        25,
        -25,
        149,
        150,
        most,
        -most,
        most // 2,
        most // 3,
        10**scale,
    }
    fitting = sorted(number for number in unscaled if abs(number) <= most)
    return [*(exact(number, scale) for number in fitting), None]


def exact(unscaled: int, scale: int) -> decimal.Decimal:
    sign, digits = int(unscaled < 0), tuple(map(int, str(abs(unscaled))))
    return decimal.Decimal((sign, digits, -scale))


def column(name: str, kind: pa.DataType) -> Column:
    return Column(0, name, kind)


def lit(value: Any, kind: pa.DataType) -> Literal:
    return Literal(value, kind)


def call(function: str, kind: pa.DataType, *arguments: Expression) -> Call:
    return Call(function, arguments, kind)


def product(**columns: tuple[pa.DataType, Iterable[Any]]) -> pa.Table:
    """All combinations of the columns' values."""
    rows = list(itertools.product(*(list(values) for _, values in columns.values())))
    return pa.table(
        {
            f"0.{name}": typed([row[at] for row in rows], kind)
            for at, (name, (kind, _)) in enumerate(columns.items())
        }
    )


def typed(values: list[Any], kind: Any) -> Any:
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    plain: pa.Array[Any] = pa.array(values, kind)
    return plain


def test_texts(spark: SparkSession) -> None:
    x, y = column("x", TEXT), column("y", TEXT)
    table = product(x=(TEXT, TEXTS), y=(TEXT, ["", "a", "b", "😀", "a%", None]))
    one_text = [call(name, TEXT, x) for name in ("upper", "lower", "trim", "ltrim", "rtrim")]
    searches = [call(name, BOOL, x, y) for name in ("startswith", "endswith", "contains")]
    with_literal = [
        call(name, BOOL, x, lit(text, TEXT))
        for name in ("startswith", "endswith", "contains")
        for text in ("", "a", "😀", "a.*")
    ]
    joins = [
        call("concat", TEXT, x),
        call("concat", TEXT, x, y),
        call("concat", TEXT, x, lit("-", TEXT), y, x),
        call("concat", TEXT, x, lit(None, TEXT)),
        call("length", INT, x),
        call("length", INT, call("concat", TEXT, x, y)),
        call("length", INT, lit("a😀", TEXT)),
        call("upper", TEXT, lit("straße", TEXT)),
    ]
    judge(spark, table, [*one_text, *searches, *with_literal, *joins])


def test_patterns(spark: SparkSession) -> None:
    x = column("x", TEXT)
    patterns = [
        *("%", "a%", "%b", "%a%", "a_b", "_", "__", "PROMO%", "%special%requests%", "a\\%b", ""),
        *(
            "a\\_b",
            "%ö%",
            "日%",
            "a%b",
            "a_",
            "%%",
            "_%",
            "%_",
            "a\\\\b",
            "A.*b",
            "a+",
            "%\\\\%",
            "a%%",
        ),
        *("%.%", "%\n%", "_\n_", "\0", "%😀%", "(a|b)", "[a]%", "^a", "a$", "\\%", "%_%a%"),
    ]
    likes = [call("like", BOOL, x, lit(pattern, TEXT)) for pattern in patterns]
    escaped = [
        call("like", BOOL, x, lit(pattern, TEXT), lit(escape, TEXT))
        for pattern, escape in [("a/%b", "/"), ("a\\b", "/"), ("a''b", "'"), ("äö%", "/")]
    ]
    judge(spark, product(x=(TEXT, TEXTS)), [*likes, *escaped])


def test_substrings(spark: SparkSession) -> None:
    x, start, size = column("x", TEXT), column("start", INT), column("size", INT)
    far = 2**31 - 1
    starts, sizes = (
        [-far - 1, -300, -3, -1, 0, 1, 2, 3, 301, far, None],
        [-1, 0, 1, 2, 9, far, None],
    )
    literals = [
        call("substring", TEXT, x, lit(one, INT), lit(other, INT))
        for one in starts
        for other in sizes
    ]
    open_ended = [call("substring", TEXT, x, lit(one, INT)) for one in starts]
    columns = [
        call("substring", TEXT, x, start, size),
        call("substring", TEXT, x, start),
        call("substring", TEXT, lit("hello", TEXT), start, lit(2, INT)),
    ]
    judge(spark, product(x=(TEXT, TEXTS)), [*literals, *open_ended])
    short = [text for text in TEXTS if text is None or len(text) < 5]
    judge(spark, product(x=(TEXT, short), start=(INT, starts), size=(INT, sizes)), columns)


def test_dates(spark: SparkSession) -> None:
    x, y, n = column("x", DATE), column("y", DATE), column("n", INT)
    table = product(
        x=(DATE, DAYS),
        y=(DATE, DAYS),
        n=(INT, [-(2**31), -1200, -12, -1, 0, 1, 13, 2**31 - 1, None]),
    )
    parts = [call(name, INT, x) for name in ("year", "month", "day", "quarter")]
    truncs = [call("trunc", DATE, x, lit(unit, TEXT)) for unit in [*TRUNC_UNITS, "yy", "Week"]]
    sums = [
        call("datediff", INT, x, y),
        call("datediff", INT, x, lit(datetime.date(2024, 2, 29), DATE)),
        call("date_add", DATE, x, n),
        call("date_add", DATE, x, lit(30, INT)),
        call("date_add", DATE, x, lit(3, pa.int8())),
        call("year", INT, call("date_add", DATE, x, n)),
        call("day", INT, call("date_add", DATE, x, n)),
        call("trunc", DATE, call("date_add", DATE, x, n), lit("MONTH", TEXT)),
        call("cast", TEXT, call("date_add", DATE, x, n)),
        call("add_months", DATE, x, n),
        call("add_months", DATE, x, lit(1, INT)),
        call("add_months", DATE, lit(datetime.date(2024, 1, 31), DATE), n),
        call("add_months", DATE, lit(datetime.date(2024, 1, 31), DATE), lit(1, INT)),
    ]
    assert judge(spark, table, [*parts, *truncs, *sums]) == 2


def test_instants(spark: SparkSession) -> None:
    z, n = column("z", INSTANT), column("n", LOCAL)
    table = product(z=(INSTANT, MICROS), n=(LOCAL, MICROS))
    names = ("year", "month", "day", "quarter", "hour", "minute", "second")
    parts = [call(name, INT, each) for name in names for each in (z, n)]
    truncs = [
        call("date_trunc", INSTANT, lit(unit, TEXT), z) for unit in [*DATE_TRUNC_UNITS, "month"]
    ]
    moved = [
        call("timestamp_add", kind, each, lit(amount, LONG))
        for kind, each in ((INSTANT, z), (LOCAL, n))
        for amount in (0, 1, -1, 86_400_000_000, -3_600_000_001, 30 * 86_400_000_000)
    ]
    judge(spark, table, [*parts, *truncs, *moved])


def square(**columns: tuple[pa.DataType, list[Any]]) -> pa.Table:
    """Every value of `a...` beside every one of `b...`, of each type, in one table."""
    size = max(len(values) for _, values in columns.values())
    pairs = list(itertools.product(range(size), repeat=2))
    return pa.table(
        {
            f"0.{name}": typed([values[pair[name[0] == "b"] % len(values)] for pair in pairs], kind)
            for name, (kind, values) in columns.items()
        }
    )


def test_integer_numbers(spark: SparkSession) -> None:
    expressions: list[Expression] = []
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {}
    for at, kind in enumerate(INTEGERS):
        columns |= {name: (kind, bounds(kind)) for name in (f"a{at}", f"b{at}")}
        a, b = column(f"a{at}", kind), column(f"b{at}", kind)
        expressions += [
            call("remainder", kind, a, b),
            call("remainder", kind, a, lit(3, kind)),
            call("remainder", kind, lit(-7, kind), b),
            call("remainder", kind, a, lit(0, kind)),
            call("abs", kind, a),
            call("negate", kind, a),
            call("round", kind, a),
            call("round", kind, a, lit(2, INT)),
            Arithmetic("+", a, call("remainder", kind, a, b), kind),
            Arithmetic("*", call("remainder", kind, a, b), b, kind),
        ]
    assert judge(spark, square(**columns), expressions, errors=2) >= 4 * 5


def test_float_numbers(spark: SparkSession) -> None:
    for kind in (FLOAT, DOUBLE):
        a, b = column("a", kind), column("b", kind)
        expressions: list[Expression] = [
            call("remainder", kind, a, b),
            call("remainder", kind, a, lit(0.5, kind)),
            call("abs", kind, a),
            call("negate", kind, a),
            call("greatest", kind, a, b),
            call("least", kind, a, b, lit(2.5, kind)),
            call("in", BOOL, a, b, lit(1.0, kind), lit(math.nan, kind)),
            call("in", BOOL, a, lit(0.0, kind), lit(None, kind)),
        ]
        if kind == DOUBLE:
            expressions += [call("divide", kind, a, b), call("divide", kind, lit(1.0, kind), b)]
            expressions += [call("divide", kind, call("negate", kind, a), b)]
        table = product(a=(kind, DOUBLES), b=(kind, DOUBLES))
        judge(spark, table, expressions)


SCALES = [(5, 2), (15, 2), (18, 0), (20, 6), (38, 0), (38, 10), (38, 38), (10, 9), (1, 0)]


def decimal_square() -> pa.Table:
    """Two columns of each size, named by it."""
    sizes = {
        f"{side}{p}_{s}": (pa.decimal128(p, s), decimals(p, s)) for p, s in SCALES for side in "ab"
    }
    return square(**sizes)


def test_decimals(spark: SparkSession) -> None:
    expressions: list[Expression] = []
    for precision, scale in SCALES:
        kind = pa.decimal128(precision, scale)
        a, b = (column(f"{side}{precision}_{scale}", kind) for side in "ab")
        places = (None, -40, -3, -1, 0, 1, 2, 5, 11, 40)
        expressions += [
            *(
                call("round", round_type(kind, at or 0), a, *[lit(at, INT)][: at is not None])
                for at in places
            ),
            *(call(name, kind, a) for name in ("abs", "negate") if precision <= 34),
            call("divide", divide_type(kind, kind), a, b),
            call("remainder", remainder_type(kind, kind), a, b),
            call("greatest", kind, a, b),
            call("in", BOOL, a, lit(exact(1, scale), kind), lit(None, kind)),
        ]
    judge(spark, decimal_square(), expressions, errors=1)


@pytest.mark.parametrize("others", [[0], [5, None], [10**38 - 1, 0]])
def test_a_number_without_room_is_an_error_beside_any_others(others: list[int | None]) -> None:
    """Arrow rounds it to zero, and says so only of a last row."""
    kind = pa.decimal128(38, 0)
    rounded = call("round", kind, column("x", kind), lit(-3, INT))
    values = [exact(1 - 10**38, 0), *(None if each is None else exact(each, 0) for each in others)]
    with pytest.raises(ExpressionError, match="does not fit"):
        evaluate_expression(rounded, pa.table({"0.x": pa.array(values, kind)}))


SIGNS: tuple[OneOf["+"], OneOf["-"], OneOf["*"]] = ("+", "-", "*")


def arithmetic_type(sign: str, one: pa.Decimal128Type, other: pa.Decimal128Type) -> pa.DataType:
    if sign == "*":
        return bounded_decimal(one.precision + other.precision + 1, one.scale + other.scale)
    scale = max(one.scale, other.scale)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    return bounded_decimal(whole + scale + 1, scale)


def test_decimals_of_two_types(spark: SparkSession) -> None:
    table = decimal_square()
    for p1, s1 in SCALES[:6]:
        expressions: list[Expression] = []
        for p2, s2 in SCALES[:7]:
            one, other = pa.decimal128(p1, s1), pa.decimal128(p2, s2)
            a, b = column(f"a{p1}_{s1}", one), column(f"b{p2}_{s2}", other)
            expressions += [
                call("divide", divide_type(one, other), a, b),
                *(
                    [call("remainder", remainder_type(one, other), a, b)]
                    if p1 - s1 + s2 < 40
                    else []
                ),
                *(Arithmetic(sign, a, b, arithmetic_type(sign, one, other)) for sign in SIGNS),
            ]
        judge(spark, table, expressions, errors=0)


def decimal_types(*sizes: tuple[int, int]) -> list[pa.DataType]:
    return [pa.decimal128(precision, scale) for precision, scale in sizes]


FROM_INTEGERS: list[pa.DataType] = [
    *INTEGERS,
    FLOAT,
    DOUBLE,
    TEXT,
    BOOL,
    *decimal_types((3, 0), (3, 1), (20, 0), (38, 18), (38, 38)),
]
FROM_DECIMALS: list[pa.DataType] = [
    *INTEGERS,
    DOUBLE,
    TEXT,
    *decimal_types((3, 0), (5, 2), (20, 1), (38, 18), (38, 38)),
]
Casts = list[tuple[pa.DataType, list[Any], list[pa.DataType]]]
CASTS: dict[str, Casts] = {
    "integers": [(kind, bounds(kind), FROM_INTEGERS) for kind in INTEGERS],
    "decimals": [
        (pa.decimal128(p, s), decimals(p, s), FROM_DECIMALS[4 * (p > 34) :]) for p, s in SCALES
    ],
    "others": [
        (BOOL, [True, False, None], [*INTEGERS, TEXT, BOOL]),
        (DOUBLE, DOUBLES, [FLOAT, INT, DOUBLE]),
        (FLOAT, DOUBLES, [DOUBLE, INT]),
        (TEXT, TEXTS, [TEXT]),
        (DATE, DAYS, [TEXT, LOCAL, INSTANT]),
        (LOCAL, MICROS, [TEXT, DATE, INSTANT]),
        (INSTANT, MICROS, [TEXT, DATE, LOCAL]),
    ],
}


@pytest.mark.parametrize("family", CASTS)
def test_casts(spark: SparkSession, family: str) -> None:
    cases = CASTS[family]
    rows = max(len(values) for _, values, _ in cases)
    table = pa.table(
        {
            f"0.x{at}": typed([values[row % len(values)] for row in range(rows)], kind)
            for at, (kind, values, _) in enumerate(cases)
        }
    )
    expressions = [
        call("cast", target, column(f"x{at}", kind))
        for at, (kind, _, targets) in enumerate(cases)
        for target in targets
    ]
    judge(spark, table, expressions, errors=1)


def test_branches(spark: SparkSession) -> None:
    a, b, t = column("a", INT), column("b", INT), column("t", TEXT)
    rest = call("remainder", INT, lit(7, INT), b)
    zero, one = lit(0, INT), lit(1, INT)
    nonzero = Compare("<>", b, zero)
    equal = Compare("=", rest, one)
    expressions: list[Expression] = [
        call("case", INT, nonzero, rest),
        call("case", INT, nonzero, rest, lit(9, INT)),
        call("case", INT, Compare("=", b, zero), lit(-1, INT), equal, lit(1, INT), rest),
        call("case", INT, Compare(">", a, one), rest, nonzero, a, zero),
        call("case", TEXT, IsNull(a), lit("none", TEXT), Compare("<", a, b), t),
        call("if", INT, nonzero, rest, a),
        call("if", INT, lit(None, BOOL), rest, a),
        call("if", INT, lit(True, BOOL), a, call("remainder", INT, one, zero)),
        call("coalesce", INT, a, rest),
        call("coalesce", INT, lit(None, INT), a, zero),
        call("coalesce", TEXT, t, lit("?", TEXT)),
        call("coalesce", INT, call("if", INT, nonzero, rest, lit(None, INT)), a, one),
        Logic("and", nonzero, equal),
        Logic("or", Compare("=", b, zero), equal),
        Logic("and", equal, nonzero),
        Logic("or", IsNull(b), Not(equal)),
        Logic("and", lit(False, BOOL), equal),
        Arithmetic("+", a, rest, INT),
        Compare("<", a, rest),
        Compare("<=>", a, rest),
        Cast(call("if", INT, nonzero, rest, a), LONG),
        call("divide", DOUBLE, Cast(rest, DOUBLE), Cast(a, DOUBLE)),
        call("in", BOOL, a, one, rest),
        call("in", BOOL, a, lit(1, INT), lit(2, INT)),
        call("in", BOOL, a, lit(1, INT), lit(None, INT)),
        call("in", BOOL, a, lit(None, INT)),
        call("in", BOOL, a, b, lit(None, INT), zero),
        call("in", BOOL, t, *(lit(text, TEXT) for text in TEXTS[:12])),
        Not(call("in", BOOL, t, lit("a", TEXT), lit("😀", TEXT))),
        call("greatest", INT, a, b, one),
        call("least", INT, a, b),
        call("greatest", TEXT, t, lit("b", TEXT)),
        call("least", TEXT, t, lit("日", TEXT), lit(None, TEXT)),
        call("concat", TEXT, t, call("cast", TEXT, call("if", INT, nonzero, rest, a))),
        call("substring", TEXT, t, a, call("coalesce", INT, b, one)),
    ]
    values = [None, -(2**31), -1, 0, 1, 2, 3, 7]
    table = product(a=(INT, values), b=(INT, values), t=(TEXT, ["", "a", "b", "abc", "😀", None]))
    assert judge(spark, table, expressions) >= 3


def test_conditions_of_any_type(spark: SparkSession) -> None:
    kinds: list[tuple[pa.DataType, list[Any]]] = [
        (BOOL, [True, False, None]),
        (DATE, DAYS),
        (LOCAL, MICROS),
        (INSTANT, MICROS),
        (pa.binary(), [b"", b"a", b"\xff\x00", None]),
        (TEXT, TEXTS[:20]),
    ]
    for kind, values in kinds:
        x, y = column("x", kind), column("y", kind)
        expressions: list[Expression] = [
            call("coalesce", kind, x, y),
            call("if", kind, IsNull(x), y, x),
            call("case", kind, Compare("=", x, y), x),
            call("in", BOOL, x, y),
        ]
        if kind != pa.binary():
            expressions += [call("greatest", kind, x, y), call("least", kind, x, y)]
        else:
            expressions += [call("length", INT, x)]
        judge(spark, product(x=(kind, values), y=(kind, values)), expressions)


def test_a_single_value(spark: SparkSession) -> None:
    for kind, values in ((INT, [None, 0, 7]), (TEXT, ["", "a", None])):
        x, rows = column("x", kind), column("rows", pa.int64())
        table = product(x=(kind, values), rows=(pa.int64(), [None, 0, 1, 2]))
        assert judge(spark, table, [call("single_value", kind, x, rows)]) >= 1


def test_every_character_has_sparks_case(spark: SparkSession) -> None:
    """In blocks of 200 characters, each between two others, and with a sigma at its sides."""
    points = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    blocks = [points[at : at + 200] for at in range(0, len(points), 200)]
    texts = [character_text(block) for block in blocks if any(map(is_assigned, block))]
    table = pa.table({"0.x": pa.array(texts)})
    x = column("x", TEXT)
    judge(spark, table, [call("upper", TEXT, x), call("lower", TEXT, x)])


def character_text(points: list[int]) -> str:
    letters = [chr(point) for point in points]
    return "1".join(f"{each}Σ1A{each}Σ1AΣ{each}1AΣ{each}B1{each}" for each in letters)


def is_assigned(point: int) -> bool:
    return point < 0x20000 or 0xE0000 <= point < 0xE1000


def test_every_word_has_been_judged() -> None:
    """What is asked of Spark above, by name; a new word must be added to it."""
    source = Path(__file__).read_text(encoding="utf-8")
    assert {word for word in WORDS if f'"{word}"' not in source} == set()


@pytest.mark.parametrize(
    "wrong",
    [
        call("round", DOUBLE, column("x", DOUBLE), lit(2, INT)),
        call("cast", TEXT, column("x", DOUBLE)),
        call("cast", INT, column("x", TEXT)),
        call("like", BOOL, column("x", TEXT), lit("a\\", TEXT)),
        call("like", BOOL, column("x", TEXT), lit("\\a", TEXT)),
        call("like", BOOL, column("x", TEXT), column("y", TEXT)),
        call("trunc", DATE, column("x", DATE), lit("day", TEXT)),
        call("coalesce", LONG, column("x", INT), column("y", LONG)),
        call("unheard", INT, column("x", INT)),
        call("divide", INT, column("x", INT), column("y", INT)),
        call("length", INT, Literal(None, pa.null())),
    ],
)
def test_what_could_differ_is_left_to_spark(wrong: Call) -> None:
    assert not is_evaluable(wrong)
    assert type_of(wrong) == wrong.type
