"""Rows that were read from the binlog, on their way to Arrow: raw values by column.

Many small transactions share one batch, because making a batch costs as much as reading a hundred
rows. The rows of a transaction that has not ended are the last ones here and have no position yet:
a transaction's position is where it ends. Where it is so large that its rows should not wait in
memory, they go to files as *pieces*, and get their position when it is known.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from viewkeeper.sources.mariadb.log_table import Cutter, LogTable, make_cutter
from viewkeeper.sources.mariadb.log_values import Raw, Reader, reader_of
from viewkeeper.sources.mariadb.types import Array, Kind, MisfitError
from viewkeeper.sources.spool import PIECES, remove_stale
from viewkeeper.updates.protocol import COUNT, POSITION

Columns = Sequence[tuple[str, Kind]]
PIECE_ROWS = 50_000
_PIECES_BYTES = 32 << 20


class ChangedError(ValueError):
    """A followed column has a type in the log that it does not have any more."""


class ValueMisfitError(ValueError):
    """The value of a row, by its index, that no column of its kind can keep."""

    def __init__(self, index: int, column: str, value: str) -> None:
        super().__init__(f'column "{column}": {value} is not a value that can be kept')
        self.index = index


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of a followed table are cut and read; None is a column that was added later."""

    table: str
    columns: Columns
    readers: tuple[Reader | None, ...]
    cut: Cutter
    width: int


def layout_of(table: str, columns: Columns, log: LogTable, *, strict: bool) -> Layout:
    """The layout of a table as the log has it; a ChangedError where it does not fit the columns.

    A column that the log does not know yet was added later. Its rows have no value then, which
    only whoever does not ask for that time may ignore: not a `strict` reader.
    """
    places = {column.name.lower(): i for i, column in enumerate(log.columns)}
    readers: list[Reader | None] = []
    wanted = []
    for name, kind in columns:
        place = places.get(name.lower())
        if place is None and strict:
            raise ChangedError(f'column "{name}" was not there yet')
        reader = None if place is None else reader_of(kind, log.columns[place])
        if place is not None and reader is None:
            raise ChangedError(f'column "{name}" had another type')
        readers.append(reader)
        if place is not None:
            wanted.append(place)
    if not all(column.width for column in log.columns):
        raise ChangedError("it has a column of a type that cannot be read")
    cut = make_cutter(log.columns, wanted)
    return Layout(table, columns, tuple(readers), cut, len(log.columns))


class TableRows:
    """The rows of one table; those without a position are of the transaction being read."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.counts: list[int] = []
        self.positions: list[int] = []
        self._raw: list[list[bytes | None]] = [[] for reader in layout.readers if reader]
        self._appends = [column.append for column in self._raw]

    @property
    def open(self) -> int:
        """How many rows have no position yet."""
        return len(self.counts) - len(self.positions)

    def add(self, data: bytes, at: int, signs: Sequence[int]) -> None:
        """Cut the row images from an offset on; `signs` says what they stand for, in turn."""
        rows = self.layout.cut(data, at, self._appends)
        self.counts.extend(tuple(signs) * (rows // len(signs)))

    def commit(self, position: int) -> None:
        self.positions.extend([position] * self.open)

    def keep(self, size: int) -> None:
        """Forget all but the first rows."""
        for column in self._raw:
            del column[size:]
        del self.counts[size:], self.positions[size:]

    def before(self, position: int) -> int:
        """How many rows have a position below this one."""
        return bisect_left(self.positions, position)

    def committed(self) -> pa.RecordBatch:
        """The rows that have a position, as a batch."""
        batch = self._batch(slice(0, len(self.positions)))
        return batch.append_column(POSITION, pa.array(self.positions, pa.int64()))

    def drop_committed(self) -> None:
        self._drop(len(self.positions))
        self.positions = []

    def take_open(self) -> pa.RecordBatch:
        """The rows that have none; the others must have left before."""
        assert not self.positions, "rows leave in order"
        batch = self._batch(slice(0, len(self.counts)))
        self._drop(len(self.counts))
        return batch

    def _drop(self, size: int) -> None:
        for column in self._raw:
            del column[:size]
        del self.counts[:size]

    def _batch(self, part: slice) -> pa.RecordBatch:
        raw = iter(self._raw)
        counts = pa.array(self.counts[part], pa.int64())
        arrays: list[Array] = [
            pa.array([None] * len(counts), kind.arrow)
            if reader is None
            else _read(reader, name, next(raw)[part])
            for (name, kind), reader in zip(self.layout.columns, self.layout.readers, strict=True)
        ]
        names = [name for name, _ in self.layout.columns]
        return pa.RecordBatch.from_arrays([*arrays, counts], names=[*names, COUNT])


def _read(reader: Reader, name: str, raw: Raw) -> Array:
    try:
        return reader(raw)
    except MisfitError as error:
        raise ValueMisfitError(error.index, name, error.value) from None
    except (pa.ArrowException, ValueError) as error:
        for index, value in enumerate(raw):
            try:
                reader([value])
            except (pa.ArrowException, ValueError):
                raise ValueMisfitError(index, name, repr(value)[:60]) from None
        raise ValueMisfitError(0, name, str(error)[:60]) from None


@dataclass(slots=True)
class Pieces:
    """Batches of a transaction that has not ended, in files where they are many."""

    home: Path
    _kept: list[tuple[str, pa.RecordBatch | Path]] = field(default_factory=list)
    _rows: list[int] = field(default_factory=list)
    _bytes: int = 0
    _folder: Path | None = None

    @property
    def rows(self) -> int:
        return sum(self._rows)

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        self._rows.append(batch.num_rows)
        if self._bytes + batch.nbytes > _PIECES_BYTES:
            self._kept.append((table, self._write(batch)))
        else:
            self._bytes += batch.nbytes
            self._kept.append((table, batch))

    def __iter__(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        for table, piece in self._kept:
            if isinstance(piece, Path):
                with pa.memory_map(str(piece)) as source, pa.ipc.open_file(source) as reader:
                    yield table, reader.get_batch(0)
            else:
                yield table, piece

    def keep(self, size: int) -> None:
        """Forget all but the first batches."""
        del self._kept[size:], self._rows[size:]
        if not size:
            self._bytes = 0
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def _write(self, batch: pa.RecordBatch) -> Path:
        if self._folder is None:
            self.home.mkdir(parents=True, exist_ok=True)
            remove_stale(self.home)
            prefix = f"{PIECES}{os.getpid()}-"
            self._folder = Path(tempfile.mkdtemp(prefix=prefix, dir=self.home))
        file = self._folder / f"{len(self._kept):08d}.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return file
