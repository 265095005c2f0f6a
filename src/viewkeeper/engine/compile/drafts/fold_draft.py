"""Aggregations as folds.

Groups and arguments are columns of the fold's input, so they are computed in the core below.
Expressions over groups and calls that the kernel evaluates are outputs of the fold; others are
shown by the draft above it. An aggregation with a call that needs its values in order, such as a
median, is a recompute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from viewkeeper.engine.compile.drafts.call_draft import (
    FUNCTIONS,
    ORDERED,
    DraftCall,
    call_of_function,
    joined_list_call,
)
from viewkeeper.engine.compile.drafts.core_draft import CoreDraft
from viewkeeper.engine.compile.drafts.fold_source import AggregateCall, fold_sources, sources_of
from viewkeeper.engine.compile.drafts.graph_draft import GraphDraft, draft_over
from viewkeeper.engine.compile.drafts.recompute_draft import DraftRecompute, add_recompute
from viewkeeper.engine.compile.expressions.expression_translation import certain_type_of
from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    PlanAggregate,
    PlanExpression,
    PlanLiteral,
    PlanOperation,
    attributes_of,
    replace_parts,
    walk_plan,
)
from viewkeeper.engine.compile.refusal_reasons import refuse
from viewkeeper.errors import UnsupportedError
from viewkeeper.view.definition import Field, Fold, Output
from viewkeeper.view.expression import Column

ORDER_HINT = "it depends on an order that rows do not have; use min(), max() or max_by()"
LIST_HINT = (
    "say the order: listagg(x, ',') WITHIN GROUP (ORDER BY x), or "
    "array_join(sort_array(collect_list(x)), ',')"
)
HINTS = {
    **dict.fromkeys(("First", "Last", "AnyValue"), ORDER_HINT),
    **dict.fromkeys(("CollectList", "CollectSet"), LIST_HINT),
    "HyperLogLogPlusPlus": "count(DISTINCT ...) is exact",
    "ApproximatePercentile": "percentile() is exact",
}
COUNT = PlanOperation("AggregateExpression", ())
ALIKE = frozenset({"Min", "Max", "BoolAnd", "BoolOr", "MinBy", "MaxBy"})
"""Functions for which DISTINCT changes nothing."""


def fold_aggregate(graph: GraphDraft, below: CoreDraft, plan: PlanAggregate) -> CoreDraft:
    """The aggregation as a fold over a draft, and a draft that reads it."""
    if needs_order(below, plan):
        return _recompute_aggregate(graph, below, plan)
    groups = tuple(dict.fromkeys(below.compute_column(each) for each in plan.grouping))
    calls = _calls_of(below, plan)
    if not groups and not calls:
        # The one row that is there needs a column.
        calls = {COUNT: AggregateCall("count", (), "long", False, None)}
    distinct = tuple(dict.fromkeys(calls.values()))
    fold = fold_sources(graph, sources_of(graph, below, groups, distinct), distinct)
    values = {each: fold.groups[groups.index(below.compute_column(each))] for each in plan.grouping}
    for operation, call in calls.items():
        named = fold.calls[distinct.index(call)]
        values[operation] = Field(named.name, named.type)
    return _show_items(graph, fold, plan, values)


def needs_order(below: CoreDraft, plan: PlanAggregate) -> bool:
    """Whether an aggregation has a call that needs all values of a group in order."""
    return any(
        part.kind in ORDERED or joined_list_call(below, part) is not None
        for item in plan.items
        for part in walk_plan(item.expression)
        if isinstance(part, PlanOperation)
    )


def _recompute_aggregate(graph: GraphDraft, below: CoreDraft, plan: PlanAggregate) -> CoreDraft:
    """The aggregation as a recompute over a draft, and a draft that computes its items from it."""
    groups = dict.fromkeys(below.compute_column(each) for each in plan.grouping)
    keys = {group: graph.new_column() for group in groups}
    parts: dict[PlanExpression, Attribute] = {
        each: keys[below.compute_column(each)] for each in plan.grouping
    }
    calls: dict[int, DraftCall] = {}
    for item in plan.items:
        for part, call in _ordered_calls(graph, below, item.expression):
            if part not in parts:
                parts[part] = graph.new_column()
                calls[parts[part].id] = call
    shown = {attribute.id: group for group, attribute in keys.items()}
    draft = DraftRecompute(tuple(groups), (), (), shown, calls, is_grouped=True)
    made = add_recompute(graph, below, draft)
    items = {item.attribute.id: replace_parts(item.expression, parts) for item in plan.items}
    return replace(made, shown=items)


def _ordered_calls(
    graph: GraphDraft, below: CoreDraft, expression: PlanExpression
) -> list[tuple[PlanExpression, DraftCall]]:
    """The calls in an item, the outermost of each."""
    if (joined := joined_list_call(below, expression)) is not None:
        return [(expression, joined)]
    if not isinstance(expression, PlanOperation):
        return []
    if expression.kind != "AggregateExpression":
        return [c for each in expression.operands for c in _ordered_calls(graph, below, each)]
    function, *conditions = expression.operands
    assert isinstance(function, PlanOperation)
    call = call_of_function(graph, below, function)
    if call is None or call.function in ("first_value", "last_value"):
        raise _refuse_aggregate(function)
    is_distinct = bool(dict(expression.facts)["isDistinct"]) and function.kind not in ALIKE
    condition = below.compute_column(conditions[0]) if conditions else None
    return [(expression, replace(call, is_distinct=is_distinct, condition=condition))]


def _refuse_aggregate(function: PlanOperation) -> UnsupportedError:
    hint = HINTS.get(function.kind, "aggregate when reading the view")
    called = function.java.get_node().prettyName()
    return refuse(f"the aggregate {called}()", hint, function.java)


def _calls_of(below: CoreDraft, plan: PlanAggregate) -> dict[PlanExpression, AggregateCall]:
    """The calls in the items, by where they stand."""
    found: dict[PlanExpression, AggregateCall] = {}
    for item in plan.items:
        for part in walk_plan(item.expression):
            if isinstance(part, PlanOperation) and part.kind == "AggregateExpression":
                found[part] = _call_of(below, part)
    return found


def _call_of(below: CoreDraft, expression: PlanOperation) -> AggregateCall:
    function, *conditions = expression.operands
    assert isinstance(function, PlanOperation)
    name = FUNCTIONS.get(function.kind)
    if name is None:
        raise _refuse_aggregate(function)
    facts = dict(expression.facts)
    arguments = tuple(below.compute_column(each) for each in function.operands)
    if name == "count":
        # A constant that is not NULL is there in every row.
        arguments = tuple(each for each in arguments if not _is_constant(each))
    condition = below.compute_column(conditions[0]) if conditions else None
    is_distinct = bool(facts["isDistinct"]) and function.kind not in ALIKE
    return AggregateCall(name, arguments, function.java.type_text, is_distinct, condition)


def _is_constant(expression: PlanExpression) -> bool:
    return isinstance(expression, PlanLiteral) and expression.value is not None


def _show_items(
    graph: GraphDraft, fold: Fold, plan: PlanAggregate, values: Mapping[PlanExpression, Field]
) -> CoreDraft:
    """Add the fold with outputs that the kernel evaluates; the draft above computes the rest."""
    keys = {expression: graph.new_column() for expression in values}
    columns = {
        keys[expression].id: Column(0, field.name, field.type)
        for expression, field in values.items()
    }
    outputs: list[Output] = []
    fields: dict[int, Field] = {}
    shown: dict[int, PlanExpression] = {}
    for item in plan.items:
        expression = replace_parts(item.expression, keys)
        made = graph.translator.translate_in_kernel(expression, columns)
        if made is None:
            shown[item.attribute.id] = expression
            continue
        name = made.name if isinstance(made, Column) else graph.new_name()
        outputs.append(Output(name, made))
        fields[item.attribute.id] = Field(name, certain_type_of(made))
    for key in sorted({key for each in shown.values() for key in attributes_of(each)}):
        outputs.append(Output(columns[key].name, columns[key]))
        fields[key] = Field(columns[key].name, columns[key].type)
    if not outputs:
        first = next(iter(columns.values()))
        outputs.append(Output(first.name, first))
        fields[next(iter(columns))] = Field(first.name, first.type)
    distinct = tuple({output.name: output for output in outputs}.values())
    relation, names = graph.add_shared(replace(fold, outputs=distinct))
    if all(group.name in names for group in fold.groups):
        graph.mark_unique(relation, [names[group.name] for group in fold.groups])
    read = {key: Field(names[field.name], field.type) for key, field in fields.items()}
    draft = draft_over(relation, read)
    return replace(draft, shown={**draft.shown, **shown})
