"""The types of PostgreSQL, captured either way.

Values are written as SQL. Those of no calendar that Spark has, and NaN where a number has fixed
digits, are errors that name them.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pyarrow as pa

from tests.sources.conformance.types_case import TIME, UTC_TIME, kept, refused

D, MOMENT, UTC = datetime.date, datetime.datetime, datetime.UTC
NINES = "9" * 38
BEFORE = (
    "CREATE TYPE mood AS ENUM ('it''s', 'fine')",
    "CREATE DOMAIN euro AS numeric(9, 2)",
    "CREATE DOMAIN cents AS euro CHECK (VALUE >= 0)",
    "CREATE TYPE pair AS (a int, b int)",
    "CREATE DOMAIN words AS text[]",
)
_OTHER = (
    "there is no type of Spark for {}, and its text may change while its values stay; ALTER TABLE "
    "t ALTER COLUMN c TYPE text USING c::text; or let a trigger of yours keep a text column beside "
    "it (a generated column is not in the change stream)"
)
_LISTED = '{a,NULL,"NULL","","b c","\\"","x\\\\y",é𝄞,"{,}"}'
_NEVER = (
    ("'infinity'", "infinity"),
    ("'-infinity'", "infinity"),
    ("'10000-01-01'", "10000"),
    ("'0044-03-15 BC'", "0044"),
)

CASES = (
    kept("smallint", pa.int64(), ("-32768", -32768), ("32767", 32767)),
    kept("integer", pa.int64(), ("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)),
    kept("bigint", pa.int64(), (str(-(2**63)), -(2**63)), (str(2**63 - 1), 2**63 - 1)),
    kept("oid", pa.int64(), ("0", 0), ("4294967295", 2**32 - 1)),
    kept(
        "real",
        pa.float32(),
        ("1.1", 1.100000023841858),
        ("'-0'", 0.0),
        ("'NaN'", math.nan),
        ("'-infinity'", -math.inf),
        ("1e-45", 1.401298464324817e-45),
        ("3.4028235e38", 3.4028234663852886e38),
    ),
    kept(
        "double precision",
        pa.float64(),
        ("0.1", 0.1),
        ("'-0'", 0.0),
        ("'NaN'", math.nan),
        ("'infinity'", math.inf),
        ("5e-324", 5e-324),
        ("1.7976931348623157e308", 1.7976931348623157e308),
    ),
    kept(
        "numeric(38,0)",
        pa.decimal128(38, 0),
        (NINES, Decimal(NINES)),
        (f"-{NINES}", Decimal(f"-{NINES}")),
    ),
    kept("numeric(38,38)", pa.decimal128(38, 38), (f"0.{NINES}", Decimal(f"0.{NINES}"))),
    kept(
        "numeric(10,2)",
        pa.decimal128(10, 2),
        ("-0.01", Decimal("-0.01")),
        ("12345678.9", Decimal("12345678.9")),
        misfits=(("'NaN'", "NaN"),),
    ),
    kept("numeric(3,-2)", pa.decimal128(5, 0), ("12345", Decimal(12300))),
    kept("numeric(2,4)", pa.decimal128(4, 4), ("0.0012", Decimal("0.0012"))),
    kept("boolean", pa.bool_(), ("true", True), ("false", False)),
    kept(
        "text",
        pa.string(),
        ("''", ""),
        ("' a  '", " a  "),
        ("'é'", "é"),
        ("'e\u0301'", "e\u0301"),
        ("'𝄞'", "𝄞"),
        ("E'\\\\ \"\\'{},\\t\\n'", "\\ \"'{},\t\n"),
        ("'NULL'", "NULL"),
    ),
    kept("varchar(20)", pa.string(), ("'ab  '", "ab  ")),
    kept(
        "char(4)",
        pa.string(),
        ("'ab'", "ab  "),
        ("''", "    "),
        note="with the blanks that PostgreSQL pads it with",
    ),
    kept("name", pa.string(), ("'n'", "n")),
    kept("bytea", pa.binary(), ("''", b""), ("'\\x00ff'", b"\0\xff")),
    kept(
        "date",
        pa.date32(),
        ("'0001-01-01'", D(1, 1, 1)),
        ("'9999-12-31'", D(9999, 12, 31)),
        misfits=_NEVER,
    ),
    kept(
        "timestamp",
        TIME,
        ("'0001-01-01'", MOMENT(1, 1, 1)),
        ("'1969-12-31 23:59:59.999999'", MOMENT(1969, 12, 31, 23, 59, 59, 999999)),
        ("'9999-12-31 23:59:59.999999'", MOMENT(9999, 12, 31, 23, 59, 59, 999999)),
        misfits=_NEVER[1:3],
    ),
    kept(
        "timestamptz",
        UTC_TIME,
        ("'0001-01-01 00:00:00+00'", MOMENT(1, 1, 1, tzinfo=UTC)),
        ("'2024-02-29 12:00:00.000001+05:30'", MOMENT(2024, 2, 29, 6, 30, 0, 1, tzinfo=UTC)),
        ("'9999-12-31 23:59:59.999999+00'", MOMENT(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        misfits=_NEVER[::3],
    ),
    kept(
        "uuid",
        pa.string(),
        ("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        note="in lower case",
    ),
    kept("json", pa.string(), ("""'{"b": 1,  "a": "é𝄞"}'""", '{"b": 1,  "a": "é𝄞"}')),
    kept(
        "jsonb",
        pa.string(),
        ("""'{"b": 1,  "a": 2}'""", '{"a": 2, "b": 1}'),
        note="the text that PostgreSQL shows",
    ),
    kept("mood", pa.string(), ("'it''s'", "it's"), called="an enum"),
    kept(
        "cents",
        pa.decimal128(9, 2),
        ("1.25", Decimal("1.25")),
        called="a domain",
        note="as the type below it, here `numeric(9,2)`",
    ),
    kept(
        "numeric",
        pa.string(),
        ("1.50", "1.50"),
        ("1e-20", "0.00000000000000000001"),
        (f"{NINES}{NINES}", f"{NINES}{NINES}"),
        ("'NaN'", "NaN"),
        note="its text, since it does not say how many digits it has: "
        "`CAST(c AS DECIMAL(20, 4))` in the view is the number",
    ),
    kept("numeric(39,0)", pa.string(), (f"-9{NINES}", f"-9{NINES}"), note="its text"),
    kept(
        "time",
        pa.string(),
        ("'00:00'", "00:00:00"),
        ("'24:00'", "24:00:00"),
        ("'12:34:56.000001'", "12:34:56.000001"),
        note="its text, in the order of time",
    ),
    kept("timetz", pa.string(), ("'12:00:00.5+05:30'", "12:00:00.5+05:30"), note="its text"),
    kept(
        "interval",
        pa.string(),
        ("'1 month'", "1 mon"),
        ("'30 days'", "30 days"),
        ("'-1 year 2 days -03:04:05.000006'", "-1 years +2 days -03:04:05.000006"),
        ("'0'", "00:00:00"),
        note="its text; `1 mon` is not `30 days` to a join",
    ),
    kept(
        "inet",
        pa.string(),
        ("'10.0.0.1'", "10.0.0.1"),
        ("'10.0.0.1/24'", "10.0.0.1/24"),
        ("'::1'", "::1"),
        note="its text, without `/32` and `/128`",
    ),
    kept("cidr", pa.string(), ("'10.0.0.0/8'", "10.0.0.0/8"), ("'::1'", "::1/128")),
    kept("macaddr", pa.string(), ("'08002B:010203'", "08:00:2b:01:02:03"), note="in lower case"),
    kept("macaddr8", pa.string(), ("'08002b0102030405'", "08:00:2b:01:02:03:04:05")),
    kept("bit(3)", pa.string(), ("B'101'", "101"), note="its digits"),
    kept("bit varying", pa.string(), ("B''", ""), ("B'0011'", "0011"), note="its digits"),
    kept("xml", pa.string(), ("'<a>é</a>'", "<a>é</a>")),
    kept("point", pa.string(), ("'(0.1,-2)'", "(0.1,-2)"), note="its text"),
    kept("tsvector", pa.string(), ("'b:1 a:2'", "'a':2 'b':1"), note="its text"),
    kept(
        "int4range",
        pa.string(),
        ("'[1,5]'", "[1,6)"),
        ("'empty'", "empty"),
        ("'(,)'", "(,)"),
        note="its text, as other ranges and multiranges are",
    ),
    kept("tstzrange", pa.string(), ("'[2024-01-01 00:00+02,)'", '["2023-12-31 22:00:00+00",)')),
    kept(
        "text[]",
        pa.string(),
        ("'{}'", "{}"),
        ("""ARRAY['a', NULL, 'NULL', '', 'b c', '"', 'x\\y', 'é𝄞', '{,}']""", _LISTED),
        ("ARRAY[['a', 'b'], ['c', 'd']]", "{{a,b},{c,d}}"),
        ("'[2:3]={a,b}'", "[2:3]={a,b}"),
        note="an array is its text: `{a,b}`; an element is `split(trim(BOTH '{}' FROM c), ',')[0]`",
    ),
    kept("integer[]", pa.string(), ("'{1,NULL,-2}'", "{1,NULL,-2}"), ("'{{1},{2}}'", "{{1},{2}}")),
    kept("numeric[]", pa.string(), ("'{1.50,NaN}'", "{1.50,NaN}")),
    kept("timestamptz[]", pa.string(), ("'{2024-01-01 00:00+02}'", '{"2023-12-31 22:00:00+00"}')),
    kept("float8[]", pa.string(), ("'{0.1,-0,Infinity}'", "{0.1,-0,Infinity}")),
    kept("mood[]", pa.string(), ("ARRAY['it''s', 'fine']::mood[]", "{it's,fine}")),
    kept("words", pa.string(), ("'{a}'", "{a}"), called="a domain over an array"),
    refused(
        "money",
        "the type money does not say which currency its numbers are of, nor how many digits; "
        "ALTER TABLE t ALTER COLUMN c TYPE numeric(19, 2) USING c::numeric",
    ),
    refused("pair", _OTHER.format("pair"), called="a composite type"),
    refused("pair[]", _OTHER.format("pair[]")),
)
