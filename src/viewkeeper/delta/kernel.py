"""The Arrow carrier: deltas as Arrow tables with a `_count` column.

The kernel that runs in Spark tasks and in the driver. A join is Arrow's hash join on the keys and
the row numbers alone; the payload is gathered by row number afterwards, so that a column's type
never matters to the join. Keys are first brought into a form in which Arrow's equality is Spark's:
floats as their canonical bits, null-safe columns as a flag and a filled value.

Counts are summed per row only where somebody asks for it: the laws do not need it.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS, Side, Term, TsCondition
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.evaluate import evaluate_expression
from viewkeeper.view.definition import Output
from viewkeeper.view.expression import Expression, columns_of
from viewkeeper.view.join_tree import JoinKey, KeyedMatch

SMALL = 50_000
"""Below this many rows Arrow's thread pool costs more than it gives."""

FEW_PAIRS = 1_024
"""So many pairs are compared one by one: that costs less than to plan a hash join."""


class Kernel:
    """The algebra on Arrow tables."""

    def lift_table(self, table: pa.Table) -> pa.Table:
        if COUNT in table.column_names:
            return table
        return table.append_column(COUNT, pa.array(np.ones(table.num_rows, np.int64)))

    def lower_delta(self, delta: pa.Table) -> pa.Table:
        return delta

    def is_empty(self, delta: pa.Table) -> bool:
        return delta.num_rows == 0

    def row_count(self, delta: pa.Table) -> int:
        return delta.num_rows

    def add(self, deltas: Sequence[pa.Table]) -> pa.Table:
        return pa.concat_tables(deltas)

    def negate(self, delta: pa.Table) -> pa.Table:
        return _replace_column(delta, COUNT, pc.negate(delta[COUNT]))

    def label_columns(self, delta: pa.Table, place: int, columns: Sequence[str]) -> pa.Table:
        extra = [name for name in (TS, COUNT) if name in delta.column_names]
        labels = [f"{place}.{name}" for name in columns]
        return delta.select([*columns, *extra]).rename_columns([*labels, *extra])

    def select_columns(self, delta: pa.Table, columns: Sequence[str]) -> pa.Table:
        return delta.select([*columns, COUNT])

    def distinct_keys(self, partials: Sequence[pa.Table], on: Sequence[JoinKey]) -> pa.Table:
        have = [partial.select([key.have.label for key in on]) for partial in partials]
        keys = pa.concat_tables(have).rename_columns([key.want.name for key in on])
        for key in on:
            if not key.null_safe:
                keys = keys.filter(pc.is_valid(keys[key.want.name]))
        return distinct_rows(keys)

    def join(
        self, partial: pa.Table, rows: pa.Table, on: Sequence[JoinKey], when: TsCondition | None
    ) -> pa.Table:
        return _extended_rows(partial, rows, _pairs_between(partial, rows, on, when))

    def join_keyed(
        self, partial: pa.Table, terms: Iterable[Term[pa.Table]], keyed: KeyedMatch
    ) -> pa.Table:
        possible = ((self._possible_rows(rows, keyed), when) for rows, when in terms)
        found = ((rows, _matching_pairs_of(partial, rows, when, keyed)) for rows, when in possible)
        met = list(found) if keyed.join.kind == "left" else []
        hit = _hit_rows(partial.num_rows, ((rows[COUNT], pairs) for rows, pairs in met or found))
        match keyed.join.kind:
            case "semi":
                return partial.filter(pa.array(hit))
            case "anti":
                return partial.filter(pa.array(~hit))
            case "exists":
                return partial.append_column(keyed.place.shown_labels[0], pa.array(hit))
            case "left":
                return self._padded_rows(partial, met, hit)

    def _possible_rows(self, rows: pa.Table, keyed: KeyedMatch) -> pa.Table:
        """The rows of a keyed place that can match; where none is shown, each key once."""
        rows = self.where(rows, keyed.own_conditions)
        if keyed.join.kind == "left":
            return rows
        read = {column.label for c in keyed.other_conditions for column in columns_of(c)}
        read |= {TS, COUNT, *(key.want.label for key in keyed.on)}
        return self.consolidate(rows.select([n for n in rows.column_names if n in read]))

    def _padded_rows(
        self, partial: pa.Table, met: Sequence[tuple[pa.Table, Pairs]], hit: Any
    ) -> pa.Table:
        """Partial rows with the rows that match them, or with NULLs where none does."""
        found = [_extended_rows(partial, rows, pairs) for rows, pairs in met]
        joined = pa.concat_tables(found)
        # Versions of a row that came and went cancel; left in, they would multiply at every step.
        if joined.num_rows > 2 * found[0].num_rows:
            joined = self.consolidate(joined)
        if hit.all():
            return joined
        alone = partial.filter(pa.array(~hit))
        for field in list(joined.schema)[alone.num_columns :]:
            alone = alone.append_column(field.name, pa.nulls(alone.num_rows, field.type))
        return pa.concat_tables([joined, alone])

    def take_distinct(self, delta: pa.Table, columns: Sequence[str]) -> pa.Table:
        values = pa.table([canonical_floats(delta[name]) for name in columns], names=list(columns))
        return self.lift_table(distinct_rows(values))

    def where(self, delta: pa.Table, conditions: Sequence[Expression]) -> pa.Table:
        for condition in conditions:
            delta = delta.filter(evaluate_expression(condition, delta))
        return delta

    def project(self, delta: pa.Table, outputs: Sequence[Output]) -> pa.Table:
        columns = [
            canonical_floats(evaluate_expression(output.expression, delta)) for output in outputs
        ]
        names = [output.name for output in outputs]
        return pa.table([*columns, delta[TS], delta[COUNT]], names=[*names, TS, COUNT])

    def consolidate(self, delta: pa.Table) -> pa.Table:
        if delta.num_rows <= 1:
            return delta.filter(pc.not_equal(delta[COUNT], 0))
        names = [name for name in delta.column_names if name != COUNT]
        grouped = _group_rows(delta, names, [(COUNT, "sum")])
        summed = grouped.rename_columns([*names, COUNT])
        return summed.filter(pc.not_equal(summed[COUNT], 0)).select(delta.column_names)


