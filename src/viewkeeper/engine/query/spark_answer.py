"""A query answered by Spark: each view that it names is a temporary view of one committed head.

The text was checked before, and what Spark makes of it is checked once more. Several queries may
run at a time in one process, so each has a session of its own, in which the temporary views are
nobody else's; the context, and with it the workers, are shared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewkeeper.engine.query.checked_query import CheckedQuery
from viewkeeper.engine.spark.spark_session import SparkHandle, child_session
from viewkeeper.errors import DefinitionError, ExpressionError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.view.sql.quantified.rewritten_text import TextNote
from viewkeeper.warehouse.metadata.head import read_head

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_POSITION = re.compile(r"line (\d+),? pos(?:ition)? (\d+)")


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The columns of an answer, and its rows as they come."""

    names: Sequence[str]
    rows: Iterator[tuple[object, ...]]


@contextmanager
def answering_on_spark(
    handle: SparkHandle,
    root: StoragePath,
    asked: CheckedQuery,
    as_of: int | None,
    most_rows: int | None,
) -> Iterator[FoundRows]:
    """The answer, while the views that it needs are registered; errors of Spark become ours."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    from viewkeeper.engine.spark.error_silence import silence_errors
    from viewkeeper.engine.spark.inlined_with import inline_frame
    from viewkeeper.engine.spark.parsed_plan import check_plan
    from viewkeeper.warehouse.rows.spark_frames import blame_data_files, state_frame

    head, spark = read_head(root), child_session(handle.get_session())
    for name in asked.views:
        frame = state_frame(spark, root, head.require_view(name), handle.staging_folder, as_of)
        frame.createOrReplaceTempView(name)
    try:
        with silence_errors(), blame_data_files():
            check_plan(spark, asked.text, {*map(str.lower, asked.views), *asked.defined})
            found = inline_frame(spark.sql(asked.text))
            shown = _zoned_as_text(found if most_rows is None else found.limit(most_rows))
            # Few rows come at once, by a job of this thread, which a limit can cancel.
            rows = shown.toLocalIterator() if most_rows is None else shown.collect()
            yield FoundRows(found.columns, (tuple(row) for row in rows))
    except (AnalysisException, ParseException) as error:
        note = _note_on(error, asked)
        detail, hint = (_spark_reason(error), None) if note is None else (note.message, note.hint)
        raise DefinitionError("the query is wrong", detail=detail, hint=hint) from error
    except (PySparkException, Py4JJavaError) as error:
        raise ExpressionError("the query failed", detail=_spark_reason(error)) from error
    finally:
        for name in asked.views:
            spark.catalog.dropTempView(name)


def _note_on(error: Exception, asked: CheckedQuery) -> TextNote | None:
    """What an error means that is in a part of the text which the user has not written."""
    if (found := _POSITION.search(str(error))) is None:
        return None
    lines = asked.text.split("\n")[: int(found[1]) - 1]
    return asked.rewritten.note_at(sum(len(line) + 1 for line in lines) + int(found[2]))


def _spark_reason(error: Exception) -> str:
    """What Spark says: the innermost cause, without Java's stack and class names."""
    causes = [line for line in str(error).splitlines() if line.startswith("Caused by: ")]
    text = causes[-1].partition(": ")[2].partition(": ")[2] if causes else str(error)
    return text.split("\n\nJVM stacktrace")[0].split("SQLSTATE")[0].strip().rstrip(";")


def _zoned_as_text(frame: DataFrame) -> DataFrame:
    """Timestamps with a zone as text: Python would show them in this machine's zone."""
    from pyspark.sql.types import TimestampType

    zoned = [isinstance(field.dataType, TimestampType) for field in frame.schema]
    if not any(zoned):
        return frame
    names = [f"c{number}" for number in range(len(zoned))]
    texts = [
        f"CAST({name} AS STRING) AS {name}" if is_zoned else name
        for name, is_zoned in zip(names, zoned, strict=True)
    ]
    return frame.toDF(*names).selectExpr(*texts)
