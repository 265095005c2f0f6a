"""Masks over rows: which rows have one of some values, and the rows that are left without others.

Both are done to a whole body of which little is looked for, so both are made for that. Arrow looks
every value up in a table of those that are wanted. Of whole numbers, most are ruled out here by one
bit: a number is multiplied into a place among many more places than there are wanted numbers, and
only where a wanted one has the same place is it looked up. Arrow filters tables by the numbers of
the rows that stay, one row at a time; single columns it copies in runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc

SIEVED_ROWS = 10_000
"""Of fewer rows, looking each of them up costs less than making the places."""

_PLACES_PER_VALUE = 6
"""As a power of two: of 64 rows that are not wanted, one at most is looked up."""

_PLACES_MAX = 22
"""As a power of two: more do not fit into the caches of a processor."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""Multiplied by it, numbers in a row, or in equal steps, spread over the high bits."""


def find_values(column: Any, values: Any) -> Any:
    """Which of the rows of a column have one of these values, NULL among them, as a NumPy mask."""
    if len(column) < SIEVED_ROWS or not pa.types.is_signed_integer(column.type):
        return pc.is_in(column, value_set=values).to_numpy(zero_copy_only=False)
    bits = min(_PLACES_MAX, len(values).bit_length() + _PLACES_PER_VALUE)
    taken = np.zeros(1 << bits, bool)
    taken[_places_of(values, bits)] = True
    mask = taken[_places_of(column, bits)]
    likely = np.flatnonzero(mask)
    exact = pc.is_in(column.take(pa.array(likely)), value_set=values)
    mask[likely] = exact.to_numpy(zero_copy_only=False)
    return mask


def match_values(rows: pa.Table, search: Mapping[str, Any]) -> Any:
    """Which rows have, in each of these columns, one of its values."""
    masks = (find_values(rows[name], values) for name, values in search.items())
    return reduce(np.logical_and, masks, np.ones(rows.num_rows, bool))


def take_masked(rows: pa.Table, mask: Any) -> pa.Table:
    """The rows that a NumPy mask has; the same, not copied, if it has all."""
    if mask.all():
        return rows
    kept = pa.array(mask)
    if not rows.num_columns:
        return rows.filter(kept)
    return pa.table([column.filter(kept) for column in rows.columns], schema=rows.schema)


def _places_of(numbers: Any, bits: int) -> Any:
    """A place below 2 to the power of `bits` for each number; NULL has that of zero."""
    whole = numbers.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return (whole.view(np.uint64) * _SPREAD >> np.uint64(64 - bits)).view(np.int64)
