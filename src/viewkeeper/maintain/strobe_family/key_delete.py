"""Deleting by key, and what a set of changes leaves once each key's own history is followed.

The Strobe family never asks what a deletion takes out of a view: the stored rows show a key of
every relation, so a deletion removes the rows with its key. The same is done to answers, and a row
that a set of changes first inserts and then deletes need not be looked at at all.

Equality is Spark's: NULL is a value like any other here (keys are compared, not joined), NaN equals
itself.

Citation: Zhuge, Garcia-Molina, Wiener: The Strobe Algorithms for Multi-Source Warehouse Consistency
(1996), sections 5.2 and 5.3.

Symbols: key_delete(MV, U) is `key_deletes`; key_delete(A, U) and key_delete*(Delta, U) are
`rows_without`; UL(T) with its pairs removed is `net_of`, IL(T) is `Net.inserted`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS, Algebra, D
from viewkeeper.maintain.unit_intake import Unit, changes_of
from viewkeeper.maintain.view_change import project_outputs
from viewkeeper.updates.view_actions import DeleteKeys, InsertMissing, ViewAction
from viewkeeper.view.definition import Relation
from viewkeeper.view.sweep_plan import SweepPlan

Keys = Mapping[int, tuple[tuple[str, str], ...]]
"""Per place: pairs of a key column of the relation and the stored view's column that shows it."""

Values = tuple[Any, ...]

Changes = Mapping[Relation, pa.Table]
"""Rows per relation, in the order in which they were changed."""


@dataclass(frozen=True, slots=True, eq=False)
class Net:
    """What changes leave: per key at most one deletion, of before, and one insertion, of after."""

    deleted: Changes
    inserted: Changes


def comparable_rows(table: pa.Table, columns: Sequence[str]) -> list[Values]:
    """The rows as tuples that are equal when the rows are.

    >>> first, second = comparable_rows(pa.table({"a": [float("nan")] * 2}), ["a"])
    >>> first == second
    True
    """
    lists = [[_canonical_value(value) for value in table[name].to_pylist()] for name in columns]
    return list(zip(*lists, strict=True)) if lists else [()] * table.num_rows


def _canonical_value(value: Any) -> Any:
    # A tuple takes the very same object for equal to itself, NaN too.
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def insertion_flags(rows: pa.Table) -> list[bool]:
    """Of every change whether it inserts its row; otherwise it deletes it."""
    return [count > 0 for (count,) in comparable_rows(rows, [COUNT])]


def single_changes(unit: Unit) -> list[Changes]:
    return [
        {relation: rows.slice(at, 1)}
        for relation, rows in changes_of(unit).items()
        for at in range(rows.num_rows)
    ]


def net_of(plan: SweepPlan, keys: Keys, changes: Changes) -> Net:
    """The changes without those that insert a row and delete it again."""
    deleted: dict[Relation, pa.Table] = {}
    inserted: dict[Relation, pa.Table] = {}
    places = {place.relation: place.index for place in plan.view.places}
    for relation, rows in changes.items():
        gone, come = _net_row_numbers(rows, [column for column, _ in keys[places[relation]]])
        if gone:
            deleted[relation] = rows.take(gone)
        if come:
            inserted[relation] = rows.take(come)
    return Net(deleted, inserted)


def _net_row_numbers(rows: pa.Table, key: Sequence[str]) -> tuple[list[int], list[int]]:
    """The row numbers of deletions and of insertions that are left when pairs are removed."""
    live: dict[Values, int] = {}
    gone: list[int] = []
    for at, (value, added) in enumerate(
        zip(comparable_rows(rows, key), insertion_flags(rows), strict=True)
    ):
        if added:
            live[value] = at
        elif live.pop(value, None) is None:
            gone.append(at)
    return gone, sorted(live.values())


def key_deletes(plan: SweepPlan, keys: Keys, deleted: Changes) -> list[ViewAction]:
    """What takes deleted rows out of the stored view, one change per place."""
    changes: list[ViewAction] = []
    for place in plan.view.places:
        rows = deleted.get(place.relation)
        if rows is not None and rows.num_rows:
            columns = tuple(column for column, _ in keys[place.index])
            names = [name for _, name in keys[place.index]]
            changes.append(DeleteKeys(tuple(names), rows.select(columns).rename_columns(names)))
    return changes


def rows_without(rows: pa.Table, columns: Sequence[str], taken: Collection[Values]) -> pa.Table:
    """The rows whose values in `columns` are not among those taken."""
    if not taken:
        return rows
    kept = [value not in taken for value in comparable_rows(rows, columns)]
    return rows.filter(pa.array(kept, pa.bool_()))


def stored_rows(algebra: Algebra[D], plan: SweepPlan, rows: D) -> pa.Table:
    """Joined rows as the view stores them, each once."""
    return algebra.lower_delta(project_outputs(algebra, plan, rows)).drop_columns([TS, COUNT])


def insert_changes(rows: pa.Table) -> list[ViewAction]:
    """The change that stores rows; none if there are none."""
    return [InsertMissing(rows)] if rows.num_rows else []


def changes_at_places(plan: SweepPlan, changes: Changes) -> dict[int, pa.Table]:
    """Changed rows by place, each counting once: a relation used twice has them at both places."""
    return {
        place.index: changes[place.relation].select(place.columns)
        for place in plan.view.places
        if place.relation in changes
    }
