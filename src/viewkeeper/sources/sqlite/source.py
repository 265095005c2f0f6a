"""SQLite as a source: triggers write a change log into the database itself.

The log and the rows are read in one transaction, so a cut is one number, the newest log position,
and is exact (`log`, `read`). What the triggers do about REPLACE is in
`triggers`; who follows what is in `capture`; types are in `types`.

Positions are numbers of log rows. Triggers cannot see commits, so everything that was committed
between two looks is reported as one transaction: whole commits, in order, never split.

A database that was replaced is noticed. Another file under the path makes us connect anew; another
database id, an acknowledged position that is forgotten, a position beyond the end of the log, a
reader that is not registered, or triggers that are gone are a GapError. Only `follow` registers.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pyarrow as pa

from viewkeeper.errors import GapError, SourceError
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.sqlite import capture, log, report
from viewkeeper.sources.sqlite.batch import kind_or_refuse
from viewkeeper.sources.sqlite.lookup import prefix_of
from viewkeeper.sources.sqlite.open import Database, is_busy
from viewkeeper.sources.sqlite.read import SqliteSnapshot, journal_mode
from viewkeeper.sources.sqlite.state import Seen, seen_now, summary
from viewkeeper.sources.sqlite.table import Table, read_table
from viewkeeper.sources.sqlite.types import Refusal, kind_of
from viewkeeper.updates.protocol import Boundary, Detached, Finding, Health, Opener, Tables
from viewkeeper.view.definition import Field

# How long one acknowledgement may spend on trimming, and wait for a writer before it gives up.
_TRIM_SECONDS = 1.0
_TRIM_WAIT_MS = 50
# How long one call waits for a database that somebody else has locked. Short, because whoever is
# refused tries again later, and other sources wait meanwhile.
BUSY_SECONDS = 5.0
_HEALTH_SECONDS = 0.5
# Changes of other readers' tables are reported, as an empty transaction, once so many have come:
# else a reader whose tables rest would keep everybody's log from being trimmed.
_IDLE_CHANGES = 10_000


def open_source(settings: SourceSettings, reader: str) -> SqliteSource:
    busy_seconds = settings.number("busy_seconds", BUSY_SECONDS)
    return SqliteSource(settings.name, settings.path(), reader, busy_seconds)


class SqliteSource:
    """One SQLite database, followed by the project `reader`; may be sent to other processes."""

    def __init__(
        self, name: str, path: str | Path, reader: str, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self.name = name
        self.path = Path(path)
        self.reader = reader
        self.busy_seconds = busy_seconds
        self._database = Database(name, str(path), busy_seconds)
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._seen: Seen | None = None
        self._acknowledged = -1
        self._id: str | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Connections stay behind; another process opens its own."""
        return (SqliteSource, (self.name, self.path, self.reader, self.busy_seconds))

    def schema(self, table: str) -> tuple[Field, ...]:
        """The columns that can be kept exactly; `refused` says why the others cannot."""
        kinds = ((c.name, kind_of(c.declared)) for c in self._table(table).columns)
        return tuple(
            Field(name, kind.arrow) for name, kind in kinds if not isinstance(kind, Refusal)
        )

    def refused(self, table: str) -> dict[str, str]:
        """The columns that no view can use, each with the reason and a hint."""
        kinds = ((c.name, kind_of(c.declared)) for c in self._table(table).columns)
        return {
            name: f"{kind.reason}; {kind.hint}" for name, kind in kinds if isinstance(kind, Refusal)
        }

    def key(self, table: str) -> tuple[str, ...]:
        """The columns of a key that SQLite enforces and that cannot be NULL; () without one.

        Rows that it tells apart must be told apart by the values that are kept, so a timestamp,
        which has several spellings, is part of no key.
        """
        found = self._table(table)
        kinds = {column.name: kind_of(column.declared) for column in found.columns}
        exact = {n for n, k in kinds.items() if not isinstance(k, Refusal) and k.one_spelling}
        return next((key for key in found.strict_keys if exact.issuperset(key)), ())

    def indexed(self, table: str, columns: Sequence[str]) -> bool:
        """Whether a lookup by these columns searches an index instead of reading the table."""
        found = self._table(table)
        names = [found.column(self.name, column).name for column in columns]
        exact = [name for name in names if self.finds_by_key(table, [name])]
        return bool(prefix_of(found, exact))

    def finds_by_key(self, table: str, columns: Sequence[str]) -> bool:
        """Whether some of these columns can be compared by key; else lookups read the table."""
        found = self._table(table)
        return any(kind_or_refuse(self.name, found, column).one_spelling for column in columns)

    def _table(self, table: str) -> Table:
        with self._using() as connection:
            return read_table(connection, self.name, table)

    def follow(self, tables: Tables) -> int:
        """Capture these columns too, for this reader, besides what it follows already.

        One short write transaction. Nothing happens if everything is captured already.
        """
        with self._using() as connection:
            with self._writing(connection):
                position = capture.follow(connection, self.name, self.reader, tables)
            self._seen = None
            self._id = capture.database_id(connection)[0]
            return position

    def look(self, after: int) -> tuple[Boundary, ...]:
        """At most one boundary: everything committed since, as one transaction.

        `committed_at` is the time of the *oldest* change in it, so that lag is never flattered; it
        is the time of the statement, since triggers cannot see the commit. While nothing was
        committed a look costs one PRAGMA. Changes of tables that only others follow are
        passed over silently, until they are so many that the log should be trimmed past them.
        """
        with self._using() as connection:
            version = int(connection.execute("PRAGMA main.data_version").fetchone()[0])
            if self._seen and self._seen.is_quiet(version, after):
                return ()
            with self._reading(connection):
                position = self._check_state(connection, after)
                found = summary(connection, self.reader, after, position)
                schema_version = self._check_captures(connection)
                outrun = self._is_new(schema_version) and capture.is_outrun(
                    connection, self.name, self.reader
                )
            if outrun:
                self._renew(connection)
            self._seen = Seen(version, schema_version, after if found.changes == 0 else None)
            if found.changes == 0 and position - after < _IDLE_CHANGES:
                return ()
            return (Boundary(position, found.oldest_at, found.changes),)

    def _check_state(self, connection: sqlite3.Connection, after: int) -> int:
        """The newest position, if this is still the database in which `after` was reached."""
        state = seen_now(connection, self.name, self.reader)
        went_back = (
            state.reader_position < self._acknowledged
            or max(after, state.reader_position) > state.position
        )
        if went_back or (self._id is not None and self._id != state.database_id):
            raise GapError(
                self.name,
                f"position {after} is not of this database, which ends at {state.position}",
                detail="it was restored from a backup, or replaced by another one",
                hint="follow it again and load its views anew",
            )
        self._id = state.database_id
        return state.position

    def _check_captures(self, connection: sqlite3.Connection) -> int:
        version = int(connection.execute("PRAGMA main.schema_version").fetchone()[0])
        if self._is_new(version):
            capture.check_intact(connection, self.name, self.reader)
        return version

    def _is_new(self, schema_version: int) -> bool:
        return self._seen is None or self._seen.schema_version != schema_version

    def _renew(self, connection: sqlite3.Connection) -> None:
        """Be the youngest triggers again; if the database is busy, after the next change of it."""
        try:
            with self._writing(connection):
                capture.renew(connection, self.name, self.reader)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise

    def changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Streamed in pieces of the log; `_position` is the log position of each change."""
        connection = self._database.open(write=False)
        try:
            with self._database.errors():
                for start, end in log.windows(after, until):
                    batches = self._window(connection, tables, start, end)
                    yield from batches
        finally:
            connection.close()

    def _window(
        self,
        connection: sqlite3.Connection,
        tables: Tables,
        after: int,
        until: int,
    ) -> list[tuple[str, pa.RecordBatch]]:
        """One short read: nothing stays open while the caller works on the batches."""
        found: list[tuple[str, pa.RecordBatch]] = []
        with self._reading(connection):
            capture.require_installed(connection, self.name)
            capture.reader_position(connection, self.name, self.reader)
            for name, columns in tables.items():
                table = read_table(connection, self.name, name)
                for piece in log.pieces(connection, self.name, table.name, after, until):
                    batches = log.read_changes(connection, self.name, table, columns, piece)
                    found += ((name, batch) for batch in batches)
        return found

    @contextmanager
    def snapshots(self, after: int = 0, tables: Tables | None = None) -> Iterator[Opener]:
        """Every snapshot reads the log itself, in the transaction that it reads the rows in."""
        yield partial(SqliteSnapshot, self._database)

    def acknowledge(self, position: int) -> None:
        """Store the position, then trim what every reader has acknowledged.

        A database that is busy is no error: the next acknowledgement does what this one could not.
        """
        with self._using(wait_ms=_TRIM_WAIT_MS) as connection:
            try:
                capture.reader_position(connection, self.name, self.reader)
                connection.execute(
                    "UPDATE _viewkeeper_reader SET position = max(position, ?) WHERE reader = ?",
                    (position, self.reader),
                )
                self._acknowledged = max(self._acknowledged, position)
                log.trim(connection, _TRIM_SECONDS)
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise

    def hold(self, name: str, seconds: float) -> None:
        """Keep the log for some time, from the lowest position that it still has."""
        with self._using() as connection, self._writing(connection):
            capture.require_installed(connection, self.name)
            _, trimmed = capture.database_id(connection)
            connection.execute(
                "INSERT OR REPLACE INTO _viewkeeper_reader VALUES (?, ?, '{}', ?)",
                (capture.lease_name(self.reader, name), trimmed, time.time() + seconds),
            )

    def release(self, name: str) -> None:
        """End a lease; nothing happens if it has ended."""
        with self._using() as connection, self._writing(connection):
            if capture.is_installed(connection):
                held = (capture.lease_name(self.reader, name),)
                connection.execute("DELETE FROM _viewkeeper_reader WHERE reader = ?", held)

    def detach(self, force: bool = False) -> Detached:
        """Stop following; the log and triggers go with the last reader, or at once by `force`."""
        with self._using() as connection, self._writing(connection):
            self._seen, self._id, self._acknowledged = None, None, -1
            return capture.detach(connection, self.name, self.reader, force)

    def database_id(self) -> str:
        """The random id of the followed database, for a project to remember."""
        with self._using() as connection:
            capture.require_installed(connection, self.name)
            return capture.database_id(connection)[0]

    def describe(self) -> str:
        with self._using() as connection:
            return f"{self.path}, journal mode {journal_mode(connection)}"

    def advice(self) -> str | None:
        """`wal` is recommended: else our reads make the application's writers wait."""
        with self._using() as connection:
            return report.wal_advice(self.name, self.path, journal_mode(connection))

    def enable_wal(self) -> bool:
        """Switch the database to WAL, for good; False if somebody uses it just now."""
        with self._using() as connection:
            try:
                row = connection.execute("PRAGMA main.journal_mode = WAL").fetchone()
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                return False
            return str(row[0]).lower() == "wal"

    def health(self, positions: Iterable[int] = ()) -> Health:
        """Read beside whoever maintains; a locked database is not waited for long."""
        database = Database(self.name, str(self.path), min(self.busy_seconds, _HEALTH_SECONDS))
        connection = database.open(write=False)
        with closing(connection), database.errors(), self._reading(connection):
            return report.health(connection, self.reader, positions)

    def diagnose(self, tables: Tables) -> list[Finding]:
        try:
            with self._using() as connection, self._reading(connection):
                return report.diagnose(connection, self.name, self.path, self.reader, tables)
        except SourceError as error:
            return [Finding("reachable", "bad", error.message, error.hint)]

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection, self._seen = None, None

    @contextmanager
    def _using(self, wait_ms: int | None = None) -> Iterator[sqlite3.Connection]:
        """The lasting connection, opened again if the file has been replaced meanwhile."""
        with self._lock, self._database.errors():
            file = self._database.identity()
            if self._connection is None or file != self._file:
                self.close()
                self._connection, self._file = self._open(), file
            waits = int(self.busy_seconds * 1000) if wait_ms is None else wait_ms
            self._connection.execute(f"PRAGMA busy_timeout = {waits}")
            yield self._connection

    def _open(self) -> sqlite3.Connection:
        try:
            connection = self._database.open(write=True)
        except SourceError:
            # A database that we may only read can at least be described.
            connection = self._database.open(write=False)
        with suppress(sqlite3.Error):
            # What we write is bookkeeping: losing its end in a power failure costs nothing.
            if journal_mode(connection) == "wal":
                connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    @contextmanager
    def _writing(self, connection: sqlite3.Connection) -> Iterator[None]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    @contextmanager
    def _reading(self, connection: sqlite3.Connection) -> Iterator[None]:
        connection.execute("BEGIN")
        try:
            yield
        finally:
            if connection.in_transaction:
                connection.execute("COMMIT")
