"""The change log of a SQLite database: its rows, and the transactions and changes in them.

SQLite has one writer at a time, so the order of `seq` is the order of commits, and the newest seq
that a read transaction sees is an exact cut. Rows at or below a seen position never change, so the
log is read in short pieces, each its own read, and no long read holds up checkpoints or writers.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.errors import BrokenQueryError, GapError, reload_hint
from viewkeeper.sources.sqlite.capture.capture_tables import (
    LOG,
    TableCapture,
    database_id,
    read_captures,
    reader_columns,
    reader_position,
)
from viewkeeper.sources.sqlite.capture.follow import record_shapes
from viewkeeper.sources.sqlite.database import is_busy, read_transaction, write_transaction
from viewkeeper.sources.sqlite.handle_lookup import FoundTable, find_logged, schema_changes_between
from viewkeeper.sources.sqlite.read_connections import ReadConnections
from viewkeeper.sources.sqlite.reader_registration import ReaderRegistration
from viewkeeper.sources.sqlite.resolved_tables import (
    DatabaseState,
    ResolvedTable,
    read_database_state,
)
from viewkeeper.sources.sqlite.schema import quote_name
from viewkeeper.sources.sqlite.types import ROWS_PER_BATCH
from viewkeeper.updates.schema_change import SchemaChange, name_of_handle
from viewkeeper.updates.source_protocol import COUNT, POSITION, Boundary, TableBatches, Tables

_EPOCH_DAY = 2_440_587.5  # The Julian day of 1970-01-01, in which triggers note the time.
_DAY_SECONDS = 86_400.0
# Changes of other readers' tables are reported, as an empty transaction, once so many have come:
# else a reader whose tables rest would keep everybody's log from being trimmed.
_IDLE_CHANGES = 10_000
# How long a look waits to write down a schema change, and how often it begins again.
_RECORD_WAIT_MS = 250
_RECORD_TRIES = 5


@dataclass(frozen=True, slots=True)
class LogPiece:
    """A part of the log that one capture wrote: `after` < seq <= `until`."""

    capture: TableCapture
    after: int
    until: int


def find_pieces(
    connection: sqlite3.Connection, found: FoundTable, after: int, until: int
) -> tuple[LogPiece, ...]:
    """Who wrote a table's changes in a range; a GapError where they are not all there."""
    source = found.source
    if after < database_id(connection)[1]:
        raise GapError(
            source,
            f"changes after position {after} have been trimmed",
            detail="the reader acknowledged them, or follows since later",
            hint=reload_hint(),
        )
    written: list[LogPiece] = []
    end = until
    for capture in reversed(read_captures(connection, found.relation) if found.relation else ()):
        if end <= after:
            return tuple(reversed(written))
        written.append(LogPiece(capture, max(after, capture.since), end))
        end = min(end, capture.since)
        if capture.gap:
            break
    if end > after:
        raise GapError(
            source,
            f'table "{found.shape.name}" was not captured between positions {after} and {end}',
            detail="it was followed later, or its triggers or unique keys were changed meanwhile",
            hint=reload_hint(),
        )
    return tuple(reversed(written))


def steady_piece(kept: ResolvedTable, after: int, until: int) -> LogPiece:
    """The same where one capture has written all of it."""
    assert kept.capture is not None, "what is steady is captured"
    return LogPiece(kept.capture, after, until)


def read_piece(
    connection: sqlite3.Connection,
    found: FoundTable | ResolvedTable,
    columns: Sequence[str],
    piece: LogPiece,
) -> Iterator[pa.RecordBatch]:
    """The changes in a piece of the log, in its order, as change batches.

    A column that was added and is NULL in all rows from before it was captured is NULL there.
    """
    layout = found.layout_of(columns, (COUNT, POSITION))
    found = found.found if isinstance(found, ResolvedTable) else found
    slots = {number: f"c{i}" for i, number in enumerate(piece.capture.columns)}
    fields = []
    for name in columns:
        column = found.column_named(name)
        if column.id not in slots and not column.blank:
            _check_unwritten(connection, found, piece, name, column.added)
            return
        fields.append(f"{slots.get(column.id, 'NULL')} AS {quote_name(name)}")
    select = ", ".join([*fields, "sign", "seq"])
    cursor = connection.execute(
        f"SELECT {select} FROM main.{LOG} WHERE seq > ? AND seq <= ? AND capture = ? ORDER BY seq",
        (piece.after, piece.until, piece.capture.id),
    )
    yield from layout.read_batches(cursor)


def _check_unwritten(
    connection: sqlite3.Connection, found: FoundTable, piece: LogPiece, lacking: str, added: bool
) -> None:
    """A capture without the asked columns is no gap as long as it wrote nothing in the range."""
    query = f"SELECT seq FROM main.{LOG} WHERE seq > ? AND seq <= ? AND capture = ? LIMIT 1"
    row = connection.execute(query, (piece.after, piece.until, piece.capture.id)).fetchone()
    if row and added:
        what = f"column {lacking} had values before it was followed"
        raise BrokenQueryError(found.source, name_of_handle(found.handle), what)
    if row:
        raise GapError(
            found.source,
            f'column "{lacking}" of table "{found.shape.name}" was not captured yet at '
            f"position {row[0]}",
            hint="read from the position that `follow` returned when the column was added",
        )


def read_tail(
    connection: sqlite3.Connection,
    kept: ResolvedTable,
    columns: Sequence[str],
    span: range,
    state: DatabaseState,
) -> pa.Table:
    """A relation's changes in `span`, all at once, inside the caller's read transaction, which has
    this state."""
    schema = kept.layout_of(columns, (COUNT, POSITION)).schema
    after, until = span.start - 1, span.stop - 1
    batches: list[pa.RecordBatch] = []
    if len(span) > 0 and after >= state.trimmed and kept.is_steady_since(after):
        batches += read_piece(connection, kept, columns, steady_piece(kept, after, until))
    elif len(span) > 0:
        for piece in find_pieces(connection, kept.found, after, until):
            batches += read_piece(connection, kept.found, columns, piece)
    return pa.Table.from_batches(batches, schema)


