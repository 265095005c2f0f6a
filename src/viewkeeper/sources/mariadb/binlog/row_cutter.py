"""Cutting row images of the binlog into raw values, column by column.

An image begins with the bitmap of the columns that are NULL. What comes behind it follows from the
bitmap and the types of the columns, so for each bitmap that occurs there is a *plan*, made once: a
run of values of fixed width, a value with its length before it, a run, a value, ... A run is cut by
one call of `struct`, which is most of the work; columns that nobody wants are passed over by it.

What must hold: the images fill their event exactly. A length that leads beyond its end, or an end
inside of an image, is a MalformedError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from viewkeeper.sources.mariadb.binlog.table_map import BinlogColumn
from viewkeeper.sources.mariadb.byte_codes import MalformedBytesError

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
