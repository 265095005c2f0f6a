"""What is lost: replaced, dispensed with, NULL, or a reason and the lines that would mend it."""

from __future__ import annotations

import pyarrow as pa
import pytest
import yaml

from tests.evolution.shop import HEAD, JOIN, Now, follow, relation_of, text_of, without
from viewkeeper.evolution.extent import Extent
from viewkeeper.evolution.preferences import NamedParts, Preferences, Substitute, read_preferences
from viewkeeper.evolution.synchronization.synchronize import NoRewriting, Rewriting
from viewkeeper.view.definition import Relation

GONE = Now(lost=["crm.customers"])
CONDITIONS = (
    "SELECT o.id FROM shop.orders o\nWHERE o.note = 1 -- why\n  AND (o.price > 2 OR o.id = 3)"
)


@pytest.mark.parametrize(
    ("lost", "parts", "before", "after", "extent"),
    [
        ("shop.orders.price", without(columns="PRICE"), JOIN,
         JOIN.replace("o.price, ", ""), Extent.EQUAL),
        ("crm.customers.name", without(columns="name"), JOIN,
         JOIN.replace(", c.name", ""), Extent.EQUAL),
        ("shop.orders.note", without(conditions="1 = O.note"), CONDITIONS,
         "SELECT o.id FROM shop.orders o\nWHERE (o.price > 2 OR o.id = 3)", Extent.SUPERSET),
        ("shop.orders.price", without(conditions="price > 2 OR id = 3"), CONDITIONS,
         "SELECT o.id FROM shop.orders o\nWHERE o.note = 1", Extent.SUPERSET),
        ("crm.customers", without(relations="c"), JOIN + " WHERE o.price > 1",
         "SELECT o.id, o.price FROM shop.orders AS o WHERE o.price > 1", Extent.SUPERSET),
        ("shop.orders", without(relations="shop.orders"), JOIN + " AND c.region = 1",
         "SELECT c.name FROM crm.customers AS c WHERE c.region = 1", Extent.SUPERSET),
        ("shop.orders.customer", without(relations="c"), JOIN,
         "SELECT o.id, o.price FROM shop.orders AS o", Extent.SUPERSET),
        ("shop.items", without(relations="items"),
         "SELECT id, product FROM shop.items, shop.orders WHERE id = order_id",
         "SELECT id FROM shop.orders", Extent.SUPERSET),
        ("shop.items", without(relations="items"),
         "SELECT id, product FROM shop.orders, shop.items WHERE id = order_id AND id > 1",
         "SELECT id FROM shop.orders WHERE id > 1", Extent.SUPERSET),
    ],
)  # fmt: skip
def test_what_is_dispensable_goes(
    lost: str, parts: NamedParts, before: str, after: str, extent: Extent
) -> None:
    found = follow(before, Now(lost=[lost]), Preferences(Extent.SUPERSET, parts))
    assert text_of(found) == after
    assert isinstance(found, Rewriting)
    assert found.extent is extent


def test_a_comment_survives_what_goes_beside_it() -> None:
    before = "SELECT id, -- the key\n  price -- the price\nFROM shop.orders"
    preferences = Preferences(dispensable=without(columns="price"))
    found = follow(before, Now(lost=["shop.orders.price"]), preferences)
    assert text_of(found) == "SELECT id -- the key\n   -- the price\nFROM shop.orders"


PRICES = Relation("archive", "prices")
BY_ID = "shop.orders.id = archive.prices.order_id"
ARCHIVE = Now(lost=["shop.orders.price"], came={"archive.prices": ["order_id", "amount", "id"]})


def amount(extent: Extent = Extent.EQUAL, join: str | None = BY_ID) -> Substitute:
    return Substitute(
        relation_of("shop.orders"), "price", PRICES, {"price": "amount"}, join, extent
    )


def test_a_column_comes_in_by_a_join() -> None:
    found = follow(
        "SELECT id, price FROM shop.orders WHERE price > 1", ARCHIVE, substitutes=[amount()]
    )
    assert text_of(found) == (
        "SELECT orders.id, prices.amount AS price FROM shop.orders"
        " JOIN archive.prices AS prices ON orders.id = prices.order_id WHERE prices.amount > 1"
    )


def test_a_condition_that_cannot_see_the_substitute_moves() -> None:
    before = (
        "SELECT i.product FROM shop.orders o JOIN shop.items i ON o.id = i.order_id AND price > 1"
    )
    assert text_of(follow(before, ARCHIVE, substitutes=[amount()])) == (
        "SELECT i.product FROM shop.orders o JOIN shop.items i ON o.id = i.order_id"
        " JOIN archive.prices AS prices ON o.id = prices.order_id WHERE prices.amount > 1"
    )


