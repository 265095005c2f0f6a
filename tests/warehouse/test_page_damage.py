"""With Spark: a damaged page of a data file is refused, and the file is named.

The flip is one that nobody would notice without the page's checksum: the file can be read, and has
other rows.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.warehouse.model import VIEW, World, folder_of
from viewkeeper.engine.spark.task_errors import Courier
from viewkeeper.errors import CorruptError
from viewkeeper.warehouse.compact import compact_view
from viewkeeper.warehouse.publish import publish_view
from viewkeeper.warehouse.rows import spark_frames
from viewkeeper.warehouse.rows.spark_frames import find_read_damage, state_frame
from viewkeeper.warehouse.store import Store


def flip_unseen(path: Path) -> None:
    """Flip a bit of a page, so that the file is still read by those who compare nothing."""
    data, right = path.read_bytes(), pq.read_table(path)
    for at in range(4, len(data)):
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        try:
            rows = pq.ParquetFile(pa.BufferReader(flipped)).read()
        except (OSError, ValueError, pa.ArrowException):
            continue
        if rows.num_rows == right.num_rows and rows.schema == right.schema and rows != right:
            path.write_bytes(flipped)
            return
    raise AssertionError("every flip was noticed")


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[World, Path]:
    """A closed warehouse in which a file that Spark reads by itself is damaged."""
    monkeypatch.setattr(spark_frames, "SMALL_ROWS", 0)
    with Store.open(tmp_path / "a warehouse", "test", time.time) as store:
        world = World(store)
        world.load({(k, f"row {k}"): 1 for k in range(100)})
        world.append({(1, "later"): 1})
        folder = folder_of(store)
    path = max(folder.glob("b*.parquet"), key=lambda path: path.stat().st_size)
    flip_unseen(path)
    return world, path


def test_spark_refuses_a_damaged_page(
    damaged: tuple[World, Path], spark: SparkSession, tmp_path: Path
) -> None:
    world, path = damaged
    with Store.open(world.store.local_root, "test", world.store.now) as store:
        view = store.head.require_view(VIEW)
        # Of the time before the tail, of which nobody has to look for rows in the body first.
        frame = state_frame(spark, store.local_root, view, tmp_path / "staging", view.horizon)
        for action in (
            lambda: Courier().run_job(frame.collect),
            lambda: compact_view(store, spark, VIEW, store.head.require_view(VIEW).ts),
            lambda: publish_view(store, spark, VIEW),
        ):
            with pytest.raises(CorruptError, match=path.name) as refused:
                action()
            assert f"viewkeeper refresh {VIEW}" in (refused.value.hint or "")


def test_a_row_that_names_a_file_blames_none(damaged: tuple[World, Path]) -> None:
    _, path = damaged
    other = min(path.parent.glob("b*.parquet"), key=lambda path: path.stat().st_size)
    assert find_read_damage(f"The value 'file:{other}' is no number; file:///etc/passwd") is None
    assert find_read_damage("file:/b.parquet 'file:/views/b.parquet'") is None
    uri = path.as_uri()
    assert find_read_damage(f"Encountered error while reading file {uri}. SQLSTATE") is not None
