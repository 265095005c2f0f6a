"""The stage: changes of the transaction that is being read, until it has ended.

Nothing of a transaction may reach the spool before its end: the connection may break, a table may
be emptied after its rows were changed, and where it is only prepared, its end comes later. A large
transaction goes to a file that has no name, so that it takes no memory, and nothing stays behind if
we die.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from viewkeeper.storage import disk
from viewkeeper.updates.source_protocol import TableBatches

MEMORY_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class _Piece:
    """A batch of one table: itself, or where it begins in the file and how long it is there."""

    table: str
    rows: int
    schema: pa.Schema
    place: pa.RecordBatch | tuple[int, int]


class TransactionStage:
    """Holds what was read of one transaction; a large one is written into `folder`."""

    def __init__(self, folder: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        self._folder = folder
        self._limit = memory_bytes
        self._pieces: list[_Piece] = []
        self._bytes = 0
        self._file: Any = None

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def row_count(self) -> int:
        return sum(piece.rows for piece in self._pieces)

    def add_batch(self, table: str, batch: pa.RecordBatch) -> None:
        place: pa.RecordBatch | tuple[int, int] = batch
        if self._bytes + batch.nbytes > self._limit:
            place = self._write_batch(batch)
        else:
            self._bytes += batch.nbytes
        self._pieces.append(_Piece(table, batch.num_rows, batch.schema, place))

    def _write_batch(self, batch: pa.RecordBatch) -> tuple[int, int]:
        if self._file is None:
            disk.make_folder(self._folder)
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - see drop_all
            # What is prepared and never ended is dropped with its stream.
            weakref.finalize(self, self._file.close)
        start = self._file.seek(0, os.SEEK_END)
        return start, self._file.write(batch.serialize())

    def __iter__(self) -> TableBatches:
        for piece in self._pieces:
            if isinstance(piece.place, tuple):
                start, size = piece.place
                self._file.seek(start)
                data = pa.py_buffer(self._file.read(size))
                yield piece.table, pa.ipc.read_record_batch(data, piece.schema)
            else:
                yield piece.table, piece.place

    def keep_first(self, size: int) -> None:
        """Forget all but the first batches."""
        del self._pieces[size:]
        if not size:
            self.drop_all()

    def empty_table(self, table: str) -> int:
        """Forget the changes of a table; how many they were."""
        before = self.row_count
        self._pieces = [piece for piece in self._pieces if piece.table != table]
        return before - self.row_count

    def hand_over(self) -> TableBatches:
        """Every change, in order; nothing is left."""
        try:
            yield from self
        finally:
            self.drop_all()

    def drop_all(self) -> None:
        if self._file is not None:
            self._file.close()
        self._pieces, self._bytes, self._file = [], 0, None
