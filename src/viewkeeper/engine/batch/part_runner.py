"""Running the parts of a batch: inline in the driver, or as one Spark job.

On Spark the batch is broadcast once, as Arrow, and every task picks its part by number; rows never
pass through the JVM, and there is no shuffle. An RDD carries the numbers out and the descriptors
back, which costs half of what a DataFrame does. A view with expressions that only Spark can
evaluate has a job of its own: sweep, Spark SQL, write, three stages of one pipeline in one task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from viewkeeper.engine.batch.own_relations import multiply_copies
from viewkeeper.engine.batch.part_sweep import (
    Batch,
    BatchMember,
    LookupTally,
    PartResult,
    PartTask,
    joined_pieces,
    sweep_part,
)
from viewkeeper.engine.spark.job_control import limit_job, spark_schema
from viewkeeper.engine.spark.task_errors import Courier
from viewkeeper.errors import ViewkeeperError
from viewkeeper.stages.fold import pre_aggregate
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.view.expression import Expression
from viewkeeper.view.render import quote_name, spark_sql_of, spark_type_of
from viewkeeper.view.sweep_plan import SweepPlan
from viewkeeper.warehouse.lake.data_files import stored_schema
from viewkeeper.warehouse.metadata.record import DataFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_inline(batch: Batch, tasks: Sequence[PartTask]) -> list[PartResult]:
    """Every part, one after the other, here."""
    return [sweep_part(batch, task) for task in tasks]


def run_on_spark(
    spark: SparkSession, batch: Batch, tasks: Sequence[PartTask], minutes: float
) -> list[PartResult]:
    """Every part as a task of one job."""
    shared = spark.sparkContext.broadcast((_for_tasks(batch), tuple(tasks)))

    def sweep(number: int) -> PartResult:
        mine, parts = shared.value
        return sweep_part(mine, parts[number])

    try:
        with limit_job(spark, f"batch {batch.number} of {batch.reader}", minutes):
            numbers = spark.sparkContext.parallelize(range(len(tasks)), len(tasks))
            return numbers.map(sweep).collect()
    finally:
        shared.destroy()


def _for_tasks(batch: Batch) -> Batch:
    """The batch without the indexes, which only this process has."""
    return replace(batch, own=replace(batch.own, find_stored=None))


def run_late(
    spark: SparkSession, batch: Batch, view: str, tasks: Sequence[PartTask], minutes: float
) -> list[PartResult]:
    """The parts of one view whose last expressions Spark evaluates, as one job."""
    courier = Courier()
    shared = spark.sparkContext.broadcast((_for_tasks(batch), tuple(tasks)))
    target = batch.views[view]
    asked = {name: spark.sparkContext.accumulator(0) for name in batch.ends}
    asked_rows = spark.sparkContext.accumulator(0)

    def sweep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine, parts = shared.value
        for numbers in batches:
            for number in numbers.column(0).to_numpy():
                tally = LookupTally()
                for rows in joined_pieces(mine, parts[number], tally):
                    yield from rows.to_batches()
                for name, count in tally.lookups.items():
                    asked[name].add(count)
                asked_rows.add(tally.rows)

    try:
        with limit_job(spark, f"batch {batch.number} of {view}", minutes):
            numbers = spark.range(0, len(tasks), 1, len(tasks))
            stage = courier.wrap_stage(sweep)
            joined = numbers.mapInArrow(stage, _joined_schema(target.plan))
            rows = apply_late_expressions(joined, target.plan, target.schema)
            files, table = courier.run_job(lambda: _keep_frame(rows, batch, target))
    except ViewkeeperError as error:
        return [PartResult(view, error=error)]
    finally:
        shared.destroy()
    lookups = {name: a.value for name, a in asked.items()}
    return [PartResult(view, files, table, lookups, asked_rows=asked_rows.value)]


def _keep_frame(
    rows: DataFrame, batch: Batch, target: BatchMember
) -> tuple[tuple[DataFile, ...], pa.Table | None]:
    """Write the rows of a view; those of a core that has no table come back."""
    from viewkeeper.warehouse.rows.spark_frames import write_frame

    stored = stored_schema(target.schema)
    if target.folder is not None:
        return write_frame(rows, target.folder, stored, batch.number), None
    table = rows.toArrow().select(stored.names).cast(stored)
    if target.core is not None:
        table = multiply_copies(target.core, table)
    return (), pre_aggregate(target.fold, table) if target.fold else table


def apply_late_expressions(joined: DataFrame, plan: SweepPlan, schema: pa.Schema) -> DataFrame:
    """Spark's share of a view change: its conditions and its outputs.

    Counts are not summed here: a sum would need a shuffle, and readers sum anyway.
    """
    for condition in plan.late:
        joined = joined.where(spark_sql_of(condition))
    outputs = zip(plan.view.outputs, schema, strict=True)
    columns = [
        f"{_canonical_sql(o.expression, f.type)} AS {quote_name(o.name)}" for o, f in outputs
    ]
    return joined.selectExpr(*columns, f"`{COUNT}`", f"`{TS}`")


def _canonical_sql(expression: Expression, kind: pa.DataType) -> str:
    """The expression with one bit pattern for zero, as the kernel has it."""
    text = spark_sql_of(expression)
    return f"({text} + CAST(0 AS {spark_type_of(kind)}))" if pa.types.is_floating(kind) else text


def _joined_schema(plan: SweepPlan) -> Any:
    fields = [(f"{p.index}.{f.name}", f.type) for p in plan.view.places for f in p.shown_fields]
    schema = pa.schema([*fields, (TS, pa.int64()), (COUNT, pa.int64())])
    return spark_schema(schema)
