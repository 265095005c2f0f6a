"""Preferences and substitutes as the project file says them, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from viewkeeper.errors import ProjectError
from viewkeeper.evolution.extent import Extent
from viewkeeper.evolution.preferences import (
    NamedParts,
    Preferences,
    Substitute,
    read_preferences,
    read_substitutes,
)
from viewkeeper.view.definition import Relation

COLUMN = {
    "for": "shop.orders.price",
    "use": "archive.prices.amount",
    "join": "shop.orders.id = archive.prices.order_id",
    "extent": "equal",
}
TABLE = {"for": "shop.customers", "use": "crm.clients", "extent": "any"}


def test_nothing_is_dispensable_and_everything_replaceable_by_default() -> None:
    assert read_preferences({}, "p") == Preferences(Extent.EQUAL, NamedParts(), NamedParts())


def test_preferences_are_read() -> None:
    raw = {
        "policy": "evolve",
        "extent": "superset",
        "dispensable": {"columns": ["note"], "conditions": ["o.flag = 1"], "relations": ["c"]},
        "irreplaceable": {"columns": ["price"]},
    }
    parts = NamedParts(frozenset(["note"]), frozenset(["o.flag = 1"]), frozenset(["c"]))
    price = NamedParts(columns=frozenset(["price"]))
    assert read_preferences(raw, "p") == Preferences(Extent.SUPERSET, parts, price)


def test_substitutes_are_read() -> None:
    orders, prices = Relation("shop", "orders"), Relation("archive", "prices")
    assert read_substitutes([COLUMN, {**TABLE, "columns": {"id": "client_id"}}], "s") == (
        Substitute(orders, "price", prices, {"price": "amount"}, COLUMN["join"], Extent.EQUAL),
        Substitute(
            Relation("shop", "customers"),
            None,
            Relation("crm", "clients"),
            {"id": "client_id"},
            None,
            Extent.ANY,
        ),
    )
    assert read_substitutes(None, "s") == ()


def test_a_column_of_the_same_table_needs_no_join() -> None:
    raw = {"for": "s.t.a", "use": "s.t.b", "join": "same row", "extent": "equal"}
    table = Relation("s", "t")
    assert read_substitutes([raw], "s") == (Substitute(table, "a", table, {"a": "b"}),)


def test_tables_may_have_a_schema() -> None:
    raw = {**TABLE, "for": "shop.sales.customers", "columns": {}}
    assert read_substitutes([raw], "s")[0].original == Relation("shop", "sales.customers")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"dispensible": {}}, 'p: unknown key "dispensible"'),
        ({"extent": "equals"}, 'p.extent: "equals" is not known'),
        ({"dispensable": ["note"]}, "p.dispensable must be a mapping"),
        ({"dispensable": {"column": []}}, 'p.dispensable: unknown key "column"'),
        ({"dispensable": {"columns": "note"}}, "p.dispensable.columns must be a list"),
        ({"dispensable": {"columns": [True]}}, "p.dispensable.columns must be a text, not True"),
        ({"dispensable": {"columns": [" "]}}, "must be a text"),
        ({"dispensable": {"conditions": ["o.a ="]}}, '"o.a =" is no SQL condition'),
        ({"dispensable": {"conditions": ["a = 1 AND b = 2"]}}, "is several conditions"),
    ],
)
def test_wrong_preferences_are_refused(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(ProjectError) as caught:
        read_preferences(raw, "p")
    assert message in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"a": 1}, "s must be a list"),
        (["x"], "s[0] must be a mapping"),
        ([{**TABLE, "via": "x"}], 's[0]: unknown key "via"'),
        ([{"for": "a.b", "use": "c.d"}], 's[0]: "extent" is missing'),
        ([{**TABLE, "extent": "some"}], 's[0].extent: "some" is not known'),
        ([{**TABLE, "for": "customers"}], '"customers" is no table'),
        ([{**TABLE, "for": "shop..x"}], "has an empty name"),
        ([{**COLUMN, "for": "orders.price"}], '"orders.price" is no column'),
        ([{**COLUMN, "columns": {}}], "`join` is for a column"),
        ([{k: v for k, v in COLUMN.items() if k != "join"}], "a column or a table?"),
        ([{**COLUMN, "join": "orders.id = 1"}], '"orders.id" is a column of neither'),
        ([{**COLUMN, "join": "shop.orders.id ="}], "is no SQL condition"),
        ([{**COLUMN, "use": "shop.orders.cost"}], "both columns are of shop.orders"),
    ],
)
def test_wrong_substitutes_are_refused(raw: object, message: str) -> None:
    with pytest.raises(ProjectError) as caught:
        read_substitutes(raw, "s")
    assert message in caught.value.message
