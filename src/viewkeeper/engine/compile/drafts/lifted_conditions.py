"""Conditions in the ON of a keyed place that only Spark can evaluate, lifted into nodes below.

The kernel decides whether a row matches, so it must be able to evaluate all of an ON. What it
cannot evaluate and reads one side only is computed by a node of that side: a condition of the right
side is a filter there, anything else becomes a column. What reads both sides must be in the
kernel's words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from viewkeeper.engine.compile.drafts.core_draft import CoreDraft, columns_of_places
from viewkeeper.engine.compile.drafts.graph_draft import GraphDraft
from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    PlanExpression,
    PlanOperation,
    attributes_of,
    substitute_columns,
)


def is_decided_in_kernel(graph: GraphDraft, draft: CoreDraft) -> bool:
    """Whether the kernel evaluates all conditions of a draft."""
    columns = columns_of_places(draft)
    translate = graph.translator.translate_in_kernel
    return all(translate(condition, columns) is not None for condition in draft.conditions)


def lift_conditions(
    graph: GraphDraft, left: CoreDraft, right: CoreDraft, conjuncts: Sequence[PlanExpression]
) -> tuple[CoreDraft, CoreDraft, list[PlanExpression]]:
    """Both sides, and conditions over their shown columns that the kernel evaluates."""
    lifting = _Lifting(graph, left, right)
    kept = [made for each in conjuncts if (made := lifting.lift_conjunct(each)) is not None]
    return *lifting.finish_sides(), kept


class _Lifting:
    """The two sides of a join, and what is to be computed by them."""

    def __init__(self, graph: GraphDraft, left: CoreDraft, right: CoreDraft) -> None:
        self._graph = graph
        self._left, self._right = left, right
        self._shown = {**left.shown, **right.shown}
        both = CoreDraft((*left.places, *right.places), (), {})
        self._columns = columns_of_places(both)
        self._made: tuple[dict[int, PlanExpression], dict[int, PlanExpression]] = ({}, {})

    def lift_conjunct(self, conjunct: PlanExpression) -> PlanExpression | None:
        """The conjunct as the kernel evaluates it; None if it became a filter."""
        if self._is_in_kernel(conjunct):
            return conjunct
        if attributes_of(conjunct) <= self._right.shown.keys():
            added = self._right.compute_column(conjunct)
            self._right = replace(self._right, conditions=(*self._right.conditions, added))
            return None
        return self._lift_part(conjunct)

    def _is_in_kernel(self, expression: PlanExpression) -> bool:
        computed = substitute_columns(expression, self._shown)
        return self._graph.translator.translate_in_kernel(computed, self._columns) is not None

    def _lift_part(self, expression: PlanExpression) -> PlanExpression:
        if self._is_in_kernel(expression):
            return expression
        read = attributes_of(expression)
        for side, draft in enumerate((self._left, self._right)):
            if read <= draft.shown.keys():
                return self._new_column(side, draft.compute_column(expression))
        assert isinstance(expression, PlanOperation), "a column is in the kernel's words"
        operands = tuple(self._lift_part(each) for each in expression.operands)
        return replace(expression, operands=operands, call=None)

    def _new_column(self, side: int, computed: PlanExpression) -> Attribute:
        column = self._graph.new_column()
        self._made[side][column.id] = computed
        return column

    def finish_sides(self) -> tuple[CoreDraft, CoreDraft]:
        """The sides, with what they compute as columns of nodes."""
        sides = []
        for draft, made in zip((self._left, self._right), self._made, strict=True):
            sealed = self._graph.seal_draft(draft, sorted(draft.shown), made) if made else draft
            sides.append(sealed)
        return sides[0], sides[1]
