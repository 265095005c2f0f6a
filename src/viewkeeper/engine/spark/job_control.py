"""Jobs on Spark: each has a name and a time limit, can be watched, and can be cancelled.

Several projects may share a session, and a load runs beside batches; so a job is known by the name
of its group. Arrow schemas become Spark schemas here too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from viewkeeper.engine.spark.error_silence import silence_errors
from viewkeeper.errors import JobLostError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANCEL_SECONDS = 0.5


@contextmanager
def limit_job(
    spark: SparkSession, what: str, minutes: float, pool: str = "batch"
) -> Iterator[None]:
    """A job group that is cancelled after a time limit; pools share the task slots fairly.

    What fails in it is raised, and printed nowhere; what fails after the limit is a JobLostError.
    """
    context = spark.sparkContext
    group = f"viewkeeper {what}"
    context.setJobGroup(group, group, interruptOnCancel=True)
    context.setLocalProperty("spark.scheduler.pool", pool)
    done, is_late = threading.Event(), threading.Event()

    def cancel_late() -> None:
        # Again and again: what was still being planned at the limit becomes a job after it.
        seconds = minutes * 60
        while not done.wait(seconds):
            is_late.set()
            context.cancelJobGroup(group)
            seconds = CANCEL_SECONDS

    threading.Thread(target=cancel_late, name=f"limit {what}", daemon=True).start()
    try:
        with silence_errors():
            yield
    except Exception as error:
        if is_late.is_set():
            raise JobLostError(
                f"a job on Spark took longer than {minutes:g} minutes, and was cancelled",
                hint="see whether Spark has workers; `spark: {job_minutes: ...}` gives jobs longer",
            ) from error
        raise
    finally:
        done.set()


def job_progress(spark: SparkSession, what: str) -> str | None:
    """How far the jobs that `limit_job` began under this name are; None before they have tasks."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [
        tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(f"viewkeeper {what}")
    ]
    stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
    known = [stage for stage in stages if stage]
    total = sum(stage.numTasks for stage in known)
    done = sum(stage.numCompletedTasks for stage in known)
    return f"{done} of {total} tasks" if total else None


def cancel_job(spark: SparkSession, what: str) -> None:
    """Cancel what `limit_job` began under this name."""
    spark.sparkContext.cancelJobGroup(f"viewkeeper {what}")


def spark_schema(schema: pa.Schema) -> Any:
    """The Spark schema of an Arrow schema; naive timestamps stay naive."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
