"""A load without Spark, for views over few rows: a batch that begins with nothing.

Before the batch every relation is empty; its changes are the rows that a scan finds, all with one
ts. Then the load is what maintenance computes for it, by the same functions: a sweep of each core,
folds, unions. Nobody is asked, since whatever a lookup would find was not there yet, and
compensation adds the changes. So there is no second way to join, and folds come out with the very
bits that maintenance takes away later.

It is for what a Spark job's fixed cost would dwarf. Scans are given up as soon as they bring more
rows than the limit, and a join that might make too many of them is not begun: then Spark loads the
view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import assert_never

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import LAST_TS
from viewkeeper.delta.kernel import Kernel, most_rows_of_key
from viewkeeper.engine.batch.generated_rows import split_rows
from viewkeeper.engine.batch.own_relations import (
    changes_of_rows,
    constant_rows,
    empty_rows,
    expand_rows,
    multiply_copies,
    renamed_rows,
)
from viewkeeper.engine.load.view_recomputation import read_signed_batches
from viewkeeper.maintain.sweep_family.batch_sweep import batch_sweep
from viewkeeper.maintain.view_change import run_sweep
from viewkeeper.stages.fold import combine_partials, load_groups, pre_aggregate, stored_schema_of
from viewkeeper.stages.key_recompute import evaluate_rows
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.queue import BatchChanges, RelationChanges
from viewkeeper.updates.source_protocol import COUNT, POSITION, TS, Answer, Lookup, Opener
from viewkeeper.view.definition import (
    Constant,
    Core,
    Expand,
    Field,
    Fold,
    Generate,
    KeyRecompute,
    Output,
    Relation,
    Union,
    ViewDefinition,
    relation_of_node,
)
from viewkeeper.view.expression import type_of
from viewkeeper.view.graph import needs_spark, stored_nodes
from viewkeeper.view.sweep_plan import SweepPlan, sweep_plan_of
from viewkeeper.warehouse.rows.view_state import sum_rows

FANOUT = 10
"""A join may make so many times the rows that a load may read."""


@dataclass(frozen=True, slots=True)
class ComputedTable:
    """The rows of a view's own table, or of one of its folds, each once, with `_count`."""

    schema: pa.Schema
    rows: pa.Table
    hidden: tuple[str, ...]


def can_load_inline(view: ViewDefinition) -> bool:
    """Whether the kernel evaluates all of a view and knows its types."""
    if view.graph is not None and view.graph.recomputed is not None:
        return False
    return view.schema is not None and not needs_spark(view)


def read_few_rows(
    relation: Relation, fields: Sequence[Field], opener: Opener, position: int, rows_max: int
) -> pa.Table | None:
    """The signed rows of a table as of a position; None if there are more than `rows_max`."""
    held: list[pa.RecordBatch] = []
    left = rows_max
    with closing(read_signed_batches(relation, fields, opener, position)) as batches:
        for batch in batches:
            left -= batch.num_rows
            if left < 0:
                return None
            held.append(batch)
    kinds = [(field.name, field.type) for field in fields]
    return pa.Table.from_batches(held, pa.schema([*kinds, (COUNT, pa.int64())]))


