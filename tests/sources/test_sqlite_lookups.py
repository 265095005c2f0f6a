"""A lookup finds every row that Spark would call equal, each once, however it finds them.

Random keys, by index, by part of an index and without any, against the same join done in Python.
The mode of the journal decides how long a read lasts, never what it answers.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tests.sources.opening import opened
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.view.definition import Relation

INDEXES = {
    "none": "",
    "rowid": "",
    "whole": "CREATE INDEX i ON t(a, s)",
    "part": "CREATE INDEX i ON t(a)",
    "ignoring case": "CREATE INDEX i ON t(s COLLATE NOCASE)",
    "partial": "CREATE INDEX i ON t(a) WHERE a > 2",
    "expression": "CREATE INDEX i ON t(abs(a), s)",
}
TEXTS = [None, "a", "A", "b", "b ", "é"]
KINDS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "a": pa.int64(),
    "s": pa.string(),
    "d": pa.date32(),
    "b": pa.binary(),
}


@pytest.fixture(params=["wal", "delete"])
def writer(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute(f"PRAGMA journal_mode = {request.param}")
    connection.execute("PRAGMA synchronous = OFF")
    yield connection
    connection.close()


@pytest.fixture
def source(tmp_path: Path, writer: sqlite3.Connection) -> Iterator[SqliteSource]:
    opened = SqliteSource("shop", tmp_path / "shop.db", "test")
    yield opened
    opened.close()


def ask(
    source: SqliteSource, on: Sequence[str], null_safe: Sequence[bool], keys: pa.Table
) -> Answer:
    snapshot = opened(source)
    try:
        place = Relation("shop", "T")
        columns = tuple(dict.fromkeys(("id", *on)))
        return snapshot.answer_lookup(
            Lookup(0, place, columns, tuple(on), tuple(null_safe), keys), 0
        )
    finally:
        snapshot.close()


def rows_of(table: pa.Table, columns: Sequence[str]) -> list[tuple[object, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


@pytest.mark.parametrize("index", INDEXES)
def test_lookups_are_joins(source: SqliteSource, writer: sqlite3.Connection, index: str) -> None:
    rng = random.Random(7)
    writer.execute(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, s TEXT COLLATE NOCASE, d DATE, b BLOB)"
    )
    writer.executescript(INDEXES[index])
    rows = [
        (
            n,
            rng.choice([None, *range(6)]),
            rng.choice(TEXTS),
            f"2024-01-{n % 9 + 1:02}",
            bytes([n % 5]),
        )
        for n in range(300)
    ]
    writer.execute("BEGIN")
    writer.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)
    writer.execute("COMMIT")
    source.follow_tables({"t": ["id", *KINDS]})
    for _ in range(12):
        on = ["id"] if index == "rowid" else rng.sample(["a", "s", "d", "b"], rng.randint(1, 3))
        safe = [rng.random() < 0.5 for _ in on]
        picked = [rng.choice(rows) for _ in range(rng.choice([0, 1, 40]))]
        expected_rows = whole(source, on)
        names = {"id": 0, "a": 1, "s": 2, "d": 3, "b": 4}
        wanted = {tuple(row[names[name]] for name in on) for row in picked}
        columns = [pa.array([key[i] for key in wanted], stored_type(n)) for i, n in enumerate(on)]
        keys = pa.table(dict(zip(on, columns, strict=True))).cast(
            pa.schema([(name, KINDS[name]) for name in on])
        )
        asked = set(rows_of(keys, on))
        answer = ask(source, on, safe, keys)
        found = Counter(rows_of(answer.rows, ["id", *on]))
        expected = Counter(
            row
            for row in expected_rows
            if row[1:] in asked
            and all(value is not None or s for value, s in zip(row[1:], safe, strict=True))
        )
        assert found == expected, (index, on, safe)


def whole(source: SqliteSource, on: Sequence[str]) -> list[tuple[object, ...]]:
    snapshot = opened(source)
    try:
        columns = tuple(dict.fromkeys(("id", *on)))
        lookup = Lookup(0, Relation("shop", "t"), columns, (), (), None)
        return rows_of(snapshot.answer_lookup(lookup, 0).rows, ["id", *on])
    finally:
        snapshot.close()


def stored_type(name: str) -> pa.DataType:
    return pa.string() if name == "d" else KINDS[name]


def test_timestamps_are_never_missed(source: SqliteSource, writer: sqlite3.Connection) -> None:
    writer.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, at DATETIME)")
    spellings = ["2024-01-01 10:00:00", "2024-01-01T10:00:00", "2024-01-01 10:00:00.000"]
    writer.executemany("INSERT INTO t(at) VALUES (?)", [(text,) for text in spellings])
    source.follow_tables({"t": ["id", "at"]})
    keys = pa.table({"at": pa.array(spellings[:1]).cast(pa.timestamp("us"))})
    assert ask(source, ["at"], [False], keys).rows.num_rows == 3
    assert not source.describe_table("t").can_find_by_key(["at"])
    assert source.describe_table("t").can_find_by_key(["id", "at"])


def test_explain_knows_the_indexes(source: SqliteSource, writer: sqlite3.Connection) -> None:
    writer.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, a INT, b INT, c INT)")
    writer.execute("CREATE INDEX i ON t(a, b)")
    writer.execute("CREATE INDEX j ON t(c) WHERE c > 0")
    known = {"id": True, "a": True, "b": False, "c": False}
    assert {name: source.describe_table("t").is_indexed([name]) for name in known} == known
    assert source.describe_table("T").is_indexed(["b", "a"])


def test_equal_numbers_are_one_key(source: SqliteSource, writer: sqlite3.Connection) -> None:
    writer.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, x REAL)")
    writer.execute("INSERT INTO t(x) VALUES (0.0), (-0.0), (NULL), (1.5)")
    source.follow_tables({"t": ["id", "x"]})
    keys = pa.table({"x": [0.0, -0.0, float("nan"), None]})
    found = Counter(rows_of(ask(source, ["x"], [True], keys).rows, ["x"]))
    assert found == Counter({(0.0,): 2, (None,): 1})


def test_an_answer_has_its_cut_and_its_tail(
    source: SqliteSource, writer: sqlite3.Connection
) -> None:
    writer.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, a INT)")
    writer.execute("INSERT INTO t VALUES (1, 1)")
    after = source.follow_tables({"t": ["id", "a"]})
    writer.execute("UPDATE t SET a = 2")
    answer = ask(source, ["a"], [False], pa.table({"a": [1, 2]}))
    assert rows_of(answer.rows, ["id", "a"]) == [(1, 2)]
    changes = rows_of(answer.tail, ["id", "a", "_count", "_position"])
    assert changes == [(1, 1, -1, after + 1), (1, 2, 1, after + 2)]
    assert answer.cut.position == after + 2
    snapshot = opened(source)
    scan = snapshot.scan_relation(Relation("shop", "t"), ["a"], after)
    assert [batch.to_pylist() for batch in scan.batches] == [[{"a": 2}]]
    assert sum(batch.num_rows for batch in scan.tail) == 2
    snapshot.close()
