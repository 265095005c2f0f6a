"""Small commits by the journal: seen at once, in tables after a flush, refused without harm."""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.warehouse.journal_world import data_files, lake_rows, segments
from tests.warehouse.model import LOADED, VIEW, Row, World, opened
from viewkeeper.errors import WarehouseError
from viewkeeper.storage import sealed_json
from viewkeeper.storage.journal_file import PAGE
from viewkeeper.warehouse import group_commit
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import NAME, read_flushed_head, read_head
from viewkeeper.warehouse.metadata.plan_files import load_ledger, load_records, read_commits
from viewkeeper.warehouse.metadata.record import Drop, Resume, Stop
from viewkeeper.warehouse.retention import clean_warehouse
from viewkeeper.warehouse.rows.lookup import find_rows
from viewkeeper.warehouse.store import Store

CHANGE: dict[Row, int] = {(1, "a"): -1, (7, "new"): 3}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened(tmp_path / "warehouse") as made:
        made.store.group.begin(nullcontext)
        yield made


def test_a_small_commit_is_seen_at_once_and_makes_no_file(world: World) -> None:
    before = data_files(world)
    world.append(CHANGE)
    world.append({(8, "x"): 1})
    world.check()
    assert data_files(world) == before
    assert read_flushed_head(world.store.local_root).record == 1
    assert len(segments(world)) == 1
    assert load_ledger(world.store.local_root).next_ts == world.store.ledger.next_ts
    assert [record.n for record in load_records(world.store.local_root)[1]] == [1, 2, 3]
    assert read_commits(world.store.local_root)["ts"].to_pylist() == [LOADED, 2, 3]


def test_a_record_may_have_the_rows_of_any_number_of_tables(world: World) -> None:
    """What views that failed have left is gone with the record."""
    ts = world.plan().entries[-1].ts
    kept = [file for _ in range(1_500) for file in world.kept(CHANGE, ts)]
    assert all(world.store.group.held_rows(file.path).num_rows == len(CHANGE) for file in kept)
    world.append(CHANGE)
    world.append({(8, "x"): 1})
    world.check()
    for file in kept:
        with pytest.raises(KeyError):
            world.store.group.held_rows(file.path)


def test_tables_follow_with_one_file_for_many_commits(world: World) -> None:
    before = len(data_files(world))
    for value in range(20):
        world.append({(value, "t"): 1})
    assert lake_rows(world) == world.expected(LOADED)
    world.store.group.flush_tables()
    assert len(data_files(world)) == before + 1
    assert lake_rows(world) == world.expected(world.view.ts)
    world.check()
    assert read_flushed_head(world.store.local_root).record == 21
    world.store.group.flush_tables()
    assert len(data_files(world)) == before + 1, "nothing was left to flush"
    assert len(list((world.store.local_root / "plans").glob("*.json"))) == 1
    assert len(list((world.store.local_root / "records").glob("*.json"))) == 2


