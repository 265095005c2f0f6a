"""A backup that was put back is found, however far its log has grown, running or not.

And nothing else is taken for one: kills between what we write and what the database has, trimming,
other readers, files from before anything was remembered.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from viewkeeper.errors import GapError
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.sources.sqlite.reader_registration import FILE
from viewkeeper.sources.state_files import FolderStateFiles

T = {"t": ["id", "v"]}
Open = Callable[[], SqliteSource]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    run(path, "PRAGMA journal_mode = wal", "CREATE TABLE t(id INTEGER PRIMARY KEY, v INT)")
    run(path, "CREATE TABLE other(id INTEGER PRIMARY KEY)")
    return path


@pytest.fixture
def opens(path: Path, tmp_path: Path) -> Iterator[Open]:
    """A source as each new process has it."""
    sources: list[SqliteSource] = []

    def open_source() -> SqliteSource:
        for source in sources:
            source.close()
        sources.append(SqliteSource("shop", path, "me", files=FolderStateFiles(tmp_path / "home")))
        return sources[-1]

    yield open_source
    for source in sources:
        source.close()


def run(path: Path, *statements: str) -> None:
    writer = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        writer.execute(statement)
    writer.close()


def insert(path: Path, count: int) -> None:
    run(path, *["INSERT INTO t (v) VALUES (7)"] * count)


def backup(path: Path) -> None:
    run(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(path, path.with_name("backup.db"))


def restore(path: Path) -> None:
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    shutil.copy(path.with_name("backup.db"), path)


@pytest.mark.parametrize("acknowledged", [False, True])
@pytest.mark.parametrize("grown", [0, 3, 20])
def test_a_restored_backup_is_found_after_a_stop(
    path: Path, opens: Open, acknowledged: bool, grown: int
) -> None:
    source = opens()
    start = source.follow_tables(T)
    insert(path, 2)
    backup(path)
    insert(path, 3)
    (boundary,) = source.look_for_transactions(start)
    if acknowledged:
        source.acknowledge_position(boundary.position)
    source.close()
    restore(path)
    insert(path, grown)
    again = opens()
    with pytest.raises(GapError, match="is not of this database"):
        again.look_for_transactions(boundary.position)
    # It stays so, and following it again does not make old positions good.
    with pytest.raises(GapError):
        opens().look_for_transactions(boundary.position)
    later = opens()
    position = later.follow_tables(T)
    insert(path, 9)
    for source in (later, opens()):
        with pytest.raises(GapError):
            source.look_for_transactions(boundary.position)
        assert [each.changes for each in source.look_for_transactions(position)] == [9]


def test_a_backup_that_has_all_that_was_reported_is_no_gap(path: Path, opens: Open) -> None:
    source = opens()
    start = source.follow_tables(T)
    insert(path, 2)
    (boundary,) = source.look_for_transactions(start)
    source.acknowledge_position(boundary.position)
    source.close()
    backup(path)
    insert(path, 9)
    restore(path)
    insert(path, 4)
    assert [each.changes for each in opens().look_for_transactions(boundary.position)] == [4]


def test_deaths_at_any_step_are_no_gap(path: Path, opens: Open, tmp_path: Path) -> None:
    """What is remembered may be older than what the database has, by any number of looks."""
    file = tmp_path / "home" / FILE
    position = opens().follow_tables(T)
    for step in range(6):
        kept = file.read_bytes()
        insert(path, 2)
        source = opens()
        (boundary,) = source.look_for_transactions(position)
        if step % 3 == 1:
            file.write_bytes(kept)  # died before it was written
        if step % 3 == 2:
            source.acknowledge_position(boundary.position)
            file.write_bytes(kept)  # the power went
        position = boundary.position
        assert opens().look_for_transactions(position) == ()
    file.unlink()  # from before anything was remembered
    assert opens().look_for_transactions(position) == ()


def test_trimming_and_other_readers_are_no_gap(path: Path, opens: Open, tmp_path: Path) -> None:
    other = SqliteSource("shop", path, "other", files=FolderStateFiles(tmp_path / "other"))
    other.follow_tables({"other": ["id"]})
    source = opens()
    position = source.follow_tables(T)
    insert(path, 30)
    (boundary,) = source.look_for_transactions(position)
    source.acknowledge_position(boundary.position)
    run(path, "INSERT INTO other VALUES (1), (2), (3)", "ALTER TABLE t ADD COLUMN w INT", "VACUUM")
    (seen,) = other.look_for_transactions(0)
    other.acknowledge_position(seen.position)
    source.acknowledge_position(boundary.position)
    run(path, "UPDATE other SET id = id + 10")
    assert opens().follow_tables(T) > boundary.position
    insert(path, 1)
    assert sum(each.changes for each in opens().look_for_transactions(boundary.position)) == 1
    other.close()


def test_another_database_in_its_place_is_found(path: Path, opens: Open) -> None:
    source = opens()
    start = source.follow_tables(T)
    insert(path, 2)
    (boundary,) = source.look_for_transactions(start)
    source.close()
    other = SqliteSource("shop", path, "me")
    other.detach_source()
    other.follow_tables(T)
    insert(path, 50)
    other.close()
    with pytest.raises(GapError, match="is not of this database"):
        opens().look_for_transactions(boundary.position)


def test_detaching_forgets(path: Path, opens: Open, tmp_path: Path) -> None:
    source = opens()
    source.follow_tables(T)
    source.detach_source()
    assert not (tmp_path / "home" / FILE).exists()
    position = source.follow_tables(T)
    assert source.look_for_transactions(position) == ()
