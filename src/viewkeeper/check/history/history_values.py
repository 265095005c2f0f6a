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
class Kind:
    """A type: its word, what a value looks like, and how it is read from JSON and written."""

    word: str
    type: pa.DataType
    looks: str
    read: Callable[[object], object]
    write: Callable[[object], object] = lambda value: value


def kind_of(word: str) -> Kind | None:
    """The type that a word names; None if it names none.

    >>> kind_of("bigint").word, kind_of("decimal(9,2)").type.scale, kind_of("money")
    ('int', 2, None)
    """
    plain = word.strip().lower()
    if found := re.fullmatch(r"decimal\((\d{1,9}),\s*(\d{1,9})\)", plain):
        precision, scale = int(found[1]), int(found[2])
        possible = 1 <= precision <= 38 and scale <= precision
        return _decimal(precision, scale) if possible else None
    plain = ALIASES.get(plain, plain)
    return next((kind for kind in KINDS if kind.word == plain), None)


def kind_for(type_: pa.DataType | None) -> Kind | None:
    """The type of a column; None if a history file has no word for it."""
    if isinstance(type_, pa.Decimal128Type):
        return _decimal(type_.precision, type_.scale)
    return next((kind for kind in KINDS if kind.type == type_), None)


def _boolean(value: object) -> object:
    return _checked(value, isinstance(value, bool))


def _integer(bits: int) -> Callable[[object], object]:
    def read(value: object) -> object:
        fits = isinstance(value, int) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
        return _checked(value, fits and not isinstance(value, bool))

    return read


def _float(value: object) -> object:
    if value in ("Infinity", "-Infinity"):
        return float(str(value))
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    number = float(_checked(value, fits))  # type: ignore[arg-type]  # it is a number now
    # Adding zero turns -0.0 into 0.0, which SQL calls equal.
    return _checked(number + 0.0, math.isfinite(number))


def _text(value: object) -> object:
    return _checked(value, isinstance(value, str))


def _bytes(value: object) -> object:
    return bytes.fromhex(str(_text(value)))


def _date(value: object) -> object:
    return datetime.date.fromisoformat(str(_text(value)))


def _timestamp(value: object) -> object:
    found = datetime.datetime.fromisoformat(str(_text(value)))
    return _checked(found, found.tzinfo is None)


def _instant(value: object) -> object:
    found = datetime.datetime.fromisoformat(str(_text(value)))
    return _checked(found, found.tzinfo is not None) and found.astimezone(datetime.UTC)


def _checked(value: object, fits: bool) -> object:
    if not fits:
        raise ValueError(value)
    return value


def _iso(value: object) -> object:
    assert isinstance(value, datetime.date)
    return value.isoformat()


def _hex(value: object) -> object:
    assert isinstance(value, bytes)
    return value.hex()


def _number(value: object) -> object:
    infinite = isinstance(value, float) and math.isinf(value)
    return ("Infinity" if value == math.inf else "-Infinity") if infinite else value


def _decimal(precision: int, scale: int) -> Kind:
    def read(value: object) -> object:
        text = str(_checked(value, isinstance(value, str | int) and not isinstance(value, bool)))
        if not re.fullmatch(r"-?\d+(\.\d+)?", text):
            raise ValueError(text)
        whole, _, fraction = text.lstrip("-").partition(".")
        fits = len(whole.lstrip("0")) <= precision - scale and len(fraction) <= scale
        return _checked(decimal.Decimal(text), fits)

    word = f"decimal({precision},{scale})"
    looks = (
        f'digits in a text, like "1.50", at most {precision} of them and {scale} after the point'
    )
    return Kind(word, pa.decimal128(precision, scale), looks, read, lambda v: format(v, "f"))


KINDS = (
    Kind("boolean", pa.bool_(), "true or false", _boolean),
    Kind("int", pa.int64(), "an integer of 64 bits", _integer(64)),
    Kind("int32", pa.int32(), "an integer of 32 bits", _integer(32)),
    Kind("int16", pa.int16(), "an integer of 16 bits", _integer(16)),
    Kind("int8", pa.int8(), "an integer of 8 bits", _integer(8)),
    Kind("float", pa.float64(), 'a number, "Infinity" or "-Infinity"', _float, _number),
    Kind("text", pa.string(), "a text", _text),
    Kind("date", pa.date32(), 'a date like "2024-02-29"', _date, _iso),
    Kind("timestamp", pa.timestamp("us"), 'like "2024-02-29 12:00:00"', _timestamp, _iso),
    Kind(
        "timestamptz",
        pa.timestamp("us", "UTC"),
        'like "2024-02-29 12:00:00+00:00"',
        _instant,
        _iso,
    ),
    Kind("binary", pa.binary(), "bytes in hexadecimal", _bytes, _hex),
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
