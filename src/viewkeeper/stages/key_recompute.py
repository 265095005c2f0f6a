"""Recompute by key: an operator evaluated again for the keys that a batch touches, at every ts.

What a window function or a percentile shows of one row depends on all rows of its key, so nothing
can be added up. Instead, for each touched key there are versions: 0 is the key before the batch,
and one more for each ts at which it is touched. Every row is there once in each version in which it
lives; the operator runs once over all keys and versions, the version being one more key. What two
versions of a key differ by is what the ts between them changed.

What must hold:
1. Before and delta are given for whole keys: all rows of a touched key, and all its changes.
2. Rows are put into the user's order, then that of the completion, then of all other columns, so
   that the operator is a function of the bag of rows: a retraction has the very bits of the
   insertion, and loads, batches and questions agree.
3. NULL is a key like any other.
4. Memory is bounded by `CELLS_MAX` pairs of row and version at a time, and one whole version. What
   is kept of them is what differs from one version to the next, not the versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.delta.evaluate import evaluate_expression
from viewkeeper.delta.kernel import Kernel, canonical_floats
from viewkeeper.errors import StateError, UnsupportedError, reload_hint
from viewkeeper.stages.exact_numbers import Places, numbers_of
from viewkeeper.stages.group_step import Steps, number_rows, steps_of
from viewkeeper.stages.sorted_rows import (
    Frames,
    SortedRows,
    dense_ranks,
    frames_of,
    order_ranks,
    sort_partitions,
)
from viewkeeper.stages.window_calls import OFFSETS, RANKS, evaluate_call
from viewkeeper.view.definition import KeyRecompute, SortKey, WindowCall

CELLS_MAX = 1 << 18
"""So many pairs of a row and a version are evaluated at a time."""
ROWS_MAX = 100_000
"""So many rows may belong together where no key parts them: each change evaluates them all."""


def touched_keys(node: KeyRecompute, delta: pa.Table) -> pa.Table:
    """The keys of signed rows, each once, in one column per key."""
    return distinct_keys(delta.select(list(node.keys)))


def distinct_keys(keys: pa.Table) -> pa.Table:
    """Each key once, equal floats being one key."""
    numbers = number_rows(keys.columns, keys.num_rows)
    return keys.take(np.unique(numbers, return_index=True)[1])


def evaluate_rows(node: KeyRecompute, rows: pa.Table, ts: int) -> pa.Table:
    """What a node shows of whole keys, given as rows with `_count`; each row with its count."""
    pool = _pool_of(node, rows, rows.slice(0, 0))
    pool.check_counts(pool.before, ts)
    cells = _Cells(np.arange(pool.size), pool.keys, pool.before)
    keys = pool.key_count
    shown, _ = _evaluate_cells(node, pool, cells, np.full(keys, ts), keys)
    ones = pa.array(np.ones(shown.num_rows, np.int64))
    stamps = pa.array(np.full(shown.num_rows, ts, np.int64))
    counted = shown.append_column(TS, stamps).append_column(COUNT, ones)
    return Kernel().consolidate(counted).drop_columns([TS])


def advance_recompute(node: KeyRecompute, delta: pa.Table, before: pa.Table) -> pa.Table:
    """The signed rows of a node, with their ts, from those of its input.

    `before` are all rows of the touched keys as of before the batch, with `_count`.
    """
    names = [field.name for field in node.fields]
    empty = pa.schema([*((f.name, f.type) for f in node.fields), *_STAMPS]).empty_table()
    if not delta.num_rows:
        return empty
    pool = _pool_of(node, before, delta)
    changes = _changes_of(pool, delta)
    pieces = [_part_differences(node, pool, part) for part in _parts_of(pool, changes)]
    together = pa.concat_tables([empty, *pieces]).select([*names, TS, COUNT])
    return Kernel().consolidate(together)


_STAMPS = ((TS, pa.int64()), (COUNT, pa.int64()))


# -- all rows in play ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pool:
    """Each row that is in play, once: its key, its rank among the rows by the user's order and in
    full, and how often it was there before; `of_delta` is the row of each signed row."""

    rows: pa.Table
    keys: Places
    key_count: int
    peers: Places
    places: Places
    before: Places
    of_delta: Places

    @property
    def size(self) -> int:
        return self.rows.num_rows

    def check_counts(self, counts: Places, ts: int) -> None:
        if (counts < 0).any():
            raise StateError(
                "what was there of a key contradicts its changes: a row is there less than never",
                detail=f"at ts {ts}",
                hint=reload_hint(),
            )


def _pool_of(node: KeyRecompute, before: pa.Table, delta: pa.Table) -> _Pool:
    names = [field.name for field in node.read]
    schema = pa.schema([(field.name, field.type) for field in node.read])
    both = pa.concat_tables([t.select(names).cast(schema) for t in (before, delta)])
    both = pa.table([canonical_floats(column) for column in both.columns], schema=schema)
    both = both.combine_chunks()
    numbers = number_rows(both.columns, both.num_rows)
    _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    rows = both.take(first)
    keys = number_rows([rows[name] for name in node.keys], rows.num_rows)
    found, keys = np.unique(keys, return_inverse=True)
    counts = np.zeros(len(first), np.int64)
    np.add.at(counts, which[: before.num_rows], numbers_of(before[COUNT]))
    order = order_ranks(rows, node.order)
    rest = [*node.completion, *(SortKey(name) for name in sorted(names))]
    peers = dense_ranks(order, len(first))
    places = dense_ranks([peers, *order_ranks(rows, rest)], len(first))
    # Rows without a key belong together even if there are none.
    key_count = len(found) if node.keys else 1
    return _Pool(rows, keys, key_count, peers, places, counts, which[before.num_rows :])


@dataclass(frozen=True, slots=True)
class _TouchedSteps:
    """What each step - a key at a ts - does: rows and by how much they change, step by step."""

    steps: Steps
    rows: Places
    counts: Places
    of_step: Places


def _changes_of(pool: _Pool, delta: pa.Table) -> _TouchedSteps:
    steps = steps_of(pool.keys[pool.of_delta], numbers_of(delta[TS]))
    order = steps.order
    counts = numbers_of(delta[COUNT])[order]
    return _TouchedSteps(steps, pool.of_delta[order], counts, steps.step_of_row[order])


# -- parts that fit into memory --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """Some rows with their counts before some steps, and what these steps change.

    `first` is the first of the steps of each key, `sizes` how many each has.
    """

    rows: Places
    counts: Places
    keys: Places
    sizes: Places
    ts: Places
    changed: Places
    changes: Places
    at: Places
    """For each change the number of its step within its key, counted from 0."""


def _parts_of(pool: _Pool, changes: _TouchedSteps) -> Iterator[_Part]:
    """The work cut by keys, and where one key has too many versions, by its versions."""
    steps = changes.steps
    sizes = np.diff(np.append(steps.first, steps.size))
    step_keys = pool.keys[changes.rows[steps.starts[steps.first]]]
    versions = np.zeros(pool.key_count, np.int64)
    versions[step_keys] = sizes
    rows_of_key = np.bincount(pool.keys, minlength=pool.key_count)
    cells = rows_of_key * (versions + 1)
    order = np.argsort(pool.keys, kind="stable")
    begin = np.concatenate(([0], np.cumsum(rows_of_key)))
    start = 0
    while start < len(step_keys):
        stop = start + 1
        total = int(cells[step_keys[start]])
        while stop < len(step_keys) and total + int(cells[step_keys[stop]]) <= CELLS_MAX:
            total += int(cells[step_keys[stop]])
            stop += 1
        chosen = step_keys[start:stop]
        rows = np.concatenate([order[begin[k] : begin[k + 1]] for k in chosen.tolist()])
        yield from _cut_versions(pool, changes, (start, stop), rows, total)
        start = stop


def _cut_versions(
    pool: _Pool, changes: _TouchedSteps, groups: tuple[int, int], rows: Places, cells: int
) -> Iterator[_Part]:
    steps = changes.steps
    low = int(steps.first[groups[0]])
    high = int(steps.first[groups[1]]) if groups[1] < len(steps.first) else steps.size
    counts = pool.before.copy()
    width = high - low
    if groups[1] - groups[0] == 1 and cells > CELLS_MAX:
        width = max(1, CELLS_MAX // max(len(rows), 1))
    for begin in range(low, high, width):
        end = min(begin + width, high)
        inside = (changes.of_step >= begin) & (changes.of_step < end)
        of_step = changes.of_step[inside]
        which = steps.which[begin:end]
        first = np.searchsorted(which, np.arange(which[0], which[-1] + 1)) + begin
        sizes = np.diff(np.append(first, end))
        own = pool.keys[changes.rows[steps.starts[first]]]
        at = of_step - first[steps.which[of_step] - which[0]]
        touched = changes.rows[inside]
        ts = steps.ts[begin:end]
        yield _Part(rows, counts[rows], own, sizes, ts, touched, changes.counts[inside], at)
        np.add.at(counts, touched, changes.counts[inside])


@dataclass(frozen=True, slots=True)
class _Cells:
    """Rows of the pool in versions: row, number of the version, how often it is there."""

    rows: Places
    versions: Places
    counts: Places


def _part_differences(node: KeyRecompute, pool: _Pool, part: _Part) -> pa.Table:
    """What the steps of a part change in the node's rows."""
    key_at = np.full(pool.key_count, -1)
    key_at[part.keys] = np.arange(len(part.keys))
    own = key_at[pool.keys[part.rows]]
    widths = part.sizes[own] + 1
    offsets = np.concatenate(([0], np.cumsum(widths)))
    counts = np.zeros(int(offsets[-1]), np.int64)
    counts[offsets[:-1]] = part.counts
    row_at = np.zeros(pool.size, np.int64)
    row_at[part.rows] = np.arange(len(part.rows))
    np.add.at(counts, offsets[row_at[part.changed]] + part.at + 1, part.changes)
    sums = np.cumsum(counts)
    starts = offsets[:-1]
    counts = sums - np.repeat(sums[starts] - counts[starts], widths)
    pool.check_counts(counts, int(part.ts[0]))
    # Versions are numbered key after key, each key's first one being what was there before.
    first_version = np.concatenate(([0], np.cumsum(part.sizes + 1)))
    inside = np.arange(len(counts)) - np.repeat(starts, widths)
    versions = np.repeat(first_version[own], widths) + inside
    cells = _Cells(np.repeat(part.rows, widths), versions, counts)
    return _version_differences(node, pool, part, cells, first_version)


