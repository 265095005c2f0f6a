"""MariaDB as a source: the row binlog is the stream, consistent snapshots are the answers.

Positions are places in the binlog (`position`), which is read as a replica reads it
(`log`, `stream`) into a spool. A snapshot says by itself at which place of the
binlog it stands (`read`), so a cut is one number and exact. Types are in `types`;
what the server must be like is in `server`, what we remember of it in `state`.

There is no thread: a look reads what the binlog has got since the last one. It reads up to what
every snapshot from now on includes, so that no cut is ever behind a position that was reported.

Nothing is put into the database. Any number of readers may read its binlog side by side.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pymysql

from viewkeeper.errors import (
    GapError,
    SchemaError,
    SourceAwayError,
    SourceError,
    WarehouseError,
)
from viewkeeper.sources.mariadb.doctor import Doctor
from viewkeeper.sources.mariadb.health import behind, health
from viewkeeper.sources.mariadb.log import newest
from viewkeeper.sources.mariadb.open import Connection, Server, execute
from viewkeeper.sources.mariadb.position import file_of, offset_of
from viewkeeper.sources.mariadb.read import MariadbOpener
from viewkeeper.sources.mariadb.server import require, require_logged
from viewkeeper.sources.mariadb.state import (
    FollowedTable,
    State,
    born_at,
    check_history,
    check_place,
    extended,
    gtid_at,
    read_state,
    remaining,
    remove_state,
    write_state,
)
from viewkeeper.sources.mariadb.stream import Stream
from viewkeeper.sources.mariadb.table import Table, folds_names, read_table
from viewkeeper.sources.mariadb.tail import followed, select, server_id
from viewkeeper.sources.mariadb.types import Refusal
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.spool import Spool, Streamed
from viewkeeper.updates.protocol import (
    LOOK_SECONDS,
    LOOK_TRANSACTIONS,
    Boundary,
    Detached,
    Finding,
    Health,
    Tables,
)
from viewkeeper.view.definition import Field

# The next look goes on where this one stopped.
_LOOK_SECONDS = LOOK_SECONDS
_READ_SECONDS = 600.0
_ALL = 1 << 62
# Changes of others are reported, as an empty transaction, once the log has grown by so much: else
# the files of the binlog that we still ask for would be removed while our tables rest.
_IDLE_BYTES = 16 << 20


def open_source(settings: SourceSettings, reader: str) -> MariadbSource:
    return MariadbSource(settings, reader)


class MariadbSource:
    """One database of a MariaDB server, followed by the project `reader`."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        self.name = settings.name
        self.reader = reader
        self._server = Server(settings)
        self._home = Path(settings.home)
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._spool = Spool(self._home)
        self._stream: Stream | None = None
        self._start = 0
        # What views call a table, by its full name.
        self._asked: Mapping[str, tuple[str, ...]] = {}
        self._checked = False

    def describe(self) -> str:
        return f"MariaDB at {self._server.where()}"

    def advice(self) -> str | None:
        return None

    def schema(self, table: str) -> tuple[Field, ...]:
        """The columns that can be kept exactly; `refused` says why the others cannot."""
        columns = self._captured(table).columns
        return tuple(
            Field(column.name, column.kind.arrow)
            for column in columns
            if not isinstance(column.kind, Refusal)
        )

    def refused(self, table: str) -> dict[str, str]:
        columns = self._captured(table).columns
        return {
            column.name: f"{column.kind.reason}; {column.kind.hint}"
            for column in columns
            if isinstance(column.kind, Refusal)
        }

    def key(self, table: str) -> tuple[str, ...]:
        """The columns of a key that MariaDB enforces and that cannot be NULL; () without one."""
        found = self._captured(table)
        kinds = {column.name: column.kind for column in found.columns}
        exact = {name for name, kind in kinds.items() if not isinstance(kind, Refusal)}
        return found.strict_key if exact.issuperset(found.strict_key) else ()

    def indexed(self, table: str, columns: Sequence[str]) -> bool:
        found = self._captured(table)
        return bool(found.prefix([found.kept(column)[0] for column in columns]))

    def finds_by_key(self, table: str, columns: Sequence[str]) -> bool:
        """Every kind of value that is kept can be compared."""
        found = self._captured(table)
        return bool([found.kept(column) for column in columns])

    def _captured(self, table: str) -> Table:
        with self._using() as connection:
            found = read_table(connection, self.name, self._database, table)
        refusal = found.refusal()
        if refusal is not None:
            raise refusal
        return found

    @property
    def _database(self) -> str:
        return self._server.address().database

    def follow(self, tables: Tables) -> int:
        """Capture these columns too, besides what is followed already and still there.

        Nothing is changed at the server. What was read ahead is read again if columns are new,
        because it was read without them. Whoever goes on from an earlier position looks first: if
        the server is not the one that was followed, it is from now on.
        """
        with self._using() as connection:
            require(connection, self.name)
            shapes = {name: self._captured(name) for name in tables}
            databases = {table.database for table in shapes.values()}
            require_logged(connection, self.name, databases)
            state = self._same_state(connection)
            known = state.tables if state is not None else {}
            kept = {name: self._still(connection, name, table) for name, table in known.items()}
            wanted = {name: table for name, table in kept.items() if table is not None}
            for name, columns in tables.items():
                wanted[name] = extended(wanted.get(name), shapes[name], columns)
            position = newest(connection)
            if state is None:
                born = born_at(self._server, server_id(self.reader), position)
                state = State(position, gtid_at(connection, position), born)
            if wanted != known or not known:
                write_state(self._home, replace(state, tables=wanted))
                self._forget()
            return position

    def _same_state(self, connection: Connection) -> State | None:
        """What we remember, if this is still the server that we remember it of."""
        state = read_state(self._home)
        if state is not None and not self._checked:
            try:
                check_history(connection, self._server, server_id(self.reader), state)
            except GapError:
                return None
        return state

    def _still(
        self, connection: Connection, name: str, table: FollowedTable
    ) -> FollowedTable | None:
        """What is left of a table that was followed before."""
        try:
            return remaining(table, read_table(connection, self.name, self._database, name))
        except SchemaError:
            return None

    def look(self, after: int) -> tuple[Boundary, ...]:
        """The transactions that changed followed tables.

        While nothing was committed a look costs one short statement. Where only other tables
        were changed, an empty transaction is reported now and then, so that we do not stay behind.
        """
        with self._using() as connection:
            stream = self._stream_from(connection, after)
            end = newest(connection)
            if end < max(after, stream.position):
                raise GapError(
                    self.name,
                    f"position {max(after, stream.position)} lies beyond its binlog, at {end}",
                    detail="its data were restored, or its binlog was reset",
                    hint="viewkeeper run --full-refresh VIEW loads its views anew",
                )
            if end > stream.position and self._spool_has_room(after):
                self._advance(stream, end, _LOOK_SECONDS, LOOK_TRANSACTIONS)
            found = self._spool.transactions(after, LOOK_TRANSACTIONS)
            if found:
                return tuple(self._boundary(one) for one in found)
            if stream.halted is not None:
                raise stream.halted
            reached = stream.position
            if file_of(reached) > file_of(after) or offset_of(reached - after) > _IDLE_BYTES:
                return (Boundary(reached, time.time(), 0),)
            return ()

    def _boundary(self, one: Streamed) -> Boundary:
        emptied = tuple(name for table in one.emptied for name in self._asked[table])
        return Boundary(one.position, one.committed_at, one.changes, emptied)

    def _spool_has_room(self, after: int) -> bool:
        return len(self._spool.transactions(after, LOOK_TRANSACTIONS)) < LOOK_TRANSACTIONS

    def _stream_from(self, connection: Connection, after: int) -> Stream:
        """The stream, with everything after a position in the spool or still to come."""
        state = read_state(self._home)
        if state is None:
            raise GapError(
                self.name,
                "it is not followed by this warehouse",
                hint="viewkeeper run --full-refresh VIEW loads its views anew",
            )
        self._check(connection, state)
        if self._stream is None or after < self._start:
            check_place(connection, self.name, after)
            self._forget()
            tables = state.tables
            self._asked = {
                full: tuple(name for name, table in tables.items() if table.full_name == full)
                for full in {table.full_name for table in tables.values()}
            }
            folds = folds_names(connection)
            kept = followed(tables, state.columns, folds=folds, strict=False)
            own = int(self._server.settings.number("server_id", 0)) or server_id(self.reader)
            self._stream = Stream(
                self._server, kept, after, self._spool, own, self._home, blocking=True
            )
            self._start = after
        return self._stream

    def _check(self, connection: Connection, state: State) -> None:
        """A GapError unless this is still the server that we remember."""
        if not self._checked:
            check_history(connection, self._server, server_id(self.reader), state)
            self._checked = True

    def _advance(self, stream: Stream, until: int, seconds: float, limit: int = _ALL) -> None:
        """Read on. What ends it between two transactions is an error of the source; whatever else
        does may leave part of one behind, and all is read again."""
        try:
            stream.advance(until, seconds, limit)
        except SourceError:
            raise
        except OSError as error:
            self._forget()
            raise WarehouseError(
                f'source "{self.name}": what was read of its binlog cannot be kept',
                detail=f"{error}, below {self._home}",
                hint="make room on that disk, or make the folder writable, and run again",
            ) from error
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        """Read again from wherever the next look begins."""
        if self._stream is not None:
            self._end_sending(self._stream.thread)
            self._stream.disconnect()
        self._stream = None
        self._spool.clear()

    def _end_sending(self, thread: int | None) -> None:
        """A server that waits for something to send does not see that nobody listens any more,
        and keeps the file that it was reading."""
        if thread is not None and self._connection is not None and self._connection.open:
            with suppress(pymysql.Error, OSError):
                execute(self._connection, f"KILL {thread}")

    def changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """From the spool; what is not in it any more, or not yet, is read from the log."""
        with self._using() as connection:
            stream = self._stream_from(connection, after)
            self._advance(stream, until, _READ_SECONDS)
            if stream.position < until:
                raise stream.halted or SourceAwayError(
                    self.name, f"reading its binlog up to position {until} takes too long"
                )
            state = read_state(self._home) or _NOTHING
            shapes = {name: state.table(self.name, name) for name in tables}
        for name, columns in tables.items():
            table = shapes[name]
            found = self._spool.changes(table.full_name, after, until)
            for batch in select(found, table, columns):
                yield name, batch

    @contextmanager
    def snapshots(self, after: int, tables: Tables) -> Iterator[MariadbOpener]:
        """Every opening has a connection, a cut and a tail of its own."""
        columns = {name: tuple(columns) for name, columns in tables.items()}
        yield MariadbOpener(self._server, self.reader, columns)

    def acknowledge(self, position: int) -> None:
        """Remember it; the server keeps its binlog by its own rules."""
        with self._using() as connection:
            state = read_state(self._home)
            if state is None or position <= state.position:
                return
            # What is remembered from now on must not be that of another server.
            self._check(connection, state)
            mark = self._stream.mark(position) if self._stream is not None else None
            gtid, born = gtid_at(connection, position), state.born_at
            if file_of(position) != file_of(state.position):
                born = born_at(self._server, server_id(self.reader), position)
            write_state(self._home, State(position, gtid, born, state.tables, mark))
            if self._stream is not None:
                self._stream.forget(position)
            self._spool.forget(position)
            self._start = max(self._start, position)

    def hold(self, name: str, seconds: float) -> None:
        """Nothing to do: the server keeps its binlog for its own time, whoever reads it."""

    def release(self, name: str) -> None:
        """Nothing was held."""

    def health(self, positions: Iterable[int]) -> Health:
        """Bytes of the binlog that we still need; what lies beyond positions, as far as it has
        been read in this process."""
        with self._using() as connection:
            read = self._start if self._stream is not None else newest(connection)
            known = behind(self._spool, read, positions)
            return health(self._server, connection, self.reader, read_state(self._home), known)

    def diagnose(self, tables: Tables) -> list[Finding]:
        return Doctor(self._server, self.reader, read_state(self._home)).findings(tables)

    def detach(self, force: bool = False) -> Detached:
        """Forget the source; nothing of ours is in the database."""
        with self._lock:
            self._forget()
            self._checked = False
            was_following = remove_state(self._home)
            return Detached(was_following, True)

    def close(self) -> None:
        with self._lock:
            self._forget()
            if self._connection is not None:
                with suppress(pymysql.Error, OSError):
                    self._connection.close()
            self._connection = None

    @contextmanager
    def _using(self) -> Iterator[Connection]:
        """The lasting connection, made again if it was lost."""
        with self._lock, self._server.errors():
            if self._connection is None or not self._connection.open:
                self._connection = self._server.connect()
                # It may be another server by now.
                self._checked = False
            try:
                yield self._connection
            except (pymysql.err.OperationalError, pymysql.err.InterfaceError, OSError):
                self._connection = None
                raise


_NOTHING = State(0, "", 0)
