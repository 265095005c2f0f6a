"""A server that stops, or a network that is cut, at every step at which the engine uses a source.

Whatever the step, the source is away afterwards and nothing else has happened: no error gets past
the place where sources are used, what was read before stays read, and when the server is back all
goes on. The servers are real; the network is a proxy in front of them.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from tests.network import Proxy
from viewkeeper.engine.connections.open_sources import Connections, PreparedOpeners
from viewkeeper.errors import SourceAwayError, ViewkeeperError
from viewkeeper.sources.postgres import postgres_server as postgres
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres
from viewkeeper.updates.source_protocol import Lookup, Opener, Source
from viewkeeper.view.definition import Relation

TABLES = {"t": ["id", "v"]}
LOOKUP = Lookup(0, Relation("shop", "t"), ("id", "v"), (), (), None)


class Database:
    """A database behind a network, and the connections of a project to it."""

    def __init__(self, kind: Mapping[str, Any], write: Callable[[str], None], home: Path) -> None:
        options = {"statement_seconds": 1, **kind}
        name = str(options.pop("kind"))
        settings = SourceSettings("shop", name, options, str(home), str(home))
        self.now = 0.0
        self.told: list[ViewkeeperError] = []
        self.connections = Connections({"shop": settings}, uuid.uuid4().hex, lambda: self.now)
        self.connections.report_to(self.told.append)
        self.write = write
        write("CREATE TABLE t (id int PRIMARY KEY, v varchar(9))")

    def follow(self) -> None:
        self.at = self.attempt(lambda source: source.follow_tables(TABLES))

    def attempt(self, action: Callable[[Source], Any]) -> Any:
        return self.connections.try_action("shop", action)

    def comes_back(self) -> None:
        """A source that is away is tried again, and all that was committed is there."""
        self.write("INSERT INTO t VALUES (99, 'after')")
        end = time.monotonic() + 60
        found = None
        while not found:
            assert time.monotonic() < end, self.connections.away
            self.now += 100
            time.sleep(0.01)
            found = self.attempt(lambda source: source.look_for_transactions(self.at))
        last = found[-1].position
        rows = self.attempt(lambda source: list(source.read_changes(TABLES, self.at, last)))
        assert 99 in [row["id"] for _, batch in rows for row in batch.to_pylist()]
        assert not self.connections.away


@contextmanager
def postgres_behind(
    proxy: int, server: PrivatePostgres, folder: Path, capture: str
) -> Iterator[Database]:
    name = f"outage_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server.url_of(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")

    def write(statement: str) -> None:
        with psycopg.connect(server.url_of(name), autocommit=True) as connection:
            connection.execute(statement.encode())

    url = server.url_of(name).replace(f":{server.port}/", f":{proxy}/")
    database = Database({"kind": "postgres", "url": url, "capture": capture}, write, folder)
    write("ALTER TABLE t REPLICA IDENTITY FULL")
    database.follow()
    try:
        yield database
    finally:
        database.now += 100
        database.attempt(lambda source: source.detach_source())
        database.connections.close()


@contextmanager
def mariadb_behind(proxy: int, server: PrivateMariadb, folder: Path, _: str) -> Iterator[Database]:
    name = f"outage_{uuid.uuid4().hex[:8]}"

    def write(statement: str, database: str | None = name) -> None:
        arguments: dict[str, Any] = {"user": "root", "password": "secret", "database": database}
        connection: Any = pymysql.connect(host="127.0.0.1", port=server.port, **arguments)
        with closing(connection):
            connection.cursor().execute(statement)
            connection.commit()

    write(f"CREATE DATABASE {name}", None)
    url = server.url_of(name).replace(f":{server.port}/", f":{proxy}/")
    database = Database({"kind": "mariadb", "url": url}, write, folder)
    database.follow()
    try:
        yield database
    finally:
        database.connections.close()


Behind = tuple[Database, Proxy]


@pytest.fixture(params=["postgres decoding", "postgres triggers", "mariadb"])
def behind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Behind]:
    kind, _, capture = str(request.param).partition(" ")
    server = request.getfixturevalue(f"{kind}_server")
    with Proxy(server.port) as proxy:
        opened: Any = postgres_behind if kind == "postgres" else mariadb_behind
        with opened(proxy.port, server, tmp_path, capture) as database:
            yield database, proxy


def prepared(stack: ExitStack, database: Database) -> Opener:
    positions, tables = {"shop": database.at}, {"shop": TABLES}
    return PreparedOpeners(stack, database.connections, positions, tables)["shop"]


def test_a_reset_at_any_step_is_the_source_being_away(behind: Behind) -> None:
    database, proxy = behind
    database.write("INSERT INTO t VALUES (1, 'one')")
    found = database.attempt(lambda source: source.look_for_transactions(database.at))
    last = found[-1].position
    steps: dict[str, Callable[[Source], object]] = {
        "look": lambda source: source.look_for_transactions(database.at),
        "changes": lambda source: list(source.read_changes(TABLES, database.at, last)),
        "follow": lambda source: source.follow_tables(TABLES),
        "acknowledge": lambda source: source.acknowledge_position(database.at),
        "schema": lambda source: source.describe_table("t"),
    }
    for step in steps.values():
        proxy.reset()
        database.now += 100
        database.attempt(step)
    database.comes_back()


def test_a_reset_while_a_snapshot_is_used(behind: Behind) -> None:
    database, proxy = behind
    with ExitStack() as stack:
        snapshot = prepared(stack, database)()
        stack.callback(snapshot.close)
        assert snapshot.answer_lookup(LOOKUP, database.at).rows.num_rows == 0
        proxy.reset()
        with pytest.raises(SourceAwayError):
            snapshot.answer_lookup(LOOKUP, database.at)
    database.comes_back()


def wait_until_shut(server: PrivatePostgres) -> None:
    """Wait until a server that is ending has ended the sessions and takes no new ones."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            psycopg.connect(server.url_of(), connect_timeout=2).close()
        except psycopg.OperationalError:
            return
    raise AssertionError("it goes on")


