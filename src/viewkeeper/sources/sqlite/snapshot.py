"""A snapshot of a SQLite database: lookups, tails and scans under an exactly known cut.

In WAL mode one read transaction lasts as long as the snapshot: all its answers have one cut, and
writers do not wait. In a rollback-journal mode an open read makes writers wait, and fail after
their own timeout; so every lookup is its own short read, with its own cut and its own tail, and a
scan is first copied to a temporary file, as fast as it can be read.

The cut is the newest log position, read in the same transaction as the rows. The log comes from the
same transaction too, so the tail of an answer is exactly what its cut includes.

**Keys.** A lookup puts its keys into a temporary table, and asks by a query that uses an index.

Keys are bound as SQLite stores the column (a date as text, a boolean as 0 or 1), into columns of
the same affinity, so that `=` compares like with like and can search the index on either side.

- An index, or the rowid, that begins with key columns: the keys drive, and each searches it.
- It covers only some of the key columns: the distinct values of those drive, and the rows that they
  find are checked against the whole keys; no row is visited twice.
- No index: the relation is read once, and every row searches the keys.

Every row is found at most once, as the bag needs: keys are distinct, and text is compared byte by
byte in the end, also where an index that ignores case found it.

Columns whose type has several spellings (timestamps) are left out of the keys, which finds more
rows than asked for, never fewer. For all other types SQLite's `=` never misses what Spark calls
equal.
"""

from __future__ import annotations

import datetime
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.sources.handles import Book
from viewkeeper.sources.sqlite import log as sqlite_log
from viewkeeper.sources.sqlite.database import SqliteDatabase, read_transaction
from viewkeeper.sources.sqlite.handle_lookup import FoundTable, refuse_broken
from viewkeeper.sources.sqlite.read_connections import ReadConnections
from viewkeeper.sources.sqlite.resolved_tables import (
    DatabaseState,
    ResolvedTable,
    read_database_state,
)
from viewkeeper.sources.sqlite.schema import (
    OWN_PREFIX,
    SqliteTable,
    affinity_of,
    prefix_of,
    quote_name,
)
from viewkeeper.sources.sqlite.types import SqliteKind, as_is, kind_or_refuse
from viewkeeper.sources.tables.key_range import bounds_query, key_range_of, range_condition
from viewkeeper.updates.answer_pages import PagedRows, gather_pages
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import COUNT, POSITION, Answer, KeyRange, Lookup, Scan
from viewkeeper.view.definition import Relation
from viewkeeper.view.local_condition import LocalCondition, spans_of


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


# -- keys ------------------------------------------------------------------------------------------


MOMENT = pa.timestamp("us")
_SECOND = datetime.timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class SqliteKeyColumn:
    """A column that a lookup compares: its name, how it is stored, whether NULL equals NULL."""

    column: str
    kind: SqliteKind
    affinity: str
    null_safe: bool

    def match_condition(self, left: str, right: str, collation: str) -> str:
        operator = "IS" if self.null_safe else "="
        return f"{left} {operator} {right} COLLATE {quote_name(collation)}"


def key_columns(
    source: str, table: SqliteTable, on: Sequence[str], null_safe: Sequence[bool]
) -> tuple[tuple[int, SqliteKeyColumn], ...]:
    """The columns of a lookup that can be compared by key, with their index in `on`."""
    found = []
    for index, (name, safe) in enumerate(zip(on, null_safe, strict=True)):
        column, kind = table.column_named(source, name), kind_or_refuse(source, table, name)
        if kind.one_spelling:
            key = SqliteKeyColumn(column.name, kind, affinity_of(column.declared), safe)
            found.append((index, key))
    return tuple(found)


def stored_keys(
    keys: pa.Table, columns: Sequence[tuple[int, SqliteKeyColumn]]
) -> dict[tuple[object, ...], None] | None:
    """The distinct keys as SQLite stores them; None if they are of another type than the column."""
    try:
        cast = keys.select([index for index, _ in columns]).cast(
            pa.schema([(keys.column_names[index], key.kind.arrow) for index, key in columns])
        )
    except pa.ArrowException:
        return None
    # In order, they search an index from one end to the other.
    ordered = cast.sort_by([(name, "ascending") for name in cast.column_names])
    converted = [
        _stored_values(key.kind, values)
        for (_, key), values in zip(columns, ordered.to_pydict().values(), strict=True)
    ]
    return dict.fromkeys(zip(*converted, strict=True))


def _stored_values(kind: SqliteKind, values: Sequence[object]) -> Sequence[object]:
    if kind.to_stored is as_is:
        return values
    return [None if value is None else kind.to_stored(value) for value in values]


