"""What a look at a SQLite source finds, and what the next look may conclude from it.

A look happens many times a second and mostly finds nothing, so it must be cheap then: SQLite keeps
a counter that changes with every commit of somebody else, and reading it costs microseconds.
"""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass

from viewkeeper.sources.sqlite.capture import capture_tables
from viewkeeper.sources.sqlite.capture.trigger_sql import LOG

_EPOCH_DAY = 2_440_587.5  # The Julian day of 1970-01-01, in which triggers note the time.
_DAY_SECONDS = 86_400.0


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
class SqliteState:
    """Which database this is, where its log ends, and up to where the reader has acknowledged."""

    database_id: str
    position: int
    reader_position: int


def read_state(connection: sqlite3.Connection, source: str, reader: str) -> SqliteState:
    """The state inside the caller's read transaction; a GapError if it is not followed."""
    capture_tables.require_installed(connection, source)
    return SqliteState(
        capture_tables.database_id(connection)[0],
        capture_tables.newest_position(connection),
        capture_tables.reader_position(connection, source, reader),
    )


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """How many changes of the reader's tables there are in a range, and when the first was made."""

    changes: int
    oldest_at: float


def summarize_changes(
    connection: sqlite3.Connection, reader: str, after: int, until: int
) -> ChangeSummary:
    followed = capture_tables.reader_columns(connection, reader)
    ids = [
        str(each.id)
        for each in capture_tables.read_captures(connection)
        if each.relation in followed
    ]
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
