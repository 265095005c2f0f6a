"""What every kind says of itself: shapes, keys, health, advice; errors that name the way out.

A source that is not there is away within its time limits, and a password is nowhere: not in a
description, not in an error, not in what is sent to tasks.
"""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal

import pytest

from tests.sources.conformance.changes import ARROW, Insert, Update, Word, inserts
from tests.sources.conformance.database import NAME, Database
from tests.sources.conformance.reading import Follower, look_all
from viewkeeper.errors import SchemaError, SourceAwayError, SourceError, ViewkeeperError
from viewkeeper.updates.source_protocol import CurrentNames, Finding, Source
from viewkeeper.view.definition import Field

STOCK: dict[str, Word] = {
    "sku": "int",
    "name": "text",
    "price": "decimal",
    "since": "date",
    "seen": "timestamp",
    "weight": "double",
    "image": "bytes",
    "sold": "bool",
}
ROW = (1, "x", Decimal("1.5"), None, None, 0.5, b"\0", True)
TABLES = {"stock": list(STOCK)}
AWAY_SECONDS = 15.0


@pytest.fixture
def source(database: Database) -> Source:
    database.table("stock", STOCK, key=["sku"], indexes=[["name"]])
    database.commit(Insert("stock", ROW))
    return database.source()


def test_schema_and_keys(database: Database, source: Source) -> None:
    stock = source.describe_table("stock")
    shape = {field.name: field for field in stock.fields}
    assert [shape[name] for name in STOCK] == [Field(n, ARROW[word]) for n, word in STOCK.items()]
    assert stock.refused == {}
    assert stock.names == CurrentNames("stock", {name: name for name in shape})
    assert stock.key == (("sku",) if database.enforces_keys else ())
    assert stock.is_indexed(["sku"]) is stock.is_indexed(["name"]) is database.has_indexes
    assert stock.is_indexed(["price"]) is False
    assert stock.can_find_by_key(["sku"])
    assert stock.can_find_by_key(["weight", "name"])
    assert source.name == NAME


def test_what_is_said_of_it_is_for_people(database: Database, source: Source) -> None:
    described = source.describe_source()
    assert described.strip()
    advice = source.read_health(()).advice
    assert advice is None or (advice.strip() and "  " not in advice)
    for secret in database.secrets:
        assert secret not in described + (advice or "")


def test_health_before_during_and_after(database: Database, source: Source) -> None:
    assert source.read_health([]).followed is False
    follower = Follower(database, source)
    health = source.read_health([follower.start])
    assert health.followed is True
    assert health.position is not None
    assert health.position >= follower.start
    assert health.warnings == ()
    for number in range(3):
        database.commit(Insert("stock", (number + 2, *ROW[1:])))
    follower.look()
    health = source.read_health([follower.start, follower.newest])
    assert health.position is not None
    assert health.position >= follower.newest
    assert health.retained >= 0
    assert health.behind.keys() <= {follower.start, follower.newest}
    if behind := health.behind.get(follower.start):
        assert behind.changes >= 3
        assert abs(behind.oldest_at - time.time()) < 60
    if behind := health.behind.get(follower.newest):
        assert behind.changes == 0
    source.detach_source()
    assert source.read_health([]).followed is False


def test_health_is_read_beside_the_maintainer(database: Database, source: Source) -> None:
    """As `status` does it: with a source object of its own, which changes nothing."""
    follower = Follower(database, source)
    database.commit(Insert("stock", (2, *ROW[1:])))
    beside = database.source()
    assert beside.read_health([follower.start]).followed is True
    beside.close()
    follower.look()
    follower.check_intervals()


def test_doctor_finds_nothing_wrong_and_says_what_is(database: Database, source: Source) -> None:
    for follows in (False, True):
        found = source.diagnose_source(TABLES)
        assert found
        assert [each for each in found if each.state == "bad"] == []
        if not follows:
            source.follow_tables(TABLES)
    missing = source.diagnose_source({"stok": ["sku"]})
    assert "bad" in {each.state for each in missing}
    for each in (*found, *missing):
        assert isinstance(each, Finding)
        assert each.check.strip()
        assert each.text.strip()
        assert not [secret for secret in database.secrets if secret in repr(each)]


def test_detaching_leaves_nothing_behind(database: Database, source: Source) -> None:
    before = list(database.leftovers())
    assert source.detach_source().was_following is False
    follower = Follower(database, source)
    database.commit(Update("stock", ROW, (2, *ROW[1:])))
    follower.look()
    detached = source.detach_source()
    assert detached.was_following
    assert detached.capture_dropped
    assert detached.other_readers == ()
    assert list(database.leftovers()) == before
    assert source.detach_source().was_following is False
    database.commit(Insert("stock", (3, *ROW[1:])))
    again = Follower(database, source)
    database.commit(Insert("stock", (4, *ROW[1:])))
    again.look()
    again.check_snapshot(again.newest)


ASKING_A_TABLE: dict[str, Callable[[Source, str], object]] = {
    "describe": lambda source, table: source.describe_table(table),
    "follow": lambda source, table: source.follow_tables({table: ["sku"]}),
}
ASKING_A_COLUMN: dict[str, Callable[[Source, str], object]] = {
    "follow": lambda source, column: source.follow_tables({"stock": ["sku", column]}),
}


