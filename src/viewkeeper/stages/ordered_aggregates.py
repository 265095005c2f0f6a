"""Aggregates that need all values of a group in order: percentiles, the mode, lists of text.

They look at whole partitions: every frame is all rows of one. Values are sorted once for all
partitions; NULLs are left out. The numbers of a percentile are those of Spark, operation by
operation, so that they have the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.kernel import canonical_floats
from viewkeeper.stages.accumulator import where_mask
from viewkeeper.stages.exact_numbers import Places, plain_array, valid_mask
from viewkeeper.stages.extreme import rank_column
from viewkeeper.stages.group_step import number_rows
from viewkeeper.stages.sorted_rows import Frames, SortedRows, order_ranks
from viewkeeper.view.definition import WindowCall


def ordered_result_type(function: str, arguments: Sequence[pa.DataType]) -> pa.DataType | None:
    """The type of a call's value; None if it is none of these functions.

    >>> ordered_result_type("percentile", [pa.int32()]), ordered_result_type("sum", [pa.int32()])
    (DataType(double), None)
    """
    rule = _RULES.get(function)
    return rule[0](arguments) if rule and arguments else None


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of one column that are not NULL, in order, partition by partition; for each frame
    where its values begin and end."""

    column: Any
    ranks: Places
    begin: Places
    end: Places


def evaluate_ordered(call: WindowCall, rows: SortedRows, frames: Frames) -> Any:
    """The value of a call for each frame, which is all rows of a partition."""
    column = plain_array(canonical_floats(rows.rows[call.arguments[0].name]))
    taken = np.flatnonzero(where_mask(call.where, rows.rows) & valid_mask(column))
    ranks = rank_column(column)
    if call.is_distinct:
        numbers = number_rows([pa.array(rows.partitions), column], rows.size)[taken]
        taken = taken[np.unique(numbers, return_index=True)[1]]
    by = [codes[taken] for codes in order_ranks(rows.rows, call.order)] or [ranks[taken]]
    order = np.lexsort((*by[::-1], rows.starts[taken]))
    sequence = taken[order]
    starts = rows.starts[sequence]
    begin = np.searchsorted(starts, frames.begin, side="left")
    end = np.where(frames.begin < frames.end, np.searchsorted(starts, frames.begin, "right"), begin)
    values = _Values(column.take(pa.array(sequence)), ranks[sequence], begin, end)
    return _RULES[call.function][1](call, values)


def _percentile(call: WindowCall, values: _Values) -> Any:
    share = float(call.settings[0])
    numbers = values.column.cast(pa.float64()).to_pylist()
    found = [
        _interpolate(numbers, values.ranks, begin, end, share) if begin < end else None
        for begin, end in zip(values.begin.tolist(), values.end.tolist(), strict=True)
    ]
    return canonical_floats(pa.array(found, pa.float64()))


def _interpolate(numbers: list[float], ranks: Places, begin: int, end: int, share: float) -> float:
    position = (end - begin - 1) * share
    lower, higher = math.floor(position), math.ceil(position)
    low, high = begin + lower, begin + higher
    if higher == lower or ranks[low] == ranks[high]:
        return numbers[low]
    return (higher - position) * numbers[low] + (position - lower) * numbers[high]


def _percentile_disc(call: WindowCall, values: _Values) -> Any:
    share = float(call.settings[0])
    sizes = (values.end - values.begin).tolist()
    at = [max(math.ceil(share * size), 1) - 1 for size in sizes]
    places = pa.array(values.begin + np.array(at, np.int64), mask=values.begin >= values.end)
    return values.column.take(places).cast(call.type)


def _mode(_call: WindowCall, values: _Values) -> Any:
    """The value that is there most often; of several the one that comes first in order."""
    places: list[int | None] = []
    for begin, end in zip(values.begin.tolist(), values.end.tolist(), strict=True):
        if begin == end:
            places.append(None)
            continue
        _, first, counts = np.unique(values.ranks[begin:end], return_index=True, return_counts=True)
        places.append(begin + int(first[counts == counts.max()].min()))
    return values.column.take(pa.array(places, pa.int64()))


def _list_values(empty: str | None) -> Callable[[WindowCall, _Values], Any]:
    """Texts one after the other, with something in between."""

    def join(call: WindowCall, values: _Values) -> Any:
        texts, between = values.column.to_pylist(), call.settings[0]
        found = [
            between.join(texts[begin:end]) if begin < end else empty
            for begin, end in zip(values.begin.tolist(), values.end.tolist(), strict=True)
        ]
        return pa.array(found, pa.string())

    return join


def _type_of_percentile(arguments: Sequence[pa.DataType]) -> pa.DataType | None:
    (kind, *_) = arguments
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return pa.float64() if is_number or pa.types.is_decimal(kind) else None


def _own_type(arguments: Sequence[pa.DataType]) -> pa.DataType | None:
    return arguments[0]


def _type_of_text(arguments: Sequence[pa.DataType]) -> pa.DataType | None:
    return pa.string() if pa.types.is_string(arguments[0]) else None


_RULES: dict[str, tuple[Callable[[Sequence[pa.DataType]], pa.DataType | None], Any]] = {
    "percentile": (_type_of_percentile, _percentile),
    "percentile_disc": (_type_of_percentile, _percentile_disc),
    "mode": (_own_type, _mode),
    "listagg": (_type_of_text, _list_values(None)),
    "array_join": (_type_of_text, _list_values("")),
}
