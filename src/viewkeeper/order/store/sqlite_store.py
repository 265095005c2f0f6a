"""A registry in a SQLite file: the default, for members on one machine or behind a service.

With `synchronous = FULL` a commit that was answered is on disk. Writers are serialized by `BEGIN
IMMEDIATE`, so a group needs no lock of its own. The journal is a rollback journal, so that the file
alone is the registry: a write-ahead log that is left behind would be played into whatever file is
put in its place, and give us an order that nobody made. The journal is kept between transactions,
with its head wiped, which is quicker than removing it. Waiting for a lock is done here: SQLite
would sleep longer and longer, and one busy reporter could starve all readers.

Only the first member that joins, or a service, makes the file: a path that suddenly names
nothing is an error, because a new, empty registry would order everything anew. Where the path names
another file than it did, we connect anew, and the group's identity tells whether it is the same
registry.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from viewkeeper.errors import RegistryAwayError, RegistryError
from viewkeeper.order.store.group_rows import (
    SCHEMA,
    StatementRunner,
    check_format,
    is_old,
    upgrade_format,
)

BUSY_SECONDS = 10.0
_PAUSE_SECONDS = 0.002
_REGISTRY = "SELECT 1 FROM sqlite_master WHERE name = 'registry'"


class SqliteStore:
    """One file; one connection, used by one thread at a time."""

    # SQLite's own function for it is younger than the oldest SQLite that we take.
    clock = "((julianday('now') - 2440587.5) * 86400.0)"
    # Writers are serialized already.
    for_update = for_share = ""

    def __init__(self, path: Path, busy_seconds: float = BUSY_SECONDS) -> None:
        self.name = str(path)
        self._path = path
        self._busy_seconds = busy_seconds
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    @contextmanager
    def write_transaction(self, create: bool = False) -> Iterator[StatementRunner]:
        with self._lock, self._translate_errors():
            connection = self._ensure_connection(create)
            with self._sqlite_transaction(connection, "BEGIN IMMEDIATE") as rows:
                yield rows

    @contextmanager
    def read_transaction(self) -> Iterator[StatementRunner]:
        with self._lock, self._translate_errors():
            connection = self._ensure_connection(create=False)
            with self._sqlite_transaction(connection, "BEGIN") as rows:
                yield rows

    @contextmanager
    def _sqlite_transaction(
        self, connection: sqlite3.Connection, begin: str
    ) -> Iterator[StatementRunner]:
        self._run_patiently(connection, begin)
        try:
            # A transaction that reads has its lock from its first statement on.
            self._run_patiently(connection, "SELECT 1 FROM sqlite_master LIMIT 1")
            yield _statement_runner(connection)
            self._run_patiently(connection, "COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _run_patiently(self, connection: sqlite3.Connection, statement: str) -> None:
        """Run a statement as soon as nobody else's lock is in its way, for a limited time."""
        end = time.monotonic() + self._busy_seconds
        while True:
            try:
                connection.execute(statement).fetchall()
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > end:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _ensure_connection(self, create: bool) -> sqlite3.Connection:
        file = self._file_identity()
        if self._connection is None or file != self._file:
            self._disconnect()
            if file is None and not create:
                raise RegistryAwayError(
                    self.name,
                    "there is no such file",
                    hint="check the address, or bring the file back; the first member that joins "
                    "makes a new one",
                )
            self._connection = self._open_connection(create)
            self._file = self._file_identity()
        return self._connection

    def _file_identity(self) -> tuple[int, int] | None:
        try:
            stat = os.stat(self._path)
        except FileNotFoundError:
            return None
        return stat.st_dev, stat.st_ino

    def _open_connection(self, create: bool) -> sqlite3.Connection:
        if create:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._make_file()
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}",
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._prepare_store(connection, create)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_file(self) -> None:
        """Make the file, for its owner only; for the group too, if that may write to the folder.

        SQLite would open it to whomever the umask says. Its journal gets the mode of the file.
        """
        mode = 0o660 if self._path.parent.stat().st_mode & 0o022 == 0o020 else 0o600
        with suppress(OSError):
            # Whatever is in the way is said by SQLite, which is next.
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
            os.fchmod(descriptor, mode)
            os.close(descriptor)

    def _prepare_store(self, connection: sqlite3.Connection, create: bool) -> None:
        self._run_patiently(connection, "PRAGMA synchronous = FULL")
        self._run_patiently(connection, "PRAGMA journal_mode = PERSIST")
        if create:
            with self._sqlite_transaction(connection, "BEGIN IMMEDIATE") as rows:
                for statement in SCHEMA:
                    rows(statement)
                upgrade_format(rows)
                # Nothing is added to a store that is not ours to change.
                check_format(self.name, rows)
        with self._sqlite_transaction(connection, "BEGIN") as rows:
            needs_upgrade = bool(rows(_REGISTRY)) and is_old(rows)
        if needs_upgrade:
            with self._sqlite_transaction(connection, "BEGIN IMMEDIATE") as rows:
                upgrade_format(rows)
        with self._sqlite_transaction(connection, "BEGIN") as rows:
            if not rows(_REGISTRY):
                raise RegistryError(
                    self.name,
                    "this file holds no registry",
                    hint="check the address of the registry",
                )
            check_format(self.name, rows)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Inside, every error of the system becomes one of ours."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            self._disconnect()
            code = getattr(error, "sqlite_errorname", "") or ""
            if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
                raise RegistryError(
                    self.name,
                    "this file is damaged, or no SQLite database",
                    detail=str(error),
                    hint="check the address; bring back the newest copy of the file",
                ) from error
            raise RegistryAwayError(
                self.name,
                "it cannot be used now",
                detail=f"{error} ({code})" if code else str(error),
                hint="check the disk and the permissions, and that no program locks the file",
            ) from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None

    def close(self) -> None:
        with self._lock:
            self._disconnect()


def _statement_runner(connection: sqlite3.Connection) -> StatementRunner:
    def rows(statement: str, *values: object) -> list[tuple[Any, ...]]:
        return connection.execute(statement, values).fetchall()

    return rows


def _is_busy(error: sqlite3.Error) -> bool:
    return (getattr(error, "sqlite_errorname", "") or "").startswith("SQLITE_BUSY")
