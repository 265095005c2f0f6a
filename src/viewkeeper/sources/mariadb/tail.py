"""The tail of a snapshot: the changes after a position that its cut includes, from the binlog.

It is read once per snapshot, when it is first needed, for all tables that the snapshot may be asked
about, and only if anything was logged since. Reading goes on a little beyond the cut, to where the
tables were touched: a change of a table's shape there would show in the snapshot.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Protocol
from zlib import crc32

import pyarrow as pa

from viewkeeper.errors import BarrierError, SourceAwayError
from viewkeeper.sources.mariadb.open import Server
from viewkeeper.sources.mariadb.stream import Stream, Tables
from viewkeeper.sources.mariadb.types import Kind
from viewkeeper.sources.spool import Spool
from viewkeeper.updates.protocol import COUNT, POSITION

_NUMBERS = count()
_ALL = 1 << 62


def server_id(reader: str) -> int:
    """A number for a reader of the binlog, that no other has: replicas are told apart by it."""
    text = f"{reader} {os.uname().nodename} {os.getpid()} {next(_NUMBERS)}"
    return crc32(text.encode()) | 1 << 31


class Shape(Protocol):
    """What is known of a table: its full name, and its columns in their own spelling."""

    @property
    def full_name(self) -> str: ...

    def kept(self, name: str) -> tuple[str, Kind]:
        """A column's own name and its kind."""
        ...


def select(
    batches: Iterator[pa.RecordBatch], table: Shape, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Change batches with the asked columns, under the asked names."""
    kept = [table.kept(column)[0] for column in columns]
    for batch in batches:
        arrays = [batch[name] for name in (*kept, COUNT, POSITION)]
        yield pa.RecordBatch.from_arrays(arrays, names=[*columns, COUNT, POSITION])


def change_schema(table: Shape, columns: Sequence[str]) -> pa.Schema:
    fields = [(column, table.kept(column)[1].arrow) for column in columns]
    return pa.schema([*fields, (COUNT, pa.int64()), (POSITION, pa.int64())])


def followed(
    tables: Mapping[str, Shape], columns: Mapping[str, Sequence[str]], *, folds: bool, strict: bool
) -> Tables:
    """What a stream keeps for columns of tables that were asked for by these names."""
    kept: dict[str, dict[str, Kind]] = {}
    for name, asked in columns.items():
        own = kept.setdefault(tables[name].full_name, {})
        own.update(tables[name].kept(column) for column in asked)
    found = {full: tuple(kinds.items()) for full, kinds in kept.items()}
    return Tables(found, folds=folds, strict=strict)


class Tail:
    """The changes of some tables from a position on, read from the log when asked for."""

    def __init__(self, server: Server, reader: str, tables: Tables, start: int, cut: int) -> None:
        # Rows of a database are for nobody else on this machine.
        home = Path(tempfile.gettempdir(), f"viewkeeper-{os.getuid()}")
        home.mkdir(mode=0o700, exist_ok=True)
        self.start = start
        self._server = server
        self._cut = cut
        self._spool = Spool(home)
        self._stream = Stream(
            server, tables, start, self._spool, server_id(reader), home, blocking=False
        )

    def read_to(self, end: int) -> None:
        """Read up to a position of the log, if that was not done yet."""
        stream = self._stream
        stream.advance(end, self._server.statement_seconds, _ALL)
        stream.disconnect()
        if stream.halted is not None:
            raise stream.halted
        if stream.position < end:
            raise SourceAwayError(
                self._server.source,
                f"reading the binlog from position {self.start} took too long",
                hint="raise statement_seconds of this source",
            )

    def batches(
        self, name: str, table: Shape, columns: Sequence[str], after: int
    ) -> Iterator[pa.RecordBatch]:
        """The changes of a table that the cut includes; a BarrierError if it was emptied."""
        for transaction in self._spool.transactions(after):
            if transaction.position <= self._cut and table.full_name in transaction.emptied:
                raise BarrierError(self._server.source, name, transaction.position)
        found = self._spool.changes(table.full_name, after, self._cut)
        return select(found, table, columns)

    def close(self) -> None:
        self._stream.disconnect()
        self._spool.clear()
