"""Feeds, slices, and Spark's own reading of views whose warehouse is in object storage."""

from __future__ import annotations

import json
import pickle
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import viewkeeper
from tests.cli.conftest import call
from tests.engine.shop import LINES, Shop
from tests.objects.s3_server import PrivateS3
from tests.objects.test_object_project import change, refresh_often
from tests.objects.test_object_project import shop as shop
from tests.readers.bank import Consumer
from tests.readers.test_spark_source import run_stream
from viewkeeper.readers.view_feed import FeedPlace, ViewFeed
from viewkeeper.readers.view_slices import read_batches, slice_changes, slice_state


def test_a_feed_and_slices_have_what_the_view_has(shop: Shop, s3: PrivateS3) -> None:
    generator, consumer = random.Random(7), Consumer()
    with viewkeeper.open(shop.folder) as project:
        project.refresh()
        root = project.settings.warehouse.absolute()
        feed = ViewFeed(root, "lines", FeedPlace(0), time.monotonic)
        for number in range(3):
            change(shop, generator, number)
            project.refresh()
            for event in feed.read_events():
                consumer.take_event(event)
            assert consumer.state == shop.recomputed(LINES)
        assert not list(feed.read_events())
        head = project.view("lines").head
    schema, found = head.shown_schema, Counter[tuple[Any, ...]]()
    # As Spark hands them to tasks.
    for piece in pickle.loads(pickle.dumps(slice_state(root, head))):
        for batch in read_batches(piece, schema):
            found.update(tuple(row.values()) for row in batch.to_pylist())
    assert found == shop.recomputed(LINES)
    pieces = pickle.loads(pickle.dumps(slice_changes(root, head, 0, head.ts)))
    names, total = [*schema.names, "_count"], Counter[tuple[Any, ...]]()
    for piece in pieces:
        for row in piece.read_rows(names, None).to_pylist():
            *values, count = row.values()
            total[tuple(values)] += count
    assert +total == shop.recomputed(LINES)


@pytest.fixture
def states(shop: Shop, spark: SparkSession) -> dict[int, Counter[tuple[Any, ...]]]:
    """What SQLite computed at some ts of the view; the data source is registered."""
    spark.dataSource.register(viewkeeper.ViewkeeperDataSource)
    generator = random.Random(11)
    with viewkeeper.open(shop.folder) as project:
        found = refresh_often(shop, project, generator, 3)
    assert len({frozenset(state.items()) for state in found.values()}) == 4
    return found


def load(spark: SparkSession, shop: Shop, **options: str) -> DataFrame:
    reader = spark.read.format("viewkeeper").options(**options)
    return reader.load(str(shop.folder / "lines"))


def add_changes(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    """The rows that signed ones add up to; none is taken away that was not there."""
    found = Counter[tuple[Any, ...]]()
    for *row, count, _ in frame.collect():
        found[tuple(row)] += count
    assert min(found.values(), default=0) >= 0
    return +found


def test_the_data_source_reads_states_and_changes(
    shop: Shop, spark: SparkSession, states: dict[int, Counter[tuple[Any, ...]]]
) -> None:
    newest = max(states)
    assert Counter(tuple(row) for row in load(spark, shop).collect()) == states[newest]
    for ts, state in states.items():
        found = Counter(tuple(row) for row in load(spark, shop, asOf=str(ts)).collect())
        assert found == state, f"as of {ts}"
        changes = load(spark, shop, changes="true", endingTs=str(ts))
        assert add_changes(changes) == state, f"changes until {ts}"


def test_a_stream_goes_on_from_its_checkpoint(
    shop: Shop,
    spark: SparkSession,
    states: dict[int, Counter[tuple[Any, ...]]],
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    assert stream_rows(spark, shop, out) == states[max(states)]
    change(shop, random.Random(12), 7)
    with viewkeeper.open(shop.folder) as project:
        project.refresh()
    assert stream_rows(spark, shop, out) == shop.recomputed(LINES) != states[max(states)]


def stream_rows(spark: SparkSession, shop: Shop, out: Path) -> Counter[tuple[Any, ...]]:
    """What a stream has written in all, when it has gone on until now."""
    reader = spark.readStream.format("viewkeeper").options(changes="true", maxTs="1")
    run_stream(reader.load(str(shop.folder / "lines")), out)
    return add_changes(spark.read.parquet(str(out / "rows")))


def test_a_feed_at_the_command_line_goes_on_where_it_ended(shop: Shop) -> None:
    with viewkeeper.open(shop.folder) as project:
        project.refresh()
        first = read_lines(shop)
        assert [line["event"] for line in first[:2]] == ["reset", "columns"]
        change(shop, random.Random(13), 1)
        project.refresh()
    rest = read_lines(shop, "--since", first[-1]["since"])
    assert rest[-1]["event"] == "end"
    found = Counter[tuple[Any, ...]]()
    for line in [*first, *rest]:
        if line["event"] == "change":
            found[tuple(line["row"].values())] += line["count"]
    assert +found == shop.recomputed(LINES)
    assert any(line["event"] == "change" for line in rest)


def read_lines(shop: Shop, *words: str) -> list[dict[str, Any]]:
    result = call("--project", str(shop.folder), "changes-feed", "lines", *words)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]
