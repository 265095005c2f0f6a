"""A view that is loaded again shows its old state until the new one is there, whatever happens.

A reader polls all the time and must find the old rows or the new ones, never none and never others.
What SQLite computes from the same databases is what must be there in the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.borrowed_spark import gateway_environment
from tests.engine.running_project import running, wait_until
from tests.engine.shop import LINES, Shop, rows_of
from tests.faults.deaths import DIED, REFRESH_STEPS, step
from tests.samples import keep_some
from viewkeeper.engine.load import load_job, loader
from viewkeeper.engine.operations.project_status import gather_status
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import Report, SilentObserver
from viewkeeper.engine.view import View
from viewkeeper.errors import ExpressionError, SourceAwayError, ViewkeeperError
from viewkeeper.warehouse.metadata.head import read_head

Rows = Counter[tuple[Any, ...]]

FEW = "SELECT c.id, c.city FROM crm.customer c WHERE c.id < 3"
MORE = FEW.replace("< 3", "< 6")
CITIES = "SELECT city, count(*) AS n FROM few GROUP BY city"
SECONDS = 120.0


class Reader:
    """Reads a view again and again, and keeps every state that it has seen."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.seen: list[Rows] = []
        self.errors: list[ViewkeeperError] = []

    def _read(self) -> None:
        while not self._stop.wait(0.005):
            try:
                rows = rows_of(self._view)
            except ViewkeeperError as error:
                self.errors.append(error)
                continue
            if not self.seen or self.seen[-1] != rows:
                self.seen.append(rows)

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join(SECONDS)
            assert not self.errors, self.errors[0]
            assert self.seen


