"""Joins that are decided by how many rows there are: one at most, or none at all.

A correlated scalar subquery that does not aggregate is a left join with the one row of its key. If
no unique key says that there is one at most, a fold counts the rows of each key, and a row that
finds several is an error, as in Spark; a key that nobody asks for may have several.

`x NOT IN (SELECT y ...)` is an anti join by `x = y` that keeps nothing if some y is NULL, keeps no
row without x unless there is no y at all, and keeps everything then. Two facts about the whole
subquery stand beside the rows: whether it has a row, and whether it has a NULL. They hardly ever
change, so what they stand beside is not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from viewkeeper.engine.compile.drafts.core_draft import CoreDraft, filter_draft
from viewkeeper.engine.compile.drafts.graph_draft import GraphDraft, draft_over
from viewkeeper.engine.compile.drafts.join_draft import (
    KeyedSide,
    drop_null_test,
    join_inner,
    join_keyed,
    null_aware_equality,
    sides_of_equality,
)
from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    JavaNode,
    PlanExpression,
    PlanOperation,
)
from viewkeeper.engine.compile.refusal_reasons import refuse
from viewkeeper.stages.fold_calls import fold_result_type
from viewkeeper.view.definition import Field, Fold, FoldCall, Output
from viewkeeper.view.expression import Column, Compare, Expression, Literal


def join_single(graph: GraphDraft, left: CoreDraft, right: CoreDraft, side: KeyedSide) -> CoreDraft:
    """The left side with the columns of the one row of the right side that its key has."""
    keys = [_own_key(left, right, each) for each in side.conjuncts]
    if _is_unique(graph, right, keys):
        return join_keyed(graph, left, right, side)
    own = [key for key in dict.fromkeys(keys) if key is not None]
    if not own or None in keys:
        what = "a correlated scalar subquery that is no aggregate, nor correlated by equalities,"
        raise refuse(what, "aggregate in it, as by max()", side.java)
    values = [Attribute(key, "") for key in sorted(side.needed & right.shown.keys())]
    counted, rows, made = _count_rows(graph, right, own, values, side.java)
    needed = side.needed | counted.shown.keys()
    joined = join_keyed(graph, left, counted, replace(side, needed=needed))
    single: dict[int, PlanExpression] = {
        value.id: PlanOperation("SingleValue", (column, rows))
        for value, column in zip(values, made, strict=True)
    }
    return graph.seal_draft(joined, sorted(left.shown), single)


def _own_key(left: CoreDraft, right: CoreDraft, conjunct: PlanExpression) -> Attribute | None:
    """The column of the right side that a condition equates with the left one."""
    sides = sides_of_equality(left, right, conjunct)
    return sides[1] if sides is not None and isinstance(sides[1], Attribute) else None


def _is_unique(graph: GraphDraft, right: CoreDraft, keys: Sequence[Attribute | None]) -> bool:
    """Whether the right side has one row at most for values of these columns."""
    (place, *others) = right.places
    shown = [right.shown[key.id] for key in keys if key is not None]
    plain = [each for each in shown if isinstance(each, Attribute) and each.id in place.columns]
    names = frozenset(place.columns[each.id].name for each in plain)
    return not others and graph.is_unique(place.relation, names)


def _count_rows(
    graph: GraphDraft,
    right: CoreDraft,
    keys: Sequence[Attribute],
    values: Sequence[Attribute],
    java: JavaNode,
) -> tuple[CoreDraft, Attribute, list[Attribute]]:
    """A draft with one row per key, its number of rows, and per value the largest one."""
    found = graph.finish_draft(right, [right.shown[each.id] for each in (*keys, *values)])
    groups = tuple(dict.fromkeys(found.fields[: len(keys)]))
    for field in found.fields[len(keys) :]:
        if fold_result_type("max", [field.type]) != field.type:
            raise refuse(f"a scalar subquery of type {field.type}", None, java)
    calls = (
        FoldCall(graph.new_name(), "count", (), pa.int64()),
        *(FoldCall(graph.new_name(), "max", (f,), f.type) for f in found.fields[len(keys) :]),
    )
    made = [Field(call.name, call.type) for call in calls]
    outputs = tuple(Output(f.name, Column(0, f.name, f.type)) for f in (*groups, *made))
    relation = graph.add_node(Fold(graph.next_number, found.relation, groups, calls, outputs))
    graph.mark_unique(relation, [group.name for group in groups])
    columns = [graph.new_column() for _ in calls]
    fields = {key.id: field for key, field in zip(keys, found.fields, strict=False)}
    fields |= {column.id: field for column, field in zip(columns, made, strict=True)}
    return draft_over(relation, fields), columns[0], columns[1:]


def is_null_aware(left: CoreDraft, right: CoreDraft, side: KeyedSide) -> bool:
    """Whether an anti join is NOT IN over columns that may be NULL, and nothing else."""
    if side.kind != "anti" or len(side.conjuncts) != 1:
        return False
    kept = null_aware_equality(drop_null_test(left, right, side.conjuncts[0]))
    return kept is not None and sides_of_equality(left, right, kept) is not None


def join_null_aware(
    graph: GraphDraft, left: CoreDraft, right: CoreDraft, side: KeyedSide
) -> CoreDraft:
    """The rows of the left side whose value is not, and cannot be, one of the right side."""
    equality = null_aware_equality(side.conjuncts[0])
    assert equality is not None, "it is null-aware"
    sides = sides_of_equality(left, right, equality)
    assert sides is not None, "it equates both sides"
    mine, theirs = sides
    column = graph.new_column()
    right = graph.seal_draft(right, (), {column.id: right.compute_column(theirs)})
    facts, is_empty, has_null = _find_facts(graph, right, column)
    test = PlanOperation(equality.kind, (mine, column), equality.facts, equality.java)
    kept = join_keyed(graph, left, right, replace(side, conjuncts=[test]))
    known = PlanOperation("IsNotNull", (mine,), (("child", 0),))
    certain = PlanOperation("And", (known, PlanOperation("Not", (has_null,))))
    beside = join_inner(graph, kept, facts, ())
    return filter_draft(beside, [PlanOperation("Or", (is_empty, certain))])


def _find_facts(
    graph: GraphDraft, right: CoreDraft, column: Attribute
) -> tuple[CoreDraft, Attribute, Attribute]:
    """One row that says whether the right side is empty, and whether a column of it has a NULL."""
    found = graph.finish_draft(right, [right.shown[column.id]])
    calls = (
        FoldCall(graph.new_name(), "count", (), pa.int64()),
        FoldCall(graph.new_name(), "count", found.fields, pa.int64()),
    )
    rows, values = (Column(0, call.name, call.type) for call in calls)
    facts: tuple[Expression, ...] = (
        Compare("=", rows, Literal(0, pa.int64())),
        Compare(">", rows, values),
    )
    outputs = tuple(Output(graph.new_name(), fact) for fact in facts)
    fold = Fold(graph.next_number, found.relation, (), calls, outputs, is_global=True)
    columns = (graph.new_column(), graph.new_column())
    fields = {c.id: Field(o.name, pa.bool_()) for c, o in zip(columns, outputs, strict=True)}
    return draft_over(graph.add_node(fold), fields), *columns
