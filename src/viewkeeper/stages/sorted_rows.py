"""Rows in partitions and in order: what window functions are computed over.

A partition is one run of rows. In it rows are in the user's order, and where that leaves some equal
in rank - *peers* - in an order that is the same wherever and whenever they are sorted. A frame is a
run of a partition's rows that a call looks at, given by the positions of its first row and of the
row behind its last one.

NULL comes first in ascending and last in descending order unless the text says otherwise, NaN is
larger than every number and zero has no sign, as in Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.date_words import shift_months
from viewkeeper.delta.kernel import canonical_floats
from viewkeeper.stages.exact_numbers import (
    Numbers,
    Places,
    add_numbers,
    numbers_of,
    plain_array,
    valid_mask,
)
from viewkeeper.stages.extreme import rank_column
from viewkeeper.view.definition import MONTHS, SortKey, WindowFrame

DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows sorted by partition and order: for each row where its partition and its peers begin and
    end, the number of its partition, and its ts."""

    rows: pa.Table
    order: tuple[SortKey, ...]
    starts: Places
    ends: Places
    peer_starts: Places
    peer_ends: Places
    partitions: Places
    ts: Places

    @property
    def size(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of some rows: where each begins, and where it has ended; `at` are the rows."""

    at: Places
    begin: Places
    end: Places


def order_ranks(table: pa.Table, order: Sequence[SortKey]) -> list[Places]:
    """For each sort key the rank of each row, the first one lowest.

    >>> order_ranks(pa.table({"a": [2, None, 1]}), [SortKey("a", descending=True)])[0].tolist()
    [-2, -4, -1]
    """
    return [_rank_key(plain_array(table[key.column]), key) for key in order]


def _rank_key(column: Any, key: SortKey) -> Places:
    ranks = rank_column(column)
    if key.descending:
        ranks = -ranks
    if column.null_count and key.nulls_last != key.descending:
        beyond = len(column) + 1
        ranks = np.where(valid_mask(column), ranks, beyond if key.nulls_last else -beyond)
    return ranks


def runs_of(is_new: Any, size: int) -> Places:
    """Where runs begin, by whether each row but the first is of another run than the one before.

    >>> runs_of(np.array([False, True]), 3).tolist()
    [0, 2]
    """
    if not size:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.concatenate(([True], is_new)))


def spread_runs(starts: Places, size: int) -> tuple[Places, Places]:
    """For each row where its run begins and ends.

    >>> [column.tolist() for column in spread_runs(np.array([0, 2]), 3)]
    [[0, 0, 2], [2, 2, 3]]
    """
    ends = np.append(starts[1:], size) if len(starts) else starts
    lengths = ends - starts
    return np.repeat(starts, lengths), np.repeat(ends, lengths)


def dense_ranks(columns: Sequence[Places], size: int) -> Places:
    """One rank for each row from its ranks in several columns, the first column first."""
    if not columns:
        return np.zeros(size, np.int64)
    order = np.lexsort(columns[::-1])
    is_new = np.zeros(max(size - 1, 0), np.bool_)
    for column in columns:
        sorted_column = column[order]
        is_new |= sorted_column[1:] != sorted_column[:-1]
    ranks = np.empty(size, np.int64)
    ranks[order] = np.concatenate(([0], np.cumsum(is_new))) if size else order
    return ranks


def frames_of(frame: WindowFrame, sorted_rows: SortedRows) -> Frames:
    """The frame of every row."""
    at = np.arange(sorted_rows.size)
    if frame.unit == "rows":
        begin, end = _row_bounds(frame, sorted_rows, at)
    else:
        begin, end = _range_bounds(frame, sorted_rows)
    return Frames(at, begin, np.maximum(begin, end))


def _row_bounds(frame: WindowFrame, rows: SortedRows, at: Places) -> tuple[Places, Places]:
    begin, end = rows.starts, rows.ends
    if frame.start is not None:
        begin = np.clip(at + _row_distance(frame.start), rows.starts, rows.ends)
    if frame.end is not None:
        end = np.clip(at + _row_distance(frame.end) + 1, rows.starts, rows.ends)
    return begin, end


def _row_distance(bound: str) -> int:
    return max(-(1 << 61), min(1 << 61, int(bound)))


def _range_bounds(frame: WindowFrame, rows: SortedRows) -> tuple[Places, Places]:
    begin = rows.starts if frame.start is None else rows.peer_starts
    end = rows.ends if frame.end is None else rows.peer_ends
    begin_shift = frame.start if frame.start not in (None, "0") else None
    end_shift = frame.end if frame.end not in (None, "0") else None
    if begin_shift is None and end_shift is None:
        return begin, end
    (key,) = rows.order
    column = plain_array(canonical_floats(rows.rows[key.column]))
    valid, values = valid_mask(column), _values_of(column)
    begin, end = begin.copy(), end.copy()
    for first in np.unique(rows.starts).tolist():
        last = int(rows.ends[first])
        # NULLs are peers of each other, at one end of the partition.
        own = first + np.flatnonzero(valid[first:last])
        if not len(own):
            continue
        low, high = int(own[0]), int(own[-1]) + 1
        here = values[low:high]
        if begin_shift is not None:
            begin[low:high] = low + _search(here, begin_shift, column.type, key, "left")
        if end_shift is not None:
            end[low:high] = low + _search(here, end_shift, column.type, key, "right")
    return begin, end


def _values_of(column: Any) -> Any:
    if pa.types.is_floating(column.type):
        filled = column.fill_null(0.0) if column.null_count else column
        return np.asarray(filled)
    if pa.types.is_date(column.type):
        return numbers_of(column.view(pa.int32()))
    if pa.types.is_timestamp(column.type):
        return numbers_of(column.view(pa.int64()))
    return numbers_of(column)


def _search(values: Any, shift: str, kind: Any, key: SortKey, side: Any) -> Places:
    """Among values in order, where those begin or end that lie at a distance from each."""
    if pa.types.is_floating(kind):
        distance = values.dtype.type(float(shift))
        targets = values - distance if key.descending else values + distance
    else:
        targets = _shift_numbers(values, shift, kind, key.descending)
    if not key.descending:
        found = np.searchsorted(values, targets, side=side)
    else:
        opposite: Any = "right" if side == "left" else "left"
        found = len(values) - np.searchsorted(values[::-1], targets, side=opposite)
    # The evening of January 30 plus a month is later than the morning of January 31 plus a month.
    # Spark moves the ends of a frame forwards only, from row to row.
    moved: Places = np.maximum.accumulate(found)
    return moved


def _shift_numbers(values: Numbers, shift: str, kind: Any, descending: bool) -> Numbers:
    if shift.endswith(MONTHS):
        count = int(shift.removesuffix(MONTHS))
        return _shift_by_months(values, np.array(-count if descending else count), kind)
    scale = kind.scale if pa.types.is_decimal(kind) else 0
    distance = int(Decimal(shift).scaleb(scale))
    return add_numbers(values, np.array([-distance if descending else distance], object))


def _shift_by_months(values: Numbers, count: Numbers, kind: Any) -> Numbers:
    """Dates, or moments of UTC, some months later; the 30th and the 31st may become one day."""
    if not pa.types.is_timestamp(kind):
        days: Numbers = shift_months(values, count)
        return days
    moments: Numbers = shift_months(values // DAY_US, count) * DAY_US + values % DAY_US
    return moments


def sort_partitions(
    rows: pa.Table,
    order: tuple[SortKey, ...],
    partitions: Places,
    ts: Places,
    ranks: tuple[Places, Places],
) -> SortedRows:
    """Rows in their partitions; `ranks` are those of each row by the user's order alone, and by
    the order that leaves no rows equal."""
    peers, places = ranks
    sequence = np.lexsort((places, partitions))
    parts, codes = partitions[sequence], peers[sequence]
    is_other = parts[1:] != parts[:-1]
    size = len(sequence)
    begin, end = spread_runs(runs_of(is_other, size), size)
    peer_starts = runs_of(is_other | (codes[1:] != codes[:-1]), size)
    peer_begin, peer_end = spread_runs(peer_starts, size)
    sorted_rows = rows.take(sequence)
    return SortedRows(sorted_rows, order, begin, end, peer_begin, peer_end, parts, ts[sequence])