class LoadEnds(SilentObserver):
    """Keeps which loads have ended, one after the other."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        self.names.append(view)


def loaded_shop(folder: Path, spark: SparkSession, views: Mapping[str, str]) -> Shop:
    """A shop whose views are loaded."""
    shop = Shop(folder, views)
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        assert not project.refresh().waiting
    return shop


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    return loaded_shop(tmp_path, spark, {"few": FEW, "lines": LINES})


@contextmanager
def held_loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, Any]]:
    """Loads that begin, and wait until they may end."""
    begun, may_end, load_view = threading.Event(), threading.Event(), load_job.load_view

    def load(*args: Any) -> Any:
        begun.set()
        assert may_end.wait(SECONDS)
        return load_view(*args)

    monkeypatch.setattr(loader, "load_view", load)
    try:
        yield begun, may_end
    finally:
        may_end.set()


def refresh_aside(project: Project, *views: str) -> tuple[threading.Thread, list[Report]]:
    reports: list[Report] = []
    thread = threading.Thread(target=lambda: reports.append(project.refresh(full_refresh=views)))
    thread.start()
    return thread, reports


def test_readers_see_the_old_state_and_then_the_new_one(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = shop.recomputed(FEW)
    shop.define("few", MORE)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        with Reader(project.view("few")).reading() as reader, held_loads(monkeypatch) as held:
            thread, reports = refresh_aside(project, "few")
            assert held[0].wait(SECONDS)
            assert rows_of(project.view("few")) == old
            found = {v.name: v for v in gather_status(project.settings, 0.0).views}
            assert "being loaded again" in (found["few"].problem or "")
            assert found["lines"].problem is None
            held[1].set()
            thread.join(SECONDS)
        assert reports[0].waiting == {}
        assert list(reports[0].loaded) == ["few"]
        assert reader.seen[0] == old
        assert reader.seen[-1] in (old, shop.recomputed(MORE))
        assert len(reader.seen) <= 2
        assert rows_of(project.view("few")) == shop.recomputed(MORE)
        assert [v.causes for v in project.view("few").head.versions] == [(), ("loaded again",)]
        shop.execute("crm", "UPDATE customer SET city = 'q' WHERE id < 5")
        assert not project.refresh().waiting
        assert rows_of(project.view("few")) == shop.recomputed(MORE)
        found = {v.name: v for v in gather_status(project.settings, 0.0).views}
        assert found["few"].problem is None


def test_the_others_go_on_meanwhile(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        held_loads(monkeypatch) as (begun, may_end),
        running(shop.folder, spark, ("few",)) as project,
    ):
        assert begun.wait(SECONDS)
        old = rows_of(project.view("few"))
        shop.execute("crm", "UPDATE customer SET city = 'q', name = 'q' WHERE id < 5")
        wait_until(lambda: rows_of(project.view("lines")) == shop.recomputed(LINES))
        assert rows_of(project.view("few")) == old
        may_end.set()
        wait_until(lambda: rows_of(project.view("few")) == shop.recomputed(FEW))


@pytest.mark.parametrize(
    "error", [ExpressionError("no value"), SourceAwayError("crm", "the network is down")], ids=str
)
def test_a_load_that_fails_leaves_the_old_state(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, error: ViewkeeperError
) -> None:
    old, load_view = shop.recomputed(FEW), load_job.load_view
    shop.define("few", MORE)

    def fail(*args: Any) -> Any:
        raise error

    with viewkeeper.open(shop.folder, spark=spark) as project:
        monkeypatch.setattr(loader, "load_view", fail)
        report = project.refresh(full_refresh=["few"])
        assert error.message in report.waiting["few"]
        assert "it shows its state of ts" in report.waiting["few"]
        assert rows_of(project.view("few")) == old
        monkeypatch.setattr(loader, "load_view", load_view)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        # It is still wanted, though nobody asks for it again.
        assert list(project.refresh().loaded) == ["few"]
        assert rows_of(project.view("few")) == shop.recomputed(MORE)


def test_what_is_refused_changes_nothing(shop: Shop, spark: SparkSession) -> None:
    shop.define("few", "SELECT c.nothing FROM crm.customer c")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        with pytest.raises(ViewkeeperError, match="nothing"):
            project.refresh(full_refresh=["few"])
        assert rows_of(project.view("few")) == shop.recomputed(FEW)
    assert read_head(shop.folder / "warehouse").refreshes == ()


REQUEST, SWAP = 1, 2
"""The first record of such a refresh is the request, the second the swap."""

KILLS = [
    *((name, 1) for name in REFRESH_STEPS),
    ("log entry", 1),
    *((name, k) for name in ("record", "head") for k in (REQUEST, SWAP)),
]
BOTH = [(*kill, side) for kill in KILLS for side in ("before", "after")]
SIDES = keep_some(BOTH, range(1, len(BOTH), 3))


@pytest.mark.parametrize(("name", "k", "side"), SIDES)
def test_killed_at_every_step_there_is_the_old_state_or_the_new_one(
    shop: Shop, spark: SparkSession, name: str, k: int, side: str
) -> None:
    old, root = shop.recomputed(FEW), shop.folder / "warehouse"
    shop.define("few", MORE)
    new = shop.recomputed(MORE)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        with Reader(project.view("few")).reading() as reader:
            assert refresh_until(shop, spark, step(name, k, side), "few"), name
        assert all(rows in (old, new) for rows in reader.seen)
        shown = rows_of(project.view("few"))
        assert shown in (old, new)
        assert not (read_head(root).refreshes and shown == new)
    is_asked = (name, k, side) != ("record", REQUEST, "before")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        with Reader(project.view("few")).reading() as reader:
            report = project.refresh(full_refresh=[] if is_asked else ["few"])
        assert not report.waiting, report.waiting
        assert all(rows in (old, new) for rows in reader.seen)
        assert rows_of(project.view("few")) == new
        shop.execute("crm", "UPDATE customer SET city = 'q' WHERE id < 5")
        assert not project.refresh().waiting
        assert rows_of(project.view("few")) == shop.recomputed(MORE)
    assert read_head(root).refreshes == ()


def refresh_until(shop: Shop, spark: SparkSession, at: str, *views: str) -> bool:
    """Load views again in another process; whether it died at a step."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.killed_refresh", str(shop.folder), at, *views],
        env={**os.environ, **gateway_environment(spark)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert DIED in done.stdout or "survived" in done.stdout, done.stderr
    return DIED in done.stdout


def test_children_never_mix_the_old_parent_with_the_new_one(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, {"few": FEW, "cities": CITIES})
    shop.fill()
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh()

    def of_cities(parent: str) -> Rows:
        return shop.recomputed(CITIES.replace("FROM few", f"FROM ({parent}) AS few"))

    shop.define("few", MORE)
    old, new = of_cities(FEW), of_cities(MORE)
    with viewkeeper.open(shop.folder, spark=spark) as project:
        with Reader(project.view("cities")).reading() as reader:
            assert not project.refresh(full_refresh=["few"]).waiting
        assert all(rows in (old, new) for rows in reader.seen)
        assert rows_of(project.view("cities")) == new
    shop.define("few", FEW)
    shop.define("cities", CITIES.replace("count(*)", "count(*) + 1"))
    with viewkeeper.open(shop.folder, spark=spark) as project:
        ends = LoadEnds()
        assert not project.refresh(ends, full_refresh=["few", "cities"]).waiting
        assert ends.names == ["few", "cities"]
        expected = Counter({(city, n + 1): k for (city, n), k in of_cities(FEW).items()})
        assert rows_of(project.view("cities")) == expected


def test_a_source_that_has_lost_changes_is_read_again_while_readers_go_on(
    shop: Shop, spark: SparkSession
) -> None:
    """What is stored does not hold the source where it was left."""
    with shop.database("crm") as database:
        database.execute("UPDATE _viewkeeper_database SET trimmed = 1000000")
    shop.execute("crm", "UPDATE customer SET city = 'q' WHERE id < 5")
    with viewkeeper.open(shop.folder, spark=spark) as project:
        waiting = project.refresh().waiting
        assert sorted(waiting) == ["few", "lines"]
        with Reader(project.view("few")).reading():
            assert not project.refresh(full_refresh=["few", "lines"]).waiting
        assert rows_of(project.view("few")) == shop.recomputed(FEW)


def test_a_fulfilled_request_is_over(shop: Shop, spark: SparkSession) -> None:
    with viewkeeper.open(shop.folder, spark=spark) as project:
        project.refresh(full_refresh=["few"])
        tables = {view.table for view in project.newest_head().views.values()}
        assert project.newest_head().refreshes == ()
        assert project.refresh().loaded == {}
        assert {view.table for view in project.newest_head().views.values()} == tables
