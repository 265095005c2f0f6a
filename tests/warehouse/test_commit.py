"""What a record means: views become visible together, and only what changes is written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.warehouse.model import SCHEMA, VIEW, World, bag, folder_of, signed, world
from viewkeeper.warehouse.lake.data_files import stored_schema, write_rows, write_stream
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.metadata.plan_files import (
    BatchPlan,
    Ledger,
    LedgerEntry,
    load_ledger,
    load_plans,
    load_records,
    read_commits,
)
from viewkeeper.warehouse.metadata.record import Advance, Create, Resume, Stop, ViewChange
from viewkeeper.warehouse.retention import clean_warehouse
from viewkeeper.warehouse.rows.view_state import files_until, read_state

__all__ = ["world"]


def test_views_of_one_record_become_visible_together(world: World) -> None:
    store = world.store
    table = store.new_table("second")
    store.commit([Create("second", table, "SELECT ...", SCHEMA, 1, {"shop": 0}, ())])
    files = [world.files(folder_of(store, view), {(8, view): 1}, 2) for view in (VIEW, "second")]
    seen = []
    records: tuple[list[ViewChange], ...] = (
        [Advance(VIEW, 2, {"shop": 1}, files[0]), Advance("second", 2, {"shop": 1}, files[1])],
        [Stop("second", "division by zero")],
        [Resume("second"), Advance(VIEW, 3, {"shop": 2})],
    )
    for change in records:
        store.commit(change)
        head = read_head(store.local_root)
        seen.append([(v.ts, v.rows, v.stopped) for v in head.views.values()])
    assert seen == [
        [(2, 5, None), (2, 1, None)],
        [(2, 5, None), (2, 1, "division by zero")],
        [(3, 5, None), (2, 1, None)],
    ]


def test_an_advance_without_rows_makes_no_table_version(world: World) -> None:
    before = world.view.location
    world.append({})
    assert (world.view.location, world.view.ts) == (before, 2)
    world.check()


def test_a_view_can_be_replaced_by_another_of_its_name(world: World) -> None:
    schema = pa.schema({"n": pa.int32()})
    old, table = world.view.table, world.store.new_table(VIEW)
    rows = signed(schema, {(1,): 1}, 5)
    file = write_rows(world.store.local_root.joinpath("views", table), schema, rows, 9, 0)
    world.store.commit(
        [Create(VIEW, table, "SELECT 1", schema, 5, {"shop": 4}, (file,), True, replaces=old)]
    )
    assert bag(read_state(world.store.local_root, world.view)) == {(1,): 1}
    assert world.store.local_root.joinpath("views", old).exists()
    clean_warehouse(world.store, retention_s=-1)
    assert not world.store.local_root.joinpath("views", old).exists()


def test_merging_leaves_one_small_file_and_a_checkpoint(world: World) -> None:
    for value in range(5):
        world.append({(value, "m"): 1})
    merge_tail(world.store, VIEW)
    assert world.view.files == 2
    assert world.view.location.checkpoint == world.view.location.version
    pruned = files_until(world.store.local_root, world.view, 1)
    assert [file.ts_max for file in pruned] == [1], "files are pruned by their ts"
    merge_tail(world.store, VIEW)
    assert world.view.location.checkpoint == world.view.location.version
    world.check()


def test_cleaning_deletes_only_after_the_retention_and_folds(world: World) -> None:
    for value in range(5):
        world.append({(value, "m"): 1})
    merge_tail(world.store, VIEW)
    folder = folder_of(world.store)
    before, history = load_ledger(world.store.local_root), read_commits(world.store.local_root)
    clean_warehouse(world.store, retention_s=60, fold_at_least=100)
    assert len(list(folder.glob("*.parquet"))) == 7
    clean_warehouse(world.store, retention_s=-1, fold_at_least=3)
    assert len(list(folder.glob("*.parquet"))) == 2
    assert load_plans(world.store.local_root)[1:] == (5, [])
    assert load_records(world.store.local_root) == (7, [])
    after = load_ledger(world.store.local_root)
    for ts in range(1, 7):
        assert after.position_at("shop", ts) == before.position_at("shop", ts)
    assert after.next_ts == before.next_ts
    kept = read_commits(world.store.local_root).to_pylist()
    assert kept == [line for line in history.to_pylist() if line["kind"] != "rewrite"]
    log = sorted(path.name for path in (folder / "_delta_log").iterdir())
    assert log == ["00000000000000000007.checkpoint.parquet", "00000000000000000007.json",
                   "_last_checkpoint"]  # fmt: skip
    world.append({(9, "z"): 1})
    world.check()


def test_the_ledger_keeps_what_its_window_needs() -> None:
    a = [LedgerEntry(ts, "a", ts * 10, ts * 10 + 10, 0.0, 1) for ts in (1, 3, 5)]
    b = [LedgerEntry(2, "b", 7, 8, 0.0, 1)]
    ledger = Ledger(sorted(a + b, key=lambda entry: entry.ts))
    assert ledger.positions_at({"a": 60, "b": 8, "c": 4}, 4) == {"a": 40, "b": 8, "c": 4}
    assert ledger.position_at("a", 0) == 10
    folded = Ledger(ledger.entries_since(4))
    assert [entry.ts for entry in folded.entries] == [2, 3, 5]
    assert folded.positions_at({"a": 60, "b": 8}, 4) == {"a": 40, "b": 8}


def test_a_plan_is_replayed_before_another_is_formed(world: World) -> None:
    plan = world.plan()
    assert world.store.pending_plan() == plan
    with pytest.raises(AssertionError, match="open plan comes first"):
        world.store.write_plan(BatchPlan(plan.n + 1, ()))
    merge_tail(world.store, VIEW)
    world.store.commit([Stop(VIEW, "while a plan is open")])
    assert world.store.pending_plan() == plan
    world.append({(4, "d"): 1})
    assert world.store.pending_plan() is None


def test_a_stream_is_written_in_files_of_a_size(tmp_path: Path) -> None:
    rows = signed(SCHEMA, {(value, "x"): 1 for value in range(1050)}, 1)
    stored = stored_schema(SCHEMA)
    files = list(write_stream(tmp_path, stored, rows.to_batches(64), 1, 3, rows_per_file=400))
    assert [file.rows for file in files] == [400, 400, 250]
    assert all(file.path.startswith(f"b{1:020d}-3-") for file in files)
    assert list(write_stream(tmp_path, stored, [], 1, 4)) == []


def test_rows_of_another_shape_are_our_own_mistake(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="are not"):
        write_rows(tmp_path, SCHEMA, pa.table({"k": [1]}), 1, 0)
    wrong = pa.table({"k": ["one"], "s": ["x"], "_count": [1], "_ts": [1]})
    with pytest.raises(pa.ArrowInvalid):
        write_rows(tmp_path, SCHEMA, wrong, 1, 0)
    assert not list(tmp_path.iterdir())
