"""`viewkeeper query`: one SELECT over the views, all of them from one committed head.

The SQL is Spark's. It is checked before anything is started (`viewkeeper.engine.query`). What the
kernel evaluates with Spark's meaning is answered from the files at once; for the rest Spark is
started, each view becomes a temporary view of the rows as of one head, and the answer is streamed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import click

from viewkeeper.cli.format import WRITERS
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import print_note
from viewkeeper.errors import DefinitionError, ExpressionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from viewkeeper.engine.project import Project
    from viewkeeper.engine.query.checked_query import CheckedQuery
    from viewkeeper.engine.settings.project_file import Settings

TABLE_ROWS = 100

EPILOG = """\b
Examples:
  viewkeeper query "SELECT customer, sum(cents) FROM order_lines GROUP BY customer"
  viewkeeper query "SELECT * FROM order_lines" --as-of 12
  viewkeeper query "SELECT * FROM order_lines" --format csv > lines.csv
  viewkeeper query "SELECT * FROM order_lines" --explain

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
@click.option(
    "--explain",
    "wants_way",
    is_flag=True,
    help="Say whether Spark is needed, and why; run nothing.",
)
@click.pass_obj
def query(
    invocation: Invocation,
    sql: str,
    as_of: int | None,
    form: str,
    limit: int | None,
    wants_way: bool,
) -> int:
    """Run one SELECT over the views.

    Anything but a SELECT over views of this project is refused. What the kernel can evaluate with
    Spark's meaning is answered at once; Spark is started for the rest.
    """
    from viewkeeper.engine.query.checked_query import check_query

    most = TABLE_ROWS if limit is None and form == "table" else limit
    shape = AnswerShape(form, most, told_limit=limit is None)
    if not wants_way and _answer_at_once(invocation, sql, as_of, shape):
        return 0
    with invocation.open_project() as project:
        asked = check_query(sql, tuple(project.catalogue))
        for name in asked.views:
            # A view that is not loaded yet is refused before Spark is started.
            _ = project.view(name).head
        if wants_way:
            _explain_way(project, asked)
        elif not _answer_from_store(project.settings, asked, as_of, shape):
            with _answer_frame(project, asked, as_of) as frame:
                _write_frame(frame, shape)
    return 0


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """How an answer is written, up to how many rows, and whether to say that there are more."""

    form: str
    limit: int | None
    told_limit: bool


def _answer_at_once(
    invocation: Invocation, sql: str, as_of: int | None, shape: AnswerShape
) -> bool:
    """Answer a query over views that are as they were loaded; whether it was.

    The project is not opened: reading the SQL of all its views takes longer than the answer. What
    is wrong is left to the general way, which says it in full.
    """
    # First, because what is imported afterwards would import pandas.
    settings = invocation.read_settings()
    from viewkeeper.engine.query.checked_query import check_query
    from viewkeeper.engine.query.stored_query import unedited_views
    from viewkeeper.warehouse.metadata.head import read_head

    names = unedited_views(settings.folder / "views", read_head(settings.warehouse))
    try:
        asked = check_query(sql, names)
    except DefinitionError:
        return False
    return _answer_from_store(settings, asked, as_of, shape)


def _answer_from_store(
    settings: Settings, asked: CheckedQuery, as_of: int | None, shape: AnswerShape
) -> bool:
    """Answer without Spark, if that can be done; whether it was."""
    from viewkeeper.engine.query.arrow_answer import shown_rows
    from viewkeeper.engine.query.select_clauses import SparkNeeded
    from viewkeeper.engine.query.stored_query import answer_from_store

    try:
        answer = answer_from_store(asked, settings.warehouse, as_of)
        rows = shown_rows(answer if shape.limit is None else answer.slice(0, shape.limit + 1))
    except SparkNeeded:
        return False
    _write_rows(answer.column_names, iter(rows), shape)
    return True


def _explain_way(project: Project, asked: CheckedQuery) -> None:
    from viewkeeper.engine.query.stored_query import choose_way

    way = choose_way(asked, project.newest_head())
    click.echo(f"{'without Spark' if way.plan else 'on Spark'}: {way.reason}")


@contextmanager
def _answer_frame(project: Project, asked: CheckedQuery, as_of: int | None) -> Iterator[DataFrame]:
    """The answer as a DataFrame, while the views that it needs are registered."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    from viewkeeper.engine.spark.error_silence import silence_errors
    from viewkeeper.engine.spark.inlined_with import inline_frame
    from viewkeeper.engine.spark.parsed_plan import check_plan
    from viewkeeper.warehouse.rows.spark_frames import blame_data_files, state_frame

    head, root = project.newest_head(), project.settings.warehouse
    spark: SparkSession = project.spark.get_session()
    for name in asked.views:
        frame = state_frame(
            spark, root, head.require_view(name), project.spark.staging_folder, as_of
        )
        frame.createOrReplaceTempView(name)
    try:
        with silence_errors(), blame_data_files():
            check_plan(spark, asked.text, {*map(str.lower, asked.views), *asked.defined})
            yield inline_frame(spark.sql(asked.text))
    except (AnalysisException, ParseException) as error:
        raise DefinitionError("the query is wrong", detail=_spark_reason(error)) from error
    except (PySparkException, Py4JJavaError) as error:
        raise ExpressionError("the query failed", detail=_spark_reason(error)) from error
    finally:
        for name in asked.views:
            spark.catalog.dropTempView(name)


def _spark_reason(error: Exception) -> str:
    """What Spark says: the innermost cause, without Java's stack and class names."""
    causes = [line for line in str(error).splitlines() if line.startswith("Caused by: ")]
    text = causes[-1].partition(": ")[2].partition(": ")[2] if causes else str(error)
    return text.split("\n\nJVM stacktrace")[0].split("SQLSTATE")[0].strip().rstrip(";")


def _write_frame(frame: DataFrame, shape: AnswerShape) -> None:
    shown = frame if shape.limit is None else frame.limit(shape.limit + 1)
    rows = (tuple(row) for row in _zoned_as_text(shown).toLocalIterator())
    _write_rows(frame.columns, rows, shape)


def _write_rows(
    names: Sequence[str], rows: Iterator[tuple[object, ...]], shape: AnswerShape
) -> None:
    if shape.form == "json" and len(set(names)) < len(names):
        raise DefinitionError(
            "two columns of the answer have one name", hint="give them aliases, or use csv"
        )
    kept = rows if shape.limit is None else islice(rows, shape.limit)
    WRITERS[shape.form](sys.stdout, names, kept)
    if shape.limit is not None and shape.told_limit and next(rows, None) is not None:
        print_note(
            f"only the first {shape.limit} rows; --limit N shows more, --format csv or json all"
        )


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
