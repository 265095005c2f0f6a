"""SQLite as a source: triggers write a change log into the database itself.

The log and the rows are read in one transaction, so a cut is one number, the newest log position,
and is exact (`log`, `snapshot`). What the triggers do about REPLACE is in `capture.trigger_sql`;
who follows what is in `capture.capture_tables`; types are in `types`.

Positions are numbers of log rows. Triggers cannot see commits, so everything that was committed
between two looks is reported as one transaction: whole commits, in order, never split.

A database that was replaced is noticed (`reader_registration`). Another file under the path makes
us connect again; another database id, an acknowledged position that is forgotten, a position beyond
the end of the log, a log that has another row where one was reported, a reader that is not
registered, or triggers that are gone are a GapError. Only `follow_tables` registers. What handles
mean is in `handle_lookup`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from viewkeeper.errors import SourceError
from viewkeeper.sources.bucket_state import open_state_files
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.sqlite import doctor, handle_lookup
from viewkeeper.sources.sqlite.database import (
    LastingConnection,
    SqliteDatabase,
    journal_mode,
    read_transaction,
)
from viewkeeper.sources.sqlite.log import LoggedChanges
from viewkeeper.sources.sqlite.read_connections import ReadConnections
from viewkeeper.sources.sqlite.reader_registration import LogMemory, ReaderRegistration
from viewkeeper.sources.sqlite.schema import read_table
from viewkeeper.sources.sqlite.snapshot import SqliteOpener
from viewkeeper.sources.sqlite.table_size import estimate_table
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.updates.source_protocol import (
    Boundary,
    DetachResult,
    Finding,
    Health,
    Opener,
    TableBatches,
    TableDescription,
    Tables,
    TableSize,
)

# How long one call waits for a database that somebody else has locked. Short, because whoever is
# refused tries again later, and other sources wait meanwhile.
BUSY_SECONDS = 5.0
_HEALTH_SECONDS = 0.5


def open_source(settings: SourceSettings, reader: str) -> SqliteSource:
    busy_seconds = settings.read_number("busy_seconds", BUSY_SECONDS)
    files = open_state_files(settings) if settings.home else None
    return SqliteSource(settings.name, settings.read_path(), reader, busy_seconds, files)


class SqliteSource:
    """One SQLite database, followed by the project `reader`; may be sent to other processes.

    What its handles mean is kept in files, or in memory without them.
    """

    def __init__(
        self,
        name: str,
        path: str | Path,
        reader: str,
        busy_seconds: float = BUSY_SECONDS,
        files: StateFiles | None = None,
    ) -> None:
        self.name = name
        self.path = Path(path)
        self.reader = reader
        self.busy_seconds = busy_seconds
        self._files = files
        self._names = SourceHandles(files)
        self._database = SqliteDatabase(name, str(path), busy_seconds)
        self._session = LastingConnection(self._database)
        self._registration = ReaderRegistration(
            self._session, name, reader, self._names, LogMemory(files)
        )
        self._looked_at: tuple[object, ...] = ()
        self._connections = ReadConnections(self._database)
        self._changes = LoggedChanges(self._registration, self._connections)

    def __reduce__(self) -> tuple[object, ...]:
        """Connections stay behind; another process opens its own."""
        return (SqliteSource, (self.name, self.path, self.reader, self.busy_seconds, self._files))

    def handle_of(self, name: str) -> str:
        with self._session.use_connection() as connection, read_transaction(connection):
            return handle_lookup.handle_of(connection, self.name, self._names, name)

    def describe_table(self, handle: str) -> TableDescription:
        with self._session.use_connection() as connection, read_transaction(connection):
            return handle_lookup.describe_table(
                connection, self.name, self._names.copy_book(), handle
            )

    def estimate_size(self, table: str) -> TableSize:
        """By the largest number of a row and the widths of a few rows."""
        with self._session.use_connection() as connection, read_transaction(connection):
            return estimate_table(connection, read_table(connection, self.name, table))

    def follow_tables(self, tables: Tables) -> int:
        position = self._registration.follow_tables(tables)
        self._changes.forget_seen()
        return position

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        self._looked_at = self._database.read_file_marks()
        return self._changes.look_for_transactions(after)

    def has_news(self) -> bool:
        return self._database.read_file_marks() != self._looked_at

    def has_passed(self, position: int) -> bool:
        return self._changes.has_passed(position)

    def read_changes(self, tables: Tables, after: int, until: int) -> TableBatches:
        return self._changes.read_changes(tables, after, until)

    @contextmanager
    def prepare_snapshots(self, after: int = 0, tables: Tables | None = None) -> Iterator[Opener]:
        """Every snapshot reads the log itself, in the transaction that it reads the rows in."""
        yield SqliteOpener(self._database, self._names.copy_book(), self._connections)

    def acknowledge_position(self, position: int) -> None:
        self._registration.acknowledge_position(position)

    def begin_hold(self, name: str, seconds: float) -> None:
        self._registration.begin_hold(name, seconds)

    def end_hold(self, name: str) -> None:
        self._registration.end_hold(name)

    def detach_source(self, force: bool = False) -> DetachResult:
        self._changes.forget_seen()
        return self._registration.detach_source(force)

    def describe_source(self) -> str:
        with self._session.use_connection() as connection:
            return f"{self.path}, journal mode {journal_mode(connection)}"

    def read_health(self, positions: Iterable[int] = ()) -> Health:
        """Read beside the maintainer; a locked database is not waited for long."""
        database = SqliteDatabase(
            self.name, str(self.path), min(self.busy_seconds, _HEALTH_SECONDS)
        )
        connection = database.open_connection(write=False)
        with closing(connection), database.translate_errors(), read_transaction(connection):
            advice = doctor.wal_advice(self.name, self.path, journal_mode(connection))
            return replace(doctor.health_of_log(connection, self.reader, positions), advice=advice)

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        try:
            with self._session.use_connection() as connection, read_transaction(connection):
                return doctor.database_findings(
                    connection, self.name, self.path, self._names.copy_book(), self.reader, tables
                )
        except SourceError as error:
            return [Finding("reachable", "bad", error.message, error.hint)]

    def close(self) -> None:
        self._connections.close()
        self._session.close()
