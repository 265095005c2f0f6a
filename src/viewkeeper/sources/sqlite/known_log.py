"""What a project remembers of a database's log, so that a restored backup is always found.

A backup that is put back has an older log, which grows again: its positions come a second time, for
other rows. So the newest row of the log that was ever reported is remembered: its position, what
wrote it, and when, to the millisecond. As long as the log still has that position, it must have
that row there. Once it is trimmed nothing was lost: trimming waits for our own acknowledgement,
which the database itself keeps, so whatever it was restored from had all that we know of.

A database whose log is another one is followed again only from its end on, which is moved behind
all positions of the old one: those before that, the *floor*, are refused. Writers pay nothing for
this, and nothing has to be written at both sides at once: the file is written after the row was
committed and before it is reported.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from viewkeeper.errors import GapError
from viewkeeper.sources.sqlite.capture.capture_tables import (
    database_id,
    newest_position,
    write_mark,
)
from viewkeeper.sources.sqlite.capture.trigger_sql import LOG
from viewkeeper.sources.state_files import read_state_file, write_state_file
from viewkeeper.storage.typed_json import read_typed

FILE = "log.json"


@dataclass(frozen=True, slots=True)
class KnownLog:
    """The database, the newest row that was reported, and where the log began to be this one."""

    database: str
    position: int
    row: str
    floor: int = 0


class LogMemory:
    """What is remembered, in a file of the folder `home`, or in memory without one."""

    def __init__(self, home: Path | None) -> None:
        self._file = home / FILE if home is not None else None
        self._known: KnownLog | None = None
        self._is_read = self._file is None

    def begin_log(self, connection: sqlite3.Connection) -> int:
        """The log is followed from its end on, which is returned.

        The end of another log is moved behind every position that was ever reported, so that none
        of them is taken for one of its own. Inside the caller's write transaction.
        """
        known, database = self._read_known(), database_id(connection)[0]
        floor, end = known.floor if known is not None else 0, newest_position(connection)
        if known is not None and not _is_same(connection, known):
            floor = end = write_mark(connection, max(end, known.position) + 1)
        self._write_known(KnownLog(database, end, _row_at(connection, end), floor), durable=True)
        return end

    def remember_position(self, connection: sqlite3.Connection, reported: int) -> None:
        """A position is about to be reported."""
        known, row = self._read_known(), _row_at(connection, reported)
        floor = known.floor if known is not None else 0
        self._write_known(KnownLog(database_id(connection)[0], reported, row, floor), durable=False)

    def check_position(self, connection: sqlite3.Connection, source: str, after: int) -> None:
        """A GapError if this is not the log in which `after` was reached."""
        known = self._read_known()
        if known is None or (after >= known.floor and _is_same(connection, known)):
            return
        raise GapError(
            source,
            f"position {after} is not of this database's log",
            detail="it was restored from a backup, or replaced by another one, and has grown since",
            hint="`viewkeeper run --full-refresh VIEW` loads the views that read it again",
        )

    def forget_log(self) -> None:
        self._known, self._is_read = None, True
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _read_known(self) -> KnownLog | None:
        if not self._is_read:
            assert self._file is not None, "without a file everything is in memory"
            self._known = read_state_file(self._file, "log", _decode_known)
            self._is_read = True
        return self._known

    def _write_known(self, known: KnownLog, durable: bool) -> None:
        if known != self._known:
            if self._file is not None:
                write_state_file(self._file, "log", asdict(known), durable=durable)
            self._known = known


def _decode_known(found: Mapping[str, object]) -> KnownLog:
    return read_typed(KnownLog, found)


def _is_same(connection: sqlite3.Connection, known: KnownLog) -> bool:
    database, trimmed = database_id(connection)
    return database == known.database and (
        known.position <= trimmed or _row_at(connection, known.position) == known.row
    )


def _row_at(connection: sqlite3.Connection, seq: int) -> str:
    """What wrote a row of the log, and when; not its values."""
    query = f"SELECT capture, sign, at FROM main.{LOG} WHERE seq = ?"
    row = connection.execute(query, (seq,)).fetchone()
    return "" if row is None else "/".join(repr(each) for each in row)
