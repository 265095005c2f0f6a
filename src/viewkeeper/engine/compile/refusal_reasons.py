"""Why a query cannot be maintained, with its place in the text and the way out.

Nothing is guessed: an operator, an expression or a setting that the compiler does not know is
refused by its own name. What is known and not maintained has a reason and a hint here.
"""

from __future__ import annotations

from viewkeeper.engine.compile.plan.plan_tree import NOWHERE, JavaNode
from viewkeeper.errors import UnsupportedError

LEVELS_HINT = "write the levels out, or keep them in a source"
OPERATORS: dict[str, tuple[str, str | None]] = {
    "Sort": ("ORDER BY", "a view has no order; ask for one when reading it"),
    "Limit": ("LIMIT without ORDER BY", "say which rows come first by ORDER BY"),
    "Offset": ("OFFSET without LIMIT", "add LIMIT, or skip the rows when reading the view"),
    "Tail": ("LIMIT", "limit the rows when reading the view"),
    "Sample": ("TABLESAMPLE", "a sample is another one each time that it is taken"),
    "UnionLoop": ("a recursive CTE", LEVELS_HINT),
    "UnionLoopRef": ("a recursive CTE", LEVELS_HINT),
    "LateralJoin": (
        "this LATERAL join",
        "write LATERAL VIEW explode(...), or a join with a derived table",
    ),
    "Pivot": ("this PIVOT", "write sum(...) FILTER (WHERE ...) for each column"),
    "DeduplicateWithinWatermark": ("a deduplication within a watermark", None),
}
EXPRESSIONS: dict[str, tuple[str, str | None]] = {
    "ScalarSubquery": (
        "a correlated scalar subquery of this form",
        "correlate by equalities, or write it as a join",
    ),
    "Exists": ("this EXISTS", "write it as a join"),
    "InSubquery": ("this IN (SELECT ...)", "write it as a join"),
    "ListQuery": ("this IN (SELECT ...)", "write it as a join"),
    "LateralSubquery": ("this LATERAL subquery", "write it as a join"),
    "OuterReference": ("a correlated subquery of this form", "write it as a join"),
    "PythonUDF": ("a user's function", "only Spark's own deterministic functions are allowed"),
    "PythonUDAF": ("a user's function", "only Spark's own deterministic functions are allowed"),
    "ScalaUDF": ("a user's function", "only Spark's own deterministic functions are allowed"),
    "HiveSimpleUDF": ("a user's function", "only Spark's own deterministic functions are allowed"),
    "NamedLambdaVariable": ("a lambda function", None),
}
CLOCK = frozenset(
    {
        *("CurrentDate", "CurrentTimestamp", "Now", "LocalTimestamp", "CurrentTime"),
        *("CurDateExpressionBuilder", "CurrentBatchTimestamp"),
    }
)


def refuse(what: str, hint: str | None = None, at: JavaNode = NOWHERE) -> UnsupportedError:
    """The error that refuses a construct, at the place that Spark remembers."""
    line, column = (at.position if at is not NOWHERE else None) or (None, None)
    return UnsupportedError(f"{what} cannot be maintained", line=line, column=column, hint=hint)


def refuse_operator(kind: str, at: JavaNode = NOWHERE) -> UnsupportedError:
    """The error for an operator of Spark's plan."""
    return refuse(*OPERATORS.get(kind, (f"the operator {kind}", None)), at)


def refuse_expression(kind: str, at: JavaNode = NOWHERE) -> UnsupportedError:
    """The error for an expression of Spark's plan."""
    if kind in CLOCK:
        return refuse("the current time", "compare with it when reading the view", at)
    return refuse(*EXPRESSIONS.get(kind, (f"the expression {kind}", None)), at)
