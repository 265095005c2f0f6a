"""A feed says all changes once and in order, and never goes on from rows of another origin."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.readers.bank import Bank, Consumer
from viewkeeper.errors import DefinitionError, HorizonError
from viewkeeper.readers.view_feed import (
    FeedChanges,
    FeedColumns,
    FeedEnd,
    FeedPlace,
    FeedReset,
    ViewFeed,
    parse_place,
)
from viewkeeper.warehouse.compact import compact_view
from viewkeeper.warehouse.store import Store


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    """A bank whose views are loaded."""
    bank = Bank(tmp_path)
    bank.refresh()
    return bank


def feed_of(bank: Bank, place: str = "0") -> ViewFeed:
    return ViewFeed(bank.warehouse, "evens", parse_place(place), time.monotonic)


def test_a_feed_begins_with_a_reset_and_sums_up_to_the_view_at_every_end(bank: Bank) -> None:
    for amount in (5, 7):
        bank.transfer(0, 2, amount)
        bank.transfer(1, 3, amount)
        bank.refresh()
    consumer, ends = Consumer(), []
    feed = feed_of(bank)
    events = list(feed.read_events())
    assert isinstance(events[0], FeedReset)
    assert isinstance(events[1], FeedColumns)
    for event in events:
        consumer.take_event(event)
        if isinstance(event, FeedEnd):
            ends.append(event.place.ts)
            assert consumer.state == bank.state_of("evens", event.place.ts)
    assert ends == sorted(set(ends))
    assert ends[-1] == feed.place.ts
    assert [e.is_body for e in events if isinstance(e, FeedChanges)] == [True, False, False]


def test_news_are_said_once(bank: Bank) -> None:
    feed, consumer = feed_of(bank), Consumer()
    for event in feed.read_events():
        consumer.take_event(event)
    assert not feed.has_news() or not list(feed.read_events())
    bank.transfer(0, 2, 5)
    bank.refresh()
    assert feed.has_news()
    for event in feed.read_events():
        consumer.take_event(event)
    assert consumer.state == bank.state_of("evens")
    assert list(feed.read_events()) == []


def test_a_feed_goes_on_from_any_end(bank: Bank) -> None:
    for amount in (5, 7, 9):
        bank.transfer(0, 2, amount)
        bank.refresh()
    whole = [e for e in feed_of(bank).read_events() if isinstance(e, FeedChanges)]
    for place in [e.place for e in feed_of(bank).read_events() if isinstance(e, FeedEnd)]:
        for text in (str(place), str(place.ts)):
            rest = [e for e in feed_of(bank, text).read_events() if isinstance(e, FeedChanges)]
            assert [e.ts for e in rest] == [e.ts for e in whole if e.ts > place.ts]


def test_a_view_that_is_loaded_again_is_another_origin(bank: Bank) -> None:
    feed, consumer = feed_of(bank), Consumer()
    for event in feed.read_events():
        consumer.take_event(event)
    place = feed.place
    bank.define("evens", "SELECT a.id, a.amount + 1 AS amount FROM bank.account a WHERE a.id < 4")
    bank.refresh("evens")
    for again in (feed, feed_of(bank, str(place))):
        events = list(again.read_events())
        assert isinstance(events[0], FeedReset)
        for event in events:
            consumer.take_event(event)
        assert consumer.state == bank.state_of("evens")
        assert {row[1] for row in consumer.state} == {1}


def test_a_warehouse_that_is_made_again_is_another_origin(bank: Bank) -> None:
    feed = feed_of(bank)
    list(feed.read_events())
    place = feed.place
    shutil.rmtree(bank.warehouse)
    bank.transfer(0, 2, 5)
    bank.refresh()
    again = feed_of(bank, str(place))
    consumer = Consumer()
    events = list(again.read_events())
    for event in events:
        consumer.take_event(event)
    assert isinstance(events[0], FeedReset)
    assert again.place.origin != place.origin
    assert consumer.state == bank.state_of("evens")


def test_a_place_that_was_folded_away_is_refused_with_the_way_out(
    bank: Bank, spark: SparkSession
) -> None:
    feed = feed_of(bank)
    list(feed.read_events())
    for amount in (5, 7):
        bank.transfer(0, 2, amount)
        bank.refresh()
    with Store.open(bank.warehouse, "test", time.time) as store:
        compact_view(store, spark, "evens", store.head.views["evens"].ts)
    with pytest.raises(HorizonError, match="no changes since") as caught:
        list(feed.read_events())
    assert "begin again from 0" in (caught.value.hint or "")
    with pytest.raises(HorizonError, match="no changes since 999"):
        list(feed_of(bank, "999").read_events())
    consumer = Consumer()
    for event in feed_of(bank).read_events():
        consumer.take_event(event)
    assert consumer.state == bank.state_of("evens")


def test_a_place_is_read_as_it_is_written() -> None:
    for place in (FeedPlace(0), FeedPlace(7, "order-lines-1.3f2a")):
        assert parse_place(str(place)) == place
    for text in ("", "-1", "x", "1@", "1@a b", "9" * 40):
        with pytest.raises(DefinitionError, match="no place in a feed"):
            parse_place(text)


def test_an_unknown_view_is_refused(bank: Bank) -> None:
    feed = ViewFeed(bank.warehouse, "ewens", FeedPlace(0), time.monotonic)
    with pytest.raises(HorizonError, match="not loaded") as caught:
        list(feed.read_events())
    assert "evens, odds" in (caught.value.detail or "")
