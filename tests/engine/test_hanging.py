"""A source that hangs keeps nobody waiting but its own views.

The limits of the hanging sources are far longer than anything else here takes. What is counted is
how often the hanging source has come back while views of another one advanced again and again: if
every look waited for it, it would have to come back each time.
"""

from __future__ import annotations

import sqlite3
import threading
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest

import viewkeeper
from tests.engine.by_hand import load_by_hand
from tests.engine.shop import LINES, Shop, rows_of
from tests.engine.test_run import eventually, run_beside
from tests.network import Proxy
from viewkeeper.engine.loop import run_until
from viewkeeper.engine.report import Report, SilentObserver
from viewkeeper.sources.sqlite.source import SqliteSource

VIEWS = {
    "lines": LINES,
    "customers": "SELECT id, name, city FROM crm.customer",
    "products": "SELECT id, title, cents FROM catalogue.product",
}
ADVANCES = 5


def running(project: viewkeeper.Project) -> AbstractContextManager[None]:
    """The project's run without Spark, in a thread."""

    def run(stop: threading.Event) -> None:
        with project.open_maintainer("run", SilentObserver()) as keeper:
            run_until(keeper, Report(), stop)

    return run_beside(run)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path, VIEWS, "freshness: 30ms\n")
    shop.fill()
    return shop


def advance(shop: Shop, project: viewkeeper.Project) -> None:
    """The products change, and their view shows it."""
    shop.execute("catalogue", "UPDATE product SET cents = cents + 1")
    expected = shop.recomputed_without(VIEWS["products"], "crm")
    eventually(lambda: rows_of(project.view("products")) == expected)


def test_a_locked_database_is_waited_for_by_nobody_else(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop.database("crm") as crm:
        crm.execute("PRAGMA journal_mode = DELETE")
    file = shop.folder / "viewkeeper.yml"
    file.write_text(file.read_text().replace("crm.db", "crm.db, busy_seconds: 60"))
    load_by_hand(shop)
    back: list[str] = []
    look = SqliteSource.look_for_transactions

    def counted(self: SqliteSource, after: int) -> Any:
        try:
            return look(self, after)
        finally:
            back.append(self.name)

    monkeypatch.setattr(SqliteSource, "look_for_transactions", counted)
    with viewkeeper.open(shop.folder) as project, running(project):
        advance(shop, project)
        locking = sqlite3.connect(shop.folder / "crm.db", isolation_level=None, timeout=60)
        with closing(locking):
            locking.execute("BEGIN EXCLUSIVE")
            locking.execute("UPDATE customer SET name = 'locked'")
            back.clear()
            for _ in range(ADVANCES):
                advance(shop, project)
            assert back.count("crm") <= 1
            assert back.count("catalogue") >= ADVANCES
            locking.execute("COMMIT")
        for name, sql in VIEWS.items():
            expected = shop.recomputed(sql)
            eventually(lambda name=name, expected=expected: rows_of(project.view(name)) == expected)  # type: ignore[misc]  # defaults bind the loop's values
        assert not project.spark.is_started


def test_a_server_that_never_answers_is_waited_for_by_nobody_else(shop: Shop) -> None:
    """Not even at the start, when its views are not known yet; and stopping does not wait."""
    load_by_hand(shop)
    with Proxy(1) as silent:
        silent.go_silent()
        url = f"postgresql://nobody:secret@127.0.0.1:{silent.port}/none?connect_timeout=120"
        file = shop.folder / "viewkeeper.yml"
        sources = f"sources:\n  pg: {{kind: postgres, url: '{url}'}}\n"
        file.write_text(file.read_text().replace("sources:\n", sources))
        text = "CREATE MATERIALIZED VIEW remote AS SELECT t.id FROM pg.t t"
        (shop.folder / "views" / "remote.sql").write_text(text)
        with viewkeeper.open(shop.folder) as project, running(project):
            for _ in range(ADVANCES):
                advance(shop, project)
            assert silent.waiting == 1, "it is asked once, and not again before it has answered"
        assert silent.waiting == 1
        silent.reset()
    assert not [each for each in threading.enumerate() if each.name == "source crm"]
