"""The spool: what was read of a source's change stream and is not acknowledged yet.

A stream (PostgreSQL's logical decoding, MariaDB's binlog) is read once, in order, by the process
that maintains. Its changes wait here, per table, until every view has committed them: in memory
while they are few, in Arrow files when not, so that a transaction of a million rows is no special
case. Nothing here is durable: what a crash forgets, the stream delivers again, because nothing is
acknowledged to the source before it is committed.

Positions only grow. A transaction is visible to readers of the spool when it has ended.

Rows of ended transactions can be taken; those of the current one may still be forgotten, or moved
to the stage.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from viewkeeper.storage import disk
from viewkeeper.updates.source_protocol import COUNT, POSITION

SEGMENT_BYTES = 16 << 20
_PREFIX = "spool-"


class SpooledTransaction(Protocol):
    """A transaction of the stream, ended.

    `id` is what the database calls it (PostgreSQL's xid; 0 where cuts are positions). `emptied` are
    the tables that it truncated, `keyed` those of which it deleted rows by key.
    """

    @property
    def position(self) -> int: ...
    @property
    def committed_at(self) -> float: ...
    @property
    def changes(self) -> int: ...
    @property
    def id(self) -> int: ...
    @property
    def emptied(self) -> tuple[str, ...]: ...
    @property
    def keyed(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class StreamedTransaction:
    """A transaction of a stream whose decoder has no value of its own for it."""

    position: int
    committed_at: float
    changes: int
    id: int = 0
    emptied: tuple[str, ...] = ()
    keyed: tuple[str, ...] = ()


@dataclass(slots=True)
class _Segment:
    """A run of changes of one table: in memory, or in a file."""

    first: int
    last: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0
    file: Path | None = None

    def read_batches(self) -> Iterator[pa.RecordBatch]:
        if self.file is None:
            yield from tuple(self.batches)
            return
        with pa.memory_map(str(self.file)) as source, pa.ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


class Spool:
    """The spool of one source; `home` is the folder that the source may keep files in."""

    def __init__(self, home: Path, memory_bytes: int = 64 << 20) -> None:
        self._home = home
        self._limit = memory_bytes
        self._transactions: list[SpooledTransaction] = []
        self._segments: dict[str, list[_Segment]] = {}
        self._bytes = 0
        self._files = 0
        self._folder: Path | None = None

    def write_batch(self, table: str, batch: pa.RecordBatch) -> None:
        """Add changes of the transaction that is being read; `_position_of` is its position."""
        if not batch.num_rows:
            return
        segments = self._segments.setdefault(table, [])
        position = int(batch[POSITION][-1].as_py())
        same = segments and segments[-1].file is None and segments[-1].bytes < SEGMENT_BYTES
        # One schema per segment: a table may have got another shape.
        if not same or segments[-1].batches[0].schema != batch.schema:
            segments.append(_Segment(int(batch[POSITION][0].as_py()), position))
        segment = segments[-1]
        segment.batches.append(batch)
        segment.last = position
        segment.bytes += batch.nbytes
        self._bytes += batch.nbytes
        if self._bytes > self._limit:
            self._spill_segments()

    def end_transaction(self, transaction: SpooledTransaction) -> None:
        """All changes of a transaction have been written."""
        newest = self._transactions[-1].position if self._transactions else -1
        assert transaction.position > newest, "a stream is in commit order"
        self._transactions.append(transaction)

    def transactions_after(
        self, after: int, limit: int | None = None
    ) -> Sequence[SpooledTransaction]:
        """The ended transactions after a position, in order."""
        start = bisect_right(self._transactions, after, key=_position_of)
        return self._transactions[start : None if limit is None else start + limit]

    def transactions_until(self, position: int) -> Sequence[SpooledTransaction]:
        """The kept transactions up to a position."""
        return self._transactions[: bisect_right(self._transactions, position, key=_position_of)]

    def changes_of(self, table: str, after: int, until: int) -> Iterator[pa.RecordBatch]:
        """All kept columns of the changes of a table with `after` < position <= `until`."""
        for segment in tuple(self._segments.get(table, ())):
            if segment.last <= after or segment.first > until:
                continue
            for batch in segment.read_batches():
                positions = batch[POSITION].to_numpy()
                start, stop = (int(n) for n in positions.searchsorted([after, until], "right"))
                if stop > start:
                    yield batch.slice(start, stop - start)

    def forget_until(self, position: int) -> None:
        """Drop what lies at or before a position."""
        del self._transactions[: bisect_right(self._transactions, position, key=_position_of)]
        for segments in self._segments.values():
            while segments and segments[0].last <= position:
                gone = segments.pop(0)
                if gone.file is None:
                    self._bytes -= gone.bytes
                else:
                    gone.file.unlink(missing_ok=True)

    def clear_all(self) -> None:
        """Drop everything, the folder included."""
        self._transactions, self._segments, self._bytes = [], {}, 0
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _spill_segments(self) -> None:
        for segments in self._segments.values():
            for segment in segments:
                if segment.file is None:
                    self._write_file(segment)
        self._bytes = 0

    def _write_file(self, segment: _Segment) -> None:
        self._files += 1
        file = self._own_folder() / f"{self._files:08d}.arrow"
        schema = segment.batches[0].schema
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in segment.batches:
                writer.write_batch(batch)
        disk.protect_file(file)
        segment.file, segment.batches, segment.bytes = file, [], 0

    def _own_folder(self) -> Path:
        if self._folder is None:
            remove_stale(self._home)
            self._folder = self._home / f"{_PREFIX}{os.getpid()}-{id(self)}"
            disk.make_folder(self._folder)
        return self._folder


def remove_stale(home: Path) -> None:
    """Remove the folders of processes that were killed; those of pieces an earlier version made."""
    for folder in (*home.glob(f"{_PREFIX}*"), *home.glob("pieces-*")):
        number = folder.name.partition("-")[2].partition("-")[0]
        if number.isdigit() and not disk.is_alive(int(number)):
            shutil.rmtree(folder, ignore_errors=True)


def _position_of(transaction: SpooledTransaction) -> int:
    return transaction.position


Row = list[bytes | None]


@dataclass(slots=True)
class KeptRows:
    """Those of ended transactions, and from `mark` on those of the current one."""

    names: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    mark: int = 0
    bytes: int = 0

    def add_row(self, row: Row, count: int, position: int, size: int) -> None:
        """Add a row of the current transaction, which came in so many bytes."""
        self.rows.append(row)
        self.counts.append(count)
        self.positions.append(position)
        self.bytes += size

    def end_transaction(self) -> int:
        """The current transaction has ended; how many rows of it are here."""
        fresh = len(self.counts) - self.mark
        self.mark += fresh
        self.bytes = 0
        return fresh

    def take_ended(self) -> pa.RecordBatch:
        """Take out the rows of ended transactions."""
        batch = self._cut_batch(0, self.mark)
        self.mark = 0
        return batch

    def take_current(self) -> pa.RecordBatch | None:
        """Take out the rows of the current transaction; None if there are none."""
        self.bytes = 0
        stop = len(self.counts)
        return self._cut_batch(self.mark, stop) if stop > self.mark else None

    def drop_current(self) -> None:
        """Forget the rows of the current transaction."""
        self._drop_rows(self.mark, len(self.counts))

    def _cut_batch(self, start: int, stop: int) -> pa.RecordBatch:
        columns = zip(*self.rows[start:stop], strict=True)
        arrays: list[Any] = [pa.array(column, pa.binary()) for column in columns]
        arrays += [pa.array(each[start:stop], pa.int64()) for each in (self.counts, self.positions)]
        self._drop_rows(start, stop)
        return pa.RecordBatch.from_arrays(arrays, [*self.names, COUNT, POSITION])

    def _drop_rows(self, start: int, stop: int) -> None:
        del self.rows[start:stop], self.counts[start:stop], self.positions[start:stop]
