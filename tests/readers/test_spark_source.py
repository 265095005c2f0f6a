"""The data source `viewkeeper`: what it reads is what the view has, and a stream is exact."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import viewkeeper
from tests.readers.bank import Bank
from viewkeeper.warehouse.compact import compact_view
from viewkeeper.warehouse.metadata.head import read_head
from viewkeeper.warehouse.store import Store


@pytest.fixture
def bank(tmp_path: Path, spark: SparkSession) -> Bank:
    """A bank after some transfers; the data source is registered."""
    spark.dataSource.register(viewkeeper.ViewkeeperDataSource)
    bank = Bank(tmp_path)
    bank.refresh()
    for amount in (5, 7, 9):
        bank.transfer(0, 2, amount)
        bank.refresh()
    return bank


def load(spark: SparkSession, bank: Bank, **options: str) -> DataFrame:
    reader = spark.read.format("viewkeeper").options(**options)
    return reader.load(str(bank.folder / "evens"))


def rows_of(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.collect())


def test_every_kept_state_can_be_read(bank: Bank, spark: SparkSession) -> None:
    view = read_head(bank.warehouse).views["evens"]
    assert rows_of(load(spark, bank)) == bank.state_of("evens")
    for ts in range(view.horizon, view.ts + 1):
        assert rows_of(load(spark, bank, asOf=str(ts))) == bank.state_of("evens", ts)
    with Store.open(bank.warehouse, "test", time.time) as store:
        compact_view(store, spark, "evens", view.ts)
    assert rows_of(load(spark, bank)) == bank.state_of("evens")
    with pytest.raises(PySparkException, match="no state as of 1"):
        load(spark, bank, asOf="1").collect()


@pytest.fixture(params=["false", "true"])
def pushes(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """Whether Spark hands conditions on; it is set as long as a test runs."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, request.param)
    yield request.param
    spark.conf.unset(name)


def test_columns_and_conditions(bank: Bank, spark: SparkSession, pushes: str) -> None:
    frame = load(spark, bank, columns="id, amount", pushFilters=pushes)
    assert frame.columns == ["id", "amount"]
    for where in ("id = 2", "id > 2 AND amount IS NOT NULL", "id IN (0, 4)", "amount <= 0"):
        expected = Counter(
            {
                tuple(row): 1
                for row in spark.createDataFrame(
                    [key[:2] for key in bank.state_of("evens")], "id long, amount long"
                )
                .where(where)
                .collect()
            }
        )
        assert rows_of(frame.where(where)) == expected


def test_a_span_of_changes_adds_up(bank: Bank, spark: SparkSession) -> None:
    view = read_head(bank.warehouse).views["evens"]
    changes = load(spark, bank, changes="true", startingTs=str(view.horizon)).collect()
    state = Counter(bank.state_of("evens", view.horizon))
    for *row, count, _ in changes:
        state[tuple(row)] += count
    assert +state == bank.state_of("evens")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"asof": "x"}, "option asOf is"),
        ({"asOff": "1"}, "there is no option"),
        ({"columns": "idd"}, "no column idd"),
        ({"view": "evens"}, "no project|viewkeeper.yml|cannot be read"),
    ],
)
def test_what_cannot_be_is_refused(
    bank: Bank, spark: SparkSession, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        load(spark, bank, **options).collect()


def stream(spark: SparkSession, bank: Bank, out: Path, **options: str) -> None:
    """Run a stream over all that there is now, from its checkpoint on."""
    reader = spark.readStream.format("viewkeeper").option("changes", "true").options(**options)
    run_stream(reader.load(str(bank.folder / "evens")), out)


def run_stream(changes: DataFrame, out: Path) -> None:
    """Write a stream to a folder, which also has its checkpoint, until it has all that there is."""
    writer = changes.writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(out / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(out / "rows"))
    try:
        assert query.awaitTermination(240)
    finally:
        query.stop()


def written(spark: SparkSession, out: Path) -> Counter[tuple[Any, ...]]:
    found = Counter[tuple[Any, ...]]()
    for *row, count, _ in spark.read.parquet(str(out / "rows")).collect():
        found[tuple(row)] += count
    assert min(found.values(), default=0) >= 0
    return +found


def test_a_stream_goes_on_from_its_checkpoint(
    bank: Bank, spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    stream(spark, bank, out, maxTs="1")
    assert written(spark, out) == bank.state_of("evens")
    assert len(list((out / "checkpoint" / "commits").glob("[0-9]*"))) >= 3
    bank.transfer(4, 2, 11)
    bank.refresh()
    stream(spark, bank, out)
    assert written(spark, out) == bank.state_of("evens")


def test_a_stream_of_a_view_that_was_loaded_again_is_refused(
    bank: Bank, spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    stream(spark, bank, out)
    bank.refresh("evens")
    with pytest.raises(PySparkException, match="it was loaded again since this stream began"):
        stream(spark, bank, out)


def test_a_stream_whose_place_was_folded_away_is_refused(
    bank: Bank, spark: SparkSession, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    stream(spark, bank, out)
    for amount in (1, 2):
        bank.transfer(0, 2, amount)
        bank.refresh()
    with Store.open(bank.warehouse, "test", time.time) as store:
        compact_view(store, spark, "evens", store.head.views["evens"].ts)
    with pytest.raises(PySparkException, match="begin again from 0"):
        stream(spark, bank, out)


def test_a_stream_from_the_latest_state_has_only_what_comes_after_it(
    bank: Bank, spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match="a stream is of changes"):
        stream(spark, bank, tmp_path / "none", changes="false")
    out = tmp_path / "out"
    stream(spark, bank, out, startingTs="latest")
    bank.transfer(0, 2, 11)
    bank.refresh()
    stream(spark, bank, out, startingTs="latest")
    rows = [tuple(row)[:-1] for row in spark.read.parquet(str(out / "rows")).collect()]
    assert sorted(count for *_, count in rows) == [-1, -1, 1, 1]
