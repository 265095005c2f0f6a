"""Hidden columns: readers see the projection of what is stored, the store keeps all of it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.warehouse.model import SCHEMA, VIEW, Row, World, bag, per_ts
from viewkeeper.warehouse.compact import compact_view
from viewkeeper.warehouse.lake.data_files import stored_schema
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.metadata.record import Create
from viewkeeper.warehouse.publish import publish_view
from viewkeeper.warehouse.rows.spark_frames import changes_frame, state_frame
from viewkeeper.warehouse.rows.view_state import (
    read_counted,
    read_state,
    read_stored,
    read_view_changes,
)
from viewkeeper.warehouse.store import Store

KEYED = pa.schema([*SCHEMA, pa.field("_key_0_id", pa.int64()), pa.field("a `.x`", pa.string())])
HIDDEN = ("_key_0_id", "a `.x`")


def projected(rows: Counter[Row]) -> Counter[Row]:
    """Only the columns that are shown, counts summed."""
    shown: Counter[Row] = Counter()
    for row, count in rows.items():
        shown[row[:2]] += count
    return shown


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[World]:
    """Two rows that differ only in what is hidden, and some history."""
    with Store.open(tmp_path / "warehouse", "test", time.time) as store:
        world = World(store, KEYED, hidden=HIDDEN)
        world.load({(1, "a", 1, "x"): 1, (1, "a", 2, "x"): 1, (2, None, 3, "y"): 1})
        world.append({(1, "a", 1, "x"): -1, (1, "a", 5, None): 1})
        world.append({(2, None, 3, "y"): -1, (4, "d", 4, "y"): 2})
        yield world


def check(world: World) -> None:
    root, view = world.store.root, read_head(world.store.root).require_view(VIEW)
    assert view == world.view
    assert (view.hidden, view.schema, view.shown_schema) == (HIDDEN, KEYED, SCHEMA)
    for ts in range(view.horizon, view.ts + 1):
        expected = world.expected(ts)
        assert read_state(root, view, ts).schema == SCHEMA
        assert bag(read_state(root, view, ts)) == projected(expected)
        found = read_counted(root, view, ts)
        assert found.num_rows == len(projected(expected)), "one row per tuple that is shown"
        assert {(r["k"], r["s"]): r["_count"] for r in found.to_pylist()} == projected(expected)
        inside = {
            tuple(r.values())[:4]: r["_count"] for r in read_stored(root, view, ts).to_pylist()
        }
        assert inside == expected, "what is stored is all there"
    assert bag(read_state(root, view)) == projected(world.expected(view.ts))
    assert view.rows == read_state(root, view).num_rows
    assert per_ts(read_view_changes(root, view, view.horizon)) == shown_moves(world)


def shown_moves(world: World) -> dict[int, dict[Row, int]]:
    """What moves among the shown columns; a key that changes hands is no change to see."""
    moved = {ts: projected(rows) for ts, rows in world.moved(world.view.horizon).items()}
    nonzero = {ts: {r: n for r, n in rows.items() if n} for ts, rows in moved.items()}
    return {ts: rows for ts, rows in nonzero.items() if rows}


def test_readers_see_the_projection_and_the_store_keeps_all(keyed: World) -> None:
    check(keyed)
    assert shown_moves(keyed).keys() == {3}, "ts 2 changed only what is hidden"
    merge_tail(keyed.store, VIEW)
    check(keyed)
    # Were hidden columns lost in merging, this would take the wrong row.
    keyed.append({(1, "a", 2, "x"): -1})
    check(keyed)
    assert read_view_changes(keyed.store.root, keyed.view, 0).schema == stored_schema(SCHEMA)


def test_a_view_without_a_shown_column_or_with_an_unknown_one_is_refused(keyed: World) -> None:
    for hidden in (tuple(KEYED.names), ("nothing",)):
        table = keyed.store.new_table("second")
        create = Create("second", table, "SELECT ...", KEYED, 1, {}, (), hidden=hidden)
        with pytest.raises(AssertionError, match="shows some of its columns"):
            keyed.store.commit([create])


def spark_agrees(world: World, spark: SparkSession, staging: Path) -> None:
    root, view = world.store.root, world.view
    for ts in range(view.horizon, view.ts + 1):
        shown = state_frame(spark, root, view, staging, ts).toArrow().cast(SCHEMA)
        assert bag(shown) == projected(world.expected(ts))
    newest = state_frame(spark, root, view, staging)
    assert newest.columns == SCHEMA.names
    assert bag(newest.toArrow()) == projected(world.expected(view.ts))
    moved = changes_frame(spark, root, view, staging, view.horizon).toArrow()
    assert moved.schema.names == stored_schema(SCHEMA).names
    assert per_ts(moved) == shown_moves(world)


def test_spark_reads_compacts_and_publishes_the_projection(
    spark: SparkSession, keyed: World, tmp_path: Path
) -> None:
    staging, chance = tmp_path / "staging", random.Random(3)
    spark_agrees(keyed, spark, staging)
    for horizon in (2, 3, 5):
        compact_view(keyed.store, spark, VIEW, horizon)
        check(keyed)
        spark_agrees(keyed, spark, staging)
        key = chance.choice(sorted(row[2] for row in keyed.expected(keyed.view.ts)))
        gone = {row: -n for row, n in keyed.expected(keyed.view.ts).items() if row[2] == key}
        keyed.append({**gone, (1, "a", key, "new"): 1})
        keyed.append({(1, "a", 10 + horizon, "x"): 1})
    publish_view(keyed.store, spark, VIEW)
    table = DeltaTable(str(keyed.store.root / "published" / VIEW))
    found = pq.read_table(table.file_uris())
    assert found.schema.names == SCHEMA.names
    assert bag(found) == projected(keyed.expected(keyed.view.ts))


def test_a_body_with_repeated_tuples_is_shown_alike(spark: SparkSession, tmp_path: Path) -> None:
    with Store.open(tmp_path / "warehouse", "test", time.time) as store:
        world = World(store, KEYED, hidden=HIDDEN)
        world.load({(1, "a", 1, "x"): 2, (1, "a", 2, "x"): 1}, distinct=False)
        world.append({(1, "a", 2, "x"): -1})
        spark_agrees(world, spark, tmp_path / "staging")
