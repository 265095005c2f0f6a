"""A report of three levels, end to end: a join, aggregates of it, a join of the aggregates.

Once with batches inline and once on Spark; every state of every level is judged by Spark, and
`verify` agrees.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sql.construct_events import BATCHES, EMPTIED, FIRST
from tests.sql.random_case import ON_SPARK, judge_project
from tests.sql.relation_history import RelationHistory, empty_tables
from tests.sql.report_project import ReportProject
from tests.sql.spark_judge import SparkJudge

LEVELS = {
    "lines": "SELECT o.id, o.kind, o.price, c.customer, c.name FROM shop.orders o "
    "LEFT JOIN crm.customers c ON c.customer = o.customer",
    "sold": "SELECT l.customer, l.name, count(*) AS n, sum(l.price) AS price, max(l.kind) AS kind "
    "FROM lines l GROUP BY l.customer, l.name",
    "wanted": "SELECT t.customer, count(*) AS tickets, avg(t.cost) AS cost FROM crm.tickets t "
    "GROUP BY t.customer",
    "report": "SELECT s.name, s.n, s.price, w.tickets, w.cost FROM sold s "
    "LEFT JOIN wanted w ON w.customer = s.customer",
}


@pytest.mark.parametrize("settings", ["", ON_SPARK], ids=["inline", "spark"])
def test_a_report_of_three_levels(settings: str, memory: Path, spark: SparkSession) -> None:
    history = RelationHistory(memory)
    project = ReportProject(memory, LEVELS, spark, settings)
    for transaction in FIRST:
        history.apply_transaction(transaction)
    project.load_views()
    for batch in (*BATCHES, *EMPTIED):
        project.maintain_batch(history, [each for _, each in batch], [True] * len(batch))
    verdict = judge_project(project, history, SparkJudge(spark, empty_tables()), random.Random(1))
    assert verdict.exact == list(LEVELS), verdict
    with project.open_project() as opened:
        assert all(each.ok for each in opened.verify())
