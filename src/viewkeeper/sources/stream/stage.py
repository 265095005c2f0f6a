"""The stage: changes of the transaction that is being read, until it has ended.

Nothing of a transaction may reach the spool before its end: the connection may break, and a table
may be emptied after its rows were changed. A large transaction goes to a file that has no name, so
that it takes no memory, and nothing stays behind if we die.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from viewkeeper.storage import disk

MEMORY_BYTES = 32 << 20


@dataclass(slots=True)
class _StagedChanges:
    """The changes of one table: the first of them in a file, if they are many."""

    rows: int = 0
    batches: list[pa.RecordBatch] = field(default_factory=list)
    file: Any = None
    writer: pa.RecordBatchStreamWriter | None = None

    def spill_to(self, folder: Path) -> None:
        if self.file is None or self.writer is None:
            disk.make_folder(folder)
            self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by close()
            self.writer = pa.ipc.new_stream(self.file, self.batches[0].schema)
        for batch in self.batches:
            self.writer.write_batch(batch)
        self.batches = []

    def read_batches(self) -> Iterator[pa.RecordBatch]:
        if self.file is not None and self.writer is not None:
            self.writer.close()
            self.file.seek(0)
            with pa.ipc.open_stream(self.file) as reader:
                yield from reader
        yield from self.batches

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


class TransactionStage:
    """Holds what was read of one transaction; a large one is written into `folder`."""

    def __init__(self, folder: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        self._folder = folder
        self._limit = memory_bytes
        self._tables: dict[tuple[str, ...], _StagedChanges] = {}
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._tables)

    def add_batch(self, table: str, batch: pa.RecordBatch) -> None:
        # A table may get another shape inside a transaction.
        changes = self._tables.setdefault((table, *batch.schema.names), _StagedChanges())
        changes.batches.append(batch)
        changes.rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._bytes > self._limit:
            for each in self._tables.values():
                if each.batches:
                    each.spill_to(self._folder)
            self._bytes = 0

    def empty_table(self, table: str) -> int:
        """Forget the changes of a table; how many they were."""
        rows = 0
        for key in [key for key in self._tables if key[0] == table]:
            changes = self._tables.pop(key)
            changes.close()
            rows += changes.rows
        return rows

    def hand_over(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Every change, in order per table; nothing is left."""
        try:
            for (table, *_), changes in self._tables.items():
                for batch in changes.read_batches():
                    yield table, batch
        finally:
            self.drop_all()

    def drop_all(self) -> None:
        for changes in self._tables.values():
            changes.close()
        self._tables, self._bytes = {}, 0
