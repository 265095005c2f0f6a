"""A snapshot of a SQLite database: lookups, tails and scans under an exactly known cut.

In WAL mode one read transaction lasts as long as the snapshot: all its answers have one cut, and
writers do not wait. In a rollback-journal mode an open read makes writers wait, and fail after
their own timeout; so every lookup is its own short read, with its own cut and its own tail, and a
scan is first copied to a temporary file, as fast as it can be read.

The cut is the newest log position, read in the same transaction as the rows. The log comes from the
same transaction too, so the tail of an answer is exactly what its cut includes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from viewkeeper.sources.handles import Book
from viewkeeper.sources.sqlite import log as sqlite_log
from viewkeeper.sources.sqlite.database import SqliteDatabase, read_transaction
from viewkeeper.sources.sqlite.handle_lookup import FoundTable, refuse_broken
from viewkeeper.sources.sqlite.lookup import (
    SqliteKeyColumn,
    filter_conditions,
    has_integer_keys,
    key_columns,
    key_table_of,
    lookup_query,
    stored_keys,
)
from viewkeeper.sources.sqlite.read_connections import ReadConnections
from viewkeeper.sources.sqlite.resolved_tables import (
    DatabaseState,
    ResolvedTable,
    read_database_state,
)
from viewkeeper.sources.sqlite.schema import SqliteTable, quote_name
from viewkeeper.sources.tables.key_range import bounds_query, key_range_of, range_condition
from viewkeeper.updates.answer_pages import PagedRows, gather_pages
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import COUNT, POSITION, Answer, KeyRange, Lookup, Scan
from viewkeeper.view.definition import Relation


class SqliteOpener:
    """Opens snapshots of a database: in this process on connections that are kept, in a task on one
    of its own."""

    def __init__(
        self, database: SqliteDatabase, book: Book, connections: ReadConnections | None = None
    ) -> None:
        self._database = database
        self._book = book
        self._connections = connections

    def __call__(self) -> SqliteSnapshot:
        connections = self._connections or ReadConnections(self._database, idle_max=0)
        return SqliteSnapshot(connections, self._book)

    def __reduce__(self) -> tuple[object, ...]:
        """Connections stay behind; another process opens its own."""
        return (SqliteOpener, (self._database, self._book))


class SqliteSnapshot:
    """Reads one SQLite database; used by one task."""

    def __init__(self, connections: ReadConnections, book: Book) -> None:
        self._database = connections.database
        self._connections = connections
        self._book = book
        self._is_whole = True
        self._state: DatabaseState | None = None
        """The state of the snapshot's own transaction, in WAL mode."""
        self._reading = connections.take_connection()
        self._connection = self._reading.connection
        try:
            with self._database.translate_errors():
                self._is_wal = self._reading.is_wal
                if self._is_wal:
                    self._connection.execute("BEGIN")
                    self._state = read_database_state(self._connection, self._database.source)
        except BaseException:
            self._is_whole = False
            self.close()
            raise

    def answer_lookup(self, lookup: Lookup, after: int) -> Answer:
        with self._noting_failure():
            if self._state is not None:
                read = self._find_table(self._state, lookup.relation)
                keyed = self._load_lookup_keys(read.table, lookup)
                return self._answer_keyed(read, lookup, keyed, after, self._state)
            # Keys are loaded before the read begins, so that in rollback mode it is short.
            with self._short_read() as state:
                read = self._find_table(state, lookup.relation)
            keyed = self._load_lookup_keys(read.table, lookup)
            with self._short_read() as now:
                if not now.is_recorded or now.version != state.version:
                    # The schema has changed since, or may have; now it cannot.
                    read = self._find_table(now, lookup.relation)
                    keyed = self._load_lookup_keys(read.table, lookup)
                return self._answer_keyed(read, lookup, keyed, after, now)

    def _find_table(self, state: DatabaseState, relation: Relation) -> ResolvedTable:
        tables = self._connections.tables
        return tables.find_table(self._connection, state, self._book, relation.table)

    def _answer_keyed(
        self,
        read: ResolvedTable,
        lookup: Lookup,
        keyed: tuple[SqliteKeyColumn, ...] | None,
        after: int,
        state: DatabaseState,
    ) -> Answer:
        found, columns = read.found, tuple(dict.fromkeys([*lookup.columns, *lookup.on]))
        if not read.is_steady_since(after):
            refuse_broken(self._connection, found, columns, after)
        rows, pages = self._read_rows(read, lookup, keyed)
        span = range(after + 1, state.position + 1)
        tail = self._read_span(read, lookup.columns, state, span)
        return Answer(rows, Cut(state.position), after, tail, pages)

    def _read_span(
        self, read: ResolvedTable, columns: Sequence[str], state: DatabaseState, span: range
    ) -> pa.Table:
        """The changes in `span`, inside the caller's read transaction."""
        layout = read.layout_of(columns, (COUNT, POSITION))
        if not span:
            return layout.schema.empty_table()
        return sqlite_log.read_tail(self._connection, read, columns, span, state)

    def _load_lookup_keys(
        self, table: SqliteTable, lookup: Lookup
    ) -> tuple[SqliteKeyColumn, ...] | None:
        """Put the keys into the temporary table; None if the whole relation has to be read."""
        if lookup.keys is None or not lookup.on:
            return None
        found = key_columns(self._database.source, table, lookup.on, lookup.null_safe)
        keys = stored_keys(lookup.keys.select(list(lookup.on)), found) if found else None
        if keys is None:
            return None
        columns = tuple(column for _, column in found)
        wanted = key_table_of(table, columns)
        if wanted.name not in self._reading.key_tables:
            wanted.make_table(self._connection)
            self._reading.key_tables.add(wanted.name)
        wanted.load_keys(self._connection, keys, has_integer_keys(columns))
        return columns

    def _read_rows(
        self, read: ResolvedTable, lookup: Lookup, keyed: tuple[SqliteKeyColumn, ...] | None
    ) -> PagedRows:
        select = _select_list(read.found, lookup.columns)
        source, table = self._database.source, read.table
        filters, values = filter_conditions(source, table, lookup.conditions)
        if keyed is None:
            query = f"SELECT {select} FROM main.{quote_name(table.name)} AS r WHERE TRUE"
        else:
            query = lookup_query(table, select, keyed)
        whole = " AND ".join([query, *filters])
        shape = read.layout_of(lookup.columns)
        batches = shape.read_batches(self._connection.execute(whole, values))
        return gather_pages(batches, shape.schema, lookup.paging)

    def scan_relation(
        self,
        relation: Relation,
        columns: Sequence[str],
        after: int,
        part: KeyRange | None = None,
    ) -> Scan:
        # Rows may be left unread, and then the connection would stay in its transaction.
        self._is_whole = False
        with self._database.translate_errors(), self._read_transaction() as state:
            read = self._find_table(state, relation)
            refuse_broken(self._connection, read.found, columns, after)
            shape, table = read.layout_of(columns), read.table
            named = "" if table.rowid is None else f", r.{quote_name(table.rowid)}"
            select = _select_list(read.found, columns) + named
            query = f"SELECT {select} FROM main.{quote_name(table.name)} AS r"
            if part is not None and (only := range_condition(part, _rowid_of(table))):
                query += f" WHERE {only}"
            batches = shape.read_batches(self._connection.execute(query))
            if not self._is_wal:
                batches = _spool_batches(batches, shape.schema)
        tail = self._read_tail(read, tuple(columns), after, state.position)
        return Scan(
            Cut(state.position), self._translate_batches(batches), self._translate_batches(tail)
        )

    def find_key_range(self, relation: Relation, columns: Sequence[str]) -> KeyRange | None:
        """By the column that is the rowid; other keys may hold values of any type."""
        with self._noting_failure(), self._read_transaction() as state:
            read = self._find_table(state, relation)
            named = [c for c in columns if read.found.column_named(c).name == read.table.rowid]
            if not named:
                return None
            table = f"main.{quote_name(read.table.name)}"
            query = bounds_query(table, _rowid_of(read.table))
            return key_range_of(named[0], self._connection.execute(query).fetchone())

    def _translate_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._database.translate_errors():
            yield from batches

    def _read_tail(
        self, read: ResolvedTable, columns: tuple[str, ...], after: int, cut: int
    ) -> Iterator[pa.RecordBatch]:
        """The log up to a cut never changes, so it may be read after the rows, in short reads."""
        for start, end in sqlite_log.split_windows(after, cut):
            with self._read_transaction() as state:
                span = range(start + 1, end + 1)
                piece = sqlite_log.read_tail(self._connection, read, columns, span, state)
            yield from piece.to_batches()

    @contextmanager
    def _read_transaction(self) -> Iterator[DatabaseState]:
        """A read transaction and its state: the snapshot's own in WAL mode, else a short one."""
        if self._state is not None:
            yield self._state
            return
        with self._short_read() as state:
            yield state

    @contextmanager
    def _short_read(self) -> Iterator[DatabaseState]:
        # Some errors of SQLite end the transaction by themselves.
        with read_transaction(self._connection):
            yield read_database_state(self._connection, self._database.source)

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        """Inside, errors are ours, and the connection is not used again after one."""
        try:
            with self._database.translate_errors():
                yield
        except BaseException:
            self._is_whole = False
            raise

    def close(self) -> None:
        self._connections.give_back(self._reading, self._is_whole)


def _spool_batches(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """All batches, read now into a file that has lost its name, and given from there later."""
    descriptor, path = tempfile.mkstemp(suffix=".arrow")
    os.close(descriptor)
    try:
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        file = pa.OSFile(path, "rb")
    finally:
        os.unlink(path)
    return _read_spooled(file)


def _read_spooled(file: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    with file, pa.ipc.open_stream(file) as reader:
        yield from reader


def _rowid_of(table: SqliteTable) -> str:
    assert table.rowid is not None, "a table without rowids is not read in ranges"
    return f"r.{quote_name(table.rowid)}"


def _select_list(found: FoundTable, columns: Sequence[str]) -> str:
    named = [(found.column_named(column).name, column) for column in columns]
    return (
        ", ".join(f"r.{quote_name(name)} AS {quote_name(column)}" for name, column in named) or "1"
    )
