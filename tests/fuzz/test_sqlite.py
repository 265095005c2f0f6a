"""Fuzzing a SQLite database: a damaged file, and tables of ours that somebody else has written to.

The file has a followed table with rows and a log. Whatever is done to it, everything that is asked
of it is answered or refused by an error of ours, never by a Python error.
"""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.fuzz.mutation import choose_steps, fuzz
from tests.sources.opening import opened
from viewkeeper.errors import SchemaError, SourceError, ViewkeeperError
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.view.definition import Relation

T = {"t": ["id", "s", "b", "f", "d"]}
OURS = {
    "database": ("id", "trimmed", "shaped"),
    "log": ("seq", "capture", "sign", "at", "c0", "c1", "c2"),
    "capture": ("relation", "columns", "since", "gap", "active", "form"),
    "shape": ("relation", "seq", "shape"),
    "reader": ("reader", "position", "tables", "lease_until"),
}
ODD = (
    *("NULL", "'x'", "''", "x'ff00'", "CAST(x'fffe' AS TEXT)", "9223372036854775807", "-1", "0"),
    *("1.5", "'{}'", "'[]'", "'['", '\'{"1": "x"}\'', "'[\"x\"]'", "9e999", "2"),
    f"'{'[' * 3000}'",
)


@pytest.fixture(scope="module")
def path(memory: Path) -> Path:
    path = memory / "shop.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.executescript(
            "PRAGMA page_size = 512; CREATE TABLE t(id INTEGER PRIMARY KEY, s TEXT UNIQUE, b BLOB,"
            " f REAL, d DATE); INSERT INTO t VALUES (1, 'é', x'00ff', 1.5, '2026-01-02')"
        )
        source = SqliteSource("shop", path, "me")
        source.follow_tables(T)
        writer.execute("INSERT INTO t VALUES (2, 'b', NULL, 2, NULL), (3, 'c', x'', 0.0, NULL)")
        writer.execute("UPDATE OR REPLACE t SET s = 'b' WHERE id = 3")
        source.close()
    # The first array imports much, which may take long.
    ask_source(Path(shutil.copy(path, path.with_name("first.db"))), STEPS)
    return path


def ask_source(path: Path, steps: Sequence[Callable[[SqliteSource], object]]) -> None:
    source = SqliteSource("shop", path, "me", busy_seconds=0.1)
    try:
        for step in steps:
            with suppress(ViewkeeperError):
                step(source)
    finally:
        source.close()


def _scan(source: SqliteSource) -> None:
    snapshot = opened(source)
    try:
        scan = snapshot.scan_relation(Relation("shop", "t"), T["t"], 0)
        for batches in (scan.batches, scan.tail):
            for _ in batches:
                pass
    finally:
        snapshot.close()


STEPS: tuple[Callable[[SqliteSource], object], ...] = (
    lambda source: source.describe_table("t"),
    lambda source: source.describe_table("t").key,
    lambda source: source.look_for_transactions(0),
    lambda source: list(source.read_changes(T, 0, 4)),
    _scan,
    lambda source: source.read_health((0,)),
    lambda source: source.diagnose_source(T),
    lambda source: source.acknowledge_position(2),
    lambda source: source.follow_tables(T),
    lambda source: source.look_for_transactions(2),
    lambda source: source.detach_source(),
)


def test_a_damaged_file(path: Path, scratch: Path) -> None:
    def read(data: bytes) -> None:
        ask_source(put_database(scratch, data), choose_steps(data, STEPS, 3))

    fuzz(read, [path.read_bytes()], inputs=2000)


def test_our_tables_written_to_by_others(path: Path, scratch: Path) -> None:
    """An input is pairs of bytes: a column, and what all of its rows get."""
    places = [(table, column) for table, columns in OURS.items() for column in columns]
    sound = path.read_bytes()

    def read(data: bytes) -> None:
        copy = put_database(scratch, sound)
        with closing(sqlite3.connect(copy, isolation_level=None)) as writer:
            for place, odd in zip(data[:8:2], data[1:8:2], strict=False):
                (table, column), value = places[place % len(places)], ODD[odd % len(ODD)]
                with suppress(sqlite3.Error):
                    writer.execute(f"UPDATE _viewkeeper_{table} SET {column} = {value}")
        ask_source(copy, choose_steps(data, STEPS, 3))

    pairs = itertools.product(range(len(places)), range(len(ODD)))
    fuzz(read, [bytes(pair) for pair in pairs], inputs=200)


def test_a_length_that_no_memory_holds_is_an_error_of_the_source(scratch: Path) -> None:
    """SQLite says that it has no memory, and Python raises a MemoryError."""
    path = scratch / "copy.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        columns = ", ".join(f"c{number}" for number in range(40))
        writer.executescript(f"PRAGMA page_size = 512; CREATE TABLE t(a, {columns})")
    data = bytearray(path.read_bytes())
    first = int.from_bytes(data[108:110], "big")
    data[first : first + 5] = b"\x8f\xff\xff\xff\x7f"
    path.write_bytes(data)
    source = SqliteSource("shop", path, "me")
    with pytest.raises(SourceError, match="no memory") as caught:
        source.describe_table("t")
    assert "integrity_check" in str(caught.value.hint)
    source.close()


def put_database(folder: Path, data: bytes) -> Path:
    """A database file with these bytes, and nothing beside it."""
    copy = folder / "copy.db"
    for ending in ("-journal", "-wal", "-shm"):
        copy.with_name(copy.name + ending).unlink(missing_ok=True)
    copy.write_bytes(data)
    return copy


@pytest.mark.parametrize("sign", ["7", "0", "NULL", "'x'", "1.0"])
def test_a_sign_that_no_trigger_writes_is_no_change(path: Path, scratch: Path, sign: str) -> None:
    copy = shutil.copy(path, scratch / "copy.db")
    with closing(sqlite3.connect(copy, isolation_level=None)) as writer:
        writer.execute(f"UPDATE _viewkeeper_log SET sign = {sign} WHERE seq = 1")
    source = SqliteSource("shop", copy, "me")
    with pytest.raises(SourceError, match="no trigger of ours has written"):
        list(source.read_changes(T, 0, 4))
    source.close()


def test_detaching_leaves_what_is_not_ours(path: Path, scratch: Path) -> None:
    copy = shutil.copy(path, scratch / "copy.db")
    source = SqliteSource("shop", copy, "me")
    with closing(sqlite3.connect(copy, isolation_level=None)) as writer:
        writer.execute("CREATE TABLE _viewkeeper_notes (a)")
        writer.execute("CREATE VIEW audit AS SELECT * FROM _viewkeeper_log")
        with pytest.raises(SchemaError, match="use its tables"):
            source.detach_source()
        assert source.look_for_transactions(0)
        assert writer.execute("SELECT count(*) > 3 FROM audit").fetchone() == (1,)
        writer.execute("DROP VIEW audit")
        assert source.detach_source().capture_dropped
        left = writer.execute("SELECT name FROM sqlite_master WHERE name LIKE '%viewkeeper%'")
        assert left.fetchall() == [("_viewkeeper_notes",)]
    source.close()
