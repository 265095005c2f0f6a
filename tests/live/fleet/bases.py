"""The databases of a fleet test, and writers that know every state that they committed.

Every base has two tables of rows and a clock: one row with a counter that each transaction raises
first, which also makes transactions of one base wait for each other. A writer reads the whole base
inside its transaction, just before it commits, so the recorded states are the committed ones, in
order, by their counters. Views show the counters; that tells which states they are made from.

The row with id 0 is always there, with k = 0: a view over any state has rows that show counters.
"""

from __future__ import annotations

import random
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psycopg

from viewkeeper.testing.private_servers import PrivatePostgres

ROW_TABLES = ("item", "part")
COLUMNS = {"item": ("id", "one", "k", "v"), "part": ("id", "one", "k", "v"), "clock": ("one", "n")}
IDS, KEYS = 8, 3

State = dict[str, Counter[tuple[Any, ...]]]


class Base(ABC):
    """A database under its global name; `states` has what was committed, by counter."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.states: dict[int, State] = {}

    @property
    def last(self) -> int:
        """The counter of the newest committed state."""
        return max(self.states)

    @abstractmethod
    def source(self) -> str:
        """The source as it stands in a project file."""

    @abstractmethod
    def connect(self) -> Any:
        """A connection that does nothing by itself: transactions are begun and ended in SQL."""

    @abstractmethod
    def _begin(self) -> str: ...

    @abstractmethod
    def _types(self) -> str: ...

    def create(self) -> None:
        """The tables, with a few rows; the first state."""
        connection = self.connect()
        try:
            for table in ROW_TABLES:
                connection.execute(
                    f"CREATE TABLE {table} (id {self._types()} PRIMARY KEY, one {self._types()},"
                    f" k {self._types()}, v {self._types()})"
                )
            connection.execute(
                f"CREATE TABLE clock (one {self._types()} PRIMARY KEY, n {self._types()})"
            )
            self._created(connection)
            connection.execute(self._begin())
            connection.execute("INSERT INTO clock VALUES (0, 0)")
            for table in ROW_TABLES:
                for at in range(IDS // 2):
                    connection.execute(f"INSERT INTO {table} VALUES ({at}, 0, {at % KEYS}, {at})")
            self._commit(connection)
        finally:
            connection.close()

    @abstractmethod
    def _created(self, connection: Any) -> None:
        """What else tables need here."""

    def write(self, connection: Any, rng: random.Random, tables: Iterable[str]) -> None:
        """One transaction over several rows of these tables; one in ten is rolled back."""
        connection.execute(self._begin())
        connection.execute("UPDATE clock SET n = n + 1")
        chosen = list(tables)
        for _ in range(rng.randint(1, 4)):
            self._change(connection, rng, rng.choice(chosen))
        if rng.random() < 0.1:
            connection.execute("ROLLBACK")
        else:
            self._commit(connection)

    def _change(self, connection: Any, rng: random.Random, table: str) -> None:
        at, value = rng.randrange(IDS), rng.randrange(1000)
        key = rng.randrange(KEYS) if at else 0
        if at and rng.random() < 0.3:
            connection.execute(f"DELETE FROM {table} WHERE id = {at}")
        elif rng.random() < 0.3:
            connection.execute(f"UPDATE {table} SET v = {value} WHERE k = {key}")
        else:
            connection.execute(
                f"INSERT INTO {table} VALUES ({at}, 0, {key}, {value})"
                " ON CONFLICT (id) DO UPDATE SET k = excluded.k, v = excluded.v"
            )

    def _commit(self, connection: Any) -> None:
        state = {
            table: Counter(
                tuple(row)
                for row in connection.execute(f"SELECT {', '.join(columns)} FROM {table}")
            )
            for table, columns in COLUMNS.items()
        }
        connection.execute("COMMIT")
        ((_, n),) = state["clock"]
        self.states[n] = state


class SqliteBase(Base):
    """A SQLite file."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name)
        self.file = folder / f"{name}.db"

    def source(self) -> str:
        return f"{{kind: sqlite, path: '{self.file}'}}"

    def connect(self) -> Any:
        return sqlite3.connect(self.file, timeout=60, isolation_level=None)

    def _begin(self) -> str:
        return "BEGIN IMMEDIATE"

    def _types(self) -> str:
        return "INTEGER"

    def _created(self, connection: Any) -> None:
        connection.execute("PRAGMA journal_mode = WAL")


class PostgresBase(Base):
    """A database of a private PostgreSQL server."""

    def __init__(self, name: str, server: PrivatePostgres, database: str) -> None:
        super().__init__(name)
        self._url = server.url_of(database)
        with psycopg.connect(server.url_of(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {database}")

    def source(self) -> str:
        return f"{{kind: postgres, url: '{self._url}'}}"

    def connect(self) -> Any:
        return psycopg.connect(self._url, autocommit=True)

    def _begin(self) -> str:
        return "BEGIN"

    def _types(self) -> str:
        return "bigint"

    def _created(self, connection: Any) -> None:
        for table in COLUMNS:
            connection.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")


class Writers:
    """A thread per base that writes until it is left; what goes wrong is raised then."""

    def __init__(
        self,
        bases: Iterable[Base],
        seed: int,
        pause_seconds_max: float = 0.1,
        tables: Iterable[str] = ROW_TABLES,
    ) -> None:
        self._stop = threading.Event()
        self._pause = pause_seconds_max
        self._tables = tuple(tables)
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._write, args=(base, random.Random(f"{seed} {base.name}")))
            for base in bases
        ]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _write(self, base: Base, rng: random.Random) -> None:
        try:
            connection = base.connect()
            try:
                while not self._stop.wait(rng.uniform(0, self._pause)):
                    base.write(connection, rng, self._tables)
            finally:
                connection.close()
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits for us
            self._errors.append(error)
