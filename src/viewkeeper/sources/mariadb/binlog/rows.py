"""Rows that were read from the binlog, on their way to Arrow: raw values by column.

Many small transactions share one batch, because making a batch costs as much as reading a hundred
rows. The rows of a transaction that has not ended are the last ones here and have no position yet:
a transaction's position is where it ends. Where it is so large that its rows should not wait in
memory, they go to the stage as *pieces*, and get their position when it is known.

A reader of the spool gets the columns that it asks for, by their names and in the types that they
have now (`select_columns`).

A row image begins with the bitmap of the columns that are NULL. What comes behind it follows from
the bitmap and the types of the columns, so for each bitmap that occurs there is a *plan*, made
once: a run of values of fixed width, a value with its length before it, a run, a value, ... A run
is cut by one call of `struct`, which is most of the work; columns that nobody wants are passed over
by it.

What must hold: the images fill their event exactly. A length that leads beyond its end, or an end
inside of an image, is a MalformedError.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from viewkeeper.sources.mariadb.binlog.raw_values import Raw, Reader, reader_of
from viewkeeper.sources.mariadb.binlog.table_map import BinlogColumn, BinlogTable
from viewkeeper.sources.mariadb.byte_codes import MalformedBytesError
from viewkeeper.sources.mariadb.logged_shapes import LoggedShape
from viewkeeper.sources.mariadb.types import Array, MariadbKind
from viewkeeper.sources.tables.column_type import MisfitError
from viewkeeper.updates.source_protocol import COUNT, POSITION

Values = Iterable[bytes | None]
Cutter = Callable[[bytes, int, Sequence[Callable[[Values], None]]], int]
"""Cuts the images from an offset on, hands over the values of each column, and returns how many
images there were."""

_Run = Callable[[bytes, int], Sequence[Any]]
# Plans are made for what occurs; a table with many NULLs has many.
_MOST_PLANS = 10_000


class _Plan(NamedTuple):
    """The rest of an image behind its bitmap; a tuple, because it is taken apart for every row.

    Each of `steps` is a run (how it is cut, and its bytes) and a value behind it (the bytes of its
    length, and whether it is wanted). `last` is the run at the end. `pick` brings what was cut into
    the order that is wanted, None for what is NULL; None if it is in that order already.
    """

    steps: tuple[tuple[_Run | None, int, int, bool], ...]
    last: _Run | None
    last_bytes: int
    pick: Callable[[list[bytes | None]], Sequence[bytes | None]] | None


def make_cutter(columns: Sequence[BinlogColumn], wanted: Sequence[int]) -> Cutter:
    """A cutter for a table; values of column `wanted[i]` go to the i-th of the functions.

    >>> from viewkeeper.sources.mariadb.binlog.table_map import WireType
    >>> table = [BinlogColumn("a", WireType.TINY), BinlogColumn("b", WireType.VARCHAR, (10,))]
    >>> a, b = [], []
    >>> make_cutter(table, [1, 0])(b"\\0\\7\\2AB\\2\\6", 0, [b.extend, a.extend]), a, b
    (2, [b'\\x07', b'\\x06'], [b'AB', None])
    """
    return partial(_cut_rows, _Plans(columns, wanted), (len(columns) + 7) // 8)


class _Plans(dict[bytes, _Plan]):
    """The plans that were needed, by the bitmap of NULLs."""

    def __init__(self, columns: Sequence[BinlogColumn], wanted: Sequence[int]) -> None:
        super().__init__()
        self._columns = columns
        self._wanted = wanted

    def __missing__(self, bitmap: bytes) -> _Plan:
        if len(self) >= _MOST_PLANS:
            self.clear()
        self[bitmap] = made = _make_plan(self._columns, self._wanted, bitmap)
        return made


def _cut_rows(
    plans: _Plans, size: int, data: bytes, at: int, extends: Sequence[Callable[[Values], None]]
) -> int:
    """Every changed row passes here: nothing is called that need not be."""
    end = len(data)
    rows: list[Sequence[bytes | None]] = []
    try:
        while at < end:
            steps, last, last_bytes, pick = plans[data[at : at + size]]
            at += size
            row: list[bytes | None] = []
            for run, run_bytes, length_bytes, is_wanted in steps:
                if run:
                    row += run(data, at)
                    at += run_bytes
                start = at + length_bytes
                if length_bytes == 1:
                    at = start + data[at]
                elif length_bytes == 2:
                    at = start + (data[at] | data[at + 1] << 8)
                else:
                    at = start + int.from_bytes(data[at:start], "little")
                if is_wanted:
                    row.append(data[start:at])
            if last:
                row += last(data, at)
                at += last_bytes
            if pick:
                row.append(None)
                rows.append(pick(row))
            else:
                rows.append(row)
    except (struct.error, IndexError):
        raise MalformedBytesError("a row ends before its last value") from None
    if at != end:
        raise MalformedBytesError("a row ends beyond its event")
    # Rows are not kept: as many lists as rows would keep the garbage collector busy.
    for extend, values in zip(extends, zip(*rows, strict=True), strict=False):
        extend(values)
    return len(rows)


def _make_plan(columns: Sequence[BinlogColumn], wanted: Sequence[int], bitmap: bytes) -> _Plan:
    nulls = int.from_bytes(bitmap, "little")
    steps: list[tuple[_Run | None, int, int, bool]] = []
    places: dict[int, int] = {}
    form = "<"
    for number, column in enumerate(columns):
        if nulls >> number & 1:
            continue
        is_wanted = number in wanted
        if is_wanted:
            places[number] = len(places)
        if column.width > 0:
            form += f"{column.width}{'s' if is_wanted else 'x'}"
        else:
            steps.append((*_make_run(form), -column.width, is_wanted))
            form = "<"
    order = [places.get(number, len(places)) for number in wanted]
    pick = None if order == list(range(len(places))) else _make_pick(order)
    return _Plan(tuple(steps), *_make_run(form), pick)


def _make_run(form: str) -> tuple[_Run | None, int]:
    """What cuts a run of values, and how many bytes it has; None if there is nothing to cut."""
    made = struct.Struct(form)
    return (made.unpack_from if made.size else None), made.size


def _make_pick(order: Sequence[int]) -> Callable[[list[bytes | None]], Sequence[bytes | None]]:
    if len(order) > 1:
        return itemgetter(*order)
    return lambda row: [row[place] for place in order]


Columns = Sequence[tuple[str, MariadbKind]]
PIECE_ROWS = 50_000
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
