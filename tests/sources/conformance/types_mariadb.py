"""The types of MariaDB, in several character sets.

Values are written as SQL, under a mode that lets dates of no calendar in: those are errors that
name them.
"""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa

from tests.sources.conformance.types_case import TIME, UTC_TIME, kept, refused

D, MOMENT, UTC = datetime.date, datetime.datetime, datetime.UTC
NINES = "9" * 38
_BYTES = (
    "the character set {} has several bytes per character and is not UTF-8; convert it: "
    "ALTER TABLE ... MODIFY ... CHARACTER SET utf8mb4"
)
_OTHER = (
    "there is no type of Spark for {}; add a column that has the value as a number, text or bytes"
)

CASES = (
    kept("tinyint", pa.int64(), ("-128", -128), ("127", 127)),
    kept("tinyint(1)", pa.int64(), ("true", 1), ("2", 2), note="a number: 2 is a value of it"),
    kept("smallint unsigned", pa.int64(), ("65535", 65535)),
    kept("mediumint", pa.int64(), ("-8388608", -8388608), ("8388607", 8388607)),
    kept("int", pa.int64(), ("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)),
    kept("int(8) unsigned zerofill", pa.int64(), ("4294967295", 2**32 - 1), ("7", 7)),
    kept("bigint", pa.int64(), (str(-(2**63)), -(2**63)), (str(2**63 - 1), 2**63 - 1)),
    kept(
        "bigint unsigned",
        pa.decimal128(20, 0),
        (str(2**64 - 1), Decimal(2**64 - 1)),
        ("0", Decimal(0)),
    ),
    kept(
        "decimal(38,0)",
        pa.decimal128(38, 0),
        (NINES, Decimal(NINES)),
        (f"-{NINES}", Decimal(f"-{NINES}")),
    ),
    kept("decimal(38,38)", pa.decimal128(38, 38), (f"0.{NINES}", Decimal(f"0.{NINES}"))),
    kept("decimal(10,2)", pa.decimal128(10, 2), ("-0.01", Decimal("-0.01")), ("1", Decimal(1))),
    kept(
        "float",
        pa.float32(),
        ("1.1", 1.100000023841858),
        ("-0e0", 0.0),
        ("1e-45", 1.401298464324817e-45),
        ("3.40282347e38", 3.4028234663852886e38),
    ),
    kept(
        "double",
        pa.float64(),
        ("0.1", 0.1),
        ("-0e0", 0.0),
        ("5e-324", 5e-324),
        ("1.7976931348623157e308", 1.7976931348623157e308),
    ),
    kept("bit(1)", pa.bool_(), ("b'1'", True), ("b'0'", False)),
    kept("bit(63)", pa.int64(), (str(2**63 - 1), 2**63 - 1)),
    kept("bit(64)", pa.decimal128(20, 0), (str(2**64 - 1), Decimal(2**64 - 1))),
    kept(
        "char(5)",
        pa.string(),
        ("'ab  '", "ab"),
        ("''", ""),
        ("'漢字é'", "漢字é"),
        note="without the trailing blanks, which MariaDB drops",
    ),
    kept(
        "varchar(20)",
        pa.string(),
        ("''", ""),
        ("' a  '", " a  "),
        ("'é'", "é"),
        ("'e\u0301'", "e\u0301"),
        ("'𝄞'", "𝄞"),
        ("'A'", "A"),
        ("'it''s \\\\'", "it's \\"),
        ("x'610062'", "a\0b"),
    ),
    kept("varchar(20) charset latin1", pa.string(), ("'€éÿ'", "€éÿ"), ("x'8190'", "\x81\x90")),
    kept("varchar(20) charset utf8mb3", pa.string(), ("'漢é'", "漢é")),
    kept("varchar(20) charset ascii", pa.string(), ("'plain'", "plain")),
    kept("varchar(20) collate utf8mb4_bin", pa.string(), ("'a '", "a ")),
    kept("text", pa.string(), ("'é'", "é"), ("''", "")),
    kept("longtext", pa.string(), ("repeat('ab', 400)", "ab" * 400)),
    kept("json", pa.string(), ("""'{"b": 1,  "a": "é"}'""", '{"b": 1,  "a": "é"}')),
    kept(
        "binary(4)",
        pa.binary(),
        ("x'0100'", b"\1\0\0\0"),
        ("''", b"\0" * 4),
        note="with the zero bytes that MariaDB pads it with",
    ),
    kept("varbinary(9)", pa.binary(), ("x'0020ff00'", b"\0 \xff\0"), ("''", b"")),
    kept("blob", pa.binary(), ("x'00ff'", b"\0\xff")),
    kept(
        "date",
        pa.date32(),
        ("'0001-01-01'", D(1, 1, 1)),
        ("'9999-12-31'", D(9999, 12, 31)),
        misfits=(
            ("'0000-00-00'", "0000-00-00"),
            ("'2024-02-31'", "2024-02-31"),
            ("'2024-00-10'", "2024-00-10"),
        ),
    ),
    kept(
        "datetime(6)",
        TIME,
        ("'0001-01-01 00:00:00.000001'", MOMENT(1, 1, 1, 0, 0, 0, 1)),
        ("'9999-12-31 23:59:59.999999'", MOMENT(9999, 12, 31, 23, 59, 59, 999999)),
        misfits=(("'2024-02-31 10:00:00'", "2024-02-31"),),
    ),
    kept("datetime", TIME, ("'2024-03-31 02:30:00'", MOMENT(2024, 3, 31, 2, 30))),
    kept(
        "timestamp(6) null",
        UTC_TIME,
        ("'1970-01-01 00:00:01.5'", MOMENT(1970, 1, 1, 0, 0, 1, 500000, UTC)),
        ("'2038-01-19 03:14:07.999999'", MOMENT(2038, 1, 19, 3, 14, 7, 999999, UTC)),
        misfits=(("0", "0000-00-00"),),
    ),
    kept("year", pa.int64(), ("1901", 1901), ("2155", 2155), ("0", 0)),
    kept("enum('a','b,c','it''s','é')", pa.string(), ("'b,c'", "b,c"), ("'é'", "é")),
    kept("set('x','y','z')", pa.string(), ("'z,x'", "x,z"), ("''", "")),
    kept(
        "uuid",
        pa.string(),
        ("'123E4567-e89b-12d3-a456-426655440000'", "123e4567-e89b-12d3-a456-426655440000"),
        note="in lower case",
    ),
    kept("inet4", pa.string(), ("'192.168.0.1'", "192.168.0.1")),
    kept("inet6", pa.string(), ("'::1'", "::1"), ("'::ffff:1.2.3.4'", "::ffff:1.2.3.4")),
    refused(
        "decimal(39,0)",
        "decimal(39,0) has more than 38 digits; declare it with at most 38 digits, or keep the "
        "value as text",
    ),
    kept(
        "time(3)",
        pa.string(),
        ("'00:00'", "00:00:00.000"),
        ("'-838:59:59'", "-838:59:59.000"),
        ("'838:59:58.125'", "838:59:58.125"),
        ("'-00:00:00.001'", "-00:00:00.001"),
        note="its text: TIME goes beyond a day and below zero",
    ),
    kept("time", pa.string(), ("'12:34:56'", "12:34:56"), ("'-1:00'", "-01:00:00")),
    kept("time(6)", pa.string(), ("'23:59:59.999999'", "23:59:59.999999")),
    refused("point", _OTHER.format("point")),
    refused("geometry", _OTHER.format("geometry")),
    refused(
        "varchar(9) compressed",
        "the binlog has its values compressed; ALTER TABLE ... MODIFY ... without COMPRESSED",
    ),
    *(refused(f"varchar(9) charset {each}", _BYTES.format(each)) for each in ("sjis", "utf16")),
    refused(
        "enum('é') charset latin1",
        "its labels are not ASCII, in the character set latin1; convert it: "
        "ALTER TABLE ... MODIFY ... CHARACTER SET utf8mb4",
    ),
)
