"""`viewkeeper query`: one SELECT over the views, all of them from one committed head.

The SQL is Spark's. It is checked before anything is started; then each view that it names becomes
a temporary view of the rows as of one head, and the answer is streamed.

Spark SQL can also write, drop, load jars, run scripts, read files by path and call Java. So the
statement is read first as every reader reads it (`viewkeeper.view.sql.syntax`), and everything in
it must be on a list: the kinds of nodes of its tree, the functions by the names that the user
wrote, the relations, each of which must be a view or a name that a WITH defines. What Spark makes
of the text is held against a list once more (`viewkeeper.engine.spark.parsed_plan`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import click

from viewkeeper.cli.format import WRITERS
from viewkeeper.cli.invocation import Invocation
from viewkeeper.cli.terminal import print_note
from viewkeeper.errors import DefinitionError, ExpressionError, suggest_nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from viewkeeper.engine.project import Project
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp

from viewkeeper.errors import UnsupportedError
from viewkeeper.view.sql import functions
from viewkeeper.view.sql.plain_select import is_word
from viewkeeper.view.sql.sql_text import SqlText, own_span_of
from viewkeeper.view.sql.syntax import read_trees, tokenize_sql

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

    with invocation.open_project() as project:
        asked = check_query(sql, tuple(project.catalogue))
        for name in asked.views:
            # A view that is not loaded yet is refused before Spark is started.
            _ = project.view(name).head
        with _answer_frame(project, asked, as_of) as frame:
            most = TABLE_ROWS if limit is None and form == "table" else limit
            _write_rows(frame, form, most, told_limit=limit is None)
    return 0


@contextmanager
def _answer_frame(project: Project, asked: CheckedQuery, as_of: int | None) -> Iterator[DataFrame]:
    """The answer as a DataFrame, while the views that it needs are registered."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    from viewkeeper.engine.spark.error_silence import silence_errors
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
            yield spark.sql(asked.text)
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


def _write_rows(frame: DataFrame, form: str, limit: int | None, told_limit: bool) -> None:
    names = frame.columns
    if form == "json" and len(set(names)) < len(names):
        raise DefinitionError(
            "two columns of the answer have one name", hint="give them aliases, or use csv"
        )
    shown = frame if limit is None else frame.limit(limit + 1)
    rows = (tuple(row) for row in _zoned_as_text(shown).toLocalIterator())
    kept = rows if limit is None else islice(rows, limit)
    WRITERS[form](sys.stdout, names, kept)
    if limit is not None and told_limit and next(rows, None) is not None:
        print_note(f"only the first {limit} rows; --limit N shows more, --format csv or json all")


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


HINT = 'for example "SELECT * FROM name WHERE ..."'

NODES: tuple[type[exp.Expr], ...] = (
    # Queries and their clauses.
    *(exp.Select, exp.SetOperation, exp.Subquery, exp.With, exp.CTE, exp.From, exp.Join),
    *(exp.Where, exp.Group, exp.GroupingSets, exp.Rollup, exp.Cube, exp.Having, exp.Qualify),
    *(exp.Order, exp.Ordered, exp.Sort, exp.Cluster, exp.Distribute, exp.Limit, exp.Offset),
    *(exp.Table, exp.TableAlias, exp.TableSample, exp.Pivot, exp.Lateral, exp.Values),
    *(exp.Window, exp.WindowSpec, exp.Distinct, exp.Star, exp.Alias, exp.Aliases),
    *(exp.PivotAlias, exp.PivotAny, exp.UnpivotColumns),
    # Values.
    *(exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.HexString),
    *(exp.RawString, exp.DataType, exp.DataTypeParam, exp.ColumnDef, exp.Interval, exp.Var),
    *(exp.Tuple, exp.Lambda, exp.Kwarg, exp.PropertyEQ, exp.Slice, exp.Bracket, exp.Dot),
    *(exp.IntervalSpan, exp.IntervalOp),
    # Operators; functions are judged by their names.
    *(exp.Binary, exp.Unary, exp.Between, exp.In, exp.Any, exp.All, exp.Exists, exp.Filter),
    *(exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls, exp.AtTimeZone, exp.FromTimeZone),
    *(exp.If, exp.Collate, exp.Func),
)
TABLE_CLAUSES = {"this", "alias", "joins", "laterals", "pivots", "sample"}


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """A query that may be run: its text as Spark gets it, and what it reads."""

    text: str
    views: tuple[str, ...]
    defined: frozenset[str]
    """What its WITH clauses define, in lower case."""


