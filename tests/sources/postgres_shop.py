"""A PostgreSQL database per test, sources on it, and what a test compares them by.

The state of a table is a bag of rows, told in two ways that must agree: rows minus tail of a
snapshot, and the rows that were there in the beginning plus the changes since.
"""

from __future__ import annotations

import itertools
import pickle
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import psycopg
import pyarrow as pa

from viewkeeper.sources.kinds import open_source
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.testing.private_servers import PrivatePostgres
from viewkeeper.updates.source_protocol import COUNT, Answer, Lookup, Opener, Snapshot, Source
from viewkeeper.view.definition import Relation

Row = tuple[object, ...]
_numbers = itertools.count()


class Shop:
    """A database of its own on a server, a writer in it, and the sources that a test opens."""

    def __init__(self, server: PrivatePostgres, home: Path) -> None:
        self.server = server
        self.home = home
        self.database = f"shop_{next(_numbers)}"
        with psycopg.connect(server.url_of(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self.database}".encode())
        self.url = server.url_of(self.database)
        self._sources: list[Source] = []
        self._writers: list[psycopg.Connection[Any]] = []
        self.writer = self.connect()

    def connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(self.url, autocommit=True)
        self._writers.append(connection)
        return connection

    def run(self, *statements: str) -> None:
        """One transaction per statement."""
        for statement in statements:
            self.writer.execute(statement.encode())

    def transaction(self, *statements: str) -> None:
        with self.writer.transaction():
            self.run(*statements)

    def table(self, definition: str, identity: str = "FULL") -> None:
        self.run(f"CREATE TABLE {definition}")
        name = definition.partition("(")[0]
        self.run(f"ALTER TABLE {name} REPLICA IDENTITY {identity}")

    def without_rights(self) -> None:
        """Let tables and sources be of a role that is no superuser; they are its own."""
        role = "SELECT FROM pg_roles WHERE rolname = 'plain'"
        self.run(
            f"DO $$ BEGIN IF NOT EXISTS ({role}) THEN"
            " CREATE ROLE plain LOGIN REPLICATION PASSWORD 'secret'; END IF; END $$",
            f"GRANT CREATE ON DATABASE {self.database} TO plain",
            "GRANT ALL ON SCHEMA public TO plain",
            "SET ROLE plain",
        )
        self.url = self.server.url_of(self.database, "plain")

    def settings(self, reader: str = "me", name: str = "shop", **options: object) -> SourceSettings:
        home = self.home / self.database / reader
        chosen = {"url": self.url, **options}
        return SourceSettings(name, "postgres", chosen, str(self.home), str(home))

    def source(self, reader: str = "me", name: str = "shop", **options: object) -> Source:
        # Slots are known on the whole server, by reader and source.
        settings = self.settings(reader, name, **options)
        source = open_source(settings, f"{reader}@{self.database}")
        self._sources.append(source)
        return source

    def rows(self, table: str, columns: Sequence[str]) -> Counter[Row]:
        """What an ordinary session sees now."""
        listed = ", ".join(f'"{column}"' for column in columns)
        return Counter(self.writer.execute(f"SELECT {listed} FROM {table}".encode()).fetchall())

    def hang_up(self) -> None:
        for source in self._sources:
            source.close()
        for connection in self._writers:
            connection.close()

    def close(self) -> None:
        self.hang_up()
        # A test may have stopped the server.
        with suppress(psycopg.OperationalError):
            self._drop_slots()

    def _drop_slots(self) -> None:
        """A server has few slots, and tests are many."""
        slots = "FROM pg_replication_slots WHERE database = %s AND NOT temporary"
        drop = f"SELECT pg_drop_replication_slot(slot_name) {slots} AND NOT active".encode()
        with psycopg.connect(self.server.url_of(), autocommit=True) as connection:
            for _ in range(100):
                connection.execute(drop, (self.database,))
                left = connection.execute(f"SELECT 1 {slots}".encode(), (self.database,))
                if not left.fetchall():
                    return
                time.sleep(0.02)
        raise AssertionError("a slot stays in use")


def changed(
    source: Source, table: str, columns: Sequence[str], after: int, until: int
) -> list[Row]:
    """The changes in order: the columns, then the count."""
    found = []
    for _, batch in source.read_changes({table: columns}, after, until):
        found += [tuple(row[c] for c in (*columns, COUNT)) for row in batch.to_pylist()]
    return cast(list[Row], found)


def plus(state: Counter[Row], changes: Sequence[Row], sign: int = 1) -> Counter[Row]:
    """A state with changes applied; rows that are there zero times are left out."""
    result = Counter(state)
    for *row, count in changes:
        assert isinstance(count, int)
        result[tuple(row)] += sign * count
    return Counter({row: count for row, count in result.items() if count})


def as_of(opener: Opener, table: str, columns: Sequence[str], after: int) -> Counter[Row]:
    """Rows minus tail of a scan, in a snapshot that was sent to somewhere else."""
    snapshot: Snapshot = cast(Opener, pickle.loads(pickle.dumps(opener)))()
    try:
        return state_of(snapshot, table, columns, after)
    finally:
        snapshot.close()


def state_of(snapshot: Snapshot, table: str, columns: Sequence[str], after: int) -> Counter[Row]:
    """Rows minus tail of a scan."""
    scan = snapshot.scan_relation(Relation("shop", table), columns, after)
    rows = [tuple(row[c] for c in columns) for b in scan.batches for row in b.to_pylist()]
    names = (*columns, COUNT)
    tail = [tuple(row[c] for c in names) for b in scan.tail for row in b.to_pylist()]
    return plus(Counter(cast(list[Row], rows)), cast(list[Row], tail), -1)


def ask(
    snapshot: Snapshot,
    table: str,
    columns: Sequence[str],
    keys: pa.Table,
    after: int,
    null_safe: Sequence[bool] | None = None,
) -> Answer:
    on = tuple(keys.column_names)
    safe = tuple(null_safe or [False] * len(on))
    return snapshot.answer_lookup(
        Lookup(0, Relation("shop", table), tuple(columns), on, safe, keys), after
    )
