"""What goes wrong at a source becomes one of our errors, and never a bare one of sqlite3.

Each names the source, says what happened in the primary line, keeps SQLite's own words as detail,
and hints at who can do what about it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.opening import opened
from viewkeeper.errors import SourceAwayError, SourceError
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.sources.sqlite.database import error_of_code
from viewkeeper.view.definition import Relation


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a folder?" / "größe#1.db"


@pytest.fixture
def source(path: Path) -> Iterator[SqliteSource]:
    path.parent.mkdir()
    opened = SqliteSource("shop", path, "test", busy_seconds=0.1)
    yield opened
    opened.close()


def test_opening_never_creates_a_database(source: SqliteSource, path: Path) -> None:
    with pytest.raises(SourceAwayError, match="no database file") as caught:
        source.follow_tables({"t": ["v"]})
    assert caught.value.hint
    assert not path.exists()
    with pytest.raises(SourceAwayError, match="no database file"):
        source.read_health()


def test_a_folder_is_no_database(source: SqliteSource, path: Path) -> None:
    path.mkdir()
    with pytest.raises(SourceError, match="is a folder"):
        source.describe_table("t")


def test_another_file_is_no_database(source: SqliteSource, path: Path) -> None:
    path.write_bytes(b"name,price\n" * 200)
    with pytest.raises(SourceError, match="not a SQLite database"):
        opened(source)


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_locked_database_is_away_for_now(source: SqliteSource, path: Path, mode: str) -> None:
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute(f"PRAGMA journal_mode = {mode}")
    writer.execute("CREATE TABLE t(v INT)")
    position = source.follow_tables({"t": ["v"]})
    writer.execute("INSERT INTO t VALUES (1)")
    (boundary,) = source.look_for_transactions(position)
    writer.execute("BEGIN EXCLUSIVE")
    with pytest.raises(SourceAwayError, match="stayed locked"):
        source.follow_tables({"t": ["v"]})
    source.acknowledge_position(boundary.position)
    if mode == "delete":
        with pytest.raises(SourceAwayError, match="stayed locked"):
            source.look_for_transactions(position)
    writer.execute("COMMIT")
    source.acknowledge_position(boundary.position)
    assert source.look_for_transactions(boundary.position) == ()
    writer.close()


def test_reads_in_rollback_mode_end_at_once(source: SqliteSource, path: Path) -> None:
    writer = sqlite3.connect(path, isolation_level=None, timeout=0)
    writer.execute("CREATE TABLE t(v INT)")
    position = source.follow_tables({"t": ["v"]})
    assert source.describe_source().endswith("journal mode delete")
    snapshot = opened(source)
    scan = snapshot.scan_relation(Relation("shop", "t"), ["v"], position)
    writer.execute("INSERT INTO t VALUES (1)")
    assert [batch.num_rows for batch in scan.batches] == []
    snapshot.close()
    writer.execute("PRAGMA journal_mode = WAL")
    # A connection learns of the mode when it reads, and this one has read before.
    source.close()
    assert source.describe_source().endswith("journal mode wal")
    writer.close()


def test_a_wal_database_that_nobody_has_open_can_be_read(source: SqliteSource, path: Path) -> None:
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE t(v INT)")
    position = source.follow_tables({"t": ["v"]})
    writer.execute("INSERT INTO t VALUES (1)")
    writer.close()
    source.close()
    assert not path.with_name(path.name + "-shm").exists()
    snapshot = opened(source)
    scan = snapshot.scan_relation(Relation("shop", "t"), ["v"], position)
    assert [batch.to_pylist() for batch in scan.batches] == [[{"v": 1}]]
    snapshot.close()


def test_writers_do_not_fail_by_capture(source: SqliteSource, path: Path) -> None:
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB, s TEXT)")
    position = source.follow_tables({"t": ["id", "v", "s"]})
    writer.execute("PRAGMA trusted_schema = OFF")
    writer.execute("PRAGMA foreign_keys = ON")
    writer.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2_000_000)
    writer.execute("INSERT INTO t VALUES (1, zeroblob(1000000), CAST(x'ff' AS TEXT))")
    writer.execute("INSERT OR ROLLBACK INTO t VALUES (2, x'00', 'b')")
    writer.execute("UPDATE OR FAIL t SET id = id + 10")
    assert source.look_for_transactions(position)[0].changes == 6
    writer.close()


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        ("SQLITE_FULL", SourceError, "no space left"),
        ("SQLITE_READONLY", SourceError, "cannot be written"),
        ("SQLITE_IOERR_READ", SourceAwayError, "cannot be read now"),
        ("SQLITE_CORRUPT", SourceError, "damaged"),
        ("SQLITE_BUSY_SNAPSHOT", SourceAwayError, "stayed locked"),
        ("SQLITE_ERROR", SourceError, "SQLite failed"),
    ],
)
def test_every_code_has_its_error(code: str, kind: type[SourceError], says: str) -> None:
    error = sqlite3.OperationalError("what SQLite said")
    error.sqlite_errorname = code
    translated = error_of_code("shop", "shop.db", 30, error)
    assert type(translated) is kind
    assert says in str(translated)
    assert "what SQLite said" in (translated.detail or "")
