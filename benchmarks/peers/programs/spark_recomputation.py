"""Spark, which computes the whole view again from the four SQLite databases and writes Parquet.

What is timed is reading the databases, the join and the writing, in a session that is warm.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.peers.programs.protocol import COLUMNS, Change, Digest, digest_of, read_table, serve

VIEW = """
SELECT i.id, o.id AS order_id, c.name, c.city, p.title, i.quantity, i.quantity * p.cents AS cents
FROM orders o JOIN customer c ON c.id = o.customer_id
JOIN item i ON i.order_id = o.id JOIN product p ON p.id = i.product_id
"""


class SparkRecomputation:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self) -> float:
        started = time.perf_counter()
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        self._spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
        self._compute()
        return time.perf_counter() - started

    def _compute(self) -> None:
        for table, columns in COLUMNS.items():
            values = map(list, zip(*read_table(self._folder, table), strict=True))
            rows = pa.table(dict(zip(columns, values, strict=True)))
            self._spark.createDataFrame(rows).createOrReplaceTempView(table)
        self._spark.sql(VIEW).write.mode("overwrite").parquet(str(self._folder / "spark"))

    def apply(self, change: Change) -> float:
        with closing(sqlite3.connect(self._folder / "item.db")) as database:
            database.execute("DELETE FROM item WHERE id BETWEEN ? AND ?", change.deleted)
            database.executemany("INSERT INTO item VALUES (?, ?, ?, ?)", change.inserted)
            database.commit()
        started = time.perf_counter()
        self._compute()
        return time.perf_counter() - started

    def check(self) -> Digest:
        return digest_of(self._spark.read.parquet(str(self._folder / "spark")).collect())

    def close(self) -> None:
        self._spark.stop()


if __name__ == "__main__":
    serve(SparkRecomputation(Path(sys.argv[1])))
