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
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.sources.handles import Book
from viewkeeper.sources.sqlite import log as sqlite_log
from viewkeeper.sources.sqlite.capture.capture_tables import (
    newest_position,
    require_installed,
    schema_version,
)
from viewkeeper.sources.sqlite.database import SqliteDatabase, journal_mode
from viewkeeper.sources.sqlite.handle_lookup import FoundTable, find_handle, refuse_broken, table_of
from viewkeeper.sources.sqlite.lookup import (
    SqliteKeyColumn,
    filter_conditions,
    key_columns,
    load_keys,
    lookup_query,
    stored_keys,
)
from viewkeeper.sources.sqlite.schema import SqliteTable, quote_name
from viewkeeper.sources.tables.key_range import bounds_query, key_range_of, range_condition
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import Answer, KeyRange, Lookup, Scan
from viewkeeper.view.definition import Relation


@dataclass(frozen=True, slots=True)
class _Read:
    """The table of a handle, as it was found in a transaction."""

    found: FoundTable
    table: SqliteTable


class SqliteSnapshot:
    """Reads one SQLite database; used by one task."""

    def __init__(self, database: SqliteDatabase, book: Book) -> None:
        self._database = database
        self._book = book
        self._connection = database.open_connection(write=False)
        self._read: dict[str, _Read] = {}
        self._schema_version: int | None = None
        with database.translate_errors():
            self._is_wal = journal_mode(self._connection) == "wal"
            if self._is_wal:
                self._connection.execute("BEGIN")
                self._check_installed()

    def answer_lookup(self, lookup: Lookup, after: int) -> Answer:
        handle = lookup.relation.table
        with self._database.translate_errors():
            # Keys are loaded before the read begins, so that in rollback mode it is short.
            read = self._resolve_handle(handle)
            keyed = self._load_lookup_keys(read.table, lookup)
            with self._read_transaction() as cut:
                if not self._is_wal and self._schema_version != schema_version(self._connection):
                    # The schema has changed since; now it cannot.
                    read = self._find_handle(handle)
                    keyed = self._load_lookup_keys(read.table, lookup)
                return self._answer_keyed(read, lookup, keyed, after, cut)

    def _answer_keyed(
        self,
        read: _Read,
        lookup: Lookup,
        keyed: tuple[SqliteKeyColumn, ...] | None,
        after: int,
        cut: int,
    ) -> Answer:
        found, columns = read.found, tuple(dict.fromkeys([*lookup.columns, *lookup.on]))
        refuse_broken(self._connection, found, columns, after)
        rows = self._read_rows(read, lookup, keyed)
        span = range(after + 1, cut + 1)
        tail = sqlite_log.read_tail(self._connection, found, lookup.columns, span)
        return Answer(rows, Cut(cut), after, tail)

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
        load_keys(self._connection, table, keys, columns)
        return columns

    def _read_rows(
        self, read: _Read, lookup: Lookup, keyed: tuple[SqliteKeyColumn, ...] | None
    ) -> pa.Table:
        shape = read.found.layout_of(lookup.columns)
        select = _select_list(read.found, lookup.columns)
        source, table = self._database.source, read.table
        filters, values = filter_conditions(source, table, lookup.conditions)
        if keyed is None:
            query = f"SELECT {select} FROM main.{quote_name(table.name)} AS r WHERE TRUE"
        else:
            query = lookup_query(table, select, keyed)
        whole = " AND ".join([query, *filters])
        return shape.read_all(self._connection.execute(whole, values))

    def scan_relation(
        self,
        relation: Relation,
        columns: Sequence[str],
        after: int,
        part: KeyRange | None = None,
    ) -> Scan:
        with self._database.translate_errors(), self._read_transaction() as cut:
            read = self._find_handle(relation.table)
            refuse_broken(self._connection, read.found, columns, after)
            shape, table = read.found.layout_of(columns), read.table
            named = "" if table.rowid is None else f", r.{quote_name(table.rowid)}"
            select = _select_list(read.found, columns) + named
            query = f"SELECT {select} FROM main.{quote_name(table.name)} AS r"
            if part is not None and (only := range_condition(part, _rowid_of(table))):
                query += f" WHERE {only}"
            batches = shape.read_batches(self._connection.execute(query))
            if not self._is_wal:
                batches = _spool_batches(batches, shape.schema)
        tail = self._read_tail(read.found, tuple(columns), after, cut)
        return Scan(Cut(cut), self._translate_batches(batches), self._translate_batches(tail))

    def find_key_range(self, relation: Relation, columns: Sequence[str]) -> KeyRange | None:
        """By the column that is the rowid; other keys may hold values of any type."""
        with self._database.translate_errors(), self._read_transaction():
            read = self._find_handle(relation.table)
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
        self, found: FoundTable, columns: tuple[str, ...], after: int, cut: int
    ) -> Iterator[pa.RecordBatch]:
        """The log up to a cut never changes, so it may be read after the rows, in short reads."""
        for start, end in sqlite_log.split_windows(after, cut):
            with self._read_transaction():
                span = range(start + 1, end + 1)
                piece = sqlite_log.read_tail(self._connection, found, columns, span)
            yield from piece.to_batches()

    @contextmanager
    def _read_transaction(self) -> Iterator[int]:
        """A read transaction and its cut: the snapshot's own in WAL mode, else a new short one."""
        connection = self._connection
        if self._is_wal:
            yield newest_position(connection)
            return
        connection.execute("BEGIN")
        try:
            require_installed(connection, self._database.source)
            yield newest_position(connection)
        finally:
            # Some errors of SQLite have ended the transaction already.
            if connection.in_transaction:
                connection.execute("COMMIT")

    def _check_installed(self) -> None:
        try:
            require_installed(self._connection, self._database.source)
        except BaseException:
            self.close()
            raise

    def _resolve_handle(self, handle: str) -> _Read:
        """What was found out about a handle, in one transaction and for one version of the schema;
        whoever uses it sees to it that the version is still the same."""
        if handle not in self._read:
            with self._read_transaction():
                version = schema_version(self._connection)
                if version != self._schema_version:
                    self._read.clear()
                self._schema_version = version
                self._read[handle] = self._find_handle(handle)
        return self._read[handle]

    def _find_handle(self, handle: str) -> _Read:
        found = find_handle(self._connection, self._database.source, self._book, handle)
        return _Read(found, table_of(self._connection, found))

    def close(self) -> None:
        self._connection.close()


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