def check_query(text: str, views: tuple[str, ...]) -> CheckedQuery:
    """The query, checked; DefinitionError if it is anything but a query over views."""
    sql, tokens, tree = _read_query(text)
    for node in tree.walk():
        if not isinstance(node, NODES):
            raise sql.unsupported_at(f"{node.key.upper()} in a query", 0, HINT)
    for token, name in _function_calls(tokens, tree):
        if name in functions.REFUSED:
            raise sql.unsupported_at(f"the function {name}()", token.start, functions.REFUSED[name])
        if name not in functions.IN_QUERY:
            raise sql.unsupported_at(
                f"the function {name}()", token.start, "only Spark's own are run"
            )
    defined = frozenset(cte.alias.lower() for cte in tree.find_all(exp.CTE))
    known = {name.lower(): name for name in views}
    used: dict[str, None] = {}
    for table in tree.find_all(exp.Table):
        plain = isinstance(table.this, exp.Identifier) and not table.args.get("db")
        clauses = {key for key, value in table.args.items() if value}
        name = table.name.lower()
        if not plain or not clauses <= TABLE_CLAUSES or not (name in known or name in defined):
            raise _unknown_relation(table, views)
        if name in known:
            used[known[name]] = None
    last = [token for token in tokens if token.token_type is not TokenType.SEMICOLON][-1]
    return CheckedQuery(sql.text[: last.end + 1], tuple(used), defined)


def _read_query(text: str) -> tuple[SqlText, list[Token], exp.Query]:
    try:
        read = tokenize_sql(SqlText(text, verdict="cannot be run here"))
        trees = read_trees(read, read.sql, read.tokens) if read.tokens else []
    except UnsupportedError:
        raise
    except DefinitionError as error:
        raise DefinitionError(
            "the query cannot be parsed", detail=error.message, hint=error.hint or HINT
        ) from None
    found = [tree for tree in trees if tree is not None]
    if len(found) != 1:
        raise DefinitionError(f"{len(found)} statements, not one", hint=HINT)
    tree = found[0]
    if not isinstance(tree, exp.Query) or tree.find(exp.Into, exp.DML):
        raise DefinitionError("only SELECT, or WITH ... SELECT, can be run here", hint=HINT)
    return read.sql, read.tokens, tree


def _function_calls(tokens: list[Token], tree: exp.Query) -> Iterator[tuple[Token, str]]:
    """Every word before a bracket that can be the name of a function, as the user wrote it."""
    aliases = [alias.this for alias in tree.find_all(exp.TableAlias) if alias.args.get("columns")]
    named = {span.start for alias in aliases if alias and (span := own_span_of(alias)) is not None}
    padded = [None, *tokens]
    for before, token, bracket in zip(padded, tokens, tokens[1:], strict=False):
        quoted = token.token_type is TokenType.IDENTIFIER
        if bracket.token_type is not TokenType.L_PAREN or not (quoted or is_word(token)):
            continue
        # sqlglot makes one token of words that belong together.
        name = token.text.lower().split()[-1] if token.text.strip() else ""
        if before is not None and before.token_type is TokenType.DOT:
            yield token, f"{name} of a schema"
        elif name in functions.REFUSED:
            yield token, name
        elif token.start not in named and (quoted or name not in functions.QUERY_KEYWORDS):
            yield token, token.text.lower() if quoted else name


def _unknown_relation(table: exp.Table, views: tuple[str, ...]) -> DefinitionError:
    text = table.sql(dialect="spark").partition(" AS ")[0]
    return DefinitionError(
        f"{text} is not a view of this project",
        hint=f"views: {', '.join(views)}{suggest_nearest(table.name, views)}",
    )