def _version_differences(
    node: KeyRecompute, pool: _Pool, part: _Part, cells: _Cells, first_version: Places
) -> pa.Table:
    size = int(first_version[-1])
    is_first = np.zeros(size, np.bool_)
    is_first[first_version[:-1]] = True
    is_last = np.zeros(size, np.bool_)
    is_last[first_version[1:] - 1] = True
    came = np.zeros(size, np.int64)
    came[~is_first] = part.ts
    gone = np.zeros(size, np.int64)
    gone[~is_last] = part.ts
    # A version that was there before the batch is evaluated, and was never written by it.
    shown, of_version = _evaluate_cells(node, pool, cells, np.where(is_first, gone, came), size)
    numbers = number_rows(shown.columns, shown.num_rows)
    coming, going = np.flatnonzero(~is_first[of_version]), np.flatnonzero(~is_last[of_version])
    rows = np.concatenate([coming, going])
    stamps = np.concatenate([came[of_version[coming]], gone[of_version[going]]])
    signs = np.repeat([1, -1], [len(coming), len(going)])
    # Most rows of a version are those of the one before it: they cancel as numbers, and only what
    # is left is made.
    steps = steps_of(numbers[rows], stamps)
    sums = np.add.reduceat(signs[steps.order], steps.starts) if len(rows) else signs
    left = np.flatnonzero(sums)
    made = shown.take(rows[steps.rows[left]])
    made = made.append_column(TS, pa.array(steps.ts[left]))
    return made.append_column(COUNT, pa.array(sums[left]))


