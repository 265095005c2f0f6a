"""Our own errors, carried out of Spark tasks.

Spark keeps nothing of a task's exception but its text. So a task that meets one of our errors
raises it packed into text, and the driver unpacks it; what fails in Spark SQL itself, on a row, is
an `ExpressionError`.
"""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from viewkeeper.errors import ExpressionError, ViewkeeperError

T = TypeVar("T")
Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_PACKED = re.compile(r"viewkeeper-error:([A-Za-z0-9+/=]+):")


def carrying(stage: Stage) -> Stage:
    """A stage of a job that packs our errors."""

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from stage(batches)
        except ViewkeeperError as error:
            text = base64.b64encode(pickle.dumps(error)).decode()
            raise RuntimeError(f"viewkeeper-error:{text}:") from error

    return packed


def carried(job: Callable[[], T]) -> T:
    """Run a job; what a task raised of ours is raised here."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
    from pyspark.errors import PySparkException

    try:
        return job()
    except (PySparkException, Py4JJavaError) as error:
        packed = _PACKED.search(str(error))
        if packed:
            raise pickle.loads(base64.b64decode(packed.group(1))) from error
        raise ExpressionError(
            "an expression of the view failed in Spark", detail=str(error).split("\n")[0]
        ) from error
