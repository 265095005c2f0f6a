"""The types of CSV and JSON files, which a project declares, and of Parquet files and Delta Lake.

CSV values are written as the text between quotes, JSON values as they stand in the file, and
Parquet's as Python values of the stored Arrow type.
"""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.sources.conformance.types_case import TIME, UTC_TIME, Case, Misfit, Value, kept, refused

D, MOMENT, UTC = datetime.date, datetime.datetime, datetime.UTC
NINES = "9" * 38
_FIRST, _LAST = MOMENT(1, 1, 1), MOMENT(9999, 12, 31, 23, 59, 59, 999999)

CSV = (
    kept(
        "bigint",
        pa.int64(),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        misfits=(("9223372036854775808", "9223372036854775808"), ("1.5", "1.5"), (" 1", " 1")),
    ),
    kept("int", pa.int64(), ("7", 7)),
    kept(
        "double",
        pa.float64(),
        ("0.1", 0.1),
        ("-0.0", 0.0),
        ("NaN", math.nan),
        ("-inf", -math.inf),
        ("5e-324", 5e-324),
        misfits=(("1e400", "1e400"),),
    ),
    kept("float", pa.float32(), ("1.1", 1.100000023841858)),
    kept(
        "decimal(38,0)",
        pa.decimal128(38, 0),
        (NINES, Decimal(NINES)),
        (f"-{NINES}", Decimal(f"-{NINES}")),
    ),
    kept("decimal(38,38)", pa.decimal128(38, 38), (f"0.{NINES}", Decimal(f"0.{NINES}"))),
    kept(
        "decimal(10,2)",
        pa.decimal128(10, 2),
        ("1.5", Decimal("1.5")),
        misfits=(("1.005", "1.005"),),
    ),
    kept(
        "string",
        pa.string(),
        ("", ""),
        (" a  ", " a  "),
        ("é", "é"),
        ("e\u0301", "e\u0301"),
        ("𝄞", "𝄞"),
        ("NULL", "NULL"),
        ("a,b", "a,b"),
    ),
    kept("boolean", pa.bool_(), ("true", True), ("false", False), misfits=(("yes", "yes"),)),
    kept(
        "date",
        pa.date32(),
        ("0001-01-01", D(1, 1, 1)),
        ("9999-12-31", D(9999, 12, 31)),
        misfits=(("2024-02-30", "2024-02-30"), ("0000-01-01", "0000-01-01")),
    ),
    kept(
        "timestamp",
        UTC_TIME,
        ("0001-01-01 00:00:00", MOMENT(1, 1, 1, tzinfo=UTC)),
        ("2024-02-29T12:00:00.000001+05:30", MOMENT(2024, 2, 29, 6, 30, 0, 1, UTC)),
        note="UTC where no zone is written",
        misfits=(("2024-01-31 10:00:00.1234567", "2024-01-31 10:00:00.1234567"),),
    ),
    kept(
        "timestamp_ntz",
        TIME,
        ("9999-12-31 23:59:59.999999", _LAST),
        ("2024-03-31 02:30:00", MOMENT(2024, 3, 31, 2, 30)),
        misfits=(("2024-01-31 10:00:00Z", "2024-01-31 10:00:00Z"),),
    ),
    kept(
        "binary",
        pa.binary(),
        ("", b""),
        ("AP8=", b"\0\xff"),
        misfits=(("AP8", "AP8"),),
        note="base64",
    ),
)


def _in_json(case: Case) -> Case:
    """The same with values as JSON has them: numbers and booleans bare, everything else quoted."""
    bare = case.arrow is not None and (
        pa.types.is_integer(case.arrow)
        or pa.types.is_floating(case.arrow)
        or pa.types.is_decimal(case.arrow)
        or pa.types.is_boolean(case.arrow)
    )

    def token(text: str) -> str:
        is_number = bare and text not in ("NaN", "-inf") and not text.startswith(" ")
        return text if is_number and text != "yes" else json.dumps(text)

    values = tuple(Value(token(each.written), each.kept) for each in case.values)
    # A number beyond all doubles is one that JSON's own readers cannot tell either.
    misfits = tuple(Misfit(token(each.written), each.told) for each in case.misfits)
    return Case(case.declared, case.arrow, values, misfits, note=case.note)


JSON = tuple(map(_in_json, CSV))


def _plain(declared: str, stored: Any, arrow: pa.DataType, *values: Any) -> Case:
    return kept(declared, arrow, *((value, value) for value in values), stored=stored)


_OTHER = (
    "values of type {} cannot be kept; write it as a number, text, binary, boolean, date or "
    "timestamp"
)
_PAST = pa.scalar(-(10**17), pa.timestamp("us"))
_NANO = pa.scalar(1_001, pa.timestamp("ns"))