def test_closing_flushes_and_leaves_no_journal(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.store.group.begin(nullcontext)
        world.append(CHANGE)
        world.append({})
    assert segments(world) == []
    assert read_flushed_head(tmp_path) == read_head(tmp_path)
    with Store.open(tmp_path, "test", time.time) as store:
        revived = World(store, history=world.history)
        revived.check()
        assert lake_rows(revived) == revived.expected(revived.view.ts)


def test_one_append_and_one_sync_per_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.append(CHANGE)
    calls: Counter[str] = Counter()
    for name in ("fsync", "fdatasync", "link", "replace", "unlink", "mkdir"):
        real = getattr(os, name)

        def counted(*args: Any, _real: Any = real, _name: str = name, **options: Any) -> Any:
            calls[_name] += 1
            return _real(*args, **options)

        monkeypatch.setattr(os, name, counted)
    world.append({(8, "x"): 1})
    assert calls == {"fdatasync": 1}


def test_a_plan_that_others_may_see_is_durable_before_its_work(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as world:
        world.store.group.begin(nullcontext, plans_first=True)
        plan = world.plan()
        world.store.abandon_store()
    with Store.open(tmp_path / "a", "test", time.time) as store:
        assert store.pending_plan() == plan
        World(store, history=world.history).append(CHANGE)


def test_a_plan_without_a_record_was_never_formed(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as world:
        world.store.group.begin(nullcontext)
        world.append({})
        world.plan()
        world.store.abandon_store()
    with Store.open(tmp_path / "a", "test", time.time) as store:
        assert store.pending_plan() is None
        assert store.ledger.next_ts == 3
        revived = World(store, history=world.history)
        revived.append(CHANGE)
        revived.check()


def test_a_plan_goes_before_any_record(world: World) -> None:
    plan = world.plan()
    world.store.commit([Stop(VIEW, "wait")])
    assert load_ledger(world.store.local_root).next_ts == plan.entries[-1].ts + 1
    world.store.group.flush_tables()
    assert load_ledger(world.store.local_root).next_ts == plan.entries[-1].ts + 1
    clean_warehouse(world.store, retention_s=-1, fold_at_least=1)
    world.append(CHANGE)
    world.store.commit([Resume(VIEW)])
    world.check()


def test_whatever_is_not_small_is_preceded_by_a_flush(world: World) -> None:
    world.append({(8, "x"): 1})
    world.append({(n, "many"): 1 for n in range(group_commit.UNFLUSHED_ROWS + 1)})
    assert read_flushed_head(world.store.local_root).record == world.store.head.record == 3
    world.check()
    for value in range(3):
        world.append({(value, "y"): 1})
    merge_tail(world.store, VIEW)
    world.check()
    world.append(CHANGE)
    world.store.commit([Drop(VIEW, world.view.table)])
    assert read_head(world.store.local_root).views == {}


def test_a_commit_waits_for_a_flush_when_there_is_too_much(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "UNFLUSHED_ROWS", 10)
    for value in range(30):
        world.append({(value, "t"): 1})
        assert sum(piece.file.rows for piece in world.view.unflushed) < 10
    world.check()


def test_a_commit_whose_flush_fails_is_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise WarehouseError("the disk is full")

    monkeypatch.setattr(group_commit, "UNFLUSHED_ROWS", 2)
    world.store.group.write_before_flush(refuse)
    world.append(CHANGE)
    world.check()
    with pytest.raises(WarehouseError, match="an earlier commit was interrupted") as refused:
        world.append({(8, "x"): 1})
    assert "the disk is full" in (refused.value.detail or "")
    world.store.abandon_store()
    with Store.open(world.store.local_root, "test", time.time) as store:
        assert store.head.record == 2
        World(store, history=world.history).check()


def test_what_a_commit_takes_along_is_there_until_it_is_written(tmp_path: Path) -> None:
    written: list[int] = []
    with opened(tmp_path) as world:
        world.store.group.begin(nullcontext)
        world.store.group.write_before_flush(lambda: written.append(world.store.head.record))
        world.store.commit([Stop(VIEW, "one")], kept=[b"first"])
        world.store.group.flush_tables()
        assert written == [2]
        world.store.commit([Stop(VIEW, "two")], kept=[b"second", b""])
        world.store.commit([Resume(VIEW)])
        world.store.commit([Stop(VIEW, "three")], kept=[b"third"])
        world.store.abandon_store()
    for _ in range(2):
        # Nobody takes it at first.
        with Store.open(tmp_path, "test", time.time) as store:
            assert store.head.record == 5
    with Store.open(tmp_path, "test", time.time) as store:
        with store.group.left_changes() as left:
            assert left == [b"second", b"", b"third"]
        with store.group.left_changes() as left:
            assert left == []


def test_a_new_segment_begins_when_one_is_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "SEGMENT_END", PAGE + 5_000)
    names = set()
    for value in range(40):
        world.append({(value, "t"): 1})
        if value % 3 == 0:
            world.store.group.flush_tables()
        names |= {path.name for path in segments(world)}
        assert len(segments(world)) == 1
    assert len(names) > 3
    world.check()


def test_rows_in_the_journal_are_found_by_key(world: World) -> None:
    world.append({(8, "x"): 1, (9, None): 2})
    found = find_rows(world.store.local_root, world.view, [{"k": pa.array([8, 1])}])
    assert {(row["k"], row["s"]): row["_count"] for row in found.to_pylist()} == {
        (1, "a"): 1,
        (8, "x"): 1,
    }


def test_an_older_program_refuses_with_the_way_out(world: World) -> None:
    world.append(CHANGE)
    path = world.store.local_root / NAME
    with pytest.raises(WarehouseError, match="a head of format 2, this program knows 1"):
        sealed_json.unseal_file(path, "head", "")


def test_a_full_disk_costs_one_attempt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.append(CHANGE)
    real = os.pwrite

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if offset < PAGE:
            return real(descriptor, data, offset)
        real(descriptor, data[: len(data) // 2], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    plan = world.plan()
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(WarehouseError, match="disk is full"):
            world.append({(8, "x"): 1})
    assert world.store.pending_plan() == plan
    world.append({(8, "x"): 1})
    world.check()


@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_after_a_failed_sync_nothing_more_is_committed(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as world:
        world.store.group.begin(nullcontext)
        world.append({(5, "e"): 1})

        def refuse(_: Any) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(os, call, refuse)
            with pytest.raises(WarehouseError, match="cannot"):
                world.append(
                    {(8, "x"): 1}
                ) if call == "fdatasync" else world.store.group.flush_tables()
        with pytest.raises(WarehouseError, match="interrupted"):
            world.store.commit([Stop(VIEW, "x")])
        with pytest.raises(WarehouseError, match="interrupted"):
            world.store.group.end()
        world.store.abandon_store()
    with Store.open(tmp_path, "test", time.time) as store:
        revived = World(store, history=world.history)
        if revived.view.ts > world.history[-1][0]:
            revived.history = [*world.history, (revived.view.ts, Counter({(8, "x"): 1}))]
        revived.check()


def test_who_lost_the_lock_shows_and_acknowledges_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append(CHANGE)
    root, real = world.store.local_root, os.fdatasync
    history = list(world.history)

    def taken_over(descriptor: int) -> None:
        real(descriptor)
        monkeypatch.setattr(os, "fdatasync", real)
        (root / "lock").unlink()
        with Store.open(root, "another", time.time) as store:
            other = World(store, history=history)
            taken.append(other.view.ts)
            if other.view.ts > history[-1][0]:
                history.append((other.view.ts, Counter({(8, "x"): 1})))
            other.append({(9, "z"): 1})
            other.check()

    taken: list[int] = []
    monkeypatch.setattr(os, "fdatasync", taken_over)
    with pytest.raises(WarehouseError, match="another process has taken it over"):
        world.append({(8, "x"): 1})
    with pytest.raises(WarehouseError):
        world.store.group.flush_tables()
    world.store.abandon_store()
    with Store.open(root, "third", time.time) as store:
        World(store, history=history).check()
    assert taken


def test_a_zombie_that_writes_late_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between the question for its lock and its write, for as long as others go on."""
    world.append(CHANGE)
    root, real = world.store.local_root, os.pwrite
    history = list(world.history)

    def late(descriptor: int, data: bytes, offset: int) -> int:
        monkeypatch.setattr(os, "pwrite", real)
        (root / "lock").unlink()
        with Store.open(root, "another", time.time) as store:
            store.group.begin(nullcontext)
            other = World(store, history=history)
            other.append({(9, "z"): 1})
            other.check()
            written = real(descriptor, data, offset)
            other.append({(10, "z"): 1})
            other.check()
        return written

    monkeypatch.setattr(os, "pwrite", late)
    with pytest.raises(WarehouseError, match="another process has taken it over"):
        world.append({(8, "x"): 1})
    world.store.abandon_store()
    with Store.open(root, "third", time.time) as store:
        World(store, history=history).check()
