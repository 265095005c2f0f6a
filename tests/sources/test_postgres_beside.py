"""Reading beside a maintainer that has the slot: by a copy of it, which lives as long as the hold.

That is what `verify` of many views does. It never needs the slot itself, however long it takes
between two questions and however fast the maintainer acknowledges meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from tests.sources.postgres_shop import Shop, as_of
from viewkeeper.errors import SourceAwayError, ViewkeeperError
from viewkeeper.sources.postgres.decoding.slot import read_slot
from viewkeeper.testing.private_servers import PrivatePostgres

T = {"t": ["id", "v"]}
COLUMNS = ["id", "v"]
STREAMS = (
    "FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid"
    " WHERE s.database = current_database() AND s.temporary"
)


@pytest.fixture
def shop(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(postgres_server, tmp_path)
    opened.table("t (id int PRIMARY KEY, v text)")
    opened.run("INSERT INTO t VALUES (1, 'a')")
    yield opened
    opened.close()


DECODING = "viewkeeper.sources.postgres.decoding"


def end_copies(shop: Shop) -> None:
    """End the connections of copies, and wait until they have ended."""
    ended = shop.writer.execute(f"SELECT pg_terminate_backend(r.pid, 10000) {STREAMS}".encode())
    assert ended.fetchall() == [(True,)]


def test_a_copy_outlives_the_patience_of_the_server(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = shop.source()
    start = source.follow_tables(T)
    pa.array([b""], pa.binary())  # the first array imports much, which may take long
    monkeypatch.setattr("viewkeeper.sources.postgres.postgres_server.SENDER_SECONDS", 3.0)
    beside = shop.source()
    beside.begin_hold("verify", 60)
    shop.run("INSERT INTO t VALUES (2, 'b')")
    (boundary,) = source.look_for_transactions(start)
    source.acknowledge_position(boundary.position)
    # As long as it takes to verify the first view.
    time.sleep(4.5)
    with beside.prepare_snapshots(start, T) as opener:
        assert as_of(opener, "t", COLUMNS, start) == Counter({(1, "a"): 1})
    beside.end_hold("verify")
    assert source.look_for_transactions(boundary.position) == ()


def test_a_copy_that_is_lost_is_made_again_or_said_to_be_lost(shop: Shop) -> None:
    source = shop.source()
    start = source.follow_tables(T)
    beside = shop.source()
    beside.begin_hold("verify", 60)
    end_copies(shop)
    with beside.prepare_snapshots(start, T) as opener:
        assert as_of(opener, "t", COLUMNS, start) == Counter({(1, "a"): 1})
    end_copies(shop)
    shop.run("INSERT INTO t VALUES (2, 'b')")
    (boundary,) = source.look_for_transactions(start)
    source.acknowledge_position(boundary.position)
    for _ in range(2):
        with (
            pytest.raises(SourceAwayError, match="held of its log is gone"),
            beside.prepare_snapshots(start, T),
        ):
            pass
    beside.end_hold("verify")
    beside.begin_hold("again", 60)
    with beside.prepare_snapshots(boundary.position, T) as opener:
        assert len(as_of(opener, "t", COLUMNS, boundary.position)) == 2


def test_a_slot_that_is_advanced_just_now_loses_the_hold(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The maintainer's message arrives between the question for the slot and its copy."""
    source = shop.source()
    start = source.follow_tables(T)
    beside = shop.source()
    beside.begin_hold("verify", 60)
    with beside.prepare_snapshots(start, T):
        end_copies(shop)
    shop.run("INSERT INTO t VALUES (2, 'b')")
    (boundary,) = source.look_for_transactions(start)
    source.acknowledge_position(boundary.position)
    early = [True]

    def read_early(*arguments: Any) -> Any:
        slot = read_slot(*arguments)
        return replace(slot, confirmed=0) if slot and early and early.pop() else slot

    monkeypatch.setattr(f"{DECODING}.source_stream.read_slot", read_early)
    with (
        pytest.raises(SourceAwayError, match="held of its log is gone"),
        beside.prepare_snapshots(start, T),
    ):
        pass
    beside.end_hold("verify")


def test_holds_come_and_go_beside_a_maintainer_that_hurries(shop: Shop) -> None:
    source = shop.source()
    position = source.follow_tables(T)
    done, failed = threading.Event(), list[ViewkeeperError]()
    reached = [position]

    def write() -> None:
        with psycopg.connect(shop.url, autocommit=True) as writer:
            number = 1
            while not done.is_set():
                number += 1
                writer.execute("INSERT INTO t VALUES (%s, 'x')", (number,))
                time.sleep(0.002)

    def maintain() -> None:
        try:
            while not done.is_set():
                for boundary in source.look_for_transactions(reached[-1]):
                    source.acknowledge_position(boundary.position)
                    reached.append(boundary.position)
        except ViewkeeperError as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for run in (write, maintain)]
    for thread in threads:
        thread.start()
    try:
        for number in range(6):
            beside = shop.source()
            beside.begin_hold(f"verify {number}", 60)
            after = reached[-1]
            with beside.prepare_snapshots(after, T) as one:
                first = as_of(one, "t", COLUMNS, after)
            with beside.prepare_snapshots(after, T) as two:
                assert as_of(two, "t", COLUMNS, after) == first
            beside.end_hold(f"verify {number}")
            beside.close()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failed == []
