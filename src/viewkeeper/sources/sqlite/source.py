"""SQLite as a source: triggers write a change log into the database itself.

The log and the rows are read in one transaction, so a cut is one number, the newest log position,
and is exact (`log`, `read`). What the triggers do about REPLACE is in
`triggers`; who follows what is in `capture`; types are in `types`.

Positions are numbers of log rows. Triggers cannot see commits, so everything that was committed
between two looks is reported as one transaction: whole commits, in order, never split.

A database that was replaced is noticed. Another file under the path makes us connect anew; another
database id, an acknowledged position that is forgotten, a position beyond the end of the log, a log
that has another row where one was reported (`known_log`), a reader that is not registered, or
triggers that are gone are a GapError. Only `follow` registers.

Schema changes are found when the version of the schema is another one: what became of the captured
tables is written down with a position of its own (`follow.record`), and only then is anything
reported. What handles stand for is in `resolve`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from viewkeeper.errors import GapError, SourceError
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.sqlite import doctor, handle_lookup, log
from viewkeeper.sources.sqlite.capture import capture_tables, follow
from viewkeeper.sources.sqlite.database import SqliteDatabase, is_busy
from viewkeeper.sources.sqlite.handle_lookup import find_logged
from viewkeeper.sources.sqlite.known_log import LogMemory
from viewkeeper.sources.sqlite.lasting_connection import (
    LastingConnection,
    read_transaction,
    write_transaction,
)
from viewkeeper.sources.sqlite.look import (
    ReportedShapes,
    SeenVersion,
    read_state,
    summarize_changes,
)
from viewkeeper.sources.sqlite.snapshot import SqliteSnapshot, journal_mode
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.updates.source_protocol import (
    Boundary,
    DetachResult,
    Finding,
    Health,
    Opener,
    TableDescription,
    Tables,
)

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
# How long a look waits to write down a schema change, and how often it begins again.
_RECORD_WAIT_MS = 250
_RECORD_TRIES = 5


def open_source(settings: SourceSettings, reader: str) -> SqliteSource:
    busy_seconds = settings.read_number("busy_seconds", BUSY_SECONDS)
    home = Path(settings.home) if settings.home else None
    return SqliteSource(settings.name, settings.read_path(), reader, busy_seconds, home)


class SqliteSource:
    """One SQLite database, followed by the project `reader`; may be sent to other processes.

    What its handles stand for is kept in the folder `home`, or in memory without one.
    """

    def __init__(
        self,
        name: str,
        path: str | Path,
        reader: str,
        busy_seconds: float = BUSY_SECONDS,
        home: Path | None = None,
    ) -> None:
        self.name = name
        self.path = Path(path)
        self.reader = reader
        self.busy_seconds = busy_seconds
        self._home = home
        self._names = SourceHandles(home)
        self._memory = LogMemory(home)
        self._database = SqliteDatabase(name, str(path), busy_seconds)
        self._session = LastingConnection(self._database)
        self._seen: SeenVersion | None = None
        self._shapes: ReportedShapes | None = None
        self._acknowledged = -1
        self._passed = 0
        self._id: str | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Connections stay behind; another process opens its own."""
        return (SqliteSource, (self.name, self.path, self.reader, self.busy_seconds, self._home))

    def handle_of(self, name: str) -> str:
        with self._use_connection() as connection, read_transaction(connection):
            return handle_lookup.handle_of(connection, self.name, self._names, name)

    def describe_table(self, handle: str) -> TableDescription:
        with self._use_connection() as connection, read_transaction(connection):
            return handle_lookup.describe_table(
                connection, self.name, self._names.copy_book(), handle
            )

    def follow_tables(self, tables: Tables) -> int:
        """Capture these columns too, for this reader, besides what it follows already.

        One short write transaction. Nothing happens if everything is captured already. In another
        database than the one that was followed, everything begins anew.
        """
        with self._use_connection() as connection:
            with write_transaction(connection):
                capture_tables.create_tables(connection)
                self._id = capture_tables.database_id(connection)[0]
                if any(
                    n.identity.partition("/")[0] != self._id
                    for n in self._names.copy_book().values()
                ):
                    self._names.forget_all()
                follow.record_shapes(connection, self.name, mend=True)
                wanted = handle_lookup.find_wanted(
                    connection, self.name, self._names.copy_book(), tables
                )
                plain = [(each.table, list(each.columns.values())) for each in wanted]
                followed = follow.follow_for_reader(connection, self.name, self.reader, plain)
                position = self._memory.begin_log(connection)
            for each, (relation, shape) in zip(wanted, followed, strict=True):
                ids = {column.name: str(column.id) for column in shape.columns}
                columns = {name: ids[now] for name, now in each.columns.items()}
                self._names.add_target(each.handle, f"{self._id}/{relation}", columns)
            self._seen = None
            self._shapes = None
            return position

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """At most one boundary: everything committed since, as one transaction.

        `committed_at` is the time of the *oldest* change in it, so that lag is never flattered; it
        is the time of the statement, since triggers cannot see the commit. While nothing was
        committed a look costs one PRAGMA. Changes of tables that only others follow are
        passed over silently, until they are so many that the log should be trimmed past them.

        Nothing is reported that may lie after a schema change which is not written down yet; in a
        database that is busy that waits for the next look.
        """
        with self._use_connection() as connection:
            version = int(connection.execute("PRAGMA main.data_version").fetchone()[0])
            if self._seen and self._seen.is_quiet(version, after):
                return ()
            self._seen = None
            for _ in range(_RECORD_TRIES):
                with read_transaction(connection):
                    position = self._check_state(connection, after)
                    shapes = int(connection.execute("PRAGMA main.schema_version").fetchone()[0])
                    same = self._shapes is not None and self._shapes.version == shapes
                    if same or capture_tables.is_recorded(connection):
                        return self._report_boundary(connection, after, position, version, shapes)
                if not self._record_shapes(connection):
                    break
            return ()

    def _report_boundary(
        self, connection: sqlite3.Connection, after: int, position: int, version: int, shapes: int
    ) -> tuple[Boundary, ...]:
        found = summarize_changes(connection, self.reader, after, position)
        known, reshaped = self._shapes, tuple[SchemaChange, ...]()
        if known is None or known.version != shapes or after < known.position:
            reshaped = handle_lookup.schema_changes_between(
                connection, self._names.copy_book(), after, position
            )
        self._shapes = ReportedShapes(shapes, position)
        is_quiet = found.changes == 0 and not reshaped
        self._seen, self._passed = SeenVersion(version, after if is_quiet else None), position
        if is_quiet and position - after < _IDLE_CHANGES:
            return ()
        self._memory.remember_position(connection, position)
        return (Boundary(position, found.oldest_at, found.changes, reshaped=reshaped),)

    def has_passed(self, position: int) -> bool:
        return position <= self._passed

    def _check_state(self, connection: sqlite3.Connection, after: int) -> int:
        """The newest position, if this is still the database in which `after` was reached."""
        state = read_state(connection, self.name, self.reader)
        went_back = (
            state.reader_position < self._acknowledged
            or max(after, state.reader_position) > state.position
        )
        if went_back or (self._id is not None and self._id != state.database_id):
            raise GapError(
                self.name,
                f"position {after} is not of this database, which ends at {state.position}",
                detail="it was restored from a backup, or replaced by another one",
                hint="`viewkeeper run --full-refresh VIEW` loads the views that read it again",
            )
        self._memory.check_position(connection, self.name, after)
        self._id = state.database_id
        return state.position

    def _record_shapes(self, connection: sqlite3.Connection) -> bool:
        """Write down what became of the captured tables; whether the database was free for it."""
        connection.execute(f"PRAGMA busy_timeout = {_RECORD_WAIT_MS}")
        try:
            with write_transaction(connection):
                follow.record_shapes(connection, self.name)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            return False
        return True

    def read_changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Streamed in pieces of the log; `_position` is the log position of each change."""
        connection = self._database.open_connection(write=False)
        try:
            with self._database.translate_errors():
                for start, end in log.split_windows(after, until):
                    piece = range(start + 1, end + 1)
                    yield from self._read_window(connection, tables, (after, until), piece)
        finally:
            connection.close()

    def _read_window(
        self,
        connection: sqlite3.Connection,
        tables: Tables,
        span: tuple[int, int],
        piece: range,
    ) -> list[tuple[str, pa.RecordBatch]]:
        """One short read: nothing stays open while the caller works on the batches."""
        read: list[tuple[str, pa.RecordBatch]] = []
        with read_transaction(connection):
            capture_tables.require_installed(connection, self.name)
            capture_tables.reader_position(connection, self.name, self.reader)
            for handle, columns in tables.items():
                found = find_logged(
                    connection, self.name, self._names.copy_book(), handle, columns, span
                )
                for part in log.find_pieces(connection, found, piece.start - 1, piece.stop - 1):
                    batches = log.read_piece(connection, found, columns, part)
                    read += ((handle, batch) for batch in batches)
        return read

    @contextmanager
    def prepare_snapshots(self, after: int = 0, tables: Tables | None = None) -> Iterator[Opener]:
        """Every snapshot reads the log itself, in the transaction that it reads the rows in."""
        yield partial(SqliteSnapshot, self._database, self._names.copy_book())

    def acknowledge_position(self, position: int) -> None:
        """Store the position, then trim what every reader has acknowledged.

        A database that is busy is no error: the next acknowledgement does what this one could not.
        """
        with self._use_connection(wait_ms=_TRIM_WAIT_MS) as connection:
            try:
                capture_tables.reader_position(connection, self.name, self.reader)
                connection.execute(
                    "UPDATE _viewkeeper_reader SET position = max(position, ?) WHERE reader = ?",
                    (position, self.reader),
                )
                self._acknowledged = max(self._acknowledged, position)
                log.trim_log(connection, _TRIM_SECONDS)
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise

    def begin_hold(self, name: str, seconds: float) -> None:
        """Keep the log for some time, from the lowest position that it still has."""
        with self._use_connection() as connection, write_transaction(connection):
            capture_tables.require_installed(connection, self.name)
            _, trimmed = capture_tables.database_id(connection)
            connection.execute(
                "INSERT OR REPLACE INTO _viewkeeper_reader VALUES (?, ?, '{}', ?)",
                (capture_tables.lease_name(self.reader, name), trimmed, time.time() + seconds),
            )

    def end_hold(self, name: str) -> None:
        """End a lease; nothing happens if it has ended."""
        with self._use_connection() as connection, write_transaction(connection):
            if capture_tables.is_installed(connection):
                held = (capture_tables.lease_name(self.reader, name),)
                connection.execute("DELETE FROM _viewkeeper_reader WHERE reader = ?", held)

    def detach_source(self, force: bool = False) -> DetachResult:
        """Stop following; the log and triggers go with the last reader, or at once by `force`."""
        with self._use_connection() as connection, write_transaction(connection):
            self._seen, self._id, self._acknowledged = None, None, -1
            self._shapes = None
            done = follow.detach_reader(connection, self.name, self.reader, force)
        self._names.forget_all()
        self._memory.forget_log()
        return done

    def database_id(self) -> str:
        """The random id of the followed database, for a project to remember."""
        with self._use_connection() as connection:
            capture_tables.require_installed(connection, self.name)
            return capture_tables.database_id(connection)[0]

    def describe_source(self) -> str:
        with self._use_connection() as connection:
            return f"{self.path}, journal mode {journal_mode(connection)}"

    def enable_wal(self) -> bool:
        """Switch the database to WAL, for good; False if somebody uses it just now."""
        with self._use_connection() as connection:
            try:
                row = connection.execute("PRAGMA main.journal_mode = WAL").fetchone()
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                return False
            return str(row[0]).lower() == "wal"

    def read_health(self, positions: Iterable[int] = ()) -> Health:
        """Read beside whoever maintains; a locked database is not waited for long."""
        database = SqliteDatabase(
            self.name, str(self.path), min(self.busy_seconds, _HEALTH_SECONDS)
        )
        connection = database.open_connection(write=False)
        with closing(connection), database.translate_errors(), read_transaction(connection):
            advice = doctor.wal_advice(self.name, self.path, journal_mode(connection))
            return replace(doctor.health_of_log(connection, self.reader, positions), advice=advice)

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        try:
            with self._use_connection() as connection, read_transaction(connection):
                return doctor.database_findings(
                    connection, self.name, self.path, self._names.copy_book(), self.reader, tables
                )
        except SourceError as error:
            return [Finding("reachable", "bad", error.message, error.hint)]

    def close(self) -> None:
        self._session.close()
        self._seen = None
        self._shapes = None

    @contextmanager
    def _use_connection(self, wait_ms: int | None = None) -> Iterator[sqlite3.Connection]:
        """The lasting connection; what was seen on another one says nothing."""
        with self._session.use_connection(wait_ms) as (connection, is_new):
            if is_new:
                self._seen = None
                self._shapes = None
            yield connection
