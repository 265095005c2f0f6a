"""Every type of MariaDB: what the binlog has, what a SELECT gives and what a lookup finds agree.

Values go in as SQL and must come out as the Python values beside them, from the binlog as inserted
and as deleted, from a scan, and from a lookup by the value itself. A type that cannot keep all its
values is refused with the reason.
"""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tests.sources.mariadb_database import Database, changes, look, rows_of
from viewkeeper.errors import ConversionError, SchemaError
from viewkeeper.testing.private_servers import PrivateMariadb
from viewkeeper.updates.source_protocol import Lookup
from viewkeeper.view.definition import Relation

D = decimal.Decimal
UTC = datetime.UTC
MOMENT = datetime.datetime
BIG = "9" * 38

# declared type, Arrow type, pairs of SQL and value
MATRIX: list[tuple[str, pa.DataType, list[tuple[str, object]]]] = [
    ("tinyint", pa.int64(), [("-128", -128), ("127", 127)]),
    ("tinyint(1)", pa.int64(), [("true", 1), ("false", 0), ("2", 2)]),
    ("tinyint unsigned", pa.int64(), [("255", 255)]),
    ("smallint", pa.int64(), [("-32768", -32768), ("32767", 32767)]),
    ("smallint unsigned", pa.int64(), [("65535", 65535)]),
    ("mediumint", pa.int64(), [("-8388608", -8388608), ("8388607", 8388607), ("-1", -1)]),
    ("mediumint unsigned", pa.int64(), [("16777215", 16777215)]),
    ("int", pa.int64(), [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)]),
    ("int(8) unsigned zerofill", pa.int64(), [("4294967295", 2**32 - 1), ("7", 7)]),
    ("bigint", pa.int64(), [(str(-(2**63)), -(2**63)), (str(2**63 - 1), 2**63 - 1)]),
    ("bigint unsigned", pa.decimal128(20, 0), [(str(2**64 - 1), D(2**64 - 1)), ("0", D(0))]),
    (
        "decimal(38,0)",
        pa.decimal128(38, 0),
        [(BIG, D(BIG)), (f"-{BIG}", D(f"-{BIG}")), ("0", D(0))],
    ),
    (
        "decimal(38,38)",
        pa.decimal128(38, 38),
        [(f"0.{BIG}", D(f"0.{BIG}")), ("-0." + "0" * 37 + "1", D("-0." + "0" * 37 + "1"))],
    ),
    ("decimal(10,2)", pa.decimal128(10, 2), [("-12345678.90", D("-12345678.90")), ("1", D(1))]),
    (
        "decimal(19,10)",
        pa.decimal128(19, 10),
        [("123456789.0123456789", D("123456789.0123456789"))],
    ),
    ("decimal(1,1)", pa.decimal128(1, 1), [("0.9", D("0.9")), ("-0.9", D("-0.9"))]),
    ("decimal(18,9) unsigned", pa.decimal128(18, 9), [("0.000000001", D("0.000000001"))]),
    ("float", pa.float32(), [("1.1", 1.100000023841858), ("-0.0", 0.0), ("3.40282347e38", None)]),
    ("float", pa.float32(), [("16777217", 16777216.0), ("1e-45", 1.401298464324817e-45)]),
    (
        "double",
        pa.float64(),
        [
            ("0.1", 0.1),
            ("-0e0", 0.0),
            ("1.7976931348623157e308", 1.7976931348623157e308),
            ("2.2250738585072014e-308", 2.2250738585072014e-308),
            ("5e-324", 5e-324),
        ],
    ),
    ("bit(1)", pa.bool_(), [("b'1'", True), ("b'0'", False)]),
    ("bit(10)", pa.int64(), [("b'1111111111'", 1023), ("1", 1)]),
    ("bit(63)", pa.int64(), [(str(2**63 - 1), 2**63 - 1)]),
    ("bit(64)", pa.decimal128(20, 0), [(str(2**64 - 1), D(2**64 - 1)), ("256", D(256))]),
    ("char(5)", pa.string(), [("'ab'", "ab"), ("'ab  '", "ab"), ("''", ""), ("'漢字é'", "漢字é")]),
    ("char(255)", pa.string(), [("repeat('€', 255)", "€" * 255), ("'x'", "x")]),
    (
        "varchar(20)",
        pa.string(),
        [
            ("'ab  '", "ab  "),
            ("'😀e\u0301'", "😀e\u0301"),
            ("'A'", "A"),
            ("'it''s \\\\'", "it's \\"),
        ],
    ),
    ("varchar(300)", pa.string(), [("repeat('é', 300)", "é" * 300), ("''", "")]),
    ("varchar(20) charset latin1", pa.string(), [("'€éÿ'", "€éÿ"), ("x'8190'", "\x81\x90")]),
    ("varchar(20) charset utf8mb3", pa.string(), [("'漢é'", "漢é")]),
    ("varchar(20) charset ascii", pa.string(), [("'plain'", "plain")]),
    ("varchar(20) charset cp1251", pa.string(), [("'Привет'", "Привет")]),
    ("varchar(20) collate utf8mb4_bin", pa.string(), [("'a '", "a ")]),
    ("tinytext", pa.string(), [("'é'", "é"), ("''", "")]),
    ("text charset latin2", pa.string(), [("'łódź'", "łódź")]),
    ("longtext", pa.string(), [("repeat('ab', 40000)", "ab" * 40000)]),
    ("json", pa.string(), [("""'{"a": [1, "é"]}'""", '{"a": [1, "é"]}')]),
    (
        "binary(4)",
        pa.binary(),
        [("x'0100'", b"\1\0\0\0"), ("x'ffffffff'", b"\xff" * 4), ("''", b"\0" * 4)],
    ),
    ("varbinary(9)", pa.binary(), [("x'0020ff00'", b"\0 \xff\0"), ("''", b"")]),
    ("blob", pa.binary(), [("x'00ff'", b"\0\xff")]),
    (
        "date",
        pa.date32(),
        [("'0001-01-01'", datetime.date(1, 1, 1)), ("'9999-12-31'", datetime.date(9999, 12, 31))],
    ),
    ("datetime", pa.timestamp("us"), [("'2024-02-29 23:59:59'", MOMENT(2024, 2, 29, 23, 59, 59))]),
    (
        "datetime(3)",
        pa.timestamp("us"),
        [("'2024-01-01 00:00:00.123'", MOMENT(2024, 1, 1, 0, 0, 0, 123000))],
    ),
    (
        "datetime(6)",
        pa.timestamp("us"),
        [
            ("'0001-01-01 00:00:00.000001'", MOMENT(1, 1, 1, 0, 0, 0, 1)),
            ("'9999-12-31 23:59:59.999999'", MOMENT(9999, 12, 31, 23, 59, 59, 999999)),
        ],
    ),
    (
        "timestamp(6) null",
        pa.timestamp("us", "UTC"),
        [
            ("'1970-01-01 00:00:01.5'", MOMENT(1970, 1, 1, 0, 0, 1, 500000, UTC)),
            ("'2038-01-19 03:14:07.999999'", MOMENT(2038, 1, 19, 3, 14, 7, 999999, UTC)),
        ],
    ),
    (
        "timestamp null",
        pa.timestamp("us", "UTC"),
        [("'2024-07-01 12:00:00'", MOMENT(2024, 7, 1, 12, tzinfo=UTC))],
    ),
    ("year", pa.int64(), [("1901", 1901), ("2155", 2155), ("0", 0)]),
    (
        "enum('a','b,c','it''s','é')",
        pa.string(),
        [("'b,c'", "b,c"), ("'it''s'", "it's"), ("'é'", "é")],
    ),
    ("set('x','y','z')", pa.string(), [("'z,x'", "x,z"), ("''", "")]),
    (
        "uuid",
        pa.string(),
        [("'123e4567-e89b-12d3-a456-426655440000'", "123e4567-e89b-12d3-a456-426655440000")],
    ),
    ("inet4", pa.string(), [("'0.0.0.0'", "0.0.0.0"), ("'192.168.0.1'", "192.168.0.1")]),
    (
        "inet6",
        pa.string(),
        [("'::1'", "::1"), ("'::ffff:1.2.3.4'", "::ffff:1.2.3.4"), ("'2001:db8::'", "2001:db8::")],
    ),
]
REFUSED = {
    "decimal(39,0)": "38 digits",
    "point": "no type of Spark",
    "varchar(9) compressed": "compressed",
    "varchar(9) charset sjis": "several bytes",
    "varchar(9) charset utf16": "several bytes",
    "enum('é') charset latin1": "not ASCII",
}


