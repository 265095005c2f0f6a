"""Types and values of a history file: few words for types, and JSON values that are exact.

JSON has integers, floating-point numbers, texts, booleans and null. What it has not is text: a
decimal as its digits ("12.50"), dates and timestamps in ISO 8601, bytes in hexadecimal. A value
that does not fit its column's type is refused; nothing is converted silently.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class HistoryValueType:
    """A type: its word, what a value looks like, and how it is read from JSON and written."""

    word: str
    type: pa.DataType
    looks: str
    read: Callable[[object], object]
    write: Callable[[object], object] = lambda value: value


def value_type_of_word(word: str) -> HistoryValueType | None:
    """The type that a word names; None if it names none.

    >>> value_type_of_word("bigint").word, value_type_of_word("decimal(9,2)").type.scale
    ('int', 2)
    >>> value_type_of_word("money") is None
    True
    """
    plain = word.strip().lower()
    if found := re.fullmatch(r"decimal\((\d{1,9}),\s*(\d{1,9})\)", plain):
        precision, scale = int(found[1]), int(found[2])
        possible = 1 <= precision <= 38 and scale <= precision
        return _decimal_type(precision, scale) if possible else None
    plain = ALIASES.get(plain, plain)
    return next((kind for kind in KINDS if kind.word == plain), None)


def value_type_of(type_: pa.DataType | None) -> HistoryValueType | None:
    """The type of a column; None if a history file has no word for it."""
    if isinstance(type_, pa.Decimal128Type):
        return _decimal_type(type_.precision, type_.scale)
    return next((kind for kind in KINDS if kind.type == type_), None)


def _read_boolean(value: object) -> object:
    return _require_fit(value, isinstance(value, bool))


def _integer_reader(bits: int) -> Callable[[object], object]:
    def read(value: object) -> object:
        fits = isinstance(value, int) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
        return _require_fit(value, fits and not isinstance(value, bool))

    return read


def _read_float(value: object) -> object:
    if value in ("Infinity", "-Infinity"):
        return float(str(value))
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    number = float(_require_fit(value, fits))  # type: ignore[arg-type]  # it is a number now
    # Adding zero turns -0.0 into 0.0, which SQL calls equal.
    return _require_fit(number + 0.0, math.isfinite(number))


def _read_text(value: object) -> object:
    return _require_fit(value, isinstance(value, str))


def _read_bytes(value: object) -> object:
    return bytes.fromhex(str(_read_text(value)))


def _read_date(value: object) -> object:
    return datetime.date.fromisoformat(str(_read_text(value)))


def _read_timestamp(value: object) -> object:
    found = datetime.datetime.fromisoformat(str(_read_text(value)))
    return _require_fit(found, found.tzinfo is None)


def _read_instant(value: object) -> object:
    found = datetime.datetime.fromisoformat(str(_read_text(value)))
    return _require_fit(found, found.tzinfo is not None) and found.astimezone(datetime.UTC)


def _require_fit(value: object, fits: bool) -> object:
    if not fits:
        raise ValueError(value)
    return value


def _write_iso(value: object) -> object:
    assert isinstance(value, datetime.date)
    return value.isoformat()


def _write_hex(value: object) -> object:
    assert isinstance(value, bytes)
    return value.hex()


def _write_float(value: object) -> object:
    infinite = isinstance(value, float) and math.isinf(value)
    return ("Infinity" if value == math.inf else "-Infinity") if infinite else value


def _decimal_type(precision: int, scale: int) -> HistoryValueType:
    def read(value: object) -> object:
        text = str(
            _require_fit(value, isinstance(value, str | int) and not isinstance(value, bool))
        )
        if not re.fullmatch(r"-?\d+(\.\d+)?", text):
            raise ValueError(text)
        whole, _, fraction = text.lstrip("-").partition(".")
        fits = len(whole.lstrip("0")) <= precision - scale and len(fraction) <= scale
        return _require_fit(decimal.Decimal(text), fits)

    word = f"decimal({precision},{scale})"
    looks = (
        f'digits in a text, like "1.50", at most {precision} of them and {scale} after the point'
    )
    return HistoryValueType(
        word, pa.decimal128(precision, scale), looks, read, lambda v: format(v, "f")
    )


KINDS = (
    HistoryValueType("boolean", pa.bool_(), "true or false", _read_boolean),
    HistoryValueType("int", pa.int64(), "an integer of 64 bits", _integer_reader(64)),
    HistoryValueType("int32", pa.int32(), "an integer of 32 bits", _integer_reader(32)),
    HistoryValueType("int16", pa.int16(), "an integer of 16 bits", _integer_reader(16)),
    HistoryValueType("int8", pa.int8(), "an integer of 8 bits", _integer_reader(8)),
    HistoryValueType(
        "float", pa.float64(), 'a number, "Infinity" or "-Infinity"', _read_float, _write_float
    ),
    HistoryValueType("text", pa.string(), "a text", _read_text),
    HistoryValueType("date", pa.date32(), 'a date like "2024-02-29"', _read_date, _write_iso),
    HistoryValueType(
        "timestamp", pa.timestamp("us"), 'like "2024-02-29 12:00:00"', _read_timestamp, _write_iso
    ),
    HistoryValueType(
        "timestamptz",
        pa.timestamp("us", "UTC"),
        'like "2024-02-29 12:00:00+00:00"',
        _read_instant,
        _write_iso,
    ),
    HistoryValueType("binary", pa.binary(), "bytes in hexadecimal", _read_bytes, _write_hex),
)
WORDS = (*(kind.word for kind in KINDS), "decimal(p,s)")
ALIASES = {
    "bool": "boolean",
    "bigint": "int",
    "int64": "int",
    "integer": "int",
    "double": "float",
    "float64": "float",
    "string": "text",
}
