"""Every call has Spark's meaning and Spark's type, on edge values of every type.

Spark computes the same aggregates over the same rows. Whole numbers, decimals, texts and picked
values must be equal; a float that is computed may differ by as much as the rounding of each of
Spark's own additions can make, since ours are exact and rounded once.
"""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type

from tests.stages.histories import POOLS, input_fields, make_call, make_fold
from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.errors import ExpressionError
from viewkeeper.stages.fold import load_groups, pre_aggregate
from viewkeeper.stages.fold_calls import RULES, fold_result_type
from viewkeeper.view.definition import Field, Fold

GROUP = Field("g", pa.int32())
Groups = list[list[Any]]


def values_of(kind: pa.DataType) -> Groups:
    """Groups of values: only NULLs, single ones, the same twice, all that can be added."""
    pool = [v for v in POOLS[kind] if not isinstance(v, float) or abs(v) < 1e10]
    if kind == pa.int64():
        pool = [v // 8 for v in pool]
    rnd = random.Random(7)
    groups = [[None], [None, None], pool[:1], [pool[0], None], pool[:1] * 3, pool, [*pool, None]]
    groups += [[rnd.choice(pool) for _ in range(rnd.randint(2, 9))] for _ in range(6)]
    if pa.types.is_floating(kind):
        nan, inf = math.nan, math.inf
        groups += [[nan], [nan, 1.0], [inf], [-inf, 1.5], [inf, -inf], [nan, inf], [-0.0]]
        groups += [[rnd.uniform(-1000, 1000) for _ in range(40)] for _ in range(3)]
        if kind == pa.float32():
            groups[-3:] = [[float(round(v)) for v in group] for group in groups[-3:]]
    return groups


def table_of(fields: list[Field], groups: list[list[tuple[Any, ...]]]) -> pa.Table:
    rows = [(number, *row) for number, group in enumerate(groups) for row in group]
    names = [GROUP, *fields]
    columns = {f.name: pa.array([row[i] for row in rows], f.type) for i, f in enumerate(names)}
    return pa.table(columns)


def ours(fold: Fold, rows: pa.Table) -> dict[int, dict[str, Any]]:
    ones = pa.array([1] * rows.num_rows, pa.int64())
    signed = rows.append_column(TS, ones).append_column(COUNT, ones)
    found = load_groups(fold, pre_aggregate(fold, signed))
    return {row["g"]: row for row in found.to_pylist()}


def ask_spark(spark: SparkSession, fold: Fold, rows: pa.Table) -> DataFrame:
    """All calls of a fold in one query."""
    frame = spark.createDataFrame(rows)
    for field in rows.schema:
        if field.type == pa.timestamp("us"):
            frame = frame.withColumn(field.name, frame[field.name].cast("timestamp_ntz"))
    frame.createOrReplaceTempView("rows_of_fold")
    calls = [
        f"{c.function}({', '.join(f.name for f in c.arguments) or '*'}) AS {c.name}"
        for c in fold.calls
    ]
    groups = [group.name for group in fold.groups]
    by = f"GROUP BY {', '.join(groups)}" if groups else ""
    return spark.sql(f"SELECT {', '.join([*groups, *calls])} FROM rows_of_fold {by}")


def check_calls(spark: SparkSession, fold: Fold, rows: pa.Table) -> None:
    """Compare all calls of a fold."""
    frame = ask_spark(spark, fold, rows)
    kinds = {field.name: to_arrow_type(field.dataType, timezone="UTC") for field in frame.schema}
    assert {call.name: call.type for call in fold.calls} == {
        call.name: kinds[call.name] for call in fold.calls
    }
    found = ours(fold, rows)
    theirs = {row["g"]: row for row in frame.toArrow().to_pylist()}
    assert found.keys() == theirs.keys()
    for group, row in theirs.items():
        own = [each for each in rows.to_pylist() if each["g"] == group]
        for call in fold.calls:
            slack = slack_of(call.function, [each[call.arguments[0].name] for each in own])
            one, other = found[group][call.name], row[call.name]
            assert is_same(one, other, slack), f"{call.function} in {group}: {one}, {other}"


def slack_of(function: str, values: list[Any]) -> float:
    """How far Spark's own rounding may lead it away."""
    if function in ("min", "max", "min_by", "max_by", "corr"):
        return 1e-12 if function == "corr" else 0.0
    numbers = [float(v) for v in values if isinstance(v, int | float | Decimal)]
    reach = sum(abs(number) for number in numbers if math.isfinite(number))
    return len(values) * 2.0**-50 * (reach if function in ("sum", "avg") else reach**2 + reach + 1)


def is_same(one: Any, other: Any, slack: float) -> bool:
    if not isinstance(one, float) or not isinstance(other, float):
        return type(one) is type(other) and bool(one == other)
    if math.isfinite(one) and math.isfinite(other):
        return abs(one - other) <= slack
    return str(one) == str(other)


ONE = [kind for kind in POOLS if kind != pa.decimal128(38, 37)]


@pytest.mark.parametrize("kind", ONE, ids=str)
def test_calls_of_one_column_are_sparks(spark: SparkSession, kind: pa.DataType) -> None:
    x = Field("x", kind)
    functions = [f for f in RULES if fold_result_type(f, [kind]) is not None]
    fold = make_fold([GROUP], [make_call(f"v_{f}", f, x) for f in functions])
    rows = table_of([x], [[(v,) for v in group] for group in values_of(kind)])
    check_calls(spark, fold, rows)


def test_calls_of_two_columns_are_sparks(spark: SparkSession) -> None:
    x, y = Field("x", pa.float64()), Field("y", pa.float64())
    functions = ["covar_samp", "covar_pop", "corr", "count"]
    fold = make_fold([GROUP], [make_call(f"v_{f}", f, x, y) for f in functions])
    nan, inf = math.nan, math.inf
    groups: list[list[tuple[Any, ...]]] = [
        [(None, 1.0)],
        [(1.0, 1.0)],
        [(1.0, 2.0), (1.0, 3.0)],
        [(1.0, 2.0), (2.0, 4.0), (None, 3.0), (7.0, None)],
        [(1.0, 2.0), (2.0, 2.0)],
        [(nan, 1.0)],
        [(nan, 1.0), (1.0, 1.0)],
        [(nan, 1.0), (1.0, 2.0)],
        [(inf, 1.0), (1.0, 3.0)],
        [(inf, inf), (1.0, -inf)],
        [(3.0, -1.0), (2.0, 5.0), (-4.0, 1.0)],
    ]
    check_calls(spark, fold, table_of([x, y], groups))


@pytest.mark.parametrize("kind", ONE, ids=str)
def test_picked_rows_are_sparks(spark: SparkSession, kind: pa.DataType) -> None:
    x, y = Field("x", pa.string()), Field("y", kind)
    fold = make_fold([GROUP], [make_call(f"v_{f}", f, x, y) for f in ("min_by", "max_by")])
    pool = [v for v in dict.fromkeys(POOLS[kind]) if v is not None]
    groups: list[list[tuple[Any, ...]]] = [
        [(None, pool[0]), ("a", None)],
        [("a", None)],
        [(f"t{i}", v) for i, v in enumerate(pool)],
    ]
    check_calls(spark, fold, table_of([x, y], groups))


SUMS = [
    (pa.int64(), [2**63 - 1, 1]),
    (pa.int64(), [-(2**63), -1]),
    (pa.decimal128(38, 0), [Decimal(9) * 10**37] * 2),
    (pa.decimal128(38, 38), [Decimal("0.7")] * 2),
]


@pytest.mark.parametrize(("kind", "values"), SUMS)
def test_sums_that_overflow_do_so_in_spark(
    spark: SparkSession, kind: pa.DataType, values: list[Any]
) -> None:
    x = Field("x", kind)
    fold = make_fold([GROUP], [make_call("v", "sum", x)])
    rows = table_of([x], [[(v,) for v in values]])
    with pytest.raises(ExpressionError, match=r"sum\(x\) overflowed"):
        ours(fold, rows)
    with pytest.raises(ArithmeticException):
        ask_spark(spark, fold, rows).collect()


AVERAGES = [
    (pa.decimal128(38, 0), [Decimal(9) * 10**33] * 20),
    (pa.decimal128(38, 37), [Decimal("0.3"), Decimal("0.4"), Decimal("-0.01")]),
    (pa.decimal128(38, 38), [Decimal("0.7")]),
    (pa.decimal128(10, 0), [Decimal(1), Decimal(1), Decimal(2)]),
    (pa.decimal128(15, 2), [Decimal("0.01"), Decimal("-0.02")] * 7 + [Decimal("-0.01")]),
]


@pytest.mark.parametrize(("kind", "values"), AVERAGES, ids=lambda each: str(each)[:20])
def test_averages_of_long_decimals_are_sparks(
    spark: SparkSession, kind: pa.DataType, values: list[Any]
) -> None:
    x = Field("x", kind)
    fold = make_fold([GROUP], [make_call("v", "avg", x)])
    check_calls(spark, fold, table_of([x], [[(v,) for v in values]]))


def test_a_global_fold_of_nothing_is_sparks(spark: SparkSession) -> None:
    x, b = Field("x", pa.float64()), Field("b", pa.bool_())
    names = [f for f in RULES if fold_result_type(f, [x.type]) is not None and f != "count"]
    calls = [make_call(f"v_{f}", f, x) for f in names]
    calls += [make_call("n", "count"), make_call("t", "count_if", b), make_call("e", "every", b)]
    fold = make_fold([], calls)
    schema = pa.schema([(f.name, f.type) for f in input_fields(fold)])
    theirs = ask_spark(spark, fold, schema.empty_table()).toArrow().to_pylist()
    empty = pa.array([], pa.int64())
    rows = schema.empty_table().append_column(TS, empty).append_column(COUNT, empty)
    found = load_groups(fold, pre_aggregate(fold, rows)).select([c.name for c in calls])
    assert found.to_pylist() == theirs
