"""Every function of a recompute has Spark's meaning and Spark's type, on edge values of every type.

A recompute is written as SQL, with its rows sorted in full beneath the window, and Spark runs that
over the same rows. All calls of a type are one query. Values that are computed from floats may
differ by the rounding of Spark's own additions.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_type

from tests.stages.histories import POOLS
from tests.stages.recompute_nodes import (
    FLAG,
    FRAMES,
    KEY,
    NUMBER,
    ORDERS,
    count_rows,
    make_recompute,
    make_window_call,
    random_rows,
)
from viewkeeper.delta.algebra import COUNT
from viewkeeper.stages.fold_calls import RULES
from viewkeeper.stages.key_recompute import evaluate_rows
from viewkeeper.stages.window_calls import window_result_type
from viewkeeper.view.definition import Field, KeyRecompute, SortKey, WindowCall, WindowFrame
from viewkeeper.view.recompute_sql import recompute_sql

KINDS = [pa.int32(), pa.int64(), pa.decimal128(5, 2), pa.float64(), pa.string(), pa.date32()]
KINDS += [pa.bool_(), pa.timestamp("us", "UTC")]
ID = Field("i", pa.int32())


def run_on_spark(spark: SparkSession, node: KeyRecompute, rows: pa.Table) -> pa.Table:
    spark.createDataFrame(rows).createOrReplaceTempView("rows_of_recompute")
    frame = spark.sql(recompute_sql(node, "rows_of_recompute"))
    kinds = {field.name: to_arrow_type(field.dataType, timezone="UTC") for field in frame.schema}
    assert {field.name: field.type for field in node.fields} == kinds
    return frame.toArrow()


def compare_node(spark: SparkSession, node: KeyRecompute, rows: pa.Table) -> None:
    """The same rows, told apart by their number or key."""
    ours = evaluate_rows(node, count_rows(rows, [1] * rows.num_rows), 1)
    theirs = run_on_spark(spark, node, rows)
    name = ID.name if not node.is_grouped else node.keys[0]
    found = {row[name]: row for row in ours.to_pylist()}
    wanted = {row[name]: row for row in theirs.to_pylist()}
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        for call in node.calls:
            one, other = found[key][call.name], row[call.name]
            assert is_same(one, other), f"{call}\nat {key}: {one!r}, Spark {other!r}"
    assert all(row[COUNT] == 1 for row in found.values())


def is_same(one: Any, other: Any) -> bool:
    if not isinstance(one, float) or not isinstance(other, float):
        return type(one) is type(other) and bool(one == other)
    if math.isfinite(one) and math.isfinite(other):
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-12)
    return str(one) == str(other)


def calls_of(kind: pa.DataType, rnd: random.Random) -> list[WindowCall]:
    """Every function that takes a value of a type, over some frames."""
    x = Field("x", kind)
    made: list[tuple[str, tuple[Field, ...], WindowFrame, dict[str, Any]]] = []
    for function in RULES:
        if window_result_type(function, [kind]) is not None:
            for frame in rnd.sample(FRAMES, 2):
                where = FLAG.name if rnd.random() < 0.3 else None
                made.append((function, (x,), frame, {"where": where}))
    for nulls in (False, True):
        for frame in rnd.sample(FRAMES, 3):
            for function in ("first_value", "last_value", "nth_value"):
                settings = ("2",) if function == "nth_value" else ()
                made.append((function, (x,), frame, {"settings": settings, "ignores_nulls": nulls}))
        for function in ("lag", "lead"):
            settings = (rnd.choice(["1", "2", "-1"]),)
            others = {"settings": settings, "ignores_nulls": nulls}
            made.append((function, (x, x), FRAMES[0], others))
    return [
        make_window_call(f"c{number}", function, *arguments, frame=frame, **others)
        for number, (function, arguments, frame, others) in enumerate(made)
    ]


def plain_rows(kind: pa.DataType, seed: int) -> pa.Table:
    """Rows whose sums Spark can make exactly enough, each with a number."""
    rnd = random.Random(seed)
    x = Field("x", kind)
    rows = random_rows((KEY, NUMBER, FLAG, x), 60, rnd)
    if kind == pa.float64():
        values = [
            v if v is None or abs(v) < 1e10 else float(rnd.randint(-9, 9)) / 4
            for v in rows["x"].to_pylist()
        ]
        rows = rows.set_column(3, "x", pa.array(values, kind))
    if kind == pa.int64():
        values = [v if v is None else v // 64 for v in rows["x"].to_pylist()]
        rows = rows.set_column(3, "x", pa.array(values, kind))
    return rows.append_column(ID.name, pa.array(range(60), ID.type))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_functions_of_one_column_are_sparks(spark: SparkSession, kind: pa.DataType) -> None:
    rnd = random.Random(str(kind))
    rows = plain_rows(kind, 5)
    read = (ID, KEY, NUMBER, FLAG, Field("x", kind))
    node = make_recompute(calls_of(kind, rnd), read, [rnd.choice(ORDERS)])
    compare_node(spark, node, rows)


def test_ranks_are_sparks(spark: SparkSession) -> None:
    rows = plain_rows(pa.int32(), 3)
    functions = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist")
    calls = [make_window_call(f"c{n}", f) for n, f in enumerate(functions)]
    calls += [make_window_call(f"t{n}", "ntile", settings=(str(n),)) for n in (1, 2, 3, 4, 7, 100)]
    for order in (ORDERS[0], ORDERS[1]):
        compare_node(spark, make_recompute(calls, (ID, KEY, NUMBER), [order]), rows)


RANGES = {
    pa.int32(): ("-1", "2"),
    pa.int64(): ("-3", "9007199254740993"),
    pa.decimal128(5, 2): ("-1.50", "1.01"),
    pa.float64(): ("-0.2", "0.9"),
    pa.date32(): ("-30", "7"),
    pa.timestamp("us", "UTC"): ("-1000001", "86400000000"),
}


@pytest.mark.parametrize("kind", RANGES, ids=str)
def test_ranges_are_sparks(spark: SparkSession, kind: pa.DataType) -> None:
    low, high = RANGES[kind]
    rows = plain_rows(kind, 11)
    keep = [v is None or not is_extreme(v) for v in rows["x"].to_pylist()]
    rows = rows.filter(pa.array(keep))
    bounds = [(low, "0"), (low, high), (None, high), ("0", high), (low, None), (high, high)]
    for order in (SortKey("x"), SortKey("x", True, True), SortKey("x", False, True)):
        calls = [
            make_window_call(f"c{n}", "count", frame=WindowFrame("range", start, end))
            for n, (start, end) in enumerate(bounds)
        ]
        node = make_recompute(calls, (ID, KEY, Field("x", kind)), [order])
        compare_node(spark, node, rows)


MONTH_ENDS = [
    *("2023-01-28", "2023-01-29", "2023-01-30", "2023-01-31", "2023-02-27", "2023-02-28"),
    *("2023-03-01", "2023-03-28", "2023-03-31", "2024-01-29", "2024-01-31", "2024-02-28"),
    *("2024-02-29", "2024-03-01", "2024-03-29", "2024-03-30", "2024-03-31", "2024-04-30"),
    *("1969-12-31", "1970-01-31", "1900-02-28", "1900-03-01", "2000-02-29", "2100-02-28"),
]
MONTH_BOUNDS = [
    *(("-1", "0"), ("-1", "1"), ("0", "1"), ("-12", "0"), ("0", "12"), ("-13", "-1")),
    *(("1", "2"), (None, "-1"), ("1", None), ("-1200", "25"), ("-1", "-1"), ("1", "1")),
]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us", "UTC")], ids=str)
def test_ranges_of_months_are_sparks(spark: SparkSession, kind: pa.DataType) -> None:
    rnd = random.Random(7)
    values: list[Any] = [None, None, *MONTH_ENDS, *rnd.sample(MONTH_ENDS, 12)]
    if kind != pa.date32():
        times = ("00:00:00", "00:00:00.000001", "12:30:00", "23:59:59.999999")
        values = [v and f"{v} {rnd.choice(times)}" for v in values * 2]
    x = pa.array(values).cast(pa.timestamp("us")).cast(kind)
    keys = pa.array([rnd.choice([None, 1, 2]) for _ in values], KEY.type)
    rows = pa.table({KEY.name: keys, "x": x, ID.name: pa.array(range(len(values)), ID.type)})

    def months(bound: str | None) -> str | None:
        return bound if bound in (None, "0") else f"{bound} months"

    for order in (SortKey("x"), SortKey("x", True, True), SortKey("x", False, True)):
        calls = [
            make_window_call(name, function, ID, frame=WindowFrame("range", months(a), months(b)))
            for n, (a, b) in enumerate(MONTH_BOUNDS)
            for name, function in ((f"c{n}", "count"), (f"s{n}", "sum"), (f"a{n}", "avg"))
        ]
        compare_node(spark, make_recompute(calls, (ID, KEY, Field("x", kind)), [order]), rows)


def is_extreme(value: Any) -> bool:
    """Values to which nothing can be added in their type."""
    year = getattr(value, "year", None)
    return year in (1, 9999) or value in (-(2**31), 2**31 - 1)


@pytest.mark.parametrize("kind", [pa.int32(), pa.float64(), pa.decimal128(5, 2)], ids=str)
def test_percentiles_are_sparks(spark: SparkSession, kind: pa.DataType) -> None:
    x = Field("x", kind)
    calls = [
        make_window_call(
            f"{'u' if down else 'd'}{f[-1]}{n}",
            f,
            x,
            settings=(p,),
            order=(SortKey("x", down, down),),
        )
        for f in ("percentile", "percentile_disc")
        for n, p in enumerate(("0.0", "0.25", "0.3", "0.5", "0.99", "1.0"))
        for down in (False, True)
    ]
    rows = plain_rows(kind, 21)
    compare_node(spark, make_recompute(calls, (KEY, x), is_grouped=True), rows)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_modes_are_sparks(spark: SparkSession, kind: pa.DataType) -> None:
    x = Field("x", kind)
    calls = [
        make_window_call(f"c{n}", "mode", x, order=(SortKey("x", down, down),))
        for n, down in enumerate((False, True))
    ]
    rows = random_rows((KEY, x), 40, random.Random(2))
    compare_node(spark, make_recompute(calls, (KEY, x), is_grouped=True), rows)


def test_lists_are_sparks(spark: SparkSession) -> None:
    s = Field("s", pa.string())
    rows = random_rows((KEY, NUMBER, FLAG, s), 50, random.Random(9))
    both, up = (SortKey("o", True, True), SortKey("s")), (SortKey("s"),)
    calls = [
        make_window_call("a", "listagg", s, settings=(", ",), order=both),
        make_window_call("c", "listagg", s, settings=("'\\",), order=both, where=FLAG.name),
        make_window_call("d", "array_join", s, settings=("-",), order=(SortKey("s", True, True),)),
        make_window_call("e", "array_join", s, settings=(",",), order=up, is_distinct=True),
    ]
    # Spark itself fails where such a list stands beside another DISTINCT.
    distinct = [make_window_call("b", "listagg", s, settings=("",), order=up, is_distinct=True)]
    counted = [make_window_call("f", "count", s, is_distinct=True)]
    for some in (calls, distinct, counted):
        compare_node(spark, make_recompute(some, (KEY, NUMBER, FLAG, s), is_grouped=True), rows)


def test_every_type_with_an_order_is_tried() -> None:
    assert set(KINDS) <= POOLS.keys()
