"""Views with quantified comparisons: maintained, computed again, verified, and renamed below.

What they show is compared with SQLite, which has no such comparisons: each view has words for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import Shop, rows_of
from viewkeeper.engine.operations.view_explanation import explain_view
from viewkeeper.errors import DefinitionError

DEAR = "SELECT p.id, p.cents FROM catalogue.product p WHERE p.cents >= ALL (SELECT q.cents {})"
VIEWS = {
    "dear": DEAR.format("FROM catalogue.product q"),
    "again": DEAR.format("FROM catalogue.product q /* = ANY (SELECT 1) */ WHERE q.id > 1"),
    "auto": "SELECT o.id FROM shop.orders o\nWHERE o.placed <= ALL (SELECT p.placed "
    "FROM shop.orders p WHERE p.id > o.id)",
    "recent": "SELECT o.id FROM shop.orders o WHERE current_date() > ALL (SELECT p.placed "
    "FROM shop.orders p WHERE p.customer_id = o.customer_id)",
    "bought": "SELECT c.id, c.id = ANY (SELECT customer_id FROM shop.orders) AS has, "
    "c.name <> ALL (SELECT d.name FROM crm.customer d WHERE d.city = c.city AND d.id < c.id) "
    "AS is_first FROM crm.customer c",
}
IN_SQLITE = {
    "dear": "SELECT p.id, p.cents FROM catalogue.product p "
    "WHERE p.cents >= (SELECT max(q.cents) FROM catalogue.product q)",
    "again": "SELECT p.id, p.cents FROM catalogue.product p "
    "WHERE p.cents >= (SELECT max(q.cents) FROM catalogue.product q WHERE q.id > 1)",
    "auto": "SELECT o.id FROM shop.orders o WHERE NOT EXISTS (SELECT 1 FROM shop.orders p "
    "WHERE p.id > o.id AND p.placed < o.placed)",
    "recent": "SELECT o.id FROM shop.orders o WHERE NOT EXISTS (SELECT 1 FROM shop.orders p "
    "WHERE p.customer_id = o.customer_id AND p.placed >= date('now'))",
    "bought": "SELECT c.id, c.id IN (SELECT customer_id FROM shop.orders) AS has, "
    "NOT EXISTS (SELECT 1 FROM crm.customer d WHERE d.city = c.city AND d.id < c.id "
    "AND d.name = c.name) AS is_first FROM crm.customer c",
}
REFRESH = "views:\n  again: {refresh: full}\n  auto: {refresh: auto}\n"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path, VIEWS, REFRESH)
    shop.fill()
    return shop


def test_views_are_maintained_computed_again_and_verified(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert not project.refresh().waiting
        shop.execute("catalogue", "INSERT INTO product VALUES (90, 'top', 99999)")
        shop.execute("shop", "DELETE FROM orders WHERE id < 9")
        shop.execute("shop", "UPDATE orders SET placed = NULL WHERE id = 12")
        shop.execute("shop", "INSERT INTO orders VALUES (91, 1, '2999-01-01')")
        shop.execute("crm", "INSERT INTO customer SELECT 92, name, city FROM customer WHERE id = 1")
        assert not project.refresh().waiting
        # Whatever is NULL decides by the standard, and NOT EXISTS in SQLite does not say so.
        unknown = "SELECT 1 FROM shop.orders p WHERE p.placed IS NULL AND "
        others = {"auto": "(p.id > o.id OR p.id = o.id)", "recent": "p.customer_id = o.customer_id"}
        for name, text in IN_SQLITE.items():
            if name in others:
                text += f" AND NOT EXISTS ({unknown}{others[name]})"
            assert rows_of(project.view(name)) == shop.recomputed(text), name
        assert all(each.ok for each in project.verify())
        connections = project.open_connections()
        kinds = {
            name: explain_view(
                project.catalogue.bind_view(name, connections),
                connections,
                project.settings.algorithm,
            ).incremental
            for name in VIEWS
        }
        connections.close()
    assert [name for name, is_kept in kinds.items() if not is_kept] == ["again", "auto"]


def test_names_that_change_below_are_followed(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert not project.refresh().waiting
        shop.execute("catalogue", "ALTER TABLE product RENAME COLUMN cents TO price")
        shop.execute("shop", "ALTER TABLE orders RENAME TO sales")
        assert not project.refresh().waiting
        shop.execute("catalogue", "UPDATE product SET price = 99998 WHERE id = 2")
        shop.execute("shop", "DELETE FROM sales WHERE customer_id = 1")
        assert not project.refresh().waiting
        for name in ("dear", "again", "bought"):
            text = IN_SQLITE[name].replace("cents", "price").replace("orders", "sales")
            assert rows_of(project.view(name)) == shop.recomputed(text), name
        assert all(each.ok for each in project.verify())


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("SELECT c.id FROM crm.customer c\nWHERE c.id > ALL (SELECT o.idd FROM shop.orders o)",
         (3, 26), "idd"),
        ("SELECT c.id FROM crm.customer c\nWHERE c.id > ALL (SELECT o.id FROM shop.orders o\n"
         "  WHERE acos(o.placed) = c.name)", (4, 9), "data type mismatch"),
        ("SELECT c.id FROM crm.customer c\nWHERE c.name > ALL (SELECT o.id FROM shop.orders o)",
         (3, 16), "types that have no order in common"),
        ("SELECT c.id FROM crm.customer c\nWHERE c.id > ALL (SELECT o.id FROM shop.orders o\n"
         "  WHERE o.customer_id < c.id)", (2, 1), "without an equality"),
        ("SELECT c.id FROM crm.customer c\nWHERE c.id > ALL (SELECT o.id FROM shop.orders o\n"
         "  ORDER BY o.placed LIMIT now())", (4, 27), "now()"),
    ],
)  # fmt: skip
def test_errors_point_into_the_text_of_the_view(
    text: str, place: tuple[int, int], reason: str, tmp_path: Path, spark: SparkSession
) -> None:
    shop = Shop(tmp_path, {"wrong": text})
    shop.fill()
    with pytest.raises(DefinitionError) as caught, viewkeeper.open(tmp_path, spark) as project:
        project.refresh()
    assert (caught.value.line, caught.value.column) == place
    assert reason in str(caught.value)
