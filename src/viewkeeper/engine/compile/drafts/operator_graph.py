"""Operators of Spark's plan as a graph.

Each operator gives a draft: joins, filters and projections grow the draft below them, everything
else finishes it as a node and begins a new draft over that node. `needed` are the columns that the
operators above read; others are not computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from viewkeeper.engine.compile.drafts.core_draft import CoreDraft, filter_draft, finish_core
from viewkeeper.engine.compile.drafts.fold_draft import fold_aggregate
from viewkeeper.engine.compile.drafts.generate_draft import generate_rows
from viewkeeper.engine.compile.drafts.graph_draft import GraphDraft, draft_over, rename_node
from viewkeeper.engine.compile.drafts.join_draft import KeyedKind, KeyedSide, join_inner, join_keyed
from viewkeeper.engine.compile.drafts.recompute_draft import (
    limit_reads,
    recompute_limit,
    recompute_window,
    sort_below,
    window_reads,
)
from viewkeeper.engine.compile.drafts.row_operations import (
    RowPart,
    compare_bags,
    expand_rows,
    join_full,
    unite_parts,
)
from viewkeeper.engine.compile.drafts.scalar_draft import build_scalar, seal_beside, stand_beside
from viewkeeper.engine.compile.drafts.single_row_join import (
    is_null_aware,
    join_null_aware,
    join_single,
)
from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    PlanAggregate,
    PlanBagOperation,
    PlanBeside,
    PlanConstant,
    PlanExpand,
    PlanExpression,
    PlanFilter,
    PlanGenerate,
    PlanJoin,
    PlanLeaf,
    PlanLimit,
    PlanOperator,
    PlanProject,
    PlanScalar,
    PlanSort,
    PlanUnion,
    PlanWindow,
    attributes_of,
    split_conjuncts,
)
from viewkeeper.view.definition import Constant, Field, Graph

KEYED: Mapping[str, KeyedKind] = {
    "LeftOuter": "left",
    "LeftSingle": "left",
    "RightOuter": "left",
    "LeftSemi": "semi",
    "LeftAnti": "anti",
    "ExistenceJoin": "exists",
}
Needed = frozenset[int]


def build_graph(graph: GraphDraft, plan: PlanOperator, names: Sequence[str]) -> Graph:
    """The graph of a plan, whose root has columns with these names."""
    draft = build_draft(graph, plan, frozenset(column.id for column in plan.output))
    shown = [draft.shown[column.id] for column in plan.output]
    bare = draft.bare_node
    node = bare.relation.node if bare is not None else None
    if node is not None and node == graph.next_number - 1 and _are_plain(shown):
        assert bare is not None
        old = [bare.columns[each.id].name for each in shown if isinstance(each, Attribute)]
        graph.nodes[node] = rename_node(graph.nodes[node], list(zip(names, old, strict=True)))
    else:
        outputs = list(zip(names, shown, strict=True))
        graph.add_node(finish_core(draft, graph.next_number, outputs, graph.translator))
    return Graph(tuple(graph.nodes))


def _are_plain(expressions: Sequence[PlanExpression]) -> bool:
    return all(isinstance(expression, Attribute) for expression in expressions)


def build_draft(graph: GraphDraft, plan: PlanOperator, needed: Needed) -> CoreDraft:
    """The draft that shows what an operator does."""
    match plan:
        case PlanLeaf():
            return _build_leaf(graph, plan)
        case PlanConstant():
            return _build_constant(graph, plan)
        case PlanFilter():
            below = build_draft(graph, plan.input, needed | attributes_of(plan.condition))
            return filter_draft(below, split_conjuncts(plan.condition))
        case PlanProject():
            return _build_project(graph, plan, needed)
        case PlanJoin():
            return _build_join(graph, plan, needed)
        case PlanAggregate():
            return _build_aggregate(graph, plan, needed)
        case PlanUnion():
            return _build_union(graph, plan)
        case PlanBagOperation():
            return _build_bag_operation(graph, plan)
        case PlanExpand():
            return _build_expand(graph, plan)
        case PlanGenerate():
            return _build_generate(graph, plan, needed)
        case PlanSort():
            # Who needs its order has looked at it; without one above it, it means nothing.
            return build_draft(graph, plan.input, needed)
        case PlanWindow():
            below = build_draft(graph, sort_below(plan).input, needed | window_reads(plan))
            return recompute_window(graph, below, plan, needed)
        case PlanLimit():
            below = build_draft(graph, sort_below(plan).input, needed | limit_reads(plan))
            return recompute_limit(graph, below, plan, needed)
        case PlanScalar():
            return build_scalar(graph, plan, build_draft)
        case PlanBeside():
            return _build_beside(graph, plan, needed)
        case _:
            assert_never(plan)


def _build_leaf(graph: GraphDraft, plan: PlanLeaf) -> CoreDraft:
    table = graph.tables[plan.table]
    columns, required = {}, set()
    for column, ordinal in zip(plan.output, plan.ordinals, strict=True):
        field = table.schema.field(ordinal)
        columns[column.id] = Field(field.name, field.type)
        if not field.nullable:
            required.add(column.id)
    return draft_over(table.relation, columns, required)


def _build_constant(graph: GraphDraft, plan: PlanConstant) -> CoreDraft:
    fields = tuple(Field(graph.new_name(), kind) for kind in plan.types)
    relation = graph.add_node(Constant(graph.next_number, fields, plan.rows))
    keys = [column.id for column in plan.output]
    return draft_over(relation, dict(zip(keys, fields, strict=True)))


def _build_project(graph: GraphDraft, plan: PlanProject, needed: Needed) -> CoreDraft:
    items = [item for item in plan.items if item.attribute.id in needed]
    read = frozenset(key for item in items for key in attributes_of(item.expression))
    below = build_draft(graph, plan.input, read)
    shown = {item.attribute.id: below.compute_column(item.expression) for item in items}
    return replace(below, shown=shown)


def _build_aggregate(graph: GraphDraft, plan: PlanAggregate, needed: Needed) -> CoreDraft:
    plan = replace(plan, items=tuple(i for i in plan.items if i.attribute.id in needed))
    expressions = [*plan.grouping, *(item.expression for item in plan.items)]
    read = frozenset(key for each in expressions for key in attributes_of(each))
    return fold_aggregate(graph, build_draft(graph, plan.input, read), plan)


def _build_join(graph: GraphDraft, plan: PlanJoin, needed: Needed) -> CoreDraft:
    conjuncts = split_conjuncts(plan.condition)
    read = needed | frozenset(key for each in conjuncts for key in attributes_of(each))
    left = seal_beside(graph, build_draft(graph, plan.left, read))
    right = seal_beside(graph, build_draft(graph, plan.right, read))
    if plan.kind in ("Inner", "Cross"):
        return join_inner(graph, left, right, conjuncts)
    exists = plan.exists.id if plan.exists is not None else None
    side = KeyedSide(KEYED.get(plan.kind, "left"), conjuncts, needed, exists, plan.java)
    if plan.kind == "FullOuter":
        return join_full(graph, left, right, side)
    if plan.kind == "LeftSingle":
        return join_single(graph, left, right, side)
    if is_null_aware(left, right, side):
        return join_null_aware(graph, left, right, side)
    if plan.kind == "RightOuter":
        left, right = right, left
    return join_keyed(graph, left, right, side)


def _build_beside(graph: GraphDraft, plan: PlanBeside, needed: Needed) -> CoreDraft:
    below = build_draft(graph, plan.input, needed)
    scalars = [build_draft(graph, scalar, frozenset({scalar.value.id})) for scalar in plan.scalars]
    if any(not scalar.takes_any for scalar in plan.scalars):
        return stand_beside(graph, below, scalars, needed)
    # Whether there is any row hardly ever changes: nothing is stored for it.
    below = seal_beside(graph, below)
    for scalar in scalars:
        below = join_inner(graph, below, scalar, ())
    return below


def _build_union(graph: GraphDraft, plan: PlanUnion) -> CoreDraft:
    parts = [_build_part(graph, each) for each in plan.inputs]
    return unite_parts(graph, parts, [column.id for column in plan.output])


def _build_part(graph: GraphDraft, plan: PlanOperator) -> RowPart:
    """An operator with all its columns in order."""
    draft = build_draft(graph, plan, frozenset(column.id for column in plan.output))
    return RowPart(draft, tuple(draft.shown[column.id] for column in plan.output))


def _build_bag_operation(graph: GraphDraft, plan: PlanBagOperation) -> CoreDraft:
    parts = (_build_part(graph, plan.left), _build_part(graph, plan.right))
    return compare_bags(graph, plan.kind, parts, [column.id for column in plan.output])


def _build_expand(graph: GraphDraft, plan: PlanExpand) -> CoreDraft:
    read = frozenset(key for row in plan.projections for each in row for key in attributes_of(each))
    return expand_rows(graph, build_draft(graph, plan.input, read), plan)


def _build_generate(graph: GraphDraft, plan: PlanGenerate, needed: Needed) -> CoreDraft:
    below = build_draft(graph, plan.input, needed | attributes_of(plan.generator))
    return generate_rows(graph, below, plan, needed)
