"""The definition means what Spark means by the same SQL.

Spark is the judge, three times: the type computed for an expression is the one that Spark's
analyser finds; an expression translated for the kernel, written back with every bracket and cast,
has in Spark the value of the user's own text; and what Spark rejects is never accepted for the
kernel.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type

from tests.view.sample import TABLES, define
from viewkeeper.errors import DefinitionError
from viewkeeper.view.expression import Expression, needs_spark
from viewkeeper.view.render import spark_sql_of, spark_type_of

# Small enough that few expressions overflow. As literals they make a relation that Spark evaluates
# in the driver, without a job for each expression.
ROWS = """
    VALUES (true, 1Y, 2S, 3, 4L, 0.5F, 1.5D, 1.50BD, 4BD, 2.000001BD, 3BD, 'a', X'61',
        DATE '2024-01-31', TIMESTAMP_NTZ '2024-01-31 12:00:00', TIMESTAMP '2024-01-31 12:00:00Z'),
    (false, -3Y, 4S, 0, -1L, NULL, -0.0D, -0.01BD, 1BD, NULL, -1.5BD, 'b', NULL,
        DATE '1999-12-31', NULL, NULL),
    (NULL, 1Y, 1S, NULL, 1L, 1.0F, double('NaN'), NULL, -4BD, 0BD, NULL, '2024-01-31', X'',
        NULL, TIMESTAMP_NTZ '2024-01-31 12:00:00.5', NULL),
    (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL)
"""

# Certain, so that the kernel computes them without Spark.
KERNEL = """
    i64 | i8 + i16 | i32 - i64 | i8 * i8 | -i16 | - f32 | f32 + f64 | i32 * f32 | f64 - 1.5
    i64 + 1 | i32 + 10L | d5_2 + d20_6 | d5_2 * d20_6 | i32 * 1.5 | d18_0 - i64 | d5_2 * 0.05
    i8 + 2147483648 | (i32 + 1) * i32 - 2 | 1e3 * i32 | -1 + i32 | - (2147483648) + i64
    1 | -2147483648 | 1.50 | .5 | 'text' | true | date '2024-02-29'
    timestamp_ntz '2024-01-31 12:00:00.5' | 00.10 | 1. | 7Y | 7S | timestamp '2024-01-31 12:00:00Z'
    cast(null as string) | cast(null as decimal(5, 2))
    i8 = i64 | i32 < 1.5 | f64 >= 2 | f64 < 0.1 | d5_2 = 1 | d5_2 <> i32 | d18_0 <= d20_6 | s = 'a'
    d >= '2024-01-31' | d < date '2024-02-01' | b = true | (((i32 + (1))) > 1) | bin = bin
    ts <> ts | ntz <= ntz
    s <=> null | i32 = null | i64 in (1, 2, null) | i64 not in (1, 4) | d between '2000-01-01' and d
    i32 is null | s is not null | not b | not b and i32 > 0 or s = 'b' | b or i32 > 0 and s = 'b'
    i32 not between -1 and 1 | i64 is distinct from 4 | i64 is not distinct from i8 | i32 == 3 | b
    f32 = f64 | f32 > 0.5 | i64 = 1e0 | (i32 > 1) = b | not (b and null)
    b or null | i32 != 3
"""

# Not certain, or not the kernel's business.
SPARK = """
    i32 / 2 | i32 % 2 | i32 div 2 | d5_2 + 1 | d38_10 + d38_10 | d38_10 * d5_2 | d5_2 + f64 | -d5_2
    upper(s) | s || s | case when b then 1 else 2 end | cast(i32 as bigint) | i32::string
    if(b, 1, 2) | s = 1 | i32 = '1' | b < true | bin < bin | d < ts | s like 'a%' | d + 1
    d5_2 > f64 | 'it\\'s'
    i32 = i64 = b | i32 = i64 is null | b is true | cast(300 as tinyint) | s in (s, 'a') | ~i32
    9223372036854775808 | timestamp '2024-01-31 12:00:00' | d38_10 > d5_2 + 0.1234567890123456789
    null is null | null = null | i32 in (1, 5000000000) | i32 + null | d = '2024-1-5' | 'a' 'b'
    try_cast(s as int) | i32 & 1 | extract(year from d) | date_add(d, 1) | timestampadd(DAY, 1, d)
    cast(s as varchar(3)) | cast(i32 as decimal) | date '2024-1-5' | x'ff' | interval '1' day + d
    left(s, 1) | trim(both 'a' from s) | s rlike 'a' | coalesce(i32, i64) | nullif(s, 'a')
