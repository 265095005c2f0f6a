"""States that want attention are found by comparing, and said once: stopped, away, in danger."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from viewkeeper.engine.project import open_project
from viewkeeper.engine.report import SilentObserver, StateChange
from viewkeeper.sources.sqlite.source import SqliteSource
from viewkeeper.updates.source_protocol import Health


class Changes(SilentObserver):
    def __init__(self) -> None:
        self.seen: list[StateChange] = []

    def on_state_change(self, change: StateChange) -> None:
        self.seen.append(change)

    @property
    def kinds(self) -> list[str]:
        return [change.kind for change in self.seen]

    def wait_for(self, kind: str) -> StateChange:
        end = time.monotonic() + 60
        while kind not in self.kinds:
            assert time.monotonic() < end, f"no {kind} among {self.kinds}"
            time.sleep(0.02)
        return next(change for change in self.seen if change.kind == kind)


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        for statement in statements:
            database.execute(statement)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run_sql(tmp_path / "shop.db", "CREATE TABLE item (id INTEGER PRIMARY KEY, kind INTEGER)")
    run_sql(tmp_path / "crm.db", "CREATE TABLE kind (id INTEGER PRIMARY KEY, name TEXT)")
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "items.sql").write_text(
        "CREATE MATERIALIZED VIEW items AS SELECT i.id, k.name FROM shop.item i "
        "JOIN crm.kind k ON k.id = i.kind"
    )
    (tmp_path / "viewkeeper.yml").write_text(
        "warehouse: ./warehouse\nbatch: {wait_rows: 100}\nsources:\n"
        "  shop: {kind: sqlite, path: shop.db}\n  crm: {kind: sqlite, path: crm.db}\n"
    )
    return tmp_path


def test_a_log_that_a_waiting_view_holds_back_is_in_danger_before_it_is_lost(
    folder: Path, spark: SparkSession
) -> None:
    watching, stop = Changes(), threading.Event()
    with open_project(folder, spark) as project:
        project.refresh()
        (folder / "crm.db").rename(folder / "gone.db")
        thread = threading.Thread(target=project.run, args=(watching, stop))
        thread.start()
        try:
            watching.wait_for("source_away")
            rows = ", ".join(f"({number}, 1)" for number in range(60))
            run_sql(folder / "shop.db", f"INSERT INTO item VALUES {rows}")
            danger = watching.wait_for("retention_danger")
            assert (danger.source, danger.view) == ("shop", "items")
            assert "60 changes" in danger.text
            rows = ", ".join(f"({number}, 1)" for number in range(60, 120))
            run_sql(folder / "shop.db", f"INSERT INTO item VALUES {rows}")
            stopped = watching.wait_for("view_stopped")
            assert (stopped.view, "stale" in (stopped.reason or "")) == ("items", True)
            (folder / "gone.db").rename(folder / "crm.db")
            watching.wait_for("source_back")
        finally:
            stop.set()
            thread.join(60)
    assert not thread.is_alive()
    assert sorted(watching.kinds) == sorted(set(watching.kinds)), "each is said once"


def warn_of(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """From now on a source warns that its log ends soon."""
    read = SqliteSource.read_health

    def warn(source: SqliteSource, positions: object) -> Health:
        found = read(source, ())
        warned = ("its log ends soon",) if source.name == name else ()
        return Health(found.followed, found.position, warnings=warned)

    monkeypatch.setattr(SqliteSource, "read_health", warn)


def test_what_a_source_warns_of_is_asked_for_beside_the_loop(
    folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewkeeper.engine.state_watch.WARNING_SECONDS", 0.05)
    monkeypatch.setattr("viewkeeper.engine.state_watch.RETENTION_SECONDS", 0.05)
    warn_of(monkeypatch, "shop")
    watching, stop = Changes(), threading.Event()
    with open_project(folder, spark) as project:
        thread = threading.Thread(target=project.run, args=(watching, stop))
        thread.start()
        try:
            danger = watching.wait_for("retention_danger")
        finally:
            stop.set()
            thread.join(60)
    assert (danger.source, danger.view) == ("shop", None)
    assert danger.text == 'source "shop": its log ends soon'
    assert watching.kinds == ["retention_danger"]


def test_a_warning_is_not_said_again_when_files_are_taken_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session that begins then has asked no source yet."""
    warn_of(monkeypatch, "shop")
    watching = Changes()
    with open_project(folder) as project:
        with project.open_maintainer("test", watching) as first:
            first.states._warnings.ask_sources(["shop"])
            first.states.compare_states(now=True)
        with project.open_maintainer("test", watching) as second:
            second.states.go_on_from(first.states)
            second.states.compare_states(now=True)
            second.states._warnings.ask_sources(["shop"])
            second.states.compare_states(now=True)
    assert watching.kinds == ["retention_danger"]
