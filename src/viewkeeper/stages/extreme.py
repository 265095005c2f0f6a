"""The row of a group with the smallest or largest value: what min, max, min_by and max_by keep.

An extreme is not linear: when it is taken away, only the input knows the next one. So a group keeps
its best value and how many rows have it, its *ties*, and each step of a batch the best value that
came in and the best that went out, with their ties. At every step

    best' = min(best, in, out)      ties' = ties of best' in (best + in - out)

is exact if `ties'` is not zero, because all rows with that value are counted. Only a group that
loses all its ties is asked again, from its rows before the batch and its changes in the batch.

Of rows with the same value, min_by takes the one whose shown value is smallest, max_by the largest;
NULL is smaller than everything. Zero has no sign, and NaN is larger than every number.

Values are compared by their rank among all values in play, best first; `NONE` is behind them all.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.kernel import canonical_floats
from viewkeeper.stages.accumulator import where_mask
from viewkeeper.stages.exact_numbers import LIMIT, Places, numbers_of, plain_array, reach_of
from viewkeeper.stages.group_step import encode_values
from viewkeeper.view.definition import Field

NONE = 1 << 62
"""The rank of no value."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """The row with the best value of `order`; `shown` is what min_by and max_by show of it."""

    is_largest: bool
    order: Field
    shown: Field | None = None
    where: str | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The input's columns that make a value, in the order in which they are compared."""
        return (self.order,) if self.shown is None else (self.order, self.shown)

    def stored_columns(self, name: str) -> dict[str, pa.DataType]:
        """The columns of a stored table: the value, and its ties."""
        names = value_names(self, name)
        types: list[pa.DataType] = [field.type for field in self.fields]
        return {**dict(zip(names, types, strict=True)), f"{name}_ties": pa.int64()}


def value_names(extreme: Extreme, name: str) -> list[str]:
    """The columns of a value, by the name of the extreme."""
    return [name] if extreme.shown is None else [name, f"{name}_of"]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Values with their counts, each at some place (a step or a group); none of them is NULL."""

    values: tuple[Any, ...]
    counts: Places
    places: Places

    def take_rows(self, rows: Any) -> Candidates:
        kept = pa.array(np.flatnonzero(rows) if rows.dtype == np.bool_ else rows)
        values = tuple(pc.take(column, kept) for column in self.values)
        return Candidates(values, self.counts[rows], self.places[rows])


def candidates_of_rows(extreme: Extreme, rows: pa.Table, places: Places) -> Candidates:
    """The values of signed rows, at the places of the rows."""
    order = plain_array(rows[extreme.order.name])
    taken = where_mask(extreme.where, rows)
    if order.null_count:
        taken = taken & np.asarray(pc.is_valid(order))
    values = tuple(plain_array(canonical_floats(rows[f.name])) for f in extreme.fields)
    found = Candidates(values, numbers_of(rows[COUNT]), places)
    return found if taken.all() else found.take_rows(taken)


def candidates_of_columns(
    extreme: Extreme, name: str, table: pa.Table, places: Places, sign: int = 1
) -> Candidates:
    """The values of a stored table or of partials, with their ties."""
    values = tuple(plain_array(table[column]) for column in value_names(extreme, name))
    ties = numbers_of(table[f"{name}_ties"])
    found = Candidates(values, sign * ties, places)
    taken = ties != 0
    return found if taken.all() else found.take_rows(taken)


def join_candidates(parts: Sequence[Candidates]) -> Candidates:
    """One part after the other."""
    columns = zip(*(part.values for part in parts), strict=True)
    values = tuple(pa.concat_arrays(list(column)) for column in columns)
    counts = np.concatenate([part.counts for part in parts])
    return Candidates(values, counts, np.concatenate([part.places for part in parts]))


def rank_values(extreme: Extreme, values: Sequence[Any]) -> tuple[Places, Places]:
    """The rank of each value, best first, and a row for each rank."""
    ranks = rank_column(values[0])
    for column in values[1:]:
        behind = rank_column(column)
        ranks = ranks * (int(behind.max(initial=0)) + 1) + behind
    if extreme.is_largest:
        ranks = -ranks
    _, rows, dense = np.unique(ranks, return_index=True, return_inverse=True)
    return dense.astype(np.int64), rows.astype(np.int64)


def rank_column(column: Any) -> Places:
    """The rank of each value in Spark's ascending order, with NULL first."""
    codes, values = encode_values(column)
    # NaN and then NULL come last, whichever end is asked for first.
    order = np.asarray(pc.array_sort_indices(values, null_placement="at_end"))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    if values.null_count:
        ranks[order[-1]] = 0
    return ranks[codes]


