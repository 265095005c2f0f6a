"""One file that is wrong is refused, whatever is wrong with it, and all other views go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.cli.conftest import call
from tests.engine.shop import LINES, Shop, rows_of
from viewkeeper.engine.report import SilentObserver, StateChange
from viewkeeper.errors import NotLoadedError

CITIES = """SELECT c.city, o.id AS order_id FROM crm.customer c
JOIN shop.orders o ON o.customer_id = c.id"""

WRONG = {
    "syntax": ("bad", "CREATE MATERIALIZED VIEW bad AS SELCT 1 FROM crm.customer c", "SELCT"),
    "no name": ("bad", "what is this", "expected CREATE"),
    "empty": ("bad", "", "no statement"),
    "unknown source": ("bad", "CREATE MATERIALIZED VIEW bad AS SELECT x.id FROM cmr.x x", "cmr"),
    "unknown view": ("bad", "CREATE MATERIALIZED VIEW bad AS SELECT x.id FROM linez x", "linez"),
    "open join": (
        "bad",
        "CREATE MATERIALIZED VIEW bad AS SELECT c.id FROM crm.customer c JOIN shop.orders o",
        "a JOIN without ON",
    ),
    "unknown table": (
        "bad",
        "CREATE MATERIALIZED VIEW bad AS SELECT c.id FROM crm.customers c",
        "customers",
    ),
    "unknown column": (
        "bad",
        "CREATE MATERIALIZED VIEW bad AS SELECT c.nme FROM crm.customer c",
        "nme",
    ),
    "unknown column of a report": (
        "bad",
        "CREATE MATERIALIZED VIEW bad AS SELECT c.nme, count(*) AS n FROM crm.customer c "
        "GROUP BY c.nme",
        "nme",
    ),
    "type error": (
        "bad",
        "CREATE MATERIALIZED VIEW bad AS SELECT sum(map(c.id, c.name)) AS s FROM crm.customer c "
        "GROUP BY c.city",
        "bad",
    ),
    "type error of a plain view": (
        "bad",
        "CREATE MATERIALIZED VIEW bad AS SELECT year(c.id = 1) AS y FROM crm.customer c",
        "bad",
    ),
    "type error of a report": (
        "bad",
        "CREATE MATERIALIZED VIEW bad AS SELECT c.city, sum(c.id = 1) AS s FROM crm.customer c "
        "GROUP BY c.city",
        "bad",
    ),
    "circle": ("bad", "CREATE MATERIALIZED VIEW bad AS SELECT b.id FROM bad b", "made from itself"),
}


class Heard(SilentObserver):
    def __init__(self) -> None:
        self.changes: list[StateChange] = []

    def on_state_change(self, change: StateChange) -> None:
        self.changes.append(change)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path, {"lines": LINES, "cities": CITIES})
    shop.fill()
    return shop


def put(shop: Shop, name: str, text: str) -> None:
    (shop.folder / "views" / f"{name}.sql").write_text(text)


@pytest.mark.parametrize("case", WRONG)
def test_the_others_go_on(case: str, shop: Shop, spark: SparkSession) -> None:
    name, text, expected = WRONG[case]
    put(shop, name, text)
    put(shop, "child", f"CREATE MATERIALIZED VIEW child AS SELECT b.id FROM {name} b")
    heard, folder = Heard(), str(shop.folder)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh(heard, strict=False)
        assert {*report.loaded} == {"lines", "cities"}
        assert {*report.waiting} == {"bad", "child"}
        assert expected in report.waiting["bad"]
        assert '"bad"' in report.waiting["child"]
        shop.execute("crm", "UPDATE customer SET city = 'there' WHERE id < 4")
        with pytest.raises(NotLoadedError, match='views "bad", "child"') as caught:
            project.refresh()
        assert expected in str(caught.value)
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
        assert rows_of(project.view("cities")) == shop.recomputed(CITIES)
        assert all(each.ok for each in project.verify())
    assert "bad" in {c.view for c in heard.changes if c.kind == "view_refused"}

    status = call("-p", folder, "status", "--json")
    assert status.exit_code == 1
    views = {view["name"]: view for view in json.loads(status.stdout)["views"]}
    assert expected in views["bad"]["problem"]
    assert views["lines"]["problem"] is None
    assert call("-p", folder, "query", "SELECT count(*) FROM lines").exit_code == 0
    assert call("-p", folder, "explain", "lines").exit_code == 0
    assert call("-p", folder, "publish", "lines", spark=spark).exit_code == 0
    explained = call("-p", folder, "explain", "bad", spark=spark)
    assert explained.exit_code == 2
    assert expected in explained.stderr
    doctor = call("-p", folder, "doctor")
    assert doctor.exit_code == 1, doctor.stdout
    assert "view lines\n" in doctor.stdout
    assert "view bad\n  BAD" in doctor.stdout
    once = call("-p", folder, "run", "--once", spark=spark)
    assert once.exit_code == 1
    assert 'view "bad" is not up to date' in once.stderr

    put(shop, name, "CREATE MATERIALIZED VIEW bad AS SELECT c.id, c.name FROM crm.customer c")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh()
        assert ({*report.loaded}, report.waiting) == ({"bad", "child"}, {})


def test_a_file_that_is_no_text(shop: Shop, spark: SparkSession) -> None:
    (shop.folder / "views" / "bytes.sql").write_bytes(b"\xff\xfe\x00CREATE")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh(strict=False)
    assert {*report.loaded} == {"lines", "cities"}
    assert "cannot be read" in report.waiting["bytes"]


def test_two_files_of_one_name_are_both_refused(shop: Shop, spark: SparkSession) -> None:
    put(shop, "other", "CREATE MATERIALIZED VIEW lines AS SELECT c.id FROM crm.customer c")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh(strict=False)
    assert {*report.loaded} == {"cities"}
    assert "other.sql" in report.waiting["lines"]
    assert "lines.sql" in report.waiting["lines"]


def test_a_circle_refuses_its_views_alone(shop: Shop, spark: SparkSession) -> None:
    put(shop, "one", "CREATE MATERIALIZED VIEW one AS SELECT t.id FROM two t")
    put(shop, "two", "CREATE MATERIALIZED VIEW two AS SELECT o.id FROM one o")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh(strict=False)
    assert {*report.waiting} == {"one", "two"}
    assert '"one" reads "two" reads "one"' in report.waiting["two"]


@pytest.mark.parametrize(
    "text", ["CREATE MATERIALIZED VIEW lines AS SELCT", "half a file", "", LINES[:40]]
)
def test_a_stored_view_goes_on_by_its_stored_sql(
    text: str, shop: Shop, spark: SparkSession
) -> None:
    put(shop, "top", "CREATE MATERIALIZED VIEW top AS SELECT l.name FROM lines l")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    put(shop, "lines", text)
    shop.execute("crm", "UPDATE customer SET name = 'other' WHERE id < 4")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh()
        assert {*report.waiting} == {"lines"}
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
        names = "SELECT name FROM (" + LINES + ")"
        assert rows_of(project.view("top")) == shop.recomputed(names)
        assert all(each.ok for each in project.verify())
        with pytest.raises(viewkeeper.ViewkeeperError, match=r"lines.sql"):
            project.refresh(full_refresh=["lines"])
    assert call("-p", str(shop.folder), "query", "SELECT name FROM lines").exit_code == 0


def test_nothing_is_dropped_while_a_file_may_be_it(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    views = shop.folder / "views"
    (views / "lines.sql").rename(views / "renamed.sql")
    put(shop, "renamed", "-- what was here")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh(strict=False)
        assert {*report.waiting} == {"lines", "renamed"}
        assert "renamed.sql may be the one" in report.waiting["lines"]
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
    (views / "renamed.sql").unlink()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert project.refresh().waiting == {}
        assert {*project.newest_head().shown_views} == {"cities"}


def test_a_stored_view_whose_source_is_gone_stays(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        before = rows_of(project.view("lines"))
    file = shop.folder / "viewkeeper.yml"
    whole = file.read_text()
    file.write_text("".join(x for x in whole.splitlines(True) if "catalogue" not in x))
    shop.execute("crm", "UPDATE customer SET city = 'there', name = 'x' WHERE id < 4")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh()
        assert 'unknown source "catalogue"' in report.waiting["lines"]
        assert rows_of(project.view("lines")) == before
        assert rows_of(project.view("cities")) == shop.recomputed(CITIES)
    file.write_text(whole)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert project.refresh().waiting == {}
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)


def test_an_edit_that_needs_other_rows_is_refused_alone(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    shop.define("cities", CITIES + " AND c.city <> 'x'")
    shop.execute("crm", "UPDATE customer SET city = 'there' WHERE id < 4")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh()
        assert "viewkeeper refresh cities" in report.waiting["cities"]
        assert rows_of(project.view("cities")) == shop.recomputed(CITIES)
        assert all(each.ok for each in project.verify())
        report = project.refresh(full_refresh=["cities"])
        assert ({*report.loaded}, report.waiting) == ({"cities"}, {})
        assert rows_of(project.view("cities")) == shop.recomputed(shop.views["cities"])


def test_if_all_are_refused_that_is_an_error(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    put(shop, "lines", "CREATE MATERIALIZED VIEW lines AS SELCT")
    put(shop, "cities", "CREATE MATERIALIZED VIEW cities AS SELCT")
    once = call("-p", str(shop.folder), "run", "--once", spark=spark)
    assert once.exit_code == 2
    assert "SELCT" in once.stderr
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert {*project.newest_head().shown_views} == {"lines", "cities"}
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
