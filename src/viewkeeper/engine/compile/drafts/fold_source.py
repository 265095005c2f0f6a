"""What a fold reads: rows, inner folds of distinct values, or a union of them.

Groups and arguments are columns of the fold's input, computed in a core. A call over DISTINCT
values reads an inner fold, which has one row for each group and value. Where an aggregation has
several such sets of values, or plain calls besides, its fold reads a union of them all; a boolean
column says for each call which rows of the union are its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from viewkeeper.engine.compile.drafts.core_draft import CoreDraft, columns_of_places
from viewkeeper.engine.compile.drafts.graph_draft import ONE, GraphDraft, draft_over
from viewkeeper.engine.compile.expressions.expression_translation import certain_type_of
from viewkeeper.engine.compile.expressions.spark_types import arrow_type_of, type_text_of_arrow
from viewkeeper.engine.compile.plan.plan_tree import Attribute, PlanExpression, PlanLiteral
from viewkeeper.engine.compile.refusal_reasons import refuse
from viewkeeper.stages.fold_calls import fold_result_type
from viewkeeper.view.definition import Field, Fold, FoldCall, Output, Relation, Union
from viewkeeper.view.expression import Column

TRUE, FALSE = PlanLiteral("true", "boolean"), PlanLiteral("false", "boolean")


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A call of an aggregate function over columns of places."""

    function: str
    arguments: tuple[PlanExpression, ...]
    type_text: str
    is_distinct: bool
    condition: PlanExpression | None


@dataclass(frozen=True, slots=True)
class SourceCall:
    """A call with its arguments and condition over the columns of its source."""

    call: AggregateCall
    arguments: tuple[PlanExpression, ...]
    condition: PlanExpression | None


@dataclass(frozen=True, slots=True)
class FoldSource:
    """A draft that some calls of an aggregation read, and the groups in it."""

    draft: CoreDraft
    groups: tuple[PlanExpression, ...]
    calls: tuple[SourceCall, ...]


def sources_of(
    graph: GraphDraft,
    below: CoreDraft,
    groups: tuple[PlanExpression, ...],
    calls: Sequence[AggregateCall],
) -> list[FoldSource]:
    """The rows themselves, if something needs them, and an inner fold per set of values."""
    sets: dict[tuple[tuple[PlanExpression, ...], PlanExpression | None], list[AggregateCall]] = {}
    for call in calls:
        if call.is_distinct:
            sets.setdefault((call.arguments, call.condition), []).append(call)
    # A group without a row that passes a condition is there all the same.
    complete = not groups or any(condition is None for _, condition in sets)
    plain = [call for call in calls if not call.is_distinct]
    needs_rows = bool(plain) or not sets or not complete
    rows = FoldRows(below, {})
    if len(sets) + needs_rows > 1:
        rows = _seal_rows(graph, below, groups, calls)
    sources = []
    if needs_rows:
        made = tuple(rows.source_call(call) for call in plain)
        sources.append(FoldSource(rows.draft, rows.find_all(groups), made))
    for (arguments, condition), members in sets.items():
        kept = rows.keep_rows(condition)
        sources.append(
            _distinct_source(graph, kept, rows.find_all(groups), rows.find_all(arguments), members)
        )
    return sources


@dataclass(frozen=True, slots=True)
class FoldRows:
    """The rows that are aggregated; `columns` are the expressions that they have as columns."""

    draft: CoreDraft
    columns: Mapping[PlanExpression, Attribute]

    def find_column(self, expression: PlanExpression) -> PlanExpression:
        found: PlanExpression = self.columns.get(expression, expression)
        return found

    def find_all(self, expressions: Sequence[PlanExpression]) -> tuple[PlanExpression, ...]:
        return tuple(self.find_column(each) for each in expressions)

    def source_call(self, call: AggregateCall) -> SourceCall:
        """A call over these rows."""
        condition = self.find_column(call.condition) if call.condition is not None else None
        return SourceCall(call, self.find_all(call.arguments), condition)

    def keep_rows(self, condition: PlanExpression | None) -> CoreDraft:
        """The rows for which a condition is true."""
        if condition is None:
            return self.draft
        conditions = (*self.draft.conditions, self.find_column(condition))
        return replace(self.draft, conditions=conditions)


def _seal_rows(
    graph: GraphDraft,
    below: CoreDraft,
    groups: Sequence[PlanExpression],
    calls: Sequence[AggregateCall],
) -> FoldRows:
    """The rows as a node that several sources read, so that they are joined once."""
    conditions = [call.condition for call in calls if call.condition is not None]
    arguments = [each for call in calls for each in call.arguments]
    expressions = list(dict.fromkeys([*groups, *arguments, *conditions]))
    found = graph.finish_draft(below, expressions)
    columns = {expression: graph.new_column() for expression in expressions}
    fields = {columns[e].id: f for e, f in zip(expressions, found.fields, strict=True)}
    return FoldRows(draft_over(found.relation, fields), columns)


