"""View synchronization by example: names are followed, and nothing else in the text changes.

That rewritten views mean what they should is shown on random ones in `test_synchronize_meaning.py`.
Here are the forms that SQL can have, one by one.
"""

from __future__ import annotations

import pytest

from tests.evolution.shop import Now, follow, text_of
from viewkeeper.evolution.extent import Extent
from viewkeeper.evolution.synchronization.synchronize import Rewriting

COST = Now(columns={"shop.orders.price": "cost"})
MOVED = Now(tables={"shop.orders": "shop.purchases"})
IDENT = Now(columns={"shop.orders.id": "ident"})
SWAP = Now(columns={"shop.orders.price": "note", "shop.orders.note": "price"})


@pytest.mark.parametrize(
    ("now", "before", "after"),
    [
        (COST, "SELECT o.price FROM shop.orders o", "SELECT o.cost AS price FROM shop.orders o"),
        (
            COST,
            "SELECT o.price AS p, /* price */ o.id -- price\nFROM shop.orders o WHERE (price > 1)",
            "SELECT o.cost AS p, /* price */ o.id -- price\nFROM shop.orders o WHERE (cost > 1)",
        ),
        (
            COST,
            "SELECT PRICE, price + price AS twice FROM shop.orders",
            "SELECT cost AS PRICE, cost + cost AS twice FROM shop.orders",
        ),
        (
            SWAP,
            "SELECT price, note FROM shop.orders",
            "SELECT note AS price, price AS note FROM shop.orders",
        ),
        (
            Now(columns={"shop.orders.price": "unit price", "shop.orders.note": "order"}),
            "SELECT price, note FROM shop.orders",
            "SELECT `unit price` AS price, `order` AS note FROM shop.orders",
        ),
        (MOVED, "SELECT id FROM shop.orders", "SELECT id FROM shop.purchases"),
        (
            MOVED,
            "SELECT orders.id, shop.orders.note FROM shop.orders",
            "SELECT orders.id, orders.note FROM shop.purchases AS orders",
        ),
        (MOVED, "SELECT o.id FROM shop.orders AS o", "SELECT o.id FROM shop.purchases AS o"),
        (
            Now(tables={"shop.orders": "shop.customers"}),
            "SELECT note, name FROM shop.orders, crm.customers",
            "SELECT note, name FROM shop.customers AS orders, crm.customers",
        ),
        (
            Now(tables={"shop.orders": "shop.items", "shop.items": "shop.orders"}),
            "SELECT note, items.product FROM shop.orders JOIN shop.items ON order_id = id",
            "SELECT note, items.product FROM shop.items AS orders JOIN shop.orders AS items"
            " ON order_id = id",
        ),
        (
            Now(tables={"shop.orders": "shop.sales.orders"}),
            "SELECT shop.orders.id FROM shop.orders",
            "SELECT orders.id FROM shop.sales.orders",
        ),
        (
            IDENT,
            "SELECT id, name FROM shop.orders JOIN crm.customers USING (id)",
            "SELECT ident AS id, name FROM shop.orders JOIN crm.customers"
            " ON orders.ident = customers.id",
        ),
        (
            Now(columns={"shop.orders.id": "ident", "crm.customers.id": "ident"}),
            "SELECT id, name FROM shop.orders JOIN crm.customers USING (id)",
            "SELECT ident AS id, name FROM shop.orders JOIN crm.customers USING (ident)",
        ),
        (
            Now(came={"crm.customers": ["note"]}),
            "SELECT note, name FROM shop.orders o JOIN crm.customers c ON customer = c.id",
            "SELECT o.note, name FROM shop.orders o JOIN crm.customers c ON customer = c.id",
        ),
        (
            Now(came={"crm.customers": ["order_id"]}),
            "SELECT product FROM crm.customers c, shop.orders o JOIN shop.items i ON id = order_id",
            "SELECT product FROM crm.customers c, shop.orders o JOIN shop.items i ON id = order_id",
        ),
        (
            Now(columns={"shop.orders.price": "PRICE"}),
            "SELECT price FROM shop.orders",
            "SELECT price FROM shop.orders",
        ),
    ],
)
def test_names_are_followed(now: Now, before: str, after: str) -> None:
    found = follow(before, now)
    assert text_of(found) == after
    assert isinstance(found, Rewriting)
    assert found.extent is Extent.EQUAL


@pytest.mark.parametrize(
    ("now", "keep", "before", "after"),
    [
        (Now(came={"shop.orders": ["new"]}), False, "* FROM shop.orders", "* FROM shop.orders"),
        (
            Now(came={"shop.orders": ["new"]}),
            True,
            "* FROM shop.orders",
            "id, customer, price, note FROM shop.orders",
        ),
        (COST, False, "* FROM shop.orders", "id, customer, cost AS price, note FROM shop.orders"),
        (
            COST,
            False,
            "* FROM shop.orders o JOIN shop.items i ON o.id = i.order_id",
            "o.id, o.customer, o.cost AS price, o.note, i.* FROM shop.orders o JOIN shop.items i"
            " ON o.id = i.order_id",
        ),
        (
            COST,
            False,
            "i.*, o.id FROM shop.orders o JOIN shop.items i ON o.id = i.order_id",
            "i.*, o.id FROM shop.orders o JOIN shop.items i ON o.id = i.order_id",
        ),
        (
            Now(columns={"shop.items.order_id": "of"}, came={"shop.items": ["note"]}),
            False,
            "* FROM shop.orders o JOIN shop.items i ON o.id = i.order_id",
            "o.*, i.of AS order_id, i.product, i.amount FROM shop.orders o JOIN shop.items i"
            " ON o.id = i.of",
        ),
        (
            Now(lost=["shop.orders.note"]),
            False,
            "*, price + 1 AS more FROM shop.orders",
            "*, price + 1 AS more FROM shop.orders",
        ),
        (MOVED, False, "shop.orders.* FROM shop.orders", "orders.* FROM shop.purchases AS orders"),
        (
            IDENT,
            False,
            "* FROM shop.orders JOIN crm.customers USING (id)",
            "orders.ident AS id, orders.customer, orders.price, orders.note, customers.name,"
            " customers.region FROM shop.orders JOIN crm.customers ON orders.ident = customers.id",
        ),
    ],
)
def test_stars_stay_where_they_can(now: Now, keep: bool, before: str, after: str) -> None:
    found = follow(f"SELECT {before}", now, keep_columns=keep)
    assert text_of(found) == f"SELECT {after}"


def test_a_star_takes_no_name_twice() -> None:
    now = Now(came={"shop.orders": ["name", "new"]})
    found = follow("SELECT o.*, c.name FROM shop.orders o, crm.customers c", now)
    assert text_of(found).startswith("SELECT o.id, o.customer, o.price, o.note, o.new, c.name FROM")
    assert isinstance(found, Rewriting)
    assert "the star takes in shop.orders.new" in found.steps
