"""The world's own troubles: a full disk, a database that is locked for long, one that is gone.

None of them may lose or double anything. What a trouble does not concern goes on; what it concerns
waits, says why, and catches up exactly.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from tests.faults.deaths import FULL, full, step
from tests.faults.ordeal import Ordeal, ordeal
from tests.faults.processes import Process, maintainer
from tests.faults.shop import copy_project

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize("name", FULL)
def test_a_full_disk_is_said_and_survived(
    name: str, reporting: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    spilling = "batch: {memory: 0.1kb, inline_rows: 10000000}\n"
    settings = spilling if name == "spilled changes" else "history: 1s\n"
    project = copy_project(reporting, tmp_path / "shop", settings)
    with ordeal(project, len(name), request) as case:
        with case.writing() as applications:
            said = case.refused(full(name, 2))
            assert re.search(
                r"^error .*(\n  .*)*File too large|^error .*not yet visible", said, re.M
            )
            assert applications.stop() == 0
        case.finish()


def test_a_database_locked_for_long_holds_up_its_own_views_only(
    reporting: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """In a rollback-journal mode, where a writer keeps readers out."""
    project = copy_project(reporting, tmp_path / "shop")
    crm = sqlite3.connect(project / "crm.db", isolation_level=None, timeout=30)
    assert crm.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    with ordeal(project, 10, request) as case:
        with maintainer(project) as process, case.writing("shop", "cat") as applications:
            process.wait_for("batch")
            crm.execute("BEGIN EXCLUSIVE")
            others_go_on(case, process)
            crm.execute("ROLLBACK")
            crm.close()
            all_go_on(case, process)
            assert applications.stop() == 0
            assert process.stop() == 0
        case.finish()


def test_a_long_transaction_in_wal_mode_holds_up_nothing(
    reporting: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(reporting, tmp_path / "shop")
    with ordeal(project, 11, request) as case:
        with maintainer(project) as process, case.writing("shop", "cat") as applications:
            process.wait_for("batch")
            crm = sqlite3.connect(project / "crm.db", isolation_level=None, timeout=30)
            crm.execute("BEGIN EXCLUSIVE")
            all_go_on(case, process)
            crm.execute("ROLLBACK")
            crm.close()
            assert applications.stop() == 0
            assert process.stop() == 0
        case.finish()


def test_a_database_that_is_gone_for_a_while_is_waited_for(
    reporting: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = copy_project(reporting, tmp_path / "shop")
    with ordeal(project, 12, request) as case:
        with maintainer(project) as process, case.writing("shop", "cat") as applications:
            process.wait_for("batch")
            (project / "crm.db").rename(tmp_path / "crm.db")
            others_go_on(case, process)
            process.kill()
            with maintainer(project) as again:
                others_go_on(case, again)
                (tmp_path / "crm.db").rename(project / "crm.db")
                all_go_on(case, again)
                assert again.stop() == 0
            assert applications.stop() == 0
        case.finish()


def test_a_kill_before_the_index_and_a_source_gone_at_the_restart(
    reporting: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The plan is replayed without a view; what that view's history had written counts once."""
    project = copy_project(reporting, tmp_path / "shop")
    with ordeal(project, 13, request) as case:
        with case.writing("shop", "cat") as applications:
            case.die_at(step("history index", 2, "before"))
            (project / "crm.db").rename(tmp_path / "crm.db")
            with maintainer(project) as process:
                others_go_on(case, process)
                assert process.stop() == 0
            (tmp_path / "crm.db").rename(project / "crm.db")
            assert applications.stop() == 0
        case.finish()


def others_go_on(case: Ordeal, process: Process) -> None:
    """Views without the customers advance, the join with them stays."""
    case.wait_until(lambda: case.ts("lines") < case.ts("shop_ledger"), process)
    stays, goes = case.ts("lines"), case.ts("shop_ledger") + 3
    case.wait_until(lambda: min(case.ts("shop_ledger"), case.ts("cat_ledger")) > goes, process)
    assert case.ts("lines") == stays


def all_go_on(case: Ordeal, process: Process) -> None:
    """Every view passes what is the newest ts now."""
    newest = case.ts("shop_ledger")
    case.wait_until(lambda: case.ts("lines") > newest, process)