def test_a_server_that_stops_while_a_snapshot_is_open(tmp_path: Path) -> None:
    """As `pg_ctl -m fast stop` does it: what was read stays, and the source is away."""
    server = PrivatePostgres(tmp_path / "server")
    server.start()
    try:
        with postgres_behind(server.port, server, tmp_path, "decoding") as database:
            with ExitStack() as stack:
                snapshot = prepared(stack, database)()
                rows = snapshot.answer_lookup(LOOKUP, database.at).rows
                snapshot.close()
                os.kill(server.pid, signal.SIGINT)
                wait_until_shut(server)
            assert rows.num_rows == 0
            assert list(database.connections.away) == ["shop"]
            assert [type(error) for error in database.told] == [SourceAwayError]
            # The server ends when we have noticed at all our connections.
            database.now += 100
            assert (
                database.attempt(lambda source: source.look_for_transactions(database.at)) is None
            )
            server.stop()
            server.start()
            database.comes_back()
    finally:
        server.stop()


def test_a_silent_network_is_not_waited_for_without_a_limit(
    behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody ever ends the connections: neither the server nor the network says a word."""
    database, proxy = behind
    monkeypatch.setattr(postgres, "CONNECT_SECONDS", 0)
    monkeypatch.setattr("viewkeeper.sources.mariadb.server_connection.CONNECT_SECONDS", 1)
    database.connections.close()
    assert database.attempt(lambda source: source.look_for_transactions(database.at)) == ()
    proxy.go_silent()
    assert database.attempt(lambda source: source.look_for_transactions(database.at)) is None
    assert list(database.connections.away) == ["shop"]
    # The server, too, would wait for the dead connections, and keep our slot for them.
    proxy.reset()
    proxy.mend()
    database.comes_back()
