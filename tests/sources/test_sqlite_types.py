"""Stored values become exact Arrow values, or errors that name them; nothing is guessed.

The same conversion serves scans, lookups and the log, so every table here is read all three ways.
"""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.sources.opening import opened
from viewkeeper.errors import ConversionError, SchemaError
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.updates.source_protocol import Lookup
from viewkeeper.view.definition import Field, Relation

INFINITY = float("inf")
DAY, TIME = datetime.date, datetime.datetime

# declared type, Arrow type, [(value as the application binds it, value as it is kept)]
KEPT = [
    ("INTEGER", pa.int64(), [(1, 1), (-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1), ("7", 7)]),
    ("TINYINT(1)", pa.int64(), [(300, 300), (4.0, 4)]),
    ("unsigned big int", pa.int64(), [(5, 5)]),
    ("REAL", pa.float64(), [(1, 1.0), (-0.0, 0.0), (INFINITY, INFINITY), (5e-324, 5e-324)]),
    ("double precision", pa.float64(), [("1.5", 1.5), (1e308, 1e308), (float("nan"), None)]),
    ("TEXT", pa.string(), [("", ""), ("é\0表", "é\0表"), (5, "5"), ("x" * 70_000, "x" * 70_000)]),
    ("VARCHAR(20)", pa.string(), [("longer than twenty letters", "longer than twenty letters")]),
    ("BLOB", pa.binary(), [(b"", b""), (b"\0\xff", b"\0\xff")]),
    ("BOOLEAN", pa.bool_(), [(0, False), (1, True), (True, True), ("1", True)]),
    ("DATE", pa.date32(), [("0001-01-01", DAY(1, 1, 1)), ("9999-12-31", DAY(9999, 12, 31))]),
    (
        "DATETIME",
        pa.timestamp("us"),
        [
            ("2024-02-29 23:59:59", TIME(2024, 2, 29, 23, 59, 59)),
            ("2024-02-29T23:59:59.1", TIME(2024, 2, 29, 23, 59, 59, 100_000)),
            ("0001-01-01 00:00:00.000001", TIME(1, 1, 1, 0, 0, 0, 1)),
            ("9999-12-31T23:59:59.999999", TIME(9999, 12, 31, 23, 59, 59, 999_999)),
        ],
    ),
    (
        "DECIMAL(15,2)",
        pa.decimal128(15, 2),
        [
            (0.1, Decimal("0.10")),
            ("1234567890123.45", Decimal("1234567890123.45")),
            (-9999999999999.99, Decimal("-9999999999999.99")),
            (7, Decimal("7.00")),
            (1e12, Decimal("1000000000000.00")),
        ],
    ),
    ("NUMERIC(4)", pa.decimal128(4, 0), [(9999, Decimal(9999)), ("12.0", Decimal(12))]),
]

MISFITS = [
    ("INTEGER", "abc"),
    ("INTEGER", 1.5),
    ("INTEGER", 9.3e18),
    ("INTEGER", b"1"),
    ("REAL", "many"),
    ("TEXT", b"bytes"),
    ("BLOB", "text"),
    ("BLOB", 1),
    ("BOOLEAN", 2),
    ("BOOLEAN", "true"),
    ("DATE", "2024-1-1"),
    ("DATE", "2024-02-30"),
    ("DATE", "0000-01-01"),
    ("DATE", "2024-01-01 00:00:00"),
    ("DATE", 20240101),
    ("DATETIME", "2024-01-01"),
    ("DATETIME", "2024-01-01 10:00:00Z"),
    ("DATETIME", "2024-01-01 10:00:00+02:00"),
    ("DATETIME", "2024-01-01 25:00:00"),
    ("DATETIME", "2024-01-01 10:00:00.1234567"),
    ("DATETIME", 1704067200),
    ("DECIMAL(5,2)", 1.005),
    ("DECIMAL(5,2)", 1000),
    ("DECIMAL(5,2)", 1e-41),
    ("DECIMAL(5,2)", 1e300),
    ("DECIMAL(5,2)", "1,5"),
    ("DECIMAL(5,2)", INFINITY),
]

REFUSED = [
    "",
    "JSON",
    "STRING",
    "DECIMAL(16,2)",
    "DECIMAL(2,5)",
    "ANY",
    "UUID",
]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    yield connection
    connection.close()


@pytest.fixture
def source(tmp_path: Path, writer: sqlite3.Connection) -> Iterator[SqliteSource]:
    opened = SqliteSource("shop", tmp_path / "shop.db", "test")
    yield opened
    opened.close()


def scanned(source: SqliteSource, after: int) -> list[object]:
    snapshot = opened(source)
    try:
        scan = snapshot.scan_relation(Relation("shop", "t"), ["v"], after)
        return [value for batch in scan.batches for value in batch.column("v").to_pylist()]
    finally:
        snapshot.close()


