"""A lookup finds every row that Spark would call equal, each once, however it finds them.

Random keys, by index, by part of an index and without any, against the same join done in Python. A
collation that ignores case or blanks may bring more rows, never the same row twice.
"""

from __future__ import annotations

import datetime
import decimal
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tests.sources.mariadb_database import Database, Row, rows_of
from viewkeeper.sources.mariadb import MariadbSource
from viewkeeper.sources.mariadb.answers.lookup import build_lookup_query
from viewkeeper.sources.mariadb.schema import read_table
from viewkeeper.sources.mariadb.server_connection import MariadbServer
from viewkeeper.testing.private_servers import PrivateMariadb
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.view.definition import Relation

INDEXES = {
    "none": "",
    "one": ", KEY (a)",
    "text": ", KEY (s)",
    "start of a text": ", KEY (s(2), a)",
    "both": ", KEY (a, s)",
    "latin": ", KEY (l, d)",
    "three": ", KEY (d, a, e), KEY (f)",
}
TEXTS = [None, "a", "A", "b", "b ", "é", "é", "ss", "ß", "😀", "", "long text"]
LATIN = [None, "a", "A", "€", "ÿ", "x "]
KINDS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "a": pa.int64(),
    "s": pa.string(),
    "l": pa.string(),
    "d": pa.date32(),
    "e": pa.string(),
    "f": pa.float32(),
    "n": pa.decimal128(20, 4),
    "t": pa.timestamp("us", "UTC"),
    "y": pa.binary(),
}


@pytest.fixture
def database(mariadb_server: PrivateMariadb, tmp_path: Path) -> Iterator[Database]:
    opened = Database(mariadb_server, "lookups", tmp_path)
    opened.run("SET time_zone = '+00:00'")
    yield opened
    opened.writer.close()


@pytest.fixture
def source(database: Database) -> Iterator[MariadbSource]:
    opened = database.source()
    yield opened
    opened.close()


def ask(
    source: MariadbSource, after: int, on: Sequence[str], safe: Sequence[bool], keys: pa.Table
) -> Answer:
    with source.prepare_snapshots(after, {"t": list(KINDS)}) as opener:
        snapshot = opener()
        columns = tuple(dict.fromkeys(("id", *on)))
        asked = Lookup(0, Relation("crm", "t"), columns, tuple(on), tuple(safe), keys)
        answer = snapshot.answer_lookup(asked, after)
        snapshot.close()
        return answer


def fill(database: Database, rng: random.Random, rows: int) -> None:
    values = []
    for number in range(rows):
        day = f"2024-01-{rng.randint(1, 5):02d}"
        values.append(
            (
                number,
                rng.choice([None, *range(6)]),
                rng.choice(TEXTS),
                rng.choice(LATIN),
                rng.choice([None, day]),
                rng.choice([None, "x", "y"]),
                rng.choice([None, 0.0, 1.1, -2.5]),
                rng.choice([None, decimal.Decimal("1.5"), decimal.Decimal("-0.0001")]),
                rng.choice([None, f"{day} 10:00:00.123456"]),
                rng.choice([None, b"", b"\0", b"\0\0", b"\xff'"]),
            )
        )
    with database.writer.cursor() as cursor:
        marks = ", ".join(["%s"] * len(KINDS))
        cursor.executemany(f"INSERT INTO t VALUES ({marks})", values)


@pytest.mark.parametrize("index", INDEXES)
def test_lookups_are_joins(database: Database, source: MariadbSource, index: str) -> None:
    rng = random.Random(7)
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20), l VARCHAR(9) CHARSET latin1,"
        " d DATE, e ENUM('x', 'y'), f FLOAT, n DECIMAL(20,4), t TIMESTAMP(6) NULL,"
        f" y VARBINARY(9){INDEXES[index]})"
    )
    fill(database, rng, 300)
    after = source.follow_tables({"t": list(KINDS)})
    everything = ask(source, after, list(KINDS), [True] * len(KINDS), no_keys()).rows
    assert everything.num_rows == 0
    for _ in range(25):
        on = rng.sample([name for name in KINDS if name != "id"], rng.randint(1, 3))
        safe = [rng.random() < 0.5 for _ in on]
        whole = rows_of(scan(source, after, on), ["id", *on])
        picked = rng.sample(whole, rng.choice([0, 1, 40]))
        asked = {row[1:] for row in picked}
        keys = pa.table(
            {name: pa.array([key[i] for key in asked], KINDS[name]) for i, name in enumerate(on)}
        )
        found = Counter(rows_of(ask(source, after, on, safe, keys).rows, ["id", *on]))
        assert max(found.values(), default=1) == 1, "no row comes twice"
        wanted = {
            row
            for row in whole
            if row[1:] in asked
            and all(value is not None or s for value, s in zip(row[1:], safe, strict=True))
        }
        assert wanted <= set(found), (on, safe)
        assert set(found) <= set(whole)


