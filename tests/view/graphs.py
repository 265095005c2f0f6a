"""Random graphs as data: every kind of node, expression, type and value, without meaning."""

from __future__ import annotations

import datetime
import decimal
import math

import pyarrow as pa
from hypothesis import strategies as st

from viewkeeper.view.definition import (
    Constant,
    Core,
    Equality,
    Expand,
    Field,
    Fold,
    FoldCall,
    Graph,
    KeyedJoin,
    Node,
    Output,
    Place,
    Relation,
    Union,
    ViewDefinition,
)
from viewkeeper.view.expression import (
    Arithmetic,
    Call,
    Cast,
    Column,
    Compare,
    Expression,
    IsNull,
    Literal,
    Logic,
    Not,
    Scalar,
    SparkSql,
)

NAMES = st.text(min_size=1, max_size=4)
PLAIN_TYPES: list[pa.DataType] = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")),
]
TYPES = st.sampled_from(PLAIN_TYPES) | st.builds(
    lambda precision, scale: pa.decimal128(precision, min(precision, scale)),
    st.integers(1, 38),
    st.integers(0, 38),
)


def values_of(kind: pa.DataType) -> st.SearchStrategy[Scalar]:
    """Values of a type, NULL included; NaN apart, which is not equal to itself."""
    if pa.types.is_decimal(kind):
        digits = st.integers(-(10**kind.precision) + 1, 10**kind.precision - 1)
        found: st.SearchStrategy[Scalar] = digits.map(lambda n: _decimal_of(n, kind.scale))
    elif isinstance(kind, pa.TimestampType):
        zones = st.just(datetime.UTC) if kind.tz else st.none()
        found = st.datetimes(timezones=zones)
    else:
        found = _PLAIN_VALUES[kind]
    return st.none() | found


def _decimal_of(number: int, scale: int) -> Scalar:
    with decimal.localcontext(decimal.Context(prec=50)):
        return decimal.Decimal(number).scaleb(-scale)


_PLAIN_VALUES: dict[pa.DataType, st.SearchStrategy[Scalar]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False) | st.sampled_from([math.inf, -math.inf, -0.0]),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.date32(): st.dates(),
}

COLUMNS = st.builds(Column, st.integers(0, 3), NAMES, TYPES)
LITERALS = TYPES.flatmap(lambda kind: values_of(kind).map(lambda value: Literal(value, kind)))
LEAVES: st.SearchStrategy[Expression] = COLUMNS | LITERALS


def _larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    comparisons = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])
    return st.one_of(
        st.builds(Compare, comparisons, inner, inner),
        st.builds(Logic, st.sampled_from(["and", "or"]), inner, inner),
        st.builds(Not, inner),
        st.builds(IsNull, inner),
        st.builds(Cast, inner, TYPES),
        st.builds(Arithmetic, st.sampled_from(["+", "-", "*"]), inner, inner, TYPES),
        st.builds(Call, NAMES, st.lists(inner, max_size=3).map(tuple), TYPES),
        st.builds(SparkSql, NAMES, st.lists(COLUMNS, max_size=2).map(tuple), st.none() | TYPES),
    )


EXPRESSIONS = st.recursive(LEAVES, _larger, max_leaves=5)
RELATIONS = st.builds(Relation, NAMES, NAMES)
FIELDS = st.builds(Field, NAMES, TYPES)
OUTPUTS = st.builds(Output, NAMES, EXPRESSIONS)
EQUALITIES = st.builds(Equality, COLUMNS, COLUMNS, st.booleans())
KEYED = st.builds(
    KeyedJoin,
    st.sampled_from(["left", "semi", "anti", "exists"]),
    st.integers(0, 3),
    st.lists(EQUALITIES, min_size=1, max_size=2).map(tuple),
    st.lists(EXPRESSIONS, max_size=1).map(tuple),
    st.booleans(),
)
PLACES = st.builds(
    Place,
    st.integers(0, 3),
    NAMES,
    RELATIONS,
    st.lists(FIELDS, max_size=2).map(tuple),
    st.none() | KEYED,
)
VIEWS = st.builds(
    ViewDefinition,
    NAMES,
    st.lists(PLACES, max_size=2).map(tuple),
    st.lists(EQUALITIES, max_size=1).map(tuple),
    st.lists(EXPRESSIONS, max_size=1).map(tuple),
    st.lists(OUTPUTS, max_size=2).map(tuple),
    NAMES,
    NAMES,
)
CALLS = st.builds(
    FoldCall, NAMES, NAMES, st.lists(FIELDS, max_size=2).map(tuple), TYPES, st.none() | NAMES
)


@st.composite
def constants(draw: st.DrawFn, number: int) -> Constant:
    """A node with rows of its own."""
    fields = draw(st.lists(FIELDS, max_size=2))
    rows = draw(st.lists(st.tuples(*(values_of(field.type) for field in fields)), max_size=2))
    return Constant(number, tuple(fields), tuple(rows))


def nodes_of(number: int) -> st.SearchStrategy[Node]:
    """A node with this number."""
    at = st.just(number)
    outputs = st.lists(OUTPUTS, max_size=2).map(tuple)
    fields = st.lists(FIELDS, max_size=2).map(tuple)
    names = st.lists(NAMES, max_size=2).map(tuple)
    calls = st.lists(CALLS, max_size=2).map(tuple)
    return st.one_of(
        st.builds(Core, at, VIEWS, st.none() | COLUMNS),
        st.builds(Fold, at, RELATIONS, fields, calls, outputs, st.booleans()),
        st.builds(
            Union,
            at,
            st.lists(RELATIONS, max_size=2).map(tuple),
            st.lists(names, max_size=2).map(tuple),
            fields,
        ),
        st.builds(Expand, at, RELATIONS, st.lists(outputs, max_size=2).map(tuple), fields),
        constants(number),
    )


GRAPHS = st.integers(1, 3).flatmap(
    lambda size: st.tuples(*(nodes_of(number) for number in range(size))).map(Graph)
)
