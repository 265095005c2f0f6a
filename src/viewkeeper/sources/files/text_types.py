"""Types of declared columns, and text as exact values of them.

A CSV or JSON file has no types, so the project file declares them, by Spark's words. Everything is
read as text first and converted then, so a type never depends on what happens to be in a file. A
text that does not say exactly one value of its type is a MisfitError: blanks around a number, a
hexadecimal number, more digits than the column has, a floating-point number too large to be one.

    bigint, int, smallint, tinyint    an integer, kept as BIGINT
    double, float                     a number, NaN, inf or -inf
    decimal(p,s)                      a number with no more digits than that, zeros aside
    string                            any text
    boolean                           true or false, in any case, 1 or 0
    date                              YYYY-MM-DD
    timestamp                         YYYY-MM-DD[ HH:MM[:SS[.ffffff]]][zone]; UTC without a zone
    timestamp_ntz                     the same, without a zone
    binary                            base64
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.exact_cast import decimals_of
from viewkeeper.sources.files.parquet_types import cast_exactly
from viewkeeper.sources.tables.column_type import DIGITS_MAX, MisfitError, convert_or_blame

_WORDS: dict[str, pa.DataType] = {
    **dict.fromkeys(("bigint", "long", "int", "integer", "smallint", "tinyint"), pa.int64()),
    **dict.fromkeys(("double", "double precision"), pa.float64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    **dict.fromkeys(("string", "text", "varchar"), pa.string()),
    **dict.fromkeys(("boolean", "bool"), pa.bool_()),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}
WORDS = (
    "bigint, double, float, decimal(p,s), string, boolean, date, timestamp, timestamp_ntz, binary"
)
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\(\s*(\d{1,9})\s*(?:,\s*(\d{1,9})\s*)?\)")
_INTEGER = r"^[+-]?\d+$"
_FLOAT = r"(?i)^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|nan|inf(inity)?)$"
_INFINITE = r"(?i)^[+-]?inf(inity)?$"
_ZONED = r"(Z|[+-]\d\d(:?\d\d)?)$"
_CLOCK = r"\d:\d\d"


def type_of_word(word: str) -> pa.DataType | None:
    """The Arrow type of a type's word; None if it is no word that we know.

    >>> type_of_word("decimal(10,2)"), type_of_word("INT"), type_of_word("map")
    (Decimal128Type(decimal128(10, 2)), DataType(int64), None)
    """
    text = " ".join(word.lower().split())
    if found := _DECIMAL.fullmatch(text):
        digits, places = int(found[1]), int(found[2] or 0)
        return pa.decimal128(digits, places) if 0 < digits <= DIGITS_MAX >= places else None
    return _WORDS.get(text)


def type_word_of(kind: Any) -> str:
    """The word of a type, such that `type_of_word` gives the type again."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return next(word for word, known in _WORDS.items() if known == kind)


def values_from_text(texts: Any, kind: pa.DataType) -> Any:
    """An array of texts as values of a type; a MisfitError for the first that is none."""

    def convert(part: Any) -> Any:
        return cast_exactly(_convert_texts(part, kind), kind)

    def blame(index: int) -> MisfitError:
        return MisfitError(index, texts[index].as_py(), f"a value of type {type_word_of(kind)}")

    return convert_or_blame(texts, convert, blame)


def _convert_texts(texts: Any, kind: pa.DataType) -> Any:
    for holds, convert in _CONVERTERS:
        if holds(kind):
            return convert(texts, kind)
    return texts.cast(kind)


def _convert_integers(texts: Any, kind: pa.DataType) -> Any:
    _require_all(pc.match_substring_regex(texts, _INTEGER))
    return pc.replace_substring_regex(texts, r"^\+", "").cast(kind)


def _convert_floats(texts: Any, kind: pa.DataType) -> Any:
    _require_all(pc.match_substring_regex(texts, _FLOAT))
    values = texts.cast(kind)
    _require_all(pc.or_(pc.invert(pc.is_inf(values)), pc.match_substring_regex(texts, _INFINITE)))
    return values


def _convert_timestamps(texts: Any, kind: Any) -> Any:
    if kind.tz is None:
        return texts.cast(kind)
    # A day alone ends like a zone, so a zone is looked for behind a clock time only.
    timed = pc.match_substring_regex(texts, _CLOCK)
    zoned = pc.and_(timed, pc.match_substring_regex(texts, _ZONED))
    missing = pc.if_else(zoned, "", pc.if_else(timed, "Z", " 00:00Z"))
    return pc.binary_join_element_wise(texts, missing, "").cast(kind)


def _convert_bytes(texts: Any, kind: pa.DataType) -> Any:
    try:
        return pa.array(
            [
                None if text is None else base64.b64decode(text, validate=True)
                for text in texts.to_pylist()
            ],
            kind,
        )
    except binascii.Error as error:
        raise ValueError("not base64") from error


def _require_all(conditions: Any) -> None:
    if not pc.all(conditions, min_count=0).as_py():
        raise ValueError("a text does not have the form of its type")


_CONVERTERS: tuple[tuple[Any, Callable[[Any, Any], Any]], ...] = (
    (pa.types.is_integer, _convert_integers),
    (pa.types.is_floating, _convert_floats),
    (pa.types.is_decimal, decimals_of),
    (pa.types.is_timestamp, _convert_timestamps),
    (pa.types.is_binary, _convert_bytes),
)
