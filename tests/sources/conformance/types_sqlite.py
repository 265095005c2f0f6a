"""The types of SQLite: what its columns may be declared as, and what then is kept of them.

SQLite itself stores anything anywhere. A value that does not fit what its column declares is an
error that names it.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pyarrow as pa

from tests.sources.conformance.types_case import TIME, kept, refused

D, MOMENT = datetime.date, datetime.datetime
_NO_TYPE = "it has no declared type; declare one: INTEGER, REAL, TEXT, BLOB, ..."
_UNKNOWN = (
    "SQLite knows no type {} and may have changed its values when storing them; declare the column "
    "as INTEGER, REAL, TEXT, BLOB, BOOLEAN, DATE, DATETIME or DECIMAL(p, s)"
)

CASES = (
    kept(
        "INTEGER",
        pa.int64(),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775807", 2**63 - 1),
        ("'7'", 7),
        misfits=(("'abc'", "'abc'"), ("1.5", "1.5"), ("9.3e18", "9.3e+18")),
    ),
    kept("TINYINT", pa.int64(), ("300", 300)),
    kept("BIGINT UNSIGNED", pa.int64(), ("5", 5)),
    kept(
        "REAL",
        pa.float64(),
        ("0.1", 0.1),
        ("-0.0", 0.0),
        ("9e999", math.inf),
        ("-9e999", -math.inf),
        ("3", 3.0),
        note="infinities are kept; SQLite itself turns NaN into NULL",
        misfits=(("'many'", "'many'"),),
    ),
    kept("DOUBLE PRECISION", pa.float64(), ("1.5e300", 1.5e300)),
    kept(
        "TEXT",
        pa.string(),
        ("''", ""),
        ("' a  '", " a  "),
        ("'é'", "é"),
        ("'e\u0301'", "e\u0301"),
        ("'𝄞'", "𝄞"),
        ("'x' || char(0) || 'y'", "x\0y"),
        ("12", "12"),
        misfits=(("x'00ff'", "b'\\x00\\xff'"),),
    ),
    kept(
        "CHAR(4)",
        pa.string(),
        ("'ab  '", "ab  "),
        ("'longer'", "longer"),
        note="SQLite neither pads nor cuts it",
    ),
    kept("VARCHAR(4)", pa.string(), ("'ab  '", "ab  "), ("'longer'", "longer")),
    kept("NVARCHAR(20)", pa.string(), ("'漢字'", "漢字")),
    kept("CLOB", pa.string(), ("'long'", "long")),
    kept("BLOB", pa.binary(), ("x''", b""), ("x'00ff'", b"\0\xff"), misfits=(("'t'", "'t'"),)),
    kept(
        "BOOLEAN", pa.bool_(), ("0", False), ("1", True), misfits=(("2", "2"), ("'yes'", "'yes'"))
    ),
    kept(
        "DATE",
        pa.date32(),
        ("'0001-01-01'", D(1, 1, 1)),
        ("'9999-12-31'", D(9999, 12, 31)),
        misfits=(
            ("'2024-02-30'", "'2024-02-30'"),
            ("'2024-1-1'", "'2024-1-1'"),
            ("'0000-01-01'", "'0000-01-01'"),
            ("'infinity'", "'infinity'"),
            ("1704067200", "1704067200"),
        ),
    ),
    kept(
        "DATETIME",
        TIME,
        ("'0001-01-01 00:00:00.000001'", MOMENT(1, 1, 1, 0, 0, 0, 1)),
        ("'9999-12-31T23:59:59.999999'", MOMENT(9999, 12, 31, 23, 59, 59, 999999)),
        ("'2024-03-31 02:30:00'", MOMENT(2024, 3, 31, 2, 30)),
        note="text, with a blank or a T, up to 6 digits of fraction; not looked up by key",
        misfits=(
            ("'2024-01-01 10:00:00Z'", "'2024-01-01 10:00:00Z'"),
            ("'2024-01-01 10:00:00.1234567'", "'2024-01-01 10:00:00.1234567'"),
            ("'2024-01-01'", "'2024-01-01'"),
        ),
    ),
    kept("TIMESTAMP", TIME, ("'2024-02-29 23:59:59.1'", MOMENT(2024, 2, 29, 23, 59, 59, 100_000))),
    kept(
        "DECIMAL(15,2)",
        pa.decimal128(15, 2),
        ("0.1", Decimal("0.1")),
        ("-9999999999999.99", Decimal("-9999999999999.99")),
        ("'1e3'", Decimal(1000)),
        misfits=(("1.005", "1.005"), ("9e999", "inf"), ("'1,5'", "'1,5'")),
    ),
    kept(
        "NUMERIC(15,15)", pa.decimal128(15, 15), ("0.123456789012345", Decimal("0.123456789012345"))
    ),
    refused("", _NO_TYPE, called="(none)"),
    kept(
        "NUMERIC",
        pa.string(),
        ("1.50", "1.5"),
        ("7.0", "7"),
        ("'1e3'", "1000"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("1e20", "100000000000000000000"),
        ("-1e-7", "-0.0000001"),
        note="the text of the number, since it does not say how many digits it has: "
        "`CAST(c AS DECIMAL(20, 4))` in the view is the number; not looked up by key",
        misfits=(("'1,5'", "'1,5'"), ("-9e999", "-inf")),
    ),
    kept("DECIMAL", pa.string(), ("0.1", "0.1"), note="as NUMERIC"),
    refused(
        "DECIMAL(38,0)",
        "DECIMAL(38,0) asks for digits that SQLite, which stores it as floating point, loses; "
        "declare it with at most 15 digits, or keep the value as TEXT",
    ),
    *(refused(word, _UNKNOWN.format(word)) for word in ("TIME", "UUID", "JSON", "STRING", "MONEY")),
)
