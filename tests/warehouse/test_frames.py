"""With Spark: frames equal Arrow reads and the model; compacting and publishing keep states."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import TimestampNTZType

from tests.samples import keep_some
from tests.warehouse.faults import Death, dying_at
from tests.warehouse.model import VIEW, Row, World, bag, opened, per_ts
from viewkeeper.errors import HorizonError
from viewkeeper.warehouse.compact import compact_view
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.publish import publish_view
from viewkeeper.warehouse.retention import clean_warehouse
from viewkeeper.warehouse.rows.spark_frames import changes_frame, state_frame
from viewkeeper.warehouse.rows.view_state import read_view_changes
from viewkeeper.warehouse.store import Store

TYPES: dict[str, pa.DataType] = {
    "tiny": pa.int8(),
    "small": pa.int16(),
    "int": pa.int32(),
    "big": pa.int64(),
    "exact": pa.decimal128(38, 6),
    "single": pa.float32(),
    "double": pa.float64(),
    "a `text`.x": pa.string(),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "local": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
    "bytes": pa.binary(),
}
ONE: Row = (
    -128, 32767, -(2**31), 2**63 - 1, Decimal("12345678901234567890123456789012.123456"), 0.1,
    1e300, "ü\0'", True, date(1582, 10, 4), datetime(2024, 3, 31, 2, 30, 0, 123456),
    datetime(2024, 3, 31, 2, 30, tzinfo=UTC), b"\x00\xff",
)  # fmt: skip
NULLS: Row = (None,) * len(TYPES)
PLAIN: Row = (
    0, 0, 0, 0, Decimal("0.000000"), 0.5, 0.0, "", False, date(1, 1, 1), datetime(1, 1, 1),
    datetime(1970, 1, 1, tzinfo=UTC), b"",
)  # fmt: skip
ROWS = (ONE, NULLS, PLAIN)


def arrow(frame: DataFrame, schema: pa.Schema) -> pa.Table:
    return frame.toArrow().cast(schema)


def single(row: Row) -> Row:
    """A row as it is stored: 0.1 has no exact 32-bit spelling."""
    values: list[Any] = pa.array([row[5]], pa.float32()).to_pylist()
    return (*row[:5], *values, *row[6:])


@pytest.fixture
def every_type(tmp_path: Path) -> World:
    world = World(Store.open(tmp_path / "warehouse", "test", time.time), pa.schema(TYPES))
    world.load({single(ONE): 2, NULLS: 1})
    world.append({single(ONE): -1, PLAIN: 2})
    world.append({NULLS: -1})
    return world


def test_spark_and_arrow_read_the_same_values_of_every_type(
    spark: SparkSession, every_type: World, tmp_path: Path
) -> None:
    world, root, staging = every_type, every_type.store.local_root, tmp_path / "staging"
    for ts in (1, 2, 3):
        frame = state_frame(spark, root, world.view, staging, ts)
        assert bag(arrow(frame, world.schema)) == world.expected(ts)
        assert frame.schema["local"].dataType == TimestampNTZType()
    world.check()
    compact_view(world.store, spark, VIEW, 2)
    world.check()
    for ts in (2, 3):
        frame = state_frame(spark, root, world.view, staging, ts)
        assert bag(arrow(frame, world.schema)) == world.expected(ts)
    world.store.close()


def spark_agrees(world: World, spark: SparkSession, staging: Path) -> None:
    view, root = world.view, world.store.local_root
    frame = state_frame(spark, root, view, staging, view.ts)
    assert bag(arrow(frame, view.schema)) == world.expected(view.ts)
    moved = changes_frame(spark, root, view, staging, view.horizon).toArrow()
    assert per_ts(moved) == per_ts(read_view_changes(root, view, view.horizon))


@pytest.mark.parametrize("seed", keep_some(range(2), [0]))
def test_random_appends_merges_and_compactions_keep_every_state(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    with opened(tmp_path / "warehouse") as world:
        for _ in range(25):
            act = chance.random()
            if act < 0.75:
                world.append(some_change(chance, world))
            elif act < 0.85:
                merge_tail(world.store, VIEW)
            else:
                horizon = chance.randint(world.view.horizon, world.view.ts)
                compact_view(world.store, spark, VIEW, horizon)
                world.check()
        spark_agrees(world, spark, tmp_path / "staging")
        clean_warehouse(world.store, retention_s=-1, fold_at_least=1)
        world.check()
        with pytest.raises(HorizonError):
            compact_view(world.store, spark, VIEW, world.view.ts + 1)


def some_change(chance: random.Random, world: World) -> Counter[Row]:
    present = world.expected(world.view.ts)
    rows: list[Row] = [(chance.choice([1, 2, None]), chance.choice(["a", "", None])) for _ in "abc"]
    change: Counter[Row] = Counter()
    for row in rows:
        change[row] += -1 if present[row] + change[row] > 0 else chance.randint(1, 2)
    return change


def test_a_body_with_repeated_tuples_is_grouped(spark: SparkSession, tmp_path: Path) -> None:
    with Store.open(tmp_path / "warehouse", "test", time.time) as store:
        world = World(store)
        world.load({(1, "a"): 1, (2, "b"): 1}, distinct=False)
        world.append({(1, "a"): 1, (2, "b"): -1})
        spark_agrees(world, spark, tmp_path / "staging")


def lives(world: World, step: Callable[[], object], moment: int, after: bool) -> bool:
    try:
        with dying_at(moment, after):
            step()
    except Death:
        return False
    finally:
        world.store.close()
    return True


@pytest.mark.parametrize("moment", keep_some([1, 4, 5, 7, 10, 14], [1, 3, 5]))
def test_a_killed_compaction_changes_no_state(
    spark: SparkSession, tmp_path: Path, moment: int
) -> None:
    with opened(tmp_path / "warehouse") as world:
        world.append({(1, "a"): -1, (5, "e"): 2})
        world.append({(5, "e"): -1})
        merge_tail(world.store, VIEW)
        lives(world, lambda: compact_view(world.store, spark, VIEW, 2), moment, bool(moment % 2))
    with Store.open(tmp_path / "warehouse", "test", time.time) as store:
        revived = World(store, history=world.history)
        revived.check()
        compact_view(store, spark, VIEW, 3)
        revived.check()
        assert sum(file.rows for file in store.table_of(VIEW).active_files()) == 3


def published(folder: Path) -> Counter[Row]:
    rows = [pq.read_table(path) for path in DeltaTable(str(folder)).file_uris()]
    return bag(pa.concat_tables(rows)) if rows else Counter()


def test_publishing_replaces_the_whole_content_at_once(
    spark: SparkSession, every_type: World
) -> None:
    world = every_type
    folder = world.store.local_root / "published" / VIEW
    assert publish_view(world.store, spark, VIEW) == 1
    assert published(folder) == world.expected(3)
    world.append({ROWS[2]: -1})
    publish_view(world.store, spark, VIEW)
    assert published(folder) == world.expected(4)
    assert DeltaTable(str(folder)).history(1)[0]["viewkeeper_ts"] == 4
    assert len(list(folder.glob("*.parquet"))) > len(DeltaTable(str(folder)).file_uris())
    publish_view(world.store, spark, VIEW, retention_s=-60)
    assert len(list(folder.glob("*.parquet"))) == len(DeltaTable(str(folder)).file_uris())
    world.store.close()


@pytest.mark.parametrize("moment", [1, 2, 3, 4])
def test_a_killed_publication_leaves_the_old_or_the_new(
    spark: SparkSession, tmp_path: Path, moment: int
) -> None:
    with opened(tmp_path / "warehouse") as world:
        folder = world.store.local_root / "published" / VIEW
        publish_view(world.store, spark, VIEW)
        world.append({(5, "e"): 2})
        lived = lives(
            world, lambda: publish_view(world.store, spark, VIEW), moment, bool(moment % 2)
        )
    assert published(folder) in (
        [world.expected(2)] if lived else [world.expected(t) for t in (1, 2)]
    )
    with Store.open(tmp_path / "warehouse", "test", time.time) as store:
        publish_view(store, spark, VIEW)
        assert published(folder) == world.expected(2)


def test_a_published_table_follows_a_new_schema(spark: SparkSession, tmp_path: Path) -> None:
    with opened(tmp_path / "warehouse") as world:
        publish_view(world.store, spark, VIEW)
        shutil.copytree(world.store.local_root / "published" / VIEW, tmp_path / "kept")
    with Store.open(tmp_path / "other", "test", time.time) as store:
        stamped = World(store, pa.schema({"at": pa.timestamp("us")}))
        stamped.load({(datetime(2024, 1, 1),): 1})
        shutil.copytree(tmp_path / "kept", store.local_root / "published" / VIEW)
        publish_view(store, spark, VIEW)
        table = DeltaTable(str(store.local_root / "published" / VIEW))
        assert [field.name for field in table.schema().fields] == ["at"]
        assert "timestampNtz" in (table.protocol().reader_features or [])
        assert published(store.local_root / "published" / VIEW) == stamped.expected(1)


def test_reading_starts_no_spark_and_ends_well(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.append({(5, "e"): 2})
    program = (
        "import sys; from pathlib import Path\n"
        "from viewkeeper.warehouse.metadata.head import read_head\n"
        "from viewkeeper.warehouse.rows.view_state import read_state, read_view_changes\n"
        "from viewkeeper.warehouse.store import Store\n"
        "root = Path(sys.argv[1]); view = read_head(root).require_view('v')\n"
        "print(read_state(root, view).num_rows, read_view_changes(root, view, 0).num_rows)\n"
        "assert 'pyspark' not in sys.modules\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "6 4\n", "")
