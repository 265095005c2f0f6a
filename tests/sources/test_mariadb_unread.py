"""A table that is followed and that no view reads any more: whatever becomes of it stops nobody.
And the folders in which a task keeps what it has read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.mariadb_database import Database, look
from viewkeeper.errors import ConversionError, SourceError
from viewkeeper.sources.mariadb import MariadbSource
from viewkeeper.sources.mariadb.answers import snapshot as tails
from viewkeeper.sources.mariadb.answers.snapshot import make_private_folder
from viewkeeper.sources.stream.spool import Spool
from viewkeeper.testing.private_servers import PrivateMariadb
from viewkeeper.view.definition import Relation

COLUMNS = ["id", "v"]
# What ends in an error for whoever reads the table.
IN_THE_WAY = (
    ("SET STATEMENT sql_mode = '' FOR INSERT INTO u VALUES (1, '0000-00-00')",),
    ("SET SESSION binlog_format = STATEMENT", "UPDATE u SET id = 5"),
    ("SET SESSION binlog_row_image = MINIMAL", "UPDATE u SET v = '2025-01-01'"),
)


@pytest.fixture
def database(mariadb_server: PrivateMariadb, tmp_path: Path) -> Iterator[Database]:
    opened = Database(mariadb_server, "unread", tmp_path)
    opened.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE u (id INT PRIMARY KEY, v DATE)",
        "INSERT INTO u VALUES (3, '2024-01-01')",
    )
    yield opened
    opened.writer.close()


@pytest.mark.parametrize("statements", IN_THE_WAY, ids=["value", "statement", "image"])
def test_a_table_that_nobody_reads_stops_nobody(
    database: Database, statements: tuple[str, ...]
) -> None:
    source = database.source()
    after = source.follow_tables({"t": COLUMNS, "u": COLUMNS})
    source.close()
    database.run("INSERT INTO t VALUES (1, 1)", *statements, "DROP TABLE u")
    database.run("SET SESSION binlog_format = ROW", "INSERT INTO t VALUES (2, 2)")
    source = database.source()
    # As a process begins: it looks, says what its views read, and looks again.
    source.look_for_transactions(after)
    source.follow_tables({"t": COLUMNS})
    assert [one.changes for one in look(source, after)] == [1, 1]
    source.acknowledge_position(look(source, after)[-1].position)
    source.close()


def test_whoever_reads_the_table_is_told(database: Database) -> None:
    source = database.source()
    after = source.follow_tables({"t": COLUMNS, "u": COLUMNS})
    source.close()
    database.run(*IN_THE_WAY[0], "INSERT INTO t VALUES (1, 1)")
    source = database.source()
    source.look_for_transactions(after)
    source.follow_tables({"t": COLUMNS})
    assert [one.changes for one in look(source, after)] == [1]
    source.follow_tables({"u": COLUMNS})
    with pytest.raises(ConversionError, match="0000-00-00"):
        source.look_for_transactions(after)
    source.close()


def test_what_stands_in_everybodys_way_is_told_to_everybody(database: Database) -> None:
    source: MariadbSource = database.source()
    after = source.follow_tables({"t": COLUMNS, "u": COLUMNS})
    database.run("SET SESSION binlog_format = STATEMENT", "UPDATE t SET v = 2")
    with pytest.raises(SourceError, match="lists no rows"):
        source.look_for_transactions(after)
    source.close()


def test_a_tail_is_private_and_leaves_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, stranger = tmp_path / "temporary", tmp_path / "stranger"
    temporary.mkdir()
    stranger.mkdir()
    # Somebody may have made what could be guessed.
    (temporary / f"viewkeeper-{os.getuid()}").symlink_to(stranger)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr(tails, "Spool", lambda home: Spool(home, memory_bytes=0))
    source = database.source()
    after = source.follow_tables({"t": COLUMNS})
    database.run("INSERT INTO t VALUES (1, 1)")
    look(source, after)
    with source.prepare_snapshots(after, {"t": COLUMNS}) as opener:
        snapshot = opener()
        scan = snapshot.scan_relation(Relation("crm", "t"), COLUMNS, after)
        assert [batch.num_rows for batch in scan.batches] == [1]
        (made,) = temporary.glob("viewkeeper-tail-*")
        assert [path for path in made.rglob("*") if path.is_file()], "its rows are in files"
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        snapshot.close()
    source.close()
    assert not list(temporary.glob("viewkeeper-tail-*"))
    assert not list(stranger.iterdir())


def test_what_killed_tasks_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    dead = 2**22 + 1
    left, planted = tmp_path / f"viewkeeper-tail-{dead}-a", tmp_path / f"viewkeeper-tail-{dead}-b"
    left.mkdir()
    planted.symlink_to(elsewhere)
    beside = tmp_path / f"viewkeeper-tail-{os.getppid()}-a"
    beside.mkdir()
    made = make_private_folder()
    assert made != make_private_folder()
    assert not left.exists()
    assert beside.exists()
    assert (elsewhere / "kept").exists(), "what is only linked is not ours"
