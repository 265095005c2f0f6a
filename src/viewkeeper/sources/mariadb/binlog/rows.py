"""Rows that were read from the binlog, on their way to Arrow: raw values by column.

Many small transactions share one batch, because making a batch costs as much as reading a hundred
rows. The rows of a transaction that has not ended are the last ones here and have no position yet:
a transaction's position is where it ends. Where it is so large that its rows should not wait in
memory, they go to files as *pieces*, and get their position when it is known.

A reader of the spool gets the columns that it asks for, by their names and in the types that they
have now (`select_columns`).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from viewkeeper.sources.mariadb.binlog.raw_values import Raw, Reader, reader_of
from viewkeeper.sources.mariadb.binlog.row_cutter import Cutter, make_cutter
from viewkeeper.sources.mariadb.binlog.table_map import BinlogTable
from viewkeeper.sources.mariadb.byte_codes import MalformedBytesError
from viewkeeper.sources.mariadb.logged_shapes import LoggedShape
from viewkeeper.sources.mariadb.types import Array, MariadbKind
from viewkeeper.sources.stream.spool import PIECES, remove_stale
from viewkeeper.sources.tables.column_type import MisfitError
from viewkeeper.storage import disk
from viewkeeper.updates.source_protocol import COUNT, POSITION

Columns = Sequence[tuple[str, MariadbKind]]
PIECE_ROWS = 50_000
_PIECES_BYTES = 32 << 20
_DIGITS = 76


class ShapeChangedError(ValueError):
    """The log describes a table otherwise than it should be by all statements before."""


class ObscureError(ValueError):
    """The log does not say enough of a table to read its rows."""

    def __init__(self, shape: LoggedShape, what: str) -> None:
        super().__init__(f'table "{shape.full_name}" {what}')
        self.table = shape.id


class ValueMisfitError(ValueError):
    """The value of a row, by its index, that no column of its kind can keep."""

    def __init__(self, index: int, column: str, value: str) -> None:
        super().__init__(f'column "{column}": {value} is not a value that can be kept')
        self.index = index


@dataclass(frozen=True, slots=True)
class BinlogLayout:
    """How the rows of a followed table are cut and read; table and columns by their identity.
    `width` is how many columns it has in all."""

    table: str
    columns: Columns
    readers: tuple[Reader, ...]
    cut: Cutter
    full_name: str
    names: tuple[str, ...]
    width: int


def layout_of(shape: LoggedShape, wanted: Sequence[str], log: BinlogTable) -> BinlogLayout:
    """The layout of a table as the log has it; a ChangedError where it is not of that shape.

    What is wanted and not in the shape was added later, or is gone.
    """
    places = {column.name.lower(): i for i, column in enumerate(log.columns)}
    columns, readers, names, cuts = [], [], [], []
    for column in shape.columns:
        kind = column.kind
        if column.id not in wanted or kind is None:
            continue
        place = places.get(column.name.lower())
        reader = None if place is None else reader_of(kind, log.columns[place])
        if place is None or reader is None:
            raise ShapeChangedError(f'column "{column.name}" is not what it should be')
        columns.append((column.id, kind))
        readers.append(reader)
        names.append(column.name)
        cuts.append(place)
    if not all(column.width for column in log.columns):
        raise ObscureError(shape, "has a column of a type that cannot be read")
    cut = make_cutter(log.columns, cuts)
    return BinlogLayout(
        shape.id,
        tuple(columns),
        tuple(readers),
        cut,
        shape.full_name,
        tuple(names),
        len(log.columns),
    )


class TableRows:
    """The rows of one table; those without a position are of the transaction being read."""

    def __init__(self, layout: BinlogLayout) -> None:
        self.layout = layout
        self.counts: list[int] = []
        self.positions: list[int] = []
        self._raw: list[list[bytes | None]] = [[] for _ in layout.readers]
        self._extends = [column.extend for column in self._raw]

    @property
    def open_count(self) -> int:
        """How many rows have no position yet."""
        return len(self.counts) - len(self.positions)

    def add_images(self, data: bytes, at: int, signs: Sequence[int]) -> None:
        """Cut the row images from an offset on; `signs` says what they stand for, in turn."""
        pairs, left = divmod(self.layout.cut(data, at, self._extends), len(signs))
        if left:
            raise MalformedBytesError("a row was updated, and what it became is not there")
        self.counts.extend(tuple(signs) * pairs)

    def commit_open(self, position: int) -> None:
        self.positions.extend([position] * self.open_count)

    def keep_first(self, size: int) -> None:
        """Forget all but the first rows."""
        for column in self._raw:
            del column[size:]
        del self.counts[size:], self.positions[size:]

    def count_before(self, position: int) -> int:
        """How many rows have a position below this one."""
        return bisect_left(self.positions, position)

    def committed_batch(self) -> pa.RecordBatch:
        """The rows that have a position, as a batch."""
        batch = self._make_batch(slice(0, len(self.positions)))
        return batch.append_column(POSITION, pa.array(self.positions, pa.int64()))

    def drop_committed(self) -> None:
        self._drop_first(len(self.positions))
        self.positions = []

    def take_open(self) -> pa.RecordBatch:
        """The rows that have none; the others must have left before."""
        assert not self.positions, "rows leave in order"
        batch = self._make_batch(slice(0, len(self.counts)))
        self._drop_first(len(self.counts))
        return batch

    def _drop_first(self, size: int) -> None:
        for column in self._raw:
            del column[:size]
        del self.counts[:size]

    def _make_batch(self, part: slice) -> pa.RecordBatch:
        counts = pa.array(self.counts[part], pa.int64())
        layout = self.layout
        arrays: list[Array] = [
            _read_values(reader, name, raw[part])
            for reader, name, raw in zip(layout.readers, layout.names, self._raw, strict=True)
        ]
        ids = [id for id, _ in layout.columns]
        return pa.RecordBatch.from_arrays([*arrays, counts], names=[*ids, COUNT])


def _read_values(reader: Reader, name: str, raw: Raw) -> Array:
    try:
        return reader(raw)
    except MisfitError as error:
        raise ValueMisfitError(error.index, name, str(error.value)) from None
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
    def row_count(self) -> int:
        return sum(self._rows)

    def __len__(self) -> int:
        return len(self._kept)

    def add_piece(self, table: str, batch: pa.RecordBatch) -> None:
        self._rows.append(batch.num_rows)
        if self._bytes + batch.nbytes > _PIECES_BYTES:
            self._kept.append((table, self._write_piece(batch)))
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

    def keep_first(self, size: int) -> None:
        """Forget all but the first batches."""
        del self._kept[size:], self._rows[size:]
        if not size:
            self._bytes = 0
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def _write_piece(self, batch: pa.RecordBatch) -> Path:
        if self._folder is None:
            disk.make_folder(self.home)
            remove_stale(self.home)
            prefix = f"{PIECES}{os.getpid()}-"
            self._folder = Path(tempfile.mkdtemp(prefix=prefix, dir=self.home))
        file = self._folder / f"{len(self._kept):08d}.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        disk.protect_file(file)
        return file


def select_columns(
    batches: Iterator[pa.RecordBatch], columns: Mapping[str, tuple[str, pa.DataType]]
) -> Iterator[pa.RecordBatch]:
    """Change batches of the asked columns: each by its name, as what identity, in what type.

    A column that was not there yet has no values. Values come in the type that the column has now,
    if that is a wider one; else as what they were.
    """
    for batch in batches:
        arrays = [_column_as(batch, id, kind) for id, kind in columns.values()]
        arrays += [batch[COUNT], batch[POSITION]]
        yield pa.RecordBatch.from_arrays(arrays, names=[*columns, COUNT, POSITION])


def _column_as(batch: pa.RecordBatch, id: str, kind: pa.DataType) -> Array:
    if id not in batch.schema.names:
        return pa.array([None] * batch.num_rows, kind)
    array: Array = batch[id]
    if array.type == kind or not _is_wider(array.type, kind):
        return array
    if pa.types.is_decimal(kind):
        # Arrow asks for room for every integer, not for those that are there.
        target: Any = kind
        array = array.cast(pa.decimal256(_DIGITS, target.scale))
    return array.cast(kind)


def _is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    exact = pa.types.is_integer(old) or pa.types.is_decimal(old)
    to_double = old == pa.float32() and new == pa.float64()
    return (exact and pa.types.is_decimal(new)) or to_double


def schema_of_changes(columns: Mapping[str, tuple[str, pa.DataType]]) -> pa.Schema:
    fields = [(name, kind) for name, (_, kind) in columns.items()]
    return pa.schema([*fields, (COUNT, pa.int64()), (POSITION, pa.int64())])
