"""A snapshot of a MariaDB server: lookups, scans and tails under an exactly known cut.

`START TRANSACTION WITH CONSISTENT SNAPSHOT` fixes what is seen and at which place of the binlog
that is; the place is the cut, and what lies before it is included, nothing else. Connections
cannot share a snapshot, so every task opens its own and reads its own tail, from the binlog.

A table that was altered between the snapshot and our first touch of it may show its new shape in
the old snapshot. From the first touch on nobody can alter it. So the log is read up to there: what
the tables are called there, and how they are shaped, is what the server must say of them. What was
done to them since `after` has kept the values that are asked for, or there is no answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pymysql

from viewkeeper.errors import BrokenQueryError, SchemaError, SourceAwayError
from viewkeeper.sources.mariadb.answers.lookup import SCAN_PART, question, whole
from viewkeeper.sources.mariadb.answers.rows import Answers
from viewkeeper.sources.mariadb.binlog.log import log_end, newest
from viewkeeper.sources.mariadb.binlog.shape_tracker import Watch
from viewkeeper.sources.mariadb.binlog.tail import Tail, change_schema
from viewkeeper.sources.mariadb.bound_handles import Bound
from viewkeeper.sources.mariadb.logged_shapes import Shape, shape_of
from viewkeeper.sources.mariadb.schema import Table, read_named, read_table
from viewkeeper.sources.mariadb.server_connection import Server, execute, quote, texts
from viewkeeper.sources.mariadb.types import Kind
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.updates.source_protocol import Answer, Lookup, Scan
from viewkeeper.view.definition import Relation

_RETRIES = 5
# A table was altered, and nothing is seen of it in a snapshot from before that.
_ALTERED = 1412
_MISSING = {1146, 1049, 1932}
# So many keys are asked for without looking how many rows the table has.
_FEW_KEYS = 1_000


@dataclass(frozen=True, slots=True)
class MariadbOpener:
    """Opens snapshots, here or in a task; carries the settings as the project file has them, and
    what the handles meant when it was made."""

    server: Server
    reader: str
    tables: Mapping[str, Bound]
    watch: Watch

    def __call__(self) -> MariadbSnapshot:
        return MariadbSnapshot(self.server, self.reader, self.tables, self.watch)


class _BrokenError(Exception):
    """Why there is no answer about a table."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question's table, and its columns: by the handle's names, what they are called now and
    how their values are kept."""

    handle: str
    table: Table
    id: str
    columns: Mapping[str, tuple[str, str, Kind]]

    @property
    def kinds(self) -> dict[str, tuple[str, pa.DataType]]:
        return {name: (id, kind.arrow) for name, (id, _, kind) in self.columns.items()}

    def now(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(self.columns[name][1] for name in names)


class MariadbSnapshot:
    """Reads one server under one cut; used by one task."""

    def __init__(
        self, server: Server, reader: str, tables: Mapping[str, Bound], watch: Watch
    ) -> None:
        self._server = server
        self._reader = reader
        self._bound = tables
        self._watch = watch
        self._database = server.address().database
        self._tables: dict[str, Table] = {}
        self._touched = 0
        self._tail: Tail | None = None
        self._answers: Answers | None = None
        self._connection = server.connect()
        try:
            with server.errors():
                self.cut = self._begin()
                self._watch_unfollowed()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> int:
        """Fix what is seen and touch every table; again if one was altered in between."""
        connection = self._connection
        execute(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for attempt in range(_RETRIES):
            execute(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            cut = newest(connection)
            try:
                touched = {handle: self._touch(bound) for handle, bound in self._bound.items()}
            except pymysql.Error as error:
                if error.args[0] != _ALTERED or attempt == _RETRIES - 1:
                    raise
                execute(connection, "ROLLBACK")
            else:
                self._tables = {handle: table for handle, table in touched.items() if table}
                self._touched = log_end(connection)
                return cut
        raise AssertionError("the last attempt returns or raises")

    def _touch(self, bound: Bound) -> Table | None:
        """The shape of a table, which from now on stays as it is; None if it is not there."""
        source = self._server.source
        try:
            if bound.name is None and not bound.identity:
                database, name = read_named(
                    self._connection, source, self._database, bound.handle
                ).place
            elif bound.name is None:
                return None
            else:
                database, name = bound.name
            texts(self._connection, f"SELECT 1 FROM {quote(database)}.{quote(name)} LIMIT 1")
            return read_table(self._connection, source, database, f"{database}.{name}")
        except SchemaError:
            if not bound.identity:
                raise
            return None
        except pymysql.Error as error:
            if error.args[0] in _MISSING and bound.identity:
                return None
            raise

    def _watch_unfollowed(self) -> None:
        """Let the tail follow what nothing is followed of yet, from where it was touched."""
        shapes, columns = self._watch.shapes, dict(self._watch.columns)
        bound = dict(self._bound)
        for number, (handle, one) in enumerate(self._bound.items()):
            if one.identity:
                continue
            table = self._tables[handle]
            for name in one.asked:
                table.kept(name)
            shape = shape_of(table, f"unfollowed-{number}", self._touched)
            names = {column.name.lower(): column.id for column in shape.columns}
            shapes = shapes.with_table(shape)
            bound[handle] = replace(one, identity=shape.id, columns=names)
            columns[shape.id] = bound[handle].asked_ids
        self._bound = bound
        self._watch = Watch(shapes, self._watch.position, columns)

    @contextmanager
    def _answering(self, handle: str, columns: Sequence[str]) -> Iterator[Bound]:
        """A question about a handle; what breaks it is said with the handle."""
        bound = self._bound.get(handle)
        if bound is None:
            raise SchemaError(
                self._server.source, f'table "{handle}" is not among those of this snapshot'
            )
        kept = (*self._watch.columns.get(bound.identity, ()), "")
        assert all(bound.id(name) in kept for name in columns), "columns are asked for beforehand"
        try:
            yield bound
        except _BrokenError as broken:
            raise BrokenQueryError(self._server.source, handle, str(broken)) from None

    def _asked(self, bound: Bound, columns: Sequence[str], after: int) -> _Asked:
        """The table and columns that a question is about, if they are what the log says."""
        tail = self._tail_after(after)
        tail.require_rows(bound.handle, bound.identity, after)
        ids = {name: bound.id(name) for name in columns}
        for told in tail.told(after):
            _require_kept(told.change, bound, set(ids.values()))
        shape, table = tail.shapes.get(bound.identity), self._tables.get(bound.handle)
        if shape is None or table is None:
            raise _BrokenError("it is gone, or is called otherwise now")
        if not tail.shapes.same(shape, table.database, table.name):
            raise _BrokenError(f"it is called {shape.full_name} now")
        found = {name: (id, *_column(shape, table, name, id)) for name, id in ids.items()}
        return _Asked(bound.handle, table, shape.id, found)

    def ask(self, lookup: Lookup, after: int) -> Answer:
        columns = tuple(dict.fromkeys((*lookup.columns, *lookup.on)))
        with self._answering(lookup.relation.table, lookup.columns) as bound:
            asked = self._asked(bound, columns, after)
        kinds = {name: asked.kinds[name] for name in lookup.columns}
        self._free()
        assert self._tail is not None, "it was read before the table was looked at"
        tail = self._tail.batches(asked.id, kinds, after)
        now = _translated(lookup, asked)
        with self._server.errors():
            query = self._question(asked.table, now)
        rows = self._answers_to(query, asked, lookup.columns).read()
        return Answer(rows, Cut(self.cut), after, pa.Table.from_batches(tail, change_schema(kinds)))

    def _question(self, table: Table, lookup: Lookup) -> str:
        """By key, or the whole table where the keys would touch most of it."""
        keys = 0 if lookup.keys is None else lookup.keys.num_rows
        if keys < _FEW_KEYS:
            return question(table, lookup)
        query = (
            "SELECT table_rows, @@max_allowed_packet FROM information_schema.tables"
            " WHERE table_schema = %s AND table_name = %s"
        )
        rows, longest = texts(self._connection, query, (table.database, table.name))[0]
        everything = whole(table, lookup.columns)
        if keys > SCAN_PART * int(rows or 0):
            return everything
        asked = question(table, lookup)
        return everything if len(asked) > int(longest) // 2 else asked

    def scan(self, relation: Relation, columns: Sequence[str], after: int) -> Scan:
        with self._answering(relation.table, columns) as bound:
            asked = self._asked(bound, columns, after)
        self._free()
        assert self._tail is not None, "it was read before the table was looked at"
        tail = self._tail.batches(asked.id, asked.kinds, after)
        with self._server.errors():
            # The rows are taken as fast as whoever asked for them works on them.
            execute(self._connection, "SET SESSION max_statement_time = 0")
        query = whole(asked.table, asked.now(columns))
        self._answers = self._answers_to(query, asked, columns)
        return Scan(Cut(self.cut), iter(self._answers), tail)

    def _answers_to(self, query: str, asked: _Asked, columns: Sequence[str]) -> Answers:
        kinds = [(column, asked.columns[column][2]) for column in columns]
        return Answers(self._server, self._connection, query, asked.table.full_name, kinds)

    def _free(self) -> None:
        """Let the connection take another query while a scan is being read."""
        if self._answers is not None:
            self._answers.drain()
            self._answers = None

    def _tail_after(self, after: int) -> Tail:
        if self.cut < after:
            raise SourceAwayError(
                self._server.source,
                f"a snapshot of it ends at position {self.cut}, before {after}",
                detail="another server answers under this address, or it was restored",
            )
        if self._tail is None or after < self._tail.start:
            self.close_tail()
            self._free()
            self._tail = Tail(self._server, self._reader, self._watch, after, self.cut)
            self._tail.read_to(max(self._touched, self.cut))
        return self._tail

    def close_tail(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def close(self) -> None:
        self.close_tail()
        if self._answers is not None:
            self._answers.finish()
        if self._connection.open:
            # Not an orderly end, which would first read all that is left of a scan.
            connection: Any = self._connection
            connection._force_close()


def _require_kept(change: SchemaChange, bound: Bound, asked: set[str]) -> None:
    """A _BrokenError if a change left nothing of what a question is about."""
    if change.table != bound.identity or change.keeps_values:
        return
    if change.column and change.column not in asked:
        return
    names = {id: name for name, id in bound.columns.items()}
    facts = replace(change, table=bound.handle, column=names.get(change.column, ""))
    raise _BrokenError(str(facts))


def _column(shape: Shape, table: Table, name: str, id: str) -> tuple[str, Kind]:
    """What a column is called now, and how it is kept; by the log and by the server."""
    column = shape.column(id)
    if column is None or not table.has(column.name):
        raise _BrokenError(f"column {name} is gone")
    found = table.column(column.name)
    logged = column.kind
    if logged is None or not isinstance(found.kind, Kind) or found.kind.arrow != logged.arrow:
        raise _BrokenError(f"column {name} has the type {found.declared.type} now")
    return found.name, found.kind


def _translated(lookup: Lookup, asked: _Asked) -> Lookup:
    """A lookup by the names of now."""
    on = asked.now(lookup.on)
    keys = lookup.keys
    if keys is not None:
        keys = keys.select(list(lookup.on)).rename_columns(list(on))
    return replace(lookup, columns=asked.now(lookup.columns), on=on, keys=keys)
