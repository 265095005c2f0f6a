"""A report of three levels, end to end: a join, aggregates of it, a join of the aggregates.

Once with batches inline and once on Spark; every state of every level is judged by Spark, and
`verify` agrees.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.sql.level_run import both_ways, judge_levels

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


@both_ways
def test_a_report_of_three_levels(settings: str, memory: Path, spark: SparkSession) -> None:
    judge_levels(LEVELS, settings, memory, spark)
