"""Real databases, written to by several connections, maintained, killed and restarted meanwhile.

Every state that the view ever had must be right, against the database's own log read by somebody
else. The maintainer is killed by SIGKILL and the database is restarted while writers go on.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.faults.processes import maintainer
from tests.live.judge import VIEW, judge
from tests.live.kinds import Kind, Mariadb, Postgres
from tests.live.writers import CUSTOMERS, Writers

KINDS: dict[str, Callable[[Path], Kind]] = {
    "postgres": Postgres,
    "postgres-triggers": partial(Postgres, capture="triggers"),
    "mariadb": Mariadb,
}


def make_crm(path: Path) -> dict[int, str]:
    names = {n: f"customer {n}" for n in range(CUSTOMERS)}
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("CREATE TABLE ledger (n INTEGER PRIMARY KEY AUTOINCREMENT)")
        connection.execute("CREATE TABLE journal (n INTEGER PRIMARY KEY, who INT, name TEXT)")
        connection.executemany("INSERT INTO customer VALUES (?, ?)", names.items())
        connection.commit()
    return names


def make_project(folder: Path, kind: Kind) -> None:
    (folder / "views").mkdir()
    (folder / "viewkeeper.yml").write_text(
        "warehouse: ./warehouse\nfreshness: 200ms\nbatch: {inline_rows: 1000000}\nsources:\n"
        f"  shop: {kind.source()}\n  crm: {{kind: sqlite, path: crm.db}}\n"
    )
    (folder / "views" / "order_lines.sql").write_text(VIEW)
    for name in ("shop", "crm"):
        sql = f"CREATE MATERIALIZED VIEW ledger_{name} AS SELECT l.n FROM {name}.ledger l"
        (folder / "views" / f"ledger_{name}.sql").write_text(sql)


@pytest.mark.parametrize("name", KINDS)
def test_every_state_is_right_whatever_is_killed(
    name: str, tmp_path: Path, spark: SparkSession
) -> None:
    kind = KINDS[name](tmp_path / "server")
    kind.server.start()
    try:
        kind.create()
        names = make_crm(tmp_path / "crm.db")
        make_project(tmp_path, kind)
        with Writers(kind, tmp_path / "crm.db", seed=5) as writers:
            writers.wait_for(50)
            with viewkeeper.open(tmp_path, spark=spark) as project:
                project.refresh()
            with maintainer(tmp_path) as process:
                process.wait_for("batch")
                writers.wait_for(150)
                process.kill()
            writers.wait_for(50)
            with maintainer(tmp_path) as process:
                process.wait_for("batch")
                kind.server.stop()
                time.sleep(0.3)
                kind.server.start()
                writers.wait_for(100)
                process.wait_for("batch")
                writers.wait_for(100)
                assert process.stop() == 0, process.output
        with viewkeeper.open(tmp_path, spark=spark) as project:
            report = project.refresh()
            assert report.waiting == {}
            judged = judge(project, kind.log(), tmp_path / "crm.db", names)
            assert judged > 400
    finally:
        kind.server.stop()