# -- the operator ----------------------------------------------------------------------------------


def _evaluate_cells(
    node: KeyRecompute, pool: _Pool, cells: _Cells, ts: Places, size: int
) -> tuple[pa.Table, Places]:
    """The rows that a node shows of each version, and the version of each."""
    _check_size(node, cells, size)
    lives = np.flatnonzero(cells.counts > 0)
    repeated = np.repeat(lives, cells.counts[lives])
    rows, versions = cells.rows[repeated], cells.versions[repeated]
    sorted_rows = sort_partitions(
        pool.rows.take(rows),
        node.order,
        versions,
        ts[versions],
        (pool.peers[rows], pool.places[rows]),
    )
    if node.is_grouped:
        return _grouped_rows(node, sorted_rows, size)
    columns = _labelled_columns(node, sorted_rows, np.arange(sorted_rows.size))
    for call in node.calls:
        frames = _call_frames(call, sorted_rows)
        columns[f"0.{call.name}"] = evaluate_call(call, sorted_rows, frames)
    return _shown_rows(node, columns, sorted_rows.size), sorted_rows.partitions


def _call_frames(call: WindowCall, rows: SortedRows) -> Frames:
    if call.function in RANKS or call.function in OFFSETS:
        return Frames(np.arange(rows.size), rows.starts, rows.ends)
    return frames_of(call.frame, rows)