"""


def listed(text: str) -> list[str]:
    expressions = [part.strip() for line in text.splitlines() for part in line.split(" | ")]
    return [expression for expression in expressions if expression]


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> None:
    """`all_types` as `__place_0`, and the same rows under labels."""
    types = TABLES["all_types"]
    names = [f"c{index}" for index in range(len(types))]
    rows = spark.sql(f"SELECT * FROM {ROWS} AS t({', '.join(names)})")
    casts = [
        f"CAST({name} AS {spark_type_of(kind)})"
        for name, kind in zip(names, types.values(), strict=True)
    ]
    typed = rows.selectExpr(*casts)
    typed.toDF(*types).createOrReplaceTempView("__place_0")
    typed.toDF(*(f"0.{name}" for name in types)).createOrReplaceTempView("labelled")


def translated(text: str) -> tuple[str, Expression, pa.DataType | None]:
    view = define(f"SELECT {text} AS x FROM lab.all_types AS t")
    schema = view.schema
    return view.query, view.outputs[0].expression, schema.field("x").type if schema else None


def analysed(spark: SparkSession, query: str) -> pa.DataType | None:
    """The type that Spark's analyser finds, None if it rejects the query."""
    try:
        return to_arrow_type(spark.sql(query).schema["x"].dataType, timezone="UTC")
    except AnalysisException:
        return None


@pytest.mark.parametrize("text", [*listed(KERNEL), *listed(SPARK)])
@pytest.mark.usefixtures("table")
def test_types_are_those_of_sparks_analyser(spark: SparkSession, text: str) -> None:
    query, _, kind = translated(text)
    found = analysed(spark, query)
    assert found is not None, "Spark rejects it"
    assert kind in (None, found)


@pytest.mark.parametrize("text", listed(KERNEL))
def test_what_is_certain_stays_in_the_kernel(text: str) -> None:
    assert not needs_spark(translated(text)[1])


@pytest.mark.parametrize("text", listed(SPARK))
def test_what_is_not_certain_is_left_to_spark(text: str) -> None:
    assert needs_spark(translated(text)[1])


@pytest.mark.usefixtures("table")
def test_translation_keeps_every_value(spark: SparkSession) -> None:
    assert_same_values(spark, [*listed(KERNEL), *listed(SPARK)])


COLUMNS = st.sampled_from(sorted(TABLES["all_types"]))
LITERALS = st.sampled_from(
    ["1", "-2", "3000000000", "1.5", "0.25", "-1e0", "2L", "'a'", "'2024-01-31'", "true", "null"]
)
OPERATORS = ["+", "-", "*", "=", "<>", "<", "<=", ">", ">=", "<=>", "and", "or"]


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(inner, st.sampled_from(OPERATORS), inner).map(" ".join)
    return st.one_of(
        binary,
        binary,
        inner.map("({})".format),
        inner.map("not {}".format),
        inner.map("- {}".format),
        inner.map("{} is null".format),
        st.tuples(inner, inner, inner).map(lambda parts: "{} between {} and {}".format(*parts)),
        st.tuples(inner, LITERALS, LITERALS).map(lambda parts: "{} in ({}, {})".format(*parts)),
    )


EXPRESSIONS = st.recursive(st.one_of(COLUMNS, COLUMNS, LITERALS), compound, max_leaves=6)


@pytest.mark.usefixtures("table")
@settings(max_examples=settings().max_examples * 2)
@given(text=EXPRESSIONS)
def test_any_expression_has_sparks_type_and_value(spark: SparkSession, text: str) -> None:
    try:
        query, expression, kind = translated(text)
    except DefinitionError:
        # A NULL without a type; or a nesting of operators that sqlglot does not read.
        return
    found = analysed(spark, query)
    if found is None:
        assert needs_spark(expression), "Spark rejects it"
        return
    assert kind in (None, found)
    if not needs_spark(expression):
        assert_same_values(spark, [text])


def assert_same_values(spark: SparkSession, texts: list[str]) -> None:
    """The user's text and our translation, both evaluated by Spark on every row."""
    for text in texts:
        query, expression, _ = translated(text)
        ours = f"SELECT {spark_sql_of(expression)} AS x FROM labelled"
        assert values(spark, ours) == values(spark, query), text


def values(spark: SparkSession, query: str) -> list[str] | str | None:
    """The rows of a query, or the name of the error that a row causes."""
    try:
        return [repr(row["x"]) for row in spark.sql(query).collect()]
    except PySparkException as error:
        return error.getCondition()
