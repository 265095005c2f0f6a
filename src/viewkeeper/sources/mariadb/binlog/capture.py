"""The one stream of a source: where its binlog is read from, and what is known of its tables there.

There is one stream per process, into one spool; it begins where somebody first asks for changes and
is begun again when somebody asks for earlier ones. The shapes of followed tables are known at the
acknowledged position (`state`), so reading begins there, or before; rows are kept of what comes
after the position that was asked for.

What a handle means is followed up to this moment first: the log says what its table and columns are
called now, and the server describes the table of that name. Where the log does not lead from what
is remembered to now, every handle is a name, as it is when the source is followed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from viewkeeper.errors import (
    GapError,
    SchemaError,
    SourceAwayError,
    SourceError,
    WarehouseError,
    reload_hint,
)
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.mariadb.binlog.log import make_server_id, read_newest_position
from viewkeeper.sources.mariadb.binlog.shape_tracker import ShapeAudit, ShapeWatch
from viewkeeper.sources.mariadb.binlog.stream import BinlogStream, StreamPlan
from viewkeeper.sources.mariadb.bound_handles import current_form_of, meaning_of, wanted_columns_of
from viewkeeper.sources.mariadb.logged_shapes import LoggedShape, LoggedShapes
from viewkeeper.sources.mariadb.position import file_of, spell_place
from viewkeeper.sources.mariadb.schema import has_folded_names, read_table, read_table_of_handle
from viewkeeper.sources.mariadb.server_connection import (
    Connection,
    MariadbServer,
    MariadbSession,
    fetch_texts,
)
from viewkeeper.sources.mariadb.state import (
    MariadbState,
    check_history,
    check_place,
    read_file_time,
    read_gtid_at,
    read_state,
    remove_state,
    write_state,
)
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.sources.stream.spool import Spool
from viewkeeper.updates.source_protocol import TableDescription, Tables, TableSize

READ_SECONDS = 600.0
_ALL = 1 << 62


class BinlogCapture:
    """The binlog of one server, as one source of the project `reader` reads it.

    It knows the handles that are read in this process, if anybody has said so, and the tables that
    stopped the stream and that nobody reads.
    """

    def __init__(self, session: MariadbSession, reader: str, files: StateFiles) -> None:
        self.session = session
        self.reader = reader
        self.files = files
        self.home = files.local
        self.handles = SourceHandles(files)
        self.spool = Spool(files.local)
        self.stream: BinlogStream | None = None
        self.start = 0
        self._audit = ShapeAudit(session.server.source)
        self._checked_opening = 0
        self._asked: set[str] | None = None
        self._unread: set[str] = set()

    @property
    def server(self) -> MariadbServer:
        return self.session.server

    @property
    def source(self) -> str:
        return self.server.source

    @property
    def database(self) -> str:
        """The database of the url."""
        return self.server.parse_address().database

    def read_state(self) -> MariadbState | None:
        return read_state(self.files)

    def write_state(self, state: MariadbState) -> None:
        write_state(self.files, state)

    def stream_from(self, connection: Connection, after: int) -> BinlogStream:
        """The stream, with everything after a position in the spool or still to come."""
        state = self.read_state()
        if state is None:
            raise GapError(self.source, "it is not followed by this warehouse", hint=reload_hint())
        self._check_server(connection, state)
        if self.stream is None or after < self.start:
            check_place(connection, self.source, after)
            self.forget_stream()
            own = int(self.server.settings.read_number("server_id", 0))
            watch = ShapeWatch(state.shapes, state.position, self._wanted_columns())
            plan = StreamPlan(
                self.server,
                watch,
                min(after, state.position),
                own or make_server_id(self.reader),
                self.home,
                blocking=True,
                rows_after=after,
                key_of=self._key_now,
            )
            self.stream = BinlogStream(plan, self.spool)
            self.start = after
        return self.stream

    def _wanted_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns whose values are read, by table."""
        found = wanted_columns_of(self.handles)
        return {id: columns for id, columns in found.items() if id not in self._unread}

    def note_readers(self, tables: Tables) -> None:
        """Somebody reads these tables."""
        self._asked = (self._asked or set()).union(tables)
        targets = [self.handles.target_of(handle) for handle in tables]
        back = self._unread.intersection(one.identity for one in targets if one is not None)
        if back:
            self._unread -= back
            self.forget_stream()

    def drop_unread_table(self, stream: BinlogStream) -> bool:
        """Whether nobody reads the table that is in the stream's way, as when it was dropped with
        its last view. Then it is read no more; what was read ahead is read again without it."""
        handles = self.handles.handles_of(stream.halted_by)
        if not handles or (self._asked is not None and self._asked.intersection(handles)):
            return False
        # Before anybody has said what is read, nobody is stopped.
        if self._asked is not None:
            self._unread.add(stream.halted_by)
            self.forget_stream()
        return True

    def _key_now(self, database: str, name: str) -> Sequence[str] | None:
        """The key of a table at this moment."""
        connection = self.session.connection
        assert connection is not None, "the log is read while we are connected"
        try:
            return read_table(connection, self.source, database, f"{database}.{name}").exact_key
        except SchemaError:
            return None

    def _check_server(self, connection: Connection, state: MariadbState) -> None:
        """A GapError unless this is still the server that we remember."""
        if self._checked_opening != self.session.openings:
            check_history(connection, self.server, make_server_id(self.reader), state)
            self._checked_opening = self.session.openings

    def state_of_same_server(self, connection: Connection) -> MariadbState | None:
        """What we remember, if this is still the server that we remember it of."""
        state = self.read_state()
        if state is not None and self._checked_opening != self.session.openings:
            try:
                check_history(connection, self.server, make_server_id(self.reader), state)
            except GapError:
                return None
        return state

    def advance_stream(
        self, stream: BinlogStream, until: int, seconds: float = READ_SECONDS, limit: int = _ALL
    ) -> None:
        """Read on. What ends it between two transactions is an error of the source; any other
        error may leave part of one behind, and all is read again."""
        try:
            stream.advance_to(until, seconds, limit)
        except SourceError:
            raise
        except OSError as error:
            self.forget_stream()
            raise WarehouseError(
                f'source "{self.source}": what was read of its binlog cannot be kept',
                detail=f"{error}, below {self.home}",
                hint="make room on that disk, or make the folder writable, and run again",
            ) from error
        except BaseException:
            self.forget_stream()
            raise

    def read_to(self, stream: BinlogStream, until: int) -> None:
        """Read up to a position; what halted the stream, or a SourceAwayError, if it is not
        reached."""
        self.advance_stream(stream, until)
        if stream.position < until:
            place = spell_place(until)
            raise stream.halted or SourceAwayError(
                self.source, f"reading its binlog up to position {place} takes too long"
            )

    def audit_shapes(self, connection: Connection, stream: BinlogStream) -> None:
        """Compare followed tables with what the log says of them, if it is time."""
        self._audit.audit_shapes(connection, stream.tracker, wanted_columns_of(self.handles))

    def forget_stream(self) -> None:
        """Read again from where the next look begins."""
        if self.stream is not None:
            # A server that waits for something to send does not see that nobody listens any more,
            # and keeps the file that it was reading.
            if (thread := self.stream.sender_thread) is not None:
                self.session.end_thread(thread)
            self.stream.disconnect()
        self.stream = None
        self.spool.clear_all()
        self._audit.forget_seen()

    def shapes_now(self, connection: Connection) -> LoggedShapes:
        """The shapes of followed tables, by all that the log has of them."""
        state = self.read_state()
        if state is None:
            return LoggedShapes({}, has_folded_names(connection))
        stream = self.stream_from(connection, self.start if self.stream else state.position)
        end = read_newest_position(connection)
        if end > stream.position:
            self.advance_stream(stream, end)
        return stream.tracker.shapes

    def shapes_at(self, connection: Connection, state: MariadbState, position: int) -> LoggedShapes:
        """The shapes of followed tables at a position."""
        stream = self.stream_from(connection, self.start if self.stream else state.position)
        self.read_to(stream, position)
        return stream.tracker.shapes_at(position)

    def acknowledge_position(self, position: int) -> None:
        """Remember a position; the server keeps its binlog by its own rules."""
        with self.session.use_connection() as connection:
            state = self.read_state()
            if state is None or position <= state.position:
                return
            # What is remembered from now on must not be that of another server.
            self._check_server(connection, state)
            mark = None if self.stream is None else self.stream.mark_at(position)
            gtid, born = read_gtid_at(connection, position), state.born_at
            if file_of(position) != file_of(state.position):
                born = read_file_time(self.server, make_server_id(self.reader), position)
            shapes = self.shapes_at(connection, state, position)
            self.write_state(MariadbState(position, gtid, born, shapes, mark))
            if self.stream is not None:
                self.stream.forget_before(position)
            self.spool.forget_until(position)
            self.start = max(self.start, position)

    def forget_source(self) -> bool:
        """Forget the stream, the state and the handles; whether anything was followed."""
        with self.session.lock:
            self.forget_stream()
            self._checked_opening = 0
            was_following = remove_state(self.files)
            self.handles.forget_all()
            return was_following

    def close(self) -> None:
        with self.session.lock:
            self.forget_stream()
            self.session.close()


