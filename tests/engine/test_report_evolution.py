"""Schema changes below windows, scalars, the time, exploded rows and a view that is computed again.

Columns and tables are renamed, added, dropped where nobody reads them, and made again, each time
with rows that change too. What every view shows is compared with SQLite, and the states in between
of some by `verify` with Spark on the user's text. A column that a view reads cannot be dropped:
SQLite refuses it because of our triggers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import LINES, Shop, rows_of
from tests.engine.shop_reports import REFRESH, SHOP_REPORTS, in_sqlite
from viewkeeper.engine.project import Project

RENAMES = {
    "c.name": "c.called",
    "shop.orders": "shop.sales",
    "p.cents": "p.price",
    "q.cents": "q.price",
}


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    shop = Shop(tmp_path, {"lines": LINES, **SHOP_REPORTS}, f"history: 1h\n{REFRESH}")
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert not project.refresh().waiting
    return shop


def write_rows(shop: Shop, number: int, orders: str, name: str) -> None:
    """A transaction in every database, that touches what every view shows."""
    shop.execute("crm", f"UPDATE customer SET {name} = 'n{number}' WHERE id = {number % 8}")
    shop.execute(
        "shop",
        f"INSERT INTO {orders} (id, customer_id, placed) "
        f"VALUES ({100 + number}, {number % 8}, '2024-02-{10 + number}')",
        f"DELETE FROM {orders} WHERE id = {number}",
        f"INSERT INTO item VALUES ({100 + number}, {number % 5}, 2), ({100 + number}, 1, 9)",
    )
    shop.execute("catalogue", f"INSERT OR REPLACE INTO product VALUES ({number}, 'p{number}x', 17)")


def check_rows(project: Project, shop: Shop, renames: dict[str, str]) -> None:
    """Every view goes on and shows what SQLite says."""
    assert project.refresh().waiting == {}
    for view in SHOP_REPORTS:
        text = in_sqlite(view)
        for old, new in renames.items():
            text = text.replace(old, new)
        assert rows_of(project.view(view)) == shop.recomputed(text), view


def test_names_and_columns_change_below_every_kind_of_report(
    shop: Shop, spark: SparkSession
) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        shop.execute("crm", "ALTER TABLE customer RENAME COLUMN name TO called")
        shop.execute("shop", "ALTER TABLE orders ADD COLUMN note TEXT")
        write_rows(shop, 1, "orders", "called")
        check_rows(project, shop, {"c.name": "c.called"})
        shop.execute("shop", "ALTER TABLE orders RENAME TO sales")
        shop.execute("shop", "ALTER TABLE sales DROP COLUMN note")
        write_rows(shop, 2, "sales", "called")
        shop.execute("catalogue", "ALTER TABLE product RENAME COLUMN cents TO price")
        write_rows(shop, 3, "sales", "called")
        check_rows(project, shop, RENAMES)
        states = project.verify(["dear", "firsts"], every_state=True)
        assert all(each.ok for each in states)


def test_a_table_made_again_with_other_types_is_compiled_again(
    shop: Shop, spark: SparkSession
) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        shop.execute(
            "catalogue",
            "DROP TABLE product",
            "CREATE TABLE product (id INTEGER PRIMARY KEY, title TEXT, cents DOUBLE)",
            "INSERT INTO product VALUES (1, 'p1', 1.5), (2, 'p2', 2.25), (3, 'p3', 9)",
        )
        shop.execute("crm", "UPDATE customer SET name = 'z' WHERE id = 4")
        for _ in range(2):
            waiting = project.refresh().waiting
        assert not waiting.keys() & {"ranks", "firsts", "loyal", "recent", "towns"}, waiting
        for view in sorted({"dear", "letters"} - waiting.keys()):
            assert rows_of(project.view(view)) == shop.recomputed(in_sqlite(view)), view
        for view in sorted({"dear", "letters"} & waiting.keys()):
            project.refresh(full_refresh=[view])
            assert rows_of(project.view(view)) == shop.recomputed(in_sqlite(view)), view
