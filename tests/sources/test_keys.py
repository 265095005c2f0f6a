"""Keys of tables: only what the database enforces, cannot be NULL, and means the same to us."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from viewkeeper.errors import SchemaError
from viewkeeper.sources.memory import MemorySource
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.view.definition import Field, Relation

# definition of t, and the key that it has
TABLES = [
    ("t (a INTEGER PRIMARY KEY, b TEXT)", "a"),
    ("t (a INTEGER, b TEXT, PRIMARY KEY (a))", "a"),
    ("t (b TEXT, a INTEGER PRIMARY KEY AUTOINCREMENT)", "a"),
    ("t (rowid TEXT, oid INTEGER PRIMARY KEY)", "oid"),
    ("t (a INTEGER PRIMARY KEY, b TEXT NOT NULL UNIQUE)", "a"),
    ("t (a TEXT PRIMARY KEY, b TEXT) WITHOUT ROWID", "a"),
    ("t (a TEXT, b INTEGER, c TEXT, PRIMARY KEY (b, a)) WITHOUT ROWID", "b, a"),
    ("t (a TEXT, b INTEGER, PRIMARY KEY (b, a, b)) WITHOUT ROWID", "b, a"),
    ("t (a TEXT PRIMARY KEY, b TEXT) STRICT", "a"),
    ("t (a TEXT NOT NULL PRIMARY KEY, b TEXT)", "a"),
    ("t (a TEXT NOT NULL, b DATE NOT NULL, PRIMARY KEY (b, a))", "b, a"),
    ('t ("A b" DECIMAL(9,2) NOT NULL UNIQUE)', "A b"),
    ("t (a TEXT UNIQUE NOT NULL, b TEXT)", "a"),
    ("t (a TEXT NOT NULL, b TEXT NOT NULL); CREATE UNIQUE INDEX i ON t (b DESC, a)", "b, a"),
    ("t (a BLOB NOT NULL, b REAL NOT NULL, UNIQUE (a, b), UNIQUE (b))", "b"),
    ("t (a TEXT NOT NULL, b TEXT NOT NULL, UNIQUE (b), UNIQUE (a))", "a"),
    ("t (a TEXT, b INTEGER NOT NULL GENERATED ALWAYS AS (length(a)) STORED UNIQUE)", "b"),
    # SQLite lets NULL into these keys, as often as it comes.
    ("t (a TEXT PRIMARY KEY, b TEXT)", ""),
    ("t (a INT PRIMARY KEY)", ""),
    ("t (a INTEGER PRIMARY KEY DESC)", ""),
    ("t (a INTEGER, b INTEGER NOT NULL, PRIMARY KEY (a, b))", ""),
    ("t (a INTEGER UNIQUE)", ""),
    ("t (a TEXT PRIMARY KEY, b INTEGER NOT NULL UNIQUE)", "b"),
    # They cover only some rows, or values that are no column.
    ("t (a TEXT NOT NULL); CREATE UNIQUE INDEX i ON t (a) WHERE a <> ''", ""),
    ("t (a TEXT NOT NULL); CREATE UNIQUE INDEX i ON t (lower(a))", ""),
    ("t (a TEXT NOT NULL, b TEXT NOT NULL); CREATE UNIQUE INDEX i ON t (a, b || 'x')", ""),
    # Not unique, or nothing at all.
    ("t (a TEXT NOT NULL); CREATE INDEX i ON t (a)", ""),
    ("t (a TEXT NOT NULL, b TEXT)", ""),
    # Another collation calls equal what we tell apart.
    ("t (a TEXT COLLATE NOCASE NOT NULL PRIMARY KEY, b TEXT NOT NULL UNIQUE)", "b"),
    ("t (a TEXT COLLATE NOCASE PRIMARY KEY) WITHOUT ROWID", ""),
    ("t (a TEXT NOT NULL); CREATE UNIQUE INDEX i ON t (a COLLATE RTRIM)", ""),
    ("t (a TEXT COLLATE NOCASE NOT NULL, UNIQUE (a COLLATE BINARY))", "a"),
    # A timestamp has several spellings, so two rows of the database may be one to us.
    ("t (a DATETIME NOT NULL PRIMARY KEY, b TEXT NOT NULL UNIQUE)", "b"),
    ("t (a DATETIME PRIMARY KEY) WITHOUT ROWID", ""),
    # A column that no view can use is part of no key.
    ("t (a GEOMETRY NOT NULL PRIMARY KEY)", ""),
]
VALUES = (1, 2, "x", "y", "2024-01-01", "2024-01-02", b"z", None)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        yield connection


@pytest.fixture
def source(tmp_path: Path, writer: sqlite3.Connection) -> Iterator[SqliteSource]:
    with closing(SqliteSource("shop", tmp_path / "shop.db", "test")) as opened:
        yield opened


@pytest.mark.parametrize(("definition", "key"), TABLES)
def test_a_key_is_what_the_database_enforces(
    source: SqliteSource, writer: sqlite3.Connection, definition: str, key: str
) -> None:
    writer.executescript(f"CREATE TABLE {definition}")
    columns = tuple(key.split(", ")) if key else ()
    assert source.describe_table("t").key == source.describe_table("main.T").key == columns
    assert {field.name for field in source.describe_table("t").fields} >= {*columns}
    if columns:
        refuses_doubles_and_nulls(writer, columns)


def refuses_doubles_and_nulls(writer: sqlite3.Connection, key: tuple[str, ...]) -> None:
    """Try all kinds of rows; no two that are accepted may have one key, none a NULL in it."""
    info = writer.execute("SELECT name FROM pragma_table_xinfo('t') WHERE hidden = 0").fetchall()
    names = ", ".join(f'"{name}"' for (name,) in info)
    marks = ", ".join("?" * len(info))
    for one in VALUES:
        for other in VALUES:
            values = [other if i else one for i in range(len(info))]
            with suppress(sqlite3.IntegrityError):
                writer.execute(f"INSERT INTO t ({names}) VALUES ({marks})", values)
    listed = ", ".join(f'"{name}"' for name in key)
    found = writer.execute(f"SELECT {listed} FROM t").fetchall()
    assert len(found) > 1
    assert len({*found}) == len(found)
    assert not any(None in row for row in found)


def test_an_index_that_comes_or_goes_is_seen(
    source: SqliteSource, writer: sqlite3.Connection
) -> None:
    writer.execute("CREATE TABLE t (a TEXT NOT NULL)")
    assert source.describe_table("t").key == ()
    writer.execute("CREATE UNIQUE INDEX i ON t (a)")
    assert source.describe_table("t").key == ("a",)
    writer.execute("DROP INDEX i")
    assert source.describe_table("t").key == ()


def test_a_memory_source_has_the_keys_that_it_is_given(source: SqliteSource) -> None:
    fields = (Field("a", pa.int64()), Field("b", pa.string()))
    memory = MemorySource("m", {"t": fields, "u": fields}, keys={"t": ("b", "a")})
    assert (memory.describe_table("t").key, memory.describe_table("u").key) == (("b", "a"), ())
    both: list[MemorySource | SqliteSource] = [memory, source]
    for each in both:
        with pytest.raises(SchemaError):
            each.describe_table("nothing")


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_memory_source_keeps_the_sign_of_a_zero(zero: float) -> None:
    """Whatever another source with the same columns had before: both zeros are equal."""
    memory = MemorySource("m", {"t": (Field("f", pa.float64()),)}, {"t": {(zero,): 1}})
    with closing(memory.open_snapshot()) as snapshot:
        scan = snapshot.scan_relation(Relation("m", "t"), ["f"], 0)
    (found,) = (value for batch in scan.batches for value in batch["f"].to_pylist())
    assert str(found) == str(zero)
