"""Connections that read a SQLite database beside the lasting one, kept open between batches.

A new connection costs more than what is asked on it: the file is opened, the schema is read and
every statement is compiled again. So a source keeps a few, each with the temporary tables of keys
that lookups have made on it. One that is not in use holds no transaction and no lock.

A connection is used again only for the file that it was opened for, and only if all went well: one
on which anything failed, or whose scan may not have been read to its end, is closed.
"""

from __future__ import annotations

import sqlite3
import threading

from viewkeeper.sources.sqlite.database import SqliteDatabase, journal_mode
from viewkeeper.sources.sqlite.resolved_tables import ResolvedTables

_IDLE_MAX = 4


class ReadConnection:
    """A connection, the file that it was opened for, and the tables of keys that it has."""

    def __init__(self, connection: sqlite3.Connection, file: tuple[int, int]) -> None:
        self.connection = connection
        self.file = file
        self.key_tables: set[str] = set()
        self._was_wal = False

    @property
    def is_wal(self) -> bool:
        """Whether the database is in WAL mode, which it cannot leave while we are connected."""
        self._was_wal = self._was_wal or journal_mode(self.connection) == "wal"
        return self._was_wal

    def end_reading(self) -> None:
        """End the transaction, if there is one."""
        if self.connection.in_transaction:
            self.connection.execute("COMMIT")


class ReadConnections:
    """The connections of one source that read, and what is known of its tables; several threads
    use them, each connection one at a time."""

    def __init__(self, database: SqliteDatabase, idle_max: int = _IDLE_MAX) -> None:
        self.database = database
        self.tables = ResolvedTables(database.source)
        self._idle_max = idle_max
        self._idle: list[ReadConnection] = []
        self._lock = threading.Lock()

    def take_connection(self) -> ReadConnection:
        """A connection to the file that the path names now, in no transaction."""
        file = self.database.file_identity()
        with self._lock:
            idle, self._idle = self._idle, []
            fitting = [each for each in idle if each.file == file]
            taken = fitting.pop() if fitting else None
            self._idle = fitting
        for each in idle:
            if each.file != file:
                each.connection.close()
        return taken or ReadConnection(self.database.open_connection(write=False), file)

    def give_back(self, used: ReadConnection, is_whole: bool) -> None:
        """Somebody needs a connection no more; unless all went well, it is closed."""
        try:
            if is_whole:
                used.end_reading()
        except sqlite3.Error:
            is_whole = False
        with self._lock:
            is_kept = is_whole and len(self._idle) < self._idle_max
            if is_kept:
                self._idle.append(used)
        if not is_kept:
            used.connection.close()

    def close(self) -> None:
        """Close those that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for each in idle:
            each.connection.close()
