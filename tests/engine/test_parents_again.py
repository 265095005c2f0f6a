"""Views on views where a parent begins anew or stops: its children are never silently wrong.

A parent can be loaded again without any transaction in between, with other columns, or after a
crash that left a batch of both open. What a child shows is compared with SQLite.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import Shop, rows_of
from viewkeeper.engine.operations.project_status import gather_status
from viewkeeper.engine.plan_runner import PlanRunner
from viewkeeper.engine.project import Project

PARENT = "SELECT c.id, c.name, c.city FROM crm.customer c WHERE c.id < 6"
CHILD = "SELECT city, count(*) AS n FROM parent GROUP BY city"
TOP = "SELECT max(n) AS n FROM child"


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    """A shop whose three levels of views are loaded."""
    shop = Shop(tmp_path, {"parent": PARENT, "child": CHILD, "top": TOP})
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    return shop


def check_all(shop: Shop, project: Project) -> None:
    parent = shop.views["parent"]
    child = shop.views["child"].replace("FROM parent", f"FROM ({parent}) AS parent")
    top = shop.views["top"].replace("FROM child", f"FROM ({child}) AS child")
    for name, sql in (("parent", parent), ("child", child), ("top", top)):
        assert rows_of(project.view(name)) == shop.recomputed(sql), name


def test_an_edited_parent_takes_its_children_along_though_no_time_has_passed(
    shop: Shop, spark: SparkSession
) -> None:
    shop.define("parent", PARENT.replace("< 6", "< 4"))
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert not project.refresh(full_refresh=["parent"]).waiting
        check_all(shop, project)
        shop.execute("crm", "UPDATE customer SET city = 'q' WHERE id < 3")
        report = project.refresh()
        assert (report.waiting, report.loaded) == ({}, {})
        check_all(shop, project)


def test_parent_and_child_are_edited_together(shop: Shop, spark: SparkSession) -> None:
    shop.define("parent", PARENT.replace("c.city", "c.city AS town"))
    shop.define("child", CHILD.replace("city", "town"))
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert not project.refresh(full_refresh=["parent", "child"]).waiting
        check_all(shop, project)


def test_a_parent_that_leaves_an_open_batch_takes_its_children_out_of_it(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.execute("crm", "UPDATE customer SET city = 'q' WHERE id < 3")

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, viewkeeper.open(shop.folder, spark=spark) as project:
        patch.setattr(PlanRunner, "_commit_batch", die)
        with pytest.raises(KeyboardInterrupt):
            project.refresh()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert not project.refresh(full_refresh=["parent"]).waiting
        check_all(shop, project)


def test_a_star_in_a_report_is_verified_in_the_order_of_its_table(
    shop: Shop, spark: SparkSession
) -> None:
    # The parent reads other columns of the same table than the report does.
    shop.define("lines", "SELECT c.*, p.n FROM crm.customer c LEFT JOIN child p ON p.city = c.city")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert not project.refresh().waiting
        assert all(each.ok for each in project.verify(["lines"]))


def test_a_child_of_a_stopped_parent_says_so_and_goes_on_when_it_is_mended(
    tmp_path: Path, spark: SparkSession
) -> None:
    ratio = "SELECT order_id, sum(quantity / product_id) AS r FROM shop.item GROUP BY order_id"
    many, other = "SELECT count(*) AS n FROM ratio", "SELECT count(*) AS n FROM shop.orders"
    shop = Shop(tmp_path, {"ratio": ratio, "many": many, "other": other})
    shop.fill()
    shop.execute("shop", "DELETE FROM item WHERE product_id = 0")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert not project.refresh().waiting
        shop.execute("shop", "INSERT INTO item VALUES (1, 0, 5)", "DELETE FROM orders WHERE id = 2")
        waiting = project.refresh().waiting
        assert waiting.keys() == {"ratio", "many"}
        assert "division by zero" in waiting["ratio"]
        assert waiting["many"] == 'it reads view "ratio", which waits or has stopped'
        assert rows_of(project.view("other")) == shop.recomputed(other)
        problems = {v.name: v.problem for v in gather_status(project.settings, 0.0).views}
        assert 'view "ratio", which it reads, has stopped' in (problems["many"] or "")
    shop.define("ratio", ratio.replace("product_id)", "nullif(product_id, 0))"))
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert not project.refresh(full_refresh=["ratio"]).waiting
        counted = "SELECT count(DISTINCT order_id) AS n FROM shop.item"
        assert rows_of(project.view("many")) == shop.recomputed(counted)


def test_indexes_of_tables_that_are_gone_are_removed(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        shop.execute("crm", "UPDATE customer SET city = 'q' WHERE id < 3")
        project.refresh()
        indexes = shop.folder / "warehouse" / "indexes"
        before = {folder.name for folder in indexes.iterdir()}
        project.refresh(full_refresh=["child"])
        project.compact()
        head = project.newest_head()
        assert before - {view.table for view in head.views.values()}, "its table is another one"
        left = {folder.name for folder in indexes.iterdir()}
        assert left <= {view.table for view in head.views.values()}
