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

    def cut_batch(self, start: int, stop: int) -> pa.RecordBatch:
        """Take rows out, as a batch."""
        columns = zip(*self.rows[start:stop], strict=True)
        arrays: list[Any] = [pa.array(column, pa.binary()) for column in columns]
        arrays += [pa.array(each[start:stop], pa.int64()) for each in (self.counts, self.positions)]
        self.drop_rows(start, stop)
        return pa.RecordBatch.from_arrays(arrays, [*self.names, COUNT, POSITION])

    def drop_rows(self, start: int, stop: int) -> None:
        del self.rows[start:stop], self.counts[start:stop], self.positions[start:stop]
