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
from viewkeeper.sources.handles import Names
from viewkeeper.sources.mariadb.answers.snapshot import MariadbOpener
from viewkeeper.sources.mariadb.binlog.capture import READ_SECONDS, Capture
from viewkeeper.sources.mariadb.binlog.log import newest
from viewkeeper.sources.mariadb.binlog.shape_tracker import Watch
from viewkeeper.sources.mariadb.binlog.stream import Stream
from viewkeeper.sources.mariadb.binlog.tail import select, server_id
from viewkeeper.sources.mariadb.bound_handles import (
    Meaning,
    became,
    bound,
    meaning_of,
    reported,
    type_of,
    wanted,
)
from viewkeeper.sources.mariadb.doctor import MariadbDoctor, health_of, measure_behind
from viewkeeper.sources.mariadb.follow import Followed, follow_all
from viewkeeper.sources.mariadb.logged_shapes import Shape, Shapes
from viewkeeper.sources.mariadb.position import file_of, offset_of
from viewkeeper.sources.mariadb.requirements import require
from viewkeeper.sources.mariadb.schema import folds_names, read_named, read_table
from viewkeeper.sources.mariadb.server_connection import Connection
from viewkeeper.sources.mariadb.state import (
    State,
    born_at,
    check_history,
    gtid_at,
    read_state,
    remove_state,
    write_state,
)
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.stream.spool import Streamed
from viewkeeper.updates.source_protocol import (
    LOOK_SECONDS,
    LOOK_TRANSACTIONS,
    Became,
    Boundary,
    Detached,
    Finding,
    Health,
    Tables,
)
from viewkeeper.view.definition import Field

# The next look goes on where this one stopped.
_LOOK_SECONDS = LOOK_SECONDS
# Changes of others are reported, as an empty transaction, once the log has grown by so much: else
# the files of the binlog that we still ask for would be removed while our tables rest.
_IDLE_BYTES = 16 << 20


def open_source(settings: SourceSettings, reader: str) -> MariadbSource:
    return MariadbSource(settings, reader)


