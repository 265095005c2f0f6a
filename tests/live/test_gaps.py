"""Real databases that lose what we still need: views get over it by their difference.

A slot is dropped, a log of triggers is removed, a binlog is purged, each while rows change that
nobody will ever report. The process that re-anchors is killed at random moments before it may end.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.shop import rows_of
from tests.faults.processes import command
from tests.live.kinds import Kind
from tests.live.test_live import KINDS, make_crm, make_project
from tests.live.writers import change

pytestmark = pytest.mark.campaign

LOST = ("order_lines", "ledger_shop")
KILLS = 3


def write(kind: Kind, rng: random.Random, transactions: int) -> None:
    with closing(kind.connect()) as connection:
        for _ in range(transactions):
            with connection.cursor() as cursor:
                for _ in range(3):
                    change(cursor, rng)
                cursor.execute("UPDATE counter SET n = n + 1")
                cursor.execute("INSERT INTO ledger SELECT n FROM counter")
            connection.commit()


def ask(kind: Kind, *statements: str) -> list[tuple[Any, ...]]:
    """The last statement's rows, each in its own transaction."""
    rows: list[tuple[Any, ...]] = []
    with closing(kind.connect()) as connection:
        if hasattr(connection, "set_autocommit"):
            connection.set_autocommit(True)
        for statement in statements:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                rows = [tuple(row) for row in cursor.fetchall() or ()] if cursor.description else []
            connection.commit()
    return rows


def lose(name: str, kind: Kind, folder: Path) -> None:
    """Let the database forget what it has kept for us."""
    if name == "postgres":
        drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
        ask(kind, f"{drop} WHERE slot_name <> 'judge'")
    elif name == "mariadb":
        ask(kind, "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
        newest = ask(kind, "SHOW MASTER STATUS")[0][0]
        end = time.monotonic() + 60
        # The server may still need a file for a moment.
        while ask(kind, "SHOW BINARY LOGS")[0][0] != newest:
            assert time.monotonic() < end, "the server keeps its binlog"
            ask(kind, f"PURGE BINARY LOGS TO '{newest}'")
            time.sleep(0.1)
    else:
        with viewkeeper.open(folder) as project:
            connections = project.open_connections()
            connections.get_source("shop").detach_source()
            connections.close()


def expected(kind: Kind, crm: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    with closing(sqlite3.connect(crm)) as connection:
        names = dict(connection.execute("SELECT id, name FROM customer"))
    joined = ask(
        kind,
        "SELECT o.id, o.note, o.customer_id, i.product, i.quantity"
        " FROM orders o JOIN item i ON i.order_id = o.id",
    )
    lines = Counter((o, note, names[c], p, q) for o, note, c, p, q in joined if c in names)
    return {"order_lines": lines, "ledger_shop": Counter(ask(kind, "SELECT n FROM ledger"))}


@pytest.mark.parametrize("name", KINDS)
def test_views_get_over_what_a_database_lost(
    name: str, tmp_path: Path, spark: SparkSession
) -> None:
    kind, rng = KINDS[name](tmp_path / "server"), random.Random(f"gap of {name}")
    kind.server.start()
    try:
        kind.create()
        make_crm(tmp_path / "crm.db")
        make_project(tmp_path, kind)
        write(kind, rng, 20)
        with viewkeeper.open(tmp_path, spark=spark) as project:
            project.refresh()
            write(kind, rng, 10)
            assert project.refresh().waiting == {}
            stood = {view: rows_of(project.view(view)) for view in LOST}
        write(kind, rng, 10)
        lose(name, kind, tmp_path)
        write(kind, rng, 10)
        with viewkeeper.open(tmp_path, spark=spark) as project:
            assert sorted(project.refresh().waiting) == sorted(LOST)
        right = expected(kind, tmp_path / "crm.db")
        arguments = [word for view in LOST for word in ("--reanchor", view)]
        for _ in range(KILLS):
            with command(tmp_path, "run", "--once", *arguments) as process:
                time.sleep(rng.random() * 20)
                process.stop(signal.SIGKILL)
            with viewkeeper.open(tmp_path) as project:
                for view in LOST:
                    assert rows_of(project.view(view)) in (stood[view], right[view])
        with viewkeeper.open(tmp_path, spark=spark) as project:
            assert project.refresh(reanchor=LOST).waiting == {}
            write(kind, rng, 10)
            assert project.refresh().waiting == {}
            right = expected(kind, tmp_path / "crm.db")
            assert {view: rows_of(project.view(view)) for view in LOST} == right
            assert all(found.ok for found in project.verify())
    finally:
        kind.server.stop()
