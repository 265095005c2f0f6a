"""Now and then: whether followed tables are what they should be by all that the log says.

A session can switch its own logging off and alter a table then. Rows that it changes so are never
seen; but that a table has another shape is, here at the latest. A table is described while we hold
it for a moment, at a position; when the stream has come there, both are compared. What does not
agree is told with the next transaction of the server.

No ALTER TABLE is waited for: a table that is locked is looked at another time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pymysql

from viewkeeper.errors import SchemaError
from viewkeeper.sources.mariadb.binlog.log import log_end
from viewkeeper.sources.mariadb.binlog.shape_tracker import Tracker
from viewkeeper.sources.mariadb.logged_shapes import Shape
from viewkeeper.sources.mariadb.schema import Table, read_table
from viewkeeper.sources.mariadb.server_connection import Connection, execute, quote, texts
from viewkeeper.sources.mariadb.types import Kind

_SECONDS = 5.0
_MISSING = {1146, 1049, 1932}


@dataclass(frozen=True, slots=True)
class _Seen:
    """A table as the server had it at a position; None if it was not there."""

    shape: Shape
    table: Table | None
    position: int


@dataclass(slots=True)
class Audit:
    """Looks at the followed tables of one source every few seconds."""

    source: str
    _due: float = 0.0
    _seen: list[_Seen] = field(default_factory=list)

    def run(
        self, connection: Connection, tracker: Tracker, wanted: Mapping[str, Sequence[str]]
    ) -> None:
        """Describe tables if it is time; compare what was described before, where the stream has
        come."""
        if not self._seen and time.monotonic() >= self._due:
            self._due = time.monotonic() + _SECONDS
            found = (self._describe(connection, shape) for shape in tracker.shapes)
            self._seen = [one for one in found if one is not None]
        late = [one for one in self._seen if one.position > tracker.reached]
        for one in self._seen:
            if one.position <= tracker.reached and _differs(one, tracker, wanted):
                tracker.contradict(one.shape.id)
        self._seen = late

    def forget(self) -> None:
        """Reading begins anew."""
        self._due, self._seen = 0.0, []

    def _describe(self, connection: Connection, shape: Shape) -> _Seen | None:
        name = f"{quote(shape.database)}.{quote(shape.name)}"
        table: Table | None = None
        execute(connection, "START TRANSACTION")
        try:
            touch = f"SELECT 1 FROM {name} LIMIT 1"
            texts(connection, f"SET STATEMENT lock_wait_timeout = 0 FOR {touch}")
            table = read_table(connection, self.source, shape.database, shape.full_name)
            return _Seen(shape, table, log_end(connection))
        except SchemaError:
            return _Seen(shape, None, log_end(connection))
        except pymysql.Error as error:
            if not connection.open:
                raise
            # Locked, or not to be seen by us: that is for whoever asks about the table.
            is_missing = error.args[0] in _MISSING
            return _Seen(shape, None, log_end(connection)) if is_missing else None
        finally:
            if connection.open:
                execute(connection, "ROLLBACK")


def _differs(seen: _Seen, tracker: Tracker, wanted: Mapping[str, Sequence[str]]) -> bool:
    """Whether the server had another table than the log says."""
    shape = tracker.at(seen.position).get(seen.shape.id)
    if shape is None or shape.full_name != seen.shape.full_name:
        return False
    if seen.table is None or seen.position < shape.since:
        return seen.table is None
    for id in wanted.get(shape.id, ()):
        column = shape.column(id)
        if column is not None and not _agrees(seen.table, column.name, column.kind):
            return True
    return False


def _agrees(table: Table, name: str, kind: Kind | None) -> bool:
    if not table.has(name):
        return False
    found = table.column(name).kind
    if kind is None or not isinstance(found, Kind):
        return kind is None and not isinstance(found, Kind)
    return found.arrow == kind.arrow
