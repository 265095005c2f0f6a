"""Status without Spark: a warehouse written by hand, sources with changes that nobody applied."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from viewkeeper.engine.operations.project_status import gather_status, running_holder
from viewkeeper.engine.settings.project_file import Settings, read_settings
from viewkeeper.errors import ProjectError
from viewkeeper.sources.sqlite import SqliteSource
from viewkeeper.storage.local_lock import Lock, LockHolder
from viewkeeper.storage.stored_files import local_folder
from viewkeeper.warehouse.metadata.plan_files import BatchPlan, LedgerEntry
from viewkeeper.warehouse.metadata.record import Create, Refresh, Stop
from viewkeeper.warehouse.store import Store
from viewkeeper.warehouse.waiting_reasons import WaitingReasons, write_waiting

SQL = "CREATE MATERIALIZED VIEW names AS SELECT c.name FROM crm.customer c"
READER = "r" * 32


@pytest.fixture
def project(tmp_path: Path) -> Settings:
    """A view loaded at position 0 of a source with three more changes, one of them reported."""
    (tmp_path / "views").mkdir()
    (tmp_path / "views/names.sql").write_text(SQL)
    text = "warehouse: warehouse\nsources: {crm: {kind: sqlite, path: crm.db}}"
    (tmp_path / "viewkeeper.yml").write_text(text)
    source = SqliteSource("crm", tmp_path / "crm.db", READER)
    with closing(sqlite3.connect(tmp_path / "crm.db")) as connection:
        connection.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)")
        connection.commit()
        source.follow_tables({"customer": ["name"]})
        connection.executemany("INSERT INTO customer (name) VALUES (?)", [("a",), ("b",), ("c",)])
        connection.commit()
    source.close()
    with Store.open(tmp_path / "warehouse", "test", lambda: 1000.0) as store:
        schema = pa.schema([("name", pa.string())])
        table = store.new_table("names")
        ts = store.ledger.next_ts
        store.commit([Create("names", table, SQL, schema, ts - 1, {"crm": 0}, ())])
        entry = LedgerEntry(ts, "crm", 0, 1, 1001.0, 1)
        store.write_plan(BatchPlan(store.next_plan, (entry,), {"names": (ts - 1, ts)}))
    (tmp_path / "warehouse/identity").write_text(READER)
    return read_settings(tmp_path)


def test_lag_is_counted_in_transactions_changes_and_seconds(project: Settings) -> None:
    found = gather_status(project, now=4e9)
    (view,) = found.views
    (lag,) = view.lags
    assert (view.loaded, view.rows, view.problem) == (True, 0, None)
    assert (lag.position, lag.transactions, lag.more, lag.changes) == (0, 1, True, 3)
    assert view.lag_seconds is not None
    assert view.lag_seconds > 1e9
    assert found.ok


def test_the_log_is_kept_by_name(project: Settings) -> None:
    other = SqliteSource("crm", project.folder / "crm.db", "other")
    other.follow_tables({"customer": ["id"]})
    other.close()
    (source,) = gather_status(project, now=4e9).sources
    assert (source.followed, source.position, source.retained) == (True, 3, 3)
    assert {kept.reader: (kept.ours, kept.amount) for kept in source.readers} == {
        READER: (True, 3),
        "other": (False, 0),
    }


def test_a_source_that_is_away_leaves_what_the_ledger_knows(project: Settings) -> None:
    (project.folder / "crm.db").unlink()
    found = gather_status(project, now=2001.0)
    assert "there is no database file" in (found.sources[0].error or "")
    (lag,) = found.views[0].lags
    assert (lag.transactions, lag.changes, lag.seconds) == (1, None, 1000.0)
    assert not found.ok


def test_a_stopped_view_says_why(project: Settings) -> None:
    with Store.open(project.warehouse, "test", lambda: 1000.0) as store:
        store.commit([Stop("names", "a row does not fit")])
    found = gather_status(project, now=2000.0)
    since = "stale since 1970-01-01 00:16:40 UTC"
    assert found.views[0].problem == f"{since}: a row does not fit"
    assert not found.ok


def test_changed_and_removed_sql_is_noticed(project: Settings) -> None:
    file = project.folder / "views/names.sql"
    file.write_text(SQL + " WHERE c.id > 1")
    assert "viewkeeper refresh names" in (gather_status(project, 1.0).views[0].problem or "")
    file.unlink()
    assert "the next run drops it" in (gather_status(project, 1.0).views[0].problem or "")


def state_of(project: Settings) -> tuple[str, bool, bool]:
    """The state of the view, whether it is up, and whether nobody has to look."""
    found = gather_status(project, 2000.0)
    (view,) = found.views
    return view.state, view.is_up, found.ok


def test_what_is_served_is_up(project: Settings) -> None:
    assert state_of(project) == ("maintained", True, True)
    file = project.folder / "views/names.sql"
    for text in (SQL + " WHERE c.id > 1", SQL.replace("SELECT", "SELCT"), ""):
        file.write_text(text)
        assert state_of(project) == ("refused", True, False)
    file.unlink()
    assert state_of(project) == ("removed", True, False)
    file.write_text(SQL)
    database = project.folder / "crm.db"
    database.rename(project.folder / "gone.db")
    assert state_of(project) == ("waiting", True, False)
    (project.folder / "gone.db").rename(database)
    with Store.open(project.warehouse, "test", lambda: 1000.0) as store:
        store.commit([Refresh("names")])
    assert state_of(project) == ("refreshing", True, False)
    (view,) = gather_status(project, 2000.0).views
    assert "it shows its state of ts 1 until then" in (view.problem or "")


def test_what_needs_somebody_to_go_on_is_down(project: Settings) -> None:
    with Store.open(project.warehouse, "test", lambda: 1000.0) as store:
        store.commit([Refresh("names")])
    noted = WaitingReasons({"names": "no right to read"}, failed=("names",))
    write_waiting(local_folder(project.warehouse), noted)
    assert state_of(project) == ("stopped", False, False)
    (view,) = gather_status(project, 2000.0).views
    assert view.problem == "being loaded again: when the last run ended: no right to read"
    with Store.open(project.warehouse, "test", lambda: 1000.0) as store:
        store.commit([Stop("names", "a row does not fit")])
    assert state_of(project) == ("stopped", False, False)


def test_a_stored_view_whose_source_is_no_more_in_the_settings_is_down(project: Settings) -> None:
    file = project.folder / "viewkeeper.yml"
    file.write_text(file.read_text().replace("crm:", "people:"))
    assert state_of(read_settings(project.folder)) == ("stopped", False, False)


def test_a_view_that_is_not_loaded_is_down_whatever_its_file_says(project: Settings) -> None:
    (project.folder / "views/more.sql").write_text("CREATE MATERIALIZED VIEW more AS SELCT 1")
    found = gather_status(project, 2000.0)
    more = next(view for view in found.views if view.name == "more")
    assert (more.state, more.is_up) == ("unloaded", False)
    assert (more.problem or "").startswith("refused: ")


def test_who_holds_the_lock_is_running_only_while_it_holds_it(project: Settings) -> None:
    path = local_folder(project.warehouse) / "lock"
    here = LockHolder.this_process("viewkeeper run", 5.0)
    lock = Lock.take_lock(path, here)
    assert running_holder(project.warehouse, 6.0) == replace(here, epoch=2)
    lock.release_lock()
    assert running_holder(project.warehouse, 6.0) is None
    for pid in (os.getpid(), 2**22 + 1):
        left = {"pid": pid, "host": socket.gethostname(), "since": 5.0, "command": "killed"}
        path.write_text(json.dumps(left))
        assert running_holder(project.warehouse, 6.0) is None


def test_a_detached_source_is_no_view_that_is_up_to_date(project: Settings) -> None:
    source = SqliteSource("crm", project.folder / "crm.db", READER)
    source.detach_source()
    source.close()
    found = gather_status(project, now=4e9)
    (view,) = found.views
    assert view.problem is not None
    assert 'source "crm" is detached' in view.problem
    assert "viewkeeper refresh names" in view.problem
    assert not found.ok
    assert view.lag_seconds is None
    assert [lag.captured for lag in view.lags] == [False]


def test_settings_of_a_view_that_is_not_there_are_refused(project: Settings) -> None:
    file = project.folder / "viewkeeper.yml"
    file.write_text(f"{file.read_text()}\nviews: {{nmaes: {{algorithm: sweep}}}}")
    with pytest.raises(ProjectError, match="there is no such view") as caught:
        gather_status(read_settings(project.folder), 2000.0)
    assert "names" in str(caught.value.hint)
