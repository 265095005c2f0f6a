"""Values of uncorrelated scalar subqueries, and the rows that they stand beside.

A scalar is a node with exactly one row at every ts. An aggregation without groups is one as it is.
Any other query becomes two folds: its different values with their counts, and above them the one
value, NULL where there is none; more than one row is an error, as in Spark.

The rows beside which scalars stand are their *side*. When a scalar changes, all of its side is
evaluated again, so the side is one relation with a table: what is read of a stored node or of a
view of the project is there already, everything else is stored, reduced to the rows and columns
that are still needed. A core over a side and its scalars is joined with nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from viewkeeper.engine.compile.drafts.core_draft import CoreDraft
from viewkeeper.engine.compile.drafts.graph_draft import GraphDraft, NodeInput, draft_over
from viewkeeper.engine.compile.plan.plan_tree import (
    PlanAggregate,
    PlanConstant,
    PlanOperator,
    PlanProject,
    PlanScalar,
)
from viewkeeper.engine.compile.refusal_reasons import refuse
from viewkeeper.stages.fold_calls import fold_result_type
from viewkeeper.view.definition import (
    Constant,
    Core,
    Field,
    Fold,
    FoldCall,
    Output,
    Place,
    Relation,
    ViewDefinition,
)
from viewkeeper.view.expression import Call, Column, Expression

Build = Callable[[GraphDraft, PlanOperator, frozenset[int]], CoreDraft]


def build_scalar(graph: GraphDraft, plan: PlanScalar, build: Build) -> CoreDraft:
    """A draft over a node with one row, that shows the value."""
    if plan.value.id in graph.scalars:
        return graph.scalars[plan.value.id]
    (column,) = plan.input.output
    draft = build(graph, plan.input, frozenset({column.id}))
    found = graph.finish_draft(draft, [draft.shown[column.id]])
    if _has_one_row(plan.input):
        made = draft_over(found.relation, {plan.value.id: found.fields[0]})
    else:
        made = _single_value(graph, found, plan)
    graph.scalars[plan.value.id] = made
    return made


def _has_one_row(plan: PlanOperator) -> bool:
    """Whether a query has exactly one row, whatever its tables hold."""
    match plan:
        case PlanProject():
            return _has_one_row(plan.input)
        case PlanAggregate():
            return not plan.grouping
        case PlanConstant():
            return len(plan.rows) == 1
        case _:
            return False


def _single_value(graph: GraphDraft, found: NodeInput, plan: PlanScalar) -> CoreDraft:
    """The value of the one row that a query has, NULL if it has none."""
    (value,) = found.fields
    if fold_result_type("max", [value.type]) != value.type:
        raise refuse(f"a scalar subquery of type {value.type}", None, plan.java)
    counted = FoldCall(graph.new_name(), "count", (), pa.int64())
    rows = Field(counted.name, counted.type)
    shown = tuple(Output(f.name, Column(0, f.name, f.type)) for f in (value, rows))
    values = graph.add_node(Fold(graph.next_number, found.relation, (value,), (counted,), shown))
    total = FoldCall(graph.new_name(), "sum", (rows,), pa.int64())
    largest = FoldCall(graph.new_name(), "max", (value,), value.type)
    result: Expression = Column(0, largest.name, value.type)
    if not plan.takes_any:
        count = Column(0, total.name, total.type)
        result = Call("single_value", (result, count), value.type)
    shown = (Output(graph.new_name(), result),)
    calls = (largest,) if plan.takes_any else (total, largest)
    fold = Fold(graph.next_number, values, (), calls, shown, is_global=True)
    return draft_over(graph.add_node(fold), {plan.value.id: Field(shown[0].name, value.type)})


def stand_beside(
    graph: GraphDraft, below: CoreDraft, scalars: Sequence[CoreDraft], needed: frozenset[int]
) -> CoreDraft:
    """A side with scalars beside it; more of them, if it has some already."""
    side = below if below.scalars else _store_side(graph, below, needed)
    for scalar in scalars:
        (place,) = scalar.places
        if side.keys & place.columns.keys():
            # The same subquery was beside it before.
            shown = {**side.shown, **scalar.shown}
            side = replace(side, shown=shown)
            continue
        side = CoreDraft(
            (*side.places, place),
            side.conditions,
            {**side.shown, **scalar.shown},
            (*side.scalars, len(side.places)),
        )
    return side


def seal_beside(graph: GraphDraft, draft: CoreDraft) -> CoreDraft:
    """A draft that can be joined: a side with its scalars is a node of its own."""
    return graph.seal_draft(draft, sorted(draft.shown)) if draft.scalars else draft


def _store_side(graph: GraphDraft, draft: CoreDraft, needed: frozenset[int]) -> CoreDraft:
    """The draft as one relation that has a table, or whose rows the text gives."""
    if len(draft.places) == 1 and _is_at_hand(graph, draft.places[0].relation):
        return draft
    shown = [key for key in sorted(draft.shown) if key in needed]
    found = graph.finish_draft(draft, [draft.shown[key] for key in shown])
    number = found.relation.node
    assert number is not None, "a finished draft is a node"
    node = graph.nodes[number]
    if isinstance(node, Core):
        graph.nodes[number] = replace(node, stored=True)
    else:
        found = _store_columns(graph, found)
    fields = found.fields or graph.nodes[number].fields[:1]
    columns = dict(zip(shown or [graph.new_column().id], fields, strict=True))
    return draft_over(found.relation, columns)


def _store_columns(graph: GraphDraft, found: NodeInput) -> NodeInput:
    """A stored core with columns of a node that has no table, such as a union."""
    own = graph.nodes[found.relation.node or 0].fields[:1]
    names = list(dict.fromkeys(found.fields)) or list(own)
    place = Place(0, str(found.relation), found.relation, tuple(names))
    outputs = tuple(Output(f.name, Column(0, f.name, f.type)) for f in names)
    view = ViewDefinition(f"#{graph.next_number}", (place,), (), (), outputs, "", "")
    return replace(found, relation=graph.add_node(Core(graph.next_number, view, stored=True)))


def _is_at_hand(graph: GraphDraft, relation: Relation) -> bool:
    """Whether all rows of a relation can be read without asking a source."""
    if relation.node is None:
        return relation.is_own
    node = graph.nodes[relation.node]
    return isinstance(node, Fold | Constant) or (isinstance(node, Core) and node.stored)
