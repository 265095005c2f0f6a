"""The initial load of a simulated view: the join of all tables as they are at the start.

It is the same view change as everywhere, with every place bound to its rows, so that nobody is
asked. The checker does not rely on it: it recomputes the first state like all others.
"""

from __future__ import annotations

import pyarrow as pa

from viewkeeper.check.history.recorded_history import Row
from viewkeeper.delta.algebra import COUNT
from viewkeeper.delta.reference_carrier import Reference
from viewkeeper.maintain.query_terms import join_given_rows
from viewkeeper.simulate.scenario import Scenario, ScenarioTable
from viewkeeper.view.sweep_plan import SweepPlan


def load_initial_rows(scenario: Scenario, plan: SweepPlan) -> dict[Row, int]:
    """The rows of the view before the first transaction, as they are stored."""
    tables = {table.relation: table for table in scenario.tables}
    bound = {p.index: _arrow_table(tables[p.relation], p.columns) for p in plan.view.places}
    rows = join_given_rows(Reference(), plan, bound)
    return {row[:-1]: count for row, count in rows.counts.items()}


def _arrow_table(table: ScenarioTable, columns: tuple[str, ...]) -> pa.Table:
    types = {field.name: field.type for field in table.fields}
    at = {field.name: i for i, field in enumerate(table.fields)}
    arrays = [pa.array([row[at[name]] for row in table.rows], types[name]) for name in columns]
    counts = pa.array(list(table.rows.values()), pa.int64())
    return pa.table([*arrays, counts], names=[*columns, COUNT])
