"""Schema changes in the middle of maintenance: the query breaks, nothing of it is kept.

The change is committed after a batch was formed and before its first question is asked, which is
the moment that no scan of what waits can see.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import Shop, rows_of
from viewkeeper.engine.batch.batch_runner import BatchRunner
from viewkeeper.engine.capture.lookout import LocalLookout
from viewkeeper.engine.evolution.schema_decision import PendingDecisions, SchemaDecider
from viewkeeper.engine.evolution.view_adapter import ViewAdapter
from viewkeeper.engine.load.load_job import load_view
from viewkeeper.engine.load.loader import Loader
from viewkeeper.engine.report import SilentObserver

NAMED = "SELECT c.id, c.name, o.id AS order_id FROM crm.customer c JOIN shop.orders o " + (
    "ON o.customer_id = c.id"
)
DETECTIONS = ("pessimistic", "optimistic")


@pytest.fixture(params=DETECTIONS)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    settings = f"evolution: {{detection: {request.param}}}\n"
    shop = Shop(tmp_path, {"named": NAMED}, settings)
    shop.execute("crm", "CREATE TABLE spare (id INTEGER PRIMARY KEY, name TEXT, city TEXT)")
    shop.execute("crm", "INSERT INTO spare VALUES (1, 'spare', 's'), (2, 'spare', 's')")
    shop.fill()
    return shop


def once(
    patch: pytest.MonkeyPatch, owner: type[Any], method: str, action: Callable[[], None]
) -> list[str]:
    """Do something once, just before a method does its work; says when it was called."""
    real, calls = getattr(owner, method), list[str]()

    def hooked(self: Any, *args: Any, **options: Any) -> Any:
        calls.append(method)
        if len(calls) == 1:
            action()
        return real(self, *args, **options)

    patch.setattr(owner, method, hooked)
    return calls


def recreate(shop: Shop) -> None:
    shop.execute(
        "crm",
        "DROP TABLE customer",
        "CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, city TEXT)",
        "INSERT INTO customer VALUES (1, 'again', 'x'), (3, 'again', 'y')",
    )


def swap(shop: Shop) -> None:
    shop.execute(
        "crm",
        "ALTER TABLE customer RENAME TO passing",
        "ALTER TABLE spare RENAME TO customer",
        "ALTER TABLE passing RENAME TO spare",
    )


def rename(shop: Shop) -> None:
    shop.execute("crm", "ALTER TABLE customer RENAME COLUMN name TO called")


@pytest.mark.parametrize(
    ("change", "now"),
    [
        pytest.param(recreate, NAMED, id="drop and recreate"),
        pytest.param(swap, NAMED.replace("crm.customer", "crm.spare"), id="swap names"),
        pytest.param(rename, NAMED.replace("c.name", "c.called"), id="rename"),
    ],
)
def test_a_batch_is_broken_and_done_again(
    shop: Shop,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Shop], None],
    now: str,
) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("shop", "UPDATE orders SET customer_id = 1 WHERE id = 3")
        with monkeypatch.context() as patch:
            calls = once(patch, BatchRunner, "_sweep_members", lambda: change(shop))
            assert project.refresh().waiting == {}
        assert calls, "a batch was swept"
        assert rows_of(project.view("named")) == shop.recomputed(now)
        shop.execute("shop", "UPDATE orders SET customer_id = 3 WHERE id = 4")
        assert project.refresh().waiting == {}
        assert rows_of(project.view("named")) == shop.recomputed(now)
        assert all(each.ok for each in project.verify())


def test_a_repair_is_broken_by_another_change(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("shop", "UPDATE orders SET customer_id = 1 WHERE id = 3")
        recreate(shop)

        def again() -> None:
            recreate(shop)
            shop.execute("crm", "UPDATE customer SET name = 'third' WHERE id = 1")
            shop.execute("shop", "UPDATE orders SET customer_id = 1 WHERE id = 5")

        with monkeypatch.context() as patch:
            calls = once(patch, Loader, "begin_difference", again)
            assert project.refresh().waiting == {}
        assert len(calls) >= 2, "the first repair broke"
        assert rows_of(project.view("named")) == shop.recomputed(NAMED)


def rename_column(shop: Shop, source: str, table: str, was: str, now: str) -> None:
    shop.execute(source, f"ALTER TABLE {table} RENAME COLUMN {was} TO {now}")


def exchange(shop: Shop) -> None:
    """Two columns exchange their names."""
    rename_column(shop, "crm", "customer", "called", "passing")
    rename_column(shop, "crm", "customer", "city", "called")
    rename_column(shop, "crm", "customer", "passing", "city")


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (SchemaDecider, "_make_proposal"),
        (ViewAdapter, "_follow_proposal"),
        (ViewAdapter, "_redefine_view"),
    ],
)
@pytest.mark.parametrize(
    ("change", "column"),
    [
        pytest.param(
            lambda shop: rename_column(shop, "crm", "customer", "called", "named"), "named"
        ),
        pytest.param(exchange, "city"),
    ],
    ids=["another name", "names exchanged"],
)
def test_names_change_while_it_is_decided_what_a_view_becomes(
    shop: Shop,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    owner: type[Any],
    method: str,
    change: Callable[[Shop], None],
    column: str,
) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        shop.execute("shop", "UPDATE orders SET customer_id = 1 WHERE id = 3")
        rename(shop)
        with monkeypatch.context() as patch:
            calls = once(patch, owner, method, lambda: change(shop))
            assert project.refresh().waiting == {}
        assert calls
        shop.execute("crm", f"UPDATE customer SET {column} = 'z' WHERE id = 2")
        assert project.refresh().waiting == {}
        assert rows_of(project.view("named")) == shop.recomputed(
            NAMED.replace("c.name", f"c.{column}")
        )


def test_what_a_view_is_to_be_loaded_from_is_renamed_before_it_is_followed(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        recreate(shop)
        rename_column(shop, "shop", "orders", "customer_id", "buyer")
        with monkeypatch.context() as patch:
            calls = once(
                patch,
                LocalLookout,
                "extend_capture",
                lambda: rename_column(shop, "shop", "orders", "buyer", "payer"),
            )
            assert project.refresh().waiting == {}
        assert len(calls) == 2, "the first could not be followed"
        now = NAMED.replace("o.customer_id", "o.payer")
        assert rows_of(project.view("named")) == shop.recomputed(now)


def test_a_view_that_is_being_repaired_waits_without_being_tried_again_and_again(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def waits(*args: Any) -> Any:
        target = args[3]
        assert not target.stored or go_on.wait(60)
        return load_view(*args)

    monkeypatch.setattr("viewkeeper.engine.load.loader.load_view", waits)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
        with project.open_maintainer("test", SilentObserver()) as maintainer:
            maintainer.start_run()
            recreate(shop)
            maintainer.see_commits()
            maintainer.maintain_views()
            shop.execute("shop", "UPDATE orders SET customer_id = 1 WHERE id = 3")
            maintainer.see_commits()
            maintainer.maintain_views()
            assert maintainer.loader.is_loading("named")
            assert not maintainer.has_views_behind()
            go_on.set()
            maintainer.finish_loads()
        assert project.refresh().waiting == {}
        assert rows_of(project.view("named")) == shop.recomputed(NAMED)


def test_what_a_killed_run_had_decided_is_decided_again(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(SystemExit):
        pass

    def die() -> None:
        raise Killed

    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    shop.execute("shop", "UPDATE orders SET customer_id = 1 WHERE id = 3")
    rename(shop)
    for part, method in ((ViewAdapter, "_redefine_view"), (PendingDecisions, "forget_view")):
        with (
            viewkeeper.open(shop.folder, spark=spark) as project,
            monkeypatch.context() as patch,
        ):
            once(patch, part, method, die)
            with pytest.raises(Killed):
                project.refresh()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert project.refresh().waiting == {}
        now = NAMED.replace("c.name", "c.called")
        assert rows_of(project.view("named")) == shop.recomputed(now)
        assert len(project.view("named").head.versions) == 2, "each change is followed once"
