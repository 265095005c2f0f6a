"""What one refresh leaves to the next: it saves work, and it never shows.

Every test does something to the warehouse, the sources or the project between two refreshes of one
open project, and expects what a start from nothing would give.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

import viewkeeper
from tests.engine.shop import LINES, Shop, rows_of
from viewkeeper.cli.commands.status_command import fresh_lines
from viewkeeper.engine.operations.project_status import gather_status
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import Report
from viewkeeper.sources.sqlite.database import SqliteDatabase
from viewkeeper.warehouse.store import Store

PLACED = "SELECT o.id, c.city FROM shop.orders o JOIN crm.customer c ON c.id = o.customer_id"


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path, {"lines": LINES, "placed": PLACED})
    shop.fill()
    return shop


@pytest.fixture
def project(shop: Shop) -> Iterator[Project]:
    """A project whose last refresh has left something."""
    with viewkeeper.open(shop.folder) as project:
        project.refresh()
        project.refresh()
        yield project


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commands that have opened a warehouse from nothing."""
    opened: list[str] = []
    before = Store.open

    def noted(path: Path, command: str, *rest: object) -> Store:
        opened.append(command)
        return before(path, command, *rest)  # type: ignore[arg-type]  # whatever clocks they are

    monkeypatch.setattr(Store, "open", staticmethod(noted))
    return opened


def insert_order(shop: Shop, number: int) -> None:
    shop.execute("shop", f"INSERT INTO orders VALUES ({number}, 1, '2024-02-01')")


def refreshed(project: Project, shop: Shop) -> Report:
    """A refresh after which every view is what SQLite makes of its text."""
    report = project.refresh()
    assert report.waiting == {}
    for name, sql in shop.views.items():
        assert rows_of(project.view(name)) == shop.recomputed(sql), name
    return report


def test_a_refresh_goes_on_where_the_last_one_ended(
    project: Project, shop: Shop, starts: list[str]
) -> None:
    for number in range(100, 104):
        insert_order(shop, number)
        assert refreshed(project, shop).transactions == 1
        assert refreshed(project, shop).transactions == 0
    assert starts == []


