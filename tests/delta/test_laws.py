"""The laws of the algebra, on both carriers, and that the two carriers agree on everything.

What incremental maintenance rests on: deltas are a commutative group, the join is bilinear, and
selection and projection are linear.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewkeeper.delta.algebra import COUNT, TS, Algebra, Side, TsCondition
from viewkeeper.delta.kernel import Kernel
from viewkeeper.delta.reference_carrier import Reference, ReferenceDelta
from viewkeeper.view.definition import Equality, Field, KeyedJoin, Output, Place, Relation
from viewkeeper.view.expression import (
    Arithmetic,
    Column,
    Compare,
    Expression,
    IsNull,
    Literal,
    Logic,
    Not,
)
from viewkeeper.view.join_tree import JoinKey, KeyedMatch

CARRIERS = pytest.mark.parametrize("algebra", [Reference(), Kernel()], ids=["reference", "arrow"])


def schema(place: int) -> pa.Schema:
    columns: dict[str, pa.DataType] = {f"{place}.a": pa.int64(), f"{place}.b": pa.float64()}
    return pa.schema({**columns, TS: pa.int64(), COUNT: pa.int64()})


LEFT, RIGHT = schema(0), schema(1)

ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 2),
        st.none() | st.sampled_from([0.0, 1.5]),
        st.integers(1, 3),
        st.integers(-2, 2).filter(bool),
    ),
    max_size=6,
)
WHEN = st.none() | st.builds(TsCondition, st.sampled_from(Side), st.booleans())


def keys(null_safe: bool) -> list[JoinKey]:
    a = JoinKey(Column(0, "a", pa.int64()), Column(1, "a", pa.int64()), null_safe)
    b = JoinKey(Column(0, "b", pa.float64()), Column(1, "b", pa.float64()), null_safe)
    return [a, b]


def table(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def same(algebra: Algebra[Any], one: Any, other: Any) -> bool:
    def plain(delta: Any) -> ReferenceDelta:
        return Reference().lift_table(algebra.lower_delta(delta))

    return plain(one) == plain(other)


@CARRIERS
@given(a=ROWS, b=ROWS)
def test_deltas_are_a_commutative_group(algebra: Algebra[Any], a: Any, b: Any) -> None:
    x, y = algebra.lift_table(table(LEFT, a)), algebra.lift_table(table(LEFT, b))
    assert same(algebra, algebra.add([x, y]), algebra.add([y, x]))
    nothing = algebra.consolidate(algebra.add([x, algebra.negate(x)]))
    assert algebra.is_empty(nothing)


@CARRIERS
@given(a=ROWS, b=ROWS, c=ROWS, null_safe=st.booleans(), when=WHEN)
def test_join_is_bilinear(
    algebra: Algebra[Any], a: Any, b: Any, c: Any, null_safe: bool, when: TsCondition | None
) -> None:
    x, y = algebra.lift_table(table(LEFT, a)), algebra.lift_table(table(LEFT, b))
    z, on = algebra.lift_table(table(RIGHT, c)), keys(null_safe)
    whole = algebra.join(algebra.add([x, y]), z, on, when)
    parts = algebra.add([algebra.join(x, z, on, when), algebra.join(y, z, on, when)])
    assert same(algebra, whole, parts)
    turned = algebra.join(x, algebra.negate(z), on, when)
    assert same(algebra, turned, algebra.negate(algebra.join(x, z, on, when)))


@CARRIERS
@given(a=ROWS, b=ROWS)
def test_where_and_project_are_linear(algebra: Algebra[Any], a: Any, b: Any) -> None:
    x, y = algebra.lift_table(table(LEFT, a)), algebra.lift_table(table(LEFT, b))
    number = Column(0, "a", pa.int64())
    conditions = [Compare(">", number, Literal(0, pa.int64()))]
    outputs = [Output("twice", Arithmetic("+", number, number, pa.int64()))]
    both = algebra.add([x, y])
    parts = algebra.add([algebra.where(x, conditions), algebra.where(y, conditions)])
    assert same(algebra, algebra.where(both, conditions), parts)
    shown = algebra.add([algebra.project(x, outputs), algebra.project(y, outputs)])
    assert same(algebra, algebra.project(both, outputs), shown)


def keyed_match(kind: Any, null_safe: bool, conditions: tuple[Expression, ...]) -> KeyedMatch:
    fields = (Field("a", pa.int64()), Field("b", pa.float64()))
    on = keys(null_safe)[:1]
    equalities = tuple(Equality(key.have, key.want, key.null_safe) for key in on)
    join = KeyedJoin(kind, 0, equalities, conditions)
    place = Place(1, "r", Relation("s", "r"), fields, join)
    return KeyedMatch(place, tuple(on), conditions)


BAGS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 2),
        st.none() | st.sampled_from([0.0, 1.5]),
        st.integers(1, 3),
        st.integers(1, 2),
    ),
    max_size=6,
)
"""Rows that came and, for some, went again."""
CONDITIONS = st.sampled_from(
    [
        (),
        (Compare(">", Column(1, "b", pa.float64()), Literal(1.0, pa.float64())),),
        (Compare("<=", Column(0, "b", pa.float64()), Column(1, "b", pa.float64())),),
        (Compare("=", Literal(1, pa.int64()), Literal(2, pa.int64())),),
    ]
)
MATCHES = st.builds(
    keyed_match, st.sampled_from(["left", "semi", "anti", "exists"]), st.booleans(), CONDITIONS
)


def keyed_terms(algebra: Algebra[Any], came: Any, went: Any) -> list[Any]:
    """A bag as an answer and two corrections, which take away what is among what came."""
    rows = algebra.lift_table(table(RIGHT, came).drop_columns([TS]))
    gone = algebra.lift_table(table(RIGHT, [row for row in went if row in came]))
    late = algebra.lift_table(table(RIGHT, went))
    early = TsCondition(Side.LATER, tie=True)
    distinct = algebra.negate(algebra.take_distinct(gone, [*RIGHT.names[:2], TS]))
    return [(rows, None), (distinct, early), (late, TsCondition(Side.EARLIER, tie=False))]


@CARRIERS
@given(a=ROWS, b=ROWS, came=BAGS, went=BAGS, match=MATCHES)
def test_meeting_a_keyed_place_is_linear_in_the_rows_that_meet(
    algebra: Algebra[Any], a: Any, b: Any, came: Any, went: Any, match: KeyedMatch
) -> None:
    x, y = algebra.lift_table(table(LEFT, a)), algebra.lift_table(table(LEFT, b))
    terms = keyed_terms(algebra, came, went)
    whole = algebra.join_keyed(algebra.add([x, y]), terms, match)
    parts = [algebra.join_keyed(x, terms, match), algebra.join_keyed(y, terms, match)]
    assert same(algebra, whole, algebra.add(parts))


@given(a=ROWS, came=BAGS, went=BAGS, match=MATCHES)
def test_arrow_matches_as_the_reference_does(
    a: Any, came: Any, went: Any, match: KeyedMatch
) -> None:
    reference, kernel, left = Reference(), Kernel(), table(LEFT, a)
    by_definition = reference.join_keyed(
        reference.lift_table(left), keyed_terms(reference, came, went), match
    )
    found = kernel.join_keyed(left, keyed_terms(kernel, came, went), match)
    columns = [name for name in found.column_names if name != COUNT]
    expected = reference.select_columns(by_definition, columns)
    assert reference.lift_table(found) == expected
    once = reference.take_distinct(reference.lift_table(left), ["0.b", TS])
    assert reference.lift_table(kernel.take_distinct(kernel.consolidate(left), ["0.b", TS])) == once


@CARRIERS
@given(a=ROWS, came=BAGS, match=MATCHES)
def test_every_row_that_meets_is_shown_or_not_by_one_of_two(
    algebra: Algebra[Any], a: Any, came: Any, match: KeyedMatch
) -> None:
    """Semi and anti part the rows, and a left place shows all of them."""
    x, terms = algebra.lift_table(table(LEFT, a)), keyed_terms(algebra, came, [])
    without = algebra.join_keyed(x, terms, match.as_anti_match())
    kept = algebra.join_keyed(
        x, terms, keyed_match("semi", match.on[0].null_safe, match.conditions)
    )
    assert same(algebra, x, algebra.add([without, kept]))
    left = keyed_match("left", match.on[0].null_safe, match.conditions)
    inner = algebra.where(algebra.join(x, terms[0][0], list(left.on), None), list(left.conditions))
    padded = algebra.join_keyed(without, keyed_terms(algebra, [], []), left)
    assert same(algebra, algebra.join_keyed(x, terms, left), algebra.add([inner, padded]))


@given(a=ROWS, b=ROWS, null_safe=st.booleans(), when=WHEN)
def test_arrow_agrees_with_the_reference(
    a: Any, b: Any, null_safe: bool, when: TsCondition | None
) -> None:
    left, right, on = table(LEFT, a), table(RIGHT, b), keys(null_safe)
    reference, kernel = Reference(), Kernel()
    joined = reference.join(reference.lift_table(left), reference.lift_table(right), on, when)
    assert reference.lift_table(kernel.join(left, right, on, when)) == joined
    asked = {tuple(row.values()) for row in kernel.distinct_keys([left], on).to_pylist()}
    wanted = reference.distinct_keys([reference.lift_table(left)], on).to_pylist()
    assert asked >= {tuple(row.values()) for row in wanted}, "netted rows may leave out keys"
    condition = Logic(
        "or",
        Not(IsNull(Column(0, "a", pa.int64()))),
        Compare("<=>", Column(0, "b", pa.float64()), Literal(1.5, pa.float64())),
    )
    filtered = reference.where(reference.lift_table(left), [condition])
    assert reference.lift_table(kernel.where(left, [condition])) == filtered


def test_keys_leave_out_null_unless_it_is_safe() -> None:
    rows = table(LEFT, [(None, 0.0, 1, 1), (1, None, 1, 1), (1, 0.0, 1, 1)])
    assert Kernel().distinct_keys([rows], keys(null_safe=False)).num_rows == 1
    assert Kernel().distinct_keys([rows], keys(null_safe=True)).num_rows == 3


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [float("nan"), float("nan"), 0.0, -0.0, None]),
        (pa.decimal128(10, 2), [None, "1.10", "1.10", "2.00", "0.00"]),
        (pa.date32(), [0, 0, 1, None, 2]),
        (pa.timestamp("us"), [0, 0, 1, None, 2]),
        (pa.binary(), [b"", b"", b"\x00", None, b"x"]),
        (pa.bool_(), [True, True, False, None, False]),
        (pa.string(), ["", "", "a", None, "b"]),
    ],
    ids=str,
)
def test_every_type_joins_with_itself(kind: pa.DataType, values: list[Any]) -> None:
    """Also NaN with NaN and 0.0 with -0.0, as Spark has it; NULL only where that is asked for."""
    column: Any = pa.array(values)
    column = column.cast(kind) if kind != pa.date32() else pa.array(values, pa.int32()).cast(kind)
    count = pa.array([1] * len(values))
    left = pa.table([column, count, count], names=["0.a", TS, COUNT])
    right = left.rename_columns(["1.a", TS, COUNT])
    for null_safe in (False, True):
        on = [JoinKey(Column(0, "a", kind), Column(1, "a", kind), null_safe)]
        found = Kernel().join(left, right, on, None).num_rows
        # Two of the values are equal; floats and booleans have two such pairs.
        expected = 9 if kind in (pa.float64(), pa.bool_()) else 7
        assert found == expected - (0 if null_safe else 1)
