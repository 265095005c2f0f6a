"""A project from its first load to its last state, in one process, against SQLite's own answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import LINES, Shop, rows_of
from viewkeeper.engine import upkeep
from viewkeeper.engine.report import SilentObserver
from viewkeeper.errors import GapError, HorizonError, LockedError, ProjectError

CITIES = (
    "SELECT c.city, o.id AS order_id FROM crm.customer c, shop.orders o WHERE o.customer_id = c.id"
)
LOUD = (
    "SELECT replace(upper(p.title), '#', '') AS title, i.quantity FROM shop.item i "
    "JOIN catalogue.product p ON p.id = i.product_id WHERE length(replace(p.title, '#', '')) > 1"
)
PAIRS = (
    "SELECT a.id AS one, b.id AS other FROM crm.customer a JOIN crm.customer b ON a.city = b.city"
)

CHANGES = [
    ("crm", "UPDATE customer SET name = name || '!' WHERE id < 3"),
    ("shop", "DELETE FROM item WHERE order_id = 5"),
    ("shop", "INSERT INTO orders VALUES (100, 1, '2024-02-01')"),
    ("shop", "INSERT INTO item VALUES (100, 2, 7), (100, 2, 7), (100, NULL, 1)"),
    ("catalogue", "UPDATE product SET cents = NULL WHERE id = 2"),
    ("catalogue", "INSERT OR REPLACE INTO product VALUES (3, 'other', 33)"),
    ("crm", "UPDATE customer SET id = 77, city = NULL WHERE id = 4"),
    ("shop", "UPDATE orders SET customer_id = 77 WHERE id % 7 = 0"),
    ("crm", "DELETE FROM customer WHERE id = 1"),
]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path, {"lines": LINES, "cities": CITIES, "loud": LOUD, "pairs": PAIRS})
    shop.fill()
    return shop


def test_every_view_follows_its_sources(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh()
        assert set(report.loaded) == set(shop.views)
        states = {}
        for source, statement in CHANGES:
            shop.execute(source, statement)
            report = project.refresh()
            assert (report.transactions, report.waiting) == (1, {})
            for name, sql in shop.views.items():
                view = project.view(name)
                assert rows_of(view) == shop.recomputed(sql), f"{name} after {statement}"
                states[name, view.ts] = shop.recomputed(sql)
        for (name, ts), state in states.items():
            assert rows_of(project.view(name), as_of=ts) == state
        assert project.refresh().batches == 0, "nothing happened, nothing is done"


def test_refreshing_again_and_again_keeps_files_few(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MERGE_FILES", 4)
    shop = Shop(tmp_path, {"cities": CITIES})
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        for number in range(100, 112):
            shop.execute("shop", f"INSERT INTO orders VALUES ({number}, 1, '2024-02-01')")
            project.refresh()
            assert project.view("cities").head.files < 5
        first, last = project.view("cities").head.created_ts, project.view("cities").ts
        counts = [len(rows_of(project.view("cities"), as_of=ts)) for ts in (first, last)]
        assert counts[1] == counts[0] + 12, "states from before a merge are still there"
        assert rows_of(project.view("cities")) == shop.recomputed(CITIES)


def test_inline_and_spark_give_the_same(tmp_path: Path, spark: SparkSession) -> None:
    results = {}
    for where, rows in (("inline", 1000), ("spark", 0)):
        (tmp_path / where).mkdir()
        shop = Shop(tmp_path / where, {"lines": LINES}, f"batch: {{inline_rows: {rows}}}\n")
        shop.fill()
        with viewkeeper.open(shop.folder, spark=spark) as project:
            project.refresh()
            for source, statement in CHANGES:
                shop.execute(source, statement)
            report = project.refresh()
            assert report.batches_on_spark == (where == "spark")
            results[where] = rows_of(project.view("lines"))
            assert results[where] == shop.recomputed(LINES)
    assert results["inline"] == results["spark"]


def test_data_frames_and_changes(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        view = project.view("cities")
        loaded = view.ts
        shop.execute("shop", "DELETE FROM orders WHERE id = 3")
        shop.execute("crm", "UPDATE customer SET city = 'new' WHERE id = 2")
        project.refresh()
        assert view.df().count() == sum(rows_of(view).values())
        assert view.df(as_of=loaded).count() == 40
        changes = view.changes(since=loaded).collect()
        assert sum(row["_count"] for row in changes) == -1
        assert {row["_ts"] for row in changes} == {view.ts - 1, view.ts}
        assert view.changes(0).count() == len(changes) + len(rows_of(view, as_of=loaded))
        assert set(view.positions()) == {"crm", "shop"}
        with pytest.raises(HorizonError, match="no state as of"):
            view.df(as_of=view.ts + 1)


def test_a_view_added_later_joins_in(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    names = "SELECT c.name, o.placed FROM crm.customer c JOIN shop.orders o ON o.customer_id = c.id"
    shop.define("names", names)
    shop.execute("shop", "INSERT INTO orders VALUES (200, 2, '2024-03-01')")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert list(project.refresh().loaded) == ["names"]
        shop.execute("crm", "UPDATE customer SET name = 'x' WHERE id = 2")
        project.refresh()
        placed = (
            "SELECT c.name, date(o.placed) FROM crm.customer c JOIN shop.orders o "
            "ON o.customer_id = c.id"
        )
        found = {(n, str(d)): k for (n, d), k in rows_of(project.view("names")).items()}
        assert found == dict(shop.recomputed(placed))
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)


def test_a_changed_definition_is_loaded_again_on_request(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    shop.define("cities", CITIES + " AND c.city <> 'x'")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        waiting = project.refresh().waiting
        assert {*waiting} == {"cities"}
        assert "its SQL is not the one" in waiting["cities"]
        assert "viewkeeper refresh cities" in waiting["cities"]
        with pytest.raises(ProjectError, match='there is no view "citis"'):
            project.refresh(full_refresh=["citis"])
        report = project.refresh(full_refresh=["cities"])
        assert list(report.loaded) == ["cities"]
        assert rows_of(project.view("cities")) == shop.recomputed(shop.views["cities"])


def test_a_view_waits_alone_for_its_source(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        hidden = shop.folder / "catalogue.db"
        hidden.rename(shop.folder / "hidden.db")
        shop.execute("crm", "UPDATE customer SET city = 'far' WHERE id = 2")
        shop.execute("shop", "DELETE FROM orders WHERE id = 9")
        report = project.refresh()
        assert set(report.waiting) == {"lines", "loud"}
        assert 'source "catalogue"' in report.waiting["lines"]
        assert rows_of(project.view("cities")) == shop.recomputed_without(CITIES, "catalogue")
        (shop.folder / "hidden.db").rename(hidden)
        shop.execute("catalogue", "UPDATE product SET cents = 1 WHERE id = 1")
        assert project.refresh().waiting == {}
        for name, sql in shop.views.items():
            assert rows_of(project.view(name)) == shop.recomputed(sql), name


def test_a_value_that_does_not_fit_stops_its_views_only(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("catalogue", "UPDATE product SET cents = 'cheap' WHERE id = 1")
        shop.execute("crm", "UPDATE customer SET city = 'far' WHERE id = 2")
        report = project.refresh()
        assert set(report.waiting) == {"lines"}, "loud does not read the price"
        assert "cheap" in report.waiting["lines"]
        assert rows_of(project.view("cities")) == shop.recomputed(CITIES)
        assert rows_of(project.view("loud")) == shop.recomputed(LOUD)


def test_a_source_that_lost_its_log_stops_its_views_until_they_are_loaded_again(
    shop: Shop, spark: SparkSession
) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        shop.execute("crm", "UPDATE customer SET name = name || '?'")
        project.refresh()
        shop.execute("crm", "UPDATE customer SET name = name || '!'")
        project.refresh()
        connections = project.open_connections()
        connections.get_source("crm").detach_source()
        connections.close()
        shop.execute("crm", "UPDATE customer SET city = 'unseen' WHERE id = 2")
        shop.execute("shop", "DELETE FROM item WHERE order_id = 7")
        report = project.refresh()
        concerned = ["cities", "lines", "pairs"]
        assert sorted(report.waiting) == concerned
        assert "`viewkeeper refresh cities lines pairs`" in report.waiting["lines"]
        assert rows_of(project.view("loud")) == shop.recomputed(LOUD)
        report = project.refresh(full_refresh=concerned)
        assert (sorted(report.loaded), report.waiting) == (concerned, {})
        shop.execute("crm", "UPDATE customer SET city = 'seen' WHERE id = 3")
        assert project.refresh().waiting == {}
        for name, sql in shop.views.items():
            assert rows_of(project.view(name)) == shop.recomputed(sql), name


def test_one_writer(shop: Shop, spark: SparkSession) -> None:
    with (
        viewkeeper.open(shop.folder, spark=spark) as project,
        project.open_maintainer("run", SilentObserver()),
        pytest.raises(LockedError, match="another process maintains it"),
    ):
        project.refresh()


def test_verify_finds_what_is_wrong(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        for source, statement in CHANGES:
            shop.execute(source, statement)
            project.refresh()
        # Committed, not maintained yet: verification must take it back.
        shop.execute("shop", "DELETE FROM item WHERE order_id < 9")
        assert all(verdict.ok for verdict in project.verify(["lines", "loud"]))
        [every] = project.verify(["lines"], every_state=True)
        assert (every.ok, every.states) == (True, len(CHANGES) + 1)
        with pytest.raises(HorizonError, match="cannot be verified"):
            project.verify(["lines"], every_state=True, since=-1)
        # A change that no trigger saw is a difference that verification must find.
        with shop.database("crm") as crm:
            found = crm.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
            triggers = found.fetchall()
            for name, _ in triggers:
                crm.execute(f'DROP TRIGGER "{name}"')
            crm.execute("UPDATE customer SET name = 'unseen' WHERE id = 2")
        with pytest.raises(GapError, match="capture is no longer complete"):
            project.verify(["lines"])
        with shop.database("crm") as crm:
            for _, sql in triggers:
                crm.execute(sql)
        [wrong] = project.verify(["lines"])
        assert not wrong.ok
        signs = {row["_count"] > 0 for row in wrong.differences.to_pylist()}
        assert signs == {True, False}, "both ways"
