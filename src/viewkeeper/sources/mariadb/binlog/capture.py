"""Reading a MariaDB server's binlog: the connection, the stream, and what tables are in it.

There is one stream per process, into one spool; it begins where somebody first asks for changes and
is begun again when somebody asks for earlier ones. The shapes of followed tables are known at the
acknowledged position (`state`), so reading begins there, or before; rows are kept of what comes
after the position that was asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pymysql

from viewkeeper.errors import GapError, SchemaError, SourceAwayError, SourceError, WarehouseError
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.mariadb.binlog.log import read_newest_position
from viewkeeper.sources.mariadb.binlog.shape_audit import ShapeAudit
from viewkeeper.sources.mariadb.binlog.shape_tracker import ShapeWatch
from viewkeeper.sources.mariadb.binlog.stream import BinlogStream
from viewkeeper.sources.mariadb.binlog.tail import make_server_id
from viewkeeper.sources.mariadb.bound_handles import wanted_columns_of
from viewkeeper.sources.mariadb.logged_shapes import LoggedShapes
from viewkeeper.sources.mariadb.schema import has_folded_names, read_table
from viewkeeper.sources.mariadb.server_connection import Connection, MariadbServer, run_statement
from viewkeeper.sources.mariadb.state import MariadbState, check_history, check_place, read_state
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.stream.spool import Spool
from viewkeeper.updates.source_protocol import Tables

READ_SECONDS = 600.0
_ALL = 1 << 62


class BinlogCapture:
    """The binlog of one server, as one source of the project `reader` reads it."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        self.name = settings.name
        self.reader = reader
        self._server = MariadbServer(settings)
        self._home = Path(settings.home)
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._spool = Spool(self._home)
        self._stream: BinlogStream | None = None
        self._start = 0
        self._names = SourceHandles(self._home)
        self._audit = ShapeAudit(self.name)
        self._checked = False
        self._passed = 0
        # What is asked for in this process, if anything was; and tables that are in the way.
        self._asked: set[str] | None = None
        self._unread: set[str] = set()

    @property
    def _database_name(self) -> str:
        return self._server.parse_address().database

    def _stream_from(self, connection: Connection, after: int) -> BinlogStream:
        """The stream, with everything after a position in the spool or still to come."""
        state = read_state(self._home)
        if state is None:
            raise GapError(
                self.name,
                "it is not followed by this warehouse",
                hint="viewkeeper run --full-refresh VIEW loads its views anew",
            )
        self._check_server(connection, state)
        if self._stream is None or after < self._start:
            check_place(connection, self.name, after)
            self._forget_stream()
            own = int(self._server.settings.read_number("server_id", 0)) or make_server_id(
                self.reader
            )
            watch = ShapeWatch(state.shapes, state.position, self._wanted_columns())
            self._stream = BinlogStream(
                self._server,
                watch,
                min(after, state.position),
                self._spool,
                own,
                self._home,
                blocking=True,
                rows_after=after,
                key_of=self._key_now,
            )
            self._start = after
        return self._stream

    def _wanted_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns whose values are read, by table."""
        found = wanted_columns_of(self._names)
        return {id: columns for id, columns in found.items() if id not in self._unread}

    def _ask_for(self, tables: Tables) -> None:
        """Somebody reads these tables."""
        self._asked = (self._asked or set()).union(tables)
        asked = [named for handle in tables if (named := self._names.target_of(handle)) is not None]
        back = self._unread.intersection(named.identity for named in asked)
        if back:
            self._unread -= back
            self._forget_stream()

    def _passes_over(self, stream: BinlogStream) -> bool:
        """Whether nobody reads the table that is in the stream's way, as when it was dropped with
        its last view. Then it is read no more; what was read ahead is read again without it."""
        handles = self._names.handles_of(stream.halted_by)
        if not handles or (self._asked is not None and self._asked.intersection(handles)):
            return False
        # Before anybody has said what is read, nobody is stopped.
        if self._asked is not None:
            self._unread.add(stream.halted_by)
            self._forget_stream()
        return True

    def _key_now(self, database: str, name: str) -> Sequence[str] | None:
        """The key of a table at this moment."""
        assert self._connection is not None, "the log is read while we are connected"
        try:
            return read_table(self._connection, self.name, database, f"{database}.{name}").exact_key
        except SchemaError:
            return None

    def _check_server(self, connection: Connection, state: MariadbState) -> None:
        """A GapError unless this is still the server that we remember."""
        if not self._checked:
            check_history(connection, self._server, make_server_id(self.reader), state)
            self._checked = True

    def _advance_stream(
        self, stream: BinlogStream, until: int, seconds: float, limit: int = _ALL
    ) -> None:
        """Read on. What ends it between two transactions is an error of the source; whatever else
        does may leave part of one behind, and all is read again."""
        try:
            stream.advance_to(until, seconds, limit)
        except SourceError:
            raise
        except OSError as error:
            self._forget_stream()
            raise WarehouseError(
                f'source "{self.name}": what was read of its binlog cannot be kept',
                detail=f"{error}, below {self._home}",
                hint="make room on that disk, or make the folder writable, and run again",
            ) from error
        except BaseException:
            self._forget_stream()
            raise

    def _forget_stream(self) -> None:
        """Read again from wherever the next look begins."""
        if self._stream is not None:
            self._end_sending(self._stream.sender_thread)
            self._stream.disconnect()
        self._stream = None
        self._spool.clear_all()
        self._audit.forget_seen()

    def _end_sending(self, thread: int | None) -> None:
        """A server that waits for something to send does not see that nobody listens any more,
        and keeps the file that it was reading."""
        if thread is not None and self._connection is not None and self._connection.open:
            with suppress(pymysql.Error, OSError):
                run_statement(self._connection, f"KILL {thread}")

    def _shapes_now(self, connection: Connection) -> LoggedShapes:
        """What is known of followed tables, by all that the log has of them."""
        state = read_state(self._home)
        if state is None:
            return LoggedShapes({}, has_folded_names(connection))
        start = state.position if self._stream is None else self._start
        stream = self._stream_from(connection, start)
        end = read_newest_position(connection)
        if end > stream.position:
            self._advance_stream(stream, end, READ_SECONDS)
        return stream.tracker.shapes

    def _shapes_at(
        self, connection: Connection, state: MariadbState, position: int
    ) -> LoggedShapes:
        """What to remember of followed tables with a position."""
        stream = self._stream_from(connection, self._start if self._stream else state.position)
        self._advance_stream(stream, position, READ_SECONDS)
        if stream.position < position:
            raise stream.halted or SourceAwayError(
                self.name, f"reading its binlog up to position {position} takes too long"
            )
        return stream.tracker.shapes_at(position)

    def close(self) -> None:
        with self._lock:
            self._forget_stream()
            if self._connection is not None:
                with suppress(pymysql.Error, OSError):
                    self._connection.close()
            self._connection = None

    @contextmanager
    def _use_connection(self) -> Iterator[Connection]:
        """The lasting connection, made again if it was lost."""
        with self._lock, self._server.translate_errors():
            if self._connection is None or not self._connection.open:
                self._connection = self._server.open_connection()
                # It may be another server by now.
                self._checked = False
            try:
                yield self._connection
            except (pymysql.err.OperationalError, pymysql.err.InterfaceError, OSError):
                self._connection = None
                raise