class InlineLoad:
    """The nodes of one view, computed one after the other from the rows of its relations."""

    def __init__(
        self, view: ViewDefinition, bases: Mapping[Relation, pa.Table], ts: int, rows_max: int
    ) -> None:
        """`bases` have signed rows, whose sum for each row is how often it occurs as of `ts`."""
        self._view = view
        self._ts = ts
        self._pairs_max = rows_max * FANOUT
        self._known = {relation: self._changes_of(rows) for relation, rows in bases.items()}

    def compute_tables(self, hidden: tuple[str, ...]) -> dict[str, ComputedTable] | None:
        """The rows of all tables of the view; None if some join might make too many.

        `hidden` are columns of the view that are stored and not shown.
        """
        view, graph = self._view, self._view.graph
        if graph is None:
            rows = self._join_places(view)
            return None if rows is None else {view.name: self._own_table(rows, hidden)}
        tables: dict[str, ComputedTable] = {}
        stored = stored_nodes(graph)
        for node in graph.nodes:
            relation = relation_of_node(node.number, view.name)
            is_root = node is graph.root
            name = view.name if is_root else relation.table
            if isinstance(node, Fold):
                tables[name] = self._fold_table(node)
                rows = tables[name].rows
            else:
                found = self._node_rows(node)
                if found is None:
                    return None
                rows = found
                if is_root:
                    tables[name] = self._own_table(rows, hidden)
                elif node.number in stored:
                    schema = pa.schema([(field.name, field.type) for field in node.fields])
                    tables[name] = _counted_table(rows, schema, ())
            shown = [field.name for field in node.fields]
            self._known[relation] = self._changes_of(rows.select([*shown, COUNT]))
        return tables

    def _own_table(self, rows: pa.Table, hidden: tuple[str, ...]) -> ComputedTable:
        schema = self._view.schema
        assert schema is not None, "the kernel knows its types"
        return _counted_table(rows, schema, hidden)

    def _fold_table(self, fold: Fold) -> ComputedTable:
        schema, hidden = stored_schema_of(fold)
        rows = self._known[fold.input].table.drop_columns([POSITION])
        partials = [pre_aggregate(fold, rows)] if rows.num_rows else []
        return ComputedTable(schema, load_groups(fold, combine_partials(fold, partials)), hidden)

    def _node_rows(
        self, node: Core | Union | Expand | Generate | Constant | KeyRecompute
    ) -> pa.Table | None:
        """The rows of a node that is no fold, with `_count`; None if there may be too many."""
        match node:
            case Core():
                rows = self._join_places(node.view)
                return None if rows is None else multiply_copies(node, rows)
            case Union():
                pieces = [
                    renamed_rows(self._counted_rows(relation), columns, node.fields)
                    for relation, columns in zip(node.inputs, node.columns, strict=True)
                ]
                return pa.concat_tables([empty_rows(node.fields), *pieces])
            case Expand():
                return expand_rows(node, self._counted_rows(node.input))
            case Generate():
                return split_rows(node, self._counted_rows(node.input))
            case KeyRecompute():
                return evaluate_rows(node, self._counted_rows(node.input), self._ts)
            case Constant():
                return constant_rows(node)
            case _:
                assert_never(node)

    def _join_places(self, view: ViewDefinition) -> pa.Table | None:
        """A sweep of all rows at once: nothing was there before them."""
        plan = sweep_plan_of(view)
        tables = {place.index: self._known[place.relation].table for place in view.places}
        if pairs_bound(plan, tables) > self._pairs_max:
            return None
        origins = {index: table for index, table in tables.items() if table.num_rows}
        changes = BatchChanges(self._known)
        sweep = batch_sweep(Kernel(), plan, origins, changes)
        rows, _ = run_sweep(sweep, self._answer_nothing)
        if rows is None:
            return empty_rows(tuple(Field(o.name, _kind_of(o)) for o in view.outputs))
        return rows.drop_columns([TS])

    def _answer_nothing(self, lookup: Lookup) -> Answer:
        known = self._known[lookup.relation].table
        rows = known.select(list(lookup.columns)).schema.empty_table()
        tail = known.select([*lookup.columns, COUNT, POSITION]).schema.empty_table()
        return Answer(rows, Cut(-1), LAST_TS, tail)

    def _counted_rows(self, relation: Relation) -> pa.Table:
        return self._known[relation].table.drop_columns([TS, POSITION])

    def _changes_of(self, rows: pa.Table) -> RelationChanges:
        """Signed rows as the changes of the load's ts, without those that cancel out."""
        stamps = pa.array(np.full(rows.num_rows, self._ts, np.int64))
        return changes_of_rows(Kernel().consolidate(rows.append_column(TS, stamps)))


def _counted_table(rows: pa.Table, schema: pa.Schema, hidden: tuple[str, ...]) -> ComputedTable:
    kept = pa.schema([*schema, (COUNT, pa.int64())])
    return ComputedTable(schema, sum_rows(rows.select(kept.names).cast(kept)), hidden)


def _kind_of(output: Output) -> pa.DataType:
    kind = type_of(output.expression)
    assert kind is not None, "the kernel knows its types"
    return kind


def pairs_bound(plan: SweepPlan, tables: Mapping[int, pa.Table]) -> int:
    """A number that the join of all places does not exceed, by how often keys occur.

    From each place as the first one: its rows, times the most rows that one key finds at every
    other place. The smallest of these bounds counts; in a star it is that of the fact table.
    """
    bounds = [_bound_from(plan, tables, place.index) for place in plan.view.places]
    return min(bound for bound in bounds if bound is not None)


def _bound_from(plan: SweepPlan, tables: Mapping[int, pa.Table], first: int) -> int | None:
    """The bound from one place; None if a keyed place would be met from below."""
    bound, reached = tables[first].num_rows, {first}
    edges = list(plan.tree.edges)
    while edges:
        edge = next(e for e in edges if e.parent in reached or e.child in reached)
        edges.remove(edge)
        if edge.parent in reached:
            reached.add(edge.child)
            found = most_rows_of_key(tables[edge.child], [key.want.name for key in edge.on])
            kind = None if edge.match is None else edge.match.join.kind
            bound *= found if kind is None else max(found, 1) if kind == "left" else 1
        elif edge.match is not None:
            return None
        else:
            reached.add(edge.parent)
            bound *= most_rows_of_key(tables[edge.parent], [key.have.name for key in edge.on])
    return bound
