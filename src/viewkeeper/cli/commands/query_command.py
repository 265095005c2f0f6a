"""`viewkeeper query`: one SELECT over the views, all of them from one committed head.

The SQL is Spark's. It is checked before anything is started (`viewkeeper.engine.query`). What the
kernel evaluates with Spark's meaning is answered from the files at once. For the rest, a maintainer
that runs here is asked by its local socket; without one Spark is started, each view becomes a
temporary view of the rows as of one head, and the answer is streamed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import click

from viewkeeper.cli.format import WRITERS
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import print_note
from viewkeeper.errors import DefinitionError

if TYPE_CHECKING:
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
    Spark's meaning is answered at once; the rest by the warm session of `viewkeeper run` if that
    runs on this machine as the same user, else Spark is started.
    """
    from viewkeeper.engine.query.checked_query import check_query

    most = TABLE_ROWS if limit is None and form == "table" else limit
    shape = AnswerShape(form, most, told_limit=limit is None)
    if not wants_way and _answer_at_once(invocation, sql, as_of, shape):
        return 0
    with invocation.open_project() as project:
        asked = check_query(sql, project.catalogue.written.readable_names)
        for name in asked.views:
            # A view that is not loaded yet is refused before Spark is started.
            _ = project.view(name).head
        if wants_way:
            _explain_way(project, asked)
        elif not _answer_from_store(project.settings, asked, as_of, shape):
            _answer_on_spark(project, asked, as_of, shape)
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
    if _answer_from_store(settings, asked, as_of, shape):
        return True
    return invocation.spark is None and _answer_by_maintainer(settings, sql, as_of, shape)


def _answer_by_maintainer(
    settings: Settings, sql: str, as_of: int | None, shape: AnswerShape
) -> bool:
    """Answer by the session of a maintainer that runs here, if one does; whether it was."""
    from viewkeeper.engine.query.query_socket import ask_maintainer
    from viewkeeper.storage.stored_files import local_folder

    most = None if shape.limit is None else shape.limit + 1
    found = ask_maintainer(local_folder(settings.warehouse), sql, as_of, most)
    if found is not None:
        _write_rows(found.names, iter(found.rows), shape)
    return found is not None


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


def _answer_on_spark(
    project: Project, asked: CheckedQuery, as_of: int | None, shape: AnswerShape
) -> None:
    from viewkeeper.engine.query.spark_answer import answering_on_spark

    if not project.spark.is_started:
        print_note("starting Spark: no maintainer runs here that could answer this")
    most = None if shape.limit is None else shape.limit + 1
    with answering_on_spark(project.spark, project.settings.warehouse, asked, as_of, most) as found:
        _write_rows(found.names, found.rows, shape)


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
