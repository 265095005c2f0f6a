"""Probe: the rows of a view as of before the batch, for given keys.

An operator above a view change that is not linear (the greatest value of a group, say) needs the
rows that the view had for some keys before the batch. Nobody stores them. They are one more sweep:
the keys are origin rows of one more place, joined null-safe to the place that has the key columns,
and numbered after all others. So at the ts before the batch they need every change up to that ts,
at every place, and none of the batch.

What must hold:
1. At most m lookups for m relations.
2. NULL is a key like any other. Where a left place shows NULLs because nothing matches, no lookup
   of that place finds the row: such keys enter by another place, or by a scan of the root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import TS, Algebra, D
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.kernel import distinct_rows
from viewkeeper.maintain.compensation import KnownChanges
from viewkeeper.maintain.view_change import (
    PagedSweep,
    PagedSweeper,
    order_columns,
    project_outputs,
)
from viewkeeper.updates.answer_pages import Paging
from viewkeeper.view.expression import Column, Expression
from viewkeeper.view.join_tree import JoinKey
from viewkeeper.view.sweep_plan import SweepPlan, SweepStep


def probe_in_pages(
    algebra: Algebra[D],
    plan: SweepPlan,
    on: Sequence[str],
    keys: pa.Table,
    pending: KnownChanges,
    ts: int,
    paging: Paging,
) -> PagedSweep[D]:
    """The view's rows as of `ts` whose columns `on` are among `keys`, with their counts and that
    ts, in pieces; the same row may be in several.

    Each of `on` is an output that is a plain column of a place; `keys` has columns of these names.
    Without `on` it is the whole view. All changes after `ts` that an answer may contain are pending
    or in its tail.
    """
    probe = _begin_probe(algebra, plan, on, keys, ts)
    if probe is None:
        return

    def finish_piece(rows: D) -> D:
        return project_outputs(algebra, plan, probe.finish_rows(algebra, rows))

    sweeper = PagedSweeper(algebra, probe.plan, pending, paging, finish_piece)
    yield from sweeper.sweep_steps(probe.started, probe.steps)


@dataclass(frozen=True, slots=True, eq=False)
class _Probe(Generic[D]):
    """A probe that is about to begin: its origin rows, its steps, and what it was asked for."""

    plan: SweepPlan
    started: Mapping[int, D]
    steps: Sequence[SweepStep]
    columns: Mapping[str, Column]
    keys: pa.Table | None

    def finish_rows(self, algebra: Algebra[D], rows: D) -> D:
        """The joined rows that have one of the keys, as a whole key, without the keys."""
        if self.keys is not None:
            outside = len(self.plan.view.places)
            rows = _semijoin_keys(algebra, rows, self.keys, self.columns, outside)
        return order_columns(algebra, self.plan, rows)


def _begin_probe(
    algebra: Algebra[D], plan: SweepPlan, on: Sequence[str], keys: pa.Table, ts: int
) -> _Probe[D] | None:
    """None if there is nothing to find."""
    columns = _key_columns(plan, on)
    if on and keys.num_rows == 0:
        return None
    entry = _choose_entry(plan, columns, keys)
    outside = len(plan.view.places)
    origin = _origin_rows(keys, entry, ts)
    labelled = algebra.label_columns(algebra.lift_table(origin), outside, entry.names)
    inside = replace(plan, conditions=(*plan.conditions, *_conditions_above(plan, entry.place)))
    started = algebra.where(labelled, inside.decidable_conditions(frozenset(), before=None))
    steps = _steps_through(plan, entry, columns)
    unchecked = keys.select(list(on)) if set(entry.names) < set(on) else None
    return _Probe(inside, {outside: started}, steps, columns, unchecked)


@dataclass(frozen=True, slots=True)
class _ProbeEntry:
    """The place by which keys enter, and the key columns that are asked of it."""

    place: int
    names: tuple[str, ...]


def _key_columns(plan: SweepPlan, on: Sequence[str]) -> dict[str, Column]:
    outputs: dict[str, Expression] = {o.name: o.expression for o in plan.view.outputs}
    found = {}
    for name in on:
        column = outputs[name]
        assert isinstance(column, Column), f'"{name}" is no column of a place'
        found[name] = column
    return found


def _choose_entry(plan: SweepPlan, columns: Mapping[str, Column], keys: pa.Table) -> _ProbeEntry:
    """The place with the most key columns, then with the most different keys; else the root."""
    by_place: dict[int, dict[Column, str]] = {}
    for name, column in columns.items():
        by_place.setdefault(column.place, {}).setdefault(column, name)
    entries = [
        _ProbeEntry(place, tuple(names.values())) for place, names in sorted(by_place.items())
    ]
    usable = [entry for entry in entries if _finds_all(plan, entry, keys)]
    return max(
        usable,
        key=lambda entry: (len(entry.names), _distinct_keys(keys, entry).num_rows),
        default=_ProbeEntry(plan.tree.root, ()),
    )


def _finds_all(plan: SweepPlan, entry: _ProbeEntry, keys: pa.Table) -> bool:
    """Whether a lookup of the place finds every row of the view that has one of the keys."""
    keyed = plan.view.places[entry.place].keyed
    if keyed is None:
        return True
    unmatched = np.ones(keys.num_rows, np.bool_)
    for name in entry.names:
        unmatched &= pc.is_null(keys[name]).to_numpy()
    return keyed.kind == "left" and not unmatched.any()


def _distinct_keys(keys: pa.Table, entry: _ProbeEntry) -> pa.Table:
    return distinct_rows(keys.select(list(entry.names)))


def _origin_rows(keys: pa.Table, entry: _ProbeEntry, ts: int) -> pa.Table:
    """The keys with their ts; a scan has one row, which every row of the root meets."""
    if not entry.names:
        return pa.table({TS: pa.array([ts], pa.int64())})
    distinct = _distinct_keys(keys, entry)
    return distinct.append_column(TS, pa.array(np.full(distinct.num_rows, ts, np.int64)))


def _conditions_above(plan: SweepPlan, place: int) -> list[Expression]:
    """The ON of the left places that the rows of this place come through, its own included."""
    own = plan.match_at(place)
    met = [*([own] if own is not None else []), *plan.tree.matches_above(place)]
    return [condition for match in met for condition in match.conditions]


def _steps_through(
    plan: SweepPlan, entry: _ProbeEntry, columns: Mapping[str, Column]
) -> list[SweepStep]:
    """From the keys to their place, and on as its changes would walk that are real rows."""
    outside = len(plan.view.places)
    alone = frozenset({outside})
    on = tuple(
        JoinKey(Column(outside, name, columns[name].type), columns[name], null_safe=True)
        for name in entry.names
    )
    walk = [s for s in plan.steps if entry.place in s.origins and not s.is_own]
    first = SweepStep(outside, entry.place, on, alone)
    return [first, *(replace(step, origins=alone) for step in walk)]


def _semijoin_keys(
    algebra: Algebra[D], rows: D, keys: pa.Table, columns: Mapping[str, Column], outside: int
) -> D:
    """The rows whose whole key is among the keys."""
    wanted = algebra.lift_table(distinct_rows(keys))
    labelled = algebra.label_columns(wanted, outside, list(columns))
    on = [
        JoinKey(column, Column(outside, name, column.type), null_safe=True)
        for name, column in columns.items()
    ]
    return algebra.join(rows, labelled, on, None)
