"""Connections to a SQLite database, and SQLite's errors as ours.

Opening never creates a file: connections are `mode=ro` or `mode=rw` URIs. A reader is opened
read-only; where the file system does not let a read-only connection in (a WAL database whose
`-shm` is not there yet, a journal that waits to be rolled back) it is opened for writing instead.

The file itself is never opened by ourselves: closing any descriptor of a file drops the
POSIX locks that the whole process holds on it, also those of SQLite's own connections.

A source has one lasting connection for all its calls, one at a time. Where the path names another
file than it did, because the database was replaced by a copy, it is connected again.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from viewkeeper.errors import SchemaError, SourceAwayError, SourceError, reload_hint
from viewkeeper.storage import disk

OLDEST_LIBRARY = (3, 37, 0)
_MALFORMED = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class SqliteDatabase:
    """One database file, as one source sees it."""

    source: str
    path: str
    busy_seconds: float

    def open_connection(self, *, write: bool) -> sqlite3.Connection:
        """A connection in autocommit mode; a reader is read-only unless that cannot work."""
        self._check_file()
        with self.translate_errors():
            if write:
                return self._connect_mode("rw")
            try:
                return self._connect_mode("ro")
            except sqlite3.OperationalError as error:
                if _code_of(error).startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
                    return self._connect_mode("rw")
                raise

    def _connect_mode(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{Path(self.path).absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=self.busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            # The first read is what finds that a file is no database or cannot be locked.
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            connection.execute("PRAGMA temp_store = MEMORY")
        except BaseException:
            connection.close()
            raise
        return connection

    def file_identity(self) -> tuple[int, int]:
        """Which file the path names now; another one after the database was replaced by a copy."""
        try:
            stat = os.stat(self.path)
        except OSError:
            self._check_file()
            raise SourceAwayError(self.source, f"{self.path} cannot be reached") from None
        return stat.st_dev, stat.st_ino

    def read_file_marks(self) -> tuple[object, ...]:
        """What mostly differs after a commit: size and time of the file and of its write-ahead log.

        Not always: the log is written over from its start, and times are only so fine.
        """
        return disk.mark_of(f"{self.path}-wal"), disk.mark_of(self.path)

    def _check_file(self) -> None:
        if sqlite3.sqlite_version_info < OLDEST_LIBRARY:
            raise SourceError(
                self.source,
                f"SQLite {sqlite3.sqlite_version} is too old",
                hint="use a Python whose sqlite3 module has SQLite 3.37 or newer",
            )
        path = Path(self.path)
        try:
            found, folder = path.exists(), path.is_dir()
        except OSError as error:
            raise self._no_permission(str(error)) from error
        if not found:
            raise SourceAwayError(
                self.source,
                f"there is no database file {self.path}",
                hint="check the path in viewkeeper.yml, or bring the file back; "
                "Viewkeeper never creates a source",
            )
        if folder:
            raise SourceError(
                self.source, f"{self.path} is a folder", hint="give the path of the database file"
            )
        if not os.access(path, os.R_OK):
            raise self._no_permission(None)

    def _no_permission(self, detail: str | None) -> SourceAwayError:
        return SourceAwayError(
            self.source,
            f"no permission to read {self.path}",
            detail=detail,
            hint="the owner of the file must let this user read it, and write it for capture",
        )

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Inside, every error of the sqlite3 module becomes one of ours, and so does what cannot
        be read of a database that is damaged, or whose tables of ours somebody has changed."""
        try:
            yield
        except sqlite3.Error as error:
            raise error_of_code(self.source, self.path, self.busy_seconds, error) from error
        except MemoryError as error:
            # What sqlite3 makes of SQLITE_NOMEM; a damaged row may say that it has 4 GB.
            raise SourceAwayError(
                self.source,
                f"SQLite found no memory for what {self.path} holds",
                hint="run PRAGMA integrity_check there and restore a backup if it is damaged; if "
                "it is whole, give this process more memory",
            ) from error
        except _MALFORMED as error:
            raise SourceError(
                self.source,
                f"what {self.path} holds cannot be read",
                detail=f"{type(error).__name__}: {str(error)[:200]}",
                hint="run PRAGMA integrity_check there; if it is whole, somebody has changed tables"
                f" of Viewkeeper: `viewkeeper detach --force`, then {reload_hint()}",
            ) from error


