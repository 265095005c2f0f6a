"""Expressions held against Spark: the same values, and errors only where Spark has them.

All expressions of a test are columns of one query. A row for which the kernel has an error is left
out of it, and asked for by itself: then Spark must have an error too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from viewkeeper.delta.evaluate import evaluate_expression
from viewkeeper.delta.kernel import canonical_floats
from viewkeeper.engine.spark.error_silence import silence_errors
from viewkeeper.engine.spark.prompt_answers import hasten_answers
from viewkeeper.errors import ExpressionError
from viewkeeper.view.expression import Call, Expression, walk_expression
from viewkeeper.view.kernel_words import is_evaluable
from viewkeeper.view.render import spark_sql_of

ROW = "row"
EXCLUDED = "spark.sql.optimizer.excludedRules"
SHARING = "spark.sql.subexpressionElimination.enabled"
INTERPRETATION = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"


def judge(
    spark: SparkSession, table: pa.Table, expressions: Sequence[Expression], errors: int = 3
) -> int:
    """How many expressions fail; of each so many failing rows as `errors` says are asked for."""
    numbered = table.append_column(ROW, pa.array(range(len(table)), pa.int32()))
    numbered_in_spark(spark, numbered)
    failing = [failing_rows(expression, numbered) for expression in expressions]
    texts = [guarded(one, rows) for one, rows in zip(expressions, failing, strict=True)]
    names = [f"x{index}" for index in range(len(expressions))]
    selected = ", ".join(f"{text} AS {name}" for text, name in zip(texts, names, strict=True))
    # As a job, in the code that Spark generates; by itself it would interpret so few rows.
    # What several expressions share it would evaluate for all rows, also those that reach none.
    options = {EXCLUDED: INTERPRETATION, SHARING: "false"}
    for name, value in options.items():
        spark.conf.set(name, value)
    found = spark.sql(f"SELECT {selected}, `{ROW}` FROM judged").toArrow().sort_by(ROW)
    for name in options:
        spark.conf.unset(name)
    for expression, rows, name in zip(expressions, failing, names, strict=True):
        assert_same(expression, numbered, rows, found[name])
        for row in rows[:errors]:
            assert_spark_fails(spark, expression, row)
    return sum(map(bool, failing))


def numbered_in_spark(spark: SparkSession, table: pa.Table) -> None:
    hasten_answers(spark)
    spark.createDataFrame(table).createOrReplaceTempView("judged")


def failing_rows(expression: Expression, table: pa.Table) -> list[int]:
    """The rows for which the kernel has an error."""
    for node in walk_expression(expression):
        assert not isinstance(node, Call) or is_evaluable(node), node
    return list(failing_between(expression, table, 0, len(table)))


def failing_between(expression: Expression, table: pa.Table, start: int, end: int) -> Iterator[int]:
    """The failing rows of a part of a table: none if the part does not fail, else those of its
    halves."""
    if not fails(expression, table.slice(start, end - start)):
        return
    if end - start == 1:
        yield start
        return
    middle = (start + end) // 2
    yield from failing_between(expression, table, start, middle)
    yield from failing_between(expression, table, middle, end)


def fails(expression: Expression, table: pa.Table) -> bool:
    try:
        evaluate_expression(expression, table)
    except ExpressionError:
        return True
    return False


def guarded(expression: Expression, without: list[int]) -> str:
    text = spark_sql_of(expression)
    if not without:
        return text
    return f"CASE WHEN `{ROW}` NOT IN ({', '.join(map(str, without))}) THEN {text} END"


def assert_same(expression: Expression, table: pa.Table, failing: list[int], found: Any) -> None:
    kept = sorted({*range(len(table))}.difference(failing))
    ours = plain(evaluate_expression(expression, table.take(pa.array(kept, pa.int64()))))
    theirs = plain(found.take(pa.array(kept, pa.int64())))
    assert same_type(ours.type, theirs.type), (spark_sql_of(expression), ours.type, theirs.type)
    for row, one, other in zip(kept, ours.to_pylist(), theirs.to_pylist(), strict=True):
        assert repr(one) == repr(other), (
            *(spark_sql_of(expression), table.slice(row, 1).to_pylist(), one, other),
        )


def plain(values: Any) -> Any:
    """Values in one array; dates and instants as numbers, because Python lacks some."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_date(whole.type):
        return whole.cast(pa.int32())
    if pa.types.is_timestamp(whole.type):
        return whole.cast(pa.int64())
    return canonical_floats(whole)


def same_type(ours: pa.DataType, theirs: pa.DataType) -> bool:
    return ours == theirs


def assert_spark_fails(spark: SparkSession, expression: Expression, row: int) -> None:
    """Its error as it is: what PySpark makes of one, for people, takes longer than the query."""
    text = spark_sql_of(expression)
    try:
        with silence_errors():
            answer = spark.sql(f"SELECT {text} AS x FROM judged WHERE `{ROW}` = {row}").collect()
    except PySparkException:
        return
    raise AssertionError(f"only the kernel fails: {text} in row {row}: {answer}")
