"""The functions that a recompute evaluates over rows in order, with Spark's values and types.

Ranks and offsets are positions in a partition. Everything that a fold can add up - counts, sums,
averages, variances - is the difference of two prefix sums, exact as in a fold, so that a value does
not depend on the order of its terms and a retraction has the very bits of the insertion. The least
and greatest of a frame are found among those of runs whose lengths are powers of two.

`ordered_aggregates` has the functions that sort the values themselves: percentiles, lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.stages.accumulator import Accumulator, measure_rows, where_mask
from viewkeeper.stages.exact_floats import Amounts
from viewkeeper.stages.exact_numbers import (
    Places,
    add_numbers,
    plain_array,
    running_sums,
    valid_mask,
)
from viewkeeper.stages.extreme import NONE, Extreme, candidates_of_rows, rank_values, take_values
from viewkeeper.stages.fold_calls import (
    FoldState,
    accumulators_of,
    extreme_of,
    finish_call,
    fold_result_type,
)
from viewkeeper.stages.group_step import number_rows
from viewkeeper.stages.ordered_aggregates import evaluate_ordered, ordered_result_type
from viewkeeper.stages.sorted_rows import Frames, SortedRows
from viewkeeper.view.definition import FoldCall, WindowCall

Types = Sequence[pa.DataType]
Mask = npt.NDArray[np.bool_]


def window_result_type(function: str, arguments: Types) -> pa.DataType | None:
    """The type of a call's value; None if it cannot be computed here.

    >>> window_result_type("rank", []), window_result_type("lag", [pa.string()])
    (DataType(int32), DataType(string))
    """
    if function in RANKS:
        return RANKS[function].type if not arguments else None
    if function in PICKS:
        return arguments[0] if arguments and set(arguments) == {arguments[0]} else None
    return ordered_result_type(function, arguments) or fold_result_type(function, arguments)


def evaluate_call(call: WindowCall, rows: SortedRows, frames: Frames) -> Any:
    """The value of a call for each frame, as an Arrow array."""
    if call.function in RANKS:
        found = RANKS[call.function].evaluate(call, rows, frames)
    elif call.function in PICKS:
        found = PICKS[call.function](call, rows, frames)
    elif ordered_result_type(call.function, [f.type for f in call.arguments]) is not None:
        found = evaluate_ordered(call, rows, frames)
    else:
        found = _evaluate_fold(call, rows, frames)
    assert found.type == call.type, f"{call.function} is {found.type}, not {call.type}"
    return found


def text_of_window_call(call: WindowCall) -> str:
    """A call as people read it."""
    arguments = [*(field.name for field in call.arguments), *call.settings]
    return f"{call.function}({', '.join(arguments) or ('*' if call.function == 'count' else '')})"


# -- ranks -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rank:
    """A function of a row's position alone."""

    type: pa.DataType
    evaluate: Callable[[WindowCall, SortedRows, Frames], Any]


def _row_number(call: WindowCall, rows: SortedRows, frames: Frames) -> Any:
    return pa.array(frames.at - rows.starts[frames.at] + 1, call.type)


def _rank(call: WindowCall, rows: SortedRows, frames: Frames) -> Any:
    return pa.array(_rank_of(rows, frames), call.type)


def _rank_of(rows: SortedRows, frames: Frames) -> Places:
    return rows.peer_starts[frames.at] - rows.starts[frames.at] + 1


def _dense_rank(call: WindowCall, rows: SortedRows, frames: Frames) -> Any:
    is_first = rows.peer_starts == np.arange(rows.size)
    runs = np.cumsum(is_first)
    return pa.array(runs[frames.at] - runs[rows.starts[frames.at]] + 1, call.type)


def _percent_rank(_call: WindowCall, rows: SortedRows, frames: Frames) -> Any:
    others = rows.ends[frames.at] - rows.starts[frames.at] - 1
    ranks = (_rank_of(rows, frames) - 1).astype(np.float64)
    return pa.array(np.divide(ranks, others, out=np.zeros(len(ranks)), where=others > 0))


