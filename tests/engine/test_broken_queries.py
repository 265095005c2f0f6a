"""Schema changes in the middle of maintenance: the query breaks, nothing of it is kept.

The change is committed after a batch was formed and before its first question is asked, which is
the moment that no scan of what waits can see.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import Shop, rows_of
from viewkeeper.engine.adapting import Adapting
from viewkeeper.engine.batches import Batches
from viewkeeper.engine.loading import Loader

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
            calls = once(patch, Batches, "_sweep", lambda: change(shop))
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


def test_what_a_killed_run_had_decided_is_decided_again(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    shop.execute("shop", "UPDATE orders SET customer_id = 1 WHERE id = 3")
    rename(shop)
    for method in ("_redefine", "_forget"):
        with (
            viewkeeper.open(shop.folder, spark=spark) as project,
            monkeypatch.context() as patch,
        ):
            once(patch, Adapting, method, die)
            with pytest.raises(Killed):
                project.refresh()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert project.refresh().waiting == {}
        now = NAMED.replace("c.name", "c.called")
        assert rows_of(project.view("named")) == shop.recomputed(now)
        assert len(project.view("named").head.versions) == 2, "each change is followed once"
