"""Corners of following schema changes: each was once wrong.

What is asked of every one: the view is right in the end, nothing else is touched, nothing spins.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import LINES, Shop, rows_of
from viewkeeper.engine.evolution.view_adapter import ViewAdapter
from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.report import SilentObserver
from viewkeeper.errors import HorizonError
from viewkeeper.storage import disk
from viewkeeper.warehouse.metadata.head import NAME, encode_head, read_head

ALL = "SELECT * FROM crm.customer"
ONE = "SELECT c.id, c.name FROM crm.customer c"
JOINED = "SELECT c.name, o.id AS order_id FROM crm.customer c JOIN shop.orders o " + (
    "ON o.customer_id = c.id"
)
KEYED = "views: {named: {algorithm: c_strobe, level: convergence}}\n"


def made(folder: Path, views: dict[str, str], settings: str = "") -> Shop:
    shop = Shop(folder, views, settings)
    shop.fill()
    return shop


def rebuilt(shop: Shop, columns: str, values: str) -> None:
    """Another shape for crm.customer, as tools do it for SQLite."""
    shop.execute(
        "crm",
        f"CREATE TABLE fresh ({columns})",
        f"INSERT INTO fresh SELECT {values} FROM customer",
        "DROP TABLE customer",
        "ALTER TABLE fresh RENAME TO customer",
    )


@pytest.mark.parametrize("with_versions", [True, False])
def test_a_column_that_comes_back_does_not_bring_its_old_values(
    tmp_path: Path, spark: SparkSession, with_versions: bool
) -> None:
    shop = made(tmp_path, {"everything": ALL})
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    if not with_versions:
        # As a warehouse was written before definitions had versions.
        head = read_head(tmp_path / "warehouse")
        bare = {name: replace(view, versions=()) for name, view in head.views.items()}
        disk.replace_file(tmp_path / "warehouse" / NAME, encode_head(replace(head, views=bare)))
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        rebuilt(shop, "id INTEGER PRIMARY KEY, name TEXT", "id, name")
        assert project.refresh().waiting == {}
        shop.execute("crm", "ALTER TABLE customer ADD COLUMN city TEXT")
        assert project.refresh().waiting == {}
        assert rows_of(project.view("everything")) == shop.recomputed(ALL)


def test_a_hidden_key_is_renamed(tmp_path: Path, spark: SparkSession) -> None:
    shop = made(tmp_path, {"named": JOINED}, KEYED)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("crm", "ALTER TABLE customer RENAME COLUMN id TO ident")
        shop.execute("crm", "UPDATE customer SET name = 'q' WHERE ident = 1")
        assert project.refresh().waiting == {}
        assert rows_of(project.view("named")) == shop.recomputed(JOINED.replace("c.id", "c.ident"))


def test_a_key_changes_while_nothing_runs(tmp_path: Path, spark: SparkSession) -> None:
    view = "SELECT k.v, o.id AS order_id FROM crm.k k JOIN shop.orders o ON o.customer_id = k.a"
    shop = made(tmp_path, {"named": view}, KEYED)
    shop.execute(
        "crm",
        "CREATE TABLE k (a INTEGER NOT NULL, b INTEGER NOT NULL, v TEXT)",
        "CREATE UNIQUE INDEX by_a ON k (a)",
        "INSERT INTO k VALUES (1, 1, 'x'), (2, 2, 'y')",
    )
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("crm", "CREATE UNIQUE INDEX by_b ON k (b)", "DROP INDEX by_a")
        assert project.refresh().waiting == {}
        assert rows_of(project.view("named")) == shop.recomputed(view)


SUBSTITUTE = """substitutes:
  - {for: crm.customer, use: catalogue.buyer, columns: {id: number, name: called}, extent: equal}
