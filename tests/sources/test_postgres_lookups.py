"""Lookups find every row that Spark calls equal, once each, by few keys or many of any type.

The few-keys way reads text on one connection, the many-keys way Arrow on another; both must give
the same values as the change stream does, to the last digit.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sources.postgres_shop import Shop, ask, changed
from viewkeeper.errors import ConversionError, SchemaError
from viewkeeper.sources.postgres.answers import lookup as postgres_lookup
from viewkeeper.sources.postgres.answers import snapshot as postgres_shared
from viewkeeper.testing.private_servers import PrivatePostgres
from viewkeeper.view.definition import Relation

D = decimal.Decimal
UTC = datetime.UTC
MATRIX: list[tuple[str, list[tuple[str, object]]]] = [
    ("smallint", [("-32768", -32768), ("32767", 32767)]),
    ("integer", [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)]),
    ("bigint", [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)]),
    ("oid", [("0", 0), ("4294967295", 4294967295)]),
    ("real", [("'1.1'", 1.100000023841858), ("'-0'", 0.0), ("'-infinity'", -math.inf)]),
    ("double precision", [("0.1", 0.1), ("'-0'", 0.0), ("1e-307", 1e-307), ("'NaN'", math.nan)]),
    (
        "numeric(38, 10)",
        [
            (
                "1234567890123456789012345678.0123456789",
                D("1234567890123456789012345678.0123456789"),
            ),
            ("-0.0000000001", D("-0.0000000001")),
        ],
    ),
    ("numeric(3, -2)", [("12345", D("12300"))]),
    ("numeric(2, 4)", [("0.0012", D("0.0012"))]),
    ("boolean", [("true", True), ("false", False)]),
    (
        "text",
        [
            ("''", ""),
            ("E'\\\\ \"\\'{},\\t\\n'", "\\ \"'{},\t\n"),
            ("'e\u0301 \U0001f600 '", "e\u0301 \U0001f600 "),
            ("'NULL'", "NULL"),
        ],
    ),
    ("varchar(10)", [("'ab  '", "ab  ")]),
    ("char(4)", [("'ab'", "ab  ")]),
    ("name", [("'n'", "n")]),
    ("bytea", [("'\\x00ff'", b"\x00\xff"), ("''", b"")]),
    (
        "date",
        [("'0001-01-01'", datetime.date(1, 1, 1)), ("'9999-12-31'", datetime.date(9999, 12, 31))],
    ),
    (
        "timestamp",
        [
            ("'0001-01-01'", datetime.datetime(1, 1, 1)),
            ("'9999-12-31 23:59:59.999999'", datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)),
        ],
    ),
    (
        "timestamptz",
        [
            (
                "'2024-02-29 12:00:00.000001+05:30'",
                datetime.datetime(2024, 2, 29, 6, 30, 0, 1, tzinfo=UTC),
            )
        ],
    ),
    ("uuid", [("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")]),
    ("json", [('\'{"b": 1,  "a": 2}\'', '{"b": 1,  "a": 2}')]),
    ("jsonb", [('\'{"b": 1,  "a": 2}\'', '{"a": 2, "b": 1}')]),
    ("mood", [("'it''s'", "it's")]),
    ("cents", [("1.25", D("1.25"))]),
]


@pytest.fixture
def shop(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(postgres_server, tmp_path)
    opened.run("CREATE TYPE mood AS ENUM ('it''s', 'fine')", "CREATE DOMAIN euro AS numeric(9, 2)")
    opened.run("CREATE DOMAIN cents AS euro CHECK (VALUE >= 0)")
    yield opened
    opened.close()


def same(found: object, expected: object) -> bool:
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(found, float) and math.isnan(found)
    return (found == expected and repr(found) == repr(expected)) or found == expected != 0.0


def test_every_type_arrives_exactly_by_every_way(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (declared, _) in enumerate(MATRIX):
        shop.table(f"t{number} (id int PRIMARY KEY, v {declared})")
    tables = {f"t{number}": ["id", "v"] for number in range(len(MATRIX))}
    source = shop.source()
    assert not any(source.describe_table(table).refused for table in tables)
    start = source.follow_tables(tables)
    for number, (_, values) in enumerate(MATRIX):
        listed = ", ".join(
            f"({i}, {text})" for i, (text, _) in enumerate([*values, ("NULL", None)])
        )
        shop.run(f"INSERT INTO t{number} VALUES {listed}")
    last = source.look_for_transactions(start)[-1].position
    with source.prepare_snapshots(last, tables) as opener, closing(opener()) as snapshot:
        for number, (declared, values) in enumerate(MATRIX):
            table, expected = f"t{number}", [*(value for _, value in values), None]
            streamed = [row[1] for row in changed(source, table, ["id", "v"], start, last)]
            scanned: list[Any] = [
                value
                for batch in snapshot.scan_relation(Relation("shop", table), ["v"], last).batches
                for value in batch["v"].to_pylist()
            ]
            kind = source.describe_table(table).fields[1].type
            asked: list[Any] = []
            for limit in (1_000, 0):
                monkeypatch.setattr(postgres_shared, "_MANY_KEYS", limit)
                keys = pa.table({"v": pa.array(expected, kind)})
                answer = ask(snapshot, table, ["v"], keys, last, [True])
                asked.append(sorted(answer.rows["v"].to_pylist(), key=repr))
                plain = ask(snapshot, table, ["v"], keys, last).rows
                assert plain.num_rows == len(values), f"{declared}: NULL equals nothing"
            for found in (streamed, scanned):
                assert all(map(same, found, expected)), f"{declared}: {found} for {expected}"
            for found in asked:
                assert all(map(same, found, sorted(expected, key=repr))), f"{declared}: {found}"


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("date", "'infinity'"),
        ("date", "'0044-03-15 BC'"),
        ("timestamp", "'10000-01-01'"),
        ("timestamptz", "'-infinity'"),
        ("numeric(5, 2)", "'NaN'"),
    ],
)
def test_a_value_that_cannot_be_kept_is_named(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, declared: str, value: str
) -> None:
    shop.table(f"t (id int PRIMARY KEY, v {declared})")
    source = shop.source()
    start = source.follow_tables({"t": ["id", "v"]})
    shop.run(f"INSERT INTO t VALUES (1, {value})")
    (boundary,) = source.look_for_transactions(start)
    with pytest.raises(ConversionError, match='table "t", column "v"'):
        changed(source, "t", ["v"], start, boundary.position)
    last = boundary.position
    with (
        source.prepare_snapshots(last, {"t": ["id", "v"]}) as opener,
        closing(opener()) as snapshot,
    ):
        keys = pa.table({"id": pa.array([1], pa.int64())})
        for limit in (1_000, 0):
            monkeypatch.setattr(postgres_shared, "_MANY_KEYS", limit)
            with pytest.raises(ConversionError, match='table "t", column "v"'):
                ask(snapshot, "t", ["v"], keys, last)
        assert ask(snapshot, "t", ["id"], keys, last).rows.num_rows == 1


def test_other_types_are_refused(shop: Shop) -> None:
    shop.table("pair (x int, y int)")
    shop.table("t (a money, c pair, ok int)")
    source = shop.source()
    assert [field.name for field in source.describe_table("t").fields] == ["ok"]
    assert set(source.describe_table("t").refused) == {"a", "c"}
    assert "money" in source.describe_table("t").refused["a"]
    with pytest.raises(SchemaError, match='column "a" cannot be used'):
        source.follow_tables({"t": ["a"]})


ROWS = [(1, "a"), (1, None), (None, "a"), (None, None), (2, "b"), (2, "b")]


@pytest.mark.parametrize("limit", [0, 1_000])
@pytest.mark.parametrize("safe", [(False, False), (True, False), (False, True), (True, True)])
def test_several_columns_and_null(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, safe: tuple[bool, bool], limit: int
) -> None:
    monkeypatch.setattr(postgres_shared, "_MANY_KEYS", limit)
    shop.table("t (k int, s text)")
    for row in ROWS:
        shop.writer.execute("INSERT INTO t VALUES (%s, %s)", row)
    source = shop.source()
    start = source.follow_tables({"t": ["k", "s"]})
    asked = [(1, "a"), (1, None), (None, "a"), (None, None), (2, "b"), (7, "z"), (2, "\0")]
    keys = pa.table(
        {
            "k": pa.array([k for k, _ in asked], pa.int64()),
            "s": pa.array([s for _, s in asked], pa.string()),
        }
    )
    expected = Counter(
        (k, s) for k, s in ROWS if (k is not None or safe[0]) and (s is not None or safe[1])
    )
    with (
        source.prepare_snapshots(start, {"t": ["k", "s"]}) as opener,
        closing(opener()) as snapshot,
    ):
        rows = ask(snapshot, "t", ["k", "s"], keys, start, safe).rows
        assert Counter(zip(*rows.to_pydict().values(), strict=True)) == expected
        none = ask(snapshot, "t", ["k", "s"], keys.slice(0, 0), start, safe).rows
        assert (none.num_rows, none.schema.names) == (0, ["k", "s"])
        counted = ask(snapshot, "t", [], keys, start, safe).rows
        assert counted.num_rows == expected.total()


def test_no_row_is_found_twice_by_keys_that_postgres_calls_equal(shop: Shop) -> None:
    options = "provider = icu, locale = 'und-u-ks-level2', deterministic = false"
    shop.run(f"CREATE COLLATION anycase ({options})")
    shop.table("t (id int, v text COLLATE anycase)")
    shop.run("INSERT INTO t VALUES (1, 'A')")
    source = shop.source()
    start = source.follow_tables({"t": ["id", "v"]})
    keys = pa.table({"v": ["A", "a"]})
    both = pa.table({"id": pa.array([1, 1], pa.int64()), "v": ["A", "a"]})
    with (
        source.prepare_snapshots(start, {"t": ["id", "v"]}) as opener,
        closing(opener()) as snapshot,
    ):
        assert ask(snapshot, "t", ["v"], keys, start).rows.num_rows == 1
        assert ask(snapshot, "t", ["v"], both, start).rows.num_rows == 1


def test_indexes_are_used_and_large_shares_scanned(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.table("t (id int PRIMARY KEY, k int, s text)")
    shop.run("CREATE INDEX ON t (k, s)", "CREATE INDEX ON t (s) WHERE k > 0")
    shop.run("INSERT INTO t SELECT n, n % 100, 'v' || n FROM generate_series(1, 20000) n")
    shop.run("ANALYZE t")
    source = shop.source()
    assert source.describe_table("t").is_indexed(["k"])
    assert not source.describe_table("t").is_indexed(["s"])
    assert source.describe_table("t").can_find_by_key(["s"])
    columns = {"t": ["id", "k", "s"]}
    start = source.follow_tables(columns)
    with source.prepare_snapshots(start, columns) as opener, closing(opener()) as snapshot:
        few = pa.table({"id": pa.array(range(10, 20), pa.int64())})
        assert ask(snapshot, "t", ["id"], few, start).rows.num_rows == 10
        many = pa.table({"id": pa.array(range(2000), pa.int64())})
        assert ask(snapshot, "t", ["id"], many, start).rows.num_rows == 1999
        most = pa.table({"id": pa.array(range(10000), pa.int64())})
        assert ask(snapshot, "t", ["id"], most, start).rows.num_rows == 20000
        monkeypatch.setattr(postgres_lookup, "SCAN_SHARE", 1.0)
        assert ask(snapshot, "t", ["id"], most, start).rows.num_rows == 9999
