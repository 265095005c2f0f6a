"""Fuzzing a SQLite database: a damaged file, and tables of ours that somebody else has written to.

The file has a followed table with rows and a log. Whatever is done to it, everything that is asked
of it is answered or refused by an error of ours, never by a Python error.
"""

from __future__ import annotations

import itertools
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.fuzz.mutation import INPUTS, SEED, fuzz
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
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz") / "shop.db"
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
    ask_everything(Path(shutil.copy(path, path.with_name("first.db"))))
    return path


def ask_everything(path: Path) -> None:
    source = SqliteSource("shop", path, "me", busy_seconds=0.1)
    try:
        for step in (
            lambda: source.describe_table("t"),
            lambda: source.describe_table("t").key,
            lambda: source.look_for_transactions(0),
            lambda: list(source.read_changes(T, 0, 4)),
            lambda: _scan(source),
            lambda: source.read_health((0,)),
            lambda: source.diagnose_source(T),
            lambda: source.acknowledge_position(2),
            lambda: source.follow_tables(T),
            lambda: source.look_for_transactions(2),
            lambda: source.detach_source(),
        ):
            try:
                step()
            except ViewkeeperError:
                continue
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


def test_a_damaged_file(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"

    def read(data: bytes) -> None:
        for ending in ("-journal", "-wal", "-shm"):
            copy.with_name(copy.name + ending).unlink(missing_ok=True)
        copy.write_bytes(data)
        ask_everything(copy)

    fuzz(read, [path.read_bytes()], inputs=150)


def test_our_tables_written_to_by_others(path: Path, tmp_path: Path) -> None:
    places = [(table, column) for table, columns in OURS.items() for column in columns]
    choices = list(itertools.product(places, ODD))
    random.Random(SEED).shuffle(choices)
    copy = tmp_path / "copy.db"
    for (table, column), value in choices[: max(120, INPUTS)]:
        shutil.copy(path, copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as writer:
            try:
                writer.execute(f"UPDATE _viewkeeper_{table} SET {column} = {value}")
            except sqlite3.Error:
                continue
        try:
            ask_everything(copy)
        except Exception as error:
            raise AssertionError(f"{table}.{column} = {value}") from error


@pytest.mark.parametrize("sign", ["7", "0", "NULL", "'x'", "1.0"])
def test_a_sign_that_no_trigger_writes_is_no_change(path: Path, tmp_path: Path, sign: str) -> None:
    copy = shutil.copy(path, tmp_path / "copy.db")
    with closing(sqlite3.connect(copy, isolation_level=None)) as writer:
        writer.execute(f"UPDATE _viewkeeper_log SET sign = {sign} WHERE seq = 1")
    source = SqliteSource("shop", copy, "me")
    with pytest.raises(SourceError, match="no trigger of ours has written"):
        list(source.read_changes(T, 0, 4))
    source.close()


def test_detaching_leaves_what_is_not_ours(path: Path, tmp_path: Path) -> None:
    copy = shutil.copy(path, tmp_path / "copy.db")
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