def split_windows(after: int, until: int) -> Iterator[tuple[int, int]]:
    """A range of the log in steps; seq has no holes, so a step is at most one batch per table."""
    for start in range(after, until, ROWS_PER_BATCH):
        yield start, min(start + ROWS_PER_BATCH, until)


class LoggedChanges:
    """The log of one source, for its reader; knows what the last look has seen."""

    def __init__(self, registration: ReaderRegistration, connections: ReadConnections) -> None:
        self._registration = registration
        self._connections = connections
        self._opening = 0
        self._followed = FollowedCaptures(None, None, ())
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
                    state = self._registration.check_position(connection, after)
                    same = self._shapes is not None and self._shapes.version == state.schema
                    if same or state.is_recorded:
                        return self._report_boundary(connection, after, state, version)
                if not self._record_shapes(connection):
                    break
            return ()

    def forget_seen(self) -> None:
        """The next look reads everything again."""
        with self._registration.session.lock:
            self._seen, self._shapes = None, None

    def _report_boundary(
        self, connection: sqlite3.Connection, after: int, state: DatabaseState, version: int
    ) -> tuple[Boundary, ...]:
        registration, position, shapes = self._registration, state.position, state.schema
        if not self._followed.is_current(state):
            ids = captures_of_reader(connection, registration.reader)
            self._followed = FollowedCaptures(state.version, state.reader_tables, ids)
        found = summarize_changes(connection, self._followed.ids, after, position)
        known, reshaped = self._shapes, tuple[SchemaChange, ...]()
        if known is None or known.version != shapes or after < known.position:
            reshaped = schema_changes_between(
                connection, registration.handles.copy_book(), after, position
            )
        self._shapes = ReportedShapes(shapes, position)
        is_quiet = found.changes == 0 and not reshaped
        self._seen, self._passed = SeenVersion(version, after if is_quiet else position), position
        if is_quiet and position - after < _IDLE_CHANGES:
            return ()
        registration.memory.remember_position(connection, state)
        return (Boundary(position, found.oldest_at, found.changes, reshaped=reshaped),)

    def has_passed(self, position: int) -> bool:
        return position <= self._passed

    def _record_shapes(self, connection: sqlite3.Connection) -> bool:
        """Write down what became of the captured tables; whether the database was free for it."""
        self._registration.session.limit_wait(connection, _RECORD_WAIT_MS)
        try:
            with write_transaction(connection):
                record_shapes(connection, self._registration.source)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            return False
        return True

    def read_changes(self, tables: Tables, after: int, until: int) -> TableBatches:
        """Streamed in pieces of the log; `_position` is the log position of each change."""
        database = self._registration.session.database
        reading, is_whole = self._connections.take_connection(), False
        try:
            with database.translate_errors():
                for start, end in split_windows(after, until):
                    piece = range(start + 1, end + 1)
                    yield from self._read_window(reading.connection, tables, (after, until), piece)
            is_whole = True
        finally:
            self._connections.give_back(reading, is_whole)

    def _read_window(
        self, connection: sqlite3.Connection, tables: Tables, span: tuple[int, int], piece: range
    ) -> list[tuple[str, pa.RecordBatch]]:
        """One short read: nothing stays open while the caller works on the batches."""
        source, reader = self._registration.source, self._registration.reader
        book, read = self._registration.handles.copy_book(), list[tuple[str, pa.RecordBatch]]()
        after, until = piece.start - 1, piece.stop - 1
        with read_transaction(connection):
            state = read_database_state(connection, source, reader)
            if state.reader_position is None:
                reader_position(connection, source, reader)
            for handle, columns in tables.items():
                kept = self._connections.tables.find_steady(
                    connection, state, book, handle, span[0]
                )
                if kept is not None:
                    part = steady_piece(kept, after, until)
                    read += [(handle, b) for b in read_piece(connection, kept, columns, part)]
                    continue
                found = find_logged(connection, source, book, handle, columns, span)
                for part in find_pieces(connection, found, after, until):
                    read += [(handle, b) for b in read_piece(connection, found, columns, part)]
        return read


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """The version at the last look; there was nothing after `quiet_after`.

    `data_version` changes when another connection commits, and then only.
    """

    data_version: int
    quiet_after: int

    def is_quiet(self, data_version: int, after: int) -> bool:
        return self.data_version == data_version and after == self.quiet_after


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


@dataclass(frozen=True, slots=True)
class FollowedCaptures:
    """The captures of what a reader follows, for one version of the schema."""

    version: tuple[object, ...] | None
    reader_tables: str | None
    ids: tuple[int, ...]

    def is_current(self, state: DatabaseState) -> bool:
        return (self.version, self.reader_tables) == (state.version, state.reader_tables)


def captures_of_reader(connection: sqlite3.Connection, reader: str) -> tuple[int, ...]:
    """All captures, old ones too, of the tables that a reader follows."""
    followed = reader_columns(connection, reader)
    return tuple(each.id for each in read_captures(connection) if each.relation in followed)


def summarize_changes(
    connection: sqlite3.Connection, captures: Sequence[int], after: int, until: int
) -> ChangeSummary:
    query = (
        f"SELECT count(*), min(at) FROM main.{LOG}"
        f" WHERE seq > ? AND seq <= ? AND capture IN ({', '.join(map(str, captures))})"
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
