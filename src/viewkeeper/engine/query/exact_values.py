"""Values as text and as JSON, exactly.

JSON has no decimals, dates, bytes or infinities that every reader keeps exact, so these are texts:
a decimal as its digits ("12.50"), a date or timestamp in ISO 8601, bytes in hexadecimal, "NaN" and
"Infinity". Integers and finite floating-point numbers are numbers, NULL is null.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Mapping

NULL = "NULL"


def json_value(value: object) -> object:
    """A value that the json module writes as this module's prose says.

    >>> json_value(decimal.Decimal("12.50")), json_value(b"\\x00\\xff"), json_value(float("nan"))
    ('12.50', '00ff', 'NaN')
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _infinite_text(value)
        case decimal.Decimal():
            return format(value, "f")
        case datetime.date() | datetime.time():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case Mapping():
            return {str(key): json_value(inner) for key, inner in value.items()}
        case list() | tuple():
            return [json_value(inner) for inner in value]
        case _:
            return str(value)


def _infinite_text(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def as_json(value: object, indent: int | None = None) -> str:
    """JSON text in which nothing was rounded."""
    return json.dumps(json_value(value), ensure_ascii=False, indent=indent, allow_nan=False)


def as_text(value: object) -> str:
    """A value as a reader of a table or of CSV expects it.

    >>> as_text(True), as_text(datetime.datetime(2024, 1, 2, 3, 4, 5)), as_text(None)
    ('true', '2024-01-02 03:04:05', 'NULL')
    """
    if value is None:
        return NULL
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    found = json_value(value)
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
