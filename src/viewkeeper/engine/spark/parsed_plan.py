"""What Spark's own parser makes of a text, held against a list before the text is run.

Everything that goes to Spark as SQL was read and checked by us before. This is the second line: the
plan that Spark parses, before it looks anything up, may consist of queries, expressions and nothing
else, may name only the given relations, and only functions that `viewkeeper.view.sql.functions`
allows. A command, a script, a file named as a table or a call of Java is refused here even if our
own reader had been led astray.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from viewkeeper.engine.spark.error_silence import silence_errors
from viewkeeper.errors import DefinitionError
from viewkeeper.view.sql import functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALYST = "org.apache.spark.sql.catalyst."
EXPRESSIONS = f"{_CATALYST}expressions."
"""All of this package are expressions over values; functions are not resolved to them yet."""

PLANS = frozenset(
    f"{_CATALYST}plans.logical.{name}"
    for name in (
        *("Project", "Filter", "Join", "LateralJoin", "SubqueryAlias", "OneRowRelation", "Union"),
        *("Except", "Intersect", "Distinct", "Aggregate", "Sort", "GlobalLimit", "LocalLimit"),
        *("Offset", "Generate", "Pivot", "Unpivot", "Sample", "UnresolvedWith", "LocalRelation"),
        *("WithWindowDefinition", "RepartitionByExpression", "Having", "GroupingSets"),
        *("BaseGroupingSets", "UnresolvedHaving", "UnresolvedSubqueryColumnAliases"),
    )
) | frozenset(
    f"{_CATALYST}analysis.{name}"
    for name in (
        *("UnresolvedRelation", "UnresolvedSubqueryColumnAliases", "UnresolvedHaving"),
        *("UnresolvedInlineTable", "UnresolvedAttribute", "UnresolvedAlias", "UnresolvedFunction"),
        *("UnresolvedStar", "UnresolvedStarExceptOrReplace", "UnresolvedExtractValue"),
        *("UnresolvedGenerator", "UnresolvedRegex", "UnresolvedOrdinal", "MultiAlias"),
        *("UnresolvedDeserializer", "UnresolvedDataType"),
    )
)


def check_plan(session: SparkSession, text: str, relations: Collection[str]) -> None:
    """DefinitionError unless the text is a query over these relations, named in lower case."""
    with silence_errors(), _activate_session(session) as java:
        plan = java.sessionState().sqlParser().parsePlan(text)
    for node in nodes_of_plan(json.loads(plan.toJSON())):
        kind = str(node["class"])
        if not kind.startswith(EXPRESSIONS) and kind not in PLANS:
            raise _plan_refusal(f"it is read as {kind.rpartition('.')[2]}")
        name = name_of_node(node)
        if kind.endswith("UnresolvedRelation") and name not in relations:
            raise _plan_refusal(f"it reads {name}")
        called = kind.endswith(("UnresolvedFunction", "UnresolvedGenerator"))
        if called and name not in functions.IN_QUERY:
            raise _plan_refusal(f"it calls {name}")


@contextmanager
def _activate_session(session: SparkSession) -> Iterator[Any]:
    """Spark's parser reads the settings of the session that is active in its thread."""
    java: Any = session._jsparkSession
    sessions: Any = session._jvm.SparkSession  # type: ignore[union-attr]  # a classic session's
    before = sessions.getActiveSession()
    sessions.setActiveSession(java)
    try:
        yield java
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def nodes_of_plan(content: Any) -> Iterator[dict[str, Any]]:
    """Every node of a plan, those inside expressions too."""
    waiting = [content]
    while waiting:
        current = waiting.pop()
        if isinstance(current, dict):
            if "class" in current:
                yield current
            waiting.extend(current.values())
        elif isinstance(current, list):
            waiting.extend(current)


def name_of_node(node: dict[str, Any]) -> str:
    """What a node that is looked up by name says, in lower case; parts with dots between."""
    identifier = node.get("name")
    if isinstance(identifier, dict):
        return str(identifier.get("funcName")).lower()
    parts = node.get("multipartIdentifier") or node.get("nameParts") or ""
    return str(parts).strip("[]").replace(", ", ".").lower()


def _plan_refusal(why: str) -> DefinitionError:
    return DefinitionError(
        "Spark reads this SQL as something that may not be run",
        detail=why,
        hint="write it in plainer SQL, and report it: our own reader should have refused it",
    )