def no_keys() -> pa.Table:
    return pa.table({name: pa.array([], kind) for name, kind in KINDS.items()})


def scan(source: MariadbSource, after: int, columns: Sequence[str]) -> pa.Table:
    with source.prepare_snapshots(after, {"t": list(KINDS)}) as opener:
        snapshot = opener()
        names = ["id", *columns]
        found = snapshot.scan_relation(Relation("crm", "t"), names, after)
        table = pa.Table.from_batches(list(found.batches))
        snapshot.close()
        return table


def plan(database: Database, on: Sequence[str], keys: pa.Table) -> list[Row]:
    """What the server says it will do for a lookup."""
    server = MariadbServer(database.settings())
    connection = server.open_connection()
    table = read_table(connection, "crm", database.name, "t")
    connection.close()
    asked = Lookup(0, Relation("crm", "t"), ("id",), tuple(on), (True,) * len(on), keys)
    return database.run("EXPLAIN " + build_lookup_query(table, asked))


def test_indexes_are_used(database: Database, source: MariadbSource) -> None:
    database.run(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20) COLLATE utf8mb4_unicode_ci,"
        " l VARCHAR(20) CHARSET latin1, d DATE, KEY named (s, a), KEY latin (l, d))",
        "INSERT INTO t SELECT seq, seq % 100, seq, seq, '2024-01-01' FROM seq_1_to_20000",
        "ANALYZE TABLE t",
    )
    texts = [str(n) for n in range(20)]
    day = pa.array([datetime.date(2024, 1, 1)] * 20)
    for on, index, keys in (
        (["s"], "named", pa.table({"s": texts})),
        (["a", "s"], "named", pa.table({"a": range(20), "s": texts})),
        (["l"], "latin", pa.table({"l": texts})),
        (["l", "d"], "latin", pa.table({"l": texts, "d": day})),
        (["d", "id"], "PRIMARY", pa.table({"d": day, "id": range(20)})),
    ):
        explained = plan(database, on, keys)
        touched = [row for row in explained if row[2] == "r"]
        assert [row[5] for row in touched] == [index], explained
        assert source.describe_table("t").is_indexed(on)
    assert not source.describe_table("t").is_indexed(["d"])


def test_many_keys_read_the_table_once(database: Database, source: MariadbSource) -> None:
    columns = ", ".join(f"{name} INT" for name in KINDS if name != "id")
    database.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns})",
        "INSERT INTO t (id, a) SELECT seq, seq FROM seq_1_to_5000",
        "ANALYZE TABLE t",
    )
    after = source.follow_tables({"t": list(KINDS)})
    few = ask(source, after, ["id"], [False], pa.table({"id": range(1, 901)}))
    assert few.rows.num_rows == 900
    many = ask(source, after, ["id"], [False], pa.table({"id": range(1, 3001)}))
    assert many.rows.num_rows == 5000


def test_names_are_found_in_any_case(database: Database, source: MariadbSource) -> None:
    database.run(
        "CREATE TABLE t (Id INT PRIMARY KEY, `odd ``name` INT)", "INSERT INTO t VALUES (1, 2)"
    )
    after = source.follow_tables({"t": ["ID", "odd `name"]})
    with source.prepare_snapshots(after, {"t": ["iD", "ODD `NAME"]}) as opener:
        snapshot = opener()
        keys = pa.table({"ODD `NAME": [2]})
        place = Relation("crm", "t")
        asked = Lookup(0, place, ("iD", "ODD `NAME"), ("ODD `NAME",), (False,), keys)
        assert snapshot.answer_lookup(asked, after).rows.to_pylist() == [{"iD": 1, "ODD `NAME": 2}]
        snapshot.close()
    assert source.describe_table("t").key == ("Id",)