PARQUET = (
    _plain("int8", pa.int8(), pa.int64(), -128, 127),
    _plain("int32", pa.int32(), pa.int64(), -(2**31), 2**31 - 1),
    _plain("int64", pa.int64(), pa.int64(), -(2**63), 2**63 - 1),
    _plain("uint32", pa.uint32(), pa.int64(), 2**32 - 1),
    kept("uint64", pa.decimal128(20, 0), (2**64 - 1, Decimal(2**64 - 1)), stored=pa.uint64()),
    kept("float", pa.float32(), (-0.0, 0.0), (math.nan, math.nan), stored=pa.float32()),
    kept(
        "double",
        pa.float64(),
        (-0.0, 0.0),
        (5e-324, 5e-324),
        (math.nan, math.nan),
        (-math.inf, -math.inf),
        stored=pa.float64(),
    ),
    _plain("decimal(38,0)", pa.decimal128(38, 0), pa.decimal128(38, 0), Decimal(NINES)),
    _plain("decimal(38,38)", pa.decimal128(38, 38), pa.decimal128(38, 38), Decimal(f"0.{NINES}")),
    _plain("string", pa.string(), pa.string(), "", " a  ", "é", "e\u0301", "𝄞", "a\0b"),
    _plain("large_string", pa.large_string(), pa.string(), "𝄞", ""),
    _plain("dictionary of string", pa.dictionary(pa.int32(), pa.string()), pa.string(), "a", ""),
    _plain("binary", pa.binary(), pa.binary(), b"", b"\0\xff"),
    _plain("fixed_size_binary(2)", pa.binary(2), pa.binary(), b"\0\xff"),
    _plain("boolean", pa.bool_(), pa.bool_(), True, False),
    _plain("date32", pa.date32(), pa.date32(), D(1, 1, 1), D(9999, 12, 31)),
    kept(
        "timestamp(us)",
        TIME,
        (_FIRST, _FIRST),
        (_LAST, _LAST),
        misfits=((_PAST, "years 1 to 9999"),),
        stored=TIME,
    ),
    kept(
        "timestamp(ms, Europe/Vienna)",
        UTC_TIME,
        (0, MOMENT(1970, 1, 1, tzinfo=UTC)),
        stored=pa.timestamp("ms", "Europe/Vienna"),
    ),
    kept(
        "timestamp(ns)",
        TIME,
        (1_000, MOMENT(1970, 1, 1, 0, 0, 0, 1)),
        misfits=((_NANO, "1970-01-01 00:00:00.000001001"),),
        stored=pa.timestamp("ns"),
    ),
    refused(
        "decimal(50,0)",
        "values of type decimal256(50, 0) have more digits than can be kept; write it with at most "
        "38 digits",
        pa.decimal256(50, 0),
    ),
    refused("time64(us)", _OTHER.format("time64[us]"), pa.time64("us")),
    refused("list", _OTHER.format("list<element: int64>"), pa.list_(pa.int64())),
    refused("struct", _OTHER.format("struct<a: int64>"), pa.struct([("a", pa.int64())])),
)

_LAKE = (
    "values of type {} cannot be kept; use a number, string, binary, boolean, date or timestamp "
    "column"
)
_ZONED = [
    moment.replace(tzinfo=UTC) for moment in (_FIRST, MOMENT(2024, 3, 31, 1, 30, 0, 1), _LAST)
]
_KEPT_IN_LAKE = {
    "int8": "byte",
    "int32": "integer",
    "int64": "long",
    "float": "float",
    "double": "double",
    "decimal(38,0)": "decimal(38,0)",
    "decimal(38,38)": "decimal(38,38)",
    "string": "string",
    "binary": "binary",
    "boolean": "boolean",
    "date32": "date",
}
DELTA_LAKE = (
    *(
        Case(_KEPT_IN_LAKE[case.declared], case.arrow, case.values, stored=case.stored)
        for case in PARQUET
        if case.declared in _KEPT_IN_LAKE
    ),
    _plain("short", pa.int16(), pa.int64(), -(2**15), 2**15 - 1),
    _plain("timestamp", UTC_TIME, UTC_TIME, *_ZONED),
    _plain("timestamp_ntz", TIME, TIME, _FIRST, MOMENT(1582, 10, 10), _LAST),
    refused("array", _LAKE.format("array"), pa.list_(pa.int64())),
    refused("struct", _LAKE.format("struct"), pa.struct([("a", pa.int64())])),
    refused("map", _LAKE.format("map"), pa.map_(pa.string(), pa.int64())),
)