def _grouped_rows(node: KeyRecompute, rows: SortedRows, size: int) -> tuple[pa.Table, Places]:
    """One row for each version that has rows; without keys for each version."""
    wanted = np.arange(size) if not node.keys else np.unique(rows.partitions)
    begin = np.searchsorted(rows.partitions, wanted, side="left")
    end = np.searchsorted(rows.partitions, wanted, side="right")
    frames = Frames(begin, begin, end)
    columns = _labelled_columns(node, rows, begin) if node.keys else {}
    for call in node.calls:
        columns[f"0.{call.name}"] = evaluate_call(call, rows, frames)
    return _shown_rows(node, columns, len(wanted)), wanted


def _labelled_columns(node: KeyRecompute, rows: SortedRows, at: Places) -> dict[str, Any]:
    names = node.keys if node.is_grouped else [field.name for field in node.read]
    taken = rows.rows.select(list(names)).take(at)
    return {f"0.{name}": taken[name] for name in names}


def _shown_rows(node: KeyRecompute, columns: dict[str, Any], size: int) -> pa.Table:
    table = pa.table({**columns, "": pa.nulls(size)})
    arrays = [evaluate_expression(output.expression, table) for output in node.outputs]
    return pa.table(arrays, names=[output.name for output in node.outputs])


def _check_size(node: KeyRecompute, cells: _Cells, size: int) -> None:
    if node.keys:
        return
    sizes = np.zeros(size, np.int64)
    np.add.at(sizes, cells.versions, cells.counts)
    if sizes.max(initial=0) > ROWS_MAX:
        raise too_many_rows()


def too_many_rows() -> UnsupportedError:
    """The error for rows that no key parts and that are too many to be evaluated at every ts."""
    return UnsupportedError(
        f"a window without PARTITION BY, or a LIMIT, reads more than {ROWS_MAX:,} rows",
        detail="every change computes all of them again",
        hint="add PARTITION BY, filter the rows below it, or compute it when reading the view",
    )
