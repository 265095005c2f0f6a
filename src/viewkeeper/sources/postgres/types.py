"""Types of PostgreSQL columns: what is kept exactly, and how values and keys are spelled.

A value reaches us in two ways: as the text that PostgreSQL writes (the change stream, small
answers), and as Arrow from ADBC (scans, large answers). Both become the same Arrow array here. The
session settings in `postgres_server` make the text one-to-one: ISO dates in UTC, hexadecimal bytes,
floating-point numbers with all their digits.

A column has a `PostgresKind` only if every value that fits it can be kept; a value that cannot (an
infinite date, NaN in a numeric) is a MisfitError that names it. Everything else is a
`ColumnRefusal`.

Keys are spelled as elements of an array literal. PostgreSQL's `=` never misses what Spark calls
equal, because all of its equalities are at least as coarse as equality of the text; where a type
has no usable equality of its own (json, enums), its text is compared.

What Spark has no type for, and Delta Lake no room (arrays, intervals, times of day, addresses,
ranges, numbers without fixed digits), is kept as the text that PostgreSQL's output function writes,
which is what the change stream has. A cast to text is not always the same (inet), so answers ask
for it by `concat`, as the triggers do. Compared are the texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import psycopg
import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.exact_cast import decimals_of
from viewkeeper.sources.tables.column_type import (
    DAY_FIRST,
    DAY_LAST,
    DAY_MICROSECONDS,
    DIGITS_MAX,
    IN_CALENDAR,
    ColumnRefusal,
    MisfitError,
    convert_or_blame,
)

Array: TypeAlias = Any
PgConnection: TypeAlias = psycopg.Connection[Any]
_UUID = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
# The first day that PostgreSQL's calendar has.
_DAY_EARLIEST = -2440588


@dataclass(frozen=True, slots=True)
class PostgresKind:
    """How the values of a column are kept.

    `read` turns PostgreSQL's text (as binary) into Arrow; `native` does so with what ADBC gives for
    the expression `select`. `key` is the type of the keys, `spell` their elements (NULL for a key
    that no value can equal), `compared` the expression that they are compared with.
    """

    arrow: pa.DataType
    read: Callable[[Array], Array]
    native: Callable[[Array], Array]
    expects: str
    key: str
    spell: Callable[[Array], Array]
    select: str = "{}"
    compared: str = "{}"

    @property
    def is_indexable(self) -> bool:
        return self.compared == "{}"


def convert_text(values: Array, kind: PostgresKind) -> Array:
    """Text of PostgreSQL, as binary, in the kind's Arrow type."""
    return _convert_values(values, kind, kind.read)


