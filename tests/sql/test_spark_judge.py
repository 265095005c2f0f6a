"""The judge sees what is wrong, and knows the relations as of every ts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.sql.construct_events import ORDERS, add_row, order_row, set_row, take_row
from tests.sql.relation_history import RelationHistory, empty_tables
from tests.sql.spark_judge import SparkJudge, compare_rows, compare_types, sum_changes

NAN = float("nan")


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ([(1,)], [(2,)]),
        ([(1,), (1,)], [(1,)]),
        ([], [(None,)]),
        ([(1.0,)], [(1.001,)]),
        ([("a", 1.0)], [("b", 1.0)]),
        ([(None,)], [(0.0,)]),
    ],
)
def test_rows_that_differ(found: list[tuple[object]], wanted: list[tuple[object]]) -> None:
    assert compare_rows(found, wanted)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ([(1,), (2,)], [(2,), (1,)]),
        ([(NAN,)], [(NAN,)]),
        ([(0.1 + 0.2, "a"), (5.0, "a")], [(5.0, "a"), (0.3, "a")]),
        ([(-0.0,)], [(0.0,)]),
    ],
)
def test_rows_that_are_equal(found: list[tuple[object]], wanted: list[tuple[object]]) -> None:
    assert compare_rows(found, wanted) is None


def test_types_that_differ() -> None:
    one, other = pa.schema([("n", pa.int64())]), pa.schema([("n", pa.int32())])
    assert compare_types(one, other)
    assert compare_types(one, one) is None


def test_changes_are_summed_up_to_each_ts() -> None:
    changes = {1: Counter({("a",): 2}), 3: Counter({("a",): -1, ("b",): 1})}
    assert sum_changes(changes, [1, 2, 3]) == {
        1: [("a",), ("a",)],
        2: [("a",), ("a",)],
        3: [("a",), ("b",)],
    }
    with pytest.raises(AssertionError, match="less than never"):
        sum_changes({1: Counter({("a",): -1})}, [1])


def test_a_text_is_run_as_of_every_ts(spark: SparkSession, tmp_path: Path) -> None:
    history = RelationHistory(tmp_path)
    history.apply_transaction((add_row(ORDERS, order_row(1, 1, 1, "1.00")),))
    history.apply_transaction((set_row(ORDERS, 1, order_row(2, 1, 2, "1.00")),))
    history.apply_transaction((take_row(ORDERS, 2),))
    judge = SparkJudge(spark, empty_tables())
    judge.show_relations(
        history.as_tables([1, 4, 6]), {"v1": "SELECT o.id + 1 AS id FROM shop.orders AS o"}
    )
    text = "SELECT count(*) AS n, max(v.id) AS id FROM v1 AS v"
    found, types = judge.states_of(text, [0, 1, 3, 4, 5, 6])
    assert found == {
        0: [(0, None)],
        1: [(1, 2)],
        3: [(1, 2)],
        4: [(1, 3)],
        5: [(1, 3)],
        6: [(0, None)],
    }
    assert types.names == ["n", "id"]
