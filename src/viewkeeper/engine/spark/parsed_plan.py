"""What Spark's own parser makes of a text, held against a list before the text is run.

Everything that goes to Spark as SQL was read and checked by us before. This is the second line: the
plan that Spark parses, before it looks anything up, may consist of queries, expressions and nothing
else, may name only the given relations, and only functions that `viewkeeper.view.sql.functions`
allows. The plan of a report is held against the same kinds of nodes (`check_report_nodes`); what it
may call is said where it is compiled. A command, a script, a file named as a table or a call of
Java is refused here even if our own reader had been led astray.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
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
IN_REPORTS = PLANS | {
    f"{_CATALYST}analysis.UnresolvedTableValuedFunction",
    f"{_CATALYST}analysis.UnresolvedTVFAliases",
    f"{_CATALYST}analysis.UnresolvedQualify",
    f"{_CATALYST}plans.logical.UnresolvedHint",
}
"""Also what gives rows without a table, QUALIFY, and advice that changes no row."""


def check_plan(session: SparkSession, text: str, relations: Collection[str]) -> None:
    """DefinitionError unless the text is a query over these relations, named in lower case."""
    for node in _parsed_nodes(session, text):
        kind = str(node["class"])
        _check_kind(kind, PLANS)
        name = name_of_node(node)
        if kind.endswith("UnresolvedRelation") and name not in relations:
            raise _plan_refusal(f"it reads {name}")
        called = kind.endswith(("UnresolvedFunction", "UnresolvedGenerator"))
        if called and name not in functions.IN_QUERY:
            raise _plan_refusal(f"it calls {name}")


def check_report(session: SparkSession, text: str) -> None:
    """DefinitionError unless the text is a query that reads no file."""
    check_report_nodes(list(_parsed_nodes(session, text)))


def check_report_nodes(nodes: Iterable[dict[str, Any]]) -> None:
    """The same of the nodes of a plan that Spark has parsed."""
    for node in nodes:
        kind = str(node["class"])
        _check_kind(kind, IN_REPORTS)
        if kind.endswith("UnresolvedRelation") and "." in name_of_node(node):
            raise _plan_refusal(f"it reads {name_of_node(node)}")


def _check_kind(kind: str, allowed: Collection[str]) -> None:
    if not kind.startswith(EXPRESSIONS) and kind not in allowed:
        raise _plan_refusal(f"it is read as {kind.rpartition('.')[2]}")


def _parsed_nodes(session: SparkSession, text: str) -> Iterator[dict[str, Any]]:
    with silence_errors(), _activate_session(session) as java:
        plan = java.sessionState().sqlParser().parsePlan(text)
    return nodes_of_plan(json.loads(plan.toJSON()))


@contextmanager
def _activate_session(session: SparkSession) -> Iterator[Any]:
    """Spark's parser reads the settings of the session that is active in its thread."""
    java: Any = session._jsparkSession
    jvm: Any = session._jvm
    sessions = jvm.SparkSession
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
