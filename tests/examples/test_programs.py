"""The programs and projects of `examples`, run as their pages say, each in a folder of its own."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
import pytest
from examples.dagster.viewkeeper_job import ViewkeeperProject, keep_views_fresh
from examples.layers.make import make
from pyarrow.compute import field
from pyspark.sql import SparkSession

import viewkeeper
from tests.cli.conftest import call

EXAMPLES = Path(__file__).parents[2] / "examples"


def change_database(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        for statement in statements:
            database.execute(statement)


def test_every_example_is_in_the_index() -> None:
    index = (EXAMPLES / "README.md").read_text()
    folders = {each.name for each in EXAMPLES.iterdir() if each.is_dir() and each.name[0] != "_"}
    assert {name for name in folders if f"({name}" not in index} == set()
    links = re.findall(r"\]\(([^)#]+)", index)
    assert [link for link in links if not (EXAMPLES / link).exists()] == []


def test_the_notebook_runs(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Cell by cell, on the session of the tests."""
    folder = tmp_path / "sample"
    assert call("init", str(folder)).exit_code == 0
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["shop.py", str(folder)])
    program = (EXAMPLES / "notebook" / "shop.py").read_text()
    given = program.replace("viewkeeper.open(folder)", "viewkeeper.open(folder, spark=spark)")
    assert given != program
    scope: dict[str, object] = {"spark": spark}
    for cell in given.split("# %%")[1:]:
        exec(compile("#" + cell, "shop.py", "exec"), scope)
    printed = capsys.readouterr().out
    assert "1 transaction, 2 changes" in printed
    assert "now:    [{'customer': 'Barbara', 'lines': 1, 'cents': 2000}]" in printed
    assert "before: [{'customer': 'Barbara', 'lines': 0, 'cents': None}]" in printed
    assert re.search(r"\|\s*Barbara\|\s*1\|\s*2000\|\s*1\|", printed), printed
    assert printed.count("is right") == 3
    assert "is wrong" not in printed


def test_the_layers_are_kept_and_right(spark: SparkSession, tmp_path: Path) -> None:
    """All views advance together, the tests among them find what breaks a rule, all is verified."""
    folder = tmp_path / "shop"
    make(folder)
    with viewkeeper.open(folder, spark=spark) as project:
        project.refresh()
        assert len(project.views) == 11
        change_database(
            folder / "shop.db",
            "INSERT INTO orders VALUES (9, 77, '2024-03-09')",
            "INSERT INTO item VALUES (9, 1, 0)",
            "UPDATE item SET quantity = 50 WHERE order_id = 3",
        )
        assert project.refresh().waiting == {}
        orphans = project.view("test_orders_without_customer").arrow().to_pylist()
        empty = project.view("test_quantities_not_positive").arrow().to_pylist()
        best = project.view("mart_products").arrow(where=field("place") == 1).to_pylist()
        results = list(project.verify())
    assert orphans == [{"order_id": 9, "customer_id": 77}]
    assert empty == [{"order_id": 9, "product_id": 1, "quantity": 0}]
    assert [row["product_name"] for row in best] == ["Eraser"]
    assert {result.view for result in results} == {*project.views}
    assert [result.view for result in results if not result.ok] == []


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    folder = tmp_path_factory.mktemp("dagster") / "sample"
    assert call("init", str(folder)).exit_code == 0
    assert call("-p", str(folder), "run", "--once", spark=spark).exit_code == 0
    return folder


def run_job(folder: Path) -> dg.ExecuteInProcessResult:
    # Dagster counts its users unless it is told not to.
    with dg.DagsterInstance.ephemeral(settings={"telemetry": {"enabled": False}}) as instance:
        return keep_views_fresh.execute_in_process(
            instance=instance,
            resources={"project": ViewkeeperProject(folder=str(folder))},
            raise_on_error=False,
        )


@pytest.mark.filterwarnings("default")
def test_the_job_refreshes_and_checks(sample: Path) -> None:
    change_database(sample / "shop.db", "UPDATE item SET quantity = 8 WHERE order_id = 4")
    result = run_job(sample)
    assert result.success
    assert result.output_for_node("check_freshness") == 3
    with viewkeeper.open(sample) as project:
        [row] = project.view("berlin_bulk").arrow(where=field("product_id") == 1).to_pylist()
    assert row["quantity"] == 8


@pytest.mark.filterwarnings("default")
def test_the_job_fails_when_a_source_is_away(sample: Path) -> None:
    (sample / "crm.db").rename(sample / "gone.db")
    try:
        result = run_job(sample)
    finally:
        (sample / "gone.db").rename(sample / "crm.db")
    assert not result.success
    failed = [event for event in result.all_events if event.is_step_failure]
    assert [event.step_key for event in failed] == ["check_freshness"]


class Incidents(BaseHTTPRequestHandler):
    """An address that takes incidents."""

    taken: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        self.taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is said of requests."""


def test_the_alerting_program_opens_and_closes_incidents(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a hook of a project whose source is away, and back."""
    project = Path(shutil.copytree(sample, tmp_path / "sample"))
    program = EXAMPLES / "alerting" / "alert.py"
    described = re.search(r"    on_event:\n(?:      .*\n)+", program.read_text())
    assert described is not None
    hook = textwrap.dedent(described[0]).replace(
        "[python, alert.py", f"[{sys.executable}, {program}"
    )
    file = project / "viewkeeper.yml"
    file.write_text(f"{file.read_text()}\n{hook}")
    Incidents.taken.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Incidents) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("ALERT_URL", f"http://127.0.0.1:{server.server_port}/incidents")
        (project / "crm.db").rename(project / "gone.db")
        assert call("-p", str(project), "run", "--once").exit_code == 1
        away = list(Incidents.taken)
        (project / "gone.db").rename(project / "crm.db")
        server.shutdown()
    assert [(each["key"], each["action"]) for each in away] == [("sample/source/crm", "trigger")]
    assert "there is no database file" in away[0]["text"]
    incident_of = runpy.run_path(str(program))["incident_of"]
    back = incident_of({"project": "sample", "event": "source_back", "source": "crm"})
    assert (back["key"], back["action"]) == ("sample/source/crm", "resolve")


def test_the_programs_compile() -> None:
    """With nothing but what is installed."""
    for program in EXAMPLES.rglob("*.py"):
        run = subprocess.run([sys.executable, "-m", "py_compile", str(program)], timeout=60)
        assert run.returncode == 0, program
