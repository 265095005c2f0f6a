"""Views meet schema changes of their sources: followed, adapted, held or stopped, always exact.

SQLite's own answer, by the names of now, says what a view must show.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import LINES, Shop, rows_of
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import Report
from viewkeeper.errors import ProjectError

NAMES = "SELECT c.id, c.name FROM crm.customer c"
ALL = "SELECT * FROM crm.customer"
CITIES = "SELECT c.city, o.id AS order_id FROM crm.customer c JOIN shop.orders o " + (
    "ON o.customer_id = c.id"
)


def made(folder: Path, views: dict[str, str], settings: str = "") -> Shop:
    shop = Shop(folder, views, settings)
    shop.fill()
    return shop


def refreshed(shop: Shop, spark: SparkSession) -> Report:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        return project.refresh()


def check(project: Project, shop: Shop, name: str, sql: str) -> None:
    assert rows_of(project.view(name)) == shop.recomputed(sql), name
    assert all(each.ok for each in project.verify([name])), name


def test_a_renamed_column_and_table_cost_nothing_and_stay_complete(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = made(tmp_path, {"lines": LINES, "cities": CITIES})
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        before = project.view("lines").head
        shop.execute("crm", "UPDATE customer SET name = 'x' WHERE id = 1")
        shop.execute("crm", "ALTER TABLE customer RENAME COLUMN name TO full_name")
        shop.execute("crm", "ALTER TABLE customer RENAME TO client")
        shop.execute("crm", "UPDATE client SET full_name = 'y' WHERE id = 2")
        shop.execute("shop", "UPDATE orders SET customer_id = 3 WHERE id = 2")
        report = project.refresh()
        assert (report.waiting, report.loaded) == ({}, {})
        now = LINES.replace("crm.customer", "crm.client").replace("c.name", "c.full_name")
        check(project, shop, "lines", now)
        check(project, shop, "cities", CITIES.replace("crm.customer", "crm.client"))
        head = project.view("lines").head
        assert head.schema == before.schema, "the view's own names stay"
        assert head.table == before.table
        version = head.versions[-1]
        assert "c.full_name AS name" in version.text
        assert any("full_name" in cause for cause in version.causes)
        shop.execute("crm", "DELETE FROM client WHERE id = 5")
        project.refresh()
        check(project, shop, "lines", now)


def test_what_changed_while_nobody_looked_is_followed_at_the_next_start(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = made(tmp_path, {"names": NAMES})
    refreshed(shop, spark)
    shop.execute("crm", "INSERT INTO customer VALUES (50, 'late', 'x')")
    shop.execute("crm", "ALTER TABLE customer RENAME COLUMN name TO called")
    shop.execute("crm", "INSERT INTO customer VALUES (51, 'later', 'x')")
    assert refreshed(shop, spark).waiting == {}
    with viewkeeper.open(shop.folder, spark=spark) as project:
        check(project, shop, "names", "SELECT id, called FROM crm.customer")
        assert project.refresh().batches == 0


def test_edited_sql_that_says_what_the_view_has_become_is_taken(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = made(tmp_path, {"names": NAMES})
    refreshed(shop, spark)
    shop.execute("crm", "ALTER TABLE customer RENAME COLUMN name TO called")
    refreshed(shop, spark)
    shop.define("names", "SELECT k.id, k.called AS name FROM crm.customer AS k")
    report = refreshed(shop, spark)
    assert (report.waiting, report.loaded) == ({}, {})
    shop.define("names", "SELECT k.id, k.city AS name FROM crm.customer AS k")
    with pytest.raises(ProjectError, match="viewkeeper refresh names"):
        refreshed(shop, spark)


def test_an_added_column_enters_only_where_a_star_asks_for_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = made(tmp_path, {"names": NAMES, "everything": ALL})
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("crm", "ALTER TABLE customer ADD COLUMN vip INTEGER")
        report = project.refresh()
        assert (report.waiting, report.loaded) == ({}, {}), "NULL in all rows: nothing is read"
        check(project, shop, "names", NAMES)
        shop.execute("crm", "UPDATE customer SET vip = 1 WHERE id = 3")
        project.refresh()
        check(project, shop, "everything", ALL)
        assert len(project.view("names").head.versions) == 1
        shop.execute("crm", "ALTER TABLE customer ADD COLUMN level INTEGER DEFAULT 7")
        report = project.refresh()
        assert report.waiting == {}
        check(project, shop, "everything", ALL)
        assert project.view("everything").head.schema.names[-1] == "level"


def test_a_table_made_again_is_read_again_by_a_difference(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = made(tmp_path, {"lines": LINES, "cities": CITIES})
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        before, horizon = rows_of(project.view("lines")), project.view("lines").ts
        shop.execute("shop", "UPDATE item SET quantity = 9 WHERE order_id = 3")
        shop.execute("crm", "DROP TABLE customer")
        shop.execute("crm", "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT)")
        shop.execute("crm", "INSERT INTO customer VALUES (1, 'new', 'q'), (2, 'c2', 'z')")
        report = project.refresh()
        assert report.waiting == {}
        check(project, shop, "lines", LINES)
        check(project, shop, "cities", CITIES)
        assert rows_of(project.view("lines"), as_of=horizon) == before, "the past stays readable"
        shop.execute("crm", "INSERT INTO customer VALUES (3, 'more', 'q')")
        project.refresh()
        check(project, shop, "lines", LINES)


def test_a_used_table_that_is_dropped_stops_its_views_and_no_others(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = made(tmp_path, {"lines": LINES, "items": "SELECT i.* FROM shop.item i"})
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        before = rows_of(project.view("lines"))
        shop.execute("shop", "INSERT INTO item VALUES (1, 1, 1)", "DROP TABLE orders")
        report = project.refresh()
        assert set(report.waiting) == {"lines"}
        assert "orders was dropped" in report.waiting["lines"]
        assert "  hint: " in report.waiting["lines"]
        assert rows_of(project.view("lines")) == before, "the last good state is served"
        assert project.view("lines").head.stopped_at is not None
        check(project, shop, "items", "SELECT * FROM shop.item")
        shop.execute("shop", "INSERT INTO item VALUES (2, 2, 2)")
        project.refresh()
        check(project, shop, "items", "SELECT * FROM shop.item")
    shop.execute("shop", "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id, placed DATE)")
    shop.execute("shop", "INSERT INTO orders VALUES (1, 1, '2024-02-02')")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh()
        assert "lines" in report.waiting, "a column without a type cannot be kept"
    shop.execute("shop", "DROP TABLE orders")
    shop.execute(
        "shop",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, placed DATE)",
        "INSERT INTO orders VALUES (1, 1, '2024-02-02')",
    )
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert project.refresh().waiting == {}, "mended: it goes on"
        check(project, shop, "lines", LINES)


DISPENSABLE = """views:
  lines: {evolution: {extent: any, dispensable: {columns: [name], relations: [c]}}}
