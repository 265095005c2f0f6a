"""A view's definition changes: stored rows are right as they are, under other columns, or repaired.

Columns are dropped (counts fold), added (NULL) and widened without touching a file; a difference
repairs the rest in the same record. Every state of the window stays readable, by Arrow, by Spark
and by the `deltalake` library, and a death at any moment leaves the old definition or the new.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.warehouse.faults import Death, deaths, dying_at
from tests.warehouse.model import SCHEMA, VIEW, Row, World, bag, folder_of, opened, signed, world
from viewkeeper.updates.view_actions import DeleteKeys
from viewkeeper.warehouse.compact import compact_view
from viewkeeper.warehouse.lake.data_files import write_rows
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.definition_version import DefinitionTable, DefinitionVersion
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.metadata.record import Redefine
from viewkeeper.warehouse.rows.spark_frames import state_frame
from viewkeeper.warehouse.rows.stored_actions import evaluate_actions as acted
from viewkeeper.warehouse.rows.stored_actions import write_negation
from viewkeeper.warehouse.rows.view_state import read_state
from viewkeeper.warehouse.store import Store

__all__ = ["world"]

COLUMNS: dict[str, pa.DataType] = {"k": pa.decimal128(22, 2), "s": pa.string()}
WIDE = pa.schema(COLUMNS)
NARROW = pa.schema([("s", pa.string())])
LONGER = pa.schema([*SCHEMA, ("extra", pa.int64())])


def version(schema: pa.Schema, ts: int) -> DefinitionVersion:
    bound = DefinitionTable("shop", "orders", "orders#2", pa.schema([("id", pa.int64())]))
    return DefinitionVersion(
        "SELECT ...", (bound,), tuple(schema.names), ts, 7.5, ("renamed",), "superset"
    )


def redefine(made: World, schema: pa.Schema, rows: dict[Row, int] | None = None) -> None:
    """Give the view another schema, and repair it by signed rows as of the next ts if given."""
    view = made.view
    if not rows:
        change = Redefine(VIEW, "new", version(schema, view.ts), schema, view.ts, view.positions)
        made.store.commit([change])
        return
    plan = made.plan()
    ts = plan.entries[-1].ts
    number = made.store.head.record + 1
    file = write_rows(
        folder_of(made.store),
        schema,
        signed(schema, rows, ts),
        number,
        0,
    )
    positions = {"shop": ts - 1}
    change = Redefine(VIEW, "new", version(schema, ts), schema, ts, positions, (file,))
    made.store.commit([change], plan.n)


def test_a_dropped_column_folds_counts(world: World) -> None:
    world.append({(9, "a"): 1, (1, "a"): 1})
    redefine(world, NARROW)
    view = read_head(world.store.local_root).require_view(VIEW)
    assert (view.definition, view.versions[-1].text) == ("new", "SELECT ...")
    assert view.versions[-1] == version(NARROW, view.ts)
    assert bag(read_state(world.store.local_root, view)) == Counter(
        {("a",): 3, (None,): 2, ("",): 1}
    )
    before = bag(read_state(world.store.local_root, view, view.ts - 1))
    assert before == Counter({("a",): 1, (None,): 2, ("",): 1})


def test_an_added_column_is_null_and_a_wider_type_holds_the_old_values(world: World) -> None:
    redefine(world, LONGER)
    assert bag(read_state(world.store.local_root, world.view))[(1, "a", None)] == 1
    redefine(world, WIDE, {(Decimal("1.25"), "a"): 1, (Decimal("1.00"), "a"): -1})
    expected = Counter({(Decimal("1.25"), "a"): 1, (Decimal(2), None): 2, (Decimal(3), ""): 1})
    assert bag(read_state(world.store.local_root, world.view)) == expected


def test_merging_folding_emptying_and_deleting_by_key_see_the_columns_of_now(
    world: World, spark: SparkSession, tmp_path: Path
) -> None:
    world.append({(4, "d"): 1})
    world.append({(5, "d"): 2})
    redefine(world, NARROW)
    root, expected = world.store.local_root, Counter({("a",): 1, (None,): 2, ("",): 1, ("d",): 3})
    assert bag(state_frame(spark, root, world.view, tmp_path).toArrow()) == expected
    delete = DeleteKeys(("s",), pa.table({"s": ["d"]}))
    assert acted(root, world.view, [delete]).to_pylist() == [{"s": "d", "_count": -3}]
    files = write_negation(root, world.view, world.view.ts + 1, 99)
    assert sum(file.count_sum for file in files) == -7
    merge_tail(world.store, VIEW)
    assert bag(read_state(root, world.view)) == expected
    compact_view(world.store, spark, VIEW, world.view.ts)
    assert bag(read_state(root, world.view)) == expected
    assert world.view.distinct
    library = DeltaTable(str(folder_of(world.store))).to_pyarrow_table()
    assert library.schema.names == ["s", "_count", "_ts"]
    assert sum(int(count or 0) for count in library["_count"].to_pylist()) == 7


@pytest.mark.parametrize("wide", [pa.decimal128(22, 2), pa.decimal128(38, 18)])
def test_spark_reads_old_files_under_a_wider_type(
    world: World, spark: SparkSession, tmp_path: Path, wide: pa.DataType
) -> None:
    wider = [pa.field("k", wide), pa.field("s", pa.string()), pa.field("extra", pa.int64())]
    redefine(world, pa.schema(wider))
    found = bag(state_frame(spark, world.store.local_root, world.view, tmp_path).toArrow())
    assert found == bag(read_state(world.store.local_root, world.view))
    assert found[(Decimal(2), None, None)] == 2


def test_other_readers_see_the_schema_of_now(world: World) -> None:
    columns: dict[str, pa.DataType] = {"s": pa.string(), "at": pa.timestamp("us")}
    redefine(world, pa.schema(columns))
    table = DeltaTable(str(folder_of(world.store)))
    assert table.to_pyarrow_table().schema.names == ["s", "at", "_count", "_ts"]
    assert "timestampNtz" in (table.protocol().reader_features or [])


@pytest.mark.parametrize("repaired", [False, True])
def test_a_death_leaves_the_old_definition_or_the_new(tmp_path: Path, repaired: bool) -> None:
    with opened(tmp_path / "template") as template:
        template.append({(4, "d"): 1})
    rows: dict[Row, int] | None = {("e",): 1} if repaired else None
    old = Counter({(1, "a"): 1, (2, None): 2, (3, ""): 1, (4, "d"): 1})
    new = Counter({("a",): 1, (None,): 2, ("",): 1, ("d",): 1})
    new.update(rows or {})

    def step(moment: int, after: bool) -> bool:
        folder = tmp_path / f"{moment}{after}"
        shutil.copytree(template.store.local_root, folder)
        made, died = World(Store.open(folder, "test", time.time)), False
        try:
            with dying_at(moment, after):
                redefine(made, NARROW, rows)
        except Death:
            died = True
        finally:
            made.store.close()
        with Store.open(folder, "test", time.time) as store:
            revived = World(store)
            changed = revived.view.definition == "new"
            assert bag(read_state(folder, revived.view)) == (new if changed else old)
            if not changed:
                redefine(revived, NARROW, rows)
            assert bag(read_state(folder, revived.view)) == new
            assert len(revived.view.versions) == 1
        return died

    assert deaths(step, thorough=True) > 5
