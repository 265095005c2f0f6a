"""Spark's types as Arrow's: the inverse of `viewkeeper.view.render.spark_type_of`.

A type that is not here has no values that a view can keep: intervals, arrays, structs, maps, text
with a collation of its own. Spark may compute with them inside an expression all the same.
"""

from __future__ import annotations

import re

import pyarrow as pa

_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SQL_NAMES = {"long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def arrow_type_of(text: str) -> pa.DataType | None:
    """The Arrow type of a type in Spark's JSON; None if a view cannot keep it.

    >>> arrow_type_of("long"), arrow_type_of("decimal(10,2)"), arrow_type_of("interval day")
    (DataType(int64), Decimal128Type(decimal128(10, 2)), None)
    """
    text = text.strip('"')
    if found := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(found[1]), int(found[2]))
    return _TYPES.get(text)


def sql_type_of(text: str) -> str | None:
    """How a type of Spark's JSON is written in SQL; None if it is not written by us.

    >>> sql_type_of("long"), sql_type_of("timestamp_ntz"), sql_type_of("void")
    ('BIGINT', 'TIMESTAMP_NTZ', None)
    """
    if text.startswith("interval ") or arrow_type_of(text) is not None:
        return _SQL_NAMES.get(text, text.upper())
    return None


def type_text_of_arrow(kind: pa.DataType) -> str:
    """The inverse of `arrow_type_of`.

    >>> type_text_of_arrow(pa.int64()), type_text_of_arrow(pa.decimal128(10, 2))
    ('long', 'decimal(10,2)')
    """
    if isinstance(kind, pa.Decimal128Type):
        return f"decimal({kind.precision},{kind.scale})"
    return next(text for text, known in _TYPES.items() if known == kind)
