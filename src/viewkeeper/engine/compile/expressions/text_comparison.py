"""Text that Spark will evaluate, analysed again and compared with where it came from.

A text that was written from a tree is believed only if Spark's analysis of it gives that tree back:
over a relation whose columns are the labels, with their types. A difference is a refusal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from viewkeeper.engine.compile.plan.plan_reader import read_expression
from viewkeeper.engine.compile.plan.plan_tree import (
    Attribute,
    JavaNode,
    PlanExpression,
    PlanLiteral,
    PlanOperation,
)

RULES = ("BooleanSimplification", "SimplifyCasts")
"""What has been applied to the tree, and must be to what the text gives."""
NO_CALL = ["CheckOverflow", "PromotePrecision", "KnownNullable", "KnownNotNull"]


def is_same_tree(
    expression: PlanExpression, again: PlanExpression, labels: Mapping[int, str]
) -> bool:
    """Whether two expressions mean the same, columns compared by their labels."""
    expression, again = _plain(expression), _plain(again)
    match expression, again:
        case Attribute(), Attribute():
            return labels[expression.id] == again.name
        case PlanLiteral(), PlanLiteral():
            return expression == again
        case PlanOperation(), PlanOperation():
            alike = (expression.kind, expression.facts) == (again.kind, again.facts)
            pairs = zip(expression.operands, again.operands, strict=False)
            return (
                alike
                and len(expression.operands) == len(again.operands)
                and all(is_same_tree(one, other, labels) for one, other in pairs)
            )
    return False


def _plain(expression: PlanExpression) -> PlanExpression:
    """A NULL of a type is a constant, however it is written."""
    if not isinstance(expression, PlanOperation):
        return expression
    if expression.kind in NO_CALL:
        return _plain(expression.operands[0])
    if expression.kind == "Cast":
        (operand,) = expression.operands
        if isinstance(operand, PlanLiteral) and operand.value is None:
            return PlanLiteral(None, str(dict(expression.facts)["dataType"]))
    return expression


def analyse_text(session: Any, text: str, columns: Mapping[str, str]) -> PlanExpression:
    """What Spark makes of a text over columns with these names and SQL types."""
    given = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in columns.items())
    source = f" FROM (SELECT {given})" if columns else ""
    plan = session.sql(f"SELECT {text} AS x{source}")._jdf.queryExecution().analyzed()
    optimizer = getattr(session._jvm, "java.lang.Class")
    for rule in RULES:
        name = f"org.apache.spark.sql.catalyst.optimizer.{rule}$"
        plan = optimizer.forName(name).getField("MODULE$").get(None).apply(plan)
    items = json.loads(plan.toJSON())[0]["projectList"]
    top = JavaNode(lambda: plan.projectList().apply(0).child())
    return read_expression(items[0][1:], top)
