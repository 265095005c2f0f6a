"""The definition means what Spark means by the same SQL.

Spark is the judge, three times: the type computed for an expression is the one that Spark's
analyser finds; an expression translated for the kernel, written back with every bracket and cast,
has in Spark the value of the user's own text; and what Spark rejects is never accepted for the
kernel.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type

from tests.view.sample import TABLES, define
from viewkeeper.delta.evaluate import evaluate_expression
from viewkeeper.delta.kernel import canonical_floats
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
    s <=> null | i32 = null | i64 in (1, 2, null) | i64 not in (1, 4)
    d between '2000-01-01' and d
    i32 is null | s is not null | not b | not b and i32 > 0 or s = 'b' | b or i32 > 0 and s = 'b'
    i32 not between -1 and 1 | i64 is distinct from 4 | i64 is not distinct from i8 | i32 == 3 | b
    f32 = f64 | f32 > 0.5 | i64 = 1e0 | (i32 > 1) = b | not (b and null)
    b or null | i32 != 3
    d5_2 + 1 | 1 - d5_2 | d38_10 + d38_10 | d38_10 * d5_2 | d5_2 * (1 - d5_2) * (1 + d20_6) | -d5_2
    d5_2 / 3 | d5_2 / d20_6 | d5_2 / (f64 + 1e0) | i64 / (i32 + 1e0) | i32 / 2 | f32 / f32
    d5_2 % 2 | d5_2 % i8
    i32 % 2 | mod(i32, 2) | f64 % 2 | - i32 % 2 | 100.00 * d5_2 / 2 | i32 * 2 / 3 % 5
    upper(s) | ucase(s) | lower(s) | trim(s) | ltrim(s) | rtrim(s) | length(s) | char_length(s)
    s || s
    s || '-' || s | concat(s, '-', s) | left(s, 1) | substring(s, 1, 2) | substr(s, i8)
    substr(s, -1)
    substring(s from 2 for 1) | startswith(s, 'a') | endswith(s, s) | contains(s, s) | s like 'a%'
    s not like '%b' | not s like '_' | s like 'a%' or s like '%1'
    case when b then 1 else 2 end | case when b then 1 else 2.5 end | if(b, 1, 2)
    if(i32 > 1, d5_2, 0)
    case i32 when 3 then 'a' when 0 then 'b' end | case when (i32 > 1) then (i32) else (i64) end
    coalesce(i32, i64) | coalesce(d5_2, 0) | coalesce(d5_2, f64) | coalesce(null, i32)
    nvl(s, 'x')
    ifnull(d, date '2024-01-01') | nullif(s, 'a') | nullif(i32, 0) | nvl2(s, 1, 2) | isnull(s)
    isnotnull(i32) | greatest(i8, i64, 3) | least(d5_2, 1) | least(s, 'b') | greatest(f32, f64)
    s in (s, 'a') | i32 in (1, 5000000000) | i32 in (1, 2.5, i64) | s not in ('a', 'b')
    f64 in (1.5, 2)
    case when i32 <> 0 then 1 % i32 end | i32 <> 0 and 1 % i32 = 0 | if(i32 = 0, 0, 6 / i32)
    year(d) | year(ts) | month(ntz) | day(d) | dayofmonth(ts) | quarter(ts) | quarter(d) | hour(ts)
    minute(ntz) | second(ts) | extract(year from d) | extract(hour from ts)
    date_trunc('month', ts)
    date_trunc('WEEK', ntz) | date_trunc('dd', d) | trunc(d, 'MM') | trunc(d, 'year')
    datediff(d, d)
    datediff(d, date '2024-02-29') | date_add(d, 1) | date_add(d, i32) | date_sub(d, 1) | d + 1
    d - 1
    d + i32 | d + interval 1 day | d - interval '3' month | d + interval 1 year | add_months(d, i8)
    date '1998-12-01' - interval '90' day | d < date '1998-12-01' + interval 2 years
    round(d20_6, 2) | round(d5_2) | round(i32) | round(d5_2, -1) | abs(i32) | abs(d5_2) | abs(f64)
    cast(i32 as bigint) | i32::string | cast(i32 as decimal) | cast(d5_2 as double)
    cast(ts as date)
    cast(d20_6 as decimal(8, 1)) | int(i64) | string(d) | cast(b as string) | cast(ts as string)
    cast(s as varchar(3)) | to_date(ts) | cast(i32 + 1 as bigint) | cast(d as timestamp) | i64::int
    if(s like 'a%', upper(s), coalesce(s, 'none')) | concat(s, cast(i32 as string))
"""

# Not certain, or not the kernel's business.
SPARK = """
    i32 div 2 | d5_2 + f64 | upper(bin) | s || 1 | concat(s, i32) | case when b then 1 else 'a' end
    s = 1 | i32 = '1' | b < true | bin < bin | d < ts | s like s | s ilike 'a%' | d - d
    d5_2 > f64 | 'it\\'s' | s like 'a/%' escape '/' | -d38_10 | coalesce(s, 1) | round(f64, 1)
    i32 = i64 = b | i32 = i64 is null | b is true | cast(300 as tinyint) | ~i32 | round(i32, -1)
    9223372036854775808 | timestamp '2024-01-31 12:00:00' | d38_10 > d5_2 + 0.1234567890123456789
    null is null | null = null | i32 + null | d = '2024-1-5' | 'a' 'b'
    coalesce(null, null) is null
    try_cast(i32 as int) | i32 & 1 | timestampadd(DAY, 1, d) | date_sub(d, i32) | trunc(d, 'y')
    date '2024-1-5' | x'ff' | interval '1' day + d | extract(second from ts) | date_trunc('y', ts)
    trim(both 'a' from s) | s rlike 'a' | cast(f64 as string) | hour(d) | right(s, 1)
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


@pytest.mark.usefixtures("table")
def test_the_kernel_has_sparks_values(spark: SparkSession) -> None:
    """What runs inline gives the rows that Spark gives for the user's own text."""
    rows = spark.sql("SELECT * FROM labelled").toArrow()
    fields = [(f"0.{name}", kind) for name, kind in TABLES["all_types"].items()]
    for text in listed(KERNEL):
        query, expression, _ = translated(text)
        ours = inline_values(expression, rows.cast(pa.schema(fields)))
        assert ours == canonical_rows(spark, query), text


def inline_values(expression: Expression, table: pa.Table) -> list[str]:
    return shown_values(evaluate_expression(expression, table))


def canonical_rows(spark: SparkSession, query: str) -> list[str]:
    return shown_values(spark.sql(query).toArrow()["x"])


def shown_values(values: Any) -> list[str]:
    return [repr(value) for value in canonical_floats(values).to_pylist()]


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
