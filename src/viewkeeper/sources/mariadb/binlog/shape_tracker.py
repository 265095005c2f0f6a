"""The shapes of followed tables, carried along while the log is read.

Every statement that changes them makes the next version, which counts from where its transaction
ends. The versions are kept for as long as somebody may ask what a table was called at a position.

The log is believed, not trusted: before rows it describes their table (`table_map`). A description
that does not agree with all statements before means that something was not logged, or not
understood; then the table is reported as another one, and is loaded again.

A session can switch its own logging off and alter a table then. Rows that it changes so are never
seen; but that a table has another shape is, here at the latest. A table is described while we hold
it for a moment, at a position; when the stream has come there, both are compared. What does not
agree is reported with the next transaction of the server.

No ALTER TABLE is waited for: a table that is locked is looked at another time.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from operator import itemgetter

import pymysql

from viewkeeper.errors import SchemaError
from viewkeeper.sources.mariadb.binlog.log import read_log_end
from viewkeeper.sources.mariadb.binlog.rows import (
    BinlogLayout,
    ObscureError,
    ShapeChangedError,
    layout_of,
)
from viewkeeper.sources.mariadb.binlog.table_map import read_table_map
from viewkeeper.sources.mariadb.ddl.shape_effect import ShapeEffect, effect_of
from viewkeeper.sources.mariadb.ddl.statement import LoggedStatement
from viewkeeper.sources.mariadb.logged_shapes import (
    LoggedChange,
    LoggedShape,
    LoggedShapes,
    ShapedColumn,
    key_ids,
)
from viewkeeper.sources.mariadb.schema import MariadbTable, characters_of, read_table
from viewkeeper.sources.mariadb.server_connection import (
    Connection,
    MariadbServer,
    fetch_texts,
    quote_name,
    run_statement,
)
from viewkeeper.sources.mariadb.types import MariadbKind
from viewkeeper.sources.tables.shape_changes import ShapeChange
from viewkeeper.sources.tables.shape_history import ShapeHistory

KeyOf = Callable[[str, str], Sequence[str] | None]
"""The names of the columns of a table's key now, by database and table; None if it is not there."""


@dataclass(frozen=True, slots=True)
class ShapeWatch:
    """What to follow: the shapes at a position of the log, and the columns whose values are kept,
    by identity."""

    shapes: LoggedShapes
    position: int
    columns: Mapping[str, tuple[str, ...]]


class ShapeTracker:
    """Follows a watch from a position on; without `key_of` keys do not matter."""

    def __init__(
        self, server: MariadbServer, watch: ShapeWatch, start: int, key_of: KeyOf | None = None
    ) -> None:
        early = start < watch.position
        shapes = watch.shapes.known_from(watch.position) if early else watch.shapes
        self._wanted = watch.columns
        self._key_of = key_of
        self._history = ShapeHistory(((start, shapes),))
        self._open = shapes
        self._open_changes: list[LoggedChange] = []
        self._layouts: dict[bytes, BinlogLayout | None] = {}
        self._characters = cache(lambda charset: _ask_characters(server, charset))
        self._reported: list[tuple[int, LoggedChange]] = []
        self.reached = start

    @property
    def shapes(self) -> LoggedShapes:
        """As of the last transaction that has ended."""
        return self._history.newest

    def note_reached(self, position: int) -> None:
        """The log was read up to a position."""
        self.reached = position

    @property
    def is_reshaping(self) -> bool:
        """Whether the transaction that is being read changes a shape."""
        return bool(self._open_changes)

    def shapes_at(self, position: int) -> LoggedShapes:
        """As of a position that was read."""
        return self._history.shape_at(position)

    def changes_between(self, after: int, until: int) -> list[LoggedChange]:
        """The changes of transactions that end with `after` < position <= `until`."""
        start = bisect_right(self._reported, after, key=itemgetter(0))
        end = bisect_right(self._reported, until, key=itemgetter(0))
        return [change for _, change in self._reported[start:end]]

    def is_wanted(self, id: str) -> bool:
        """Whether rows of a table are wanted; only its shape is, if they are not."""
        return id in self._wanted

    def apply_statement(self, statement: LoggedStatement, position: int) -> ShapeEffect | None:
        """Take a statement that ends at a position; what it did to followed tables, if anything."""
        effect = effect_of(statement, self._open, position, self._characters)
        if effect is None:
            return None
        for id in effect.keys:
            self._compare_key(effect, id)
        self._open_changes += effect.changes
        self._replace_shapes(effect.shapes)
        return effect

    def _replace_shapes(self, shapes: LoggedShapes) -> None:
        if shapes != self._open:
            self._open = shapes
            self._layouts.clear()

    def _compare_key(self, effect: ShapeEffect, id: str) -> None:
        """The server knows what the key is now; by the last statement that is what it should be."""
        shape = effect.shapes.shape_by_id(id)
        if shape is None or self._key_of is None:
            return
        names = self._key_of(shape.database, shape.name)
        if names is None or any(shape.column_named(name) is None for name in names):
            return
        key = key_ids(shape, names)
        if key != shape.key:
            effect.add_change(id, "change_key", ", ".join(names))
            effect.shapes = effect.shapes.with_table(replace(shape, key=key))

    def find_layout(self, described: bytes, position: int) -> BinlogLayout | None:
        """How the rows of the table that the log describes are read; None if it is not followed.
        An ObscureError if that cannot be told."""
        if described not in self._layouts:
            self._layouts[described] = self._make_layout(described, position)
        return self._layouts.get(described)

    def _make_layout(self, described: bytes, position: int) -> BinlogLayout | None:
        log = read_table_map(described)
        shape = self._open.find_shape(log.database, log.name)
        if shape is None or not self.is_wanted(shape.id):
            return None
        if not log.named:
            raise ObscureError(shape, "has columns that the binlog does not name")
        try:
            return layout_of(shape, self._wanted[shape.id], log)
        except ShapeChangedError:
            if position > shape.since:
                self.contradict_table(shape.id)
            else:
                self._add_recreation(shape.id)
            return None

    def contradict_table(self, id: str) -> None:
        """A table is not what it should be; that is reported with the next transaction."""
        if self._open.shape_by_id(id) is not None:
            self._add_recreation(id)
            self._replace_shapes(self._open.without_tables([id]))

    def _add_recreation(self, id: str) -> None:
        self._open_changes.append(LoggedChange(id, ShapeChange("recreate_table")))

    def end_transaction(self, position: int) -> None:
        """The transaction that was being read ends here."""
        self._reported += [(position, change) for change in self._open_changes]
        self._open_changes = []
        if self._open is not self.shapes:
            self._history = self._history.add_step(position, self._open)

    def abandon_transaction(self) -> None:
        """The transaction that was being read has no end."""
        self._open_changes = []
        self._replace_shapes(self.shapes)

    def forget_before(self, position: int) -> None:
        """Nobody will ask for what was before a position."""
        self._history = self._history.fold_until(position)
        del self._reported[: bisect_right(self._reported, position, key=itemgetter(0))]


