"""An order that the text leaves open is completed the same way in every session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from viewkeeper.engine.spark.completed_order import complete_frame

TEXT = """SELECT ntile(2) OVER (PARTITION BY a.k ORDER BY a.d) AS n,
  rank() OVER (PARTITION BY a.id ORDER BY b.id DESC) AS r
FROM a JOIN b ON a.k = b.k"""


def test_columns_of_one_name_are_listed_by_where_they_come_from(spark: SparkSession) -> None:
    """Spark numbers the columns of tables as they are made, and lists `a.id` and `b.id`, which only
    windows read, by these numbers."""
    found = []
    for names in (("a", "b"), ("b", "a")):
        session = spark.newSession()
        for name in names:
            rows = session.createDataFrame([(n, 1, 1) for n in range(3)], "id INT, k INT, d INT")
            rows.createOrReplaceTempView(name)
        found.append(sorted(tuple(row) for row in complete_frame(session.sql(TEXT)).collect()))
    assert found[0] == found[1]
    assert found[0] == [(1, 1), (1, 2), (1, 2), (1, 3), (1, 3), (2, 1), (2, 1), (2, 2), (2, 3)]
