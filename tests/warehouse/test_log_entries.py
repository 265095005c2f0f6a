"""What we read from a log by ourselves is what the library reads, or the library is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.warehouse.model import VIEW, World, folder_of, opened
from viewkeeper.errors import CorruptError
from viewkeeper.storage.disk import no_guard
from viewkeeper.warehouse.lake import delta_log, lake_table
from viewkeeper.warehouse.lake.data_files import stored_schema
from viewkeeper.warehouse.lake.lake_table import LakeTable, library_files_of
from viewkeeper.warehouse.lake.listed_files import ENTRIES_MAX, read_entries
from viewkeeper.warehouse.metadata.record import DataFile
from viewkeeper.warehouse.rows.view_state import files_of

COMMITS = 5


def data_file(n: int) -> DataFile:
    facts = {"size": 10 + n, "rows": 1, "count_min": -1, "count_max": 1, "count_sum": 0}
    return DataFile(path=f"part-{n}.parquet", ts_min=n, ts_max=2 * n, **facts)


def test_entries_say_what_the_library_says(tmp_path: Path) -> None:
    stored = stored_schema(pa.schema([("id", pa.int64())]))
    table = LakeTable.create(tmp_path / "table", stored, "view", 0.0)
    for n in range(1, COMMITS + 1):
        table.commit(n, float(n), [data_file(n), data_file(100 + n)])
    table.commit(9, 9.0, [data_file(9)], ["part-2.parquet", "part-101.parquet"], rows_change=False)
    for version in range(table.version + 1):
        found = read_entries(table.folder, version)
        handle = lake_table._open_handle(table.folder, version)
        assert found is not None
        assert found.files == lake_table._active_files(handle)
        assert found.applied == lake_table._transaction_of(handle)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A closed warehouse whose view has some versions."""
    with opened(tmp_path) as world:
        for n in range(COMMITS):
            world.append({(n, "x"): 1})
    return world


def test_readers_need_no_library(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, view = folder_of(world.store), world.store.head.views[VIEW]
    wanted = library_files_of(folder, view)
    monkeypatch.setattr(lake_table, "DeltaTable", None)
    assert files_of(folder, view) == wanted
    table = LakeTable.open_listed(folder, stored_schema(view.schema), no_guard, view)
    assert table is not None
    assert table.active_files() == wanted


def without_files(entry: bytes) -> bytes:
    lines = entry.splitlines()
    return b"\n".join(line for line in lines if "add" not in json.loads(line))


def with_another_size(entry: bytes) -> bytes:
    return entry.replace(b'"size":', b'"size":1')


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "cut": lambda entry: entry[:-9],
    "empty": lambda entry: b"",
    "no object": lambda entry: b"[1]\n",
    "files lost": without_files,
    "another size": with_another_size,
    "gone": lambda entry: None,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_entry_is_never_believed(
    world: World, damage: Callable[[bytes], bytes | None]
) -> None:
    folder, view = folder_of(world.store), world.store.head.views[VIEW]
    entry = delta_log.entry_path(folder, view.location.version - 1)
    assert isinstance(entry, Path)
    changed = damage(entry.read_bytes())
    entry.unlink()
    if changed is not None:
        entry.write_bytes(changed)
    assert LakeTable.open_listed(folder, stored_schema(view.schema), no_guard, view) is None
    with pytest.raises(CorruptError):
        files_of(folder, view)


def test_an_entry_beyond_the_head_is_for_the_library(world: World) -> None:
    folder, view = folder_of(world.store), world.store.head.views[VIEW]
    delta_log.write_entry(folder, view.location.version + 1, b"{}")
    assert LakeTable.open_listed(folder, stored_schema(view.schema), no_guard, view) is None


def test_long_logs_are_for_the_library(tmp_path: Path) -> None:
    assert read_entries(tmp_path, ENTRIES_MAX + 1) is None
