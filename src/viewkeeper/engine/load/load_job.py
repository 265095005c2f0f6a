"""Initial load: a view computed from running sources, as of positions that the ledger knows.

The positions are chosen before the scans; every scan's cut lies at or after them, and what a scan
saw too early is in its tail and counts the other way. So the load stands for one ts, exactly, while
writers go on, and maintenance continues from that ts. A load that is interrupted leaves no trace
but files that nobody names; the next run loads again. A stored view whose definition has changed
is repaired in the same way, by the difference between what is computed and what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.engine.batch.snapshot_openers import Openers
from viewkeeper.engine.load.view_recomputation import recompute_view
from viewkeeper.engine.spark.job_control import limit_job
from viewkeeper.engine.spark.task_errors import Courier
from viewkeeper.errors import ExpressionError, UnsupportedError
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.view.render import quote_name
from viewkeeper.warehouse.lake.data_files import stored_schema
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.record import DataFile
from viewkeeper.warehouse.rows.view_state import files_until, table_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """The files of a loaded view, and the schema that its rows have."""

    schema: pa.Schema
    files: tuple[DataFile, ...]


def load_view(
    spark: SparkSession,
    view: ViewDefinition,
    openers: Openers,
    positions: Mapping[str, int],
    ts: int,
    folder: Path,
    batch: int,
    minutes: float,
) -> LoadedFiles:
    """Compute the view as of the positions and write it, stamped with `ts`, into a folder."""
    from viewkeeper.warehouse.rows.spark_frames import write_frame

    courier = Courier()
    with limit_job(spark, f"load of {view.name}", minutes, pool="load"):
        frame = recompute_view(spark, view, openers, positions, courier)
        schema = row_schema(frame, view)
        names = [quote_name(name) for name in schema.names]
        stamped = frame.selectExpr(*names, f"`{COUNT}`", f"CAST({ts} AS BIGINT) AS `{TS}`")
        stored = stored_schema(schema)
        files = courier.run_job(lambda: write_frame(stamped, folder, stored, batch))
        return LoadedFiles(schema, files)


def load_difference(
    spark: SparkSession,
    view: ViewDefinition,
    openers: Openers,
    positions: Mapping[str, int],
    ts: int,
    stored: StoredRows,
    batch: int,
    minutes: float,
) -> LoadedFiles:
    """Compute the view as of the positions and write, stamped with `ts`, by what it differs from
    the rows that are stored."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

    from viewkeeper.warehouse.rows.spark_frames import exact_column, sum_counts, write_frame

    courier = Courier()
    with limit_job(spark, f"load of {view.name}", minutes, pool="load"):
        frame = recompute_view(spark, view, openers, positions, courier)
        schema = row_schema(frame, view)
        columns = [exact_column(name) for name in schema.names]
        old = stored.stored_frame(spark, schema).select(*columns, (-F.col(COUNT)).alias(COUNT))
        both = sum_counts(frame.select(*columns, F.col(COUNT)).unionAll(old), schema.names)
        stamped = both.select(*columns, F.col(COUNT), F.lit(ts).cast("bigint").alias(TS))
        kept = stored_schema(schema)
        files = courier.run_job(lambda: write_frame(stamped, stored.folder, kept, batch))
        return LoadedFiles(schema, files)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The newest rows of a view that stands still, hidden columns too."""

    root: Path
    head: ViewHead
    staging: Path

    @property
    def folder(self) -> Path:
        return table_folder(self.root, self.head)

    def stored_frame(self, spark: SparkSession, schema: pa.Schema) -> DataFrame:
        """The signed rows, under the columns that the view is going to have."""
        from viewkeeper.warehouse.rows.spark_frames import signed_frame

        fitted = replace(self.head, schema=schema)
        files = files_until(self.root, self.head, self.head.reach_ts)
        return signed_frame(spark, self.root, fitted, files, self.staging, until=self.head.reach_ts)


def row_schema(frame: DataFrame, view: ViewDefinition) -> pa.Schema:
    """The Arrow schema of the view's rows by Spark's analysis; it must be the one we computed."""
    from pyspark.sql.pandas.types import to_arrow_schema

    analysed = to_arrow_schema(frame.drop(COUNT).schema, timezone="UTC")
    plain = pa.schema([(field.name, _naive_or_utc(field.type)) for field in analysed])
    for field in plain:
        if pa.types.is_nested(field.type) or pa.types.is_null(field.type) or _is_span(field.type):
            raise UnsupportedError(
                f'view "{view.name}": column "{field.name}" has a type that cannot be kept',
                detail=f"its type is {field.type}",
                path=view.path,
                hint="show its parts as plain columns, or CAST it to STRING",
            )
    expected = view.schema
    if expected is not None and not plain.equals(expected):
        raise ExpressionError(
            f'view "{view.name}": Spark types its columns otherwise than the kernel',
            detail=f"Spark: {plain}; kernel: {expected}",
            hint="write the types out with CAST in the view's select list, and report this view",
        )
    return plain


def _is_span(kind: pa.DataType) -> bool:
    return pa.types.is_duration(kind) or pa.types.is_interval(kind)


def _naive_or_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", "UTC") if isinstance(kind, pa.TimestampType) and kind.tz else kind
