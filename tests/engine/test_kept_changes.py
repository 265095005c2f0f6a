"""What the index of the kept changes says holds after a power cut too."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from viewkeeper.engine.batch import change_archive
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


def test_held_changes_are_one_file_per_flush_and_what_was_kept_one_by_one(tmp_path: Path) -> None:
    """Spans that follow each other, come again, overlap or leave a gap; other columns."""
    rng = random.Random(7)
    for _ in range(60):
        spans = [random_span(rng) for _ in range(rng.randint(1, 8))]
        one, held = ChangeArchive(tmp_path / "one"), ChangeArchive(tmp_path / "held")
        for found, after, until in spans:
            one.keep_changes(BatchChanges({ORDERS: found}), after, until)
            held.hold_changes(BatchChanges({ORDERS: found}), after, until)
            if not rng.randrange(3):
                held.write_held()
        held.write_held()
        assert kept_rows(tmp_path / "held") == kept_rows(tmp_path / "one")
        for each in (one, held):
            each.clear_archive()


def test_what_the_journal_has_of_held_changes_restores_them(tmp_path: Path) -> None:
    archive = ChangeArchive(tmp_path / "killed")
    frames = [
        frame
        for after in range(3)
        for frame in archive.hold_changes(
            BatchChanges({ORDERS: changes(after + 1)}), after, after + 1
        )
    ]
    assert not kept_rows(tmp_path / "killed")[1], "nothing is written before the flush"
    restored = ChangeArchive(tmp_path / "killed")
    restored.recover_archive(frames, 3)
    restored.recover_archive(frames, 3)
    assert kept_rows(tmp_path / "killed") == ((0, 3), [1, 2, 3])


@pytest.mark.parametrize("in_journal", [0, 1, 2])
def test_a_file_that_reaches_beyond_the_ledger_is_no_gap(tmp_path: Path, in_journal: int) -> None:
    """A flush has written changes whose commit never came, with those of commits before it."""
    killed = ChangeArchive(tmp_path / "killed")
    killed.keep_changes(BatchChanges({ORDERS: changes(3)}), 0, 3)
    frames = [
        frame
        for after in range(3, 6)
        for frame in killed.hold_changes(
            BatchChanges({ORDERS: changes(after + 1)}), after, after + 1
        )
    ]
    killed.write_held()
    assert kept_rows(tmp_path / "killed") == ((0, 6), [1, 2, 3, 4, 5, 6])
    started = ChangeArchive(tmp_path / "killed")
    started.recover_archive(frames[:in_journal], 3 + in_journal)
    through = 3 + in_journal
    assert kept_rows(tmp_path / "killed") == ((0, through), list(range(1, through + 1)))
    started.keep_changes(BatchChanges({ORDERS: changes(7)}), through, 7)
    assert kept_rows(tmp_path / "killed") == ((0, 7), list(range(1, 8)))


def test_many_changes_are_kept_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_archive, "HELD_BYTES", 8)
    archive = ChangeArchive(tmp_path / "history")
    assert archive.hold_changes(BatchChanges({ORDERS: changes(3)}), 0, 3) == []
    assert kept_rows(tmp_path / "history") == ((0, 3), [1, 2, 3])


def random_span(rng: random.Random) -> tuple[RelationChanges, int, int]:
    after = rng.choice([0, 0, 1, 2, 3, 4, 5])
    until = after + rng.randint(1, 4)
    found = changes(until)
    if not rng.randrange(6):
        found = replace(found, table=found.table.append_column("note", pa.array(["x"] * until)))
    return found, after, until


def kept_rows(folder: Path) -> tuple[tuple[int, int] | None, list[int]]:
    """The span that the index says, and the ts of all rows in it."""
    kept = read_index(folder).get(ORDERS)
    files = archive_files(folder, ORDERS, -1)
    rows = sorted(int(ts) for file in files for ts in pq.read_table(file)[TS].to_numpy())
    return (kept.since, kept.through) if kept else None, rows


def changes(until: int) -> RelationChanges:
    stamps = list(range(1, until + 1))
    columns = {"id": stamps, COUNT: [1] * until, POSITION: stamps, TS: stamps}
    return RelationChanges(until, pa.table(columns))