Pairs = tuple[Any, Any]
"""Row numbers of partial rows, and those of the rows that they meet."""


def _pairs_between(
    partial: pa.Table, rows: pa.Table, on: Sequence[JoinKey], when: TsCondition | None
) -> Pairs:
    """The pairs with equal keys whose ts meet the condition."""
    ours, theirs = matching_pairs(
        [(partial[key.have.label], key.null_safe) for key in on],
        [(rows[key.want.label], key.null_safe) for key in on],
        (partial.num_rows, rows.num_rows),
    )
    if when is None:
        return ours, theirs
    kept = _ts_mask(when, pc.take(partial[TS], ours), pc.take(rows[TS], theirs))
    return ours.filter(kept), theirs.filter(kept)


def _extended_rows(partial: pa.Table, rows: pa.Table, pairs: Pairs) -> pa.Table:
    """The pairs as rows; counts multiply, the ts is the partial row's."""
    left = partial.take(pairs[0])
    right = rows.drop_columns([TS] if TS in rows.column_names else []).take(pairs[1])
    count = pc.multiply_checked(left[COUNT], right[COUNT])
    for name in right.column_names:
        if name != COUNT:
            left = left.append_column(name, right[name])
    return _replace_column(left, COUNT, count)


def _matching_pairs_of(
    partial: pa.Table, rows: pa.Table, when: TsCondition | None, keyed: KeyedMatch
) -> Pairs:
    """The pairs for which all of a keyed place's ON is true, given that its own conditions are."""
    ours, theirs = _pairs_between(partial, rows, keyed.on, when)
    for condition in keyed.other_conditions:
        read = {COUNT, *(column.label for column in columns_of(condition))}
        values = partial.select([n for n in partial.column_names if n in read]).take(ours)
        for name in (n for n in rows.column_names if n in read and n != COUNT):
            values = values.append_column(name, pc.take(rows[name], theirs))
        kept = evaluate_expression(condition, values)
        ours, theirs = ours.filter(kept), theirs.filter(kept)
    return ours, theirs


def _hit_rows(size: int, met: Iterable[tuple[Any, Pairs]]) -> Any:
    """Which partial rows some row matches: a bag's counts add up to zero only if it is empty."""
    total = np.zeros(size)
    for counts, (ours, theirs) in met:
        weights = pc.take(counts, theirs).to_numpy()
        total += np.bincount(ours.to_numpy(), weights, minlength=size)
    return total != 0


def _group_rows(table: pa.Table, keys: list[str], sums: list[Any]) -> pa.Table:
    grouped = table.group_by(keys, use_threads=table.num_rows > SMALL).aggregate(sums)
    return grouped.select([*keys, *(f"{name}_{how}" for name, how in sums)])


def distinct_rows(table: pa.Table) -> pa.Table:
    """Each row once; a table without columns is left as it is.

    >>> distinct_rows(pa.table({"a": [1, 1, None, None]})).to_pydict()
    {'a': [1, None]}
    """
    if not table.num_columns or table.num_rows <= 1:
        return table
    if table.num_columns == 1 and not pa.types.is_floating(table.schema.types[0]):
        return pa.table([pc.unique(table.column(0))], table.column_names)
    return _group_rows(table, table.column_names, [])


def canonical_floats(values: Any) -> Any:
    """One bit pattern for zero and one for NaN, so that equal floats are the same value."""
    if not pa.types.is_floating(values.type):
        return values
    zeroed = pc.add(values, pa.scalar(0.0, values.type))
    return pc.if_else(pc.is_nan(zeroed), pa.scalar(float("nan"), values.type), zeroed)