"""


def test_a_substitute_that_is_away_is_waited_for(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = made(tmp_path, {"one": ONE, "orders": "SELECT id FROM shop.orders"}, SUBSTITUTE)
    shop.execute("catalogue", "CREATE TABLE buyer (number INTEGER PRIMARY KEY, called TEXT)")
    shop.execute("catalogue", "INSERT INTO buyer VALUES (1, 'b')")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("crm", "DROP TABLE customer")
        os.rename(tmp_path / "catalogue.db", tmp_path / "away.db")
        shop.execute("shop", "INSERT INTO orders VALUES (901, 1, '2024-01-01')")
        assert set(project.refresh().waiting) == {"one"}
        decided: list[str] = []
        real = ViewAdapter.meet_schema_changes

        def counted(self: ViewAdapter, name: str, *rest: Any) -> int | None:
            decided.append(name)
            return real(self, name, *rest)

        monkeypatch.setattr(ViewAdapter, "meet_schema_changes", counted)
        with project.open_maintainer("test", SilentObserver()) as maintainer:
            maintainer.start_run()
            for _ in range(20):
                maintainer.see_commits()
                if maintainer.has_views_behind():
                    maintainer.maintain_views()
        assert decided.count("one") < 5, "it does not spin"
        os.rename(tmp_path / "away.db", tmp_path / "catalogue.db")
        assert project.refresh().waiting == {}
        assert rows_of(project.view("one")) == {(1, "b"): 1}


def test_a_source_that_nobody_reads_any_more_is_detached(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = made(tmp_path, {"one": ONE}, SUBSTITUTE)
    shop.execute("catalogue", "CREATE TABLE buyer (number INTEGER PRIMARY KEY, called TEXT)")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("crm", "DROP TABLE customer")
        assert project.refresh().waiting == {}
    with shop.database("crm") as database:
        left = database.execute("SELECT count(*) FROM sqlite_master WHERE name LIKE '_viewk%'")
        assert left.fetchone() == (0,)


def test_a_rename_and_the_sql_are_deployed_together(tmp_path: Path, spark: SparkSession) -> None:
    shop = made(tmp_path, {"one": ONE})
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    shop.execute("crm", "ALTER TABLE customer RENAME COLUMN name TO called")
    shop.execute("crm", "UPDATE customer SET called = 'x' WHERE id = 1")
    now = "SELECT c.id, c.called AS name FROM crm.customer c"
    shop.define("one", now)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        report = project.refresh()
        assert (report.waiting, report.loaded) == ({}, {})
        assert rows_of(project.view("one")) == shop.recomputed(now)


def test_a_stopped_view_does_not_keep_others_from_being_verified(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = made(tmp_path, {"one": ONE, "orders": "SELECT id FROM shop.orders"})
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("crm", "DROP TABLE customer")
        assert set(project.refresh().waiting) == {"one"}
        assert [(each.view, each.ok) for each in project.verify()] == [("orders", True)]
        with pytest.raises(HorizonError, match="has stopped"):
            project.verify(["one"])


def test_what_was_approved_is_not_asked_again_after_a_kill(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(SystemExit):
        pass

    def die(*_: Any) -> None:
        raise Killed

    shop = made(tmp_path, {"one": ONE}, "evolution: {policy: approve}\n")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("crm", "ALTER TABLE customer RENAME COLUMN name TO called")
        project.refresh()
        project.proposals().answer_proposal("one", "approve")
        with monkeypatch.context() as patch:
            patch.setattr(ViewAdapter, "_redefine_view", die)
            with pytest.raises(Killed):
                project.refresh()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert project.refresh().waiting == {}
        assert project.proposals().list_proposals() == []


def test_one_refresh_goes_over_the_change(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that can be maintained before the change come first, and the change all the same."""
    shop = made(tmp_path, {"one": ONE})
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("crm", "UPDATE customer SET name = 'q' WHERE id = 1")
        real, calls = Maintainer.see_commits, list[int]()

        def look(self: Maintainer) -> None:
            real(self)
            calls.append(1)
            if len(calls) == 1:
                rebuilt(shop, "id INTEGER PRIMARY KEY, name TEXT", "id, upper(name)")
                real(self)

        monkeypatch.setattr(Maintainer, "see_commits", look)
        assert project.refresh().waiting == {}
        assert rows_of(project.view("one")) == shop.recomputed(ONE)


def test_lines_follow_a_swap_of_column_names(tmp_path: Path, spark: SparkSession) -> None:
    shop = made(tmp_path, {"lines": LINES})
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        for old, new in (("name", "t"), ("city", "name"), ("t", "city")):
            shop.execute("crm", f"ALTER TABLE customer RENAME COLUMN {old} TO {new}")
        shop.execute("crm", "UPDATE customer SET city = 'swapped' WHERE id = 1")
        assert project.refresh().waiting == {}
        assert rows_of(project.view("lines")) == shop.recomputed(LINES.replace("c.name", "c.city"))
