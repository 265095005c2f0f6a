"""A power cut may leave the newest, unsynced log entry in four torn forms; none is believed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.warehouse.model import VIEW, World, bag, folder_of, opened
from viewkeeper.errors import CorruptError, WarehouseError
from viewkeeper.warehouse.lake import delta_log
from viewkeeper.warehouse.lake.lake_table import LakeTable
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import NAME
from viewkeeper.warehouse.metadata.record import Advance
from viewkeeper.warehouse.rows.view_state import read_state
from viewkeeper.warehouse.store import Store

Tear = Callable[[bytes], bytes]

TEARS: dict[str, Tear] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "cut at a line end": lambda data: b"".join(data.splitlines(keepends=True)[:-1]),
    "cut after the first line": lambda data: data.splitlines(keepends=True)[0],
}
tears = pytest.mark.parametrize("tear", TEARS.values(), ids=TEARS.keys())


def newest_entry(folder: Path) -> Path:
    return sorted((folder / "_delta_log").glob("*.json"))[-1]


@tears
def test_a_torn_entry_is_redone_from_the_record(tmp_path: Path, tear: Tear) -> None:
    with opened(tmp_path) as world:
        world.append({(5, "e"): 1})
        before = (tmp_path / NAME).read_bytes()
        world.append({(6, "f"): 1})
        entry = newest_entry(folder_of(world.store))
    # The head that named the entry is lost with it: it is written after the entry was synced.
    (tmp_path / NAME).write_bytes(before)
    entry.write_bytes(tear(entry.read_bytes()))
    with Store.open(tmp_path, "test", time.time) as store:
        World(store, history=world.history).check()
        assert DeltaTable(str(folder_of(store))).version() == int(entry.stem)


@tears
def test_a_torn_checkpoint_is_forgotten(tmp_path: Path, tear: Tear) -> None:
    with opened(tmp_path) as world:
        world.append({(5, "e"): 1})
        world.append({(6, "f"): 1})
        before = (tmp_path / NAME).read_bytes()
        merge_tail(world.store, VIEW)
        folder = folder_of(world.store)
    (tmp_path / NAME).write_bytes(before)
    for path in [*(folder / "_delta_log").glob("*checkpoint*"), newest_entry(folder)]:
        path.write_bytes(tear(path.read_bytes()))
    with Store.open(tmp_path, "test", time.time) as store:
        World(store, history=world.history).check()


@tears
def test_a_torn_entry_of_a_table_without_records_is_dropped(tmp_path: Path, tear: Tear) -> None:
    table = LakeTable.create(tmp_path, pa.schema({"k": pa.int64()}), "published", 0.0)
    whole = newest_entry(tmp_path).read_bytes()
    delta_log.drop_torn(tmp_path)
    assert newest_entry(tmp_path).read_bytes() == whole
    table.replace_files(1, 0.0, [], {})
    entry = newest_entry(tmp_path)
    delta_log.drop_torn(tmp_path)
    assert entry.exists(), "the library writes the transaction's line last"
    entry.write_bytes(tear(entry.read_bytes()))
    delta_log.drop_torn(tmp_path)
    assert not entry.exists()


def test_another_writers_entry_is_refused_not_deleted(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        folder = folder_of(world.store)
    DeltaTable(str(folder)).alter.set_table_properties({"delta.appendOnly": "false"})
    with Store.open(tmp_path, "test", time.time) as store:
        assert "another writer changed this table" in str(store.damaged_views[VIEW])
        assert store.head.require_view(VIEW).stopped == str(store.damaged_views[VIEW])
        with pytest.raises(CorruptError, match="another writer changed this table"):
            store.commit([Advance(VIEW, 9, {})])
    newest_entry(folder).unlink()
    with Store.open(tmp_path, "test", time.time) as store:
        assert bag(read_state(tmp_path, store.head.require_view(VIEW))) == world.expected(1)


def test_another_writer_between_two_commits_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        other = LakeTable.open(
            folder_of(world.store),
            world.store.table_of(VIEW).stored,
        )
        other.commit(99, 0.0, [])
        with pytest.raises(WarehouseError, match="is committed but not yet visible") as refused:
            world.append({(5, "e"): 1})
        assert "another writer" in str(refused.value)
