"""Uncorrelated scalar subqueries, taken out of the expressions that they stand in.

Spark computes the value of `(SELECT max(x) FROM t)` once for a whole query, so it is one row that
stands beside every row of what it is compared with. A subquery in an expression is read as a mark;
here each mark becomes a column, and the operator reads its input with the value beside it.

What an aggregation shows may combine its calls with such a value, as in `sum(x) / (SELECT ...)`.
Then the value stands beside the groups: the aggregation shows its calls, and a projection above
does the rest. Equal subqueries have one column, however often they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    JavaNode,
    PlanAggregate,
    PlanBeside,
    PlanExpression,
    PlanFilter,
    PlanItem,
    PlanJoin,
    PlanLiteral,
    PlanOperation,
    PlanOperator,
    PlanProject,
    PlanScalar,
    replace_parts,
    split_conjuncts,
    walk_plan,
)
from viewkeeper.engine.compile.refusal_reasons import refuse

MARK = "ScalarSubquery"
ReadSubquery = Callable[[JavaNode], PlanOperator]
"""Reads the plan of a subquery, to which all rules are still to be applied."""


class ScalarSubqueries:
    """The scalar subqueries of one query."""

    def __init__(self, read: ReadSubquery) -> None:
        self._read = read
        self._known: list[tuple[Any, PlanScalar]] = []
        # Below the ids that Spark gives, and those of columns that others make.
        self._keys = count(2 * 10**8)

    def filter_beside(self, plan: PlanFilter) -> PlanFilter | PlanProject:
        """A filter; conditions without a subquery come first."""
        conjuncts = split_conjuncts(plan.condition)
        marked = [each for each in conjuncts if _marks_in([each])]
        if not marked:
            return plan
        below = plan.input
        for each in conjuncts:
            if each not in marked:
                below = PlanFilter(below, each, plan.java)
        below, marked = self._put_beside(below, marked)
        for each in marked:
            below = PlanFilter(below, each, plan.java)
        return _show_columns(below, plan.output, plan.java)

    def project_beside(self, plan: PlanProject) -> PlanProject:
        """A projection with the values that its items read."""
        below, expressions = self._put_beside(plan.input, [i.expression for i in plan.items])
        items = tuple(
            PlanItem(item.attribute, each)
            for item, each in zip(plan.items, expressions, strict=True)
        )
        return replace(plan, input=below, items=items)

    def aggregate_beside(self, plan: PlanAggregate) -> PlanAggregate | PlanProject:
        """An aggregation with the values that its calls read, and above it those of its items."""
        expressions = [*plan.grouping, *(item.expression for item in plan.items)]
        if not _marks_in(expressions):
            return plan
        parts: dict[PlanExpression, Attribute] = {}
        for item in plan.items:
            self._find_parts(item.expression, plan.grouping, parts)
        below, read = self._put_beside(plan.input, [*plan.grouping, *parts])
        inner = tuple(
            PlanItem(parts[part], each)
            for part, each in zip(parts, read[len(plan.grouping) :], strict=True)
        )
        folded = PlanAggregate(below, tuple(read[: len(plan.grouping)]), inner, plan.java)
        outer = tuple(
            PlanItem(item.attribute, replace_parts(item.expression, parts)) for item in plan.items
        )
        return self.project_beside(PlanProject(folded, outer, plan.java))

    def _find_parts(
        self,
        expression: PlanExpression,
        grouping: Sequence[PlanExpression],
        found: dict[PlanExpression, Attribute],
    ) -> None:
        """The groups and calls that an item of an aggregation is computed from."""
        is_call = isinstance(expression, PlanOperation) and (
            expression.kind == "AggregateExpression"
        )
        if is_call or expression in grouping:
            if expression not in found:
                found[expression] = self._new_column()
        elif isinstance(expression, PlanOperation):
            for operand in expression.operands:
                self._find_parts(operand, grouping, found)

    def join_beside(self, plan: PlanJoin) -> PlanOperator:
        """A join with the values that its ON reads: above an inner join, else on its left side."""
        if plan.condition is None and plan.kind in ("LeftSemi", "LeftAnti", "ExistenceJoin"):
            return self._test_rows(plan)
        conjuncts = split_conjuncts(plan.condition)
        marked = [each for each in conjuncts if _marks_in([each])]
        if not marked:
            return plan
        if plan.kind in ("Inner", "Cross"):
            plain = [each for each in conjuncts if each not in marked]
            joined: PlanOperator = replace(plan, condition=_conjunction(plain))
            for each in marked:
                joined = self.filter_beside(PlanFilter(joined, each, plan.java))
            return joined
        if plan.kind in ("RightOuter", "FullOuter"):
            hint = "write it as a LEFT JOIN, or compare in a derived table"
            raise refuse("a scalar subquery in the ON of such a join", hint, plan.java)
        left, every = self._put_beside(plan.left, conjuncts)
        joined = replace(plan, left=left, condition=_conjunction(every))
        return _show_columns(joined, plan.output, plan.java)

    def _test_rows(self, plan: PlanJoin) -> PlanProject:
        """A semi, anti or existence join without a condition: whether there is any row."""
        one = PlanItem(self._new_column(), PlanLiteral("1", "integer"))
        scalar = PlanScalar(PlanProject(plan.right, (one,)), self._new_column(), True, plan.java)
        beside = PlanBeside(plan.left, (scalar,), plan.java)
        is_any = PlanOperation("IsNotNull", (scalar.value,), (("child", 0),))
        if plan.exists is not None:
            shown = [PlanItem(column, column) for column in plan.left.output]
            return PlanProject(beside, (*shown, PlanItem(plan.exists, is_any)), plan.java)
        test = replace(is_any, kind="IsNull") if plan.kind == "LeftAnti" else is_any
        return _show_columns(PlanFilter(beside, test, plan.java), plan.output, plan.java)

    def _new_column(self) -> Attribute:
        return Attribute(-next(self._keys), "")

    def _put_beside(
        self, below: PlanOperator, expressions: Sequence[PlanExpression]
    ) -> tuple[PlanOperator, list[PlanExpression]]:
        """The input with the values of all marks, and the expressions that read them."""
        marks = _marks_in(expressions)
        if not marks:
            return below, list(expressions)
        scalars = {mark: self._scalar_of(mark) for mark in marks}
        values: dict[PlanExpression, Attribute] = {
            mark: scalar.value for mark, scalar in scalars.items()
        }
        distinct = tuple({scalar.value.id: scalar for scalar in scalars.values()}.values())
        beside = PlanBeside(below, distinct, marks[0].java)
        return beside, [replace_parts(each, values) for each in expressions]

    def _scalar_of(self, mark: PlanOperation) -> PlanScalar:
        node = mark.java.get_node()
        if node.outerAttrs().size():
            hint = "correlate by equalities, or write it as a join"
            raise refuse("a correlated subquery of this form", hint, mark.java)
        plan = node.plan()
        for known, scalar in self._known:
            if known.sameResult(plan):
                return scalar
        value = Attribute(int(node.exprId().id()), "")
        below = _below_limit(plan)
        read = self._read(JavaNode(lambda: plan if below is None else below))
        scalar = PlanScalar(read, value, below is not None, mark.java)
        self._known.append((plan, scalar))
        return scalar


def _marks_in(expressions: Sequence[PlanExpression]) -> list[PlanOperation]:
    """The marks of subqueries, each once."""
    found = [
        part
        for expression in expressions
        for part in walk_plan(expression)
        if isinstance(part, PlanOperation) and part.kind == MARK
    ]
    return list(dict.fromkeys(found))


def _show_columns(plan: PlanOperator, columns: Sequence[Attribute], java: JavaNode) -> PlanProject:
    """An operator without the values that its conditions read."""
    return PlanProject(plan, tuple(PlanItem(column, column) for column in columns), java)


def _below_limit(plan: Any) -> Any | None:
    """What is below a LIMIT over rows that are all alike, as EXISTS without correlation has it."""
    if _class_of(plan) != "GlobalLimit" or _class_of(plan.child()) != "LocalLimit":
        return None
    below = plan.child().child()
    if _class_of(below) != "Project" or str(plan.limitExpr().sql()) == "0":
        return None
    items = below.projectList()
    alike = all(items.apply(at).references().isEmpty() for at in range(items.size()))
    return below if alike else None


def _class_of(java: Any) -> str:
    return str(java.getClass().getSimpleName())


def _conjunction(conjuncts: Sequence[PlanExpression]) -> PlanExpression | None:
    if not conjuncts:
        return None
    first, *others = conjuncts
    for other in others:
        first = PlanOperation("And", (first, other), (("left", 0), ("right", 1)))
    return first