def convert_native(values: Array, kind: PostgresKind) -> Array:
    """What ADBC read, in the kind's Arrow type."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    return _convert_values(values, kind, kind.native)


def _convert_values(values: Array, kind: PostgresKind, how: Callable[[Array], Array]) -> Array:
    def blame(index: int) -> MisfitError:
        return MisfitError(index, _shown_value(values[index]), kind.expects)

    return convert_or_blame(values, how, blame)


def _shown_value(scalar: Any) -> object:
    if pa.types.is_temporal(scalar.type):
        return _shown_time(scalar)
    value = scalar.as_py()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _shown_time(scalar: Any) -> str:
    """A time that ADBC read, as PostgreSQL spells it.

    What Arrow has no number for, the infinities among it, has come out before all that there is.
    """
    unit = 1 if pa.types.is_date(scalar.type) else DAY_MICROSECONDS
    if scalar.value < _DAY_EARLIEST * unit:
        return "infinity, or a time that is as far away,"
    text = str(scalar.cast(pa.string()))
    if not text.startswith("-"):
        return text
    year, _, rest = text[1:].partition("-")
    return f"{int(year) + 1:04}-{rest} BC"


def _keep_values(values: Array) -> Array:
    return values


def _read_text(values: Array) -> Array:
    return values.cast(pa.string())


def _reads_cast(target: pa.DataType) -> Callable[[Array], Array]:
    def read(values: Array) -> Array:
        return _read_text(values).cast(target)

    return read


def _reads_decimal(target: pa.DataType) -> Callable[[Array], Array]:
    def read(values: Array) -> Array:
        return decimals_of(_read_text(values), target)

    return read


def _positive_zero(values: Array) -> Array:
    # Adding zero turns -0.0 into 0.0, which Spark calls equal and Arrow does not.
    return pc.add(values, pa.scalar(0.0, values.type))


def _reads_float(target: pa.DataType) -> Callable[[Array], Array]:
    def read(values: Array) -> Array:
        return _positive_zero(_read_text(values).cast(target))

    return read


def _read_boolean(values: Array) -> Array:
    return pc.equal(values, pa.scalar(b"t", pa.binary()))


def _read_bytes(values: Array) -> Array:
    # The text begins with \x.
    texts = (None if v is None else v[2:].decode("ascii") for v in values.to_pylist())
    return pa.array((None if t is None else bytes.fromhex(t) for t in texts), pa.binary())


def _read_utc(values: Array) -> Array:
    texts = _read_text(values)
    if not pc.all(pc.ends_with(texts, "+00"), min_count=0).as_py():
        raise ValueError("not in UTC")
    plain = pc.utf8_replace_slice(texts, -3, 1 << 30, "").cast(pa.timestamp("us"))
    return pc.assume_timezone(plain, "UTC")


def _check_within(values: Array, unit: int) -> Array:
    numbers = values.cast(pa.int32() if unit == 1 else pa.int64())
    inside = pc.and_(
        pc.greater_equal(numbers, pa.scalar(DAY_FIRST * unit, numbers.type)),
        pc.less(numbers, pa.scalar((DAY_LAST + 1) * unit, numbers.type)),
    )
    if not pc.all(inside, min_count=0).as_py():
        raise ValueError("outside the years 1 to 9999")
    return values


def _check_days(values: Array) -> Array:
    return _check_within(values, 1)


def _check_instants(values: Array) -> Array:
    return _check_within(values, DAY_MICROSECONDS)


def _spelled_plain(values: Array) -> Array:
    return values.cast(pa.string())


def _spelled_text(values: Array) -> Array:
    # PostgreSQL stores no zero byte, and takes none in a literal.
    texts = values.cast(pa.string())
    found = pc.match_substring(texts, "\0")
    texts = pc.if_else(found, pa.scalar(None, pa.string()), texts)
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    return _in_quotes(escaped)


def _spelled_oid(values: Array) -> Array:
    inside = pc.and_(
        pc.greater_equal(values, pa.scalar(0)), pc.less(values, pa.scalar(1 << 32, pa.int64()))
    )
    return pc.if_else(inside, values, pa.scalar(None, pa.int64())).cast(pa.string())


def _spelled_uuid(values: Array) -> Array:
    canonical = pc.match_substring_regex(values, _UUID)
    return pc.if_else(canonical, values, pa.scalar(None, pa.string()))


def _spelled_float(values: Array) -> Array:
    texts = [None if v is None else repr(v) for v in values.cast(pa.float64()).to_pylist()]
    return pa.array(texts, pa.string())


def _spelled_bytes(values: Array) -> Array:
    texts = (None if v is None else '"\\\\x' + v.hex() + '"' for v in values.to_pylist())
    return pa.array(texts, pa.string())


def _spelled_time(values: Array) -> Array:
    return _in_quotes(pc.strftime(values, format="%Y-%m-%d %H:%M:%S"))


def _spelled_utc(values: Array) -> Array:
    return _in_quotes(pc.strftime(values, format="%Y-%m-%d %H:%M:%S+00"))


def _in_quotes(texts: Array) -> Array:
    mark = pa.scalar('"')
    return pc.binary_join_element_wise(mark, texts, mark, pa.scalar(""))


def _integer_kind(
    key: str = "bigint", spell: Callable[[Array], Array] = _spelled_plain
) -> PostgresKind:
    target = pa.int64()
    select = "{}" if key == "bigint" else "{}::int8"
    return PostgresKind(
        target,
        _reads_cast(target),
        lambda v: v.cast(target),
        "an integer",
        key,
        spell,
        select=select,
    )


def _float_kind(target: pa.DataType) -> PostgresKind:
    expects = "a floating-point number"
    return PostgresKind(
        target, _reads_float(target), _positive_zero, expects, "float8", _spelled_float
    )


def _string_kind(
    key: str = "text",
    spell: Callable[[Array], Array] = _spelled_text,
    select: str = "{}",
    compared: str = "{}",
) -> PostgresKind:
    return PostgresKind(
        pa.string(), _read_text, _read_text, "valid UTF-8", key, spell, select, compared
    )


_BY_TEXT = _string_kind(select="{}::text", compared="{}::text")
_WRITTEN = "CASE WHEN {0} IS NOT NULL THEN concat({0}) END"
_BY_OUTPUT = _string_kind(select=_WRITTEN, compared=_WRITTEN)
_WRITTEN_TYPES = frozenset(
    [
        "time",
        "timetz",
        "interval",
        "inet",
        "cidr",
        "macaddr",
        "macaddr8",
        "bit",
        "varbit",
        "xml",
        "tsvector",
        "tsquery",
        "jsonpath",
        "int4range",
        "int8range",
        "numrange",
        "tsrange",
        "tstzrange",
        "daterange",
        "int4multirange",
        "int8multirange",
        "nummultirange",
        "tsmultirange",
        "tstzmultirange",
        "datemultirange",
        "point",
        "line",
        "lseg",
        "box",
        "path",
        "polygon",
        "circle",
        "pg_lsn",
        "hstore",
        "ltree",
    ]
)
"""The types that are kept as the text that their output functions write."""

_DAY, _TIME = f"a date {IN_CALENDAR}", f"a timestamp {IN_CALENDAR}"
_TIMESTAMP, _INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")

_BY_NAME: dict[str, PostgresKind] = {
    **dict.fromkeys(("int2", "int4", "int8"), _integer_kind()),
    "oid": _integer_kind("oid", _spelled_oid),
    "float4": _float_kind(pa.float32()),
    "float8": _float_kind(pa.float64()),
    "bool": PostgresKind(
        pa.bool_(), _read_boolean, _keep_values, "a boolean", "boolean", _spelled_plain
    ),
    **dict.fromkeys(("text", "varchar", "name"), _string_kind()),
    # As text it would lose its trailing blanks, which are there in the change stream.
    "bpchar": _string_kind("bpchar"),
    "citext": _string_kind("citext", select="{}::text"),
    "uuid": _string_kind("uuid", _spelled_uuid, select="{}::text"),
    **dict.fromkeys(("json", "jsonb"), _BY_TEXT),
    "bytea": PostgresKind(pa.binary(), _read_bytes, _keep_values, "bytes", "bytea", _spelled_bytes),
    "date": PostgresKind(
        pa.date32(), _reads_cast(pa.date32()), _check_days, _DAY, "date", _spelled_plain
    ),
    "timestamp": PostgresKind(
        _TIMESTAMP, _reads_cast(_TIMESTAMP), _check_instants, _TIME, "timestamp", _spelled_time
    ),
    "timestamptz": PostgresKind(
        _INSTANT, _read_utc, _check_instants, _TIME, "timestamptz", _spelled_utc
    ),
}


def kind_of(name: str, modifier: int, is_enum: bool, declared: str) -> PostgresKind | ColumnRefusal:
    """How a type is kept, or why it is not.

    `name` is that of the type below all domains; that of an array is its element's, then `[]`.
    """
    if name.endswith("[]"):
        element = name.removesuffix("[]")
        is_known = element in _BY_NAME or element in _WRITTEN_TYPES or element == "numeric"
        return _BY_OUTPUT if is_enum or is_known else _refuse_type(declared)
    if is_enum:
        return _BY_TEXT
    if name == "numeric":
        return _numeric_kind(modifier)
    if name in _WRITTEN_TYPES:
        return _BY_OUTPUT
    return _BY_NAME.get(name) or _refuse_type(declared)


def _refuse_type(declared: str) -> ColumnRefusal:
    if declared == "money":
        return ColumnRefusal(
            "the type money does not say which currency its numbers are of, nor how many digits",
            "ALTER TABLE t ALTER COLUMN c TYPE numeric(19, 2) USING c::numeric",
        )
    return ColumnRefusal(
        f"there is no type of Spark for {declared}, and its text may change while its values stay",
        "ALTER TABLE t ALTER COLUMN c TYPE text USING c::text; or let a trigger of yours keep a "
        "text column beside it (a generated column is not in the change stream)",
    )


def _numeric_kind(modifier: int) -> PostgresKind:
    """A number with fixed digits is a decimal, if it has room for them; else it is its text."""
    if modifier < 0:
        return _BY_TEXT
    digits = (modifier - 4) >> 16 & 0xFFFF
    # Eleven bits with a sign, since PostgreSQL 15.
    places = ((modifier - 4 & 0x7FF) ^ 0x400) - 0x400
    digits = max(digits, places) if places >= 0 else digits - places
    places = max(places, 0)
    if digits > DIGITS_MAX:
        return _BY_TEXT
    target = pa.decimal128(digits, places)
    expects = f"a number with at most {digits} digits, {places} after the point"
    read = _reads_decimal(target)
    return PostgresKind(target, read, read, expects, "numeric", _spelled_plain, select="{}::text")


def array_literal(elements: Array) -> str:
    """
    >>> array_literal(pa.array(['1', '2']))
    '{1,2}'
    """
    return "{" + ",".join(elements.to_pylist()) + "}"


def quote_name(name: str) -> str:
    """
    >>> quote_name('Order "a" b')
    '"Order ""a"" b"'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """
    >>> quote_literal("it's")
    "'it''s'"
    """
    escaped = re.sub(r"(['\\])", r"\1\1", text)
    return f"E'{escaped}'" if "\\" in text else f"'{escaped}'"


def read_row(
    connection: PgConnection, query: str, values: Sequence[Any] | Mapping[str, Any] = ()
) -> tuple[Any, ...]:
    """The one row of a query that has exactly one."""
    row = connection.execute(query.encode(), values or None).fetchone()
    assert row is not None, query
    return tuple(row)