@pytest.fixture
def database(mariadb_server: PrivateMariadb, tmp_path: Path) -> Iterator[Database]:
    opened = Database(mariadb_server, "types", tmp_path)
    yield opened
    opened.writer.close()


def expected(pairs: Sequence[tuple[str, object]]) -> list[object]:
    return [3.4028234663852886e38 if value is None else value for _, value in pairs] + [None]


@pytest.mark.parametrize(("declared", "arrow", "pairs"), MATRIX, ids=[m[0][:40] for m in MATRIX])
def test_the_value_is_one_wherever_it_is_read(
    database: Database, declared: str, arrow: pa.DataType, pairs: list[tuple[str, object]]
) -> None:
    database.run("SET time_zone = '+00:00', sql_mode = ''")
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY, v {declared})")
    source = database.source()
    assert {field.name: field.type for field in source.describe_table("t").fields}["v"] == arrow
    after = source.follow_tables({"t": ["id", "v"]})
    inserts = ", ".join(f"({i}, {sql})" for i, (sql, _) in enumerate([*pairs, ("NULL", None)]))
    database.run(f"INSERT INTO t VALUES {inserts}", "UPDATE t SET id = id + 100")
    until = look(source, after)[-1].position
    wanted = list(enumerate(expected(pairs)))
    logged = changes(source, "t", ["id", "v"], after, until)
    assert [(i, v) for i, v, n, _ in logged[: len(wanted)]] == wanted
    assert [(i, v) for i, v, n, _ in logged[len(wanted) :] if n == -1] == wanted
    assert [(i, v) for i, v, n, _ in logged[len(wanted) :] if n == 1] == [
        (i + 100, v) for i, v in wanted
    ]
    with source.prepare_snapshots(until, {"t": ["id", "v"]}) as opener:
        snapshot = opener()
        scan = snapshot.scan_relation(Relation("crm", "t"), ["id", "v"], until)
        batches = list(scan.batches)
        assert pa.Table.from_batches(batches).schema.field("v").type == arrow
        scanned = [row for batch in batches for row in rows_of(batch, ["id", "v"])]
        assert sorted(scanned, key=lambda row: int(str(row[0]))) == [
            (i + 100, v) for i, v in wanted
        ]
        for _, value in wanted:
            keys = pa.table({"v": pa.array([value], arrow)})
            asked = Lookup(0, Relation("crm", "t"), ("id", "v"), ("v",), (True,), keys)
            assert value in snapshot.answer_lookup(asked, until).rows["v"].to_pylist(), value
        snapshot.close()
    source.close()