TWICE = (
    "SELECT a.id, a.price, x.product"
    " FROM shop.orders AS a JOIN shop.items AS x ON x.order_id = a.id"
)


@pytest.mark.parametrize("extent", Extent)
def test_a_relation_that_is_there_is_used_unless_its_rows_would_be_paired_wrongly(
    extent: Extent,
) -> None:
    join = "shop.orders.id = shop.items.order_id"
    items = relation_of("shop.items")
    substitute = Substitute(
        relation_of("shop.orders"), "price", items, {"price": "amount"}, join, extent
    )
    now = Now(lost=["shop.orders.price"])
    found = text_of(follow(TWICE, now, Preferences(extent), [substitute]))
    used = TWICE.replace("a.price", "x.amount AS price")
    joined = TWICE.replace("a.price", "items.amount AS price")
    joined += " JOIN shop.items AS items ON a.id = items.order_id"
    assert found == (joined if extent is Extent.SUPERSET else used)


def test_a_column_of_the_same_row_needs_no_join() -> None:
    orders = relation_of("shop.orders")
    substitute = Substitute(orders, "price", orders, {"price": "note"}, None, Extent.EQUAL)
    found = follow(JOIN, Now(lost=["shop.orders.price"]), substitutes=[substitute])
    assert text_of(found) == JOIN.replace("o.price", "o.note AS price")


def test_the_first_substitute_that_fits_is_used() -> None:
    now = Now(lost=["crm.customers"], came={"crm.a": ["id"], "crm.b": ["id", "name"]})
    customers = relation_of("crm.customers")
    names = ("crm.away", "crm.a", "crm.b")
    substitutes = [Substitute(customers, None, relation_of(name)) for name in names]
    found = follow(JOIN, now, substitutes=substitutes)
    assert text_of(found) == JOIN.replace("crm.customers", "crm.b")
    assert isinstance(found, Rewriting)
    assert found.steps == ("crm.b stands in for crm.customers, extent equal",)


def test_a_substitute_of_another_type_does_not_fit() -> None:
    now = Now(
        ARCHIVE.tables, {}, ARCHIVE.lost, ARCHIVE.came, {"archive.prices.amount": pa.string()}
    )
    assert isinstance(follow(JOIN, now, substitutes=[amount()]), NoRewriting)


def test_what_is_irreplaceable_is_dispensed_with_or_fails() -> None:
    price = without(columns="price")
    found = follow(JOIN, ARCHIVE, Preferences(irreplaceable=price), [amount()])
    assert isinstance(found, NoRewriting)
    found = follow(JOIN, ARCHIVE, Preferences(Extent.EQUAL, price, price), [amount()])
    assert text_of(found) == JOIN.replace("o.price, ", "")


def test_a_thing_of_the_same_name_is_read_anew() -> None:
    found = follow(JOIN, Now(lost=["crm.customers"], came={"crm.customers": ["id", "name"]}))
    step = "crm.customers is another table of the same name now, and is read anew"
    assert found == Rewriting(HEAD + JOIN, Extent.EQUAL, (step,))
    found = follow(JOIN, Now(lost=["shop.orders.price"], came={"shop.orders": ["price"]}))
    step = "shop.orders.price is another column of the same name now, and is read anew"
    assert found == Rewriting(HEAD + JOIN, Extent.EQUAL, (step,))


def test_a_column_that_took_the_name_of_a_lost_one_does_not_stand_for_it() -> None:
    now = Now(lost=["shop.orders.price"], columns={"shop.orders.note": "price"})
    preferences = Preferences(dispensable=without(columns="price"))
    found = follow("SELECT price, note FROM shop.orders", now, preferences)
    assert text_of(found) == "SELECT price AS note FROM shop.orders"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("price FROM shop.orders", "CAST(NULL AS BIGINT) AS price FROM shop.orders"),
        (
            "price + 1 AS p, id FROM shop.orders",
            "CAST(NULL AS BIGINT) + 1 AS p, id FROM shop.orders",
        ),
        (
            "* FROM shop.orders",
            "id, customer, CAST(NULL AS BIGINT) AS price, note FROM shop.orders",
        ),
    ],
)
def test_a_lost_column_becomes_null_where_that_is_asked_for(before: str, after: str) -> None:
    lost = Now(lost=["shop.orders.price"])
    assert text_of(follow(f"SELECT {before}", lost, null_for_lost=True)) == f"SELECT {after}"


