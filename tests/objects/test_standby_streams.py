"""A standby takes over a source whose change stream its server keeps for one process.

PostgreSQL gives a replication slot to one connection. That of a process that was killed ends with
it. One that is stopped keeps its connection, which the server ends only after a minute of silence;
so whoever has taken the warehouse over ends it. MariaDB keeps nothing for anybody.

How long a takeover takes is printed. It is compared with the constants of the protocol only: the
lease must have run out, and the server's patience must not.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from tests.faults.processes import Process
from tests.objects.s3_server import PrivateS3
from tests.objects.test_standby import wait_for_rows
from tests.sources.postgres_shop import Shop as Database
from viewkeeper.engine.warehouse_lease import LEASE_SECONDS
from viewkeeper.errors import SourceAwayError
from viewkeeper.sources.postgres.postgres_server import SENDER_SECONDS
from viewkeeper.storage.local_lock import LockHolder
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres
from viewkeeper.updates.source_protocol import InheritedSource


@dataclass(frozen=True, slots=True)
class StreamShop:
    """A project over one table of a server, and a way to run statements there."""

    folder: Path
    run: Callable[[str], list[tuple[Any, ...]]]

    def write_project(self, source: str, warehouse: str, storage: str) -> None:
        text = f"warehouse: {warehouse}\n{storage}freshness: 0s\nsources:\n  shop: {source}\n"
        (self.folder / "viewkeeper.yml").write_text(text)
        (self.folder / "views").mkdir()
        sql = "CREATE MATERIALIZED VIEW v AS SELECT t.id, t.v FROM shop.t\n"
        (self.folder / "views" / "v.sql").write_text(sql)

    def start(self, *options: str) -> Process:
        return Process("tests.objects.runner", [str(self.folder), *options])

    def add_row(self, number: int) -> None:
        self.run(f"INSERT INTO t VALUES ({number}, 'r{number}')")

    def wait_until_right(self, seconds: float = 90.0) -> None:
        wait_for_rows(self.folder, "v", Counter(self.run("SELECT id, v FROM t")), seconds)


@pytest.fixture
def postgres_shop(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[StreamShop]:
    name = f"standby_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres_server.url_of(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    with psycopg.connect(postgres_server.url_of(name), autocommit=True) as writer:

        def run(statement: str) -> list[tuple[Any, ...]]:
            answer = writer.execute(statement.encode())
            return answer.fetchall() if answer.description else []

        run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        run("ALTER TABLE t REPLICA IDENTITY FULL")
        run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        yield StreamShop(tmp_path, run)
        run(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            " WHERE database = current_database() AND NOT active"
        )


def place_of(place: str, s3: PrivateS3) -> tuple[str, str]:
    """The address of a new warehouse, and what the project file says of its storage."""
    return ("./warehouse", "") if place == "disk" else (s3.new_url(), s3.yaml)


def take_over(shop: StreamShop, by: signal.Signals) -> float:
    """Let a standby take over from a maintainer; seconds from its silence to the next commit."""
    with shop.start() as first:
        assert first.wait_for("ready", 90.0) == "ready epoch 1"
        shop.wait_until_right()
        shop.add_row(10)
        first.wait_for("batch", 90.0)
        with shop.start("--standby") as second:
            second.wait_for("begins", 90.0)
            shop.add_row(11)
            shop.wait_until_right()
            os.kill(first.pid, by)
            began = time.monotonic()
            shop.add_row(12)
            assert second.wait_for("ready", 90.0) == "ready epoch 2"
            second.wait_for("batch", 90.0)
            taken = time.monotonic() - began
            shop.wait_until_right()
            assert not any(line.startswith("trouble") for line in second.lines), second.output
            if by == signal.SIGSTOP:
                os.kill(first.pid, signal.SIGCONT)
                assert first.ended() == 2
                first.listened()
                assert "another process has taken it over" in first.output, first.output
            shop.add_row(13)
            shop.wait_until_right()
            assert second.stop(signal.SIGTERM) == 0
    # What both have left behind is good for a third.
    with shop.start() as third:
        third.wait_for("ready", 90.0)
        shop.add_row(14)
        shop.wait_until_right()
        assert not any(line.startswith("trouble") for line in third.lines), third.output
        assert third.stop(signal.SIGTERM) == 0
    return taken


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("place", ["disk", "s3"])
def test_a_slot_is_taken_over(
    postgres_shop: StreamShop,
    postgres_server: PrivatePostgres,
    s3: PrivateS3,
    place: str,
    by: signal.Signals,
) -> None:
    name = postgres_shop.run("SELECT current_database()")[0][0]
    url = postgres_server.url_of(name)
    postgres_shop.write_project(f"{{kind: postgres, url: '{url}'}}", *place_of(place, s3))
    taken = take_over(postgres_shop, by)
    print(f"PostgreSQL, {place}, {by.name}: the next commit after {taken:.1f} s")
    assert taken < LEASE_SECONDS + SENDER_SECONDS / 2


@pytest.fixture
def database(postgres_server: PrivatePostgres, tmp_path: Path) -> Iterator[Database]:
    opened = Database(postgres_server, tmp_path)
    opened.without_rights()
    opened.table("t (id int PRIMARY KEY, v text)")
    yield opened
    opened.close()


def test_only_a_predecessor_loses_its_slot(database: Database) -> None:
    """Not another process that has the same slot, as that of a copied project; a role needs no
    rights to end what is its own."""
    tables, here = {"t": ["id", "v"]}, LockHolder.this_process("", 0.0)
    first = database.source()
    start = first.follow_tables(tables)
    database.run("INSERT INTO t VALUES (1, 'a')")
    second = database.source()
    assert isinstance(second, InheritedSource)
    for other in (replace(here, pid=here.pid + 1), replace(here, host="elsewhere")):
        second.inherit_from(other.connection_name)
        with pytest.raises(SourceAwayError, match="is used by another process"):
            second.look_for_transactions(start)
    (boundary,) = first.look_for_transactions(start)
    second.inherit_from(here.connection_name)
    assert second.look_for_transactions(start) == (boundary,)


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP])
def test_a_binlog_is_read_on(
    mariadb_server: PrivateMariadb, tmp_path: Path, by: signal.Signals
) -> None:
    name = f"standby_{uuid.uuid4().hex[:8]}"
    arguments: dict[str, Any] = {"user": "root", "password": "secret", "autocommit": True}
    with closing(
        pymysql.connect(host="127.0.0.1", port=mariadb_server.port, **arguments)
    ) as writer:

        def run(statement: str) -> list[tuple[Any, ...]]:
            with writer.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())

        run(f"CREATE DATABASE {name}")
        run(f"USE {name}")
        run("CREATE TABLE t (id int PRIMARY KEY, v varchar(20))")
        shop = StreamShop(tmp_path, run)
        url = mariadb_server.url_of(name)
        shop.write_project(f"{{kind: mariadb, url: '{url}'}}", "./warehouse", "")
        taken = take_over(shop, by)
    print(f"MariaDB, disk, {by.name}: the next commit after {taken:.1f} s")
    assert taken < LEASE_SECONDS + SENDER_SECONDS / 2
