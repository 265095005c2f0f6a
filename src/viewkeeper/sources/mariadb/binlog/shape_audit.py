"""Now and then: whether followed tables are what they should be by all that the log says.

A session can switch its own logging off and alter a table then. Rows that it changes so are never
seen; but that a table has another shape is, here at the latest. A table is described while we hold
it for a moment, at a position; when the stream has come there, both are compared. What does not
agree is reported with the next transaction of the server.

No ALTER TABLE is waited for: a table that is locked is looked at another time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pymysql

from viewkeeper.errors import SchemaError
from viewkeeper.sources.mariadb.binlog.log import read_log_end
from viewkeeper.sources.mariadb.binlog.shape_tracker import ShapeTracker
from viewkeeper.sources.mariadb.logged_shapes import LoggedShape, ShapedColumn
from viewkeeper.sources.mariadb.schema import MariadbTable, read_table
from viewkeeper.sources.mariadb.server_connection import (
    Connection,
    fetch_texts,
    quote_name,
    run_statement,
)
from viewkeeper.sources.mariadb.types import MariadbKind

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
