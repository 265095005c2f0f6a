"""The answer of a query from Arrow tables, by its plan.

Views are joined from left to right, each condition is applied as soon as all that it reads is
there, groups are folded by the functions that maintain reports, and rows are put in order by ranks
in Spark's order. What would make too many rows, or add up to more than the type that Spark adds in,
is left to Spark, and so is whatever makes an expression fail: Spark may not have come that far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.evaluate import evaluate_expression
from viewkeeper.delta.kernel import (
    canonical_floats,
    distinct_rows,
    matching_pairs,
    most_rows_of_key,
)
from viewkeeper.engine.query.arrow_plan import ArrowPlan, OrderTerm
from viewkeeper.engine.query.select_clauses import SparkNeeded
from viewkeeper.errors import ExpressionError
from viewkeeper.stages.fold import combine_partials, load_groups, pre_aggregate
from viewkeeper.stages.sorted_rows import order_ranks
from viewkeeper.view.definition import Fold, SortKey
from viewkeeper.view.expression import Call, Column, Expression, places_of

PAIRS_MAX = 5_000_000
"""A join that might make more rows is left to Spark."""
EXACT_DOUBLE, LONG = 1 << 53, 1 << 63
"""Spark adds integers up in a bigint, and for an average in a double."""


def answer_query(plan: ArrowPlan, tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of the answer; `tables` has those of the view at each place."""
    try:
        rows = _join_tables(plan, tables)
        if plan.fold is not None:
            rows = _fold_rows(plan, plan.fold, rows)
        if plan.having is not None:
            rows = rows.filter(evaluate_expression(plan.having, rows))
        columns = [_flat(evaluate_expression(o.expression, rows)) for o in plan.outputs]
        keys = [columns[t.by] if isinstance(t.by, int) else _key_of(t, rows) for t in plan.order]
    except ExpressionError as error:
        raise SparkNeeded("an expression fails for a row that Spark may not reach") from error
    if plan.is_distinct:
        columns = _distinct_columns(columns)
        keys = [columns[t.by] for t in plan.order if isinstance(t.by, int)]
    return _cut_rows(plan, columns, keys)


def _flat(values: Any) -> Any:
    """A column as one array."""
    if not isinstance(values, pa.ChunkedArray):
        return values
    return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)


def _key_of(term: OrderTerm, rows: pa.Table) -> Any:
    assert not isinstance(term.by, int), "an output is a key as it is"
    return _flat(evaluate_expression(term.by, rows))


# -- joins -----------------------------------------------------------------------------------------


def _join_tables(plan: ArrowPlan, tables: Sequence[pa.Table]) -> pa.Table:
    waiting = list(plan.conditions)
    rows = _filter_rows(_label_columns(plan, tables, 0), waiting, {0})
    for place in range(1, len(tables)):
        other = _filter_rows(_label_columns(plan, tables, place), waiting, {place})
        rows = _join_place(plan, rows, other, place)
        rows = _filter_rows(rows, waiting, set(range(place + 1)))
    return rows


def _label_columns(plan: ArrowPlan, tables: Sequence[pa.Table], place: int) -> pa.Table:
    names = plan.read[place]
    return tables[place].select(list(names)).rename_columns([f"{place}.{name}" for name in names])


def _filter_rows(rows: pa.Table, waiting: list[Expression], reached: set[int]) -> pa.Table:
    """The rows for which the conditions are true that read nothing else; these wait no more."""
    for condition in [each for each in waiting if places_of(each) <= reached]:
        rows = rows.filter(evaluate_expression(condition, rows))
        waiting.remove(condition)
    return rows


def _join_place(plan: ArrowPlan, rows: pa.Table, other: pa.Table, place: int) -> pa.Table:
    ours, theirs = [], []
    for equality in plan.equalities:
        sides = sorted((equality.left, equality.right), key=lambda column: column.place)
        if sides[1].place == place:
            ours.append((rows[sides[0].label], equality.null_safe))
            theirs.append((other[sides[1].label], equality.null_safe))
    keys = [sides.label for sides in _key_columns(plan, place)]
    if rows.num_rows * most_rows_of_key(other, keys) > PAIRS_MAX:
        raise SparkNeeded("a join might make too many rows")
    left, right = matching_pairs(ours, theirs, (rows.num_rows, other.num_rows))
    joined = rows.take(left)
    for name, column in zip(other.column_names, other.take(right).columns, strict=True):
        joined = joined.append_column(name, column)
    return joined


def _key_columns(plan: ArrowPlan, place: int) -> list[Column]:
    """The columns at a place by which it is joined to those before it."""
    pairs = [sorted((e.left, e.right), key=lambda column: column.place) for e in plan.equalities]
    return [own for _, own in pairs if own.place == place]


# -- groups ----------------------------------------------------------------------------------------


def _fold_rows(plan: ArrowPlan, fold: Fold, rows: pa.Table) -> pa.Table:
    columns = {each.name: _flat(evaluate_expression(each.expression, rows)) for each in plan.inputs}
    _check_sums(fold, columns)
    columns[TS] = pa.array(np.zeros(rows.num_rows, np.int64))
    columns[COUNT] = pa.array(np.ones(rows.num_rows, np.int64))
    partials = [pre_aggregate(fold, pa.table(columns))] if rows.num_rows else []
    try:
        found = load_groups(fold, combine_partials(fold, partials))
    except OverflowError as error:
        raise SparkNeeded("a sum is too large") from error
    names = [field.name for field in fold.fields]
    return found.select(names).rename_columns([f"0.{name}" for name in names])


def _check_sums(fold: Fold, columns: dict[str, Any]) -> None:
    for call in fold.calls:
        if call.function not in ("sum", "avg"):
            continue
        column = columns[call.arguments[0].name]
        if not pa.types.is_integer(column.type) or not len(column):
            continue
        ends = pc.min_max(column)
        reach = max(abs(ends["min"].as_py() or 0), abs(ends["max"].as_py() or 0))
        if reach * len(column) >= (LONG if call.function == "sum" else EXACT_DOUBLE):
            raise SparkNeeded(f"{call.function}() depends on the order of adding")


# -- order -----------------------------------------------------------------------------------------


def _distinct_columns(columns: list[Any]) -> list[Any]:
    names = [f"c{number}" for number in range(len(columns))]
    rows = distinct_rows(pa.table([canonical_floats(each) for each in columns], names=names))
    return [_flat(column) for column in rows.columns]


def _cut_rows(plan: ArrowPlan, columns: list[Any], keys: list[Any]) -> pa.Table:
    """The columns in their order, from the offset on up to the limit."""
    names = [output.name for output in plan.outputs]
    table = pa.Table.from_arrays(columns, names=names)
    if keys:
        labels = [f"o{number}" for number in range(len(keys))]
        order = [
            SortKey(label, term.descending, term.nulls_last)
            for label, term in zip(labels, plan.order, strict=True)
        ]
        ranks = order_ranks(pa.table(keys, names=labels), order)
        table = table.take(np.lexsort(ranks[::-1]))
    return table.slice(plan.offset, plan.limit)


def shown_rows(answer: pa.Table) -> list[tuple[object, ...]]:
    """The rows as Python values; timestamps with a zone as text, as Spark writes them."""
    columns = []
    for number, field in enumerate(answer.schema):
        values = answer.column(number)
        if field.type == pa.timestamp("us", "UTC"):
            own = pa.table([values], names=["0.v"])
            text = Call("cast", (Column(0, "v", field.type),), pa.string())
            values = evaluate_expression(text, own)
        columns.append(values.to_pylist())
    return list(zip(*columns, strict=True))
