"""Rows that changed often since the state that is recomputed: verification stays as fast as it was.

A scan reads what is there now and takes back what came after the wanted position. Every change of a
hot row was joined with every change of every other one, so `verify` beside four writers on some
sixty rows did not end.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import LINES, Shop
from viewkeeper.engine.load.view_recomputation import net_changes
from viewkeeper.updates.source_protocol import COUNT

HOT = 400


def batch(*rows: tuple[int | None, int]) -> pa.RecordBatch:
    values, counts = [value for value, _ in rows], [count for _, count in rows]
    return pa.record_batch({"a": pa.array(values, pa.int64()), COUNT: pa.array(counts, pa.int64())})


@pytest.mark.parametrize("rows_max", [1, 2, 3, 1000])
def test_what_cancels_out_is_left_out(rows_max: int) -> None:
    tail = [batch((1, -1), (2, 1)), batch((2, -1), (None, 1)), batch((3, 1), (None, 1))]
    found = (
        pa.Table.from_batches([*net_changes(tail, rows_max)])
        .group_by("a")
        .aggregate([(COUNT, "sum")])
    )
    sums = dict(zip(*(found[name].to_pylist() for name in ("a", f"{COUNT}_sum")), strict=True))
    assert {row: count for row, count in sums.items() if count} == {1: -1, 3: 1, None: 2}
    if rows_max > 6:
        assert found.num_rows == 3


def test_rows_without_columns_stay_as_they_are() -> None:
    counts = pa.record_batch({COUNT: pa.array([1, -1, 1], pa.int64())})
    assert [*net_changes([counts])] == [counts]
    assert [*net_changes([])] == []


def test_hot_rows_are_verified_as_of_long_ago(tmp_path: Path, spark: SparkSession) -> None:
    shop = Shop(tmp_path, {"lines": LINES}, "spark: {job_minutes: 2}\n")
    shop.fill(customers=1, orders=2, products=1)
    hot = {
        "crm": ["UPDATE customer SET name = 'n' || {}"],
        "shop": ["UPDATE item SET quantity = 1 + {}"],
        "catalogue": ["UPDATE product SET cents = {}"],
    }
    with viewkeeper.open(tmp_path, spark=spark) as project:
        project.refresh()
        for name, statements in hot.items():
            shop.execute(name, *(each.format(k) for k in range(HOT) for each in statements))
        (found,) = project.verify(["lines"])
        assert found.ok
        assert found.rows == 1
