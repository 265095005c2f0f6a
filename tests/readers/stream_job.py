"""A Structured Streaming job of somebody else: it writes the changes of a view to Parquet files.

    python -m tests.readers.stream_job PROJECT VIEW OUT

It goes on until it is killed; its checkpoint is in OUT.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import viewkeeper


def start_stream(
    spark: SparkSession, project: Path, view: str, out: Path, is_bounded: bool
) -> StreamingQuery:
    """Start the job, or go on with it; bounded, it ends with what is there now."""
    spark.dataSource.register(viewkeeper.ViewkeeperDataSource)
    reader = spark.readStream.format("viewkeeper").option("changes", "true").option("maxTs", "20")
    writer = reader.load(str(project / view)).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(out / "checkpoint"))
    if is_bounded:
        writer = writer.trigger(availableNow=True)
    return writer.start(str(out / "rows"))


def main() -> None:
    project, view, out = sys.argv[1:]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    query = start_stream(builder.getOrCreate(), Path(project), view, Path(out), is_bounded=False)
    query.awaitTermination()


if __name__ == "__main__":
    main()
