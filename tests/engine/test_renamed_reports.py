"""Reports whose tables and columns have got other names, which then pass to others.

A report asks by handles, so a rename alone changes nothing. Where it must be bound again, its SQL
has the old names, and what is called so by then may be something else. What a report shows is
compared with SQLite.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import Shop, rows_of

CITIES = "SELECT city, count(name) AS n, max(name) AS last FROM crm.customer GROUP BY city"
PLACED = "SELECT customer_id, count(*) AS n FROM shop.orders GROUP BY customer_id"
PARENT = "SELECT id, title FROM catalogue.product WHERE id < 4"
CHILD = (
    "SELECT p.title, max(c.name) AS last FROM parent p "
    "LEFT JOIN crm.customer c ON c.id = p.id GROUP BY p.title"
)


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    """A shop in which the names of columns and tables have passed to others since the load."""
    views = {"cities": CITIES, "placed": PLACED, "parent": PARENT, "child": CHILD}
    shop = Shop(tmp_path, views)
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("crm", "ALTER TABLE customer RENAME COLUMN name TO called")
        shop.execute("shop", "ALTER TABLE orders RENAME TO sales")
        project.refresh()
        shop.execute("crm", "ALTER TABLE customer RENAME COLUMN city TO name")
        shop.execute("shop", "ALTER TABLE item RENAME TO orders")
        assert not project.refresh().waiting
    return shop


def test_renames_are_followed_and_written_down(shop: Shop, spark: SparkSession) -> None:
    shop.execute("crm", "UPDATE customer SET called = 'zz' WHERE id = 3")
    shop.execute("shop", "DELETE FROM sales WHERE id = 2")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh()
        assert (report.waiting, report.loaded) == ({}, {})
        now = "SELECT name, count(called), max(called) FROM crm.customer GROUP BY name"
        assert rows_of(project.view("cities")) == shop.recomputed(now)
        assert rows_of(project.view("placed")) == shop.recomputed(PLACED.replace("orders", "sales"))
        version = project.view("cities").head.versions[-1]
        assert [(each.column, each.now) for each in version.followed] == [
            ("name", "called"),
            ("city", "name"),
        ]
        assert all(each.ok for each in project.verify(["cities", "placed"]))


def test_a_table_made_again_is_not_read_by_names_that_had_passed_to_others(
    shop: Shop, spark: SparkSession
) -> None:
    shop.execute(
        "crm",
        "DROP TABLE customer",
        "CREATE TABLE customer (id INTEGER PRIMARY KEY, called TEXT, name TEXT)",
        "INSERT INTO customer VALUES (1, 'ann', 'x')",
    )
    shop.execute("shop", "DROP TABLE sales")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        waiting = project.refresh().waiting
        assert waiting.keys() == {"cities", "placed", "child"}
        assert '"name" became "called"' in waiting["cities"]
        assert '"orders" became "sales"' in waiting["placed"]
        assert '"name" became "called"' in waiting["child"]
    shop.define("cities", CITIES.replace("name", "called").replace("city", "name"))
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh(full_refresh=["cities"])
        assert rows_of(project.view("cities")) == shop.recomputed(shop.views["cities"])


def test_a_parent_made_again_leaves_the_tables_of_its_child(
    shop: Shop, spark: SparkSession
) -> None:
    shop.define("parent", PARENT.replace("< 4", "< 3"))
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert not project.refresh(full_refresh=["parent"]).waiting
        sql = CHILD.replace("c.name", "c.called").replace(
            "FROM parent p", f"FROM ({shop.views['parent']}) p"
        )
        assert rows_of(project.view("child")) == shop.recomputed(sql)
