"""Calls of window functions and aggregates, over columns of places, as a recompute has them.

A function is known by its class in Spark. Arguments that must be constants become settings; all
others are columns. Functions whose value Spark leaves open are refused: a list without an order,
the mode of several values that are there equally often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from viewkeeper.engine.compile.drafts.core_draft import CoreDraft, columns_of_places
from viewkeeper.engine.compile.drafts.graph_draft import GraphDraft
from viewkeeper.engine.compile.expressions.expression_translation import certain_type_of
from viewkeeper.engine.compile.expressions.spark_types import type_text_of_arrow
from viewkeeper.engine.compile.plan.plan_reader import constant_text, sort_key_of
from viewkeeper.engine.compile.plan.plan_tree import (
    NOWHERE,
    Attribute,
    JavaNode,
    PlanExpression,
    PlanLiteral,
    PlanOperation,
    PlanSortKey,
    attributes_of,
)
from viewkeeper.engine.compile.refusal_reasons import refuse
from viewkeeper.view.definition import WindowFrame

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
RANKS = {
    "RowNumber": "row_number",
    "Rank": "rank",
    "DenseRank": "dense_rank",
    "PercentRank": "percent_rank",
    "CumeDist": "cume_dist",
    "NTile": "ntile",
}
PICKS = {
    "Lag": "lag",
    "Lead": "lead",
    "NthValue": "nth_value",
    "First": "first_value",
    "Last": "last_value",
    "FirstValue": "first_value",
    "LastValue": "last_value",
    "AnyValue": "first_value",
}
WHOLE = WindowFrame("range")
"""All rows of a partition."""


@dataclass(frozen=True, slots=True)
class DraftCall:
    """A call over columns of places: what a recompute evaluates for an item."""

    function: str
    arguments: tuple[PlanExpression, ...]
    type_text: str
    frame: WindowFrame = WHOLE
    settings: tuple[str, ...] = ()
    order: tuple[PlanSortKey, ...] = ()
    ignores_nulls: bool = False
    is_distinct: bool = False
    condition: PlanExpression | None = None
    java: JavaNode = NOWHERE

    @property
    def expressions(self) -> list[PlanExpression]:
        """Everything that it reads."""
        found = [*self.arguments, *(key.expression for key in self.order)]
        return found if self.condition is None else [*found, self.condition]


def call_of_function(
    graph: GraphDraft, below: CoreDraft, function: PlanOperation
) -> DraftCall | None:
    """A function over columns of places; None if it is not known."""
    kind, facts, java = function.kind, dict(function.facts), function.java
    operands = [below.compute_column(each) for each in function.operands]
    if kind in RANKS:
        settings = (constant_of(operands[0], java),) if kind == "NTile" else ()
        return DraftCall(RANKS[kind], (), java.type_text, settings=settings, java=java)
    if kind in PICKS:
        arguments: tuple[PlanExpression, ...] = (operands[0],)
        settings = ()
        if kind in ("Lag", "Lead"):
            default = _default_of(graph, below, operands)
            arguments, settings = (operands[0], default), (constant_of(operands[1], java),)
        elif kind == "NthValue":
            settings = (constant_of(operands[1], java),)
        ignores = bool(facts.get("ignoreNulls", False))
        name, text = PICKS[kind], java.type_text
        return DraftCall(name, arguments, text, settings=settings, ignores_nulls=ignores, java=java)
    if kind in FUNCTIONS:
        if kind == "Count":
            operands = [e for e in operands if not isinstance(e, PlanLiteral) or e.value is None]
        return DraftCall(FUNCTIONS[kind], tuple(operands), java.type_text, java=java)
    return _ordered_call(operands, function)


def constant_of(expression: PlanExpression, java: JavaNode) -> str:
    """A number that the text gives."""
    if isinstance(expression, Attribute) or attributes_of(expression):
        raise refuse("an argument of a window function that is no constant", None, java)
    text = constant_text(expression)
    if text is None:
        raise refuse("an argument of a window function that is NULL", "write a number", java)
    return text


def _default_of(
    graph: GraphDraft, below: CoreDraft, operands: Sequence[PlanExpression]
) -> PlanExpression:
    """What lag and lead show where there is no row; NULL of the type of the value."""
    default = operands[2]
    if isinstance(default, PlanLiteral) and default.value is None:
        columns = columns_of_places(below)
        made = graph.translator.translate_expression(operands[0], columns)
        return PlanLiteral(None, type_text_of_arrow(certain_type_of(made)))
    return default


# -- aggregates that need an order -----------------------------------------------------------------

ORDERED = frozenset({"Percentile", "PercentileCont", "Median", "PercentileDisc", "Mode", "ListAgg"})
HALF = "0.5"
LIST_HINT = "add the listed value to the ORDER BY of WITHIN GROUP, so that its order is complete"


def _ordered_call(operands: Sequence[PlanExpression], function: PlanOperation) -> DraftCall | None:
    """An aggregate over sorted values; None if it is not known."""
    kind, facts, java = function.kind, dict(function.facts), function.java
    value = operands[0] if operands else None
    if value is None or kind not in ORDERED:
        return None
    call = DraftCall("percentile", (value,), java.type_text, order=(_by(value),), java=java)
    match kind:
        case "Median":
            return replace(call, settings=(HALF,))
        case "Percentile" | "PercentileCont" | "PercentileDisc":
            _check_percentile(function, operands)
            order = (_by(value, bool(facts.get("reverse", False))),)
            name = "percentile_disc" if kind == "PercentileDisc" else "percentile"
            settings = (repr(float(constant_of(operands[1], java))),)
            return replace(call, function=name, settings=settings, order=order)
        case "Mode":
            if facts.get("reverseOpt") is None:
                hint = "mode() WITHIN GROUP (ORDER BY x) says which of several it is"
                raise refuse("mode() of values that may be there equally often", hint, java)
            order = (_by(value, not _truth_of(facts["reverseOpt"])),)
            return replace(call, function="mode", order=order)
        case _:
            return _list_call(call, operands, function)


def _by(value: PlanExpression, descending: bool = False) -> PlanSortKey:
    return PlanSortKey(value, descending, descending)


def _truth_of(fact: object) -> bool:
    return str(fact).lower() in ("true", "some(true)")


def _check_percentile(function: PlanOperation, operands: Sequence[PlanExpression]) -> None:
    facts = dict(function.facts)
    if facts.get("legacyCalculation"):
        raise refuse("percentile_disc() of an older Spark", None, function.java)
    if len(operands) > 2 and constant_of(operands[2], function.java) != "1":
        raise refuse("percentile() with frequencies", "compute it when reading", function.java)


def _list_call(
    call: DraftCall, operands: Sequence[PlanExpression], function: PlanOperation
) -> DraftCall:
    value, delimiter, *order = operands
    keys = tuple(sort_key_of(each) for each in order)
    if not any(_same_value(key.expression, value) for key in keys):
        raise refuse("listagg() of values without a complete order", LIST_HINT, function.java)
    between = constant_text(delimiter) or ""
    return replace(call, function="listagg", settings=(between,), order=keys)


def _same_value(one: PlanExpression, other: PlanExpression) -> bool:
    """Whether two expressions are the same but for a cast to text, which keeps values apart."""
    return one == other or (
        isinstance(other, PlanOperation) and other.kind == "Cast" and one == other.operands[0]
    )


def joined_list_call(below: CoreDraft, expression: PlanExpression) -> DraftCall | None:
    """`array_join(sort_array(collect_list(x)), ',')` and the same by concat_ws; None if it is
    something else."""
    if not isinstance(expression, PlanOperation) or len(expression.operands) != 2:
        return None
    listed, between = expression.operands
    if expression.kind == "ConcatWs":
        listed, between = between, listed
    elif expression.kind != "ArrayJoin":
        return None
    if not (isinstance(listed, PlanOperation) and listed.kind == "SortArray"):
        return None
    collected, ascending = listed.operands
    if attributes_of(between) or attributes_of(ascending):
        return None
    return _collected_call(below, expression, collected, (between, ascending))


def _collected_call(
    below: CoreDraft,
    expression: PlanOperation,
    collected: PlanExpression,
    constants: tuple[PlanExpression, PlanExpression],
) -> DraftCall | None:
    if not (isinstance(collected, PlanOperation) and collected.kind == "AggregateExpression"):
        return None
    function, *conditions = collected.operands
    if not (isinstance(function, PlanOperation) and function.kind in ("CollectList", "CollectSet")):
        return None
    between, ascending = (constant_text(each) for each in constants)
    if between is None or ascending is None:
        return None
    value = below.compute_column(function.operands[0])
    is_distinct = function.kind == "CollectSet" or bool(dict(collected.facts)["isDistinct"])
    return DraftCall(
        "array_join",
        (value,),
        expression.java.type_text,
        settings=(between,),
        order=(_by(value, str(ascending).lower() != "true"),),
        is_distinct=is_distinct,
        condition=below.compute_column(conditions[0]) if conditions else None,
        java=expression.java,
    )