@pytest.mark.parametrize("declared", REFUSED)
def test_what_cannot_be_kept_is_refused_with_the_reason(database: Database, declared: str) -> None:
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY, v {declared}, w INT)")
    source = database.source()
    assert [field.name for field in source.describe_table("t").fields] == ["id", "w"]
    assert REFUSED[declared] in source.describe_table("t").refused["v"]
    with pytest.raises(SchemaError, match='column "v" cannot be kept'):
        source.follow_tables({"t": ["id", "v"]})
    after = source.follow_tables({"t": ["w", "id"]})
    database.run("INSERT INTO t (id, w) VALUES (1, 5)")
    until = look(source, after)[-1].position
    assert [row[:3] for row in changes(source, "t", ["w", "id"], after, until)] == [(5, 1, 1)]
    source.close()


@pytest.mark.parametrize(
    ("declared", "sql", "shown"),
    [
        ("date", "'0000-00-00'", "0000-00-00"),
        ("date", "'2024-02-31'", "2024-02-31"),
        ("datetime", "'2024-00-10'", "2024-00-10"),
        ("timestamp null", "0", "0000-00-00"),
        ("date", "'0000-05-05'", "0000-05-05"),
    ],
)
def test_a_date_of_no_calendar_is_an_error_that_names_it(
    database: Database, declared: str, sql: str, shown: str
) -> None:
    database.run("SET sql_mode = 'ALLOW_INVALID_DATES'")
    database.run(f"CREATE TABLE t (id INT PRIMARY KEY, v {declared})")
    source = database.source()
    after = source.follow_tables({"t": ["id", "v"]})
    database.run("INSERT INTO t VALUES (1, '2024-01-01')", f"INSERT INTO t VALUES (2, {sql})")
    good = look_once(source, after)
    with pytest.raises(ConversionError, match=f'"types.t", column "v": {shown}'):
        source.look_for_transactions(good)
    with source.prepare_snapshots(good, {"t": ["id", "v"]}) as opener:
        snapshot = opener()
        with pytest.raises(ConversionError, match=shown):
            list(snapshot.scan_relation(Relation("crm", "t"), ["v"], good).batches)
        snapshot.close()
    source.close()


