"""Operators over whole rows: unions, full outer joins, comparisons of bags, ROLLUP's expansion.

A full outer join is a union: the left join, and what its right side has besides, with NULLs on
the left. INTERSECT ALL and EXCEPT ALL count the rows of both sides in a fold; a core above it shows
each row as often as the counts say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from viewkeeper.engine.compile.drafts.core_draft import CoreDraft, columns_of_places
from viewkeeper.engine.compile.drafts.graph_draft import ONE, GraphDraft, NodeInput, draft_over
from viewkeeper.engine.compile.drafts.join_draft import KeyedSide, join_keyed
from viewkeeper.engine.compile.expressions.expression_translation import certain_type_of
from viewkeeper.engine.compile.expressions.spark_types import arrow_type_of, type_text_of_arrow
from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    PlanExpand,
    PlanExpression,
    PlanLiteral,
)
from viewkeeper.engine.compile.refusal_reasons import refuse
from viewkeeper.view.definition import (
    Core,
    Expand,
    Field,
    Fold,
    FoldCall,
    Output,
    Place,
    Relation,
    Union,
    ViewDefinition,
)
from viewkeeper.view.expression import Arithmetic, Call, Column, Compare, Expression, Literal

TRUE, FALSE = PlanLiteral("true", "boolean"), PlanLiteral("false", "boolean")


@dataclass(frozen=True, slots=True)
class RowPart:
    """A draft with what is taken of it, in order."""

    draft: CoreDraft
    columns: tuple[PlanExpression, ...]


def unite_parts(graph: GraphDraft, parts: Sequence[RowPart], keys: Sequence[int]) -> CoreDraft:
    """The rows of all parts, with columns of these ids."""
    if len(set(keys)) != len(keys):
        raise refuse("a UNION whose first query shows one column twice", "give each a name")
    if not keys:
        keys, parts = [graph.new_column().id], [replace(part, columns=(ONE,)) for part in parts]
    inputs = [graph.finish_draft(part.draft, part.columns) for part in parts]
    relation, fields = add_union(graph, inputs)
    required = {key for at, key in enumerate(keys) if all(found.required[at] for found in inputs)}
    return draft_over(relation, dict(zip(keys, fields, strict=True)), required)


def add_union(graph: GraphDraft, inputs: Sequence[NodeInput]) -> tuple[Relation, tuple[Field, ...]]:
    """A union node over these inputs, and its columns."""
    fields = tuple(Field(graph.new_name(), field.type) for field in inputs[0].fields)
    columns = tuple(tuple(field.name for field in found.fields) for found in inputs)
    relations = tuple(found.relation for found in inputs)
    return graph.add_node(Union(graph.next_number, relations, columns, fields)), fields


def join_full(graph: GraphDraft, left: CoreDraft, right: CoreDraft, side: KeyedSide) -> CoreDraft:
    """A full outer join: the left join, and the rows of the right side that nothing matches."""
    left, right = _shared_side(graph, left), _shared_side(graph, right)
    both = join_keyed(graph, left, right, side)
    others = join_keyed(graph, right, left, replace(side, kind="anti"))
    keys = sorted(side.needed & (left.shown.keys() | right.shown.keys()))
    matched = tuple(both.shown[key] for key in keys)
    padded = tuple(
        others.shown[key] if key in right.shown else _null_of(graph, left, left.shown[key])
        for key in keys
    )
    return unite_parts(graph, [RowPart(both, matched), RowPart(others, padded)], keys)


def _shared_side(graph: GraphDraft, draft: CoreDraft) -> CoreDraft:
    """A side that two cores read: a relation, or a node of its own."""
    plain = all(isinstance(expression, Attribute) for expression in draft.shown.values())
    if len(draft.places) == 1 and plain:
        return draft
    return graph.seal_draft(draft, sorted(draft.shown))


def _null_of(graph: GraphDraft, draft: CoreDraft, expression: PlanExpression) -> PlanLiteral:
    """NULL of the type of an expression."""
    columns = columns_of_places(draft)
    kind = certain_type_of(graph.translator.translate_expression(expression, columns))
    return PlanLiteral(None, type_text_of_arrow(kind))


def compare_bags(
    graph: GraphDraft, kind: str, parts: tuple[RowPart, RowPart], keys: Sequence[int]
) -> CoreDraft:
    """INTERSECT ALL or EXCEPT ALL of two parts."""
    left, right = parts
    inputs = [
        graph.finish_draft(left.draft, (*left.columns, TRUE, FALSE)),
        graph.finish_draft(right.draft, (*right.columns, FALSE, TRUE)),
    ]
    relation, fields = add_union(graph, inputs)
    *groups, one, other = fields
    counts = [FoldCall(graph.new_name(), "count", (), pa.int64(), tag.name) for tag in (one, other)]
    shown = [*groups, *(Field(call.name, call.type) for call in counts)]
    outputs = tuple(Output(f.name, Column(0, f.name, f.type)) for f in shown)
    fold = Fold(graph.next_number, relation, tuple(groups), tuple(counts), outputs)
    counted = graph.add_node(fold)
    core = _copies_core(graph, kind, counted, shown)
    return draft_over(graph.add_node(core), dict(zip(keys, core.fields, strict=True)))


def _copies_core(graph: GraphDraft, kind: str, counted: Relation, fields: list[Field]) -> Core:
    """A core that shows rows as often as the last two columns say together."""
    *groups, left, right = (Column(0, field.name, field.type) for field in fields)
    fewer: Expression = Call("least", (left, right), pa.int64())
    predicate: Expression = Compare(">", fewer, Literal(0, pa.int64()))
    copies: Expression = fewer
    if kind == "Except":
        predicate = Compare(">", left, right)
        copies = Arithmetic("-", left, right, pa.int64())
    counter = Column(0, graph.new_name(), pa.int64())
    outputs = [Output(graph.new_name(), column) for column in groups]
    place = Place(0, str(counted), counted, tuple(fields))
    view = ViewDefinition(
        name=f"#{graph.next_number}",
        places=(place,),
        equalities=(),
        predicates=(predicate,),
        outputs=(*outputs, Output(counter.name, copies)),
        query="",
        text="",
    )
    return Core(graph.next_number, view, counter)


def expand_rows(graph: GraphDraft, below: CoreDraft, plan: PlanExpand) -> CoreDraft:
    """Each row once per projection; what must be computed for that is computed below."""
    rows = [tuple(below.compute_column(each) for each in row) for row in plan.projections]
    read = dict.fromkeys(e for row in rows for e in row if not isinstance(e, PlanLiteral))
    computed: list[PlanExpression] = [*read] or [ONE]
    found = graph.finish_draft(below, computed)
    columns = {
        expression: Column(0, field.name, field.type)
        for expression, field in zip(computed, found.fields, strict=True)
    }
    fields = tuple(Field(graph.new_name(), _kept_type(column)) for column in plan.output)
    projections = tuple(
        tuple(
            Output(field.name, columns[e] if e in columns else _literal(graph, e, field))
            for e, field in zip(row, fields, strict=True)
        )
        for row in rows
    )
    node = Expand(graph.next_number, found.relation, projections, fields)
    keys = [column.id for column in plan.output]
    return draft_over(graph.add_node(node), dict(zip(keys, fields, strict=True)))


def _literal(graph: GraphDraft, expression: PlanExpression, field: Field) -> Expression:
    if isinstance(expression, PlanLiteral) and expression.value is None:
        return Literal(None, field.type)
    return graph.translator.translate_expression(expression, {})


def _kept_type(column: Attribute) -> pa.DataType:
    kind = arrow_type_of(column.type)
    if kind is None:
        raise refuse(f"a column of type {column.type}")
    return kind
