"""Aggregations as folds.

Groups and arguments are columns of the fold's input, so they are computed in the core below.
Expressions over groups and calls that the kernel evaluates are outputs of the fold; others are
shown by the draft above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from viewkeeper.engine.compile.drafts.core_draft import CoreDraft
from viewkeeper.engine.compile.drafts.fold_source import AggregateCall, fold_sources, sources_of
from viewkeeper.engine.compile.drafts.graph_draft import GraphDraft, draft_over
from viewkeeper.engine.compile.expressions.expression_translation import certain_type_of
from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    PlanAggregate,
    PlanExpression,
    PlanLiteral,
    PlanOperation,
    attributes_of,
    walk_plan,
)
from viewkeeper.engine.compile.refusal_reasons import refuse
from viewkeeper.view.definition import Field, Fold, Output
from viewkeeper.view.expression import Column

FUNCTIONS = {
    "Count": "count",
    "CountIf": "count_if",
    "Sum": "sum",
    "Average": "avg",
    "Min": "min",
    "Max": "max",
    "MinBy": "min_by",
    "MaxBy": "max_by",
    "BoolAnd": "bool_and",
    "BoolOr": "bool_or",
    "VariancePop": "var_pop",
    "VarianceSamp": "var_samp",
    "StddevPop": "stddev_pop",
    "StddevSamp": "stddev_samp",
    "CovPopulation": "covar_pop",
    "CovSample": "covar_samp",
    "Corr": "corr",
}
"""Spark's classes of aggregate functions that can be folded, with their names."""
ORDER_HINT = "it depends on an order that rows do not have; use min(), max() or max_by()"
HINTS = {
    **dict.fromkeys(("First", "Last", "AnyValue"), ORDER_HINT),
    **dict.fromkeys(("CollectList", "CollectSet", "ListAgg"), "collect when reading the view"),
    "HyperLogLogPlusPlus": "count(DISTINCT ...) is exact",
    "ApproximatePercentile": "compute it when reading the view",
}
COUNT = PlanOperation("AggregateExpression", ())
ALIKE = frozenset({"Min", "Max", "BoolAnd", "BoolOr", "MinBy", "MaxBy"})
"""Functions for which DISTINCT changes nothing."""


def fold_aggregate(graph: GraphDraft, below: CoreDraft, plan: PlanAggregate) -> CoreDraft:
    """The aggregation as a fold over a draft, and a draft that reads it."""
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
        hint = HINTS.get(function.kind, "aggregate when reading the view")
        called = function.java.get_node().prettyName()
        raise refuse(f"the aggregate {called}()", hint, function.java)
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
        expression = _replace_parts(item.expression, keys)
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


def _replace_parts(
    expression: PlanExpression, parts: Mapping[PlanExpression, Attribute]
) -> PlanExpression:
    if expression in parts:
        return parts[expression]
    if not isinstance(expression, PlanOperation):
        return expression
    operands = tuple(_replace_parts(each, parts) for each in expression.operands)
    call = expression.call
    if call is not None:
        spelled = tuple(_replace_parts(each, parts) for each in call.operands)
        call = replace(call, operands=spelled)
    return replace(expression, operands=operands, call=call)
