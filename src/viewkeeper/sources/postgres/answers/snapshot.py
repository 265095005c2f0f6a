"""Answers in a snapshot that many connections share, and their tails.

A coordinator has taken and exported the snapshot; every task imports it, so that all answers have
one cut. Few keys are asked for on a connection that is opened quickly and answers in text; many
keys, and scans, on one whose answers are Arrow. Whichever is opened checks that it sees what the
coordinator saw (`SnapshotSession`).

The tail of an answer depends on how the database is captured (`AnswerTails`). Where the change
stream is decoded, the driver has computed it from the spool, which it had read past everything that
the snapshot can contain (`StreamTails`). The cut has holes where a commit was decoded and is not
visible yet, so the tail has both signs: what the cut includes after the asked position, and,
reversed, what it lacks up to it. With triggers, the tail is read from the log in the same snapshot
(`viewkeeper.sources.postgres.triggers.log_reader`).

A commit is decoded before it is visible, so the visible set is no prefix of the change stream and
must never be derived from log positions. `pg_current_snapshot()` says it exactly: every transaction
below `xmax` that is not among those in progress.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import pyarrow as pa
from psycopg.pq import TransactionStatus

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import BarrierError, SourceAwayError, ViewkeeperError
from viewkeeper.sources.postgres.answers.lookup import (
    PostgresLayout,
    filter_conditions,
    is_scan_cheaper,
    key_columns,
    key_conditions,
    layout_of,
)
from viewkeeper.sources.postgres.errors import unreadable_stream_error
from viewkeeper.sources.postgres.idle_connections import ARROW, TEXT, IdleConnections
from viewkeeper.sources.postgres.postgres_server import PostgresServer
from viewkeeper.sources.postgres.schema import PostgresTable
from viewkeeper.sources.postgres.types import (
    PgConnection,
    PostgresKind,
    quote_literal,
    read_row,
)
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.tables.key_range import bounds_query, key_range_of, range_condition
from viewkeeper.sources.tables.shape import batch_without_columns
from viewkeeper.updates.answer_pages import PagedRows, Paging, gather_pages
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import COUNT, POSITION, Answer, KeyRange, Lookup, Scan
from viewkeeper.view.definition import Relation

C = TypeVar("C", bound="ClosableConnection")

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# From so many keys on an answer is read as Arrow, on a connection that takes longer to open: 60 ms,
# which keys that find one row each must be more to be worth, unless it is open already.
_MANY_KEYS = 5_000
_UNIQUE_TIMES = 8


@dataclass(frozen=True, slots=True)
class SharedSnapshot:
    """What a task has to know to import a snapshot: the name that it is exported under, what it
    sees, and the tables that it shows, by their handles."""

    settings: SourceSettings
    exported: str
    snapshot: str
    tables: Mapping[str, PostgresTable]


class ClosableConnection(Protocol):
    """A connection of either driver."""

    def close(self) -> None: ...


class AnswerTails(Protocol):
    """What is known of the time between an asked position and the snapshot."""

    def check_barriers(self, table: str, after: int) -> None:
        """A BarrierError if rows were removed after the position without being listed."""
        ...

    def answer_cut(self, after: int) -> Cut:
        """What rows and tail together stand for."""
        ...

    def answer_tail(self, table: str, columns: Sequence[str], after: int) -> pa.Table:
        """The signed difference between the rows and the relation as of a position."""
        ...


class SnapshotSession:
    """The connections of one task under a shared snapshot; each is opened when it is needed."""

    def __init__(self, shared: SharedSnapshot) -> None:
        self.shared = shared
        self.server = PostgresServer(shared.settings)
        self._text: PgConnection | None = None
        self._arrow: Any = None
        self._unread = 0
        """How many answers in Arrow were begun and not read to their end."""

    @property
    def has_arrow(self) -> bool:
        """Whether a connection whose answers are Arrow need not be opened first."""
        return self._arrow is not None or ARROW.has_connection(self.shared.settings)

    def read_few(
        self,
        table: PostgresTable,
        shape: PostgresLayout,
        conditions: Sequence[str],
        limit: int | None = None,
    ) -> pa.Table | None:
        """The rows that meet one of the conditions; None if they are more than a limit."""
        ending = "" if limit is None else f" LIMIT {limit + 1}"
        with self.server.translate_errors():
            connection = self.text_connection()
            results: list[pa.Table] = []
            for condition in conditions:
                query = query_of(table, shape, condition, native=False) + ending
                cursor = connection.execute(query.encode())
                assert cursor.pgresult is not None
                results.append(shape.from_result(cursor.pgresult))
                if limit is not None and sum(each.num_rows for each in results) > limit:
                    return None
        if not shape.names:
            # Joining tables would forget how many rows of nothing they have.
            rows = sum(result.num_rows for result in results)
            return pa.Table.from_batches([batch_without_columns(rows)])
        return pa.concat_tables(results) if results else shape.schema.empty_table()

    def read_many(
        self,
        table: PostgresTable,
        shape: PostgresLayout,
        conditions: Sequence[str],
        paging: Paging | None,
    ) -> PagedRows:
        queries = [query_of(table, shape, condition) for condition in conditions or [""]]
        batches = (batch for query in queries for batch in self.read_batches(query, shape))
        return gather_pages(batches, shape.schema, paging)

    def read_batches(self, query: str, shape: PostgresLayout) -> Iterator[pa.RecordBatch]:
        from viewkeeper.sources.postgres.arrow_connection import translate_arrow_errors

        with translate_arrow_errors(self.server), self._arrow_connection().cursor() as cursor:
            self._unread += 1
            cursor.execute(query)
            yield from shape.from_native(cursor.fetch_record_batch())
            self._unread -= 1

    def text_connection(self) -> PgConnection:
        if self._text is None:
            self._text = self._share_snapshot(TEXT, self.server.open_connection, self._import_text)
        return self._text

    def _arrow_connection(self) -> Any:
        from viewkeeper.sources.postgres.arrow_connection import connect_arrow

        if self._arrow is None:
            open_new = partial(connect_arrow, self.server)
            self._arrow = self._share_snapshot(ARROW, open_new, self._import_arrow)
        return self._arrow

    def _share_snapshot(
        self, idle: IdleConnections, open_new: Callable[[], C], share: Callable[[C], object]
    ) -> C:
        """A connection that sees the snapshot: one that was kept, if it still can, or a new one."""
        kept = idle.take_connection(self.shared.settings)
        if kept is not None:
            # It may have been ended meanwhile, or lead somewhere else by now.
            with suppress(ViewkeeperError):
                return self._check_shared(cast("C", kept), share)
        return self._check_shared(open_new(), share)

    def _check_shared(self, connection: C, share: Callable[[C], object]) -> C:
        """The connection, which sees the snapshot now; closed if it does not."""
        try:
            self._check_snapshot(share(connection))
        except BaseException:
            connection.close()
            raise
        return connection

    def _import_text(self, connection: PgConnection) -> object:
        with self.server.translate_errors():
            cursor = connection.execute(f"{self._import_statement()}; {_SEEN}".encode())
            while cursor.nextset():
                pass
            return cursor.fetchone()

    def _import_arrow(self, connection: Any) -> object:
        from viewkeeper.sources.postgres.arrow_connection import translate_arrow_errors

        with translate_arrow_errors(self.server), connection.cursor() as cursor:
            for statement in self._import_statement().split("; "):
                cursor.execute(statement)
            cursor.execute(_SEEN)
            return cursor.fetchone()

    def _import_statement(self) -> str:
        return f"{BEGIN}; SET TRANSACTION SNAPSHOT {quote_literal(self.shared.exported)}"

    def _check_snapshot(self, seen: object) -> None:
        if seen != (self.shared.snapshot,):
            raise SourceAwayError(
                self.server.source,
                "a connection does not share the snapshot",
                hint="connect to the server itself; a pooler must keep a session on one connection",
            )

    def close(self) -> None:
        """End the transactions; what is fine is kept for the next snapshot."""
        arrow, text, self._arrow, self._text = self._arrow, self._text, None, None
        if arrow is not None:
            self._put_away(ARROW, arrow, _end_arrow, is_whole=not self._unread)
        if text is not None:
            is_whole = text.info.transaction_status in _BETWEEN_STATEMENTS
            self._put_away(TEXT, text, _end_text, is_whole=is_whole)

    def _put_away(
        self,
        idle: IdleConnections,
        connection: C,
        end: Callable[[PostgresServer, C], None],
        *,
        is_whole: bool,
    ) -> None:
        try:
            if is_whole:
                end(self.server, connection)
        except ViewkeeperError:
            is_whole = False
        if is_whole:
            idle.give_back(self.shared.settings, connection)
        else:
            connection.close()


def _end_text(server: PostgresServer, connection: PgConnection) -> None:
    with server.translate_errors():
        connection.execute("ROLLBACK")


def _end_arrow(server: PostgresServer, connection: Any) -> None:
    from viewkeeper.sources.postgres.arrow_connection import translate_arrow_errors

    with translate_arrow_errors(server), connection.cursor() as cursor:
        cursor.execute("ROLLBACK")


class PostgresSnapshot:
    """Reads one PostgreSQL database under a shared snapshot; used by one task."""

    def __init__(self, session: SnapshotSession, tails: AnswerTails) -> None:
        self._session = session
        self._source = session.server.source
        self._tables = session.shared.tables
        self._tails = tails

    def answer_lookup(self, lookup: Lookup, after: int) -> Answer:
        source, name = self._source, lookup.relation.table
        table = self._tables[name]
        self._tails.check_barriers(name, after)
        shape = layout_of(source, table, lookup.columns)
        filters = filter_conditions(source, table, lookup.conditions)
        everything = [" AND ".join(filters)] if filters else []
        if lookup.keys is None or not lookup.on:
            answer = self._session.read_many(table, shape, everything, lookup.paging)
        else:
            columns = key_columns(source, table, lookup.on, lookup.null_safe)
            if is_scan_cheaper(table, columns, lookup.keys.num_rows):
                answer = self._session.read_many(table, shape, everything, lookup.paging)
            else:
                conditions = [
                    " AND ".join([each, *filters]) for each in key_conditions(columns, lookup.keys)
                ]
                few = lookup.keys.num_rows < self._many_keys(table, lookup.on)
                answer = self._read_by_keys(table, shape, conditions, few, lookup.paging)
        rows, pages = answer
        return Answer(
            rows,
            self._tails.answer_cut(after),
            after,
            self._tails.answer_tail(name, lookup.columns, after),
            pages,
        )

    def _read_by_keys(
        self,
        table: PostgresTable,
        shape: PostgresLayout,
        conditions: Sequence[str],
        few: bool,
        paging: Paging | None,
    ) -> PagedRows:
        """The rows that meet one of the conditions; a few keys are asked for as text, whose answer
        is held whole: if it turns out to be long, it is asked for again, in pages."""
        if not conditions:
            return shape.schema.empty_table(), None
        if few:
            limit = None if paging is None else paging.rows
            rows = self._session.read_few(table, shape, conditions, limit)
            if rows is not None:
                return rows, None
        return self._session.read_many(table, shape, conditions, paging)

    def scan_relation(
        self,
        relation: Relation,
        columns: Sequence[str],
        after: int,
        part: KeyRange | None = None,
    ) -> Scan:
        table = self._tables[relation.table]
        self._tails.check_barriers(relation.table, after)
        shape = layout_of(self._source, table, columns)
        only = "" if part is None else range_condition(part, self._column_sql(table, part.column))
        batches = self._session.read_batches(query_of(table, shape, only), shape)
        tail = self._tails.answer_tail(relation.table, tuple(columns), after)
        return Scan(self._tails.answer_cut(after), batches, iter(tail.to_batches()))

    def find_key_range(self, relation: Relation, columns: Sequence[str]) -> KeyRange | None:
        """By a key that is one column of whole numbers; the primary key if it is one."""
        table = self._tables[relation.table]
        for key in table.keys:
            if len(key) == 1 and key[0] in columns and _is_whole(table, key[0], self._source):
                query = bounds_query(table.quoted_name, self._column_sql(table, key[0]))
                with self._session.server.translate_errors():
                    least, greatest = read_row(self._session.text_connection(), query)
                return key_range_of(key[0], (least, greatest))
        return None

    def _column_sql(self, table: PostgresTable, column: str) -> str:
        return f"r.{table.column_named(self._source, column).sql}"

    def _many_keys(self, table: PostgresTable, on: Sequence[str]) -> int:
        is_unique = any(set(on).issuperset(key) for key in table.keys)
        return _MANY_KEYS * (_UNIQUE_TIMES if is_unique and not self._session.has_arrow else 1)

    def close(self) -> None:
        self._session.close()


def _is_whole(table: PostgresTable, column: str, source: str) -> bool:
    kind = table.column_named(source, column).kind
    return isinstance(kind, PostgresKind) and pa.types.is_integer(kind.arrow)


_SEEN = "SELECT pg_current_snapshot()::text"
_BETWEEN_STATEMENTS = (TransactionStatus.INTRANS, TransactionStatus.INERROR)


def query_of(
    table: PostgresTable, shape: PostgresLayout, condition: str, native: bool = True
) -> str:
    where = f" WHERE {condition}" if condition else ""
    return f"SELECT {shape.select_list(native)} FROM {table.quoted_name} AS r{where}"


@dataclass(frozen=True, slots=True)
class TableTail:
    """The changes of one table around a cut: all after the oldest position that may be asked for,
    and those that the cut lacks. `barriers` are positions where rows were removed unlisted."""

    changes: bytes | Path
    barriers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PostgresOpener:
    """Opens the shared snapshot; can be pickled, and holds no secret.

    `newest` is the newest position that the snapshot sees, `lacking` those that it does not see,
    and `after` the oldest that may be asked for.
    """

    shared: SharedSnapshot
    newest: int
    lacking: frozenset[int]
    after: int
    tails: Mapping[str, TableTail]

    def __call__(self) -> PostgresSnapshot:
        return PostgresSnapshot(SnapshotSession(self.shared), StreamTails(self))


class StreamTails:
    """The tails that the driver has computed from the change stream."""

    def __init__(self, opener: PostgresOpener) -> None:
        self._opener = opener
        self._read: dict[str, pa.Table] = {}

    def check_barriers(self, table: str, after: int) -> None:
        """A BarrierError if rows were removed after the position without being listed."""
        assert after >= self._opener.after, "the snapshot was opened for a later position"
        met = [at for at in self._opener.tails[table].barriers if at > after]
        if met:
            raise BarrierError(self._opener.shared.settings.name, table, max(met))

    def answer_cut(self, after: int) -> Cut:
        """The cut of rows and tail: the tail has what the snapshot lacks up to `after`."""
        newest = max(self._opener.newest, after)
        holes = (at for at in self._opener.lacking if after < at < newest)
        return Cut(newest, frozenset(holes))

    def answer_tail(self, table: str, columns: Sequence[str], after: int) -> pa.Table:
        changes = self._changes_of(table).select([*columns, COUNT, POSITION])
        holes = pa.array(sorted(self._opener.lacking), pa.int64())
        lacks = pc.is_in(changes[POSITION], value_set=holes)
        later = pc.greater(changes[POSITION], pa.scalar(after, pa.int64()))
        early = changes.filter(pc.and_not(later, lacks))
        lacking = changes.filter(pc.and_not(lacks, later))
        reverse = pc.negate(lacking[COUNT])
        lacking = lacking.set_column(len(columns), COUNT, reverse)
        return pa.concat_tables([early, lacking])

    def _changes_of(self, table: str) -> pa.Table:
        if table not in self._read:
            changes = self._opener.tails[table].changes
            if isinstance(changes, Path):
                with pa.memory_map(str(changes)) as file:
                    self._read[table] = pa.ipc.open_stream(file).read_all()
            else:
                self._read[table] = pa.ipc.open_stream(pa.py_buffer(changes)).read_all()
        return self._read[table]


_EPOCH = 1 << 32
_PAUSE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class VisibleTransactions:
    """A pg_snapshot: `xmin:xmax:xip,xip,...`.

    >>> seen = VisibleTransactions.parse_snapshot("shop", "741:743:741")
    >>> [seen.has_transaction(xid) for xid in (740, 741, 742, 743)]
    [True, False, True, False]
    """

    xmin: int
    xmax: int
    in_progress: frozenset[int]

    @staticmethod
    def parse_snapshot(source: str, text: str) -> VisibleTransactions:
        match = re.fullmatch(r"([0-9]{1,20}):([0-9]{1,20}):([0-9,]*)", text, re.ASCII)
        if match is None:
            raise unreadable_stream_error(source, f"a snapshot that is called {text[:100]!r}")
        xmin, xmax, rest = match.groups()
        ids = [each for each in rest.split(",") if each]
        if any(len(each) > 20 for each in ids):
            raise unreadable_stream_error(source, "a snapshot with odd transaction ids")
        return VisibleTransactions(int(xmin), int(xmax), frozenset(int(each) for each in ids))

    def has_transaction(self, xid: int) -> bool:
        """Whether the transaction that pgoutput calls `xid`, with 32 bits, is seen."""
        whole = self._widen_id(xid)
        return whole < self.xmax and whole not in self.in_progress

    def _widen_id(self, xid: int) -> int:
        """The 64-bit id nearest to ours that ends in these 32 bits.

        >>> snapshot = "4294967296:4294967300:"
        >>> VisibleTransactions.parse_snapshot("shop", snapshot).has_transaction(4294967295)
        True
        """
        whole = self.xmax - self.xmax % _EPOCH + xid
        if whole > self.xmax + _EPOCH // 2:
            return whole - _EPOCH
        if whole < self.xmax - _EPOCH // 2:
            return whole + _EPOCH
        return whole


def read_visible(connection: PgConnection, source: str) -> VisibleTransactions:
    """What a snapshot taken now sees."""
    return VisibleTransactions.parse_snapshot(source, read_row(connection, _SEEN)[0])


def wait_for_visibility(source: str, end: float) -> None:
    """Wait a little for a commit to become visible; a SourceAwayError after `end`."""
    if time.monotonic() > end:
        raise SourceAwayError(
            source,
            "a commit that was logged does not become visible",
            hint="look whether a synchronous standby is away",
        )
    time.sleep(_PAUSE_SECONDS)
