"""Windows and limits as recomputes.

Keys, sort keys and arguments are columns of the recompute's input, so they are computed in the core
below. Below every window stands the sort of its completed order (`completed_order`): partition,
the user's order, all columns. A LIMIT is the rows whose number in the order is small enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from viewkeeper.engine.compile.drafts.call_draft import (
    RANKS,
    WHOLE,
    DraftCall,
    call_of_function,
    constant_of,
)
from viewkeeper.engine.compile.drafts.core_draft import CoreDraft
from viewkeeper.engine.compile.drafts.graph_draft import GraphDraft, draft_over
from viewkeeper.engine.compile.expressions.expression_translation import plain_type_of
from viewkeeper.engine.compile.expressions.spark_types import arrow_type_of
from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    JavaNode,
    PlanExpression,
    PlanLimit,
    PlanLiteral,
    PlanOperation,
    PlanOperator,
    PlanProject,
    PlanSort,
    PlanSortKey,
    PlanWindow,
    attributes_of,
)
from viewkeeper.engine.compile.refusal_reasons import refuse, refuse_operator
from viewkeeper.stages.window_calls import window_result_type
from viewkeeper.view.definition import (
    MONTHS,
    Field,
    KeyRecompute,
    Output,
    Relation,
    SortKey,
    WindowCall,
    WindowFrame,
)
from viewkeeper.view.expression import Column

DAY_US = 86_400_000_000
LIMIT_HINT = (
    "number the rows of each key by row_number() in a derived table, and join the first ones"
)
MONTHS_MAX = 120_000
"""So far apart are the dates that Spark can write."""
SUBQUERY_HINT = "put the query with the window into WITH, or into FROM as a derived table"


@dataclass(frozen=True, slots=True)
class DraftRecompute:
    """A recompute over columns of places. `shown` are columns of the input by their ids, `calls`
    those that are computed, by their ids."""

    keys: tuple[PlanExpression, ...]
    order: tuple[PlanSortKey, ...]
    completion: tuple[PlanSortKey, ...]
    shown: Mapping[int, PlanExpression]
    calls: Mapping[int, DraftCall]
    is_grouped: bool = False


def add_recompute(graph: GraphDraft, below: CoreDraft, draft: DraftRecompute) -> CoreDraft:
    """The recompute as a node over a draft, and a draft that reads it."""
    sort_keys = [*draft.order, *draft.completion]
    expressions = [
        *draft.keys,
        *(key.expression for key in sort_keys),
        *draft.shown.values(),
        *(each for call in draft.calls.values() for each in call.expressions),
    ]
    distinct = list(dict.fromkeys(expressions)) or [PlanLiteral("1", "integer")]
    found = graph.finish_draft(below, distinct)
    fields = dict(zip(distinct, found.fields, strict=True))
    required = dict(zip(distinct, found.required, strict=True))
    calls = {key: _named_call(graph, call, fields) for key, call in draft.calls.items()}
    columns = {key: fields[expression] for key, expression in draft.shown.items()}
    columns |= {key: Field(call.name, call.type) for key, call in calls.items()}
    shown = tuple({field.name: field for field in columns.values()}.values())
    node = KeyRecompute(
        graph.next_number,
        found.relation,
        tuple(sorted(set(fields.values()), key=lambda field: field.name)),
        tuple(dict.fromkeys(fields[key].name for key in draft.keys)),
        _sort_keys(draft.order, fields),
        _sort_keys(draft.completion, fields),
        tuple(calls.values()),
        tuple(Output(field.name, Column(0, field.name, field.type)) for field in shown),
        draft.is_grouped,
    )
    relation = graph.add_node(node)
    _mark_key(graph, relation, node)
    never_null = {key for key, expression in draft.shown.items() if required[expression]}
    return draft_over(relation, columns, never_null)


def _mark_key(graph: GraphDraft, relation: Relation, node: KeyRecompute) -> None:
    """A grouped recompute has one row for each key, if it shows it."""
    if node.is_grouped and {*node.keys} <= {output.name for output in node.outputs}:
        graph.mark_unique(relation, list(node.keys))


def _sort_keys(
    keys: Sequence[PlanSortKey], fields: Mapping[PlanExpression, Field]
) -> tuple[SortKey, ...]:
    """The sort keys over columns; a column that comes a second time decides nothing."""
    found: dict[str, SortKey] = {}
    for key in keys:
        name = fields[key.expression].name
        found.setdefault(name, SortKey(name, key.descending, key.nulls_last))
    return tuple(found.values())


def _named_call(
    graph: GraphDraft, call: DraftCall, fields: Mapping[PlanExpression, Field]
) -> WindowCall:
    arguments = tuple(fields[each] for each in call.arguments)
    types = [field.type for field in arguments]
    kind = arrow_type_of(call.type_text)
    if kind is None or window_result_type(call.function, types) != kind:
        listed = ", ".join(map(str, types))
        what = f"{call.function}({listed}) with a result of type {call.type_text}"
        raise refuse(what, "compute it when reading the view", call.java)
    return WindowCall(
        graph.new_name(),
        call.function,
        arguments,
        kind,
        call.frame,
        call.settings,
        _sort_keys(call.order, fields),
        call.ignores_nulls,
        call.is_distinct,
        fields[call.condition].name if call.condition is not None else None,
    )


# -- windows ---------------------------------------------------------------------------------------


def find_sort(plan: PlanOperator) -> PlanSort | None:
    """The order of an operator's rows, through projections that only drop columns."""
    while isinstance(plan, PlanProject) and _only_drops(plan):
        plan = plan.input
    return plan if isinstance(plan, PlanSort) else None


