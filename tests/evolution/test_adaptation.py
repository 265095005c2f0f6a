"""What stored rows need: nothing for names, a restatement for columns, a difference for values."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from viewkeeper.evolution.adaptation import (
    Adaptation,
    Difference,
    Named,
    Nothing,
    Reload,
    Restate,
    choose_adaptation,
)
from viewkeeper.sources.tables.column_type import is_widening
from viewkeeper.view.definition import Field, Relation, ViewDefinition
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import parse_view

OLD = Relation("s", "t")
NEW = Relation("s", "u")
OTHER = Relation("s", "w")
BEFORE: dict[str, pa.DataType] = {"id": pa.int64(), "a": pa.int64(), "b": pa.decimal128(10, 2)}


def view(select: str, **tables: Mapping[str, pa.DataType]) -> ViewDefinition:
    text = f"CREATE MATERIALIZED VIEW v AS SELECT {select}"
    fields = {
        Relation("s", name): tuple(Field(n, k) for n, k in columns.items())
        for name, columns in tables.items()
    }
    return bind_view(parse_view(text), fields.__getitem__)


def adapt(
    old: str,
    new: str,
    now: Mapping[str, pa.DataType],
    same: dict[str, str],
    rewritten: frozenset[Named] = frozenset(),
    added: frozenset[Named] = frozenset(),
    dropped: frozenset[str] = frozenset(),
) -> Adaptation:
    """Table t has become u, beside w, which stays."""
    beside = {"id": pa.int64(), "x": pa.int64()}
    columns: dict[Named, Named] = {(OLD, one): (NEW, other) for one, other in same.items()}
    columns |= {(OTHER, name): (OTHER, name) for name in beside}
    return choose_adaptation(
        view(old, t=BEFORE, w=beside),
        view(new, u=now, w=beside),
        columns,
        rewritten,
        added,
        dropped,
    )


KEPT = {"id": "id", "a": "a", "b": "b"}
RENAMED = {"id": "key", "a": "n", "b": "b"}
RENAMED_NOW: dict[str, pa.DataType] = {"key": pa.int64(), "n": pa.int64(), "b": BEFORE["b"]}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a, b FROM s.t", "n AS a, b FROM s.u"),
        ("t.a FROM s.t WHERE id > 1 AND a IS NULL", "n AS a FROM s.u WHERE key > 1 AND n IS NULL"),
        ("t.a FROM s.t JOIN s.w ON t.id = w.id", "u.n AS a FROM s.u JOIN s.w ON w.id = u.key"),
        ("t.a FROM s.t JOIN s.w USING (id)", "u.n AS a FROM s.u JOIN s.w ON u.key = w.id"),
        (
            "a + 1 AS c, upper(CAST(a AS STRING)) AS d FROM s.t",
            "n + 1 AS c, upper(CAST(n AS STRING)) AS d FROM s.u",
        ),
        (
            "t.a, w.x FROM s.t, s.w WHERE (a = 1 OR x = 2)",
            "w.x, u.n AS a FROM s.u, s.w WHERE n = 1 OR x = 2",
        ),
    ],
)
def test_other_names_need_nothing(old: str, new: str) -> None:
    assert adapt(old, new, RENAMED_NOW, RENAMED) == Nothing()


def test_a_column_that_goes_is_left_out() -> None:
    found = adapt("id, a FROM s.t WHERE b > 1", "id FROM s.u WHERE b > 1", BEFORE, KEPT)
    assert found == Restate(drop=("a",))


def test_a_rewritten_column_that_goes_with_its_output_does_not_matter() -> None:
    rewritten = frozenset({(OLD, "a")})
    assert adapt("id, a FROM s.t", "id FROM s.u", BEFORE, KEPT, rewritten) == Restate(("a",))


def test_a_column_that_is_null_in_all_rows_is_added() -> None:
    now = {**BEFORE, "new": pa.string()}
    added = frozenset({(NEW, "new")})
    found = adapt("id FROM s.t", "id, new FROM s.u", now, KEPT, added=added)
    assert found == Restate(add=(Field("new", pa.string()),))
    found = adapt("id FROM s.t", "id, CAST(NULL AS STRING) AS n FROM s.u", now, KEPT)
    assert found == Restate(add=(Field("n", pa.string()),))


def test_a_filled_column_needs_the_difference() -> None:
    now = {**BEFORE, "new": pa.string()}
    found = adapt("id FROM s.t", "id, new FROM s.u", now, KEPT)
    assert found == Difference(add=(Field("new", pa.string()),))


def test_an_added_column_in_a_condition_needs_the_difference() -> None:
    now, added = {**BEFORE, "new": pa.int64()}, frozenset({(NEW, "new")})
    found = adapt("id FROM s.t", "id FROM s.u WHERE new IS NULL", now, KEPT, added=added)
    assert found == Difference()


def test_a_wider_type_is_read_as_that() -> None:
    now = {**BEFORE, "a": pa.decimal128(20, 0), "b": pa.decimal128(12, 4)}
    found = adapt("a, b FROM s.t WHERE a > 5", "a, b FROM s.u WHERE a > 5", now, KEPT)
    wider = (Field("a", pa.decimal128(20, 0)), Field("b", pa.decimal128(12, 4)))
    assert found == Restate(widen=wider)


def test_a_join_by_a_column_that_got_wider_is_the_same_join() -> None:
    now = {**BEFORE, "id": pa.decimal128(20, 0)}
    old, new = "a FROM s.t JOIN s.w ON t.id = w.id", "a FROM s.u JOIN s.w ON u.id = w.id"
    assert adapt(old, new, now, KEPT) == Nothing()


def test_what_spark_makes_of_a_wider_type_may_be_anything() -> None:
    now = {**BEFORE, "b": pa.decimal128(12, 4)}
    old, new = "CAST(b AS STRING) AS c FROM s.t", "CAST(b AS STRING) AS c FROM s.u"
    assert adapt(old, new, BEFORE, KEPT) == Nothing()
    assert adapt(old, new, now, KEPT) == Difference()


def test_a_calculation_at_another_scale_is_not_taken_to_be_the_same() -> None:
    old, new = "id FROM s.t WHERE b * b > 1.5", "id FROM s.u WHERE b * b > 1.5"
    assert adapt(old, new, {**BEFORE, "b": pa.decimal128(12, 2)}, KEPT) == Nothing()
    assert adapt(old, new, {**BEFORE, "b": pa.decimal128(12, 4)}, KEPT) == Difference()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("id, a FROM s.t", "id, a FROM s.u"),
        ("id FROM s.t WHERE a = 1", "id FROM s.u WHERE a = 1"),
        ("t.id FROM s.t JOIN s.w ON t.a = w.x", "u.id FROM s.u JOIN s.w ON u.a = w.x"),
        ("id, a + 1 AS n FROM s.t", "id, a + 1 AS n FROM s.u"),
    ],
)
def test_changed_values_need_the_difference(old: str, new: str) -> None:
    rewritten = frozenset({(OLD, "a")})
    assert adapt(old, new, BEFORE, KEPT, rewritten) == Difference()
    others = {"id": "id", "b": "b"}
    assert adapt(old, new, BEFORE, others) == Difference()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("id FROM s.t WHERE a = 1", "id FROM s.u"),
        ("id FROM s.t WHERE a = 1", "id FROM s.u WHERE a = 2"),
        ("t.id FROM s.t JOIN s.w ON t.id = w.id", "id FROM s.u"),
        ("id FROM s.t", "u.id FROM s.u JOIN s.w ON u.id = w.id"),
        ("a AS c FROM s.t", "id AS c FROM s.u"),
        ("a FROM s.t", "CAST(NULL AS BIGINT) AS a FROM s.u"),
    ],
)
def test_another_meaning_needs_the_difference(old: str, new: str) -> None:
    assert adapt(old, new, BEFORE, KEPT) == Difference()


def test_a_type_that_old_values_do_not_fit_needs_a_new_table() -> None:
    now = {**BEFORE, "a": pa.string()}
    assert adapt("a FROM s.t", "a FROM s.u", now, KEPT) == Reload()
    assert adapt("id FROM s.t", "id FROM s.u", now, KEPT) == Nothing()
    narrower = {**BEFORE, "b": pa.decimal128(9, 2)}
    assert adapt("b FROM s.t", "b FROM s.u", narrower, KEPT) == Reload()


def test_a_name_that_was_dropped_before_needs_a_new_table() -> None:
    now, added = {**BEFORE, "new": pa.int64()}, frozenset({(NEW, "new")})
    dropped = frozenset({"NEW"})
    found = adapt("id FROM s.t", "id, new FROM s.u", now, KEPT, added=added, dropped=dropped)
    assert found == Reload()


def test_another_table_under_a_counted_place_is_another_view() -> None:
    columns = {"id": pa.int64()}
    old = view("w.id FROM s.w, s.t", w=columns, t=columns)
    same = {(OTHER, "id"): (OTHER, "id")}
    new = view("w.id FROM s.w, s.u", w=columns, u=columns)
    assert choose_adaptation(old, new, same, frozenset()) == Difference()
    joined = {**same, (OLD, "id"): (NEW, "id")}
    assert choose_adaptation(old, new, joined, frozenset()) == Nothing()


@pytest.mark.parametrize(
    ("old", "new", "wider"),
    [
        (pa.int64(), pa.decimal128(19, 0), True),
        (pa.int64(), pa.decimal128(20, 2), False),
        (pa.decimal128(10, 2), pa.decimal128(12, 4), True),
        (pa.decimal128(10, 2), pa.decimal128(11, 4), False),
        (pa.decimal128(10, 2), pa.decimal128(12, 1), False),
        (pa.float32(), pa.float64(), True),
        (pa.float64(), pa.float32(), False),
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.float64(), False),
        (pa.date32(), pa.timestamp("us"), False),
        (pa.int64(), pa.int64(), False),
    ],
)
def test_a_wider_type_holds_every_value(old: pa.DataType, new: pa.DataType, wider: bool) -> None:
    assert is_widening(old, new) is wider
