"""Views of a parent that change their shape, or the warehouse behind them: told, never guessed."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.registry.parents import SCHEMA, BuiltParent, child_of
from viewkeeper.engine.operations.doctor import examine_children
from viewkeeper.errors import BrokenQueryError, GapError, SchemaError, SourceAwayError
from viewkeeper.storage import stored_files
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.updates.source_protocol import Boundary, names_now_of
from viewkeeper.upstream import leases
from viewkeeper.upstream.leases import Lease
from viewkeeper.upstream.source import WarehouseSource
from viewkeeper.view.definition import Relation
from viewkeeper.warehouse.metadata.record import Drop, Rewrite
from viewkeeper.warehouse.store import Store

TABLES = {"lines": ["k", "name"]}
WIDER = pa.schema([*SCHEMA, pa.field("extra", pa.string())])
NARROW = pa.schema([pa.field("k", pa.int64())])
OTHER: dict[str, pa.DataType] = {"k": pa.decimal128(20, 0), "name": pa.binary()}
TYPED = pa.schema(OTHER)


def told(boundaries: tuple[Boundary, ...]) -> dict[int, tuple[SchemaChange, ...]]:
    return {b.position: b.reshaped for b in boundaries if b.reshaped}


def scan(source: WarehouseSource, at: int, columns: list[str], handle: str = "lines") -> int:
    with source.prepare_snapshots(at, {handle: columns}) as opener:
        found = opener().scan_relation(Relation("sales", handle), columns, at)
        return sum(batch.num_rows for batch in found.batches)


def test_a_column_that_went_is_told_with_the_next_transaction_and_again_after_a_restart(
    parent: BuiltParent, child: WarehouseSource, tmp_path: Path
) -> None:
    at = child.follow_tables(TABLES)
    parent.redefine("lines", NARROW)
    assert child.look_for_transactions(at) == ()
    with pytest.raises(SourceAwayError, match="column name is gone"):
        scan(child, at, ["k", "name"])
    parent.commit({"lines": {at + 1: {(5,): 1}}}, 2)
    with pytest.raises(BrokenQueryError, match="column name is gone"):
        scan(child, at, ["k", "name"])
    drop = {at + 1: (SchemaChange("drop_column", "lines", "name"),)}
    assert told(child.look_for_transactions(at)) == drop
    assert told(child.look_for_transactions(at)) == drop, "whoever asks again gets the same"
    again = child_of(parent, tmp_path / "reports")
    parent.commit({"lines": {}})
    assert told(again.look_for_transactions(at)) == drop
    assert told(again.look_for_transactions(at + 1)) == {}, "it is told once"
    became = names_now_of(again, "lines")
    assert became is not None
    assert (became.table, dict(became.columns)) == ("lines", {"k": "k"})
    assert again.handle_of("lines") == "lines#2"
    assert scan(again, at + 2, ["k"]) == 4
    assert scan(again, at, ["k"]) == 3, "the past is read without it"


def test_a_column_that_came_is_null_before_and_keeps_values(
    parent: BuiltParent, child: WarehouseSource
) -> None:
    at = child.follow_tables(TABLES)
    parent.redefine("lines", WIDER)
    parent.commit({"lines": {at + 1: {(1, "a", None): -1, (1, "a", "new"): 1}}})
    [change] = told(child.look_for_transactions(at))[at + 1]
    assert change == SchemaChange("add_column", "lines", "extra")
    assert change.keeps_values
    assert child.handle_of("lines") == "lines"
    child.follow_tables({"lines": ["k", "name", "extra"]})
    rows = [b.to_pylist() for _, b in child.read_changes({"lines": ["k", "extra"]}, at, at + 1)]
    assert [(r["k"], r["extra"], r["_count"]) for r in rows[0]] in (
        [(1, None, -1), (1, "new", 1)],
        [(1, "new", 1), (1, None, -1)],
    )
    assert scan(child, at, ["extra"]) == 3


def test_types_that_changed_are_told_wider_ones_keep_values(
    parent: BuiltParent, child: WarehouseSource
) -> None:
    at = child.follow_tables(TABLES)
    parent.redefine("lines", TYPED)
    parent.commit({"lines": {}})
    widened, retyped = told(child.look_for_transactions(at))[at + 1]
    assert widened == SchemaChange("widen_type", "lines", "k", "decimal128(20, 0)")
    assert retyped.kind == "change_type"
    assert scan(child, at, ["k"]) == 3
    parent.commit({"lines": {}})
    with pytest.raises(BrokenQueryError):
        list(child.read_changes(TABLES, at, at + 1))
    assert child.handle_of("lines") == "lines#2"


def test_a_column_that_went_and_another_that_is_called_so_is_not_the_same(
    parent: BuiltParent, child: WarehouseSource
) -> None:
    at = child.follow_tables(TABLES)
    parent.redefine("lines", NARROW)
    parent.redefine("lines", SCHEMA)
    parent.commit({"lines": {}})
    changes = told(child.look_for_transactions(at))[at + 1]
    assert [c.kind for c in changes] == ["drop_column", "add_column"]
    assert [field.name for field in child.describe_table("lines").fields] == ["k"]
    assert child.handle_of("lines") == "lines#2"
    assert [field.name for field in child.describe_table("lines#2").fields] == ["k", "name"]


def test_a_view_that_was_loaded_again_is_another_table(
    parent: BuiltParent, child: WarehouseSource
) -> None:
    at = child.follow_tables(TABLES)
    parent.commit({"lines": {}})
    parent.create("lines", {(9, "new"): 1})
    parent.commit({"lines": {}})
    with pytest.raises(BrokenQueryError, match="loaded again"):
        scan(child, at, ["k"])
    recreated = SchemaChange("recreate_table", "lines")
    assert told(child.look_for_transactions(at)) == {at + 1: (recreated,)}, (
        "as of then the new one can be read"
    )
    assert names_now_of(child, "lines") is None
    with pytest.raises(SchemaError, match="loaded again"):
        child.describe_table("lines")
    handle = child.handle_of("lines")
    assert handle == "lines#2"
    child.follow_tables({handle: ["k"]})
    assert scan(child, at + 1, ["k"], handle) == 1
    assert told(child.look_for_transactions(at + 1)) == {}


def test_a_view_that_was_dropped_is_told_with_the_next_transaction(
    parent: BuiltParent, child: WarehouseSource
) -> None:
    parent.create("other", {(1, "o"): 1})
    at = child.follow_tables({**TABLES, "other": ["k"]})
    table = parent.store.head.views["lines"].table
    parent.store.commit([Drop("lines", table)])
    assert child.look_for_transactions(at) == ()
    assert any('"lines" is not there' in warning for warning in child.read_health([at]).warnings)
    parent.commit({"other": {}})
    assert told(child.look_for_transactions(at)) == {at + 1: (SchemaChange("drop_table", "lines"),)}
    assert names_now_of(child, "lines") is None


def test_another_warehouse_in_its_place_is_a_gap_and_following_begins_anew(
    parent: BuiltParent, child: WarehouseSource, tmp_path: Path
) -> None:
    at = child.follow_tables(TABLES)
    (parent.root / "identity").write_text("another")
    again = child_of(parent, tmp_path / "reports")
    with pytest.raises(GapError, match="not the one that was left"):
        again.look_for_transactions(at)
    assert again.follow_tables(TABLES) == at
    assert again.look_for_transactions(at) == ()


def test_a_parent_restored_from_a_backup_that_went_on_is_a_gap(
    parent: BuiltParent, child: WarehouseSource, tmp_path: Path
) -> None:
    at = child.follow_tables(TABLES)
    backup = tmp_path / "backup"
    parent.close()
    shutil.copytree(parent.root, backup)
    parent.store = Store.open(parent.root, "test", time.time)
    parent.commit({"lines": {}}, 2)
    child.look_for_transactions(at)
    child.acknowledge_position(at + 2)
    parent.close()
    shutil.rmtree(parent.root)
    shutil.copytree(backup, parent.root)
    parent.store = Store.open(parent.root, "test", time.time)
    with pytest.raises(GapError, match="not the one that was left"):
        child.look_for_transactions(at + 2)
    parent.states["lines"] = {at: parent.states["lines"][at]}
    parent.commit({"lines": {}}, 1)
    parent.commit({"lines": {}}, 3)
    body = json.loads((tmp_path / "reports" / "home" / "parent.json").read_text())["body"]
    assert body["ts"] == at + 2
    body["transaction"] = "shop 2 3 7.0"
    (tmp_path / "reports" / "home" / "parent.json").write_text(json.dumps(body))
    with pytest.raises(GapError, match="another history"):
        child_of(parent, tmp_path / "reports").look_for_transactions(at + 2)


def test_a_folder_that_is_missing_is_away_and_comes_back(
    parent: BuiltParent, child: WarehouseSource, tmp_path: Path
) -> None:
    at = child.follow_tables(TABLES)
    parent.commit({"lines": {}})
    parent.close()
    away = tmp_path / "elsewhere"
    parent.folder.rename(away)
    for call in (
        lambda: child.look_for_transactions(at),
        lambda: child.read_health([at]),
        lambda: scan(child, at, ["k"]),
    ):
        with pytest.raises(SourceAwayError):
            call()
    away.rename(parent.folder)
    assert [b.position for b in child.look_for_transactions(at)] == [at + 1]
    head = parent.root / "head.json"
    good = head.read_bytes()
    head.write_bytes(good[:-20])
    with pytest.raises(SourceAwayError, match="cannot be read"):
        child.look_for_transactions(at)
    head.write_bytes(good)
    assert [b.position for b in child.look_for_transactions(at)] == [at + 1]


def test_leases_move_end_and_are_held_beside(parent: BuiltParent, child: WarehouseSource) -> None:
    root, now = parent.root, time.time()
    at = child.follow_tables(TABLES)
    parent.commit({"lines": {}}, 3)
    child.look_for_transactions(at)
    child.begin_hold("verify:1", 60)
    child.acknowledge_position(at + 2)
    found = {lease.ts: lease.until for lease in leases.active_leases(root, now)}
    assert found.keys() == {at, at + 2}
    assert found[at + 2] is None
    assert leases.find_oldest_ts(root, now) == at
    assert leases.find_oldest_ts(root, now + 3600) == at + 2, "a hold ends by itself"
    child.end_hold("verify:1")
    assert leases.find_oldest_ts(root, now) == at + 2
    child.acknowledge_position(at + 1)
    assert leases.find_oldest_ts(root, now) == at + 2, "a lease never goes back"
    health = child.read_health([at + 2])
    assert (health.followed, health.position, health.retained) == (True, at + 3, 1)
    assert [(r.ours, r.position) for r in health.readers] == [(True, at + 2)]
    leases.take_lease(root, Lease("someone", 1, "/elsewhere"))
    done = child.detach_source()
    assert (done.was_following, done.capture_dropped) == (True, False)
    assert done.other_readers == ("/elsewhere",)
    assert leases.find_oldest_ts(root, now) == 1
    assert child.detach_source(force=True).capture_dropped
    assert leases.find_oldest_ts(root, now) is None


def test_a_parent_that_is_gone_is_not_made_again_by_a_lease(
    parent: BuiltParent, child: WarehouseSource
) -> None:
    at = child.follow_tables(TABLES)
    parent.close()
    shutil.rmtree(parent.folder)
    with pytest.raises(SourceAwayError):
        child.acknowledge_position(at + 1)
    with pytest.raises(SourceAwayError):
        child.begin_hold("verify", 5)
    assert not parent.folder.exists()
    assert child.detach_source(force=True).was_following


def test_the_parent_says_who_keeps_its_past_and_which_file_to_remove(
    parent: BuiltParent, child: WarehouseSource
) -> None:
    head = parent.store.head
    [finding] = examine_children(parent.root, head, time.time()).findings
    assert "no other project" in finding.text
    at = child.follow_tables(TABLES)
    parent.commit({"lines": {}}, 2)
    head, file = parent.store.head, leases.lease_file_of(parent.root, "reader")
    [finding] = examine_children(parent.root, head, time.time()).findings
    assert (finding.state, finding.mend) == ("good", None)
    assert f"from ts {at} on" in finding.text
    assert str(child.project) in finding.text
    [finding] = examine_children(parent.root, head, time.time() + 2 * 86400).findings
    assert finding.state == "warning"
    assert str(file) in str(finding.mend)
    stored_files.remove_file(file)
    child.look_for_transactions(at)
    child.acknowledge_position(at + 1)
    assert leases.find_oldest_ts(parent.root, time.time()) == at + 1, (
        "one that goes on takes it again"
    )


def test_a_lease_that_cannot_be_read_keeps_everything(parent: BuiltParent) -> None:
    leases.take_lease(parent.root, Lease("one", 5))
    stored_files.replace_file(leases.lease_file_of(parent.root, "two"), b"{")
    assert leases.find_oldest_ts(parent.root, time.time()) == 0


def test_a_past_that_is_folded_in_spite_of_us_is_a_gap(
    parent: BuiltParent, child: WarehouseSource
) -> None:
    at = child.follow_tables(TABLES)
    parent.commit({"lines": {}}, 3)
    parent.store.commit([Rewrite("lines", (), (), at + 2)])
    for call in (
        lambda: child.look_for_transactions(at),
        lambda: scan(child, at, ["k"]),
        lambda: list(child.read_changes(TABLES, at, at + 3)),
    ):
        with pytest.raises(GapError, match="no longer keeps"):
            call()
    assert scan(child, at + 2, ["k"]) == 3


def test_a_view_that_is_not_loaded_yet_is_waited_for(
    parent: BuiltParent, child: WarehouseSource
) -> None:
    (parent.folder / "views").mkdir()
    sql = "CREATE MATERIALIZED VIEW late AS SELECT id FROM shop.t;"
    (parent.folder / "views" / "late.sql").write_text(sql)
    with pytest.raises(SourceAwayError, match='its view "late" is not loaded yet'):
        child.handle_of("late")
    with pytest.raises(SchemaError, match='no view "later"'):
        child.handle_of("later")


def test_what_is_asked_for_and_is_not_there_is_named(
    child: WarehouseSource,
) -> None:
    with pytest.raises(SchemaError, match='no view "line"') as raised:
        child.handle_of("line")
    assert 'did you mean "lines"' in str(raised.value)
    with pytest.raises(SchemaError, match='no column "nam"'):
        child.follow_tables({"lines": ["nam"]})
