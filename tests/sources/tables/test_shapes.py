"""Shapes, their histories and their differences: what is reported agrees with what can be asked.

A random history gives every kind of step: columns come, go, come back, get wider and other types;
the table is dropped or replaced. What is reported and what is refused are computed in two ways, and
must say the same.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from viewkeeper.errors import BrokenQueryError
from viewkeeper.sources.handles import HandleTarget
from viewkeeper.sources.tables.shape import ShapeColumn, TableShape
from viewkeeper.sources.tables.shape_changes import (
    ShapeChange,
    broken_query_error,
    list_shape_changes,
    report_changes,
    schema_changes,
)
from viewkeeper.sources.tables.shape_history import (
    HandleQuestion,
    ShapeHistory,
    current_columns_of,
    name_lives,
    place_of,
    start_of,
)
from viewkeeper.updates.schema_change import KINDS, SchemaChange

TYPES = st.sampled_from([pa.int64(), pa.decimal128(20, 0), pa.string(), None])
COLUMNS = st.dictionaries(st.sampled_from("abc"), TYPES, max_size=3)
TABLES = st.tuples(st.sampled_from(["1", "1", "1", "2"]), COLUMNS)
Columns = Mapping[str, pa.DataType | None]


def shape(identity: str, columns: Columns) -> TableShape:
    return TableShape(
        identity,
        "t",
        tuple(ShapeColumn(place, "", place, kind, str(kind)) for place, kind in columns.items()),
    )


@st.composite
def histories(draw: st.DrawFn) -> ShapeHistory[TableShape]:
    found = draw(st.lists(TABLES, min_size=1, max_size=6))
    gaps = draw(st.lists(st.integers(1, 3), min_size=len(found), max_size=len(found)))
    at = [sum(gaps[: number + 1]) for number in range(len(found))]
    return name_lives((p, shape(*each)) for p, each in zip(at, found, strict=True))


@given(histories())
def test_a_life_is_one_run_of_kept_values(history: ShapeHistory[TableShape]) -> None:
    positions = [position for position, _ in history.steps]
    for number, (position, now) in enumerate(history.steps):
        for column in now.columns:
            if column.type is None:
                assert not column.identity
                continue
            assert place_of(column.identity) == column.place
            assert start_of(column.identity) in positions[: number + 1]
            run = [s for p, s in history.steps if start_of(column.identity) <= p <= position]
            assert all(each.column_by_identity(column.identity) for each in run)


@given(histories(), st.data())
def test_a_question_breaks_where_a_change_is_reported(
    history: ShapeHistory[TableShape], data: st.DataObject
) -> None:
    """A handle that is made at one step: over later ones it can be asked as long as nothing is
    reported that did not keep its values."""
    start = data.draw(st.sampled_from(history.steps))
    position, first = start
    named = HandleTarget(first.identity, first.identities_by_name())
    until = data.draw(st.integers(position, history.steps[-1][0]))
    reported = [
        change
        for _, before, now in history.pairs_between(position, until)
        for change in schema_changes("t", named, before, now)
        if change.column in named.columns or not change.column
    ]
    steps, known = history.steps_in(position, until), [each for _, each in history.steps]
    question = HandleQuestion("s", "t", named, tuple(named.columns))
    if all(change.keeps_values for change in reported):
        types = question.types_over(steps, position, known)
        assert set(types) == set(named.columns)
    else:
        with pytest.raises(BrokenQueryError):
            question.types_over(steps, position, known)


@given(histories(), st.integers(0, 20), st.integers(0, 20))
def test_the_history_at_a_position(
    history: ShapeHistory[TableShape], position: int, other: int
) -> None:
    begun = [each for at, each in history.steps if at <= position]
    assert history.shape_at(position) == (begun[-1] if begun else history.steps[0][1])
    folded = history.fold_until(position)
    if other >= position:
        assert folded.shape_at(other) == history.shape_at(other)
        pairs = [*history.pairs_between(position, other)]
        assert len(history.steps_in(position, other)) >= len(pairs)
        assert [*folded.pairs_between(position, other)] == pairs
    assert pickle.loads(pickle.dumps(history)) == history
    added = history.add_step(100, history.newest)
    assert added.shape_at(100) == history.newest


@given(TABLES)
def test_nothing_changes_from_a_shape_to_itself(
    table: tuple[str, Columns],
) -> None:
    one = name_lives([(0, shape(*table))]).newest
    assert not [*list_shape_changes(one, one)]


BEFORE = TableShape(
    "7",
    "orders",
    (
        ShapeColumn("1", "1", "id", pa.int64(), "bigint"),
        ShapeColumn("2", "2", "price", pa.int64(), "int", digits=10),
        ShapeColumn("3", "3", "note", pa.string(), "text"),
    ),
    ("1",),
)
HANDLE = HandleTarget("7", {"id": "1", "cost": "2", "note": "3"})


def after(number: int, **changes: Any) -> TableShape:
    columns = list(BEFORE.columns)
    columns[number] = replace(columns[number], **changes)
    return replace(BEFORE, columns=tuple(columns))


CASES = {
    "rename": (after(2, name="remark"), ["orders: column note is called remark now"]),
    "rename to the handle's name": (after(1, name="cost"), []),
    "widen": (
        after(1, type=pa.decimal128(12, 2), declared="numeric(12,2)"),
        ["orders: column cost got the wider type numeric(12,2)"],
    ),
    "widen and rewrite": (
        after(1, type=pa.decimal128(12, 2), declared="numeric(12,2)", rewrites=1),
        ["orders: column cost got the type numeric(12,2)"],
    ),
    "rewrite": (after(2, rewrites=1), ["orders: values of column note were rewritten"]),
    "other column": (after(2, identity="9"), ["orders: column note got the type text"]),
    "drop": (
        replace(BEFORE, columns=BEFORE.columns[:2]),
        ["orders: column note was dropped"],
    ),
    "add": (
        replace(BEFORE, columns=(*BEFORE.columns, ShapeColumn("4", "4", "n", None, "point"))),
        ["orders: column n was added, NULL in all rows"],
    ),
    "add filled": (
        replace(BEFORE, columns=(*BEFORE.columns, ShapeColumn("4", "4", "n", None, "point", True))),
        ["orders: column n was added with a value in all rows"],
    ),
    "key": (replace(BEFORE, key=("1", "3")), ["orders: its key is id, note now"]),
    "rename table": (replace(BEFORE, name="sales"), ["orders is called sales now"]),
    "drop table": (replace(BEFORE, fate="dropped"), ["orders was dropped"]),
    "replace table": (
        replace(BEFORE, fate="replaced"),
        ["orders was dropped and another table is called so now"],
    ),
    "another table": (
        replace(BEFORE, identity="8"),
        ["orders was dropped and another table is called so now"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_reported_in_the_names_of_the_handle(name: str) -> None:
    now, sentences = CASES[name]
    assert [str(c) for c in schema_changes("orders", HANDLE, BEFORE, now)] == sentences
    assert not schema_changes("orders", HandleTarget("6"), BEFORE, now)
    assert not schema_changes("orders", HANDLE, None, now)


def test_a_place_that_was_empty_for_a_time_has_another_column() -> None:
    one, two = shape("1", {"a": pa.int64()}), shape("1", {"a": pa.int64()})
    history = name_lives([(1, one), (2, replace(two, lost=frozenset("a")))])
    (before,), (now,) = (each.columns for _, each in history.steps)
    assert (before.identity, now.identity) == ("a@1", "a@2")
    ((_, *pair),) = history.pairs_between(1, 2)
    assert [each.kind for each in list_shape_changes(*pair)] == ["drop_column", "add_column"]


def test_names_are_compared_as_the_database_does() -> None:
    changes = [ShapeChange("rename_table", now="ORDERS"), ShapeChange("rename_column", "1", "ID")]

    def fold(one: str, other: str) -> bool:
        return one.lower() == other.lower()

    assert len([*report_changes("orders", HANDLE, changes)]) == 2
    assert not [*report_changes("orders#2", HANDLE, changes, fold)]


def test_a_table_that_is_gone_has_no_more_changes() -> None:
    gone = replace(BEFORE, fate="dropped")
    assert not [*list_shape_changes(gone, gone)]
    assert not [*list_shape_changes(gone, BEFORE)]
    (change,) = list_shape_changes(gone, replace(gone, fate="replaced"))
    assert change.kind == "recreate_table"


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_keep_values_ends_a_question(kind: str) -> None:
    change = ShapeChange(kind, "2", "n")  # type: ignore[arg-type]  # the parameter is one of KINDS
    assert change.keeps_values == SchemaChange(change.kind, "t").keeps_values
    assert change.is_ending({"2"}) != change.keeps_values
    assert not change.is_ending({"1"})
    if not change.keeps_values:
        error = broken_query_error("s", "orders#2", HANDLE.columns, change)
        assert error.table == "orders"
        assert "{" not in error.what


def test_the_columns_of_a_handle_have_their_names_of_now() -> None:
    now = after(1, name="price2")
    assert current_columns_of(None, now) == {"id": "id", "price2": "price2", "note": "note"}
    half = HandleTarget("7", {"cost": "2", "note": "9"})
    assert current_columns_of(half, now) == {"cost": "price2"}
    assert current_columns_of(half, now, whole=True) == {"id": "id", "cost": "price2"}