def best_of_places(
    candidates: Candidates, ranks: Places, size: int, sign: int
) -> tuple[Places, Places]:
    """For each place the best rank among counts of one sign, and how often it is there."""
    wanted = candidates.counts * sign > 0
    places, ranks, counts = candidates.places[wanted], ranks[wanted], candidates.counts[wanted]
    best = np.full(size, NONE)
    np.minimum.at(best, places, ranks)
    ties = np.zeros(size, np.int64)
    if reach_of(counts) * len(counts) >= LIMIT:
        raise OverflowError("a count of rows needs more than 64 bits")
    is_best = ranks == best[places]
    np.add.at(ties, places[is_best], sign * counts[is_best])
    return best, ties


def take_values(values: Sequence[Any], rows_of_ranks: Places, ranks: Places) -> tuple[Any, ...]:
    """The values of these ranks; NULL for none."""
    if not len(rows_of_ranks):
        return tuple(pa.nulls(len(ranks), column.type) for column in values)
    is_none = ranks == NONE
    rows = pa.array(rows_of_ranks[np.where(is_none, 0, ranks)], mask=is_none)
    return tuple(pc.take(column, rows) for column in values)


def write_extreme(
    extreme: Extreme, name: str, values: tuple[Any, ...], ties: Places
) -> dict[str, Any]:
    """The columns of values and their ties."""
    names = value_names(extreme, name)
    return {**dict(zip(names, values, strict=True)), f"{name}_ties": pa.array(ties)}


def write_moves(extreme: Extreme, name: str, candidates: Candidates, size: int) -> dict[str, Any]:
    """The columns of partials: for each step, the best value that came in and that went out."""
    ranks, rows = rank_values(extreme, candidates.values)
    columns: dict[str, Any] = {}
    for end, sign in ENDS.items():
        best, ties = best_of_places(candidates, ranks, size, sign)
        values = take_values(candidates.values, rows, best)
        columns |= write_extreme(extreme, name + end, values, ties)
    return columns


ENDS = {"_in": 1, "_out": -1}
"""What a step's columns in partials are called: of what came in, and of what went out."""


def candidates_of_partials(
    extreme: Extreme, name: str, partials: pa.Table, places: Places
) -> Candidates:
    """The values in partials, at the places of their rows."""
    return join_candidates(
        [
            candidates_of_columns(extreme, name + end, partials, places, sign)
            for end, sign in ENDS.items()
        ]
    )


def follow_extreme(
    moves: Sequence[Places], before: Sequence[Places], which: Places, is_empty: Any
) -> tuple[list[int], list[int], set[int]]:
    """Ranks and ties after each step, and the groups that must be asked because they lost theirs.

    `moves` are four columns: rank and ties of what came in at each step, and of what went out;
    `before` are rank and ties of each group before the batch. `which` is the group of each step,
    `is_empty` whether it has no rows after it.
    """
    ranks, ties, lost = [], [], set()
    first = [column.tolist() for column in before]
    steps = zip(which.tolist(), is_empty.tolist(), *(m.tolist() for m in moves), strict=True)
    group, best, held = -1, NONE, 0
    for own, empty, came, came_ties, went, went_ties in steps:
        if own != group:
            group, best, held = own, first[0][own], first[1][own]
        if empty:
            best, held = NONE, 0
        elif came != NONE or went != NONE:
            nearest = min(best, came, went)
            held = (held if best == nearest else 0) + (came_ties if came == nearest else 0)
            held -= went_ties if went == nearest else 0
            best = nearest
            if held <= 0:
                lost.add(group)
        ranks.append(best)
        ties.append(held)
    return ranks, ties, lost


class RankedBag:
    """The values of one group as a bag of ranks, of which the best can be asked."""

    def __init__(self, ranks: Sequence[int], counts: Sequence[int]) -> None:
        self._counts = dict(zip(ranks, counts, strict=True))
        self._heap = sorted(self._counts)

    def add_rank(self, rank: int, count: int) -> None:
        """Add a value some times, or take it away."""
        before = self._counts.get(rank, 0)
        if not before:
            heapq.heappush(self._heap, rank)
        self._counts[rank] = before + count

    def find_best(self) -> tuple[int, int]:
        """The best rank that is in the bag, and how often; a negative number of times if the bag
        was wrong from the beginning."""
        while self._heap:
            count = self._counts.get(self._heap[0], 0)
            if count:
                return self._heap[0], count
            heapq.heappop(self._heap)
        return NONE, 0
