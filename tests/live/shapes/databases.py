"""The databases under test, each reached as its users reach it: plain sessions and their errors.

A session is in autocommit, so that a transaction is what stands between BEGIN and COMMIT. Nothing
of Viewkeeper is used to read or to write.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg
import pymysql

from tests.live.shapes.case import Family
from viewkeeper.testing.private_servers import PrivateMariadb, PrivatePostgres

ERRORS = (sqlite3.Error, psycopg.Error, pymysql.err.Error)
_UNKNOWN_TABLE = 1146


class Session:
    """One connection."""

    def __init__(self, connection: Any, begin: str = "BEGIN") -> None:
        self._connection = connection
        self._begin = begin

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements one by one; the last one's rows."""
        rows: Sequence[tuple[Any, ...]] = ()
        cursor = self._connection.cursor()
        try:
            for statement in statements:
                cursor.execute(self._begin if statement == "BEGIN" else statement)
                rows = cursor.fetchall() if cursor.description else ()
        finally:
            cursor.close()
        return list(rows)

    def close(self) -> None:
        self._connection.close()


class Database(Protocol):
    """A database with tables to follow."""

    name: str
    family: Family

    def create(self) -> None: ...
    def source(self) -> str: ...
    def connect(self) -> Session: ...
    def drop(self) -> None: ...


@contextmanager
def session(database: Database) -> Iterator[Session]:
    found = database.connect()
    try:
        yield found
    finally:
        found.close()


class Sqlite:
    """A SQLite file in WAL mode."""

    name = "sqlite"
    family: Family = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self) -> None:
        with session(self) as own:
            own.run("PRAGMA journal_mode = WAL")

    def source(self) -> str:
        return f"{{kind: sqlite, path: '{self._path}'}}"

    def connect(self) -> Session:
        connection = sqlite3.connect(
            self._path, timeout=60, isolation_level=None, check_same_thread=False
        )
        return Session(connection, "BEGIN IMMEDIATE")

    def drop(self) -> None:
        """The file goes with its folder."""


class Postgres:
    """A database of a PostgreSQL server, by a superuser or by one who owns it and may replicate."""

    family: Family = "postgres"

    def __init__(self, server: PrivatePostgres, name: str, user: str, capture: str) -> None:
        self.name = name
        self._server = server
        self._user = user
        self._capture = capture
        self._database = f"shapes_{name}_{time.time_ns()}".replace("-", "_")

    def create(self) -> None:
        exists = f"SELECT 1 FROM pg_roles WHERE rolname = '{self._user}'"
        with psycopg.connect(self._server.url_of(), autocommit=True) as own:
            if not own.execute(exists.encode()).fetchall():
                role = f"CREATE ROLE {self._user} LOGIN REPLICATION PASSWORD 'secret'"
                own.execute(role.encode())
            own.execute(f"CREATE DATABASE {self._database} OWNER {self._user}".encode())

    def source(self) -> str:
        url = self._server.url_of(self._database, self._user)
        return f"{{kind: postgres, url: '{url}', capture: {self._capture}}}"

    def connect(self) -> Session:
        url = self._server.url_of(self._database, self._user)
        return Session(psycopg.connect(url, autocommit=True, prepare_threshold=None))

    def drop(self) -> None:
        """A server has few slots."""
        slots = f"FROM pg_replication_slots WHERE database = '{self._database}'"
        drop = f"SELECT pg_drop_replication_slot(slot_name) {slots} AND NOT active"
        with psycopg.connect(self._server.url_of(), autocommit=True) as own:
            end = time.monotonic() + 20
            while own.execute(f"SELECT 1 {slots}".encode()).fetchall():
                own.execute(drop.encode())
                assert time.monotonic() < end, "a slot stays in use"
                time.sleep(0.02)


class Mariadb:
    """A database of a MariaDB server."""

    name = "mariadb"
    family: Family = "mariadb"

    def __init__(self, server: PrivateMariadb) -> None:
        self._server = server
        self._database = f"shapes_{time.time_ns()}"

    def create(self) -> None:
        own = self._session(None)
        own.run(f"CREATE DATABASE {self._database}")
        own.close()

    def source(self) -> str:
        return f"{{kind: mariadb, url: '{self._server.url_of(self._database)}'}}"

    def connect(self) -> Session:
        return self._session(self._database)

    def _session(self, database: str | None) -> Session:
        parts = urlsplit(self._server.url_of())
        connection = pymysql.connect(
            host=parts.hostname or "",
            port=parts.port or 0,
            user=parts.username,
            password=parts.password or "",
            database=database,
            autocommit=True,
            # Two writers' gaps must not meet.
            init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        )
        return Session(connection)

    def drop(self) -> None:
        """Nothing of ours is in it."""


def is_missing(error: Exception) -> bool:
    """Whether a statement failed because there is no table of that name."""
    match error:
        case sqlite3.OperationalError():
            return "no such table" in str(error)
        case psycopg.errors.UndefinedTable():
            return True
        case pymysql.err.ProgrammingError():
            return bool(error.args[0] == _UNKNOWN_TABLE)
        case _:
            return False
