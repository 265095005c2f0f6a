"""Reading a body as it is, without the rows that a tail may have changed, shows what summing shows.

Summing all stored rows is the meaning; the faster ways are held against it on random histories:
counts above one, NULL, NaN, rows that leave before they came, hidden columns, all ts, columns and
filters. Kept touched rows may be lost, torn, stale or of another body.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.warehouse.model import VIEW, Row, World, folder_of
from tests.warehouse.test_redefine import redefine
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.engine.settings.project_file import SparkSettings
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.engine.view import View
from viewkeeper.errors import CorruptError, DefinitionError, ExpressionError
from viewkeeper.warehouse.compact import compact_view
from viewkeeper.warehouse.lake import data_files
from viewkeeper.warehouse.lake.data_files import stored_schema
from viewkeeper.warehouse.lake.listed_files import ActiveFile
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.rows import (
    file_search,
    row_masks,
    spark_frames,
    touched_rows,
    view_state,
)
from viewkeeper.warehouse.rows.spark_frames import state_frame
from viewkeeper.warehouse.rows.view_state import read_counted, read_state, repeat_rows
from viewkeeper.warehouse.store import Store

COLUMNS: dict[str, pa.DataType] = {
    "k": pa.int64(),
    "s.t": pa.string(),
    "f": pa.float64(),
    "d": pa.decimal128(10, 2),
}
KEYS = st.sampled_from([None, 0, 1, 2, 3])
TEXTS = st.sampled_from([None, "", "a", "ü"])
FLOATS = st.sampled_from([None, 0.0, 1.5, NAN := float("nan")])
DECIMALS = st.sampled_from([None, Decimal("0.00"), Decimal("1.25")])
ROWS = st.tuples(KEYS, TEXTS, FLOATS, DECIMALS)
LOADS = st.dictionaries(ROWS, st.integers(1, 3), max_size=12)
CHANGES = st.dictionaries(ROWS, st.integers(-2, 2).filter(bool), max_size=4)
HIDDEN = st.sampled_from([(), ("d",), ("k", "f")])
FILTERS: tuple[Any, ...] = (
    pc.field("k") == 2,
    pc.field("s.t") == "a",
    pc.field("k").is_null(),
    pc.field("f") > 1.0,
)


@contextmanager
def small_sizes(kept_from: int = 0) -> Iterator[pytest.MonkeyPatch]:
    """Row groups of two rows, bodies that are always worth it, and everything sieved and kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "ROWS_PER_GROUP", 2)
        patch.setattr(file_search, "FEW", 2)
        patch.setattr(row_masks, "SIEVED_ROWS", 0)
        patch.setattr(view_state, "WORTH", 0)
        patch.setattr(touched_rows, "LARGE_ROWS", 3)
        patch.setattr(spark_frames, "SMALL_ROWS", 3)
        patch.setattr(touched_rows, "KEPT_FROM_ROWS", kept_from)
        yield patch


def bag_of(rows: pa.Table) -> Counter[str]:
    """Rows as texts, since NaN is not itself in Python."""
    return Counter(repr(tuple(row.values())) for row in rows.to_pylist())


def check_all_ways(world: World) -> None:
    """Every ts, all columns, single ones, and filters, against the sum of what is stored."""
    view, root = world.view, world.store.local_root
    for ts in (*range(view.horizon, view.ts + 1), None):
        meant = repeat_rows(read_counted(root, view, ts))
        assert bag_of(read_state(root, view, ts)) == bag_of(meant), f"as of {ts}"
        for name in meant.column_names:
            assert bag_of(read_state(root, view, ts, [name])) == bag_of(meant.select([name]))
        for where in FILTERS if world.schema.names == [*COLUMNS] and not world.hidden else ():
            assert bag_of(read_state(root, view, ts, where=where)) == bag_of(meant.filter(where))


@settings(max_examples=40)
@given(
    LOADS, st.lists(CHANGES, max_size=4), st.sampled_from([(), ("d",), ("k", "f")]), st.booleans()
)
def test_every_way_shows_the_sum_of_what_is_stored(
    load: dict[Row, int], changes: list[dict[Row, int]], hidden: tuple[str, ...], distinct: bool
) -> None:
    with (
        small_sizes(),
        tempfile.TemporaryDirectory() as folder,
        Store.open(Path(folder), "test", time.time) as store,
    ):
        world = World(store, pa.schema(COLUMNS), hidden=hidden)
        world.load(load, distinct=distinct)
        for number, change in enumerate(changes):
            world.append(change)
            check_all_ways(world)
            if number % 2:
                merge_tail(store, VIEW)
        check_all_ways(world)


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[World]:
    """A view with a body and a tail, whose touched rows have been kept."""
    with small_sizes(), Store.open(tmp_path / "warehouse", "test", time.time) as store:
        world = World(store)
        world.load({(k, f"text {k}"): 1 + k % 2 for k in range(20)})
        world.append({(3, "text 3"): -2, (4, "text 4"): -1, (4, "other"): 1, (5, "text 5"): 1})
        check_all_ways(world)
        yield world


