"""The rules of Spark's optimizer that a plan is rewritten by, and no others.

Spark's own optimized plan would do too much: it rewrites distinct aggregates, folds empty relations
away and puts the time into the text. So single rule objects are applied to the analyzed plan, in
three loops: first everything that removes names, inlines CTEs and turns subqueries into joins; then
set operations; then what tidies up. Nothing else can happen, and the rules of a newer Spark do not
come in by themselves.

The order is part of the meaning: whether `x IN (...)` has two values or three depends on which
simplifications ran before it is rewritten.
"""

from __future__ import annotations

from typing import Any

from viewkeeper.errors import SparkUnavailableError

_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer."
_ANALYSIS = "org.apache.spark.sql.catalyst.analysis."
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."

INLINE_CTE = "InlineCTE"
INSIDE_SUBQUERIES = "OptimizeSubqueries"

UNNEST = (
    *(f"{_OPTIMIZER}EliminateResolvedHint", f"{_ANALYSIS}EliminateSubqueryAliases"),
    *(f"{_ANALYSIS}EliminateView", f"{_EXPRESSIONS}EliminatePipeOperators"),
    *(f"{_OPTIMIZER}EliminateSQLFunctionNode", INLINE_CTE, f"{_OPTIMIZER}EvalInlineTables"),
    *(f"{_OPTIMIZER}RewriteNonCorrelatedExists", f"{_OPTIMIZER}PullOutGroupingExpressions"),
    *(f"{_OPTIMIZER}RewriteWithExpression", f"{_OPTIMIZER}BooleanSimplification"),
    # The pull-up inside subqueries comes before the rewriting, which descends into them.
    *(f"{_OPTIMIZER}PullupCorrelatedPredicates", INSIDE_SUBQUERIES),
    *(f"{_OPTIMIZER}RewritePredicateSubquery", f"{_OPTIMIZER}RewriteCorrelatedScalarSubquery"),
    f"{_OPTIMIZER}RewriteLateralSubquery",
)
REPLACE = tuple(
    f"{_OPTIMIZER}{name}"
    for name in (
        *("ReplaceIntersectWithSemiJoin", "ReplaceExceptWithAntiJoin"),
        *("ReplaceDistinctWithAggregate", "ReplaceDeduplicateWithAggregate"),
    )
)
TIDY = tuple(
    f"{_OPTIMIZER}{name}"
    for name in (
        *("EliminateOuterJoin", "PushDownPredicates", "ColumnPruning", "CollapseProject"),
        *("CombineUnions", "RemoveNoopOperators", "BooleanSimplification", "SimplifyCasts"),
        "RemoveRedundantAliases",
    )
)
LOOPS = ((UNNEST, 12), (REPLACE, 6), (TIDY, 30))
"""Rules, and how often they are repeated at most; a loop ends when nothing changes."""


class PlanRules:
    """The rule objects of one session."""

    def __init__(self, java_session: Any, jvm: Any) -> None:
        self._jvm = jvm
        self._classes = getattr(jvm, "java.lang.Class")
        self._optimizer = java_session.sessionState().optimizer()
        self._rules = {name: self._find_rule(name) for rules, _ in LOOPS for name in rules}

    def rewrite_plan(self, plan: Any) -> Any:
        """The plan after all loops."""
        for names, rounds in LOOPS:
            plan = self._apply_rules(plan, [self._rules[name] for name in names], rounds)
        return plan

    def _apply_rules(self, plan: Any, rules: list[Any], rounds: int) -> Any:
        for _ in range(rounds):
            before = plan
            for rule in rules:
                plan = rule.apply(plan)
            if plan.fastEquals(before):
                break
        return plan

    def _find_rule(self, name: str) -> Any:
        if name == INLINE_CTE:
            return getattr(self._jvm, f"{_OPTIMIZER}{name}")(True, False, False)
        if name == INSIDE_SUBQUERIES:
            return self._optimizer.OptimizeSubqueries()
        from py4j.protocol import Py4JJavaError

        try:
            return self._classes.forName(f"{name}$").getField("MODULE$").get(None)
        except Py4JJavaError as error:
            raise SparkUnavailableError(
                f"this Spark has no rule {name}",
                hint="views that are more than joins need the Spark that Viewkeeper is made for; "
                "installing viewkeeper brings it",
            ) from error


def excluded_rules(java_session: Any) -> str:
    """Every rule that a session's optimizer would apply inside subqueries, but for ours."""
    ours = {name for rules, _ in LOOPS for name in rules}
    every: set[str] = set()
    batches = java_session.sessionState().optimizer().defaultBatches()
    for index in range(batches.size()):
        rules = batches.apply(index).rules()
        every |= {str(rules.apply(number).ruleName()) for number in range(rules.size())}
    return ",".join(sorted(every - ours))
