"""Reading the change log of a SQLite database, and trimming it.

SQLite has one writer at a time, so the order of `seq` is the order of commits, and the newest seq
that a read transaction sees is an exact cut. Rows at or below a seen position never change, so the
log is read in short pieces, each its own read, and no long read holds up checkpoints or writers.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.errors import BrokenQueryError, GapError, reload_hint
from viewkeeper.sources.sqlite.capture import recorded_shapes
from viewkeeper.sources.sqlite.capture.capture_tables import (
    TableCapture,
    database_id,
    newest_position,
    read_captures,
)
from viewkeeper.sources.sqlite.capture.trigger_sql import LOG, pending_name
from viewkeeper.sources.sqlite.handle_lookup import FoundTable
from viewkeeper.sources.sqlite.rows import ROWS_PER_BATCH
from viewkeeper.sources.sqlite.schema import quote_name
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import COUNT, POSITION

# A transaction that trims is meant to take less than this, so that writers hardly notice it.
_TRIM_SECONDS = 0.004
_TRIM_ROWS = 500


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


def read_piece(
    connection: sqlite3.Connection, found: FoundTable, columns: Sequence[str], piece: LogPiece
) -> Iterator[pa.RecordBatch]:
    """The changes in a piece of the log, in its order, as change batches.

    A column that was added and is NULL in all rows from before it was captured is NULL there.
    """
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
    yield from found.layout_of(columns, (COUNT, POSITION)).read_batches(cursor)


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
    connection: sqlite3.Connection, found: FoundTable, columns: Sequence[str], span: range
) -> pa.Table:
    """A relation's changes in `span`, all at once, inside the caller's read transaction."""
    schema = found.layout_of(columns, (COUNT, POSITION)).schema
    batches: list[pa.RecordBatch] = []
    if len(span) > 0:
        for piece in find_pieces(connection, found, span.start - 1, span.stop - 1):
            batches += read_piece(connection, found, columns, piece)
    return pa.Table.from_batches(batches, schema)


def split_windows(after: int, until: int) -> Iterator[tuple[int, int]]:
    """A range of the log in steps; seq has no holes, so a step is at most one batch per table."""
    for start in range(after, until, ROWS_PER_BATCH):
        yield start, min(start + ROWS_PER_BATCH, until)


def trim_floor(connection: sqlite3.Connection, now: float) -> int | None:
    """Up to where the log may be trimmed: the slowest reader, but never the newest change.

    Leases that have ended do not count. The newest change keeps its number from being used again.
    """
    query = (
        "SELECT min(position) FROM main._viewkeeper_reader"
        " WHERE lease_until IS NULL OR lease_until > ?"
    )
    row = connection.execute(query, (now,)).fetchone()
    return None if row[0] is None else min(int(row[0]), newest_position(connection) - 1)


def trim_log(
    connection: sqlite3.Connection, seconds: float, clock: Callable[[], float] = time.monotonic
) -> None:
    """Delete what every reader has acknowledged, in short transactions, for at most `seconds`.

    Between two transactions writers get as long as the last one took. The rest is for next time.
    """
    rows, end = _TRIM_ROWS, clock() + seconds
    while (began := clock()) < end:
        if not _trim_once(connection, rows):
            return
        took = clock() - began
        rows = max(100, min(20_000, int(rows * min(2.0, _TRIM_SECONDS / 2 / max(took, 1e-6)))))
        time.sleep(min(took, 0.01))


def _trim_once(connection: sqlite3.Connection, rows: int) -> bool:
    """One short transaction; whether there may be more to do."""
    now = time.time()
    low, trimmed = trim_floor(connection, now), database_id(connection)[1]
    if (low is None or low <= trimmed) and _stale_pending(connection) is None:
        return False
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("DELETE FROM _viewkeeper_reader WHERE lease_until <= ?", (now,))
        low, trimmed = trim_floor(connection, now), database_id(connection)[1]
        if low is not None and low > trimmed:
            until = min(low, trimmed + rows)
            connection.execute(f"DELETE FROM {LOG} WHERE seq <= ?", (until,))
            connection.execute("UPDATE _viewkeeper_database SET trimmed = ?", (until,))
            recorded_shapes.trim_shapes(connection, until)
        if (clean := _stale_pending(connection)) is not None:
            connection.execute(
                f"DELETE FROM {clean} WHERE rowid IN (SELECT rowid FROM {clean} LIMIT ?)", (rows,)
            )
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return True


def _stale_pending(connection: sqlite3.Connection) -> str | None:
    """A pending table with rows; seen between transactions, so none of them is still needed."""
    for capture in read_captures(connection):
        name = pending_name(capture.id)
        if capture.active and connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone():
            return name
    return None
