"""Every query that is answered without Spark has Spark's answer: names, types, rows and order."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import TimestampType

from tests.query.random_selects import RandomSelect
from tests.query.sample_views import ON_ARROW, ON_SPARK, VIEWS
from viewkeeper.engine.query.arrow_answer import answer_query, shown_rows
from viewkeeper.engine.query.arrow_plan import plan_query
from viewkeeper.engine.query.checked_query import check_query
from viewkeeper.engine.query.select_clauses import SparkNeeded
from viewkeeper.engine.spark.job_control import spark_schema
from viewkeeper.engine.spark.spark_session import child_session

SCHEMAS = {name: rows.schema for name, rows in VIEWS.items()}
SEEDS = 30


def answer(text: str) -> pa.Table:
    plan = plan_query(check_query(text, tuple(SCHEMAS)), SCHEMAS)
    return answer_query(plan, [VIEWS[name] for name in plan.views])


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session in which the views are relations of few rows, which need no job to be read."""
    own = child_session(spark)
    for name, rows in VIEWS.items():
        values = [tuple(row.values()) for row in rows.to_pylist()]
        frame = own.createDataFrame(values, spark_schema(rows.schema))
        frame.createOrReplaceTempView(name)
    yield own
    for name in VIEWS:
        own.catalog.dropTempView(name)


def zoned_as_text(frame: DataFrame) -> DataFrame:
    names = [f"c{number}" for number in range(len(frame.columns))]
    zoned = [isinstance(field.dataType, TimestampType) for field in frame.schema]
    texts = [f"CAST({n} AS STRING) AS {n}" if z else n for n, z in zip(names, zoned, strict=True)]
    return frame.toDF(*names).selectExpr(*texts)


def compare(session: SparkSession, text: str) -> None:
    found, expected = answer(text), session.sql(text)
    assert found.column_names == expected.columns, text
    kinds = [field.dataType for field in spark_schema(found.schema)]
    assert kinds == [field.dataType for field in expected.schema], text
    ours = [repr(row) for row in shown_rows(found)]
    theirs = [repr(tuple(row)) for row in zoned_as_text(expected).collect()]
    if "ORDER BY" not in text:
        ours, theirs = sorted(ours), sorted(theirs)
    assert ours == theirs, text


def test_the_corpus_has_one_answer(session: SparkSession) -> None:
    wrong = []
    for text in ON_ARROW:
        try:
            compare(session, text)
        except (AssertionError, SparkNeeded) as error:
            wrong.append(f"{text}\n    {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("text", ON_SPARK)
def test_what_is_not_certain_is_left_to_spark(text: str) -> None:
    with pytest.raises(SparkNeeded):
        answer(text)


def test_random_queries_have_one_answer(session: SparkSession) -> None:
    run_seeds(session, range(SEEDS))


@pytest.mark.campaign
def test_many_random_queries_have_one_answer(session: SparkSession) -> None:
    run_seeds(session, range(1000, 3000))


def run_seeds(session: SparkSession, seeds: range) -> None:
    answered = 0
    for seed in seeds:
        text = RandomSelect(random.Random(seed)).text
        try:
            answer(text)
        except SparkNeeded:
            continue
        answered += 1
        compare(session, text)
    assert answered > len(seeds) // 2, "most of them are answered without Spark"
