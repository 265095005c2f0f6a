"""What Spark's parser makes of a text: the second line behind our own reader, tried without it."""

from __future__ import annotations

from contextlib import suppress

from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from tests.cli.query_samples import FORBIDDEN, HARMLESS
from viewkeeper.engine.query.checked_query import check_query
from viewkeeper.engine.spark.parsed_plan import check_plan
from viewkeeper.errors import DefinitionError

RELATIONS = {"lines", "cities"}
# Only our own reader minds them: both readers know them, each in its own way.
READ_ALIKE = ("SELECT /*+", "FROM lines |>", "SELECT $$a$$", "SELECT 1 -- \\\n, 2")
SECOND = [text for text in FORBIDDEN if not text.startswith(READ_ALIKE)]


def test_queries_over_views_are_let_through(spark: SparkSession) -> None:
    for text in HARMLESS:
        query = check_query(text, ("lines", "cities"))
        check_plan(spark, query.text, RELATIONS | query.defined)


def test_nothing_else_is_let_through_by_the_second_line_either(spark: SparkSession) -> None:
    through = []
    for text in SECOND:
        with suppress(DefinitionError, ParseException):
            check_plan(spark, text, RELATIONS)
            through.append(text)
    assert not through
