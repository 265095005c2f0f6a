"""SQL becomes places, equalities, predicates and outputs, and nothing of it is lost.

The structure is checked here, name by name. That the types are Spark's, and that `query` and the
translated expressions mean what the SQL says, is checked against Spark in `test_meaning.py`.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import viewkeeper
from tests.view.sample import HEAD, define
from viewkeeper.errors import DefinitionError
from viewkeeper.view.definition import Equality, Field, Relation
from viewkeeper.view.expression import Call, Cast, Column, Compare, Literal, Logic, Not, SparkSql
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import parse_view

ORDERS = "SELECT o.id FROM shop.orders AS o"


def test_a_relation_used_twice_has_two_places() -> None:
    view = define(
        "SELECT a.id, b.id AS other FROM shop.orders AS a JOIN shop.orders AS b"
        " ON a.customer = b.customer AND a.id < b.id"
    )
    assert [place.index for place in view.places] == [0, 1]
    assert [place.alias for place in view.places] == ["a", "b"]
    assert view.relations == (Relation("shop", "orders"),)
    keys = Column(0, "customer", pa.int64()), Column(1, "customer", pa.int64())
    assert view.equalities == (Equality(keys[0], keys[1], null_safe=False),)
    ids = [Column(place, "id", pa.int64()) for place in (0, 1)]
    assert view.predicates == (Compare("<", *ids),)


def test_a_schema_is_part_of_the_table() -> None:
    assert define("SELECT o.id FROM shop.sales.orders AS o").relations == (
        Relation("shop", "sales.orders"),
    )


def test_a_place_has_the_columns_that_the_view_reads() -> None:
    view = define(
        "SELECT c.name FROM shop.orders AS o, crm.customers AS c"
        " WHERE o.customer = c.id AND o.paid AND upper(c.NAME) = 'A'"
    )
    assert [place.columns for place in view.places] == [("customer", "paid"), ("id", "name")]


def test_a_relation_that_is_only_counted_keeps_a_column() -> None:
    view = define("SELECT o.id FROM shop.orders AS o, crm.customers AS c")
    assert [len(place.columns) for place in view.places] == [1, 1]


def test_columns_that_viewkeeper_needs_for_itself_are_refused() -> None:
    parsed = parse_view("CREATE MATERIALIZED VIEW v AS SELECT t._ts AS at FROM s.t AS t")
    with pytest.raises(DefinitionError, match='has a column "_ts"'):
        bind_view(parsed, lambda _: (Field("_ts", pa.int64()),))


def test_conditions_may_stand_anywhere() -> None:
    written = [
        " JOIN crm.customers AS c ON o.customer = c.id AND o.paid",
        " JOIN crm.customers AS c ON o.paid WHERE o.customer = c.id",
        ", crm.customers AS c WHERE (o.paid AND (o.customer = c.id))",
        " CROSS JOIN crm.customers AS c WHERE o.customer = c.id AND o.paid",
        " INNER JOIN crm.customers AS c WHERE o.paid AND o.customer = c.id",
    ]
    views = [define(ORDERS + condition) for condition in written]
    assert {view.equalities for view in views} == {views[0].equalities}
    assert {view.predicates for view in views} == {views[0].predicates}


@pytest.mark.parametrize(
    ("condition", "null_safe"),
    [("a.id = b.id", False), ("(a.id) <=> b.id", True), ("a.id IS NOT DISTINCT FROM b.id", True)],
)
def test_equalities_know_about_null(condition: str, null_safe: bool) -> None:
    view = define(f"SELECT a.id FROM shop.orders AS a JOIN shop.orders AS b ON {condition}")
    assert [equality.null_safe for equality in view.equalities] == [null_safe]
    assert not view.predicates


@pytest.mark.parametrize(
    "condition",
    ["a.id = a.customer", "a.id = b.id + 1", "a.id = b.id OR a.paid", "NOT a.id = b.id", "1 = 1"],
)
def test_everything_else_is_a_predicate(condition: str) -> None:
    view = define(f"SELECT a.id FROM shop.orders AS a JOIN shop.orders AS b ON {condition}")
    assert not view.equalities
    assert len(view.predicates) == 1


def test_using_is_an_equality_and_shows_one_column() -> None:
    view = define("SELECT * FROM shop.orders AS o JOIN crm.customers AS c USING (ID)")
    assert view.equalities == (
        Equality(Column(0, "id", pa.int64()), Column(1, "id", pa.int64()), null_safe=False),
    )
    names = [output.name for output in view.outputs]
    assert names == ["id", "customer", "total", "paid", "placed", "name", "region"]


def test_unlike_types_are_no_join_key_and_said_so() -> None:
    view = define(
        "SELECT o.id FROM shop.orders AS o JOIN shop.items AS i"
        " ON o.id = i.order_id AND o.customer = i.amount"
    )
    amount = Cast(Column(1, "amount", pa.int32()), pa.int64())
    assert view.predicates == (Compare("=", Column(0, "customer", pa.int64()), amount),)
    assert view.warnings == (
        "o.customer (int64) = i.amount (int32) cannot be used as a join key, because the types "
        "differ: it is checked row by row instead",
    )


def test_unconnected_relations_are_said_to_be_read_whole() -> None:
    view = define(
        "SELECT o.id FROM shop.orders AS o JOIN shop.items AS i ON o.id = i.order_id"
        " CROSS JOIN crm.customers AS c"
    )
    assert view.warnings == (
        "no equality joins o (shop.orders), i (shop.items) to the rest of the view: "
        "changes elsewhere must read one of them whole (a scan)",
        "no equality joins c (crm.customers) to the rest of the view: "
        "changes elsewhere must read it whole (a scan)",
    )


def test_names_are_the_sources_but_outputs_the_users() -> None:
    view = define("SELECT I.PRODUCT, i.Amount AS N FROM shop.items AS i")
    assert [output.name for output in view.outputs] == ["PRODUCT", "N"]
    assert view.outputs[0].expression == Column(0, "Product", pa.string())


def test_the_query_is_the_users_text_over_places() -> None:
    view = define(
        "SELECT orders.*, upper(shop.items.product) AS p -- the rest stays\n"
        "FROM shop.orders, `shop`.items WHERE shop.orders.id = order_id ;"
    )
    columns = ", ".join(f"`orders`.`{name}`" for name in ["id", "customer", "total"])
    assert view.query == (
        f"SELECT {columns}, `orders`.`paid`, `orders`.`placed`, upper(`items`.`product`) AS p"
        f"{' ' * len(' -- the rest stays')}\nFROM __place_0 AS `orders`, __place_1 AS `items`"
        " WHERE `orders`.`id` = order_id"
    )


def test_what_the_kernel_is_not_certain_of_keeps_its_text() -> None:
    view = define("SELECT upper ( i . product )  || '\\'' AS p FROM shop.items AS i")
    product = Column(0, "Product", pa.string())
    text = "upper ( `0.Product` )  || '\\''"
    assert view.outputs[0].expression == SparkSql(text, (product,), None)
    assert view.needs_spark
    assert view.schema is None


@pytest.mark.parametrize(
    "text",
    [
        "b.a = b.b AND b.between = b.and",
        "CASE WHEN b.a AND b.b THEN TRUE END AND b.x BETWEEN 1 AND 2 AND b.y",
        "(b.a AND b.b) AND NOT (b.c AND b.d)",
        "b.a IS DISTINCT FROM b.b AND b.c",
    ],
)
def test_conjuncts_are_cut_where_the_tree_is(text: str) -> None:
    parsed = parse_view(f"{HEAD}SELECT b.x FROM s.t AS b WHERE {text}")
    pieces = [parsed.sql.text_of(piece.span) for piece in parsed.parts.where]
    assert " AND ".join(pieces) == text.removeprefix("(").replace("b.b) AND", "b.b AND")


def test_in_is_a_call_and_between_is_spelled_out() -> None:
    view = define(f"{ORDERS} WHERE o.id IN (1, NULL) AND o.id NOT BETWEEN 2 AND 3")
    one, two, three, null = (Literal(value, pa.int64()) for value in (1, 2, 3, None))
    column = Column(0, "id", pa.int64())
    assert view.predicates == (
        Call("in", (column, one, null), pa.bool_()),
        Not(Logic("and", Compare(">=", column, two), Compare("<=", column, three))),
    )


def test_a_definition_travels_to_tasks() -> None:
    view = define(f"{ORDERS} JOIN shop.items AS i ON o.id = i.order_id WHERE o.total > 1.5")
    assert pickle.loads(pickle.dumps(view)) == view


def test_tasks_do_not_import_the_parser() -> None:
    # The package's own face may import more; what is asked here is what a definition needs.
    code = f"""
import sys, types
sys.modules["viewkeeper"] = types.ModuleType("viewkeeper")
sys.modules["viewkeeper"].__path__ = [{str(Path(viewkeeper.__file__).parent)!r}]
import viewkeeper.view.definition
sys.exit("sqlglot" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_comments_and_a_semicolon_are_welcome() -> None:
    text = "-- what it is\nCREATE OR REPLACE MATERIALIZED VIEW v COMMENT 'x' AS /* all */\n"
    parsed = parse_view(text + "SELECT o.id FROM shop.orders AS o; -- the end\n", "v.sql")
    assert (parsed.name, parsed.path) == ("v", "v.sql")
    assert parsed.relations == (Relation("shop", "orders"),)