def _cume_dist(_call: WindowCall, rows: SortedRows, frames: Frames) -> Any:
    starts = rows.starts[frames.at]
    return pa.array((rows.peer_ends[frames.at] - starts) / (rows.ends[frames.at] - starts))


def _ntile(call: WindowCall, rows: SortedRows, frames: Frames) -> Any:
    buckets = int(call.settings[0])
    position = frames.at - rows.starts[frames.at]
    size, longer = np.divmod(rows.ends[frames.at] - rows.starts[frames.at], buckets)
    in_longer = longer * (size + 1)
    behind = longer + (position - in_longer) // np.maximum(size, 1)
    return pa.array(np.where(position < in_longer, position // (size + 1), behind) + 1, call.type)


RANKS = {
    "row_number": _Rank(pa.int32(), _row_number),
    "rank": _Rank(pa.int32(), _rank),
    "dense_rank": _Rank(pa.int32(), _dense_rank),
    "percent_rank": _Rank(pa.float64(), _percent_rank),
    "cume_dist": _Rank(pa.float64(), _cume_dist),
    "ntile": _Rank(pa.int32(), _ntile),
}


# -- functions that pick a row ---------------------------------------------------------------------


def _take_rows(column: Any, places: Places, found: Mask) -> Any:
    """The values at places; NULL where nothing was found."""
    return column.take(pa.array(np.where(found, places, 0), mask=~found))


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The rows of which one may be picked: all, or those with a value."""

    places: Places

    def count_before(self, place: Places) -> Places:
        """How many of them come before a place."""
        return np.searchsorted(self.places, place, side="left")

    def place_of(self, number: Places) -> tuple[Places, Mask]:
        """The place of each by its number, and whether there is one."""
        there = (number >= 0) & (number < len(self.places))
        if not len(self.places):
            return np.zeros(len(number), np.int64), there
        return self.places[np.where(there, number, 0)], there


def _chosen_rows(call: WindowCall, rows: SortedRows) -> _Chosen:
    """The rows that a call picks from."""
    taken = where_mask(call.where, rows.rows)
    if call.ignores_nulls:
        taken = taken & valid_mask(plain_array(rows.rows[call.arguments[0].name]))
    return _Chosen(np.flatnonzero(taken))


def _pick_offset(direction: int) -> Callable[[WindowCall, SortedRows, Frames], Any]:
    """Lag and lead: a row at a distance in the partition, or else the default."""

    def pick(call: WindowCall, rows: SortedRows, frames: Frames) -> Any:
        distance = direction * int(call.settings[0])
        column = plain_array(rows.rows[call.arguments[0].name])
        default = plain_array(rows.rows[call.arguments[1].name])
        if not distance:
            return column.take(pa.array(frames.at))
        chosen = _chosen_rows(call, rows)
        number = chosen.count_before(frames.at + (1 if distance > 0 else 0))
        number += distance - 1 if distance > 0 else distance
        place, there = chosen.place_of(number)
        there = there & (place >= rows.starts[frames.at]) & (place < rows.ends[frames.at])
        found = _take_rows(column, place, there)
        return pc.if_else(pa.array(there), found, default.take(pa.array(frames.at)))

    return pick


def _pick_first(call: WindowCall, rows: SortedRows, frames: Frames) -> Any:
    return _pick_nth(replace(call, settings=("1",)), rows, frames)


def _pick_nth(call: WindowCall, rows: SortedRows, frames: Frames) -> Any:
    chosen = _chosen_rows(call, rows)
    place, there = chosen.place_of(chosen.count_before(frames.begin) + int(call.settings[0]) - 1)
    column = plain_array(rows.rows[call.arguments[0].name])
    return _take_rows(column, place, there & (place < frames.end))


def _pick_last(call: WindowCall, rows: SortedRows, frames: Frames) -> Any:
    chosen = _chosen_rows(call, rows)
    place, there = chosen.place_of(chosen.count_before(frames.end) - 1)
    column = plain_array(rows.rows[call.arguments[0].name])
    return _take_rows(column, place, there & (place >= frames.begin) & (frames.begin < frames.end))


PICKS: dict[str, Callable[[WindowCall, SortedRows, Frames], Any]] = {
    "lag": _pick_offset(-1),
    "lead": _pick_offset(1),
    "first_value": _pick_first,
    "last_value": _pick_last,
    "nth_value": _pick_nth,
}
OFFSETS = frozenset({"lag", "lead"})
"""Functions that have no frame."""


# -- functions that add up -------------------------------------------------------------------------

_TAKEN = "_taken"


def _evaluate_fold(call: WindowCall, rows: SortedRows, frames: Frames) -> Any:
    """A call that a fold could have, over the rows of each frame."""
    where, table = call.where, rows.rows
    if call.is_distinct:
        where = _TAKEN
        table = table.append_column(_TAKEN, pa.array(first_of_values(call, rows)))
    table = table.append_column(COUNT, pa.array(np.ones(rows.size, np.int64)))
    fold = FoldCall(call.name, call.function, call.arguments, call.type, where)
    amounts = {each: _sum_frames(each, table, frames) for each in accumulators_of(fold)}
    extreme = extreme_of(fold)
    extremes = {extreme: _extreme_of_frames(extreme, table, frames)} if extreme else {}
    ts = rows.ts[np.minimum(frames.begin, max(rows.size - 1, 0))] if rows.size else frames.begin
    return finish_call(fold, FoldState(amounts, extremes, ts))


def first_of_values(call: WindowCall, rows: SortedRows) -> Mask:
    """Of the rows that a call looks at, one for each partition and distinct values."""
    taken = np.flatnonzero(where_mask(call.where, rows.rows))
    columns = [pa.array(rows.partitions), *(rows.rows[f.name] for f in call.arguments)]
    numbers = number_rows(columns, rows.size)[taken]
    found = np.zeros(rows.size, np.bool_)
    found[taken[np.unique(numbers, return_index=True)[1]]] = True
    return found


def _sum_frames(accumulator: Accumulator, table: pa.Table, frames: Frames) -> Amounts:
    added = measure_rows(accumulator, table)
    sums = running_sums(added.numbers)
    prefixes = np.concatenate((np.zeros(1, sums.dtype), sums))
    numbers = add_numbers(prefixes[frames.end], -prefixes[frames.begin])
    return Amounts(numbers, added.exponent)


def _extreme_of_frames(extreme: Extreme, table: pa.Table, frames: Frames) -> tuple[Any, ...]:
    candidates = candidates_of_rows(extreme, table, np.arange(table.num_rows))
    ranks, rows_of_ranks = rank_values(extreme, candidates.values)
    best = np.full(table.num_rows, NONE)
    best[candidates.places] = ranks
    return take_values(candidates.values, rows_of_ranks, least_of_frames(best, frames))


def least_of_frames(numbers: Places, frames: Frames) -> Places:
    """The least number of each frame; `NONE` of one without rows.

    >>> frames = Frames(np.arange(2), np.array([0, 1]), np.array([3, 1]))
    >>> least_of_frames(np.array([5, 2, 7]), frames).tolist() == [2, NONE]
    True
    """
    lengths = frames.end - frames.begin
    least = np.full(len(lengths), NONE)
    powers = np.frexp(np.maximum(lengths, 1).astype(np.float64))[1] - 1
    runs, power = numbers, 0
    while len(runs) and (powers >= power).any():
        own = (powers == power) & (lengths > 0)
        begin, end = frames.begin[own], frames.end[own]
        least[own] = np.minimum(runs[begin], runs[end - (1 << power)])
        half = 1 << power
        runs = np.minimum(runs[: max(len(runs) - half, 0)], runs[half:])
        power += 1
    return least