@dataclass(frozen=True, slots=True)
class TableDescriber:
    """Describes the tables of one source, by the shapes that its capture knows."""

    capture: BinlogCapture

    def handle_of(self, name: str) -> str:
        capture = self.capture
        with capture.session.use_connection() as connection:
            handles, shapes = self._known_shapes(connection)
            table = read_table(connection, capture.source, capture.database, name)
            shape = shapes.find_shape(*table.place)
            if shape is None:
                return handles.choose_handle(name, "", {})
            return handles.choose_handle(name, shape.id, shape.table_shape().identities_by_name())

    def estimate_size(self, table: str) -> TableSize:
        """By the statistics of the storage engine."""
        capture = self.capture
        query = (
            "SELECT table_rows, data_length FROM information_schema.tables"
            " WHERE table_schema = %s AND table_name = %s"
        )
        with capture.session.use_connection() as connection:
            place = read_table(connection, capture.source, capture.database, table).place
            found = fetch_texts(connection, query, place)
        rows, size = found[0] if found else (None, None)
        return TableSize(None if rows is None else int(rows), None if size is None else int(size))

    def describe_table(self, handle: str) -> TableDescription:
        """The table of a handle now; every kind of value that is kept can be compared."""
        capture = self.capture
        source, database = capture.source, capture.database
        with capture.session.use_connection() as connection:
            handles, shapes = self._known_shapes(connection)
            target, shape = handles.target_of(handle), None
            if target is None:
                table = read_table_of_handle(connection, source, database, handle)
            else:
                shape = shapes.shape_by_id(target.identity)
                if shape is None:
                    raise SchemaError(source, f'table "{handle}" is not there any more')
                table = read_table(connection, source, database, shape.full_name)
        refusal = table.refusal_error()
        if refusal is not None:
            raise refusal
        found = meaning_of(table, target, shape)
        kept = found.columns
        now = shape or LoggedShape("", *table.place, ())
        columns = [column.name for column in table.columns]
        return TableDescription(
            current_form_of(handle, target, now, database, columns),
            kept.fields,
            kept.refused,
            found.key,
            found.indexed_columns,
            frozenset(field.name for field in kept.fields),
        )

    def _known_shapes(self, connection: Connection) -> tuple[SourceHandles, LoggedShapes]:
        """The handles and the shapes now; none, if the log does not lead to now."""
        try:
            return self.capture.handles, self.capture.shapes_now(connection)
        except GapError:
            return SourceHandles(None), LoggedShapes({}, has_folded_names(connection))