def matching_pairs(
    left: Sequence[tuple[Any, bool]], right: Sequence[tuple[Any, bool]], sizes: tuple[int, int]
) -> tuple[Any, Any]:
    """The pairs of row numbers whose keys are equal; every pair where there is no key.

    Each key column comes with whether it is null-safe.
    """
    if not left:
        ours = np.repeat(np.arange(sizes[0]), sizes[1])
        return pa.array(ours), pa.array(np.tile(np.arange(sizes[1]), sizes[0]))
    if sizes[0] * sizes[1] <= FEW_PAIRS:
        return _compare_pairs(left, right, sizes)
    probe, names = _key_table(left, "ours", sizes[0])
    build, _ = _key_table(right, "theirs", sizes[1])
    found = probe.join(build, keys=names, join_type="inner", use_threads=max(sizes) > SMALL)
    found = found.combine_chunks()
    return _row_numbers(found, "ours"), _row_numbers(found, "theirs")


def most_rows_of_key(rows: pa.Table, key: Sequence[str]) -> int:
    """The most rows that have one key; all rows where there is none."""
    if not key or not rows.num_rows:
        return rows.num_rows
    return int(count_rows(rows.select(list(dict.fromkeys(key))))[1].max())


def count_rows(table: pa.Table) -> tuple[pa.Table, Any]:
    """Each row once, and how often it is there; floats that are equal may be rows apart.

    >>> rows, times = count_rows(pa.table({"a": [1, 2, 1, None]}))
    >>> rows["a"].to_pylist(), times.tolist()
    ([1, 2, None], [2, 1, 1])
    """
    if table.num_columns == 1:
        found = pc.value_counts(table.column(0))
        values, times = found.field("values"), found.field("counts")
        return pa.table([values], table.column_names), times.to_numpy(zero_copy_only=False)
    names = table.column_names
    grouped = table.group_by(names, use_threads=table.num_rows > SMALL)
    counted = grouped.aggregate([([], "count_all")])
    return counted.select(names), counted["count_all"].to_numpy()


def _compare_pairs(
    left: Sequence[tuple[Any, bool]], right: Sequence[tuple[Any, bool]], sizes: tuple[int, int]
) -> tuple[Any, Any]:
    """The same for few rows: every pair is compared."""
    ours = pa.array(np.repeat(np.arange(sizes[0]), sizes[1]))
    theirs = pa.array(np.tile(np.arange(sizes[1]), sizes[0]))
    for (one, null_safe), (other, _) in zip(left, right, strict=True):
        for mine, their in zip(
            _comparable_arrays(one, null_safe), _comparable_arrays(other, null_safe), strict=True
        ):
            equal = pc.equal(pc.take(mine, ours), pc.take(their, theirs))
            # NULL equals nothing, and a filter passes only what is true.
            ours, theirs = ours.filter(_one_chunk(equal)), theirs.filter(_one_chunk(equal))
    return ours, theirs


def _one_chunk(values: Any) -> Any:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _row_numbers(found: pa.Table, name: str) -> Any:
    column = found[name]
    return column.chunk(0) if column.num_chunks else pa.array([], pa.int64())


def _key_table(
    columns: Sequence[tuple[Any, bool]], number: str, size: int
) -> tuple[pa.Table, list[str]]:
    arrays = [
        array for values, null_safe in columns for array in _comparable_arrays(values, null_safe)
    ]
    names = [f"k{i}" for i in range(len(arrays))]
    return pa.table([*arrays, pa.array(np.arange(size))], names=[*names, number]), names


def _comparable_arrays(values: Any, null_safe: bool) -> list[Any]:
    """Arrays whose Arrow equality is Spark's equality of `values`."""
    if pa.types.is_floating(values.type):
        bits = pa.int64() if values.type == pa.float64() else pa.int32()
        values = pa.chunked_array(
            [c.view(bits) for c in _chunks_of(canonical_floats(values))], bits
        )
    if not null_safe:
        return [values]
    return [pc.is_null(values), pc.fill_null(values, _filler_of(values.type))]


def _chunks_of(values: Any) -> list[Any]:
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]


def _filler_of(kind: pa.DataType) -> pa.Scalar[Any]:
    if pa.types.is_string(kind):
        return pa.scalar("", kind)
    if pa.types.is_binary(kind):
        return pa.scalar(b"", kind)
    if pa.types.is_boolean(kind):
        return pa.scalar(False)
    if pa.types.is_decimal(kind):
        return pa.scalar(decimal.Decimal(0), kind)
    return pa.scalar(0, pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind)


def _ts_mask(when: TsCondition, ours: Any, theirs: Any) -> Any:
    if when.side is Side.SAME:
        return pc.and_(pc.equal(theirs, ours), pa.scalar(when.tie))
    later = when.side is Side.LATER
    if when.tie:
        return pc.greater_equal(theirs, ours) if later else pc.less_equal(theirs, ours)
    return pc.greater(theirs, ours) if later else pc.less(theirs, ours)


def _replace_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)
