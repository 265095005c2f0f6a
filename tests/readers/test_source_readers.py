"""The readers of the data source, called as Spark calls them, without Spark.

What Spark does with their rows is in `test_spark_source`.
"""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as conditions
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

import viewkeeper
from tests.readers.bank import Bank, count_rows
from viewkeeper.errors import DefinitionError, HorizonError, StateError
from viewkeeper.readers.spark_source import ChangeStreamReader, arrow_condition
from viewkeeper.warehouse.metadata.head import read_head


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    """A bank after some transfers."""
    bank = Bank(tmp_path)
    bank.refresh()
    for amount in (5, 7, 9):
        bank.transfer(0, 2, amount)
        bank.refresh()
    return bank


def source_of(bank: Bank, **options: str) -> viewkeeper.ViewkeeperDataSource:
    return viewkeeper.ViewkeeperDataSource({"path": str(bank.folder / "evens"), **options})


def stream_of(bank: Bank, **options: str) -> ChangeStreamReader:
    source = source_of(bank, changes="true", **options)
    reader = source.streamReader(source.schema())
    assert isinstance(reader, ChangeStreamReader)
    return reader


def rows_in(reader: Any, parts: Any) -> pa.Table:
    """The rows of partitions, each read by a copy, as a task has it."""
    batches = []
    for part in pickle.loads(pickle.dumps(parts)):
        assert isinstance(part, InputPartition)
        batches += list(pickle.loads(pickle.dumps(reader)).read(part))
    return pa.Table.from_batches(batches)


def signed_rows(reader: ChangeStreamReader, start: Any, end: Any) -> Counter[tuple[Any, ...]]:
    rows = rows_in(reader, reader.partitions(start, end))
    return count_rows(rows.drop_columns(["_ts"]))


def test_a_state_is_read_as_of_every_ts(bank: Bank) -> None:
    view = read_head(bank.warehouse).views["evens"]
    for ts in range(view.horizon, view.ts + 1):
        source = source_of(bank, asOf=str(ts))
        reader = source.reader(source.schema())
        found = rows_in(reader, reader.partitions()).to_pylist()
        assert Counter(tuple(row.values()) for row in found) == bank.state_of("evens", ts)


def test_batches_of_a_stream_add_up_and_can_be_planned_again(bank: Bank) -> None:
    reader = stream_of(bank, maxTs="1")
    start, total, spans = reader.initialOffset(), Counter[tuple[Any, ...]](), []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        rows = signed_rows(reader, start, end)
        total.update(rows)
        spans.append((start, end, rows))
        assert +total == bank.state_of("evens", end["ts"])
        start = end
    assert len(spans) == 3
    bank.transfer(4, 2, 11)
    bank.refresh()
    # As after a kill: what was planned is planned again, by another process, from a newer head.
    again = stream_of(bank)
    for first, last, rows in spans:
        assert signed_rows(again, first, last) == rows
    end = again.latestOffset(start, ReadAllAvailable())
    total.update(signed_rows(again, start, end))
    assert +total == bank.state_of("evens")
    assert again.partitions(end, end) == []


def test_a_bounded_stream_ends_at_what_was_there(bank: Bank) -> None:
    reader = stream_of(bank)
    reader.prepareForTriggerAvailableNow()
    before = reader.reportLatestOffset()
    bank.transfer(4, 2, 11)
    bank.refresh()
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == before
    assert reader.latestOffset(before, ReadAllAvailable()) == before


def test_a_stream_is_refused_where_it_could_not_go_on(bank: Bank) -> None:
    reader = stream_of(bank)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(HorizonError, match="no changes since 99"):
        stream_of(bank, startingTs="99").initialOffset()
    bank.refresh("evens")
    for place in (start, end):
        with pytest.raises(StateError, match="loaded again") as caught:
            reader.latestOffset(place, ReadAllAvailable())
        assert "a new checkpoint" in (caught.value.hint or "")
        with pytest.raises(StateError, match="loaded again"):
            reader.partitions(place, {**end, "ts": end["ts"] + 1})


def test_a_stream_is_refused_when_the_columns_have_changed(bank: Bank) -> None:
    source = source_of(bank)
    reader = source.reader(source.schema())
    bank.define("evens", "SELECT a.id, a.amount FROM bank.account a WHERE a.id % 2 = 0")
    bank.refresh("evens")
    with pytest.raises(StateError, match="its columns have changed"):
        reader.partitions()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": ""}, "no project"),
        ({"path": "a/evens", "asof": "x"}, 'option asOf is "x"'),
        ({"path": "a/evens", "maxTs": "0"}, 'option maxTs is "0"'),
        ({"path": "a/evens", "asOff": "1"}, "there is no option asOff"),
        ({"path": "a/evens", "changes": "yes"}, 'option changes is "yes"'),
        ({"path": "a/evens", "pushFilters": "1"}, 'option pushFilters is "1"'),
        ({"path": "a/evens", "startingTs": "1"}, "option startingTs is for changes"),
        ({"path": "a/evens", "endingts": "1"}, "option endingTs is for changes"),
        ({"path": "a/evens", "changes": "true", "asOf": "1"}, "option asOf is for states"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        viewkeeper.ViewkeeperDataSource(options).schema()


def test_a_stream_needs_the_option_for_changes(bank: Bank) -> None:
    source = source_of(bank)
    with pytest.raises(DefinitionError, match="a stream is of changes"):
        source.streamReader(source.schema())
    with pytest.raises(DefinitionError, match="no column idd"):
        source_of(bank, columns="idd").schema()


def test_a_stream_has_no_end_and_a_batch_no_latest_start(bank: Bank) -> None:
    with pytest.raises(DefinitionError, match="option endingTs is for queries that end"):
        stream_of(bank, endingTs="2")
    for option, text in (("maxTs", "2"), ("startingTs", "latest")):
        source = source_of(bank, changes="true", **{option: text})
        with pytest.raises(DefinitionError, match=f"option {option} is for streams"):
            source.reader(source.schema())


def test_conditions_are_taken_where_arrow_means_the_same() -> None:
    types = {"n": pa.int64(), "x": pa.float64(), "t": pa.string()}
    schema = pa.schema([pa.field(name, kind) for name, kind in types.items()])
    rows = pa.table({"n": [1, 2, None], "x": [1.0, 2.0, 3.0], "t": ["a", "b", None]}, schema)
    for condition, kept in (
        (conditions.EqualTo(("n",), 2), [2]),
        (conditions.GreaterThan(("n",), 1), [2]),
        (conditions.LessThanOrEqual(("t",), "a"), [1]),
        (conditions.In(("n",), (1, 7)), [1]),
        (conditions.IsNull(("t",)), [None]),
        (conditions.IsNotNull(("n",)), [1, 2]),
    ):
        found = arrow_condition(condition, schema)
        assert rows.filter(found)["n"].to_pylist() == kept
    left: list[conditions.Filter] = [
        conditions.EqualTo(("x",), float("nan")),
        conditions.EqualTo(("n", "m"), 1),
        conditions.EqualTo(("z",), 1),
        conditions.Not(conditions.EqualTo(("n",), 1)),
        conditions.In(("n",), (1, None)),
        conditions.StringContains(("t",), "a"),
    ]
    for each in left:
        assert arrow_condition(each, schema) is None
