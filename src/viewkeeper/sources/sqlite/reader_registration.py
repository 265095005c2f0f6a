"""What one project has in a SQLite database, and what it remembers of the database's log.

A project is a *reader* there, registered with the columns that it follows and the position that it
has acknowledged. It follows, acknowledges, holds the log and leaves, each in one short write
transaction; only trimming takes several.

A project remembers enough of the log to find that a backup was restored. A backup that is put back
has an older log, which grows again: its positions come a second time, for other rows. So the newest
row of the log that was ever reported is remembered: its position, what wrote it, and when, to the
millisecond. As long as the log still has that position, it must have that row there. Once it is
trimmed nothing was lost: trimming waits for our own acknowledgement, which the database itself
keeps, so a backup of it had all that we know of.

A database whose log is another one is followed again only from its end on, which is moved behind
all positions of the old one: those before that, the *floor*, are refused. Writers pay nothing for
this, and nothing has to be written at both sides at once: the file is written after the row was
committed and before it is reported.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from viewkeeper.errors import GapError, reload_hint
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.sqlite.capture.capture_tables import (
    LOG,
    create_tables,
    database_id,
    is_installed,
    lease_name,
    newest_position,
    pending_name,
    read_captures,
    reader_position,
    require_installed,
    write_mark,
)
from viewkeeper.sources.sqlite.capture.follow import detach_reader, follow_for_reader, record_shapes
from viewkeeper.sources.sqlite.database import LastingConnection, is_busy, write_transaction
from viewkeeper.sources.sqlite.handle_lookup import find_wanted
from viewkeeper.sources.sqlite.resolved_tables import DatabaseState, read_database_state
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.storage.typed_json import read_typed
from viewkeeper.updates.source_protocol import DetachResult, Tables

FILE = "log.json"
# How long one acknowledgement may spend on trimming, and wait for a writer before it gives up.
_TRIM_SECONDS = 1.0
_TRIM_WAIT_MS = 50
# A transaction that trims is meant to take less than this, so that writers hardly notice it.
_TRIM_STEP_SECONDS = 0.004
_TRIM_ROWS = 500
# What is settled is looked at again after a while: a writer may have left rows to clean up.
_SETTLED_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ReaderRegistration:
    """The reader of one source in its database, and what is known of it here."""

    session: LastingConnection
    source: str
    reader: str
    handles: SourceHandles
    memory: LogMemory

    def follow_tables(self, tables: Tables) -> int:
        """Capture these columns too, for this reader, besides what it follows already.

        One short write transaction. Nothing happens if everything is captured already. In another
        database than the one that was followed, everything begins again.
        """
        with self.session.use_connection() as connection:
            with write_transaction(connection):
                create_tables(connection)
                database = database_id(connection)[0]
                book = self.handles.copy_book()
                if any(one.identity.partition("/")[0] != database for one in book.values()):
                    self.handles.forget_all()
                record_shapes(connection, self.source, mend=True)
                book = self.handles.copy_book()
                wanted = find_wanted(connection, self.source, book, tables)
                plain = [(each.table, list(each.columns.values())) for each in wanted]
                followed = follow_for_reader(connection, self.source, self.reader, plain)
                position = self.memory.begin_log(connection)
            for each, (relation, shape) in zip(wanted, followed, strict=True):
                ids = {column.name: str(column.id) for column in shape.columns}
                columns = {name: ids[now] for name, now in each.columns.items()}
                self.handles.add_target(each.handle, f"{database}/{relation}", columns)
            return position

    def check_position(self, connection: sqlite3.Connection, after: int) -> DatabaseState:
        """The state, if this is still the database in which `after` was reached."""
        state = read_database_state(connection, self.source, self.reader)
        at = state.reader_position
        if at is None:
            at = reader_position(connection, self.source, self.reader)
        self.memory.check_state(connection, self.source, state, at, after)
        return state

    def acknowledge_position(self, position: int) -> None:
        """Store the position, then trim what every reader has acknowledged.

        A database that is busy is no error: the next acknowledgement does what this one could not.
        One that comes again soon after it was done has nothing to do.
        """
        if self.memory.is_settled(position, time.monotonic()):
            return
        self.memory.save_reported()
        with self.session.use_connection(wait_ms=_TRIM_WAIT_MS) as connection:
            try:
                reader_position(connection, self.source, self.reader)
                connection.execute(
                    "UPDATE _viewkeeper_reader SET position = max(position, ?) WHERE reader = ?",
                    (position, self.reader),
                )
                self.memory.note_acknowledged(position)
                trim_log(connection, _TRIM_SECONDS)
                if is_trimmed(connection, position):
                    self.memory.note_trimmed(time.monotonic())
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise

    def begin_hold(self, name: str, seconds: float) -> None:
        """Keep the log for some time, from the lowest position that it still has."""
        with self.session.use_connection() as connection, write_transaction(connection):
            require_installed(connection, self.source)
            _, trimmed = database_id(connection)
            connection.execute(
                "INSERT OR REPLACE INTO _viewkeeper_reader VALUES (?, ?, '{}', ?)",
                (lease_name(self.reader, name), trimmed, time.time() + seconds),
            )

    def end_hold(self, name: str) -> None:
        """End a lease; nothing happens if it has ended."""
        with self.session.use_connection() as connection, write_transaction(connection):
            if is_installed(connection):
                held = (lease_name(self.reader, name),)
                connection.execute("DELETE FROM _viewkeeper_reader WHERE reader = ?", held)

    def detach_source(self, force: bool) -> DetachResult:
        """Stop following; the log and triggers go with the last reader, or at once by `force`."""
        with self.session.use_connection() as connection, write_transaction(connection):
            done = detach_reader(connection, self.source, self.reader, force)
        self.handles.forget_all()
        self.memory.forget_log()
        return done


@dataclass(frozen=True, slots=True)
class KnownLog:
    """The database, the newest row that was reported, and where the log began to be this one."""

    database: str
    position: int
    row: str
    floor: int = 0


class LogMemory:
    """What is remembered, in a file, or in memory without one; the database and the acknowledged
    position only as long as the process lasts."""

    def __init__(self, files: StateFiles | None) -> None:
        self._files = files
        self._database: str | None = None
        self._acknowledged = -1
        self._trimmed: tuple[KnownLog | None, float] | None = None
        self._known: KnownLog | None = None
        self._is_read = self._files is None

    def begin_log(self, connection: sqlite3.Connection) -> int:
        """The log is followed from its end on, which is returned.

        The end of another log is moved behind every position that was ever reported, so that none
        of them is taken for one of its own. Inside the caller's write transaction.
        """
        known, database = self._read_known(), database_id(connection)[0]
        self._database = database
        floor, end = known.floor if known is not None else 0, newest_position(connection)
        if known is not None and not _is_same(connection, known, database_id(connection)):
            floor = end = write_mark(connection, max(end, known.position) + 1)
        self._write_known(KnownLog(database, end, _row_at(connection, end), floor), durable=True)
        return end

    def note_acknowledged(self, position: int) -> None:
        """Positions below the acknowledged one are not of the database that was followed."""
        if position > self._acknowledged:
            self._acknowledged, self._trimmed = position, None

    def note_trimmed(self, now: float) -> None:
        """All that may go of what was acknowledged has gone."""
        self._trimmed = (self._known, now)

    def is_settled(self, position: int, now: float) -> bool:
        """Whether a position was acknowledged and all was trimmed a short time ago, and nothing was
        reported since."""
        if self._trimmed is None or position > self._acknowledged:
            return False
        known, at = self._trimmed
        return known == self._known and now - at < _SETTLED_SECONDS

    def check_state(
        self,
        connection: sqlite3.Connection,
        source: str,
        state: DatabaseState,
        acknowledged: int,
        after: int,
    ) -> None:
        """A GapError unless this is still the database in which `after` was reached."""
        went_back = acknowledged < self._acknowledged or max(after, acknowledged) > state.position
        if went_back or (self._database is not None and self._database != state.database):
            raise GapError(
                source,
                f"position {after} is not of this database, which ends at {state.position}",
                detail="it was restored from a backup, or replaced by another one",
                hint=reload_hint(),
            )
        self._check_position(connection, source, state, after)
        self._database = state.database

    def remember_position(self, connection: sqlite3.Connection, state: DatabaseState) -> None:
        """The position of a state is about to be reported."""
        known, row = self._read_known(), _row_at(connection, state.position)
        floor = known.floor if known is not None else 0
        self._write_known(KnownLog(state.database, state.position, row, floor), durable=False)

    def _check_position(
        self, connection: sqlite3.Connection, source: str, state: DatabaseState, after: int
    ) -> None:
        """A GapError if this is not the log in which `after` was reached."""
        known, identity = self._read_known(), (state.database, state.trimmed)
        if known is None or (after >= known.floor and _is_same(connection, known, identity)):
            return
        raise GapError(
            source,
            f"position {after} is not of this database's log",
            detail="it was restored from a backup, or replaced by another one, and has grown since",
            hint=reload_hint(),
        )

    def forget_log(self) -> None:
        self._known, self._is_read = None, True
        self._database, self._acknowledged, self._trimmed = None, -1, None
        if self._files is not None:
            self._files.remove_files([FILE])

    def save_reported(self) -> None:
        """Make durable what was remembered of positions that were reported."""
        if self._files is not None:
            self._files.save_noted()

    def _read_known(self) -> KnownLog | None:
        if not self._is_read:
            assert self._files is not None, "without a file everything is in memory"
            self._known = self._files.read_file(FILE, "log", partial(read_typed, KnownLog))
            self._is_read = True
        return self._known

    def _write_known(self, known: KnownLog, durable: bool) -> None:
        if known != self._known:
            if self._files is not None and durable:
                self._files.write_file(FILE, "log", asdict(known))
            elif self._files is not None:
                self._files.note_file(FILE, "log", asdict(known), durable=False)
            self._known = known


def _is_same(connection: sqlite3.Connection, known: KnownLog, identity: tuple[str, int]) -> bool:
    database, trimmed = identity
    return database == known.database and (
        known.position <= trimmed or _row_at(connection, known.position) == known.row
    )


def _row_at(connection: sqlite3.Connection, seq: int) -> str:
    """What wrote a row of the log, and when; not its values."""
    query = f"SELECT capture, sign, at FROM main.{LOG} WHERE seq = ?"
    row = connection.execute(query, (seq,)).fetchone()
    return "" if row is None else "/".join(repr(each) for each in row)


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


def is_trimmed(connection: sqlite3.Connection, position: int) -> bool:
    """Whether nothing is left of what a reader at a position lets go: there was time for all
    of it, and nobody else keeps it."""
    return database_id(connection)[1] >= min(position, newest_position(connection) - 1)


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
        rows = max(100, min(20_000, int(rows * min(2.0, _TRIM_STEP_SECONDS / 2 / max(took, 1e-6)))))
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
            _trim_shapes(connection, until)
        if (clean := _stale_pending(connection)) is not None:
            connection.execute(
                f"DELETE FROM {clean} WHERE rowid IN (SELECT rowid FROM {clean} LIMIT ?)", (rows,)
            )
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return True


def _trim_shapes(connection: sqlite3.Connection, position: int) -> None:
    """Forget the shapes that were over before a position."""
    connection.execute(
        "DELETE FROM _viewkeeper_shape WHERE seq < (SELECT max(later.seq) FROM _viewkeeper_shape"
        " AS later WHERE later.relation = _viewkeeper_shape.relation AND later.seq <= ?)",
        (position,),
    )


def _stale_pending(connection: sqlite3.Connection) -> str | None:
    """A pending table with rows; seen between transactions, so none of them is still needed."""
    for capture in read_captures(connection):
        name = pending_name(capture.id)
        if capture.active and connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone():
            return name
    return None