@dataclass(frozen=True, slots=True)
class KeyTable:
    """The temporary table of keys of these columns; indexed unless the keys only drive the search.

    It stays on its connection, so that the next lookup of the same kind finds it there: making a
    table would have SQLite compile all statements again.
    """

    affinities: tuple[str, ...]
    is_indexed: bool

    @property
    def name(self) -> str:
        kind = "indexed" if self.is_indexed else "plain"
        return "_".join((f"{OWN_PREFIX}keys", kind, *self.affinities)).lower()

    def make_table(self, connection: sqlite3.Connection) -> None:
        fields = ", ".join(f"k{i} {affinity}" for i, affinity in enumerate(self.affinities))
        connection.execute(f"CREATE TABLE IF NOT EXISTS temp.{self.name} ({fields})")
        if self.is_indexed:
            names = ", ".join(f"k{i}" for i in range(len(self.affinities)))
            index = f"temp.{self.name}_all ON {self.name}"
            connection.execute(f"CREATE INDEX IF NOT EXISTS {index} ({names})")

    def load_keys(
        self, connection: sqlite3.Connection, keys: dict[tuple[object, ...], None], integers: bool
    ) -> None:
        """Replace the keys; `integers` are single whole numbers."""
        connection.execute(f"DELETE FROM temp.{self.name}")
        if integers:
            # One statement instead of one per key; SQLite's JSON cuts text at a zero.
            numbers = json.dumps([key for (key,) in keys])
            query = f"INSERT INTO temp.{self.name} SELECT value FROM json_each(?)"
            connection.execute(query, (numbers,))
        else:
            marks = ", ".join("?" for _ in self.affinities)
            connection.executemany(f"INSERT INTO temp.{self.name} VALUES ({marks})", keys)


def key_table_of(table: SqliteTable, columns: Sequence[SqliteKeyColumn]) -> KeyTable:
    """Where the keys of a lookup go."""
    driving = len(prefix_of(table, [column.column for column in columns])) == len(columns)
    return KeyTable(tuple(column.affinity for column in columns), not driving)


def has_integer_keys(columns: Sequence[SqliteKeyColumn]) -> bool:
    """Whether keys are single whole numbers."""
    return len(columns) == 1 and pa.types.is_integer(columns[0].kind.arrow)


def filter_conditions(
    source: str, table: SqliteTable, conditions: Sequence[LocalCondition]
) -> tuple[list[str], list[object]]:
    """What of these conditions SQLite decides as the kernel does, or calls true more often; and
    the values that they compare with.

    Which of two values is the greater one is asked of whole numbers only: others have no storage
    class of their own.
    """
    found: list[str] = []
    values: list[object] = []
    for condition in conditions:
        column = table.column_named(source, condition.column)
        kind = kind_or_refuse(source, table, condition.column)
        name = f"r.{quote_name(column.name)}"
        if condition.operator == "within" and kind.arrow == condition.type == MOMENT:
            spans = [each for span in spans_of(condition) for each in _spelled_spans(*span)]
            each = f"({name} >= ? COLLATE BINARY AND {name} < ? COLLATE BINARY)"
            found.append(f"({' OR '.join([each] * len(spans))})")
            values += [text for span in spans for text in span]
            continue
        if kind.arrow != condition.type or not kind.one_spelling:
            continue
        if condition.operator == "in":
            # A column's own collation may be one that only the application has.
            equal = " OR ".join(f"{name} = ? COLLATE BINARY" for _ in condition.values)
            found.append(f"({equal})")
        elif pa.types.is_integer(kind.arrow):
            found.append(f"{name} {condition.operator} ?")
        else:
            continue
        values += _stored_values(kind, condition.values)
    return found, values


def _spelled_spans(low: object, high: object) -> list[tuple[str, str]]:
    """A span of time as texts, from the second of its start to the one after its end, once for each
    way to write a moment: within one way, texts have the order of the moments."""
    assert isinstance(low, datetime.datetime), "a span of time"
    assert isinstance(high, datetime.datetime), "a span of time"
    start, stop = (each.replace(microsecond=0, tzinfo=None) for each in (low, high))
    is_last = stop == datetime.datetime.max.replace(microsecond=0)
    spans = []
    for mark in " T":
        # No text of a moment is greater than this one, which no moment has.
        after = f"9999-12-31{mark}24" if is_last else (stop + _SECOND).isoformat(mark)
        spans.append((start.isoformat(mark), after))
    return spans


def lookup_query(table: SqliteTable, select: str, columns: Sequence[SqliteKeyColumn]) -> str:
    """The query for the rows `r` of a table that match the loaded keys."""
    loaded = f"temp.{key_table_of(table, columns).name}"
    prefix = prefix_of(table, [column.column for column in columns])
    relation = f"main.{quote_name(table.name)} AS r"
    numbers = {column.column: i for i, column in enumerate(columns)}
    exact = [
        column.match_condition(f"r.{quote_name(column.column)}", f"k.k{i}", "BINARY")
        for i, column in enumerate(columns)
    ]
    probe = [
        column.match_condition(f"k.k{i}", f"r.{quote_name(column.column)}", "BINARY")
        for i, column in enumerate(columns)
    ]
    checked = f"EXISTS (SELECT 1 FROM {loaded} AS k WHERE {' AND '.join(probe)})"
    if not prefix:
        return f"SELECT {select} FROM {relation} WHERE {checked}"
    led = [(numbers[part.column], part) for part in prefix]
    search = [
        columns[i].match_condition(f"r.{quote_name(part.column)}", f"k.k{i}", part.collation)
        for i, part in led
    ]
    if len(prefix) == len(columns):
        where = " AND ".join(dict.fromkeys([*search, *exact]))
        return f"SELECT {select} FROM {loaded} AS k CROSS JOIN {relation} WHERE {where}"
    drivers = f"(SELECT DISTINCT {', '.join(f'k{i}' for i, _ in led)} FROM {loaded}) AS k"
    where = " AND ".join(dict.fromkeys([*search, *(exact[i] for i, _ in led), checked]))
    return f"SELECT {select} FROM {drivers} CROSS JOIN {relation} WHERE {where}"
