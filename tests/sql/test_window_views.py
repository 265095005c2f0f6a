"""Windows among views on views, inline and on Spark: every state, `verify`, and who is asked.

Orders leave rows equal in rank, so `verify` is right only if it completes them as the view does.
"""

from __future__ import annotations

import random
from pathlib import Path

from pyspark.sql import SparkSession

from tests.sql.clock_project import ClockProject
from tests.sql.construct_events import ORDERS, add_row, order_row
from tests.sql.level_run import both_ways, judge_levels
from tests.sql.random_case import judge_project
from tests.sql.relation_history import RelationHistory, RowChange, empty_tables
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


@both_ways
def test_windows_between_views(settings: str, memory: Path, spark: SparkSession) -> None:
    judge_levels(LEVELS, settings, memory, spark)


def test_windows_agree_on_the_order_of_equal_rows(memory: Path, spark: SparkSession) -> None:
    """Rows that are there several times differ only in what the windows themselves say of them."""
    history = RelationHistory(memory)
    text = (
        "SELECT v.level, count(v.customer) OVER (PARTITION BY v.level, v.customer ORDER BY "
        "v.customer ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS n, lead(v.customer, 2) "
        "OVER (PARTITION BY v.customer ORDER BY v.customer) AS next FROM shop.visits v"
    )
    project = ReportProject(memory, {"paired": text}, spark)
    history.apply_transaction((add_row(ORDERS, order_row(1, 1, 1, "1.00")),))
    project.load_views()
    copies = [RowChange("shop.visits", key, (2, 3), is_new=True) for key in range(1, 5)]
    project.maintain_batch(history, [tuple(copies[:3]), (copies[3],)], [True, True])
    verdict = judge_project(project, history, SparkJudge(spark, empty_tables()), random.Random(1))
    assert verdict.exact == ["paired"], verdict
    with project.open_project() as opened:
        assert all(each.ok for each in opened.verify())


@both_ways
def test_frames_of_months(settings: str, memory: Path, spark: SparkSession) -> None:
    """Month ends and leap days come, move and go, in both directions, beside NULLs."""
    by_day, by_moment = "PARTITION BY o.customer ORDER BY o.placed", "ORDER BY o.at DESC"
    views = {
        "rolling": f"SELECT o.id, sum(o.price) OVER ({by_day} RANGE BETWEEN INTERVAL 1 MONTH "
        f"PRECEDING AND CURRENT ROW) AS month, avg(o.price) OVER ({by_day} DESC RANGE BETWEEN "
        "INTERVAL 12 MONTHS PRECEDING AND INTERVAL 1 MONTH FOLLOWING) AS year FROM shop.orders o",
        "moments": f"SELECT o.id, count(*) OVER (PARTITION BY o.customer {by_moment} RANGE BETWEEN "
        "INTERVAL 1 MONTH PRECEDING AND INTERVAL 1 MONTH FOLLOWING) AS near FROM shop.orders o",
    }
    project = ClockProject(memory, views, spark, settings)
    days = ["2024-01-29", "2024-01-30", "2024-01-31", "2024-02-28", "2024-02-29", "2024-03-31"]
    days += ["2023-01-31", "2023-02-28", "2025-02-28", "2024-04-30"]

    def write_order(number: int, day: str) -> str:
        placed = "NULL" if number % 7 == 3 else f"'{day}'"
        values = f"{number % 2}, {placed}, '{day} {number % 24:02}:59:59', {number}"
        return f"INSERT OR REPLACE INTO orders VALUES ({number}, {values})"

    for number, day in enumerate(days * 2):
        project.commit(write_order(number, day))
    project.load_views()
    project.maintain_batch(
        [
            "DELETE FROM orders WHERE placed = '2024-02-29' AND id > 9",
            write_order(40, "2024-02-29"),
            "UPDATE orders SET placed = '2024-03-30' WHERE placed = '2024-01-31'",
            "UPDATE orders SET placed = NULL WHERE id = 4",
            write_order(2, "2024-03-29"),
        ]
    )
    assert project.judge_states() == 6 * len(views)
    with project.open_project() as opened:
        assert all(each.ok for each in opened.verify(every_state=True))


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
