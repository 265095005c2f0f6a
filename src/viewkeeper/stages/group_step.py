"""Rows in steps: one step for each group and ts at which the group is touched.

Groups are compared as Spark compares them: NULL is a group, NaN is one value, zero has no sign.
Rows are numbered by their group, then sorted by (group, ts), so that each step is one run of rows
and each group one run of steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.kernel import canonical_floats
from viewkeeper.stages.exact_numbers import Places, plain_array

_ROOM = 1 << 62


def number_rows(columns: Sequence[Any], size: int) -> Places:
    """A number for each row; two rows have the same one if their columns are the same.

    >>> number_rows([pa.array([None, 1, None]), pa.array([0.0, 0.0, -0.0])], 3).tolist()
    [0, 1, 0]
    """
    numbers, reach = np.zeros(size, np.int64), 1
    for column in columns:
        codes, values = encode_values(column)
        if reach * len(values) >= _ROOM:
            found, numbers = np.unique(numbers, return_inverse=True)
            reach = len(found)
        numbers = numbers * len(values) + codes
        reach *= max(1, len(values))
    return numbers


def encode_values(column: Any) -> tuple[Places, Any]:
    """Each value's number, and the distinct values; NULL is one of them."""
    array = plain_array(canonical_floats(column))
    kind = array.type
    if pa.types.is_floating(kind):
        array = array.view(pa.int64() if kind == pa.float64() else pa.int32())
    encoded = array.dictionary_encode(null_encoding="encode")
    codes = np.asarray(encoded.indices).astype(np.int64)
    values = encoded.dictionary
    return codes, values.view(kind) if pa.types.is_floating(kind) else values


@dataclass(frozen=True, slots=True)
class Steps:
    """Rows sorted by group and ts.

    `order` are the rows in that order, `starts` where each step begins in it, `ts` the ts of each
    step. `first` is the first step of each group, `which` the number of each step's group, counted
    from 0.
    """

    order: Places
    starts: Places
    ts: Places
    first: Places
    which: Places

    @property
    def rows(self) -> Places:
        """One row of each step."""
        return self.order[self.starts]

    @property
    def size(self) -> int:
        return len(self.starts)

    @property
    def step_of_row(self) -> Places:
        """The step of each row."""
        lengths = np.diff(np.append(self.starts, len(self.order)))
        steps = np.empty(len(self.order), np.int64)
        steps[self.order] = np.repeat(np.arange(self.size), lengths)
        return steps


def steps_of(numbers: Places, ts: Places) -> Steps:
    """The steps of rows with these numbers of groups.

    >>> steps_of(np.array([1, 0, 1, 1]), np.array([5, 5, 4, 5])).starts.tolist()
    [0, 1, 2]
    """
    order = np.lexsort((ts, numbers))
    numbers, ts = numbers[order], ts[order]
    is_other = numbers[1:] != numbers[:-1]
    starts = _places_where(is_other | (ts[1:] != ts[:-1]), len(order))
    groups = numbers[starts]
    changes = groups[1:] != groups[:-1]
    which = np.zeros(len(starts), np.int64)
    np.cumsum(changes, out=which[1:])
    return Steps(order, starts, ts[starts], _places_where(changes, len(starts)), which)


def _places_where(is_new: Any, size: int) -> Places:
    if not size:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.concatenate(([True], is_new)))


def find_rows_of(wanted: Places, numbers: Places) -> Places:
    """For each wanted number the last row that has it; -1 if none has.

    >>> find_rows_of(np.array([7, 9]), np.array([5, 9])).tolist()
    [-1, 1]
    """
    if not len(numbers):
        return np.full(len(wanted), -1)
    order = np.argsort(numbers, kind="stable")
    at = np.searchsorted(numbers[order], wanted, side="right") - 1
    rows = order[np.maximum(at, 0)]
    return np.where((at >= 0) & (numbers[rows] == wanted), rows, -1)


def name_group(groups: pa.Table, row: int) -> str:
    """A name for a group that does not show its values: a digest of them."""
    values = repr([column[row].as_py() for column in groups.columns]).encode()
    return hashlib.sha256(values, usedforsecurity=False).hexdigest()[:12]
