"""Spark's own parser beside ours, on random texts: what was checked is what Spark reads.

Two things must hold for every text that we accept. Spark reads the plain text, which is what it
gets, exactly as it reads what the author wrote; and the plain text has for Spark the items, the
relations and the conditions that it has for us.
"""

from __future__ import annotations

import json
import os
import random
import re
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.view.random_sql import random_query
from viewkeeper.engine.spark.error_silence import silence_errors
from viewkeeper.errors import DefinitionError
from viewkeeper.view.sql.view_statement import ParsedView, parse_view

HEAD = "CREATE MATERIALIZED VIEW v AS\n"
COUNT = int(os.environ.get("VIEWKEEPER_FUZZ_INPUTS", "0")) or 1500


@pytest.fixture(scope="module")
def parser(spark: SparkSession) -> Any:
    session: Any = spark.newSession()
    session.conf.set("spark.sql.variable.substitute", "false")
    return session._jsparkSession.sessionState().sqlParser()


def plan_of(parser: Any, text: str) -> Any | None:
    """What Spark reads; None if it is no query for Spark."""
    try:
        with silence_errors():
            return parser.parsePlan(text)
    except PySparkException:
        return None


def shown(plan: Any) -> str:
    """The plan as text, without the numbers that Spark gives to aliases."""
    return re.sub(r"#\d+", "", plan.toString())


def read_ours(text: str) -> ParsedView | None:
    """The text as the query of a view; None if it is refused."""
    try:
        return parse_view(f"{HEAD}{text}")
    except DefinitionError:
        return None


def shape_of_view(parsed: ParsedView) -> tuple[object, ...]:
    parts = parsed.parts
    return len(parts.items), [str(table.relation) for table in parts.tables], len(parts.where)


def shape_of_plan(plan: Any) -> tuple[object, ...]:
    """Items, relations and conditions of a plan without subqueries."""
    nodes = json.loads(plan.toJSON())
    project = next(node for node in nodes if node["class"].endswith(".Project"))
    relations = [n for n in nodes if n["class"].endswith(".UnresolvedRelation")]
    tables = [node["multipartIdentifier"].strip("[]").replace(", ", ".") for node in relations]
    filters = [node for node in nodes if node["class"].endswith(".Filter")]
    conditions = sum(_count_conjuncts(node["condition"]) for node in filters)
    return len(project["projectList"]), tables, conditions


def _count_conjuncts(condition: list[dict[str, Any]]) -> int:
    """The conditions that AND ties together; every node comes before its operands."""
    open_operands, conjuncts, inside = 1, 0, 0
    for node in condition:
        operands = int(node["num-children"])
        if inside:
            inside += operands - 1
        elif node["class"].endswith(".And"):
            open_operands += operands - 1
        else:
            conjuncts += 1
            inside = operands
    assert conjuncts == open_operands
    return conjuncts


def test_spark_reads_what_was_checked(parser: Any) -> None:
    generator = random.Random(int(os.environ.get("VIEWKEEPER_FUZZ_SEED", "1")))
    accepted = read_by_spark = 0
    for _ in range(COUNT):
        text = random_query(generator)
        ours = read_ours(text)
        if ours is None:
            continue
        accepted += 1
        plain = ours.plain.text_of(ours.body)
        written, given = plan_of(parser, text), plan_of(parser, plain)
        if written is None or given is None:
            assert written is given, f"only one of the two can be read: {text!r} {plain!r}"
            continue
        read_by_spark += 1
        assert shown(written) == shown(given), f"{text!r} {plain!r}"
        assert shape_of_view(ours) == shape_of_plan(given), f"{text!r} {plain!r}"
    # A test that accepts nothing would pass too.
    assert accepted > COUNT // 8
    assert read_by_spark > COUNT // 10