def test_a_few_statements_are_enough_for_one_row(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Per source that is asked: begin, state, keys out and in, rows, end."""
    statements: list[str] = []
    connect = SqliteDatabase._connect_mode

    def traced(database: SqliteDatabase, mode: str) -> sqlite3.Connection:
        connection = connect(database, mode)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(SqliteDatabase, "_connect_mode", traced)
    with viewkeeper.open(shop.folder) as project:
        project.refresh()
        for number in (100, 101, 102):
            insert_order(shop, number)
            refreshed(project, shop)
        statements.clear()
        project.refresh()
        assert len(statements) <= 2 * 3, "a look at each source and nothing else"
        statements.clear()
        insert_order(shop, 103)
        refreshed(project, shop)
    asked = [text for text in statements if "_viewkeeper_keys" in text and "SELECT r." in text]
    assert len(asked) == 3, "an order asks for its customer, twice, and for its items"
    assert len(statements) <= 50, "\n".join(statements)


def test_nothing_is_held_between_refreshes(project: Project, shop: Shop) -> None:
    with Store.open(shop.folder / "warehouse", "test", lambda: 0.0):
        pass
    for name in ("crm", "shop", "catalogue"):
        with closing(sqlite3.connect(shop.folder / f"{name}.db", timeout=0)) as database:
            database.execute("BEGIN EXCLUSIVE")
            database.rollback()
            busy, _, _ = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert not busy, f"somebody reads {name}"


def test_what_another_process_commits_is_found(
    project: Project, shop: Shop, starts: list[str]
) -> None:
    insert_order(shop, 100)
    with viewkeeper.open(shop.folder) as other:
        assert refreshed(other, shop).transactions == 1
    insert_order(shop, 101)
    assert refreshed(project, shop).transactions == 1
    assert starts == ["viewkeeper refresh", "viewkeeper refresh"], "both began from nothing"


def test_a_refresh_in_between_that_found_nothing_changes_nothing(
    project: Project, shop: Shop
) -> None:
    with viewkeeper.open(shop.folder) as other:
        other.refresh()
    insert_order(shop, 100)
    assert refreshed(project, shop).transactions == 1


def test_compaction_in_between(project: Project, shop: Shop) -> None:
    for number in (100, 101, 102):
        insert_order(shop, number)
        refreshed(project, shop)
    project.compact()
    insert_order(shop, 103)
    refreshed(project, shop)


def test_other_settings_need_a_start_from_nothing(
    project: Project, shop: Shop, starts: list[str]
) -> None:
    batch = replace(project.settings.batch, inline_rows=1)
    project.settings = replace(project.settings, batch=batch)
    refreshed(project, shop)
    assert len(starts) == 1


def test_views_that_were_bound_again_need_a_start_from_nothing(
    project: Project, shop: Shop, starts: list[str]
) -> None:
    """As `verify` binds them: what the session chose for them is not in the catalogue any more."""
    project.catalogue.adopt_versions(project.newest_head())
    insert_order(shop, 100)
    assert refreshed(project, shop).transactions == 1
    assert len(starts) == 1


def test_another_thread_needs_a_start_from_nothing(
    project: Project, shop: Shop, starts: list[str]
) -> None:
    insert_order(shop, 100)
    thread = Thread(target=project.refresh)
    thread.start()
    thread.join()
    refreshed(project, shop)
    assert len(starts) == 2


def test_an_edited_project_is_taken_by_whoever_opens_it(project: Project, shop: Shop) -> None:
    """An open project is what its files said when it was opened; the kept session too."""
    shop.define("placed", PLACED + " WHERE o.id > 5")
    with viewkeeper.open(shop.folder) as edited:
        edited.refresh(full_refresh=["placed"])
        assert rows_of(edited.view("placed")) == shop.recomputed(shop.views["placed"])
    insert_order(shop, 100)
    assert "its SQL is not the one" in project.refresh().waiting["placed"]


def test_a_table_renamed_in_between(project: Project, shop: Shop) -> None:
    shop.execute("crm", "ALTER TABLE customer RENAME TO client")
    insert_order(shop, 100)
    report = project.refresh()
    assert report.waiting == {}
    shop.views = {
        name: sql.replace("crm.customer", "crm.client") for name, sql in shop.views.items()
    }
    insert_order(shop, 101)
    shop.execute("crm", "UPDATE client SET city = 'renamed' WHERE id = 1")
    refreshed(project, shop)


def test_a_column_renamed_and_an_index_dropped_in_between(project: Project, shop: Shop) -> None:
    shop.execute(
        "shop", "DROP INDEX item_order", "ALTER TABLE orders RENAME COLUMN customer_id TO client_id"
    )
    shop.execute("shop", "INSERT INTO orders VALUES (100, 1, '2024-02-01')")
    shop.views = {
        name: sql.replace("o.customer_id", "o.client_id") for name, sql in shop.views.items()
    }
    refreshed(project, shop)


def test_a_schema_that_changes_during_a_batch(
    project: Project, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the look, before the lookups: what is kept of the table is not used."""
    from viewkeeper.engine.batch.batch_runner import BatchRunner

    before = BatchRunner.run_batch
    altered: list[str] = []

    def altering(self: BatchRunner, *arguments: object) -> object:
        if not altered:
            altered.append("customer")
            shop.execute("crm", "ALTER TABLE customer RENAME COLUMN city TO town")
            shop.execute("crm", "UPDATE customer SET town = 'moved' WHERE id = 1")
        return before(self, *arguments)  # type: ignore[arg-type]  # whatever they are

    monkeypatch.setattr(BatchRunner, "run_batch", altering)
    insert_order(shop, 100)
    project.refresh()
    shop.views = {name: sql.replace("c.city", "c.town") for name, sql in shop.views.items()}
    shop.views["placed"] = shop.views["placed"].replace("c.town", "c.town AS city")
    refreshed(project, shop)
    assert altered == ["customer"]


def test_a_source_that_is_replaced_by_an_older_copy(project: Project, shop: Shop) -> None:
    with shop.database("shop") as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(shop.folder / "shop.db", shop.folder / "backup.db")
    insert_order(shop, 100)
    refreshed(project, shop)
    (shop.folder / "backup.db").replace(shop.folder / "shop.db")
    for end in ("-wal", "-shm"):
        (shop.folder / f"shop.db{end}").unlink(missing_ok=True)
    report = project.refresh()
    assert set(report.waiting) == {"lines", "placed"}
    assert "restored from a backup" in report.waiting["lines"]


def test_a_source_that_goes_and_comes_back(project: Project, shop: Shop) -> None:
    away = shop.folder / "elsewhere"
    away.mkdir()
    for file in shop.folder.glob("crm.db*"):
        file.rename(away / file.name)
    insert_order(shop, 100)
    report = project.refresh()
    assert set(report.waiting) == {"lines", "placed"}
    assert "there is no database file" in report.waiting["lines"]
    for file in away.glob("crm.db*"):
        file.rename(shop.folder / file.name)
    refreshed(project, shop)


def test_a_data_file_that_is_removed_is_noticed(project: Project, shop: Shop) -> None:
    head = project.view("placed").head
    next((shop.folder / "warehouse" / "views" / head.table).glob("*.parquet")).unlink()
    report = project.refresh()
    assert "placed" in report.waiting
    assert "lines" not in report.waiting


def test_what_is_kept_of_a_source_is_removed(project: Project, shop: Shop) -> None:
    """As `detach` does it: then the source is not followed any more."""
    project.open_connections().get_source("crm").detach_source(force=True)
    report = project.refresh()
    assert set(report.waiting) == {"lines", "placed"}


def test_a_refresh_that_fails_leaves_nothing(
    project: Project, shop: Shop, starts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    insert_order(shop, 100)
    with monkeypatch.context() as broken:
        broken.setattr(Store, "write_plan", lambda *_: (_ for _ in ()).throw(OSError("no disk")))
        with pytest.raises(OSError, match="no disk"):
            project.refresh()
    refreshed(project, shop)
    assert len(starts) == 1


def test_status_tells_how_fresh_views_were(project: Project, shop: Shop) -> None:
    for number in (100, 101, 102):
        insert_order(shop, number)
        refreshed(project, shop)
    found = {view.name: view for view in gather_status(project.settings, time.time()).views}
    for name in shop.views:
        p50, p95, p99 = found[name].freshness
        assert 0 <= p50 <= p95 <= p99
    lines = fresh_lines(gather_status(project.settings, time.time()))
    assert len(lines) == 2
    assert all("from commit to visible p50 " in line and ", p99 " in line for line in lines)
