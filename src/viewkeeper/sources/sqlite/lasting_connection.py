"""The lasting connection of a source to its database, and transactions on it.

One connection serves all calls, one at a time. A path that names another file than it did, because
the database was replaced by a copy, makes us connect anew.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from viewkeeper.errors import SourceError
from viewkeeper.sources.sqlite.database import SqliteDatabase
from viewkeeper.sources.sqlite.snapshot import journal_mode


class LastingConnection:
    """Used by several threads, one at a time."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    @contextmanager
    def use_connection(
        self, wait_ms: int | None = None
    ) -> Iterator[tuple[sqlite3.Connection, bool]]:
        """The connection, and whether it is a new one."""
        with self._lock, self._database.translate_errors():
            file = self._database.file_identity()
            is_new = self._connection is None or file != self._file
            if self._connection is None or is_new:
                self.close()
                self._connection, self._file = self._open_connection(), file
            waits = int(self._database.busy_seconds * 1000) if wait_ms is None else wait_ms
            self._connection.execute(f"PRAGMA busy_timeout = {waits}")
            yield self._connection, is_new

    def _open_connection(self) -> sqlite3.Connection:
        try:
            connection = self._database.open_connection(write=True)
        except SourceError:
            # A database that we may only read can at least be described.
            connection = self._database.open_connection(write=False)
        with suppress(sqlite3.Error):
            # What we write is bookkeeping: losing its end in a power failure costs nothing.
            if journal_mode(connection) == "wal":
                connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None


@contextmanager
def write_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A write transaction, committed at the end and taken back on any error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def read_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A read transaction."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