def _ask_characters(server: MariadbServer, charset: str) -> str:
    with closing(server.open_connection()) as connection, server.translate_errors():
        return characters_of(connection, charset)


_SECONDS = 5.0
_MISSING = {1146, 1049, 1932}


@dataclass(frozen=True, slots=True)
class _Seen:
    """A table as the server had it at a position; None if it was not there."""

    shape: LoggedShape
    table: MariadbTable | None
    position: int


@dataclass(slots=True)
class ShapeAudit:
    """Looks at the followed tables of one source every few seconds."""

    source: str
    _due: float = 0.0
    _seen: list[_Seen] = field(default_factory=list)

    def audit_shapes(
        self, connection: Connection, tracker: ShapeTracker, wanted: Mapping[str, Sequence[str]]
    ) -> None:
        """Describe tables if it is time; compare what was described before, where the stream has
        come."""
        if not self._seen and time.monotonic() >= self._due:
            self._due = time.monotonic() + _SECONDS
            found = (self._describe_table(connection, shape) for shape in tracker.shapes)
            self._seen = [one for one in found if one is not None]
        late = [one for one in self._seen if one.position > tracker.reached]
        for one in self._seen:
            if one.position <= tracker.reached and _is_different(one, tracker, wanted):
                tracker.contradict_table(one.shape.id)
        self._seen = late

    def forget_seen(self) -> None:
        """The stream begins again."""
        self._due, self._seen = 0.0, []

    def _describe_table(self, connection: Connection, shape: LoggedShape) -> _Seen | None:
        name = f"{quote_name(shape.database)}.{quote_name(shape.name)}"
        table: MariadbTable | None = None
        run_statement(connection, "START TRANSACTION")
        try:
            touch = f"SELECT 1 FROM {name} LIMIT 1"
            fetch_texts(connection, f"SET STATEMENT lock_wait_timeout = 0 FOR {touch}")
            table = read_table(connection, self.source, shape.database, shape.full_name)
            return _Seen(shape, table, read_log_end(connection))
        except SchemaError:
            return _Seen(shape, None, read_log_end(connection))
        except pymysql.Error as error:
            if not connection.open:
                raise
            # Locked, or not to be seen by us: that is for whoever asks about the table.
            is_missing = error.args[0] in _MISSING
            return _Seen(shape, None, read_log_end(connection)) if is_missing else None
        finally:
            if connection.open:
                run_statement(connection, "ROLLBACK")


def _is_different(seen: _Seen, tracker: ShapeTracker, wanted: Mapping[str, Sequence[str]]) -> bool:
    """Whether the server had another table than the log says."""
    shape = tracker.shapes_at(seen.position).shape_by_id(seen.shape.id)
    if shape is None or shape.full_name != seen.shape.full_name:
        return False
    if seen.table is None or seen.position < shape.since:
        return seen.table is None
    for id in wanted.get(shape.id, ()):
        column = shape.column_by_id(id)
        if column is not None and not _has_same_type(seen.table, column):
            return True
    return False


def _has_same_type(table: MariadbTable, column: ShapedColumn) -> bool:
    if not table.has_column(column.name):
        return False
    found, logged = table.find_column(column.name).kind, column.shape_column.type
    return logged == (found.arrow if isinstance(found, MariadbKind) else None)