class LastingConnection:
    """The connection of a source; several threads use it, one at a time.

    `openings` counts the connections that were made: what was seen on an earlier one says nothing.
    """

    def __init__(self, database: SqliteDatabase) -> None:
        self.openings = 0
        self.database = database
        self.lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._wait_ms: int | None = None

    @contextmanager
    def use_connection(self, wait_ms: int | None = None) -> Iterator[sqlite3.Connection]:
        """The connection, which waits so long for a lock of somebody else."""
        with self.lock, self.database.translate_errors():
            file = self.database.file_identity()
            if self._connection is None or file != self._file:
                self.close()
                self._connection, self._file = self._open_connection(), file
                self.openings += 1
            waits = int(self.database.busy_seconds * 1000) if wait_ms is None else wait_ms
            self.limit_wait(self._connection, waits)
            yield self._connection

    def limit_wait(self, connection: sqlite3.Connection, wait_ms: int) -> None:
        """Let the connection wait so long for a lock of somebody else."""
        if self._wait_ms != wait_ms:
            connection.execute(f"PRAGMA busy_timeout = {wait_ms}")
            self._wait_ms = wait_ms

    def _open_connection(self) -> sqlite3.Connection:
        try:
            connection = self.database.open_connection(write=True)
        except SourceError:
            # A database that we may only read can at least be described.
            connection = self.database.open_connection(write=False)
        with suppress(sqlite3.Error):
            # What we write is bookkeeping: losing its end in a power failure costs nothing.
            if journal_mode(connection) == "wal":
                connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def close(self) -> None:
        with self.lock:
            if self._connection is not None:
                self._connection.close()
            self._connection, self._wait_ms = None, None


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
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def journal_mode(connection: sqlite3.Connection) -> str:
    return str(connection.execute("PRAGMA main.journal_mode").fetchone()[0]).lower()


def _code_of(error: sqlite3.Error) -> str:
    """SQLite's own code; errors that the Python module raises by itself have none."""
    return getattr(error, "sqlite_errorname", "") or ""


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else held a lock for longer than we were ready to wait."""
    return _code_of(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


@dataclass(frozen=True, slots=True)
class _ErrorMeaning:
    """What result codes that begin so mean to the one who reads the error."""

    codes: tuple[str, ...]
    kind: type[SourceError]
    message: str
    hint: str


_MEANINGS = (
    _ErrorMeaning(
        ("SQLITE_BUSY", "SQLITE_LOCKED"),
        SourceAwayError,
        "{path} stayed locked for {seconds:g} seconds",
        "find the program that holds a long transaction on it; in WAL mode "
        "(PRAGMA journal_mode=WAL) readers and the writer do not wait for each other",
    ),
    _ErrorMeaning(
        ("SQLITE_NOTADB",),
        SourceError,
        "{path} is not a SQLite database",
        "check the path; an encrypted database cannot be followed",
    ),
    _ErrorMeaning(
        ("SQLITE_CORRUPT",),
        SourceError,
        "{path} is damaged",
        "run PRAGMA integrity_check there and restore a backup",
    ),
    _ErrorMeaning(
        ("SQLITE_FULL",), SourceError, "no space left to write {path}", "free space on its disk"
    ),
    _ErrorMeaning(
        ("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH"),
        SourceError,
        "{path} cannot be written",
        "capturing changes needs write permission on the file and on its folder",
    ),
    _ErrorMeaning(
        ("SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_PROTOCOL"),
        SourceAwayError,
        "{path} cannot be read now",
        "check its disk, and the permissions of the file, its -wal, -shm and folder",
    ),
    _ErrorMeaning(
        ("SQLITE_SCHEMA", "no such table", "no such column"),
        SchemaError,
        "a table or column that is followed is no longer there",
        "change the views that use it, or bring it back",
    ),
)


def error_of_code(source: str, path: str, busy_seconds: float, error: sqlite3.Error) -> SourceError:
    """The one place where SQLite's result codes become typed errors."""
    code, detail = _code_of(error), str(error)
    for meaning in _MEANINGS:
        # What is not there has no code of its own, only a message.
        if code.startswith(meaning.codes) or detail.startswith(meaning.codes):
            message = meaning.message.format(path=path, seconds=busy_seconds)
            return meaning.kind(source, message, detail=detail, hint=meaning.hint)
    return SourceError(source, f"SQLite failed on {path}", detail=f"{code} {detail}".strip())
