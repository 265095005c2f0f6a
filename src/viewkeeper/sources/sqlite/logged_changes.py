"""The transactions and the changes in the log of a SQLite database.

A look happens many times a second and mostly finds nothing, so it must be cheap then: SQLite keeps
a counter that changes with every commit of somebody else, and reading it costs microseconds.

Triggers cannot see commits, so all that was committed since the last look is reported as one
transaction. Schema changes are found when the version of the schema is another one: what became of
the captured tables is written down with a position of its own (`record_shapes`), and only then is
anything reported.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.sources.sqlite.capture.capture_tables import (
    is_recorded,
    read_captures,
    reader_columns,
    reader_position,
    require_installed,
    schema_version,
)
from viewkeeper.sources.sqlite.capture.follow import record_shapes
from viewkeeper.sources.sqlite.capture.trigger_sql import LOG
from viewkeeper.sources.sqlite.database import is_busy, read_transaction, write_transaction
from viewkeeper.sources.sqlite.handle_lookup import find_logged, schema_changes_between
from viewkeeper.sources.sqlite.log import find_pieces, read_piece, split_windows
from viewkeeper.sources.sqlite.reader_registration import ReaderRegistration
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.updates.source_protocol import Boundary, Tables

_EPOCH_DAY = 2_440_587.5  # The Julian day of 1970-01-01, in which triggers note the time.
_DAY_SECONDS = 86_400.0
# Changes of other readers' tables are reported, as an empty transaction, once so many have come:
# else a reader whose tables rest would keep everybody's log from being trimmed.
_IDLE_CHANGES = 10_000
# How long a look waits to write down a schema change, and how often it begins again.
_RECORD_WAIT_MS = 250
_RECORD_TRIES = 5


class LoggedChanges:
    """The log of one source, for its reader; knows what the last look has seen."""

    def __init__(self, registration: ReaderRegistration) -> None:
        self._registration = registration
        self._opening = 0
        self._seen: SeenVersion | None = None
        self._shapes: ReportedShapes | None = None
        self._passed = 0

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """At most one boundary: everything committed since, as one transaction.

        `committed_at` is the time of the *oldest* change in it, so that lag is never flattered; it
        is the time of the statement, since triggers cannot see the commit. While nothing was
        committed a look costs one PRAGMA. Changes of tables that only others follow are
        passed over silently, until they are so many that the log should be trimmed past them.

        Nothing is reported that may lie after a schema change which is not written down yet; in a
        database that is busy that waits for the next look.
        """
        session = self._registration.session
        with session.use_connection() as connection:
            if self._opening != session.openings:
                self.forget_seen()
                self._opening = session.openings
            version = int(connection.execute("PRAGMA main.data_version").fetchone()[0])
            if self._seen and self._seen.is_quiet(version, after):
                return ()
            self._seen = None
            for _ in range(_RECORD_TRIES):
                with read_transaction(connection):
                    position = self._registration.check_position(connection, after)
                    shapes = schema_version(connection)
                    same = self._shapes is not None and self._shapes.version == shapes
                    if same or is_recorded(connection):
                        return self._report_boundary(connection, after, position, version, shapes)
                if not self._record_shapes(connection):
                    break
            return ()

    def forget_seen(self) -> None:
        """The next look reads everything again."""
        with self._registration.session.lock:
            self._seen, self._shapes = None, None

    def _report_boundary(
        self, connection: sqlite3.Connection, after: int, position: int, version: int, shapes: int
    ) -> tuple[Boundary, ...]:
        registration = self._registration
        found = summarize_changes(connection, registration.reader, after, position)
        known, reshaped = self._shapes, tuple[SchemaChange, ...]()
        if known is None or known.version != shapes or after < known.position:
            reshaped = schema_changes_between(
                connection, registration.handles.copy_book(), after, position
            )
        self._shapes = ReportedShapes(shapes, position)
        is_quiet = found.changes == 0 and not reshaped
        self._seen, self._passed = SeenVersion(version, after if is_quiet else None), position
        if is_quiet and position - after < _IDLE_CHANGES:
            return ()
        registration.memory.remember_position(connection, position)
        return (Boundary(position, found.oldest_at, found.changes, reshaped=reshaped),)

    def has_passed(self, position: int) -> bool:
        return position <= self._passed

    def _record_shapes(self, connection: sqlite3.Connection) -> bool:
        """Write down what became of the captured tables; whether the database was free for it."""
        connection.execute(f"PRAGMA busy_timeout = {_RECORD_WAIT_MS}")
        try:
            with write_transaction(connection):
                record_shapes(connection, self._registration.source)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            return False
        return True

    def read_changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Streamed in pieces of the log; `_position` is the log position of each change."""
        database = self._registration.session.database
        connection = database.open_connection(write=False)
        try:
            with database.translate_errors():
                for start, end in split_windows(after, until):
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
        registration = self._registration
        read: list[tuple[str, pa.RecordBatch]] = []
        with read_transaction(connection):
            require_installed(connection, registration.source)
            reader_position(connection, registration.source, registration.reader)
            for handle, columns in tables.items():
                found = find_logged(
                    connection,
                    registration.source,
                    registration.handles.copy_book(),
                    handle,
                    columns,
                    span,
                )
                for part in find_pieces(connection, found, piece.start - 1, piece.stop - 1):
                    batches = read_piece(connection, found, columns, part)
                    read += ((handle, batch) for batch in batches)
        return read


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """The version at the last look; nothing was found after `quiet_after`, if that is given.

    `data_version` changes when another connection commits, and then only.
    """

    data_version: int
    quiet_after: int | None

    def is_quiet(self, data_version: int, after: int) -> bool:
        return (
            self.quiet_after is not None
            and self.data_version == data_version
            and after == self.quiet_after
        )


@dataclass(frozen=True, slots=True)
class ReportedShapes:
    """The schema version at the last report, and the position up to which shapes were reported.

    As long as SQLite's own counter stays the same nobody has changed a shape since.
    """

    version: int
    position: int


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """How many changes of the reader's tables there are in a range, and when the first was made."""

    changes: int
    oldest_at: float


def summarize_changes(
    connection: sqlite3.Connection, reader: str, after: int, until: int
) -> ChangeSummary:
    followed = reader_columns(connection, reader)
    ids = [str(each.id) for each in read_captures(connection) if each.relation in followed]
    query = (
        f"SELECT count(*), min(at) FROM main.{LOG}"
        f" WHERE seq > ? AND seq <= ? AND capture IN ({', '.join(ids)})"
    )
    count, oldest = connection.execute(query, (after, until)).fetchone()
    if oldest is None:
        return ChangeSummary(0, marked_at(connection, after, until))
    return ChangeSummary(int(count), _seconds_of(oldest))


def marked_at(connection: sqlite3.Connection, after: int, until: int) -> float:
    """When a schema change in a range was written down; now if there is none."""
    query = f"SELECT min(at) FROM main.{LOG} WHERE seq > ? AND seq <= ? AND capture = 0"
    marked = connection.execute(query, (after, until)).fetchone()[0]
    return time.time() if marked is None else _seconds_of(marked)


def _seconds_of(day: float) -> float:
    return (float(day) - _EPOCH_DAY) * _DAY_SECONDS
