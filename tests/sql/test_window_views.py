"""Windows among views on views, inline and on Spark: every state, `verify`, and who is asked.

Orders leave rows equal in rank, so `verify` is right only if it completes them as the view does.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sql.construct_events import BATCHES, EMPTIED, FIRST, ORDERS, add_row, order_row
from tests.sql.random_case import ON_SPARK, judge_project
from tests.sql.relation_history import RelationHistory, empty_tables
from tests.sql.report_project import ReportProject
from tests.sql.spark_judge import SparkJudge
from viewkeeper.engine.operations.project_status import gather_status
from viewkeeper.engine.operations.statement_explanation import explain_bound

LEVELS = {
    "lines": "SELECT o.id, o.kind, o.price, o.note, c.customer, c.name FROM shop.orders o "
    "LEFT JOIN crm.customers c ON c.customer = o.customer",
    "ranked": "SELECT l.id, l.customer, l.note, row_number() OVER (PARTITION BY l.customer "
    "ORDER BY l.kind) AS n, sum(l.price) OVER (PARTITION BY l.customer ORDER BY l.kind) AS s "
    "FROM lines l",
    "newest": "SELECT r.customer, r.note, r.s FROM ranked r WHERE r.n = 1",
    "spread": "SELECT r.customer, median(r.s) AS m, max(r.n) AS n FROM ranked r "
    "GROUP BY r.customer",
    "top": "SELECT n.customer, n.note, s.m FROM newest n JOIN spread s "
    "ON s.customer <=> n.customer "
    "ORDER BY s.n DESC LIMIT 3",
}


@pytest.mark.parametrize("settings", ["", ON_SPARK], ids=["inline", "spark"])
def test_windows_between_views(settings: str, memory: Path, spark: SparkSession) -> None:
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


def test_only_touched_partitions_are_asked(memory: Path, spark: SparkSession) -> None:
    history = RelationHistory(memory)
    text = (
        "SELECT o.id, row_number() OVER (PARTITION BY o.customer ORDER BY o.kind) AS n "
        "FROM shop.orders o"
    )
    project = ReportProject(memory, {"numbered": text}, spark)
    rows = [order_row(key, key % 50, key % 3, "1.00") for key in range(1, 501)]
    history.apply_transaction(tuple(add_row(ORDERS, row) for row in rows))
    project.load_views()
    change = (add_row(ORDERS, order_row(900, 7, 1, "2.00")),)
    project.maintain_batch(history, [change], [True])
    with project.open_project() as opened:
        found = {view.name: view for view in gather_status(opened.settings, 0.0).views}
        explained = explain_bound(opened.settings, opened.catalogue, "numbered")
    # Customer 7 has ten orders, and one more since the batch began, which is taken out again.
    assert found["numbered"].asked_rows in (10, 11)
    recompute = explained.stages[-1]
    assert recompute.kind == "recompute"
    assert any("touched" in line for line in recompute.does)
