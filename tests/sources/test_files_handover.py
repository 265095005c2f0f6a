"""When files are taken, and when not yet: at rest, by `_SUCCESS`, by their names.

A writer is caught in the middle in every way that we know; what it had not finished is never taken.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sources.test_files_failures import TABLES, changes, rewritten, source_of
from viewkeeper.sources.files.state_rows import DiskRows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "exports" / "price" / "a.csv"
    path.parent.mkdir(parents=True)
    path.write_text("sku,price\na,1.00\nb,2.00\n")
    return path


def test_a_state_is_taken_when_the_files_have_come_to_rest(tmp_path: Path, file: Path) -> None:
    source = source_of(tmp_path, settle=0.2)
    start = source.follow_tables(TABLES)
    assert source.look_for_transactions(start) == ()
    with open(file, "a") as writer:
        for row in ("c,3.00\n", "d,4.", "00\n"):
            writer.write(row)
            writer.flush()
            assert source.look_for_transactions(start) == ()
            time.sleep(0.05)
    assert source.look_for_transactions(start) == ()
    time.sleep(0.25)
    (boundary,) = source.look_for_transactions(start)
    assert changes(source, start, boundary.position) == [("c", "3.00", 1), ("d", "4.00", 1)]
    assert abs(boundary.committed_at - file.stat().st_mtime) < 0.01


def test_whoever_looks_once_sees_what_has_just_been_written(tmp_path: Path, file: Path) -> None:
    start = source_of(tmp_path, settle=0.2).follow_tables(TABLES)
    rewritten(file, "sku,price\na,1.00\n")
    (boundary,) = source_of(tmp_path, settle=0.2).look_for_transactions(start)
    assert boundary.changes == 1


def test_files_that_were_not_touched_for_long_are_at_rest(tmp_path: Path, file: Path) -> None:
    source = source_of(tmp_path, settle=0.3)
    start = source.follow_tables(TABLES)
    assert source.look_for_transactions(start) == ()
    rewritten(file, "sku,price\na,1.00\n")
    os.utime(file, (1, 1))
    assert source.look_for_transactions(start) == (), (
        "a time of change can be set, so it is not believed"
    )
    time.sleep(0.4)
    assert len(source_of(tmp_path, settle=0.3).look_for_transactions(start)) == 1


def test_names_of_unfinished_files_are_never_data(tmp_path: Path, file: Path) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    for name in ("_b.csv", ".b.csv", "b.csv.tmp", "b.csv.part", "b.txt"):
        (file.parent / name).write_text("half")
    (file.parent / "folder.csv").mkdir()
    assert source.look_for_transactions(start) == ()


def test_a_success_file_decides(tmp_path: Path, file: Path) -> None:
    done = file.parent / "_SUCCESS"
    done.touch()
    source = source_of(tmp_path, settle=60)
    source_follow = source_of(tmp_path, settle=0)
    start = source_follow.follow_tables(TABLES)
    os.utime(done, ns=(1, 1))
    rewritten(file, "sku,price\na,1.00\n")
    assert source.look_for_transactions(start) == (), "a file is younger"
    os.utime(done)
    (boundary,) = source.look_for_transactions(start)
    assert changes(source, start, boundary.position) == [("b", "2.00", -1)]
    file.unlink()
    assert source.look_for_transactions(boundary.position) == (), "it was not written again"
    done.touch()
    (emptied,) = source.look_for_transactions(boundary.position)
    assert changes(source, boundary.position, emptied.position) == [("a", "1.00", -1)]


def test_a_file_that_is_written_while_it_is_read_is_not_taken(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(tmp_path)
    start = source.follow_tables(TABLES)
    rewritten(file, "sku,price\na,5.00\n")
    writing = DiskRows.write_copy

    def meanwhile(*args: Any) -> Any:
        file.write_text("sku,price\na,5.00\nb,")
        return writing(*args)

    with monkeypatch.context() as patch:
        patch.setattr(DiskRows, "write_copy", meanwhile)
        assert source.look_for_transactions(start) == ()
    rewritten(file, "sku,price\na,7.00\n")
    (boundary,) = source.look_for_transactions(start)
    assert ("a", "7.00", 1) in changes(source, start, boundary.position)
