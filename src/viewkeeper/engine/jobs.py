"""Running the parts of a batch: inline in the driver, or as one Spark job.

On Spark the batch is broadcast once, as Arrow, and every task picks its part by number; rows never
pass through the JVM, and there is no shuffle. A view with expressions that only Spark can evaluate
has a job of its own: sweep, Spark SQL, write, three stages of one pipeline in one task.
"""

from __future__ import annotations

import base64
import pickle
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from viewkeeper.engine.task import Batch, Opener, PartResult, PartTask, joined_rows, sweep_part
from viewkeeper.errors import ExpressionError, ViewkeeperError
from viewkeeper.updates.protocol import COUNT, TS
from viewkeeper.view.plan import SweepPlan
from viewkeeper.view.render import spark_sql
from viewkeeper.warehouse.files import stored_schema, write_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RESULT = pa.schema([("result", pa.binary())])
_RESULT_DDL = "result binary"


def run_inline(batch: Batch, tasks: Sequence[PartTask]) -> list[PartResult]:
    """Every part, one after the other, here."""
    return [sweep_part(batch, task) for task in tasks]


def run_on_spark(
    spark: SparkSession,
    batch: Batch,
    tasks: Sequence[PartTask],
    minutes: float,
    opener: Opener | None = None,
) -> list[PartResult]:
    """Every part as a task of one job."""
    shared = spark.sparkContext.broadcast((batch, tuple(tasks)))

    def sweep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine, parts = shared.value
        for numbers in batches:
            for number in numbers.column(0).to_numpy():
                result = sweep_part(mine, parts[number], opener)
                yield pa.record_batch([pa.array([pickle.dumps(result)])], schema=_RESULT)

    try:
        with limited(spark, f"batch {batch.number}", minutes):
            rows = (
                spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(sweep, _RESULT_DDL).collect()
            )
    finally:
        shared.destroy()
    return [pickle.loads(bytes(row.result)) for row in rows]


def run_late(
    spark: SparkSession, batch: Batch, view: str, tasks: Sequence[PartTask], minutes: float
) -> list[PartResult]:
    """The parts of one view whose last expressions Spark evaluates, as one job."""
    shared = spark.sparkContext.broadcast((batch, tuple(tasks)))
    target = batch.views[view]
    asked = {name: spark.sparkContext.accumulator(0) for name in batch.ends}

    def sweep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine, parts = shared.value
        for numbers in batches:
            for number in numbers.column(0).to_numpy():
                lookups: Counter[str] = Counter()
                try:
                    rows = joined_rows(mine, parts[number], lookups)
                except ViewkeeperError as error:
                    raise _carry(error) from error
                for name, count in lookups.items():
                    asked[name].add(count)
                if rows is not None:
                    yield from rows.to_batches()

    try:
        with limited(spark, f"batch {batch.number} of {view}", minutes):
            numbers = spark.range(0, len(tasks), 1, len(tasks))
            joined = numbers.mapInArrow(sweep, _joined_schema(target.plan))
            files = write_frame(
                finished(joined, target.plan), Path(target.folder), target.schema, batch.number
            )
    except ViewkeeperError as error:
        return [PartResult(view, error=error)]
    finally:
        shared.destroy()
    return [PartResult(view, files, lookups={name: a.value for name, a in asked.items()})]


def finished(joined: DataFrame, plan: SweepPlan) -> DataFrame:
    """Spark's share of a view change: its conditions, its outputs, the sum per (row, ts).

    Counts are not summed here: a sum would need a shuffle, and readers sum anyway.
    """
    for condition in plan.late:
        joined = joined.where(spark_sql(condition))
    outputs = [f"{spark_sql(o.expression)} AS `{o.name}`" for o in plan.view.outputs]
    return joined.selectExpr(*outputs, f"`{COUNT}`", f"`{TS}`")


def write_frame(frame: DataFrame, folder: Path, schema: pa.Schema, batch: int) -> tuple[Any, ...]:
    """Write a DataFrame of a view's signed rows with the one writer; the files' descriptors."""
    stored = stored_schema(schema)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        part = context.partitionId() if context else 0
        exact = (b.rename_columns(stored.names).cast(stored) for b in batches)
        for file in write_stream(folder, stored, exact, batch, part):
            yield pa.record_batch([pa.array([pickle.dumps(file)])], schema=_RESULT)

    rows = _run(lambda: frame.mapInArrow(write, _RESULT_DDL).collect())
    return tuple(pickle.loads(bytes(row.result)) for row in rows)


@contextmanager
def limited(spark: SparkSession, what: str, minutes: float) -> Iterator[None]:
    """A job group that is cancelled after a time limit."""
    context = spark.sparkContext
    group = f"viewkeeper {what}"
    context.setJobGroup(group, group, interruptOnCancel=True)
    timer = threading.Timer(minutes * 60, lambda: context.cancelJobGroup(group))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _joined_schema(plan: SweepPlan) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    fields = [(f"{p.index}.{f.name}", f.type) for p in plan.view.places for f in p.fields]
    schema = pa.schema([*fields, (TS, pa.int64()), (COUNT, pa.int64())])
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _run(job: Callable[[], Any]) -> Any:
    """Run a job in which a task may meet an error of ours, or a row make an expression fail."""
    from pyspark.errors import PySparkException

    try:
        return job()
    except PySparkException as error:
        carried = _CARRIED.search(str(error))
        if carried:
            raise pickle.loads(base64.b64decode(carried.group(1))) from error
        raise ExpressionError(
            "an expression of the view failed in Spark", detail=str(error).split("\n")[0]
        ) from error


_CARRIED = re.compile(r"viewkeeper-error:([A-Za-z0-9+/=]+):")


def _carry(error: ViewkeeperError) -> RuntimeError:
    """An error that survives Spark: it keeps nothing of a task's exception but the text."""
    return RuntimeError(f"viewkeeper-error:{base64.b64encode(pickle.dumps(error)).decode()}:")