def _only_drops(plan: PlanProject) -> bool:
    return all(item.attribute == item.expression for item in plan.items)


def sort_below(plan: PlanWindow | PlanLimit) -> PlanSort:
    """The order of the rows of a window or a limit; it is refused if they have none."""
    if isinstance(plan, PlanLimit) and plan.limit is None:
        raise refuse_operator("Offset", plan.java)
    found = find_sort(plan.input)
    if found is None:
        if isinstance(plan, PlanLimit):
            raise refuse_operator("Limit", plan.java)
        raise refuse("a window function in a subquery of this form", SUBQUERY_HINT, plan.java)
    return found


def window_reads(plan: PlanWindow) -> frozenset[int]:
    """The columns that a window reads."""
    keys = [*plan.order, *sort_below(plan).order]
    expressions = [*plan.partition, *(key.expression for key in keys)]
    expressions += [item.expression for item in plan.items]
    return frozenset(key for each in expressions for key in attributes_of(each))


def recompute_window(
    graph: GraphDraft, below: CoreDraft, plan: PlanWindow, needed: frozenset[int]
) -> CoreDraft:
    """A window as a recompute over a draft; columns that are not needed are not shown."""
    calls = {
        item.attribute.id: _window_call(graph, below, plan, item.expression)
        for item in plan.items
        if item.attribute.id in needed
    }
    shown = {key: below.shown[key] for key in sorted(needed) if key in below.shown}
    if not calls:
        return replace(below, shown=shown)
    order = _compute_keys(below, plan.order)
    draft = DraftRecompute(
        tuple(_compute_parts(below, plan.partition)),
        order,
        _compute_keys(below, sort_below(plan).order[len(plan.partition) + len(plan.order) :]),
        shown,
        calls,
    )
    return add_recompute(graph, below, draft)


def _compute_parts(below: CoreDraft, expressions: Sequence[PlanExpression]) -> list[PlanExpression]:
    """Expressions over columns of places, but for constants, which part nothing."""
    made = [below.compute_column(each) for each in expressions]
    return [each for each in made if not isinstance(each, PlanLiteral)]


def _compute_keys(below: CoreDraft, order: Sequence[PlanSortKey]) -> tuple[PlanSortKey, ...]:
    made = [replace(key, expression=below.compute_column(key.expression)) for key in order]
    return tuple(key for key in made if not isinstance(key.expression, PlanLiteral))