@pytest.mark.parametrize(
    ("select", "now", "reason", "mends"),
    [
        (JOIN, Now(lost=["shop.orders.price"]),
         'shop.orders.price is gone, and the view\'s column "price" needs it',
         ("ALTER TABLE orders ADD COLUMN price BIGINT  -- in shop",
          "views: {v: {evolution: {dispensable: {columns: [price]}}}}")),
        (JOIN + " WHERE note = 1", Now({"shop.orders": "shop.p"}, lost=["shop.orders.note"]),
         "shop.orders.note is gone, and note = 1 needs it",
         ("ALTER TABLE p ADD COLUMN note BIGINT  -- in shop",
          "views: {v: {evolution: {extent: superset, dispensable: {conditions: [note = 1]}}}}")),
        (JOIN, GONE,
         "crm.customers is gone, and o.customer = c.id needs it; "
         'crm.customers is gone, and the view\'s column "name" needs it',
         ("CREATE TABLE customers (id BIGINT, name BIGINT)  -- in crm",
          "views: {v: {evolution: {extent: superset, dispensable: {relations: [c]}}}}")),
        ("SELECT id FROM shop.orders", Now(lost=["shop.orders"]),
         'shop.orders is gone, and the view\'s column "id" needs it',
         ("CREATE TABLE orders (id BIGINT)  -- in shop",)),
    ],
)  # fmt: skip
def test_what_cannot_be_done_says_why_and_what_would_mend_it(
    select: str, now: Now, reason: str, mends: tuple[str, ...]
) -> None:
    found = follow(select, now)
    by_hand = "edit the SQL of v, then `viewkeeper refresh v` loads it again"
    assert found == NoRewriting(reason, (*mends, by_hand))
    for line in mends[1:]:
        raw = yaml.safe_load(line)["views"]["v"]["evolution"]
        assert isinstance(follow(select, now, read_preferences(raw, "v")), Rewriting)


def test_an_extent_that_is_not_allowed_is_named() -> None:
    found = follow(JOIN, ARCHIVE, substitutes=[amount(Extent.SUBSET)])
    assert isinstance(found, NoRewriting)
    assert found.reason.endswith("a rewriting would have the extent subset, not equal")
    assert "views: {v: {evolution: {extent: subset}}}" in found.mends


def test_losses_compose() -> None:
    now = Now(lost=["shop.orders.price", "shop.orders.note"], came=ARCHIVE.came)
    preferences = Preferences(Extent.ANY, without(conditions="o.note = 1"))
    found = follow(JOIN + " WHERE o.note = 1", now, preferences, [amount(Extent.SUBSET)])
    assert isinstance(found, Rewriting)
    assert found.extent is Extent.ANY


def test_no_cross_product_by_accident() -> None:
    preferences = Preferences(Extent.ANY, without(conditions="o.customer = c.id"))
    found = follow(JOIN, Now(lost=["shop.orders.customer"]), preferences)
    assert isinstance(found, NoRewriting)
    assert "nothing would join o and c any more" in found.reason


def test_the_last_column_never_goes() -> None:
    preferences = Preferences(dispensable=without(columns="price"))
    found = follow("SELECT price FROM shop.orders", Now(lost=["shop.orders.price"]), preferences)
    assert isinstance(found, NoRewriting)
    assert found.reason == "no column of the view would be left"


def test_a_type_that_the_sql_cannot_use_stops_the_view() -> None:
    now = Now(types={"shop.orders.price": pa.int64(), "shop.orders.note": pa.string()})
    found = follow("SELECT id FROM shop.orders WHERE (note = 1) = (note - 1 > 2)", now)
    assert isinstance(found, Rewriting)
    found = follow("SELECT id FROM shop.orders WHERE id = 1 AND note", now)
    assert isinstance(found, NoRewriting)
    assert "a condition must be boolean" in found.reason


def test_without_being_told_what_there_was_a_named_loss_is_still_known() -> None:
    lost = Now(lost=["shop.orders.price"])
    preferences = Preferences(dispensable=without(columns="price"))
    assert text_of(follow(JOIN, lost, preferences, told=False)) == JOIN.replace("o.price, ", "")
    found = follow(JOIN.replace("o.price", "price"), lost, preferences, told=False)
    assert isinstance(found, NoRewriting)
    assert 'unknown column "price"' in found.reason