class MariadbSource(Capture):
    """One database of a MariaDB server, followed by the project `reader`."""

    def describe(self) -> str:
        return f"MariaDB at {self._server.where()}"

    def advice(self) -> str | None:
        return None

    def handle(self, name: str) -> str:
        with self._using() as connection:
            names, shapes = self._known(connection)
            table = read_table(connection, self.name, self._database, name)
            shape = shapes.find(*table.place)
            if shape is None:
                return names.handle(name, "", {})
            return names.handle(name, shape.id, shape.names)

    def became(self, handle: str) -> Became | None:
        with self._using() as connection:
            names, shapes = self._known(connection)
            named = names.get(handle)
            if named is None:
                try:
                    table = read_named(connection, self.name, self._database, handle)
                except SchemaError:
                    return None
                columns = [column.name for column in table.columns]
                shape: Shape | None = Shape("", *table.place, ())
            else:
                columns = []
                shape = shapes.get(named.identity)
            if shape is None:
                return None
            return became(handle, named, shape, self._database, columns)

    def _known(self, connection: Connection) -> tuple[Names, Shapes]:
        """Our handles and the shapes now; nothing, if the log does not lead from what we remember
        to now: then every handle is a name, as it is for whoever follows the source again."""
        try:
            return self._names, self._shapes_now(connection)
        except GapError:
            return Names(None), Shapes({}, folds_names(connection))

    def schema(self, table: str) -> tuple[Field, ...]:
        """The columns that can be kept exactly; `refused` says why the others cannot."""
        return self._meaning(table).fields

    def refused(self, table: str) -> dict[str, str]:
        return self._meaning(table).refused

    def key(self, table: str) -> tuple[str, ...]:
        """The columns of a key that MariaDB enforces and that cannot be NULL; () without one."""
        return self._meaning(table).key

    def indexed(self, table: str, columns: Sequence[str]) -> bool:
        found = self._meaning(table)
        return bool(found.table.prefix([found.table.kept(found.now(c))[0] for c in columns]))

    def finds_by_key(self, table: str, columns: Sequence[str]) -> bool:
        """Every kind of value that is kept can be compared."""
        found = self._meaning(table)
        return bool([found.table.kept(found.now(column)) for column in columns])

    def _meaning(self, handle: str) -> Meaning:
        """What a handle means now; a SchemaError if that is gone or cannot be captured."""
        with self._using() as connection:
            names, shapes = self._known(connection)
            named = names.get(handle)
            if named is None:
                shape = None
                found = read_named(connection, self.name, self._database, handle)
            else:
                shape = shapes.get(named.identity)
                if shape is None:
                    raise SchemaError(self.name, f'table "{handle}" is not there any more')
                found = read_table(connection, self.name, self._database, shape.full_name)
        refusal = found.refusal()
        if refusal is not None:
            raise refusal
        return meaning_of(found, named, shape)

    def follow(self, tables: Tables) -> int:
        """Capture these columns too, besides what is followed already and still there.

        Nothing is changed at the server. What was read ahead is read again if columns are new,
        because it was read without them. Whoever goes on from an earlier position looks first: if
        the server is not the one that was followed, it is from now on.
        """
        with self._using() as connection:
            self._ask_for(tables)
            require(connection, self.name)
            position = newest(connection)
            state = self._same_state(connection)
            if state is not None:
                self._extend(connection, state, tables)
            else:
                self._begin(connection, position, tables)
            return position

    def _begin(self, connection: Connection, position: int, tables: Tables) -> None:
        """Follow a server that was not followed, or is not the one that was."""
        born = born_at(self._server, server_id(self.reader), position)
        shapes = Shapes({}, folds_names(connection))
        before, names = list(self._names), Names(None)
        nothing = shapes
        found, shapes = follow_all(
            connection, self._server, names, shapes, lambda _: nothing, tables, before
        )
        write_state(self._home, State(position, gtid_at(connection, position), born, shapes))
        self._names.clear()
        self._stand_for(found)
        self._forget()

    def _extend(self, connection: Connection, state: State, tables: Tables) -> None:
        """Follow more, besides what is followed."""
        now = self._shapes_now(connection)
        found, after = follow_all(
            connection,
            self._server,
            self._names,
            now,
            lambda position: self._shapes_at(connection, state, position),
            tables,
        )
        added = [shape for id, shape in after.tables.items() if now.tables.get(id) != shape]
        before = wanted(self._names)
        if added:
            shapes = state.shapes
            for shape in added:
                shapes = shapes.with_table(shape)
            write_state(self._home, replace(state, shapes=shapes))
        self._stand_for(found)
        if wanted(self._names) != before:
            self._forget()

    def _stand_for(self, found: Sequence[Followed]) -> None:
        """Only when the tables are remembered: a handle must not stand for what is not known."""
        for one in found:
            self._names.follow(one.handle, one.shape.id, one.columns)

    def _same_state(self, connection: Connection) -> State | None:
        """What we remember, if this is still the server that we remember it of."""
        state = read_state(self._home)
        if state is not None and not self._checked:
            try:
                check_history(connection, self._server, server_id(self.reader), state)
            except GapError:
                return None
        return state

    def look(self, after: int) -> tuple[Boundary, ...]:
        """The transactions that changed followed tables.

        While nothing was committed a look costs one short statement. Where only other tables
        were changed, an empty one is reported now and then, so that we do not stay behind.
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
            self._audit.run(connection, stream.tracker, wanted(self._names))
            found = self._spool.transactions(after, LOOK_TRANSACTIONS)
            self._passed = (
                found[-1].position if len(found) >= LOOK_TRANSACTIONS else stream.position
            )
            boundaries = [self._boundary(stream, one) for one in found]
            # A change of shape that concerns no handle is nothing to report.
            said = [b for b in boundaries if b.changes or b.emptied or b.reshaped]
            if said:
                return tuple(said)
            if stream.halted is not None:
                if not self._passes_over(stream):
                    raise stream.halted
                if self._stream is None:
                    return self.look(after)
            reached = stream.position
            grown = offset_of(reached - after) > _IDLE_BYTES
            if reached > after and (grown or file_of(reached) > file_of(after)):
                return (Boundary(reached, time.time(), 0),)
            return ()

    def passed(self, position: int) -> bool:
        return position <= self._passed

    def _boundary(self, stream: Stream, one: Streamed) -> Boundary:
        emptied = tuple(name for table in one.emptied for name in self._names.of(table))
        tracker = stream.tracker
        # Most transactions tell nothing, and there are many.
        told = tracker.between(one.position - 1, one.position) if tracker.told else ()
        reshaped = reported(told, self._names, self._database) if told else ()
        return Boundary(one.position, one.committed_at, one.changes, emptied, reshaped=reshaped)

    def _spool_has_room(self, after: int) -> bool:
        return len(self._spool.transactions(after, LOOK_TRANSACTIONS)) < LOOK_TRANSACTIONS

    def changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """From the spool; what is not in it any more, or not yet, is read from the log."""
        with self._using() as connection:
            stream = self._stream_from(connection, after)
            self._advance(stream, until, READ_SECONDS)
            if stream.position < until:
                raise stream.halted or SourceAwayError(
                    self.name, f"reading its binlog up to position {until} takes too long"
                )
            columns = {
                handle: self._types(stream, handle, asked, until)
                for handle, asked in tables.items()
            }
        for handle, kinds in columns.items():
            named = self._names.get(handle)
            assert named is not None, "its types were found"
            for batch in select(self._spool.changes(named.identity, after, until), kinds):
                yield handle, batch

    def _types(
        self, stream: Stream, handle: str, columns: Sequence[str], until: int
    ) -> dict[str, tuple[str, pa.DataType]]:
        """Columns of a handle with their identity and type: that of now, or the last one."""
        named = self._names.get(handle)
        if named is None:
            raise SchemaError(self.name, f'table "{handle}" is not followed')
        tracker = stream.tracker
        versions = [
            shapes.tables.get(named.identity)
            for shapes in (tracker.shapes, tracker.at(until), tracker.at(self._start))
        ]
        own = {name.lower(): id for name, id in named.columns.items()}
        found: dict[str, tuple[str, pa.DataType]] = {}
        for name in columns:
            if name.lower() not in own:
                raise SchemaError(self.name, f'column "{name}" of table "{handle}" is not followed')
            column = type_of(own[name.lower()], versions)
            kind = None if column is None else column.kind
            found[name] = (own[name.lower()], pa.null() if kind is None else kind.arrow)
        return found

    @contextmanager
    def snapshots(self, after: int, tables: Tables) -> Iterator[MariadbOpener]:
        """Every opening has a connection, a cut and a tail of its own."""
        yield self._opener(after, tables)

    def _opener(self, after: int, tables: Tables) -> MariadbOpener:
        with self._using() as connection:
            state = read_state(self._home)
            if state is None:
                latest = Shapes({}, folds_names(connection))
                watch = Watch(latest, after, {})
            else:
                stream = self._stream_from(connection, after)
                self._advance(stream, after, READ_SECONDS)
                latest, shapes = stream.tracker.shapes, stream.tracker.at(after)
                watch = Watch(shapes, after, {})
            asked = {name: bound(name, own, self._names, latest) for name, own in tables.items()}
            columns: dict[str, tuple[str, ...]] = {}
            for one in asked.values():
                columns[one.identity] = (*columns.get(one.identity, ()), *one.asked_ids)
            watch = Watch(watch.shapes, watch.position, columns)
            return MariadbOpener(self._server, self.reader, asked, watch)

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
            shapes = self._shapes_at(connection, state, position)
            write_state(self._home, State(position, gtid, born, shapes, mark))
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
            known = measure_behind(self._spool, read, positions)
            return health_of(self._server, connection, self.reader, read_state(self._home), known)

    def diagnose(self, tables: Tables) -> list[Finding]:
        return MariadbDoctor(self._server, self.reader, read_state(self._home)).collect_findings(
            tables
        )

    def detach(self, force: bool = False) -> Detached:
        """Forget the source; nothing of ours is in the database."""
        with self._lock:
            self._forget()
            self._checked = False
            was_following = remove_state(self._home)
            self._names.clear()
            return Detached(was_following, True)
