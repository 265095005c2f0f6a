"""Snapshots that many connections share, and the answers that are read in them.

A coordinator opens a read-only transaction, takes ACCESS SHARE locks on the tables before its
snapshot (else a TRUNCATE or a rewrite that commits in between would show empty tables), and exports
the snapshot. Every task imports it, so that all answers have one cut. The tail was computed by the
driver from the change stream, which it had read past everything that the snapshot can contain.

A cut has holes where a commit was decoded and is not visible yet, so the tail of an answer has both
signs: what the cut includes after the asked position, and, reversed, what it lacks up to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped] # it comes without types

from viewkeeper.errors import BarrierError, SourceAwayError
from viewkeeper.sources.postgres_lookup import conditions, key_columns, scans
from viewkeeper.sources.postgres_open import Server
from viewkeeper.sources.postgres_rows import Layout, layout, without_columns
from viewkeeper.sources.postgres_table import Table
from viewkeeper.sources.postgres_types import literal
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.protocol import COUNT, POSITION, Answer, Lookup, Scan
from viewkeeper.view.definition import Relation

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# From so many keys on an answer is read as Arrow, on a connection that takes longer to open.
_MANY_KEYS = 5_000


@dataclass(frozen=True, slots=True)
class Told:
    """What the stream tells of one table around a cut: all its changes after the oldest position
    that may be asked for, those that the cut lacks, and where rows went that were not listed."""

    changes: bytes | Path
    barriers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PostgresOpener:
    """Opens the shared snapshot; can be pickled, and holds no secret."""

    settings: SourceSettings
    exported: str
    snapshot: str
    newest: int
    lacking: frozenset[int]
    after: int
    tables: Mapping[str, Table]
    told: Mapping[str, Told]

    def __call__(self) -> PostgresSnapshot:
        return PostgresSnapshot(self)


class PostgresSnapshot:
    """Reads one PostgreSQL database under the shared snapshot; used by one task."""

    def __init__(self, opener: PostgresOpener) -> None:
        self._opener = opener
        self._server = Server(opener.settings)
        self._text: psycopg.Connection[Any] | None = None
        self._arrow: dbapi.Connection | None = None
        self._tails: dict[str, pa.Table] = {}

    def ask(self, lookup: Lookup, after: int) -> Answer:
        source, name = self._server.source, lookup.relation.table
        table = self._opener.tables[name]
        self._check(name, after)
        shape = layout(source, table, lookup.columns)
        if lookup.keys is None or not lookup.on:
            rows = self._many(table, shape, [])
        else:
            columns = key_columns(source, table, lookup.on, lookup.null_safe)
            if scans(table, columns, lookup.keys.num_rows):
                rows = self._many(table, shape, [])
            else:
                found = list(conditions(columns, lookup.keys))
                few = lookup.keys.num_rows < _MANY_KEYS
                rows = self._few(table, shape, found) if few else self._many(table, shape, found)
                if not found:
                    rows = shape.schema.empty_table()
        return Answer(rows, self._cut(after), after, self._tail(name, lookup.columns, after))

    def scan(self, relation: Relation, columns: Sequence[str], after: int) -> Scan:
        table = self._opener.tables[relation.table]
        self._check(relation.table, after)
        shape = layout(self._server.source, table, columns)
        batches = self._batches(query_of(table, shape, ""), shape)
        tail = self._tail(relation.table, tuple(columns), after)
        return Scan(self._cut(after), batches, iter(tail.to_batches()))

    def _cut(self, after: int) -> Cut:
        """What rows and tail stand for: the tail brings back what the snapshot lacks up to
        `after`."""
        newest = max(self._opener.newest, after)
        holes = (at for at in self._opener.lacking if after < at < newest)
        return Cut(newest, frozenset(holes))

    def _check(self, table: str, after: int) -> None:
        """A BarrierError if rows of the table went after the position without being listed."""
        assert after >= self._opener.after, "the snapshot was opened for a later position"
        met = [at for at in self._opener.told[table].barriers if at > after]
        if met:
            raise BarrierError(self._server.source, table, max(met))

    def _few(self, table: Table, shape: Layout, found: Sequence[str]) -> pa.Table:
        with self._server.errors():
            connection = self._text_connection()
            results = []
            for condition in found:
                cursor = connection.execute(
                    query_of(table, shape, condition, native=False).encode()
                )
                assert cursor.pgresult is not None
                results.append(shape.from_result(cursor.pgresult))
        if not shape.names:
            return without_columns(sum(result.num_rows for result in results))
        return pa.concat_tables(results) if results else shape.schema.empty_table()

    def _many(self, table: Table, shape: Layout, found: Sequence[str]) -> pa.Table:
        queries = [query_of(table, shape, condition) for condition in found or [""]]
        batches = [batch for query in queries for batch in self._batches(query, shape)]
        return pa.Table.from_batches(batches, None if batches else shape.schema)

    def _batches(self, query: str, shape: Layout) -> Iterator[pa.RecordBatch]:
        with self._server.errors(), self._arrow_connection().cursor() as cursor:
            cursor.execute(query)
            yield from shape.from_native(cursor.fetch_record_batch())

    def _tail(self, table: str, columns: Sequence[str], after: int) -> pa.Table:
        told = self._told(table).select([*columns, COUNT, POSITION])
        holes = pa.array(sorted(self._opener.lacking), pa.int64())
        lacks = pc.is_in(told[POSITION], value_set=holes)
        later = pc.greater(told[POSITION], pa.scalar(after, pa.int64()))
        early = told.filter(pc.and_not(later, lacks))
        lacking = told.filter(pc.and_not(lacks, later))
        reverse = pc.negate(lacking[COUNT])
        lacking = lacking.set_column(len(columns), COUNT, reverse)
        return pa.concat_tables([early, lacking])

    def _told(self, table: str) -> pa.Table:
        if table not in self._tails:
            changes = self._opener.told[table].changes
            if isinstance(changes, Path):
                with pa.memory_map(str(changes)) as file:
                    self._tails[table] = pa.ipc.open_stream(file).read_all()
            else:
                self._tails[table] = pa.ipc.open_stream(pa.py_buffer(changes)).read_all()
        return self._tails[table]

    def _text_connection(self) -> psycopg.Connection[Any]:
        if self._text is None:
            self._text = self._server.connect()
            cursor = self._text.execute(f"{self._import()}; {_SEEN}".encode())
            while cursor.nextset():
                pass
            row = cursor.fetchone()
            self._check_snapshot(None if row is None else row[0])
        return self._text

    def _arrow_connection(self) -> dbapi.Connection:
        if self._arrow is None:
            self._arrow = self._server.connect_arrow()
            with self._arrow.cursor() as cursor:
                for statement in self._import().split("; "):
                    cursor.execute(statement)
                cursor.execute(_SEEN)
                row = cursor.fetchone()
            self._check_snapshot(None if row is None else row[0])
        return self._arrow

    def _import(self) -> str:
        return f"{BEGIN}; SET TRANSACTION SNAPSHOT {literal(self._opener.exported)}"

    def _check_snapshot(self, seen: object) -> None:
        if seen != self._opener.snapshot:
            raise SourceAwayError(
                self._server.source,
                "a connection does not share the snapshot",
                hint="connect to the server itself; a pooler must keep a session on one connection",
            )

    def close(self) -> None:
        if self._arrow is not None:
            self._arrow.close()
        if self._text is not None:
            self._text.close()
        self._arrow = self._text = None


_SEEN = "SELECT pg_current_snapshot()::text"


def query_of(table: Table, shape: Layout, condition: str, native: bool = True) -> str:
    where = f" WHERE {condition}" if condition else ""
    return f"SELECT {shape.select(native)} FROM {table.quoted} AS r{where}"
