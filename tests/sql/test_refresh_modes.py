"""Views that are computed again: announced, as one state, and only when something has changed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sql.clock_project import ClockProject
from viewkeeper.engine.operations.project_status import gather_status
from viewkeeper.engine.operations.view_explanation import explain_view
from viewkeeper.engine.report import SilentObserver
from viewkeeper.errors import NotLoadedError, ProjectError

VIEWS = {
    "plain": "SELECT o.id, c.name FROM shop.orders o JOIN shop.customers c "
    "ON c.customer = o.customer",
    "apart": "SELECT c.name, o.id FROM shop.customers c LEFT JOIN shop.orders o "
    "ON o.customer > c.customer",
    "kept": "SELECT o.customer, count(*) AS n FROM shop.orders o GROUP BY o.customer",
    "child": "SELECT a.name, count(a.id) AS n FROM apart a GROUP BY a.name",
}
MODES = "freshness: 0\nviews:\n  plain: {refresh: full}\n  apart: {refresh: auto}\n"


def make_project(folder: Path, spark: SparkSession, modes: str = MODES) -> ClockProject:
    project = ClockProject(folder, VIEWS, spark, modes)
    project.commit("INSERT INTO orders VALUES (1, 1, NULL, NULL, 3), (2, 2, NULL, NULL, 4)")
    return project


def heads_of(project: ClockProject) -> dict[str, tuple[int, int]]:
    with project.open_project() as opened:
        views = opened.newest_head().views
        return {name: (views[name].ts, views[name].exact_ts) for name in VIEWS}


def rows_of(project: ClockProject, name: str) -> list[tuple[object, ...]]:
    with project.open_project() as opened:
        return sorted(tuple(row.values()) for row in opened.view(name).arrow().to_pylist())


def refresh(project: ClockProject) -> None:
    with project.open_project() as opened:
        report = opened.refresh(project.observer)
        assert not report.waiting
    project.check_troubles()


def test_views_are_computed_again_when_something_has_changed(
    memory: Path, spark: SparkSession
) -> None:
    project = make_project(memory, spark)
    project.load_views()
    loaded = heads_of(project)
    assert rows_of(project, "plain") == [(1, "ann"), (2, "bob")]
    assert rows_of(project, "apart") == [("ann", 2), ("bob", None)]
    # Nothing has changed: nothing is computed.
    refresh(project)
    assert heads_of(project) == loaded
    project.commit("INSERT INTO orders VALUES (3, 3, NULL, NULL, 1)")
    project.commit("UPDATE customers SET name = 'bert' WHERE customer = 2")
    refresh(project)
    heads = heads_of(project)
    assert len({ts for ts, _ in heads.values()}) == 1
    newest = heads["kept"][0]
    assert heads["plain"] == heads["apart"] == (newest, newest)
    assert heads["kept"][1] == 0
    assert rows_of(project, "plain") == [(1, "ann"), (2, "bert")]
    assert rows_of(project, "apart") == [("ann", 2), ("ann", 3), ("bert", 3)]
    assert rows_of(project, "child") == [("ann", 2), ("bert", 1)]
    with project.open_project() as opened:
        assert all(each.ok for each in opened.verify())
        # The state before is still there: readers of the past see it.
        assert opened.view("plain").arrow(as_of=loaded["plain"][0]).num_rows == 2
        status = {view.name: view.recomputed for view in gather_status(opened.settings, 0).views}
        assert status["plain"] == "refresh: full"
        assert "an outer join without an equality" in (status["apart"] or "")
        assert status["kept"] is None
        versions = opened.newest_head().views["plain"].versions
        assert len(versions) == 1, "a computation is no new definition"
        connections = opened.open_connections()
        found = explain_view(
            opened.catalogue.bind_view("apart", connections),
            connections,
            opened.settings.algorithm,
        )
        assert not found.incremental
        assert "strong" in found.level
        assert any("computed again by Spark" in each for each in found.warnings)
        connections.close()


def test_what_cannot_be_maintained_is_refused_by_default(memory: Path, spark: SparkSession) -> None:
    project = make_project(memory, spark, "freshness: 0\n")
    with (
        project.open_project() as opened,
        pytest.raises(NotLoadedError, match="an outer join without an equality"),
    ):
        opened.refresh()


def test_another_mode_needs_another_load(memory: Path, spark: SparkSession) -> None:
    project = ClockProject(memory, {"plain": VIEWS["plain"]}, spark)
    project.load_views()
    file = memory / "viewkeeper.yml"
    file.write_text(file.read_text() + "refresh: full\n")
    with project.open_project() as opened, pytest.raises(ProjectError, match='is "full" now'):
        opened.refresh()
    with project.open_project() as opened:
        assert not opened.refresh(full_refresh=["plain"]).waiting
    assert len(rows_of(project, "plain")) == 0


class Announcements(SilentObserver):
    """What is said of views while they are run."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def on_schema_change(self, view: str, what: str) -> None:
        self.said.append(f"{view}: {what}")


def test_a_run_says_when_it_computes_again(memory: Path, spark: SparkSession) -> None:
    views = {name: VIEWS[name] for name in ("plain", "kept")}
    modes = "freshness: 0\nviews:\n  plain: {refresh: full}\n"
    project = ClockProject(memory, views, spark, modes)
    project.commit("INSERT INTO orders VALUES (1, 1, NULL, NULL, 3)")
    project.load_views()
    told, stop = Announcements(), threading.Event()
    with project.open_project() as opened:
        running = threading.Thread(target=opened.run, args=(told, stop))
        running.start()
        project.database.execute("DELETE FROM orders")
        end = time.monotonic() + 300
        while time.monotonic() < end and opened.view("plain").head.rows:
            time.sleep(0.05)
        assert opened.view("plain").head.rows == 0
        time.sleep(0.3)
        stop.set()
        running.join()
    assert told.said == ["plain: recomputed: computed again: refresh: full"]
