"""Views of every kind that is more than a join and an aggregate, over the small shop.

A window, a deduplication, a correlated and an uncorrelated scalar, a condition on the day, exploded
texts, and a view that is computed again. Where SQLite cannot read a text as it is, its own words
are given, so that rows can be recomputed by it.
"""

from __future__ import annotations

from collections.abc import Mapping

WINDOWS = {
    "ranks": "SELECT o.id, o.customer_id, row_number() OVER (PARTITION BY o.customer_id "
    "ORDER BY o.placed DESC, o.id) AS place, lag(o.id) OVER (PARTITION BY o.customer_id "
    "ORDER BY o.placed DESC, o.id) AS before FROM shop.orders o",
    "firsts": "SELECT i.order_id, i.product_id, i.quantity FROM shop.item i QUALIFY row_number() "
    "OVER (PARTITION BY i.order_id ORDER BY i.quantity DESC, i.product_id) = 1",
}
SCALARS = {
    "loyal": "SELECT c.id, c.name, (SELECT count(*) FROM shop.orders o "
    "WHERE o.customer_id = c.id) AS n FROM crm.customer c",
    "dear": "SELECT p.id, p.cents FROM catalogue.product p "
    "WHERE p.cents > (SELECT avg(q.cents) FROM catalogue.product q)",
}
SHOP_REPORTS: Mapping[str, str] = {
    **WINDOWS,
    **SCALARS,
    "recent": "SELECT o.id, o.customer_id FROM shop.orders o "
    "WHERE o.placed > current_date() - 36500 AND o.placed <= current_date()",
    "letters": "SELECT p.id, explode(split(p.title, 'p')) AS part FROM catalogue.product p",
    "towns": "SELECT c.city, count(*) AS n FROM crm.customer c GROUP BY c.city",
}
REFRESH = "views:\n  towns: {refresh: full}\n"
"""What the project file says of them."""

_IN_SQLITE = {
    "firsts": "SELECT order_id, product_id, quantity FROM (SELECT i.*, row_number() OVER "
    "(PARTITION BY i.order_id ORDER BY i.quantity DESC, i.product_id) AS place "
    "FROM shop.item i) WHERE place = 1",
    "recent": "SELECT o.id, o.customer_id FROM shop.orders o "
    "WHERE o.placed > date('now', '-36500 days') AND o.placed <= date('now')",
    "letters": "SELECT p.id, '' AS part FROM catalogue.product p "
    "UNION ALL SELECT p.id, substr(p.title, 2) FROM catalogue.product p",
}


def in_sqlite(view: str) -> str:
    """The text of a view as SQLite reads it."""
    return _IN_SQLITE.get(view, SHOP_REPORTS[view])
