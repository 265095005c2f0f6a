"""The view change of one unit, and the strategies that decide who is asked when.

PVM asks for a view change that can be exchanged (Zhang, Ding, Rundensteiner 2003, section 3.5): the
order of the lookups does not matter for the result, because every answer is corrected on its own. A
*strategy* turns a unit into a sweep:

- `by_walk`: SWEEP's order, one relation after the other, lower places first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import TS, Algebra, D
from viewkeeper.maintain.compensation import Pending
from viewkeeper.maintain.intake import Taken
from viewkeeper.maintain.protocol import Add, Change
from viewkeeper.maintain.view_change import Sweep, shown, view_change
from viewkeeper.view.plan import SweepPlan

Strategy = Callable[[Algebra[D], SweepPlan, Taken, Pending], Sweep[D | None]]


def origins_of(plan: SweepPlan, taken: Taken) -> dict[int, pa.Table]:
    """The changes of a unit by place: a relation used twice has them at both places."""
    found: dict[int, pa.Table] = {}
    for place in plan.view.places:
        tables = [
            transaction.changes[place.relation]
            for transaction in taken.unit
            if place.relation in transaction.changes
        ]
        if tables:
            rows = pa.concat_tables(tables)
            found[place.index] = rows.append_column(TS, pa.array(np.full(len(rows), taken.ts)))
    return found


def by_walk(
    algebra: Algebra[D], plan: SweepPlan, taken: Taken, pending: Pending
) -> Sweep[D | None]:
    """One relation after the other, from the place that changed; a change of several places takes
    the plan's two passes."""
    origins = origins_of(plan, taken)
    stages = None
    if len(origins) == 1:
        stages = [[step] for step in plan.walk(*origins)]
    return (yield from view_change(algebra, plan, origins, pending, stages))


def unit_rows(algebra: Algebra[D], plan: SweepPlan, rows: D | None) -> list[Change]:
    """What a view change adds to the view; nothing if it has no rows."""
    return [] if rows is None else [Add(algebra.lower(shown(algebra, plan, rows)))]
