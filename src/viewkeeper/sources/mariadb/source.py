"""MariaDB as a source: the row binlog is the stream, consistent snapshots are the answers.

Positions are places in the binlog (`position`), which is read as a replica reads it
(`log`, `stream`) into a spool. A snapshot says by itself at which place of the
binlog it stands (`read`), so a cut is one number and exact. Types are in `types`;
what the server must be like is in `server`, what we remember of it in `state`.

Tables and columns have identities of our own, which the DDL in the binlog carries along
(`shapes`, `tracker`); a handle means them by these (`binding`).

There is no thread: a look reads what the binlog has got since the last one. It reads up to what
every snapshot from now on includes, so that no cut is ever behind a position that was reported.

Nothing is put into the database. Any number of readers may read its binlog side by side.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from viewkeeper.errors import GapError, SchemaError, SourceAwayError
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.mariadb.answers.snapshot import MariadbOpener
from viewkeeper.sources.mariadb.binlog.capture import READ_SECONDS, BinlogCapture
from viewkeeper.sources.mariadb.binlog.log import read_newest_position
from viewkeeper.sources.mariadb.binlog.shape_tracker import ShapeWatch
from viewkeeper.sources.mariadb.binlog.stream import BinlogStream
from viewkeeper.sources.mariadb.binlog.tail import make_server_id, select_columns
from viewkeeper.sources.mariadb.bound_handles import (
    bind_handle,
    current_form_of,
    find_first_column,
    meaning_of,
    report_changes,
    wanted_columns_of,
)
from viewkeeper.sources.mariadb.doctor import MariadbDoctor, health_of, measure_behind
from viewkeeper.sources.mariadb.follow import FollowedHandle, follow_handles
from viewkeeper.sources.mariadb.logged_shapes import LoggedShape, LoggedShapes
from viewkeeper.sources.mariadb.position import file_of, offset_of
from viewkeeper.sources.mariadb.requirements import require_followable
from viewkeeper.sources.mariadb.schema import has_folded_names, read_table, read_table_of_handle
from viewkeeper.sources.mariadb.server_connection import Connection
from viewkeeper.sources.mariadb.state import (
    MariadbState,
    check_history,
    read_file_time,
    read_gtid_at,
    read_state,
    remove_state,
    write_state,
)
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.stream.spool import StreamedTransaction
from viewkeeper.updates.source_protocol import (
    LOOK_SECONDS,
    LOOK_TRANSACTIONS,
    Boundary,
    DetachResult,
    Finding,
    Health,
    TableDescription,
    Tables,
)

# The next look goes on where this one stopped.
_LOOK_SECONDS = LOOK_SECONDS
# Changes of others are reported, as an empty transaction, once the log has grown by so much: else
# the files of the binlog that we still ask for would be removed while our tables rest.
_IDLE_BYTES = 16 << 20


def open_source(settings: SourceSettings, reader: str) -> MariadbSource:
    return MariadbSource(settings, reader)


class MariadbSource(BinlogCapture):
    """One database of a MariaDB server, followed by the project `reader`."""

    def describe_source(self) -> str:
        return f"MariaDB at {self._server.describe_address()}"

    def handle_of(self, name: str) -> str:
        with self._use_connection() as connection:
            names, shapes = self._known_shapes(connection)
            table = read_table(connection, self.name, self._database_name, name)
            shape = shapes.find_shape(*table.place)
            if shape is None:
                return names.choose_handle(name, "", {})
            return names.choose_handle(name, shape.id, shape.ids_by_name)

    def describe_table(self, handle: str) -> TableDescription:
        """Every kind of value that is kept can be compared."""
        with self._use_connection() as connection:
            names, shapes = self._known_shapes(connection)
            named, shape = names.target_of(handle), None
            if named is None:
                table = read_table_of_handle(connection, self.name, self._database_name, handle)
            else:
                shape = shapes.shape_by_id(named.identity)
                if shape is None:
                    raise SchemaError(self.name, f'table "{handle}" is not there any more')
                table = read_table(connection, self.name, self._database_name, shape.full_name)
        refusal = table.refusal_error()
        if refusal is not None:
            raise refusal
        found = meaning_of(table, named, shape)
        now = shape or LoggedShape("", *table.place, ())
        columns = [column.name for column in table.columns]
        return TableDescription(
            current_form_of(handle, named, now, self._database_name, columns),
            found.fields,
            found.refused_columns,
            found.key,
            found.indexed_columns,
            frozenset(field.name for field in found.fields),
        )

    def _known_shapes(self, connection: Connection) -> tuple[SourceHandles, LoggedShapes]:
        """Our handles and the shapes now; nothing, if the log does not lead from what we remember
        to now: then every handle is a name, as it is for whoever follows the source again."""
        try:
            return self._names, self._shapes_now(connection)
        except GapError:
            return SourceHandles(None), LoggedShapes({}, has_folded_names(connection))

    def follow_tables(self, tables: Tables) -> int:
        """Capture these columns too, besides what is followed already and still there.

        Nothing is changed at the server. What was read ahead is read again if columns are new,
        because it was read without them. Whoever goes on from an earlier position looks first: if
        the server is not the one that was followed, it is from now on.
        """
        with self._use_connection() as connection:
            self._ask_for(tables)
            require_followable(connection, self.name)
            position = read_newest_position(connection)
            state = self._same_state(connection)
            if state is not None:
                self._extend_following(connection, state, tables)
            else:
                self._begin_following(connection, position, tables)
            return position

    def _begin_following(self, connection: Connection, position: int, tables: Tables) -> None:
        """Follow a server that was not followed, or is not the one that was."""
        born = read_file_time(self._server, make_server_id(self.reader), position)
        shapes = LoggedShapes({}, has_folded_names(connection))
        before, names = list(self._names), SourceHandles(None)
        nothing = shapes
        found, shapes = follow_handles(
            connection, self._server, names, shapes, lambda _: nothing, tables, before
        )
        write_state(
            self._home, MariadbState(position, read_gtid_at(connection, position), born, shapes)
        )
        self._names.forget_all()
        self._stand_for(found)
        self._forget_stream()

    def _extend_following(
        self, connection: Connection, state: MariadbState, tables: Tables
    ) -> None:
        """Follow more, besides what is followed."""
        now = self._shapes_now(connection)
        found, after = follow_handles(
            connection,
            self._server,
            self._names,
            now,
            lambda position: self._shapes_at(connection, state, position),
            tables,
        )
        added = [shape for id, shape in after.tables.items() if now.tables.get(id) != shape]
        before = wanted_columns_of(self._names)
        if added:
            shapes = state.shapes
            for shape in added:
                shapes = shapes.with_table(shape)
            write_state(self._home, replace(state, shapes=shapes))
        self._stand_for(found)
        if wanted_columns_of(self._names) != before:
            self._forget_stream()

    def _stand_for(self, found: Sequence[FollowedHandle]) -> None:
        """Only when the tables are remembered: a handle must not stand for what is not known."""
        for one in found:
            self._names.add_target(one.handle, one.shape.id, one.columns)

    def _same_state(self, connection: Connection) -> MariadbState | None:
        """What we remember, if this is still the server that we remember it of."""
        state = read_state(self._home)
        if state is not None and not self._checked:
            try:
                check_history(connection, self._server, make_server_id(self.reader), state)
            except GapError:
                return None
        return state

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """The transactions that changed followed tables.

        While nothing was committed a look costs one short statement. Where only other tables
        were changed, an empty one is reported now and then, so that we do not stay behind.
        """
        with self._use_connection() as connection:
            stream = self._stream_from(connection, after)
            end = read_newest_position(connection)
            if end < max(after, stream.position):
                raise GapError(
                    self.name,
                    f"position {max(after, stream.position)} lies beyond its binlog, at {end}",
                    detail="its data were restored, or its binlog was reset",
                    hint="viewkeeper run --full-refresh VIEW loads its views anew",
                )
            if end > stream.position and self._spool_has_room(after):
                self._advance_stream(stream, end, _LOOK_SECONDS, LOOK_TRANSACTIONS)
            self._audit.audit_shapes(connection, stream.tracker, wanted_columns_of(self._names))
            found = self._spool.transactions_after(after, LOOK_TRANSACTIONS)
            self._passed = (
                found[-1].position if len(found) >= LOOK_TRANSACTIONS else stream.position
            )
            boundaries = [self._make_boundary(stream, one) for one in found]
            # A change of shape that concerns no handle is nothing to report.
            said = [b for b in boundaries if b.changes or b.emptied or b.reshaped]
            if said:
                return tuple(said)
            if stream.halted is not None:
                if not self._passes_over(stream):
                    raise stream.halted
                if self._stream is None:
                    return self.look_for_transactions(after)
            reached = stream.position
            grown = offset_of(reached - after) > _IDLE_BYTES
            if reached > after and (grown or file_of(reached) > file_of(after)):
                return (Boundary(reached, time.time(), 0),)
            return ()

    def has_passed(self, position: int) -> bool:
        return position <= self._passed

    def _make_boundary(self, stream: BinlogStream, one: StreamedTransaction) -> Boundary:
        emptied = tuple(name for table in one.emptied for name in self._names.handles_of(table))
        tracker = stream.tracker
        # Most transactions tell nothing, and there are many.
        told = tracker.changes_between(one.position - 1, one.position) if tracker.told else ()
        reshaped = report_changes(told, self._names, self._database_name) if told else ()
        return Boundary(one.position, one.committed_at, one.changes, emptied, reshaped=reshaped)

    def _spool_has_room(self, after: int) -> bool:
        return len(self._spool.transactions_after(after, LOOK_TRANSACTIONS)) < LOOK_TRANSACTIONS

    def read_changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """From the spool; what is not in it any more, or not yet, is read from the log."""
        with self._use_connection() as connection:
            stream = self._stream_from(connection, after)
            self._advance_stream(stream, until, READ_SECONDS)
            if stream.position < until:
                raise stream.halted or SourceAwayError(
                    self.name, f"reading its binlog up to position {until} takes too long"
                )
            columns = {
                handle: self._types_of(stream, handle, asked, until)
                for handle, asked in tables.items()
            }
        for handle, kinds in columns.items():
            named = self._names.target_of(handle)
            assert named is not None, "its types were found"
            for batch in select_columns(
                self._spool.changes_of(named.identity, after, until), kinds
            ):
                yield handle, batch

    def _types_of(
        self, stream: BinlogStream, handle: str, columns: Sequence[str], until: int
    ) -> dict[str, tuple[str, pa.DataType]]:
        """Columns of a handle with their identity and type: that of now, or the last one."""
        named = self._names.target_of(handle)
        if named is None:
            raise SchemaError(self.name, f'table "{handle}" is not followed')
        tracker = stream.tracker
        versions = [
            shapes.tables.get(named.identity)
            for shapes in (tracker.shapes, tracker.shapes_at(until), tracker.shapes_at(self._start))
        ]
        own = {name.lower(): id for name, id in named.columns.items()}
        found: dict[str, tuple[str, pa.DataType]] = {}
        for name in columns:
            if name.lower() not in own:
                raise SchemaError(self.name, f'column "{name}" of table "{handle}" is not followed')
            column = find_first_column(own[name.lower()], versions)
            kind = None if column is None else column.kind
            found[name] = (own[name.lower()], pa.null() if kind is None else kind.arrow)
        return found

    @contextmanager
    def prepare_snapshots(self, after: int, tables: Tables) -> Iterator[MariadbOpener]:
        """Every opening has a connection, a cut and a tail of its own."""
        yield self._make_opener(after, tables)

    def _make_opener(self, after: int, tables: Tables) -> MariadbOpener:
        with self._use_connection() as connection:
            state = read_state(self._home)
            if state is None:
                latest = LoggedShapes({}, has_folded_names(connection))
                watch = ShapeWatch(latest, after, {})
            else:
                stream = self._stream_from(connection, after)
                self._advance_stream(stream, after, READ_SECONDS)
                latest, shapes = stream.tracker.shapes, stream.tracker.shapes_at(after)
                watch = ShapeWatch(shapes, after, {})
            asked = {
                name: bind_handle(name, own, self._names, latest) for name, own in tables.items()
            }
            columns: dict[str, tuple[str, ...]] = {}
            for one in asked.values():
                columns[one.identity] = (*columns.get(one.identity, ()), *one.asked_ids)
            watch = ShapeWatch(watch.shapes, watch.position, columns)
            return MariadbOpener(self._server, self.reader, asked, watch)

    def acknowledge_position(self, position: int) -> None:
        """Remember it; the server keeps its binlog by its own rules."""
        with self._use_connection() as connection:
            state = read_state(self._home)
            if state is None or position <= state.position:
                return
            # What is remembered from now on must not be that of another server.
            self._check_server(connection, state)
            mark = self._stream.mark_at(position) if self._stream is not None else None
            gtid, born = read_gtid_at(connection, position), state.born_at
            if file_of(position) != file_of(state.position):
                born = read_file_time(self._server, make_server_id(self.reader), position)
            shapes = self._shapes_at(connection, state, position)
            write_state(self._home, MariadbState(position, gtid, born, shapes, mark))
            if self._stream is not None:
                self._stream.forget_before(position)
            self._spool.forget_until(position)
            self._start = max(self._start, position)

    def begin_hold(self, name: str, seconds: float) -> None:
        """Nothing to do: the server keeps its binlog for its own time, whoever reads it."""

    def end_hold(self, name: str) -> None:
        """Nothing was held."""

    def read_health(self, positions: Iterable[int]) -> Health:
        """Bytes of the binlog that we still need; what lies beyond positions, as far as it has
        been read in this process."""
        with self._use_connection() as connection:
            read = self._start if self._stream is not None else read_newest_position(connection)
            known = measure_behind(self._spool, read, positions)
            return health_of(self._server, connection, self.reader, read_state(self._home), known)

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        return MariadbDoctor(self._server, self.reader, read_state(self._home)).collect_findings(
            tables
        )

    def detach_source(self, force: bool = False) -> DetachResult:
        """Forget the source; nothing of ours is in the database."""
        with self._lock:
            self._forget_stream()
            self._checked = False
            was_following = remove_state(self._home)
            self._names.forget_all()
            return DetachResult(was_following, True)
