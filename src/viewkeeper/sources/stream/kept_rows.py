"""Rows of one table that were read from the stream and wait to be taken into the spool.

Those of ended transactions can be taken; those of the current one may still be forgotten, or moved
to the stage.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from viewkeeper.updates.source_protocol import COUNT, POSITION

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
