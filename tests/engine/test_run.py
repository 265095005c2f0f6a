"""The continuous run: views stay fresh until told to stop, and a load keeps nobody waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import LINES, Shop, rows_of
from viewkeeper.engine.load import load_job, loader

CITIES = """SELECT c.city, o.id AS order_id FROM crm.customer c
JOIN shop.orders o ON o.customer_id = c.id"""


@contextmanager
def run_beside(run: Callable[[threading.Event], object]) -> Iterator[None]:
    """What runs until it is told to stop, in a thread; what it raised is raised here."""
    stop, raised = threading.Event(), list[BaseException]()

    def run_in_thread() -> None:
        try:
            run(stop)
        except BaseException as error:
            raised.append(error)
            raise

    thread = threading.Thread(target=run_in_thread)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=120)
    assert not raised
    assert not thread.is_alive()


def running(
    project: viewkeeper.Project, observer: viewkeeper.Observer | None = None
) -> AbstractContextManager[None]:
    """The project's run, in a thread."""
    return run_beside(lambda stop: project.run(observer, stop=stop))


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for something that must come; the limit only ends a run that hangs."""
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    """A shop whose view of cities is loaded, and whose view of lines is new."""
    shop = Shop(tmp_path, {"cities": CITIES}, "freshness: 50ms\n")
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()
    shop.define("lines", LINES)
    return shop


class Gate:
    """A load that waits until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

        def slow(*arguments: Any) -> load_job.LoadedTables:
            self.reached.set()
            self.open.wait(timeout=120)
            return load_job.load_view(*arguments)

        monkeypatch.setattr(loader, "load_view", slow)


def test_views_stay_fresh_while_another_is_loaded(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    project = viewkeeper.open(shop.folder, spark=spark)
    with running(project):
        assert gate.reached.wait(timeout=120)
        for number in range(3):
            shop.execute("crm", f"UPDATE customer SET city = 'c{number}' WHERE id < 4")
            shop.execute("shop", f"INSERT INTO item VALUES ({number}, 1, 5)")
            eventually(lambda: rows_of(project.view("cities")) == shop.recomputed(CITIES))
        assert "lines" not in project.newest_head().views
        gate.open.set()
        eventually(lambda: "lines" in project.newest_head().views)
        eventually(lambda: rows_of(project.view("lines")) == shop.recomputed(LINES))
    project.close()


def test_a_load_that_was_stopped_is_begun_again(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        with running(project):
            assert gate.reached.wait(timeout=120)
            threading.Timer(0.2, gate.open.set).start()
        assert set(project.newest_head().views) == {"cities"}
        shop.execute("crm", "UPDATE customer SET name = 'later' WHERE id = 2")
        assert list(project.refresh().loaded) == ["lines"]
        assert rows_of(project.view("lines")) == shop.recomputed(LINES)