@pytest.mark.parametrize(("declared", "kept", "values"), KEPT, ids=[kind[0] for kind in KEPT])
def test_values_that_fit_are_kept_exactly(
    source: SqliteSource,
    writer: sqlite3.Connection,
    declared: str,
    kept: pa.DataType,
    values: list[tuple[object, object]],
) -> None:
    writer.execute(f"CREATE TABLE t(v {declared})")
    assert source.describe_table("t").fields == (Field("v", kept),)
    position = source.follow_tables({"t": ["v"]})
    writer.executemany("INSERT INTO t VALUES (?)", [(None,), *((bound,) for bound, _ in values)])
    expected = [None, *(value for _, value in values)]
    assert scanned(source, position) == expected
    (boundary,) = source.look_for_transactions(position)
    changes = source.read_changes({"t": ["v"]}, position, boundary.position)
    assert [value for _, batch in changes for value in batch.column("v").to_pylist()] == expected
    for value in expected:
        assert value in looked_up(source, pa.table({"v": pa.array([value], kept)}), position)


def looked_up(source: SqliteSource, keys: pa.Table, position: int) -> list[object]:
    snapshot = opened(source)
    try:
        lookup = Lookup(0, Relation("shop", "t"), ("v",), ("v",), (True,), keys)
        return list(snapshot.answer_lookup(lookup, position).rows.column("v").to_pylist())
    finally:
        snapshot.close()


@pytest.mark.parametrize(("declared", "value"), MISFITS)
def test_a_value_that_does_not_fit_is_named(
    source: SqliteSource, writer: sqlite3.Connection, declared: str, value: object
) -> None:
    writer.execute(f"CREATE TABLE t(v {declared})")
    position = source.follow_tables({"t": ["v"]})
    writer.execute("INSERT INTO t VALUES (NULL), (?)", (value,))
    with pytest.raises(ConversionError, match='table "t", column "v", row 2: ') as in_scan:
        scanned(source, position)
    with pytest.raises(ConversionError, match=r'table "t", column "v", change 2: '):
        list(source.read_changes({"t": ["v"]}, position, 2))
    assert "is not a" in str(in_scan.value) or "is not text" in str(in_scan.value)


def test_text_that_is_not_utf8_is_named(source: SqliteSource, writer: sqlite3.Connection) -> None:
    writer.execute("CREATE TABLE t(v TEXT)")
    position = source.follow_tables({"t": ["v"]})
    writer.execute("INSERT INTO t VALUES (CAST(x'fffe' AS TEXT))")
    with pytest.raises(ConversionError, match=r"(?s)not valid UTF-8.*'v'"):
        scanned(source, position)


@pytest.mark.parametrize("declared", REFUSED)
def test_types_that_cannot_be_kept_are_refused_when_used(
    source: SqliteSource, writer: sqlite3.Connection, declared: str
) -> None:
    writer.execute(f"CREATE TABLE t(v {declared}, w INT)")
    assert [field.name for field in source.describe_table("t").fields] == ["w"]
    assert list(source.describe_table("t").refused) == ["v"]
    source.follow_tables({"t": ["w"]})
    with pytest.raises(SchemaError, match='column "v" cannot be kept exactly'):
        source.follow_tables({"t": ["v"]})


def test_names_are_found_in_any_case_and_nearest_names_are_offered(
    source: SqliteSource, writer: sqlite3.Connection
) -> None:
    writer.execute("CREATE TABLE Orders(id INTEGER PRIMARY KEY, Total REAL)")
    writer.execute('CREATE TABLE "main.odd"(x INT)')
    assert source.describe_table("main.ORDERS").fields == source.describe_table("orders").fields
    assert source.describe_table("main.odd").fields == (Field("x", pa.int64()),)
    with pytest.raises(SchemaError, match='did you mean "Orders"'):
        source.describe_table("order")
    with pytest.raises(SchemaError, match='did you mean "Total"'):
        source.follow_tables({"orders": ["totl"]})


@pytest.mark.parametrize(
    ("ddl", "reason"),
    [
        ("CREATE VIEW t AS SELECT 1 AS v", "is a view"),
        ("CREATE VIRTUAL TABLE t USING fts5(v)", "virtual"),
        ("CREATE TABLE t(rowid INT, _rowid_ INT, oid INT, v INT)", "cannot be told apart"),
        ("CREATE TABLE t(v INT); CREATE UNIQUE INDEX u ON t(abs(v))", "on an expression alone"),
        (
            "CREATE TABLE t(v INT); CREATE TRIGGER x AFTER INSERT ON t"
            " BEGIN SELECT RAISE(IGNORE); END",
            "RAISE",
        ),
        ("CREATE TEMP TABLE t(v INT)", "no table"),
    ],
)
def test_tables_that_cannot_be_captured_are_refused(
    source: SqliteSource, writer: sqlite3.Connection, ddl: str, reason: str
) -> None:
    writer.executescript(ddl)
    with pytest.raises(SchemaError, match=reason):
        source.follow_tables({"t": ["v"]})
