"""The reference carrier: deltas as Python dictionaries, to be believed at sight.

A delta is a tuple of column names and a mapping from row to count. Nothing here is fast; everything
is the definition. The Arrow kernel is tested against it, and it is what the laws are checked on.

    >>> ab = ReferenceDelta(("a",), {(1,): 2, (2,): 1})
    >>> Reference().add([ab, Reference().negate(ab)]).counts
    {}
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS, Term, TsCondition
from viewkeeper.delta.evaluate import evaluate_expression
from viewkeeper.view.definition import Output
from viewkeeper.view.expression import (
    Arithmetic,
    Call,
    Cast,
    Column,
    Compare,
    Expression,
    IsNull,
    Literal,
    Logic,
    Not,
    SparkSql,
    columns_of,
)
from viewkeeper.view.join_tree import JoinKey, KeyedMatch

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ReferenceDelta:
    """Columns and signed counts; no row has count zero."""

    columns: tuple[str, ...]
    counts: Mapping[Row, int]


def _sum_counts(columns: tuple[str, ...], items: Iterable[tuple[Row, int]]) -> ReferenceDelta:
    totals: defaultdict[Row, int] = defaultdict(int)
    for row, count in items:
        totals[row] += count
    return ReferenceDelta(columns, {row: count for row, count in totals.items() if count})


def _key_reader(delta: ReferenceDelta, on: Sequence[JoinKey]) -> Callable[[Row], Row | None]:
    """How the key of a row of a delta is read; None if nothing can be equal to it."""
    at = [delta.columns.index(key.have.label) for key in on]
    known = [i for i, key in zip(at, on, strict=True) if not key.null_safe]

    def read_key(row: Row) -> Row | None:
        for i in known:
            if row[i] is None:
                return None
        return tuple([row[i] for i in at])

    return read_key


JoinObserver = Callable[[ReferenceDelta, ReferenceDelta, Sequence[JoinKey], TsCondition], None]
"""Is called with what was joined under a condition on ts, where that gave rows."""


class Reference:
    """The algebra, by definition; `observe` sees every join that compensates."""

    def __init__(self, observe: JoinObserver | None = None) -> None:
        self._observe = observe

    def lift_table(self, table: pa.Table) -> ReferenceDelta:
        columns = tuple(name for name in table.column_names if name != COUNT)
        if not table.num_rows:
            return ReferenceDelta(columns, {})
        rows = zip(*(table[name].to_pylist() for name in columns), strict=True)
        counts: list[Any] = [1] * len(table)
        if COUNT in table.column_names:
            counts = table[COUNT].to_pylist()
        return _sum_counts(columns, zip(rows, counts, strict=True))

    def lower_delta(self, delta: ReferenceDelta) -> pa.Table:
        columns = {name: [row[i] for row in delta.counts] for i, name in enumerate(delta.columns)}
        return pa.table({**columns, COUNT: list(delta.counts.values())})

    def is_empty(self, delta: ReferenceDelta) -> bool:
        return not delta.counts

    def row_count(self, delta: ReferenceDelta) -> int:
        return len(delta.counts)

    def add(self, deltas: Sequence[ReferenceDelta]) -> ReferenceDelta:
        return _sum_counts(deltas[0].columns, (item for d in deltas for item in d.counts.items()))

    def negate(self, delta: ReferenceDelta) -> ReferenceDelta:
        return ReferenceDelta(delta.columns, {row: -count for row, count in delta.counts.items()})

    def label_columns(
        self, delta: ReferenceDelta, place: int, columns: Sequence[str]
    ) -> ReferenceDelta:
        kept = self.select_columns(delta, [*columns, *([TS] if TS in delta.columns else [])])
        return ReferenceDelta(
            tuple(n if n == TS else f"{place}.{n}" for n in kept.columns), kept.counts
        )

    def select_columns(self, delta: ReferenceDelta, columns: Sequence[str]) -> ReferenceDelta:
        if tuple(columns) == delta.columns:
            return delta
        at = [delta.columns.index(name) for name in columns]
        return _sum_counts(
            tuple(columns), ((tuple([r[i] for i in at]), n) for r, n in delta.counts.items())
        )

    def distinct_keys(self, partials: Sequence[ReferenceDelta], on: Sequence[JoinKey]) -> pa.Table:
        found = {key for p in partials for key in map(_key_reader(p, on), p.counts)}
        rows = [row for row in found if row is not None]
        columns = zip(*rows, strict=True) if rows else ((),) * len(on)
        arrays = [pa.array(c, key.want.type) for key, c in zip(on, columns, strict=True)]
        return pa.table(arrays, names=[key.want.name for key in on])

    def join(
        self,
        partial: ReferenceDelta,
        rows: ReferenceDelta,
        on: Sequence[JoinKey],
        when: TsCondition | None,
    ) -> ReferenceDelta:
        kept = [i for i, name in enumerate(rows.columns) if name != TS]
        our_key = _key_reader(partial, on)
        their_key = _key_reader(rows, [key.reversed_key() for key in on])
        matches: defaultdict[Row | None, list[tuple[Row, int]]] = defaultdict(list)
        for theirs, count in rows.counts.items():
            matches[their_key(theirs)].append((theirs, count))
        result = []
        for ours, n in partial.counts.items():
            key = our_key(ours)
            for theirs, count in matches[key] if key is not None else []:
                if when is None or when.is_met(_ts_of(partial, ours), _ts_of(rows, theirs)):
                    result.append((ours + tuple(theirs[i] for i in kept), n * count))
        joined = _sum_counts(partial.columns + tuple(rows.columns[i] for i in kept), result)
        if self._observe is not None and when is not None and joined.counts:
            self._observe(partial, rows, on, when)
        return joined

    def join_keyed(
        self, partial: ReferenceDelta, terms: Iterable[Term[ReferenceDelta]], keyed: KeyedMatch
    ) -> ReferenceDelta:
        every = list(terms)
        labels = [f"{keyed.place.index}.{name}" for name in keyed.place.columns]
        result = []
        for row, count in partial.counts.items():
            alone = ReferenceDelta(partial.columns, {row: 1})
            met = [
                self.select_columns(
                    self.join(alone, r, keyed.on, when), [*partial.columns, *labels]
                )
                for r, when in every
            ]
            found = self.where(self.add(met), keyed.conditions)
            bag = [(theirs[len(row) :], n) for theirs, n in found.counts.items()]
            shown = shown_by_match(keyed, bag)
            result += [(row + theirs, count * n) for theirs, n in shown]
        return _sum_counts(partial.columns + tuple(keyed.place.shown_labels), result)

    def take_distinct(self, delta: ReferenceDelta, columns: Sequence[str]) -> ReferenceDelta:
        kept = self.select_columns(self._once(delta), columns)
        return self._once(kept)

    def _once(self, delta: ReferenceDelta) -> ReferenceDelta:
        return ReferenceDelta(delta.columns, dict.fromkeys(delta.counts, 1))

    def where(self, delta: ReferenceDelta, conditions: Sequence[Expression]) -> ReferenceDelta:
        if not conditions:
            return delta

        def holds(row: Row) -> bool:
            values = dict(zip(delta.columns, row, strict=True))
            return all(evaluate_for_row(condition, values) is True for condition in conditions)

        return ReferenceDelta(
            delta.columns, {row: n for row, n in delta.counts.items() if holds(row)}
        )

    def project(self, delta: ReferenceDelta, outputs: Sequence[Output]) -> ReferenceDelta:
        def shown(row: Row) -> Row:
            values = dict(zip(delta.columns, row, strict=True))
            return (
                *(evaluate_for_row(output.expression, values) for output in outputs),
                values[TS],
            )

        names = (*(output.name for output in outputs), TS)
        return _sum_counts(names, ((shown(row), count) for row, count in delta.counts.items()))

    def consolidate(self, delta: ReferenceDelta) -> ReferenceDelta:
        return _sum_counts(delta.columns, delta.counts.items())


def shown_by_match(keyed: KeyedMatch, bag: Sequence[tuple[Row, int]]) -> Sequence[tuple[Row, int]]:
    """F: what a keyed place shows to a row that these rows of it match."""
    match keyed.join.kind:
        case "left":
            return bag or [((None,) * len(keyed.place.fields), 1)]
        case "semi":
            return [((), 1)] if bag else []
        case "anti":
            return [] if bag else [((), 1)]
        case "exists":
            return [((bool(bag),), 1)]


def _ts_of(delta: ReferenceDelta, row: Row) -> int:
    ts: int = row[delta.columns.index(TS)]
    return ts


def evaluate_for_row(expression: Expression, row: Mapping[str, Any]) -> Any:
    """The value of an expression for one row, in SQL's three-valued logic."""
    match expression:
        case Column():
            return row[expression.label]
        case Literal():
            return expression.value
        case Compare():
            return _compare_values(expression.operator, *_operand_values(expression, row))
        case Logic():
            left, right = _operand_values(expression, row)
            decided = expression.operator == "or"
            if left is decided or right is decided:
                return decided
            return None if left is None or right is None else not decided
        case Not():
            value = evaluate_for_row(expression.operand, row)
            return None if value is None else not value
        case IsNull():
            return evaluate_for_row(expression.operand, row) is None
        case Cast():
            value = evaluate_for_row(expression.operand, row)
            return (
                float(value)
                if value is not None and pa.types.is_floating(expression.type)
                else value
            )
        case Arithmetic():
            return _calculate_value(expression.operator, *_operand_values(expression, row))
        case Call():
            return _evaluate_call_for_row(expression, row)
        case SparkSql():
            raise AssertionError("the reference has no Spark")
        case _:
            assert_never(expression)


def _evaluate_call_for_row(call: Call, row: Mapping[str, Any]) -> Any:
    """A word of the kernel, by the kernel itself; Spark is the judge of those."""
    columns = sorted(columns_of(call), key=lambda column: column.label)
    values: dict[str, Any] = {
        column.label: pa.array([row[column.label]], column.type) for column in columns
    }
    one_row = pa.table(values or {"": pa.nulls(1)})
    return evaluate_expression(call, one_row).to_pylist()[0]


def _operand_values(node: Compare | Logic | Arithmetic, row: Mapping[str, Any]) -> tuple[Any, Any]:
    return evaluate_for_row(node.left, row), evaluate_for_row(node.right, row)


def _compare_values(operator: str, left: Any, right: Any) -> bool | None:
    if operator == "<=>":
        return bool(left == right)
    if left is None or right is None:
        return None
    outcome: dict[str, bool] = {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    return outcome[operator]


def _calculate_value(operator: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if operator == "*":
        return left * right
    return left + right if operator == "+" else left - right
