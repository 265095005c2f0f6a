"""What the world refuses becomes an error that says what holds and what to do."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.warehouse.model import VIEW, World, bag, folder_of, opened, world
from viewkeeper.errors import CorruptError, LockedError, WarehouseError
from viewkeeper.storage import disk
from viewkeeper.storage.named_digest import DigestSink
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.metadata.plan_files import load_ledger
from viewkeeper.warehouse.metadata.record import Advance, DataFile
from viewkeeper.warehouse.rows.view_state import read_state
from viewkeeper.warehouse.store import Store

__all__ = ["world"]


def test_a_second_writer_is_told_who_holds_the_warehouse(world: World) -> None:
    with pytest.raises(LockedError) as refused:
        Store.open(world.store.local_root, "other", time.time)
    assert f"process {os.getpid()} on " in str(refused.value)
    assert "(test), since " in str(refused.value)
    assert read_head(world.store.local_root) == world.store.head, "reading needs no lock"


def test_the_lock_ends_with_its_process(tmp_path: Path) -> None:
    program = (
        "import os, sys, time; from pathlib import Path\n"
        "from viewkeeper.warehouse.store import Store\n"
        "store = Store.open(Path(sys.argv[1]), 'killed', time.time); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert ended.returncode == -9
    Store.open(tmp_path, "next", time.time).close()


def test_a_record_that_is_there_fences_off_the_late_writer(world: World) -> None:
    number = world.store.head.record + 1
    (world.store.local_root / "records" / f"{number:020d}.json").write_bytes(b"the other's")
    with pytest.raises(WarehouseError, match="already there"):
        world.append({(5, "e"): 1})
    assert read_head(world.store.local_root).record == number - 1
    with pytest.raises(WarehouseError, match="open the warehouse again"):
        world.store.commit([])


@contextmanager
def refusing(call: str, code: int) -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, call, refuse)
        yield


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_full_disk_changes_nothing_and_says_so(world: World, call: str) -> None:
    before = world.store.head
    with refusing(call, errno.ENOSPC), pytest.raises(WarehouseError) as refused:
        world.append({(5, "e"): 1})
    assert refused.value.hint is not None
    assert "disk is full" in refused.value.hint
    assert read_head(world.store.local_root) == before
    world.append({(5, "e"): 1})
    world.check()


def test_after_the_record_a_full_disk_only_delays(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        with refusing("replace", errno.ENOSPC), pytest.raises(WarehouseError) as refused:
            world.append({(5, "e"): 1})
        assert "is committed but not yet visible" in refused.value.message
        assert read_head(tmp_path).require_view(VIEW).ts == 1
    with Store.open(tmp_path, "test", time.time) as store:
        World(store, history=[*world.history, (2, Counter({(5, "e"): 1}))]).check()


def test_a_name_that_could_not_be_synced_is_not_built_upon(tmp_path: Path) -> None:
    """Its record stays visible; what is visible only must be durable before sources forget."""
    root = tmp_path / "warehouse"
    synced: list[str] = []
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), root))
        if synced[-1] == "records" and broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    with opened(root) as world, pytest.MonkeyPatch.context() as patch:
        broken = True
        patch.setattr(os, "fsync", failing)
        with pytest.raises(WarehouseError, match="cannot sync"):
            world.append({(5, "e"): 1})
        with pytest.raises(WarehouseError, match="open the warehouse again"):
            world.store.commit([])
        world.store.close()
        broken = False
        synced.clear()
        with Store.open(root, "next", time.time) as store:
            assert bag(read_state(root, store.head.require_view(VIEW)))[5, "e"] == 1
    first_entry = next(at for at, name in enumerate(synced) if "_delta_log/" in name)
    assert "records" in synced[:first_entry], "redone before its name was durable"


def test_a_file_that_does_not_fit_leaves_nothing(world: World) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))
    try:
        with pytest.raises(WarehouseError, match="nothing of this step was committed"):
            world.append({(5, "e" * 10_000): 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(list(folder_of(world.store).glob("*.parquet"))) == 1
    world.append({(5, "e"): 1})
    world.check()


def test_a_disk_that_refuses_the_first_bytes_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet writes them when its writer is made, before there are rows."""

    def refuse(_sink: DigestSink, _data: bytes) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(DigestSink, "write", refuse)
        with pytest.raises(WarehouseError, match="cannot write") as refused:
            world.append({(5, "e"): 1})
    assert refused.value.hint
    assert len(list(folder_of(world.store).glob("*.parquet"))) == 1
    world.append({(5, "e"): 1})
    world.check()


