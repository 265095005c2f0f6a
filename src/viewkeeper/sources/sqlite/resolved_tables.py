"""What was found out about tables of a SQLite database, kept as long as nobody can have changed it.

A question to a table needs its shape, keys, indexes and captures: a dozen statements, and the same
answers nearly always. They can be others only if the schema is another one, or what Viewkeeper has
written down of it. All of these have numbers that one statement reads, together with the newest
position, inside the transaction that asks. So:

1. What is kept belongs to one `DatabaseState.version`, of one database, and to one meaning of a
   handle. In a transaction with another version it is not used.
2. It is kept only while the shapes that are written down are the current ones. Until a look has
   written a schema change down, everything is asked again in every transaction.
3. What a table was at an earlier position is known from here only where it has had the same shape
   ever since, and one capture has written all of its log since then (`is_steady_since`). Otherwise
   the slow way is taken, which knows shapes by position.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field

from viewkeeper.errors import BrokenQueryError
from viewkeeper.sources.handles import Book, HandleTarget
from viewkeeper.sources.sqlite.capture.capture_tables import (
    LOG,
    TableCapture,
    read_captures,
    require_installed,
)
from viewkeeper.sources.sqlite.capture.recorded_shapes import shaped_since
from viewkeeper.sources.sqlite.handle_lookup import FoundTable, find_handle, table_of
from viewkeeper.sources.sqlite.schema import SqliteTable
from viewkeeper.sources.sqlite.types import SqliteLayout

_STATE = f"""
SELECT d.id, d.trimmed, d.shaped, v.schema_version,
       coalesce((SELECT max(seq) FROM main.{LOG}), 0),
       (SELECT max(id) FROM main._viewkeeper_capture),
       (SELECT max(rowid) FROM main._viewkeeper_shape),
       r.position, r.tables
  FROM main._viewkeeper_database AS d, pragma_schema_version AS v
  LEFT JOIN main._viewkeeper_reader AS r ON r.reader = ?
"""


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """A database as one transaction sees it: its id, where its log begins and ends, the version of
    its schema and of what is written down of it, and where a reader is."""

    database: str
    trimmed: int
    shaped: int | None
    schema: int
    position: int
    newest_capture: int | None
    newest_shape: int | None
    reader_position: int | None
    reader_tables: str | None

    @property
    def is_recorded(self) -> bool:
        """Whether the shapes that are written down are the current ones."""
        return self.shaped == self.schema

    @property
    def version(self) -> tuple[object, ...]:
        """What differs once a table, a capture or a shape is another one."""
        return self.database, self.schema, self.shaped, self.newest_capture, self.newest_shape


def read_database_state(
    connection: sqlite3.Connection, source: str, reader: str = ""
) -> DatabaseState:
    """The state inside the caller's read transaction; a GapError if nothing is captured there."""
    try:
        row = connection.execute(_STATE, (reader,)).fetchone()
    except sqlite3.OperationalError:
        require_installed(connection, source)
        raise
    if row is None:
        raise LookupError("the database does not say which one it is")
    identity, trimmed, *numbers, at, tables = row
    shaped, schema, position, capture, shape = numbers
    return DatabaseState(
        str(identity), int(trimmed), shaped, schema, position, capture, shape, at, tables
    )


@dataclass(frozen=True, slots=True)
class ResolvedTable:
    """The table of a handle, with its keys and indexes, since when it has its shape, and the
    capture that writes its log; None where nobody captures it."""

    found: FoundTable
    table: SqliteTable
    shaped_since: int | None
    capture: TableCapture | None
    layouts: dict[tuple[tuple[str, ...], tuple[str, ...]], SqliteLayout] = field(
        default_factory=dict
    )

    def is_steady_since(self, position: int) -> bool:
        """Whether the table has had its shape since a position, and its capture all that time."""
        return (
            self.shaped_since is not None
            and self.capture is not None
            and max(self.shaped_since, self.capture.since) <= position
        )

    def layout_of(self, columns: Sequence[str], integers: tuple[str, ...] = ()) -> SqliteLayout:
        """How columns are read; a SchemaError for one that cannot be kept."""
        wanted = (tuple(columns), integers)
        if wanted not in self.layouts:
            self.layouts[wanted] = self.found.layout_of(columns, integers)
        return self.layouts[wanted]


def find_table(
    connection: sqlite3.Connection, source: str, book: Book, handle: str
) -> ResolvedTable:
    """The table of a handle as this transaction sees it; a BrokenQueryError if it is gone."""
    found = find_handle(connection, source, book, handle)
    table = table_of(connection, found)
    if found.relation is None:
        return ResolvedTable(found, table, None, None)
    captures = read_captures(connection, found.relation)
    newest = captures[-1] if captures and captures[-1].active else None
    return ResolvedTable(found, table, shaped_since(connection, found.relation), newest)


class ResolvedTables:
    """The tables of one source, by handle; may be used from several threads."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._kept: tuple[object, dict[str, tuple[HandleTarget | None, ResolvedTable]]] = (None, {})

    def find_table(
        self, connection: sqlite3.Connection, state: DatabaseState, book: Book, handle: str
    ) -> ResolvedTable:
        """The table of a handle in a transaction with this state."""
        if not state.is_recorded:
            return find_table(connection, self._source, book, handle)
        version, tables = self._kept
        if version != state.version:
            tables = {}
            self._kept = (state.version, tables)
        meaning, kept = book.get(handle), tables.get(handle)
        if kept is None or kept[0] != meaning:
            kept = (meaning, find_table(connection, self._source, book, handle))
            tables[handle] = kept
        return kept[1]

    def find_steady(
        self,
        connection: sqlite3.Connection,
        state: DatabaseState,
        book: Book,
        handle: str,
        after: int,
    ) -> ResolvedTable | None:
        """The same where the table has been what it is since a position; None where the log has
        to be asked what it was."""
        if not state.is_recorded or after < state.trimmed:
            return None
        try:
            kept = self.find_table(connection, state, book, handle)
        except BrokenQueryError:
            return None
        return kept if kept.is_steady_since(after) else None
