"""What the index of the kept changes says holds after a power cut too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from viewkeeper.engine.batch.change_archive import (
    ChangeArchive,
    archive_files,
    check_archive_files,
    read_index,
)
from viewkeeper.errors import CorruptError
from viewkeeper.updates.queue import BatchChanges, RelationChanges
from viewkeeper.updates.source_protocol import COUNT, POSITION, TS
from viewkeeper.view.definition import Relation

ORDERS = Relation("shop", "orders")


def test_files_are_synced_before_the_index_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "history"
    durable: set[int] = set()
    fsync, replace = os.fsync, os.replace
    counted: list[Path] = []

    def syncing(descriptor: int) -> None:
        fsync(descriptor)
        durable.add(os.fstat(descriptor).st_ino)

    def replacing(old: Any, new: Any) -> None:
        replace(old, new)
        counted.extend(archive_files(folder, ORDERS, -1))
        for file in counted:
            needed = {path.stat().st_ino for path in (file, file.parent, folder)}
            assert needed <= durable, f"{file} is not durable"

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(os, "replace", replacing)
    ChangeArchive(folder).keep_changes(BatchChanges({ORDERS: changes(3)}), 0, 3)
    assert counted, "nothing was kept"
    assert read_index(folder)[ORDERS].through == 3


@pytest.mark.parametrize("cut", [0, 4, 20])
def test_a_damaged_file_of_kept_changes_is_named(tmp_path: Path, cut: int) -> None:
    folder = tmp_path / "history"
    ChangeArchive(folder).keep_changes(BatchChanges({ORDERS: changes(3)}), 0, 3)
    ChangeArchive(folder).keep_changes(BatchChanges({ORDERS: changes(5)}), 3, 5)
    files = archive_files(folder, ORDERS, 0)
    check_archive_files(files)
    files[1].write_bytes(files[1].read_bytes()[:-cut] if cut else b"")
    with pytest.raises(CorruptError, match=files[1].name) as refused:
        check_archive_files(files)
    assert "says nothing of the view" in (refused.value.detail or "")


def test_a_file_of_kept_changes_that_is_gone_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    for after in range(4):
        ChangeArchive(folder).keep_changes(
            BatchChanges({ORDERS: changes(after + 1)}), after, after + 1
        )
    ChangeArchive(folder).forget_before(2)
    files = archive_files(folder, ORDERS, 2)
    assert len(files) == 2
    files[0].unlink()
    with pytest.raises(CorruptError, match="2 files were written, 1 are there"):
        archive_files(folder, ORDERS, 2)


def test_an_index_without_counts_is_read(tmp_path: Path) -> None:
    """Written before files were counted."""
    folder = tmp_path / "history"
    ChangeArchive(folder).keep_changes(BatchChanges({ORDERS: changes(1)}), 0, 1)
    index = [["shop", "orders", {"since": 0, "through": 1, "columns": ["id"]}]]
    (folder / "index.json").write_text(json.dumps(index))
    ChangeArchive(folder).keep_changes(BatchChanges({ORDERS: changes(2)}), 1, 2)
    assert len(archive_files(folder, ORDERS, 0)) == 2


def changes(until: int) -> RelationChanges:
    stamps = list(range(1, until + 1))
    columns = {"id": stamps, COUNT: [1] * until, POSITION: stamps, TS: stamps}
    return RelationChanges(until, pa.table(columns))