def test_a_panic_of_the_library_is_an_error_of_ours(world: World) -> None:
    """The exceptions of Rust are none of Python's, so `except Exception` lets them through."""

    class PanicException(BaseException):
        pass

    def panic(_self: DeltaTable) -> None:
        raise PanicException("failed to wake I/O driver")

    for value in (5, 6):
        world.append({(value, "e"): 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaTable, "create_checkpoint", panic)
        with pytest.raises(WarehouseError, match="is committed but not yet visible") as refused:
            merge_tail(world.store, VIEW)
    assert "failed to wake" in str(refused.value.__cause__)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("head.json", b""),
        ("head.json", b"\0" * 100),
        ("records/*1.json", b'{"kind":"record","format":1,"check":1,"body":{}}'),
        ("records/*1.json", b"[]"),
        ("plans/*1.json", b"{"),
    ],
)
def test_a_file_that_cannot_be_believed_is_named_with_a_way_out(
    tmp_path: Path, name: str, damage: bytes
) -> None:
    with opened(tmp_path) as world:
        world.append({(5, "e"): 1})
    path = next(tmp_path.glob(name))
    path.write_bytes(damage)
    with pytest.raises(CorruptError, match=path.name) as refused:
        Store.open(tmp_path, "test", time.time)
    assert refused.value.hint


def test_one_changed_character_is_noticed(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.append({(5, "e"): 1})
    path = next((tmp_path / "plans").glob("*.json"))
    path.write_bytes(path.read_bytes().replace(b'"shop"', b'"shob"'))
    with pytest.raises(CorruptError):
        load_ledger(tmp_path)


def test_a_missing_number_is_noticed(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        for value in range(3):
            world.append({(value, "e"): 1})
    next((tmp_path / "plans").glob("*2.json")).unlink()
    with pytest.raises(CorruptError, match="numbers are missing"):
        load_ledger(tmp_path)


def test_a_lost_head_is_rebuilt_from_all_records(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.append({(5, "e"): 1})
    (tmp_path / "head.json").unlink()
    with Store.open(tmp_path, "test", time.time) as store:
        World(store, history=world.history).check()
        assert store.head == world.store.head


def test_a_newer_format_is_not_guessed_at(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    path = tmp_path / "head.json"
    path.write_bytes(path.read_bytes().replace(b'"format":2', b'"format":3'))
    with pytest.raises(WarehouseError, match="format 3"):
        read_head(tmp_path)


def test_a_file_that_differs_from_its_descriptor_is_never_committed(world: World) -> None:
    (file,) = world.files(
        folder_of(world.store),
        {(5, "e"): 1},
        2,
    )
    other = DataFile(file.path, file.size, 2, 1, 1, 1, 2, 2)
    missing = DataFile("b0-0-gone.parquet", 1, 1, 1, 1, 1, 2, 2)
    for wrong in (other, missing):
        with pytest.raises(CorruptError, match="not what its writer described"):
            world.store.commit([Advance(VIEW, 2, {"shop": 1}, (wrong,))])
    assert bag(read_state(world.store.local_root, world.view)) == world.expected(1)


def test_what_is_created_must_be_new_and_what_is_replaced_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    disk.create_new(path, b"first")
    with pytest.raises(FileExistsError):
        disk.create_new(path, b"second")
    disk.replace_file(path, b"third")
    assert path.read_bytes() == b"third"
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_at_the_lock_is_said_and_leaves_the_lock_free(tmp_path: Path) -> None:
    """Not even the holder's name could be written, where one that was killed has left its own."""
    for call in ("pwrite", "ftruncate"):
        (tmp_path / "lock").write_bytes(b"the long name of one that was killed".ljust(2000))
        with refusing(call, errno.ENOSPC), pytest.raises(WarehouseError) as refused:
            Store.open(tmp_path, "test", time.time)
        assert not isinstance(refused.value, LockedError)
        assert "the disk is full" in str(refused.value)
    Store.open(tmp_path, "next", time.time).close()


def test_a_lock_is_given_back_whatever_the_disk_says(tmp_path: Path) -> None:
    store = Store.open(tmp_path, "test", time.time)
    with refusing("pwrite", errno.EIO):
        store.close()
    Store.open(tmp_path, "next", time.time).close()