def look_once(source: object, after: int) -> int:
    """What came before the bad value is delivered."""
    boundaries = source.look_for_transactions(after)  # type: ignore[attr-defined]  # a source of any kind
    assert [one.changes for one in boundaries] == [1]
    return int(boundaries[-1].position)


def test_random_addresses_and_ids_are_spelled_as_the_server_spells_them(
    database: Database,
) -> None:
    rng = random.Random(4)
    database.run("CREATE TABLE t (id INT PRIMARY KEY, u UUID, a INET6)")
    source = database.source()
    after = source.follow_tables({"t": ["id", "u", "a"]})
    rows = []
    for number in range(300):
        groups = [rng.choice([0, 0, 1, 0xFFFF, rng.randrange(1 << 16)]) for _ in range(8)]
        # The forms that are written like an IPv4 address, and their neighbours.
        zeros = rng.choice([0, 4, 5, 6, 7, 8])
        groups[:zeros] = [0] * zeros
        address = ":".join(f"{group:x}" for group in groups)
        rows.append(f"({number}, UUID(), '{address}')")
    database.run(f"INSERT INTO t VALUES {', '.join(rows)}")
    until = look(source, after)[-1].position
    logged = [row[:3] for row in changes(source, "t", ["id", "u", "a"], after, until)]
    assert logged == database.run("SELECT id, u, a FROM t ORDER BY id")
    source.close()


def test_random_decimals_and_moments_agree_with_the_server(database: Database) -> None:
    rng = random.Random(5)
    shapes = [(rng.randint(1, 38), 0) for _ in range(12)]
    shapes = [(p, rng.randint(0, min(p, 30))) for p, _ in shapes]
    columns = [f"d{i} DECIMAL({p},{s})" for i, (p, s) in enumerate(shapes)]
    columns += [f"m{i} DATETIME({i})" for i in range(7)] + [
        f"t{i} TIMESTAMP({i}) NULL" for i in range(7)
    ]
    database.run(
        "SET time_zone = '+00:00', sql_mode = ''",
        f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(columns)})",
    )
    names = ["id", *(column.split()[0] for column in columns)]
    source = database.source()
    after = source.follow_tables({"t": names})
    for number in range(100):
        values = [_decimal(rng, p, s) for p, s in shapes]
        values += [f"'{_moment(rng)}'" for _ in range(14)]
        listed = [value if rng.random() < 0.9 else "NULL" for value in values]
        database.run(f"INSERT INTO t VALUES ({number}, {', '.join(listed)})")
    until = look(source, after)[-1].position
    logged = [row[: len(names)] for row in changes(source, "t", names, after, until)]
    with source.prepare_snapshots(until, {"t": names}) as opener:
        snapshot = opener()
        scan = snapshot.scan_relation(Relation("crm", "t"), names, until)
        scanned = [row for batch in scan.batches for row in rows_of(batch, names)]
        snapshot.close()
    assert logged == scanned
    assert len(logged) == 100
    source.close()


def _decimal(rng: random.Random, precision: int, scale: int) -> str:
    digits = rng.randint(1, precision)
    number = rng.randrange(10**digits)
    text = str(number).rjust(scale + 1, "0")
    whole, fraction = text[: len(text) - scale] or "0", text[len(text) - scale :]
    return f"{rng.choice(['', '-'])}{whole}{'.' + fraction if scale else ''}"


def _moment(rng: random.Random) -> str:
    second = rng.randrange(1, 2**31 - 1)
    moment = MOMENT(1970, 1, 1) + datetime.timedelta(
        seconds=second, microseconds=rng.randrange(10**6)
    )
    return moment.isoformat(" ", "microseconds")


def test_a_bad_lookup_value_finds_nothing(database: Database) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, x DOUBLE, s VARCHAR(9) CHARSET latin1, KEY (s))",
        "INSERT INTO t VALUES (1, 0, 'a'), (2, 1.5, 'é'), (3, NULL, NULL)",
    )
    source = database.source()
    after = source.follow_tables({"t": ["id", "x", "s"]})
    with source.prepare_snapshots(after, {"t": ["id", "x", "s"]}) as opener:
        snapshot = opener()
        for column, keys, found in (
            ("x", pa.array([float("nan"), float("inf"), -0.0]), [1]),
            ("s", pa.array(["漢", "é", "😀"]), [2]),
        ):
            asked = Lookup(
                0, Relation("crm", "t"), ("id",), (column,), (False,), pa.table({column: keys})
            )
            assert snapshot.answer_lookup(asked, after).rows["id"].to_pylist() == found
        snapshot.close()
    source.close()
