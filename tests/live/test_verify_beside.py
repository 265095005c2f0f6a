"""`verify` beside `run`, as two programs, under writers: both keep their hands off each other.

PostgreSQL gives a slot to one process at a time, MariaDB's and the triggers' logs are trimmed while
they are read. So every view is verified more than once while the maintainer goes on, and nothing is
left in the database of those who only looked.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.faults.processes import PATIENCE_SECONDS, Process, command
from tests.live.kinds import Postgres
from tests.live.test_live import KINDS, make_crm, make_project
from tests.live.writers import Writers
from viewkeeper.warehouse.metadata.head import read_head

VIEWS = ("order_lines", "ledger_shop", "ledger_crm")


def wait_for_batches(folder: Path, process: Process, more: int = 3) -> None:
    """Wait until every view has got on."""

    def stamps() -> list[int]:
        return [read_head(folder / "warehouse").views[name].ts for name in VIEWS]

    before, end = stamps(), time.monotonic() + PATIENCE_SECONDS
    while any(now < then + more for now, then in zip(stamps(), before, strict=True)):
        assert process.runs, f"run has ended:\n{process.output}"
        assert time.monotonic() < end, f"run does not get on:\n{process.output}"
        time.sleep(0.05)


def verify(folder: Path, *arguments: str) -> str:
    with command(folder, "verify", *arguments) as process:
        code = process.ended()
        process.listened()
        assert code == 0, f"exit code {code}:\n{process.output}"
        return process.output


@pytest.mark.campaign
@pytest.mark.parametrize("name", KINDS)
def test_all_views_are_verified_while_they_are_maintained(
    name: str, tmp_path: Path, spark: SparkSession
) -> None:
    verify_beside_run(name, tmp_path, spark, ((), ("--every-state",), ()))


def test_all_views_over_postgres_are_verified_once(tmp_path: Path, spark: SparkSession) -> None:
    """The shortest of the campaign's cases."""
    verify_beside_run("postgres", tmp_path, spark, ((),))


def verify_beside_run(
    name: str, tmp_path: Path, spark: SparkSession, verifications: Sequence[tuple[str, ...]]
) -> None:
    kind = KINDS[name](tmp_path / "server")
    kind.server.start()
    try:
        kind.create()
        make_crm(tmp_path / "crm.db")
        make_project(tmp_path, kind)
        file = tmp_path / "viewkeeper.yml"
        file.write_text(f"history: 1h\n{file.read_text()}")
        with viewkeeper.open(tmp_path, spark=spark) as project:
            project.refresh()
        with (
            Writers(kind, tmp_path / "crm.db", seed=3, connections=1) as writers,
            command(tmp_path, "run") as running,
        ):
            wait_for_batches(tmp_path, running)
            for words in verifications:
                said = verify(tmp_path, *words)
                assert all(view in said for view in VIEWS), said
                assert "viewkeeper-error" not in said
                wait_for_batches(tmp_path, running)
            wait_for_batches(tmp_path, running)
            assert writers.commits > 50
            assert running.stop(signal.SIGTERM) == 0, running.output
            assert "used by another process" not in running.output
        if isinstance(kind, Postgres):
            left = "SELECT slot_name FROM pg_replication_slots WHERE slot_name <> 'judge'"
            with psycopg.connect(kind.server.url_of()) as connection:
                assert len(connection.execute(left).fetchall()) == (name == "postgres")
    finally:
        kind.server.stop()
