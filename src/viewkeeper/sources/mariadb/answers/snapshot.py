"""A snapshot of a MariaDB server: lookups, scans and tails under an exactly known cut.

`START TRANSACTION WITH CONSISTENT SNAPSHOT` fixes what is seen and at which place of the binlog
that is; the place is the cut, and what lies before it is included, nothing else. Connections
cannot share a snapshot, so every task opens its own and reads its own tail, from the binlog.

A table that was altered between the snapshot and our first touch of it may show its new shape in
the old snapshot. From the first touch on nobody can alter it. So the log is read up to there: what
the tables are called there, and how they are shaped, is what the server must say of them. What was
done to them since `after` has kept the values that are asked for, or there is no answer.

The tail is read once per snapshot, when it is first needed, for all tables that the snapshot may be
asked about, and only if anything was logged since. Reading goes on a little beyond the cut, to
where the tables were touched: what they are called and how they are shaped there is what the
snapshot shows.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql

from viewkeeper.errors import BarrierError, BrokenQueryError, SchemaError, SourceAwayError
from viewkeeper.sources.mariadb.answers.lookup import (
    SCAN_PART,
    build_lookup_query,
    build_scan_query,
)
from viewkeeper.sources.mariadb.answers.rows import AnswerReader
from viewkeeper.sources.mariadb.binlog.log import make_server_id, read_log_end, read_newest_position
from viewkeeper.sources.mariadb.binlog.rows import schema_of_changes, select_columns
from viewkeeper.sources.mariadb.binlog.shape_tracker import ShapeWatch
from viewkeeper.sources.mariadb.binlog.stream import BinlogStream, StreamPlan
from viewkeeper.sources.mariadb.bound_handles import BoundHandle
from viewkeeper.sources.mariadb.logged_shapes import (
    LoggedChange,
    LoggedShape,
    LoggedShapes,
    shape_of,
)
from viewkeeper.sources.mariadb.position import spell_place
from viewkeeper.sources.mariadb.schema import MariadbTable, read_table, read_table_of_handle
from viewkeeper.sources.mariadb.server_connection import (
    MariadbServer,
    fetch_texts,
    quote_name,
    run_statement,
)
from viewkeeper.sources.mariadb.types import MariadbKind
from viewkeeper.sources.stream.spool import Spool
from viewkeeper.sources.tables.key_range import bounds_query, key_range_of, range_condition
from viewkeeper.sources.tables.shape_changes import broken_query_error
from viewkeeper.storage import disk
from viewkeeper.updates.answer_pages import gather_pages
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import Answer, KeyRange, Lookup, Scan
from viewkeeper.view.definition import Relation

_ALL = 1 << 62
_FOLDER = "viewkeeper-tail-"


def make_private_folder() -> Path:
    """A new folder for rows of a database, which are for nobody else on this machine: nobody can
    guess its name, enter it, or have made it before."""
    below = tempfile.gettempdir()
    _remove_stale_folders(below)
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-", dir=below))


@cache
def _remove_stale_folders(below: str) -> None:
    """Remove, once in a process, what processes left that were killed; only what is our own."""
    for folder in Path(below).glob(f"{_FOLDER}*"):
        number = folder.name.removeprefix(_FOLDER).partition("-")[0]
        with suppress(OSError):
            found = folder.lstat()
            is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if is_ours and number.isdigit() and not disk.is_alive(int(number)):
                shutil.rmtree(folder, ignore_errors=True)


class BinlogTail:
    """The changes of some tables from a position on, read from the log when asked for."""

    def __init__(
        self, server: MariadbServer, reader: str, watch: ShapeWatch, start: int, cut: int
    ) -> None:
        self._home = make_private_folder()
        self.start = start
        self._server = server
        self._cut = cut
        self._spool = Spool(self._home)
        plan = StreamPlan(
            server,
            watch,
            min(start, watch.position),
            make_server_id(reader),
            self._home,
            rows_after=start,
        )
        self._stream = BinlogStream(plan, self._spool)

    def read_to(self, end: int) -> None:
        """Read up to a position of the log, if that was not done yet."""
        stream = self._stream
        stream.advance_to(end, self._server.statement_seconds, _ALL)
        stream.disconnect()
        if stream.halted is not None:
            raise stream.halted
        if stream.position < end:
            raise SourceAwayError(
                self._server.source,
                f"reading the binlog from position {spell_place(self.start)} took too long",
                hint="raise statement_seconds of this source",
            )

    @property
    def shapes(self) -> LoggedShapes:
        """As of where reading has ended."""
        return self._stream.tracker.shapes

    def changes_after(self, after: int) -> list[LoggedChange]:
        """The changes of shapes after a position, also those beyond the cut."""
        return self._stream.tracker.changes_between(after, _ALL)

    def require_rows(self, handle: str, table: str, after: int) -> None:
        """A BarrierError if a table was emptied after a position."""
        for transaction in self._spool.transactions_after(after):
            if transaction.position <= self._cut and table in transaction.emptied:
                raise BarrierError(self._server.source, handle, transaction.position)

    def read_batches(
        self, table: str, columns: Mapping[str, tuple[str, pa.DataType]], after: int
    ) -> Iterator[pa.RecordBatch]:
        """The changes of a table that the cut includes."""
        return select_columns(self._spool.changes_of(table, after, self._cut), columns)

    def close(self) -> None:
        self._stream.disconnect()
        self._spool.clear_all()
        shutil.rmtree(self._home, ignore_errors=True)


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

    server: MariadbServer
    reader: str
    tables: Mapping[str, BoundHandle]
    watch: ShapeWatch

    def __call__(self) -> MariadbSnapshot:
        return MariadbSnapshot(self.server, self.reader, self.tables, self.watch)


def make_opener(
    server: MariadbServer, reader: str, tables: Mapping[str, BoundHandle], shapes: ShapeWatch
) -> MariadbOpener:
    """An opener of snapshots whose tails have the columns that the handles ask for."""
    columns: dict[str, tuple[str, ...]] = {}
    for one in tables.values():
        columns[one.identity] = (*columns.get(one.identity, ()), *one.asked_ids)
    return MariadbOpener(server, reader, tables, replace(shapes, columns=columns))


class _BrokenError(Exception):
    """Why there is no answer about a table."""


@dataclass(frozen=True, slots=True)
class _AskedTable:
    """A question's table, and its columns: by the handle's names, what they are called now and
    how their values are kept."""

    handle: str
    table: MariadbTable
    id: str
    columns: Mapping[str, tuple[str, str, MariadbKind]]

    @property
    def column_types(self) -> dict[str, tuple[str, pa.DataType]]:
        return {name: (id, kind.arrow) for name, (id, _, kind) in self.columns.items()}

    def names_now(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(self.columns[name][1] for name in names)


class MariadbSnapshot:
    """Reads one server under one cut; used by one task."""

    def __init__(
        self,
        server: MariadbServer,
        reader: str,
        tables: Mapping[str, BoundHandle],
        watch: ShapeWatch,
    ) -> None:
        self._server = server
        self._reader = reader
        self._bound = tables
        self._watch = watch
        self._database = server.parse_address().database
        self._tables: dict[str, MariadbTable] = {}
        self._touched = 0
        self._tail: BinlogTail | None = None
        self._answers: AnswerReader | None = None
        self._connection = server.open_connection()
        try:
            with server.translate_errors():
                self.cut = self._begin_snapshot()
                self._watch_unfollowed()
        except BaseException:
            self.close()
            raise

    def _begin_snapshot(self) -> int:
        """Fix what is seen and touch every table; again if one was altered in between."""
        connection = self._connection
        run_statement(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for attempt in range(_RETRIES):
            run_statement(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            cut = read_newest_position(connection)
            try:
                touched = {
                    handle: self._touch_table(bound) for handle, bound in self._bound.items()
                }
            except pymysql.Error as error:
                if error.args[0] != _ALTERED or attempt == _RETRIES - 1:
                    raise
                run_statement(connection, "ROLLBACK")
            else:
                self._tables = {handle: table for handle, table in touched.items() if table}
                self._touched = read_log_end(connection)
                return cut
        raise AssertionError("the last attempt returns or raises")

    def _touch_table(self, bound: BoundHandle) -> MariadbTable | None:
        """The shape of a table, which from now on stays as it is; None if it is not there."""
        source = self._server.source
        try:
            if bound.name is None and not bound.identity:
                database, name = read_table_of_handle(
                    self._connection, source, self._database, bound.handle
                ).place
            elif bound.name is None:
                return None
            else:
                database, name = bound.name
            fetch_texts(
                self._connection, f"SELECT 1 FROM {quote_name(database)}.{quote_name(name)} LIMIT 1"
            )
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
                table.require_kept_column(name)
            shape = shape_of(table, f"unfollowed-{number}", self._touched)
            names = {column.name.lower(): column.id for column in shape.columns}
            shapes = shapes.with_table(shape)
            bound[handle] = replace(one, identity=shape.id, columns=names)
            columns[shape.id] = bound[handle].asked_ids
        self._bound = bound
        self._watch = ShapeWatch(shapes, self._watch.position, columns)

    @contextmanager
    def _answer_about(self, handle: str, columns: Sequence[str]) -> Iterator[BoundHandle]:
        """A question about a handle; what breaks it is said with the handle."""
        bound = self._bound.get(handle)
        if bound is None:
            raise SchemaError(
                self._server.source, f'table "{handle}" is not among those of this snapshot'
            )
        kept = (*self._watch.columns.get(bound.identity, ()), "")
        assert all(bound.id_of(name) in kept for name in columns), (
            "columns are asked for beforehand"
        )
        try:
            yield bound
        except _BrokenError as broken:
            raise BrokenQueryError(self._server.source, handle, str(broken)) from None

    def _resolve_question(
        self, bound: BoundHandle, columns: Sequence[str], after: int
    ) -> _AskedTable:
        """The table and columns that a question is about, if they are what the log says."""
        tail = self._tail_after(after)
        tail.require_rows(bound.handle, bound.identity, after)
        ids = {name: bound.id_of(name) for name in columns}
        for one in tail.changes_after(after):
            if one.table == bound.identity and one.change.is_ending(set(ids.values())):
                named = {**bound.columns, **ids}
                raise broken_query_error(self._server.source, bound.handle, named, one.change)
        shape, table = tail.shapes.shape_by_id(bound.identity), self._tables.get(bound.handle)
        if shape is None or table is None:
            raise _BrokenError("it is gone, or is called otherwise now")
        if not tail.shapes.has_name(shape, table.database, table.name):
            raise _BrokenError(f"it is called {shape.full_name} now")
        found = {name: (id, *_column_now(shape, table, name, id)) for name, id in ids.items()}
        return _AskedTable(bound.handle, table, shape.id, found)

    def answer_lookup(self, lookup: Lookup, after: int) -> Answer:
        columns = tuple(dict.fromkeys((*lookup.columns, *lookup.on)))
        with self._answer_about(lookup.relation.table, lookup.columns) as bound:
            asked = self._resolve_question(bound, columns, after)
        kinds = {name: asked.column_types[name] for name in lookup.columns}
        self._free_connection()
        assert self._tail is not None, "it was read before the table was looked at"
        tail = self._tail.read_batches(asked.id, kinds, after)
        now = _translate_lookup(lookup, asked)
        with self._server.translate_errors():
            query = self._build_query(asked.table, now)
        answers = self._answers_to(query, asked, lookup.columns)
        rows, pages = gather_pages(answers, answers.schema, lookup.paging)
        changes = pa.Table.from_batches(tail, schema_of_changes(kinds))
        return Answer(rows, Cut(self.cut), after, changes, pages)

    def _build_query(self, table: MariadbTable, lookup: Lookup) -> str:
        """By key, or the whole table where the keys would touch most of it."""
        keys = 0 if lookup.keys is None else lookup.keys.num_rows
        if keys < _FEW_KEYS:
            return build_lookup_query(table, lookup)
        query = (
            "SELECT table_rows, @@max_allowed_packet FROM information_schema.tables"
            " WHERE table_schema = %s AND table_name = %s"
        )
        rows, longest = fetch_texts(self._connection, query, (table.database, table.name))[0]
        everything = build_scan_query(table, lookup.columns, lookup.conditions)
        if keys > SCAN_PART * int(rows or 0):
            return everything
        asked = build_lookup_query(table, lookup)
        return everything if len(asked) > int(longest) // 2 else asked

    def scan_relation(
        self,
        relation: Relation,
        columns: Sequence[str],
        after: int,
        part: KeyRange | None = None,
    ) -> Scan:
        with self._answer_about(relation.table, columns) as bound:
            asked = self._resolve_question(bound, columns, after)
        self._free_connection()
        assert self._tail is not None, "it was read before the table was looked at"
        tail = self._tail.read_batches(asked.id, asked.column_types, after)
        with self._server.translate_errors():
            # The rows are taken as fast as whoever asked for them works on them.
            run_statement(self._connection, "SET SESSION max_statement_time = 0")
        query = build_scan_query(asked.table, asked.names_now(columns))
        if part is not None:
            (key,) = asked.names_now([part.column])
            only = range_condition(part, f"r.{quote_name(key)}")
            query += f" WHERE {only}" if only else ""
        self._answers = self._answers_to(query, asked, columns)
        return Scan(Cut(self.cut), iter(self._answers), tail)

    def find_key_range(self, relation: Relation, columns: Sequence[str]) -> KeyRange | None:
        """By a key that is one column of whole numbers, and has not been renamed."""
        table = self._tables.get(relation.table)
        if table is None or len(table.exact_key) != 1:
            return None
        name, kind = table.require_kept_column(table.exact_key[0])
        asked = [column for column in columns if column.lower() == name.lower()]
        if not asked or not pa.types.is_integer(kind.arrow):
            return None
        self._free_connection()
        with self._server.translate_errors():
            query = bounds_query(table.quoted_name, f"r.{quote_name(name)}")
            ((least, greatest),) = fetch_texts(self._connection, query)
        return key_range_of(asked[0], (least or None, greatest or None))

    def _answers_to(self, query: str, asked: _AskedTable, columns: Sequence[str]) -> AnswerReader:
        kinds = [(column, asked.columns[column][2]) for column in columns]
        return AnswerReader(self._server, self._connection, query, asked.table.full_name, kinds)

    def _free_connection(self) -> None:
        """Let the connection take another query while a scan is being read."""
        if self._answers is not None:
            self._answers.drain_rows()
            self._answers = None

    def _tail_after(self, after: int) -> BinlogTail:
        if self.cut < after:
            raise SourceAwayError(
                self._server.source,
                f"a snapshot of it ends at position {spell_place(self.cut)}, before "
                f"{spell_place(after)}",
                detail="another server answers under this address, or it was restored",
            )
        if self._tail is None or after < self._tail.start:
            self.close_tail()
            self._free_connection()
            self._tail = BinlogTail(self._server, self._reader, self._watch, after, self.cut)
            self._tail.read_to(max(self._touched, self.cut))
        return self._tail

    def close_tail(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def close(self) -> None:
        self.close_tail()
        if self._answers is not None:
            self._answers.finish_answer()
        if self._connection.open:
            # Not an orderly end, which would first read all that is left of a scan.
            connection: Any = self._connection
            connection._force_close()


def _column_now(
    shape: LoggedShape, table: MariadbTable, name: str, id: str
) -> tuple[str, MariadbKind]:
    """What a column is called now, and how it is kept; by the log and by the server."""
    column = shape.column_by_id(id)
    if column is None or not table.has_column(column.name):
        raise _BrokenError(f"column {name} is gone")
    found = table.find_column(column.name)
    if not isinstance(found.kind, MariadbKind) or found.kind.arrow != column.shape_column.type:
        raise _BrokenError(f"column {name} has the type {found.declared.type} now")
    return found.name, found.kind


def _translate_lookup(lookup: Lookup, asked: _AskedTable) -> Lookup:
    """A lookup by the names that the columns have now."""
    on = asked.names_now(lookup.on)
    keys = lookup.keys
    if keys is not None:
        keys = keys.select(list(lookup.on)).rename_columns(list(on))
    conditions = tuple(
        replace(each, column=asked.columns[each.column][1]) for each in lookup.conditions
    )
    columns = asked.names_now(lookup.columns)
    return replace(lookup, columns=columns, on=on, keys=keys, conditions=conditions)