def test_missing_tables_and_columns_name_the_nearest(database: Database, source: Source) -> None:
    """By every method, also when something is followed already."""
    for _ in range(2):
        for method, ask in ASKING_A_TABLE.items():
            with pytest.raises(SchemaError) as caught:
                ask(source, "stok")
            check_message(caught.value, "stok", "stock", method)
        for method, ask in ASKING_A_COLUMN.items():
            with pytest.raises(SchemaError) as caught:
                ask(source, "nam")
            check_message(caught.value, "nam", "name", method)
        source.follow_tables(TABLES)


def check_message(error: SourceError, asked: str, nearest: str, method: str) -> None:
    assert error.message.startswith(f'source "{NAME}": '), method
    assert f'"{asked}"' in error.message, method
    assert f'"{nearest}"' in (error.hint or ""), f"{method}: {error}"


def methods(source: Source) -> Iterator[tuple[str, Callable[[], object]]]:
    """Everything that needs the database."""
    yield "schema", lambda: source.describe_table("stock")
    yield "follow", lambda: source.follow_tables(TABLES)
    yield "health", lambda: source.read_health([])
    yield "look", lambda: source.look_for_transactions(0)


def test_a_database_that_is_not_there_is_away(database: Database, source: Source) -> None:
    absent = database.source(database.absent(), home="absent")
    for name, ask in methods(absent):
        if name == "look":
            continue
        begin = time.monotonic()
        with pytest.raises(SourceAwayError) as caught:
            ask()
        assert time.monotonic() - begin < AWAY_SECONDS, name
        assert caught.value.message.startswith(f'source "{NAME}": ')
        assert caught.value.hint
        check_secrets(database, caught.value)
    begin = time.monotonic()
    (finding, *_) = [each for each in absent.diagnose_source(TABLES) if each.state == "bad"]
    assert finding.text
    assert time.monotonic() - begin < AWAY_SECONDS
    assert not [secret for secret in database.secrets if secret in repr(finding)]


def check_secrets(database: Database, error: ViewkeeperError) -> None:
    told = [str(error), repr(error), repr(error.__dict__), repr(error.__cause__)]
    if error.__context__ is not None and not error.__suppress_context__:
        told.append(str(error.__context__))
    for secret in database.secrets:
        assert not [text for text in told if secret in text]


def test_a_source_that_went_away_comes_back(database: Database, source: Source) -> None:
    """Its connections are lost in between; whoever asks next gets new ones."""
    follower = Follower(database, source)
    database.commit(Insert("stock", (2, *ROW[1:])))
    follower.look()
    source.close()
    database.commit(Insert("stock", (3, *ROW[1:])))
    follower.look()
    follower.check_intervals()
    follower.check_snapshot(follower.start)


def test_openers_hold_no_secret(database: Database, source: Source) -> None:
    follower = Follower(database, source)
    database.commit(Insert("stock", (2, *ROW[1:])))
    with source.prepare_snapshots(follower.start, TABLES) as opener:
        packed = pickle.dumps(opener)
        for secret in database.secrets:
            assert secret.encode() not in packed
            assert secret not in repr(opener)
    for path in (database.folder / "home").rglob("*"):
        for secret in database.secrets:
            assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_errors_of_refused_logins_hold_no_secret(
    database: Database, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong password is told without being repeated, in either spelling."""
    if not database.secrets:
        pytest.skip("a source of this kind has no password")
    variable = str(database.options()["url"]).partition("${")[2].partition("}")[0]
    monkeypatch.setenv(variable, "wrong%20one")
    refused = database.source(home="refused")
    with pytest.raises(SourceAwayError) as caught:
        refused.describe_table("stock")
    for spelling in ("wrong%20one", "wrong one"):
        assert spelling not in str(caught.value)
        assert spelling not in repr(caught.value.__dict__)


def test_a_server_that_does_not_answer_is_away_in_time(
    database: Database, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody takes the connection and never says a word."""
    if "url" not in database.options() or database.options().get("capture") == "triggers":
        pytest.skip("a source of this kind has no server, or connects as another one does")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        before = str(database.server.port)  # type: ignore[attr-defined]  # those with a url have it
        url = str(database.options()["url"]).replace(f":{before}/", f":{port}/")
        if database.kind == "postgres":
            url += "?connect_timeout=2"
        monkeypatch.setattr("viewkeeper.sources.mariadb.server_connection.CONNECT_SECONDS", 1.0)
        deaf = database.source({**database.options(), "url": url}, home="deaf")
        begin = time.monotonic()
        with pytest.raises(SourceAwayError) as caught, closing(deaf):
            deaf.read_health([])
        assert time.monotonic() - begin < AWAY_SECONDS
        check_secrets(database, caught.value)


def test_everything_may_be_asked_of_several_threads(database: Database, source: Source) -> None:
    follower = Follower(database, source)
    database.commit(*inserts("stock", [(n, *ROW[1:]) for n in range(2, 6)]))
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask) for _ in range(4) for ask in calls(follower)]
        for each in asked:
            each.result(60)
    follower.look()
    follower.check_intervals()


def calls(follower: Follower) -> Iterator[Callable[[], object]]:
    source, start = follower.source, follower.start
    yield lambda: look_all(source, start)
    yield lambda: list(
        source.read_changes(follower.tables, start, look_all(source, start)[-1].position)
    )
    yield lambda: source.describe_table("stock")
    yield lambda: source.read_health([start])
    yield lambda: follower.check_snapshot(start)
