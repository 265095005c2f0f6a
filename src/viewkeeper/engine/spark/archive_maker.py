"""The process that makes the archive of classes: `python -m viewkeeper.engine.spark.archive_maker`.

It starts a session with low priority, runs a few small jobs, and lets Java write the archive when
it ends. The archive gets its name when it is whole; one that takes longer than `MAKE_SECONDS` is
given up.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewkeeper.engine.settings.project_file import SparkSettings
from viewkeeper.engine.spark.class_archive import MAKE_SECONDS, QUIET
from viewkeeper.engine.spark.spark_session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_archive(path: Path, flags: tuple[str, ...]) -> None:
    """Start a session that lets Java write the archive at its end, and use it a little."""
    from pyspark import SparkContext

    unfinished = path.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="viewkeeper-archive-") as name:
        try:
            writing = (*flags, f"-XX:ArchiveClassesAtExit={unfinished}", QUIET)
            options = " ".join(("-XX:+ExitOnOutOfMemoryError", *writing))
            settings = SparkSettings(config={"spark.driver.extraJavaOptions": options})
            spark = start_session(settings, Path(name))
            use_session(spark, Path(name))
            gateway: Any = SparkContext._gateway
            process = gateway.proc
            spark.stop()
            process.stdin.close()
            if process.wait(MAKE_SECONDS) == 0 and unfinished.exists():
                unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
            path.with_suffix(".making").unlink(missing_ok=True)


def use_session(spark: SparkSession, folder: Path) -> None:
    """What most sessions do, on a few rows: what it loads is what is archived."""
    rows = spark.range(1000).selectExpr("id % 7 AS k", "id", "concat('t', id) AS t")
    rows.write.parquet(str(folder / "rows"))
    rows = spark.read.parquet(str(folder / "rows"))
    other = spark.range(7).selectExpr("id AS k", "CAST(id AS DECIMAL(12, 2)) AS price")
    joined = rows.join(other, "k").groupBy("t").agg({"id": "sum", "price": "max"})
    joined.createOrReplaceTempView("joined")
    spark.sql("SELECT t, row_number() OVER (ORDER BY t) AS n FROM joined ORDER BY n").collect()
    joined.mapInArrow(lambda batches: batches, joined.schema).count()


if __name__ == "__main__":
    os.nice(10)
    make_archive(Path(sys.argv[1]), tuple(sys.argv[2:]))
