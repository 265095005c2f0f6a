"""What a source says of news without being asked: it comes to rest, and a commit wakes it.

A hint decides nothing, since whoever is told that there is nothing looks all the same a little
later. So two things are asked of it: that it comes to rest while nothing happens, or the loop would
look without end; and that it says so when something is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.sources.conformance.changes import Insert
from tests.sources.conformance.database import Database
from tests.sources.conformance.reading import Follower
from viewkeeper.sources.stream.socket_hint import NO_STREAM, RESTLESS_SECONDS, SocketHint
from viewkeeper.updates.source_protocol import HintedSource, Source

WAIT_SECONDS = 60.0


def wait_until(is_met: Callable[[], bool]) -> bool:
    end = time.monotonic() + WAIT_SECONDS
    while not (met := is_met()) and time.monotonic() < end:
        time.sleep(0.005)
    return met


@pytest.fixture
def follower(database: Database) -> Follower:
    """A source that has reported something, so that its stream is open."""
    database.table("stock", {"id": "int", "v": "text"}, key=["id"])
    follower = Follower(database, database.source())
    database.commit(Insert("stock", (1, "a")))
    assert wait_until(lambda: bool(follower.look()))
    return follower


def hinted(follower: Follower) -> HintedSource:
    source: Source = follower.source
    if not isinstance(source, HintedSource) or source.has_news() is None:
        pytest.skip("it cannot tell")
    return source


def test_it_comes_to_rest_and_a_commit_is_news(database: Database, follower: Follower) -> None:
    source = hinted(follower)

    def rests() -> bool:
        follower.look()
        time.sleep(RESTLESS_SECONDS)
        return source.has_news() is False

    for number in range(2, 6):
        assert wait_until(rests), "it looks without end"
        database.commit(Insert("stock", (number, "b")))
        assert wait_until(lambda: source.has_news() is True), "a commit is no news"
        assert wait_until(lambda: bool(follower.look())), "the news is of nothing"
    follower.check_intervals()


def test_databases_with_a_stream_can_tell(database: Database, follower: Follower) -> None:
    source = follower.source
    told = isinstance(source, HintedSource) and source.has_news() is not None
    assert told == (database.kind == "sqlite" or _has_stream(database))


def _has_stream(database: Database) -> bool:
    is_triggered = database.options().get("capture") == "triggers"
    return database.kind == "mariadb" or (database.kind == "postgres" and not is_triggered)


def test_a_stream_that_is_not_open_cannot_tell() -> None:
    assert SocketHint().has_news(NO_STREAM) is None


def test_bytes_that_nobody_reads_are_news_once() -> None:
    hint = SocketHint()
    hint.note_look(40, is_read=False, is_found=False)
    time.sleep(RESTLESS_SECONDS)
    hint.note_look(40, is_read=False, is_found=False)
    assert hint.has_news(40) is False
    assert wait_until(lambda: hint.has_news(41) is True)


def test_looks_in_vain_are_further_and_further_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is busy with other tables sends bytes all the time."""
    now = [100.0]
    monkeypatch.setattr("viewkeeper.sources.stream.socket_hint.time.monotonic", lambda: now[0])
    hint = SocketHint()
    pauses = []
    for waiting in range(8):
        hint.note_look(waiting, is_read=True, is_found=False)
        looked_at = now[0]
        while not hint.has_news(waiting + 1):
            now[0] += 0.0005
        pauses.append(now[0] - looked_at)
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.003
    assert 0.019 < pauses[-1] < 0.021
    hint.note_look(9, is_read=True, is_found=True)
    assert hint.has_news(9) is True
