"""Types of MariaDB columns: how each is kept, or why it is not; values of answers as Arrow.

A column has an Arrow type here only if every value that it can hold is kept exactly; others are
refused with the reason. The few values that a type allows and no calendar knows ('0000-00-00',
'2024-02-31') are an error that names them when they are read.

Answers come as text, which the server writes exactly for every type but FLOAT (that one is asked
for as DOUBLE) and BIT (asked for as a number). What the binlog holds is read by
`raw_values`, from other bytes, to the same values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.delta.exact_cast import decimals_of
from viewkeeper.sources.mariadb.server_connection import quote_name
from viewkeeper.sources.tables.column_type import ColumnRefusal, MisfitError, convert_or_blame

Array: TypeAlias = "pa.Array[pa.Scalar[pa.DataType]]"
Values = Sequence[bytes | None]
Family = Literal[
    "integer",
    "unsigned",
    "decimal",
    "float",
    "bits",
    "text",
    "binary",
    "date",
    "datetime",
    "timestamp",
    "time",
    "year",
    "enum",
    "set",
    "uuid",
    "inet4",
    "inet6",
]

_INTEGERS = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_UNICODE = {"utf8", "utf8mb3", "utf8mb4", "ascii"}
_DECLARED = re.compile(r"(\w+)(?:\((.*)\))?((?: unsigned| zerofill)*)", re.DOTALL)
_LABEL = re.compile(r"'((?:[^']|'')*)'")
# How information_schema writes labels, in our SQL mode.
_ESCAPE = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r"}
_TIMESTAMP = pa.timestamp("us")


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """A column's type as information_schema has it.

    `characters` are the 256 characters of a one-byte character set; "" for every other.
    """

    type: str
    charset: str = ""
    collation: str = ""
    characters: str = ""


@dataclass(frozen=True, slots=True)
class MariadbKind:
    """How the values of a column are kept.

    `characters` are the 256 characters of a one-byte character set; "" where the bytes are UTF-8.
    `length` is that of BINARY and BIT.
    """

    family: Family
    arrow: pa.DataType
    collation: str = ""
    charset: str = ""
    characters: str = ""
    labels: tuple[str, ...] = ()
    length: int = 0


def kind_of(declared: DeclaredType) -> MariadbKind | ColumnRefusal:
    """How a column is kept, or why it is not."""
    match = _DECLARED.fullmatch(declared.type)
    if match is None:
        return _refuse_decorated(declared.type)
    name, inside, signs = match[1], match[2] or "", match[3]
    if name in _INTEGERS:
        big = name == "bigint" and "unsigned" in signs
        return (
            MariadbKind("unsigned", pa.decimal128(20, 0))
            if big
            else MariadbKind("integer", pa.int64())
        )
    if name == "decimal":
        return _decimal_kind(inside)
    if name == "bit":
        return _bits_kind(int(inside))
    if name in _TEXTS:
        return _text_kind(declared)
    if name in _BYTES:
        return MariadbKind("binary", pa.binary(), length=int(inside) if name == "binary" else 0)
    if name in ("enum", "set"):
        return _labelled_kind(name, inside, declared)
    return _BY_NAME.get(name) or _refuse_unknown(declared.type)


_BY_NAME: Mapping[str, MariadbKind] = {
    "float": MariadbKind("float", pa.float32()),
    "double": MariadbKind("float", pa.float64()),
    "date": MariadbKind("date", pa.date32()),
    "datetime": MariadbKind("datetime", _TIMESTAMP),
    "timestamp": MariadbKind("timestamp", pa.timestamp("us", "UTC")),
    # It goes beyond a day and below zero, which no type of Spark does.
    "time": MariadbKind("time", pa.string()),
    "year": MariadbKind("year", pa.int64()),
    "uuid": MariadbKind("uuid", pa.string()),
    "inet4": MariadbKind("inet4", pa.string()),
    "inet6": MariadbKind("inet6", pa.string()),
}


def _decimal_kind(inside: str) -> MariadbKind | ColumnRefusal:
    precision, scale = (int(part) for part in inside.split(","))
    if not scale <= precision <= 38:
        return ColumnRefusal(
            f"decimal({precision},{scale}) has more than 38 digits",
            "declare it with at most 38 digits, or keep the value as text",
        )
    return MariadbKind("decimal", pa.decimal128(precision, scale))


def _bits_kind(length: int) -> MariadbKind:
    if length == 1:
        return MariadbKind("bits", pa.bool_(), length=1)
    return MariadbKind("bits", pa.int64() if length < 64 else pa.decimal128(20, 0), length=length)


def _text_kind(declared: DeclaredType) -> MariadbKind | ColumnRefusal:
    charset, characters = declared.charset, declared.characters
    if charset in _UNICODE or characters:
        return MariadbKind("text", pa.string(), declared.collation, charset, characters)
    return ColumnRefusal(
        f"the character set {charset} has several bytes per character and is not UTF-8",
        "convert it: ALTER TABLE ... MODIFY ... CHARACTER SET utf8mb4",
    )


def _labelled_kind(name: str, inside: str, declared: DeclaredType) -> MariadbKind | ColumnRefusal:
    labels = tuple(_ESCAPE.sub(_unescape_match, label) for label in _LABEL.findall(inside))
    if declared.charset not in _UNICODE and not all(label.isascii() for label in labels):
        return ColumnRefusal(
            f"its labels are not ASCII, in the character set {declared.charset}",
            "convert it: ALTER TABLE ... MODIFY ... CHARACTER SET utf8mb4",
        )
    family: Family = "enum" if name == "enum" else "set"
    return MariadbKind(family, pa.string(), declared.collation, declared.charset, labels=labels)


def _unescape_match(match: re.Match[str]) -> str:
    """A quote that is written twice, or a character behind a backslash."""
    character = match[1]
    return "'" if character is None else _ESCAPED.get(character, character)


def _refuse_decorated(declared: str) -> ColumnRefusal:
    if "COMPRESSED" in declared:
        return ColumnRefusal(
            "the binlog has its values compressed", "ALTER TABLE ... MODIFY ... without COMPRESSED"
        )
    if "mariadb-5.3" in declared:
        return ColumnRefusal(
            "it is stored in the format of MariaDB 5.3, which the binlog does not describe",
            "SET GLOBAL mysql56_temporal_format = ON; ALTER TABLE ... FORCE",
        )
    return _refuse_unknown(declared)


def _refuse_unknown(declared: str) -> ColumnRefusal:
    return ColumnRefusal(
        f"there is no type of Spark for {declared}",
        "add a column that has the value as a number, text or bytes",
    )


def select_expression(kind: MariadbKind, column: str) -> str:
    """The expression that gives a column as text that says its value exactly."""
    if kind.arrow == pa.float32():
        return f"CAST({column} AS DOUBLE)"
    return f"{column} + 0" if kind.family == "bits" else column


def select_list_of(columns: Sequence[tuple[str, MariadbKind]]) -> str:
    return (
        ", ".join(select_expression(kind, f"r.{quote_name(name)}") for name, kind in columns) or "1"
    )


def array_from_answer(values: Values, kind: MariadbKind) -> Array:
    """Values of an answer as one Arrow array, or a MisfitError for the first that does not fit."""
    return convert_or_blame(
        values,
        lambda some: _convert_answer(some, kind),
        lambda at: MisfitError(at, (values[at] or b"").decode(errors="replace")[:60]),
    )


def _convert_answer(values: Values, kind: MariadbKind) -> Array:
    raw = pa.array(values, pa.binary())
    if kind.family == "binary":
        return raw
    texts = raw.cast(pa.string())
    if pa.types.is_string(kind.arrow):
        return texts
    if kind.family == "float":
        # Adding zero turns -0.0 into 0.0, which Spark calls equal and Arrow does not.
        zero: Any = pa.scalar(0.0, kind.arrow)
        floats: Array = pc.add(texts.cast(pa.float64()).cast(kind.arrow), zero)
        return floats
    if pa.types.is_boolean(kind.arrow):
        return texts.cast(pa.int64()).cast(pa.bool_())
    if kind.family in ("date", "datetime", "timestamp"):
        return _convert_moments(texts, kind)
    if pa.types.is_decimal(kind.arrow):
        return decimals_of(texts, kind.arrow)
    return texts.cast(kind.arrow)


def _convert_moments(texts: Any, kind: MariadbKind) -> Array:
    # Spark's calendar begins with year 1.
    if pc.any(pc.starts_with(texts, "0000"), min_count=0).as_py():
        raise ValueError("there is no year 0")
    moments: Array = texts.cast(pa.date32() if kind.family == "date" else _TIMESTAMP)
    return moments.cast(kind.arrow)