def _window_call(
    graph: GraphDraft, below: CoreDraft, plan: PlanWindow, expression: PlanExpression
) -> DraftCall:
    assert isinstance(expression, PlanOperation)
    assert expression.kind == "WindowExpression"
    function, specification = expression.operands
    assert isinstance(function, PlanOperation)
    assert isinstance(specification, PlanOperation)
    frame = _frame_of(plan, specification.operands[-1], expression.java)
    condition = None
    if function.kind == "AggregateExpression":
        called, *conditions = function.operands
        condition = below.compute_column(conditions[0]) if conditions else None
        assert isinstance(called, PlanOperation)
        function = called
    call = call_of_function(graph, below, function)
    if call is None:
        name = function.java.get_node().prettyName()
        raise refuse(f"the window function {name}()", "compute it when reading", function.java)
    if function.kind in RANKS and not plan.order:
        # Spark wants an order where one is written: this is what it makes of a LIMIT.
        raise refuse("LIMIT in a correlated subquery", LIMIT_HINT, plan.java)
    if call.order and frame != WHOLE:
        what = f"{call.function}() over some rows of a partition only"
        raise refuse(what, "leave out ORDER BY in OVER (...)", function.java)
    return replace(call, frame=frame, condition=condition)


def _frame_of(plan: PlanWindow, frame: PlanExpression, java: JavaNode) -> WindowFrame:
    assert isinstance(frame, PlanOperation)
    assert frame.kind == "SpecifiedWindowFrame"
    is_range = dict(frame.facts)["frameType"] == "RangeFrame"
    start, end = (_bound_of(plan, bound, is_range, java) for bound in frame.operands)
    if start is None and end is None:
        return WHOLE
    return WindowFrame("range" if is_range else "rows", start, end)


def _bound_of(
    plan: PlanWindow, bound: PlanExpression, is_range: bool, java: JavaNode
) -> str | None:
    if isinstance(bound, PlanOperation) and bound.kind in (
        "UnboundedPreceding",
        "UnboundedFollowing",
    ):
        return None
    if isinstance(bound, PlanOperation) and bound.kind == "CurrentRow":
        return "0"
    text = constant_of(bound, java)
    if not is_range:
        return text
    assert not isinstance(bound, Attribute)
    kind = bound.java.type_text.strip('"')
    if kind == "interval":
        raise refuse("a RANGE frame of months and days", "count it in months or in days", java)
    if kind.startswith("interval") and ("year" in kind or "month" in kind):
        return _months_of(int(text), java)
    if kind.startswith("interval") and plain_type_of(plan.order[0].expression) == pa.date32():
        days, rest = divmod(int(text), DAY_US)
        assert not rest, "Spark adds whole days to a date only"
        return str(days)
    return text


def _months_of(count: int, java: JavaNode) -> str | None:
    if abs(count) > MONTHS_MAX:
        raise refuse("a RANGE frame of more than 10,000 years", "write UNBOUNDED", java)
    return f"{count}{MONTHS}" if count else "0"


# -- limits ----------------------------------------------------------------------------------------


def limit_reads(plan: PlanLimit) -> frozenset[int]:
    """The columns by which a limit puts rows in order."""
    order = sort_below(plan).order
    return frozenset(key for each in order for key in attributes_of(each.expression))


def recompute_limit(
    graph: GraphDraft, below: CoreDraft, plan: PlanLimit, needed: frozenset[int]
) -> CoreDraft:
    """The rows whose number in the order is behind those skipped, and within the limit."""
    order = _compute_keys(below, sort_below(plan).order)
    number = graph.new_column()
    shown = {key: below.shown[key] for key in sorted(needed) if key in below.shown}
    call = DraftCall("row_number", (), "integer")
    draft = DraftRecompute((), order, (), shown, {number.id: call})
    numbered = add_recompute(graph, below, draft)
    conditions: list[PlanExpression] = []
    if plan.skipped:
        conditions.append(_compare("GreaterThan", number, plan.skipped))
    assert plan.limit is not None, "without a limit it is refused"
    conditions.append(_compare("LessThanOrEqual", number, plan.skipped + plan.limit))
    return replace(numbered, conditions=(*numbered.conditions, *conditions))


def _compare(kind: str, number: Attribute, bound: int) -> PlanExpression:
    limited = min(bound, (1 << 31) - 1)
    return PlanOperation(kind, (number, PlanLiteral(str(limited), "integer")))
