"""Views that read other views of the project: all of one ts together, and each on its own way.

A child goes along with its parents, catches up when it was added later or had stopped, waits where
a parent waits, and is computed again where a parent begins anew. Everything is compared with SQLite
over the same databases, where the parents are derived tables.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import Shop, rows_of
from viewkeeper.engine.project import Project
from viewkeeper.errors import DefinitionError

LINES = (
    "SELECT o.id AS order_id, c.name AS customer, c.city AS city, i.quantity AS quantity "
    "FROM shop.orders o JOIN crm.customer c ON c.id = o.customer_id "
    "JOIN shop.item i ON i.order_id = o.id"
)
BY_CITY = "SELECT city, count(*) AS n, sum(quantity) AS total FROM lines GROUP BY city"
BUSY = "SELECT b.city, b.n, c.id FROM by_city b LEFT JOIN crm.customer c ON c.city = b.city"
LARGEST = "SELECT max(n) AS n, count(*) AS cities FROM by_city"


def as_sqlite(sql: str) -> str:
    """The text with views as derived tables."""
    for name, text in (("by_city", BY_CITY), ("lines", LINES)):
        if f"FROM {name}" in sql:
            sql = sql.replace(f"FROM {name}", f"FROM ({as_sqlite(text)}) AS {name}", 1)
    return sql.replace("AS by_city b ", "AS b ")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path, {"lines": LINES, "by_city": BY_CITY, "busy": BUSY, "largest": LARGEST})
    shop.fill()
    return shop


def check_all(shop: Shop, project: Project) -> None:
    for name, sql in shop.views.items():
        expected = shop.recomputed(as_sqlite(sql))
        assert rows_of(project.view(name)) == expected, name


def changed(shop: Shop, number: int) -> None:
    shop.execute("shop", f"UPDATE item SET quantity = quantity + {number} WHERE order_id < 5")
    shop.execute("crm", f"UPDATE customer SET city = 'w{number}' WHERE id = {number % 8}")
    shop.execute("shop", f"DELETE FROM item WHERE order_id = {10 + number}")


def test_all_levels_are_visible_together(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert not project.refresh().waiting
        check_all(shop, project)
        for number in range(3):
            changed(shop, number)
            project.refresh()
            check_all(shop, project)
            assert len({project.view(name).ts for name in shop.views}) == 1
        assert all(each.ok for each in project.verify())


def test_a_child_that_is_added_later_catches_up(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    changed(shop, 1)
    late = "SELECT city, n FROM by_city WHERE n > 3"
    shop.define("late", late)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        changed(shop, 2)
        project.refresh()
        check_all(shop, project)


def test_a_parent_that_begins_anew_takes_its_children_along(
    shop: Shop, spark: SparkSession
) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    changed(shop, 1)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh(full_refresh=["lines"])
        changed(shop, 2)
        project.refresh()
        check_all(shop, project)


def test_views_in_a_circle_are_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path, {"one": "SELECT a FROM two", "two": "SELECT a FROM one"})
    with pytest.raises(DefinitionError) as caught:
        viewkeeper.open(shop.folder)
    assert '"one" reads "two" reads "one"' in str(caught.value)


def test_an_unknown_view_is_named(tmp_path: Path) -> None:
    shop = Shop(tmp_path, {"lines": LINES, "top": "SELECT city FROM line"})
    with viewkeeper.open(shop.folder) as project:
        assert "top" in project.catalogue.written.refused
        with pytest.raises(DefinitionError, match='"line" is not a view of the project'):
            project.view("top")


def test_a_large_batch_is_the_same_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    views = {"lines": LINES, "by_city": BY_CITY, "busy": BUSY, "largest": LARGEST}
    shop = Shop(tmp_path, views, "batch: {inline_rows: 0, part_rows: 5}\n")
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        changed(shop, 3)
        report = project.refresh()
        assert report.batches_on_spark
        check_all(shop, project)


def test_what_is_stored_of_folds_is_said(shop: Shop, spark: SparkSession) -> None:
    having = "SELECT city, count(*) AS n FROM lines GROUP BY city HAVING count(*) > 2"
    shop.define("having", having)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        heads = project.newest_head()
        inner = [view for view in heads.views.values() if view.is_inner]
        assert [view.view.partition("#")[0] for view in inner] == ["having"]
        assert "having" in heads.shown_views
        assert all("#" not in name for name in heads.shown_views)
        assert rows_of(project.view("having")) == shop.recomputed(as_sqlite(having))
