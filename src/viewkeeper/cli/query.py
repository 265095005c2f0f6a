"""`viewkeeper query`: one SELECT over the views, all of them from one committed head.

The SQL is Spark's. It is checked before anything is started (`viewkeeper.cli.select`); then each
view that it names becomes a temporary view of the rows as of one head, and the answer is streamed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import click

from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.rows import WRITERS
from viewkeeper.cli.speech import note
from viewkeeper.errors import DefinitionError, ExpressionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from viewkeeper.cli.select import Query
    from viewkeeper.engine.project import Project

TABLE_ROWS = 100

EPILOG = """\b
Examples:
  viewkeeper query "SELECT customer, sum(cents) FROM order_lines GROUP BY customer"
  viewkeeper query "SELECT * FROM order_lines" --as-of 12
  viewkeeper query "SELECT * FROM order_lines" --format csv > lines.csv

\b
Values are exact. In a table NULL is the word NULL. In CSV it is an empty field, and an empty text
is "". In JSON, decimals, dates and timestamps are texts, bytes are hexadecimal, NULL is null.

Exit codes: 0 answered, 2 the query is refused or fails, or the ts is outside the kept window."""


@click.command(epilog=EPILOG)
@click.argument("sql")
@click.option("--as-of", type=click.IntRange(0), metavar="TS", help="The state as of this ts.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(WRITERS)),
    default="table",
    show_default=True,
    help="How the rows are written; csv and json are streamed.",
)
@click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="N",
    help=f"At most so many rows.  [default: {TABLE_ROWS} in a table, else all]",
)
@click.pass_obj
def query(invocation: Invocation, sql: str, as_of: int | None, form: str, limit: int | None) -> int:
    """Run one SELECT over the views.

    Anything but a SELECT over views of this project is refused.
    """
    from viewkeeper.cli.select import check_query

    with invocation.open() as project:
        asked = check_query(sql, tuple(project.catalogue))
        for name in asked.views:
            # A view that is not loaded yet is refused before Spark is started.
            _ = project.view(name).head
        with _answer(project, asked, as_of) as frame:
            most = TABLE_ROWS if limit is None and form == "table" else limit
            _write(frame, form, most, told_limit=limit is None)
    return 0


@contextmanager
def _answer(project: Project, asked: Query, as_of: int | None) -> Iterator[DataFrame]:
    """The answer as a DataFrame, while the views that it needs are registered."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    from viewkeeper.engine.error_silence import silence_errors
    from viewkeeper.engine.parsed_plan import check_plan
    from viewkeeper.warehouse.frames import blaming_files, state_frame

    head, root = project.head(), project.settings.warehouse
    spark: SparkSession = project.spark.get()
    for name in asked.views:
        frame = state_frame(spark, root, head.view(name), project.spark.staging, as_of)
        frame.createOrReplaceTempView(name)
    try:
        with silence_errors(), blaming_files():
            check_plan(spark, asked.text, {*map(str.lower, asked.views), *asked.defined})
            yield spark.sql(asked.text)
    except (AnalysisException, ParseException) as error:
        raise DefinitionError("the query is wrong", detail=_reason(error)) from error
    except (PySparkException, Py4JJavaError) as error:
        raise ExpressionError("the query failed", detail=_reason(error)) from error
    finally:
        for name in asked.views:
            spark.catalog.dropTempView(name)


def _reason(error: Exception) -> str:
    """What Spark says: the innermost cause, without Java's stack and class names."""
    causes = [line for line in str(error).splitlines() if line.startswith("Caused by: ")]
    text = causes[-1].partition(": ")[2].partition(": ")[2] if causes else str(error)
    return text.split("\n\nJVM stacktrace")[0].split("SQLSTATE")[0].strip().rstrip(";")


def _write(frame: DataFrame, form: str, limit: int | None, told_limit: bool) -> None:
    names = frame.columns
    if form == "json" and len(set(names)) < len(names):
        raise DefinitionError(
            "two columns of the answer have one name", hint="give them aliases, or use csv"
        )
    shown = frame if limit is None else frame.limit(limit + 1)
    rows = (tuple(row) for row in _exact(shown).toLocalIterator())
    kept = rows if limit is None else islice(rows, limit)
    WRITERS[form](sys.stdout, names, kept)
    if limit is not None and told_limit and next(rows, None) is not None:
        note(f"only the first {limit} rows; --limit N shows more, --format csv or json all")


def _exact(frame: DataFrame) -> DataFrame:
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