"""


def test_what_can_be_done_without_is_dropped_and_the_rows_repaired(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = made(tmp_path, {"lines": LINES}, DISPENSABLE)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("crm", "DROP TABLE customer")
        shop.execute("shop", "INSERT INTO item VALUES (1, 2, 3)")
        assert project.refresh().waiting == {}
        head = project.view("lines").head
        assert head.versions[-1].extent == "superset"
        now = LINES.replace("c.name, ", "").replace(
            "JOIN crm.customer c ON c.id = o.customer_id", ""
        )
        assert rows_of(project.view("lines")) == shop.recomputed_without(now, "crm")
        assert "crm" not in head.positions


SUBSTITUTES = """substitutes:
  - {for: crm.customer, use: shop.buyer, columns: {id: number, name: called}, extent: equal}
"""


def test_a_substitute_takes_the_place_of_a_dropped_table(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = made(tmp_path, {"lines": LINES}, SUBSTITUTES)
    shop.execute("shop", "CREATE TABLE buyer (number INTEGER PRIMARY KEY, called TEXT)")
    shop.execute("shop", *(f"INSERT INTO buyer VALUES ({i}, 'b{i}')" for i in range(4)))
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("crm", "DROP TABLE customer")
        assert project.refresh().waiting == {}
        now = LINES.replace("crm.customer c ON c.id", "shop.buyer c ON c.number")
        now = now.replace("c.name", "c.called")
        assert rows_of(project.view("lines")) == shop.recomputed_without(now, "crm")
        shop.execute("shop", "UPDATE buyer SET called = 'z' WHERE number = 2")
        project.refresh()
        assert rows_of(project.view("lines")) == shop.recomputed_without(now, "crm")


@pytest.mark.parametrize("word", ["approve", "reject"])
def test_a_held_view_waits_for_a_word(tmp_path: Path, spark: SparkSession, word: Any) -> None:
    shop = made(tmp_path, {"names": NAMES, "cities": CITIES}, "evolution: {policy: approve}\n")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        before = rows_of(project.view("names"))
        shop.execute("crm", "ALTER TABLE customer RENAME COLUMN name TO called")
        shop.execute("crm", "UPDATE customer SET called = 'q'")
        report = project.refresh()
        assert set(report.waiting) == {"names"}
        assert "viewkeeper approve names" in report.waiting["names"]
        assert rows_of(project.view("names")) == before
        check(project, shop, "cities", CITIES)
        (proposed,) = project.proposals().list_proposals()
        assert "c.called AS name" in proposed.version.text
        project.proposals().answer_proposal("names", word)
        waiting = project.refresh().waiting
        assert project.proposals().list_proposals() == []
        if word == "approve":
            check(project, shop, "names", "SELECT id, called FROM crm.customer")
        else:
            assert "rejected" in waiting["names"]
            assert rows_of(project.view("names")) == before


def test_the_policy_exception_stops_and_lenient_fills_with_null(
    tmp_path: Path, spark: SparkSession
) -> None:
    policies = "views:\n" + "".join(
        f"  {name}: {{evolution: {{policy: {word}}}}}\n"
        for name, word in (("strict", "exception"), ("mild", "lenient"))
    )
    shop = made(tmp_path, {"strict": NAMES, "mild": NAMES, "keyed": CITIES}, policies)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        ids = Counter((row[0], None) for row in shop.recomputed("SELECT id FROM crm.customer"))
        rebuilt(shop, "CREATE TABLE fresh (id INTEGER PRIMARY KEY, city TEXT)", "id, city")
        report = project.refresh()
        assert "exception" in report.waiting.pop("strict")
        assert report.waiting == {}
        assert rows_of(project.view("mild")) == ids
        check(project, shop, "keyed", CITIES)


def rebuilt(shop: Shop, create: str, columns: str) -> None:
    """Another shape for crm.customer, as tools do it for SQLite: copy, drop, rename."""
    shop.execute(
        "crm",
        create,
        f"INSERT INTO fresh SELECT {columns} FROM customer",
        "DROP TABLE customer",
        "ALTER TABLE fresh RENAME TO customer",
    )


@pytest.mark.parametrize("algorithm", ["sweep", "pvm", "nested_sweep", "c_strobe", "recompute"])
def test_every_algorithm_follows(tmp_path: Path, spark: SparkSession, algorithm: str) -> None:
    view = "SELECT c.id, c.name, o.id AS order_id FROM crm.customer c JOIN shop.orders o " + (
        "ON o.customer_id = c.id"
    )
    settings = f"views: {{named: {{algorithm: {algorithm}, level: convergence}}}}\n"
    shop = made(tmp_path, {"named": view}, settings)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("crm", "UPDATE customer SET name = 'a' WHERE id = 1")
        shop.execute("crm", "ALTER TABLE customer RENAME COLUMN name TO called")
        shop.execute("shop", "UPDATE orders SET customer_id = 2 WHERE id = 1")
        shop.execute("crm", "UPDATE customer SET called = 'b' WHERE id = 1")
        assert project.refresh().waiting == {}
        now = view.replace("c.name", "c.called")
        assert rows_of(project.view("named")) == shop.recomputed(now)
        rebuilt(
            shop,
            "CREATE TABLE fresh (id INTEGER PRIMARY KEY, called TEXT)",
            "id, upper(called)",
        )
        shop.execute("shop", "INSERT INTO orders VALUES (900, 2, '2024-05-05')")
        assert project.refresh().waiting == {}
        assert rows_of(project.view("named")) == shop.recomputed(now)


def test_a_column_that_we_capture_cannot_be_dropped_before_detach(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = made(tmp_path, {"names": NAMES})
    refreshed(shop, spark)
    with pytest.raises(sqlite3.OperationalError, match="name"):
        shop.execute("crm", "ALTER TABLE customer DROP COLUMN name")
    shop.execute("crm", "ALTER TABLE customer DROP COLUMN city")
    assert refreshed(shop, spark).waiting == {}