def kept_files(world: World) -> list[Path]:
    return [*(folder_of(world.store) / touched_rows.FOLDER).glob("*")]


def test_touched_rows_are_kept_and_what_is_kept_is_not_looked_for_again(
    keeping: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kept,) = kept_files(keeping)
    looked: list[int] = []
    search = touched_rows._search_body

    def counted(folder: Path, view: Any, body: Any, signed: pa.Table, nothing: Any) -> Any:
        looked.append(signed.num_rows)
        return search(folder, view, body, signed, nothing)

    monkeypatch.setattr(touched_rows, "_search_body", counted)
    check_all_ways(keeping)
    assert looked == []
    keeping.append({(6, "text 6"): -1})
    check_all_ways(keeping)
    assert looked == [1], "only the new file is looked for, and only once"
    assert kept_files(keeping) != [kept]
    assert len(kept_files(keeping)) == 1


@pytest.mark.parametrize("damage", ["empty", "half", "zeros", "removed", "renamed"])
def test_damaged_touched_rows_are_not_used(keeping: World, damage: str) -> None:
    (kept,) = kept_files(keeping)
    data = kept.read_bytes()
    match damage:
        case "empty":
            kept.write_bytes(b"")
        case "half":
            kept.write_bytes(data[: len(data) // 2])
        case "zeros":
            kept.write_bytes(bytes(len(data)))
        case "removed":
            shutil.rmtree(kept.parent)
        case "renamed":
            kept.rename(kept.with_name(f"{data_files.NOTHING}-{'0' * 32}.parquet"))
    check_all_ways(keeping)


def test_touched_rows_of_another_body_are_not_used(keeping: World, tmp_path: Path) -> None:
    """Positions of one body would leave out other rows of another."""
    (kept,) = kept_files(keeping)
    with Store.open(tmp_path / "other", "test", time.time) as store:
        other = World(store)
        other.load({(k, f"text {k}"): 1 for k in reversed(range(20))})
        other.append({(9, "text 9"): -1})
        folder = folder_of(store) / touched_rows.FOLDER
        folder.mkdir()
        shutil.copy(kept, folder)
        check_all_ways(other)


def test_stale_touched_rows_are_completed(keeping: World) -> None:
    """A file that a slower reader wrote last knows less of the tail."""
    (kept,) = kept_files(keeping)
    data = kept.read_bytes()
    keeping.append({(8, "text 8"): -1})
    check_all_ways(keeping)
    for newer in kept_files(keeping):
        newer.unlink()
    kept.write_bytes(data)
    check_all_ways(keeping)


def test_who_may_not_write_reads_all_the_same(
    keeping: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(folder_of(keeping.store) / touched_rows.FOLDER)
    monkeypatch.setattr(os, "access", lambda *_: False)
    check_all_ways(keeping)
    assert kept_files(keeping) == []


def test_files_of_older_columns_are_told_apart_by_the_columns_of_now(keeping: World) -> None:
    wider: dict[str, pa.DataType] = {"s": pa.string(), "k": pa.decimal128(22, 2)}
    redefine(keeping, pa.schema(wider))
    keeping.schema = keeping.view.schema
    check_all_ways(keeping)
    keeping.append({("text 9", Decimal(9)): -1})
    check_all_ways(keeping)
    # As many columns of the same types, one of them another one: what was kept has its old values.
    other: dict[str, pa.DataType] = {"t": pa.string(), "k": pa.decimal128(22, 2)}
    redefine(keeping, pa.schema(other))
    keeping.schema = keeping.view.schema
    check_all_ways(keeping)
    keeping.append({("text 7", Decimal(7)): -1, ("text 8", None): 1})
    check_all_ways(keeping)


def test_a_row_is_found_without_reading_the_body(
    keeping: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    columns = file_search._scan_columns

    def watched(fragment: Any, names: Any, where: Any) -> Iterator[pa.RecordBatch]:
        read.append(sum(g.num_rows for g in fragment.subset(filter=where).row_groups))
        return columns(fragment, names, where)

    monkeypatch.setattr(file_search, "_scan_columns", watched)
    found = read_state(keeping.store.local_root, keeping.view, where=pc.field("k") == 11)
    assert found.to_pylist() == [{"k": 11, "s": "text 11"}] * 2
    assert read == [2], "one row group of ten"


def test_rows_without_columns_are_counted(keeping: World) -> None:
    """A reader who counts asks for no column."""
    stored, folder = stored_schema(keeping.view.schema), folder_of(keeping.store)
    large = max(keeping.store.active_files(VIEW), key=lambda file: file.rows)
    for names in ([], ["k"], ["k", "s"]):
        found = file_search.read_file_columns(folder, VIEW, large, stored, names)
        assert (found.num_rows, found.column_names) == (large.rows, names)
        none = pc.field("k") == -1
        assert not file_search.read_file_columns(folder, VIEW, large, stored, names, none).num_rows


@pytest.mark.parametrize("change", [1, -1])
@pytest.mark.parametrize("columns", [None, ["k"]])
def test_a_file_with_other_rows_than_are_listed_is_damaged(
    keeping: World, monkeypatch: pytest.MonkeyPatch, change: int, columns: list[str] | None
) -> None:
    """While it is read ahead, nobody knows yet how many rows will come."""
    root, view = keeping.store.local_root, keeping.view
    listed = view_state.files_until

    def others(*given: Any) -> list[ActiveFile]:
        return [
            replace(file, rows=file.rows + change) if file.rows > 10 else file
            for file in listed(*given)
        ]

    monkeypatch.setattr(view_state, "files_until", others)
    with pytest.raises(CorruptError, match="cannot be believed") as caught:
        read_state(root, view, columns=columns)
    assert f"{20 + change} were written" in str(caught.value.detail)


@pytest.mark.parametrize("where", [pc.field("none") == 1, pc.scalar(1) / pc.field("k") == 1])
def test_a_condition_without_a_value_is_no_damage(keeping: World, where: Any) -> None:
    view = View(VIEW, keeping.store.local_root, SparkHandle(SparkSettings()))
    with pytest.raises(ExpressionError, match="the condition has no value"):
        view.arrow(where=where)
    with pytest.raises(DefinitionError, match="no column none"):
        view.arrow(columns=["none"])
    assert view.arrow(columns=["s"], where=pc.field("k") == 11)["s"].to_pylist() == ["text 11"] * 2


@pytest.mark.parametrize("mapped_rows", [0, spark_frames.MAPPED_ROWS], ids=["joined", "mapped"])
def test_spark_shows_the_same_and_compaction_puts_rows_in_order(
    keeping: World,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mapped_rows: int,
) -> None:
    """Two large files of one size, counts above one, an as-of read, and what lies ahead."""
    monkeypatch.setattr(spark_frames, "MAPPED_ROWS", mapped_rows)
    world, root = keeping, keeping.store.local_root
    world.append({(k, f"text {k}"): 1 for k in range(30, 35)})
    world.append({(31, "text 31"): -1, (None, None): 1, (40, "soon gone"): -1})

    def agree() -> None:
        for ts in (*range(world.view.horizon, world.view.ts + 1), None):
            frame = state_frame(spark, root, world.view, tmp_path / "staging", ts)
            meant = repeat_rows(read_counted(root, world.view, ts))
            assert bag_of(frame.toArrow()) == bag_of(meant), f"as of {ts}"
            assert frame.count() == meant.num_rows
            assert bag_of(frame.select("k").toArrow()) == bag_of(meant.select(["k"]))

    agree()
    compact_view(world.store, spark, VIEW, world.view.horizon)
    agree()
    body = [f for f in world.store.active_files(VIEW) if f.ts_max <= world.view.horizon]
    rows = pa.concat_tables([pq.read_table(folder_of(world.store) / file.path) for file in body])
    assert rows.equals(rows.sort_by("k")), "one file, in the order of its key"
    assert not data_files.is_unordered(folder_of(world.store), body, VIEW)
    compact_view(world.store, spark, VIEW, world.view.horizon)
    assert {*body} <= {*world.store.active_files(VIEW)}, "what is in order stays as it is"
    compact_view(world.store, spark, VIEW, world.view.ts)
    agree()


def test_every_bit_of_the_map_is_the_row_that_it_stands_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Files of several sizes, around the ends of words of 64 rows; some are not touched at all."""
    places = (0, 1, 62, 63, 64, 65, 126, 127, 128, 191, 192)
    with small_sizes(), Store.open(tmp_path / "warehouse", "test", time.time) as store:
        world = World(store)
        first = 0
        for number, rows in enumerate((193, 64, 65, 1_000, 128)):
            body = {(first + k, f"text {first + k}"): 1 for k in range(rows)}
            world.load(body) if number == 0 else world.append(body)
            first += 10_000
        for file in (0, 1, 2, 4):
            gone = [10_000 * file + k for k in places if k < (193, 64, 65, 0, 128)[file]]
            world.append({(k, f"text {k}"): -1 for k in gone})
        frame = state_frame(spark, store.local_root, world.view, tmp_path / "staging")
        meant = read_state(store.local_root, world.view)
        plan: Any = frame._jdf
        assert "getbit" in plan.queryExecution().optimizedPlan().toString()
        assert frame.count() == meant.num_rows == 193 + 64 + 65 + 1_000 + 128 - 11 - 4 - 5 - 8
        assert bag_of(frame.toArrow()) == bag_of(meant)
        assert bag_of(frame.where("k % 64 = 63").toArrow()) == bag_of(
            meant.filter(pc.equal(pc.bit_wise_and(meant["k"], 63), 63))
        )
