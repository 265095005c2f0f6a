"""The difference of two large sets of files, on Spark: what a folder of files borrows from us.

    SELECT columns, sum(n) FROM (new with n = 1 UNION ALL old with n = -1)
    GROUP BY columns HAVING sum(n) <> 0

The files are a source's kept copies, written by Arrow in canonical values, so that Spark's equality
and the source's own (`sources/files/net`) are one. Tasks write the result through the one writer:
no row comes to the driver before it is asked for, and there it comes in pieces.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.engine.spark.job_control import limit_job
from viewkeeper.engine.spark.task_errors import Courier
from viewkeeper.updates.source_protocol import COUNT, TS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 65_536


def differ_on(
    spark: Callable[[], SparkSession], staging: Callable[[], Path], minutes: float
) -> Callable[[Sequence[str], Sequence[str], pa.Schema], Iterator[pa.RecordBatch]]:
    """A differ for sources of files; Spark is started when it is first needed.

    `staging` is a folder that the executors reach too.
    """

    def differ(
        came: Sequence[str], went: Sequence[str], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        return file_difference(spark(), came, went, schema, staging(), minutes)

    return differ


def file_difference(
    spark: SparkSession,
    came: Sequence[str],
    went: Sequence[str],
    schema: pa.Schema,
    staging: Path,
    minutes: float,
) -> Iterator[pa.RecordBatch]:
    """Rows of Parquet files that came minus rows of those that went, each tuple once, counted."""
    from viewkeeper.warehouse.rows.spark_frames import write_frame

    folder = staging / f"difference-{uuid.uuid4().hex}"
    folder.mkdir(parents=True)
    stored = pa.schema([*schema, pa.field(COUNT, pa.int64()), pa.field(TS, pa.int64())])
    try:
        with limit_job(spark, f"difference of {len(came) + len(went)} files", minutes, "load"):
            frame = _counted_rows(spark, came, went, schema)
            files = Courier().run_job(lambda: write_frame(frame, folder, stored, 0))
        for file in files:
            with pq.ParquetFile(folder / file.path) as written:
                names = [*schema.names, COUNT]
                for batch in written.iter_batches(batch_size=BATCH_ROWS, columns=names):
                    yield batch.select(names)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _counted_rows(
    spark: SparkSession, came: Sequence[str], went: Sequence[str], schema: pa.Schema
) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

    from viewkeeper.warehouse.rows.spark_frames import exact_column, frame_of, sum_counts

    sides = [
        frame_of(spark, [Path(path) for path in paths], schema).withColumn(COUNT, F.lit(count))
        for paths, count in ((came, 1), (went, -1))
    ]
    summed = sum_counts(sides[0].unionAll(sides[1]), schema.names)
    columns = [exact_column(name) for name in schema.names]
    return summed.select(*columns, F.col(COUNT), F.lit(0).cast("bigint").alias(TS))
