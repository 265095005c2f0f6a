"""A warehouse in object storage goes on from machine to machine: nothing that counts is local.

Each time the local folder is another one, or was removed. What a source remembers is then in the
bucket alone, and must be enough: no view is loaded again, and every state is what the database had.
"""

from __future__ import annotations

import pickle
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import viewkeeper
from tests.cli.conftest import call
from tests.engine.shop import rows_of
from tests.faults.processes import Process
from tests.objects.lost_folder_databases import (
    DeltaWords,
    FileWords,
    MariadbWords,
    ParentWords,
    PostgresWords,
    WordTable,
)
from tests.objects.s3_server import PrivateS3
from viewkeeper.engine.project import Project
from viewkeeper.view.definition import Relation

KINDS = ("decoding", "triggers", "mariadb", "files", "delta_lake", "warehouse")
_numbers = count()


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WordTable]:
    kind, name = request.param, f"lost_{next(_numbers)}"
    made: WordTable
    match kind:
        case "decoding" | "triggers":
            made = PostgresWords(request.getfixturevalue("postgres_server"), name, kind)
        case "mariadb":
            made = MariadbWords(request.getfixturevalue("mariadb_server"), name)
        case "files":
            made = FileWords(tmp_path)
        case "delta_lake":
            made = DeltaWords(tmp_path)
        case _:
            made = ParentWords(tmp_path)
    with closing(made):
        yield made


class Machines:
    """One warehouse in a bucket, and a local folder for each machine that maintains it."""

    def __init__(self, folder: Path, server: PrivateS3, table: WordTable) -> None:
        self.folder = folder / "project"
        (self.folder / "views").mkdir(parents=True)
        self._text = (
            f"warehouse: {server.new_url()}\n{server.yaml}sources: {{db: {table.source}}}\n"
            "freshness: 0s\nretention: 1h\n"
        )
        self.use(0)
        text = f"CREATE MATERIALIZED VIEW words AS\n{table.view};\n"
        (self.folder / "views" / "words.sql").write_text(text)
        self.table = table
        self.states: dict[int, Counter[tuple[Any, ...]]] = {}

    def use(self, machine: int) -> None:
        (self.folder / "viewkeeper.yml").write_text(f"{self._text}local: machine{machine}\n")

    def maintain(self, project: Project, may_load: bool = False) -> None:
        """Bring the view up to date; every state that it ever had is still right."""
        report = project.refresh()
        assert may_load or not report.loaded, "what was known of the source was lost"
        assert not report.waiting
        view = project.view("words")
        self.states[view.ts] = self.table.expected()
        for ts, wanted in self.states.items():
            assert rows_of(view, ts) == wanted, f"as of {ts}"


@pytest.fixture
def machines(tmp_path: Path, s3: PrivateS3, table: WordTable) -> Machines:
    return Machines(tmp_path, s3, table)


def test_every_machine_goes_on(machines: Machines) -> None:
    with viewkeeper.open(machines.folder) as project:
        machines.maintain(project, may_load=True)
        machines.table.change(0)
        machines.maintain(project)
    for machine in range(1, 4):
        machines.use(machine)
        machines.table.change(2 * machine)
        with viewkeeper.open(machines.folder) as project:
            machines.maintain(project)
            machines.table.change(2 * machine + 1)
            machines.maintain(project)
    # The first one comes back, with a folder that knows only old states.
    machines.use(0)
    machines.table.change(8)
    with viewkeeper.open(machines.folder) as project:
        machines.maintain(project)
    shutil.rmtree(machines.folder / "machine0")
    machines.table.change(9)
    with viewkeeper.open(machines.folder) as project:
        machines.maintain(project)
    shown = call("--project", str(machines.folder), "status")
    assert shown.exit_code == 0, shown.output


def test_killed_runs_go_on_elsewhere(machines: Machines) -> None:
    with viewkeeper.open(machines.folder) as project:
        machines.maintain(project, may_load=True)
    number = 0
    for machine in range(1, 3):
        machines.use(machine)
        with Process("tests.objects.runner", [str(machines.folder)]) as process:
            process.wait_for("ready", 90.0)
            for _ in range(3):
                machines.table.change(number)
                number += 1
                process.wait_for("batch", 60.0)
                time.sleep(0.4)
            machines.table.change(number)
            number += 1
            process.kill()
        assert not any(line.startswith("trouble") for line in process.lines), process.lines
    machines.use(3)
    with viewkeeper.open(machines.folder) as project:
        machines.maintain(project)


def test_tasks_need_neither_files_nor_folders(tmp_path: Path, s3: PrivateS3) -> None:
    """Executors on other machines read the copies of a folder's files in the bucket."""
    machines = Machines(tmp_path, s3, FileWords(tmp_path))
    with viewkeeper.open(machines.folder) as project:
        machines.maintain(project, may_load=True)
        position = project.view("words").positions()["db"]
        with (
            closing(project.open_connections()) as connections,
            connections.get_source("db").prepare_snapshots(position, {}) as opener,
        ):
            sent = pickle.dumps(opener)
    shutil.rmtree(tmp_path / "exports")
    shutil.rmtree(machines.folder / "machine0")
    with closing(pickle.loads(sent)()) as snapshot:
        scan = snapshot.scan_relation(Relation("db", "word"), ["id", "text"], position)
        rows = [tuple(row.values()) for batch in scan.batches for row in batch.to_pylist()]
    assert Counter(rows) == machines.table.expected()