def _distinct_source(
    graph: GraphDraft,
    below: CoreDraft,
    groups: tuple[PlanExpression, ...],
    arguments: tuple[PlanExpression, ...],
    calls: Sequence[AggregateCall],
) -> FoldSource:
    """An inner fold with one row for each group and value."""
    # Values that are never NULL, as in count(DISTINCT 2), are no argument; a group needs a column.
    keys = list(dict.fromkeys([*groups, *arguments])) or [ONE]
    found = graph.finish_draft(below, keys)
    shown = tuple(Output(f.name, Column(0, f.name, f.type)) for f in found.fields)
    fold = Fold(graph.next_number, found.relation, found.fields, (), shown)
    relation = graph.add_node(fold)
    at = {key: graph.new_column() for key in keys}
    columns = {at[key].id: field for key, field in zip(keys, found.fields, strict=True)}
    made = tuple(SourceCall(c, tuple(at[a] for a in arguments), None) for c in calls)
    return FoldSource(draft_over(relation, columns), tuple(at[group] for group in groups), made)


def fold_sources(
    graph: GraphDraft, sources: Sequence[FoldSource], calls: Sequence[AggregateCall]
) -> Fold:
    """A fold with these calls over its sources; its outputs are still missing."""
    made: dict[AggregateCall, FoldCall] = {}
    if len(sources) == 1:
        relation, groups = _fold_one(graph, sources[0], made)
    else:
        relation, groups = _fold_union(graph, sources, made)
    named = tuple(made[call] for call in calls)
    return Fold(graph.next_number, relation, groups, named, (), is_global=not groups)


def _fold_one(
    graph: GraphDraft, source: FoldSource, made: dict[AggregateCall, FoldCall]
) -> tuple[Relation, tuple[Field, ...]]:
    arguments = [each for call in source.calls for each in call.arguments]
    conditions = [call.condition for call in source.calls if call.condition is not None]
    expressions = list(dict.fromkeys([*source.groups, *arguments, *conditions]))
    found = graph.finish_draft(source.draft, expressions)
    fields = dict(zip(expressions, found.fields, strict=True))
    for call in source.calls:
        where = fields[call.condition].name if call.condition is not None else None
        picked = tuple(fields[each] for each in call.arguments)
        made[call.call] = _named_call(graph, call.call, picked, where)
    return found.relation, tuple(fields[each] for each in source.groups)


def _named_call(
    graph: GraphDraft, call: AggregateCall, arguments: tuple[Field, ...], where: str | None
) -> FoldCall:
    kind = arrow_type_of(call.type_text)
    if kind is None or fold_result_type(call.function, [f.type for f in arguments]) != kind:
        types = ", ".join(str(field.type) for field in arguments)
        raise refuse(f"{call.function}({types}) with a result of type {call.type_text}")
    return FoldCall(graph.new_name(), call.function, arguments, kind, where)


@dataclass(frozen=True, slots=True)
class _UnionColumn:
    """A column of the union that belongs to one source: an argument, or which rows count."""

    source: int
    expression: PlanExpression
    elsewhere: PlanLiteral


def _fold_union(
    graph: GraphDraft, sources: Sequence[FoldSource], made: dict[AggregateCall, FoldCall]
) -> tuple[Relation, tuple[Field, ...]]:
    columns = list(
        dict.fromkeys(
            c for number, source in enumerate(sources) for c in _columns_of(graph, number, source)
        )
    )
    branches = []
    for number, source in enumerate(sources):
        own = [c.expression if c.source == number else c.elsewhere for c in columns]
        branches.append(graph.finish_draft(source.draft, [*source.groups, *own]))
    fields = tuple(Field(graph.new_name(), field.type) for field in branches[0].fields)
    relation = graph.add_node(
        Union(
            graph.next_number,
            tuple(branch.relation for branch in branches),
            tuple(tuple(field.name for field in branch.fields) for branch in branches),
            fields,
        )
    )
    groups, others = fields[: len(sources[0].groups)], fields[len(sources[0].groups) :]
    named = dict(zip(columns, others, strict=True))
    for number, source in enumerate(sources):
        for call in source.calls:
            picked = tuple(named[_argument(graph, number, source, a)] for a in call.arguments)
            where = named[_UnionColumn(number, call.condition or TRUE, FALSE)].name
            made[call.call] = _named_call(graph, call.call, picked, where)
    return relation, groups


def _columns_of(graph: GraphDraft, number: int, source: FoldSource) -> list[_UnionColumn]:
    found = []
    for call in source.calls:
        found += [_argument(graph, number, source, each) for each in call.arguments]
        found.append(_UnionColumn(number, call.condition or TRUE, FALSE))
    return found


def _argument(
    graph: GraphDraft, number: int, source: FoldSource, expression: PlanExpression
) -> _UnionColumn:
    columns = columns_of_places(source.draft)
    kind = certain_type_of(graph.translator.translate_expression(expression, columns))
    return _UnionColumn(number, expression, PlanLiteral(None, type_text_of_arrow(kind)))
