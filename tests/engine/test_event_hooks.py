"""Hooks: who is called when something wants attention, and that nobody waits for them."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import viewkeeper
from tests.engine.running_project import running, wait_until
from viewkeeper.engine.event_hooks import EventHooks
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import SilentObserver, StateChange
from viewkeeper.engine.settings.hook_settings import BAD_EVENTS, EVENTS
from viewkeeper.engine.settings.project_file import Settings, read_settings
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.errors import ProjectError

STOPPED = StateChange("view_stopped", 'view "lines" has stopped', "mend it", "lines", None, 7, "x")
BACK = StateChange("source_back", 'source "shop" is back', source="shop")
SAVE = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(sys.stdin.read())"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, cents INTEGER)")
        database.execute("INSERT INTO item VALUES (1, 100)")
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "items.sql").write_text(
        "CREATE MATERIALIZED VIEW items AS SELECT id, cents FROM shop.item"
    )
    return tmp_path


def write_settings(folder: Path, hooks: object) -> Settings:
    (folder / "viewkeeper.yml").write_text(
        "warehouse: ./warehouse\nsources: {shop: {kind: sqlite, path: shop.db}}\n"
        f"on_event: {json.dumps(hooks)}\n"
    )
    return read_settings(folder)


def save_into(path: Path) -> list[str]:
    return [sys.executable, "-c", SAVE, str(path)]


def send(settings: Settings, *changes: StateChange) -> None:
    hooks = EventHooks(settings)
    with hooks.calling_hooks():
        for change in changes:
            hooks.on_state_change(change)


def test_a_command_gets_the_event_as_json(folder: Path) -> None:
    send(write_settings(folder, [save_into(folder / "told")]), STOPPED)
    told = json.loads((folder / "told").read_text())
    assert told.pop("time").startswith("20")
    assert told == {
        "event": "view_stopped",
        "project": folder.name,
        "view": "lines",
        "source": None,
        "ts": 7,
        "text": 'view "lines" has stopped',
        "hint": "mend it",
    }


def test_a_schema_change_that_needs_approval_calls_the_hooks_once_in_a_run(
    folder: Path, spark: SparkSession
) -> None:
    append = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"
    told = folder / "told"
    settings = write_settings(folder, [[sys.executable, "-c", append, str(told)]])
    file = folder / settings.file_name
    file.write_text(f"{file.read_text()}evolution: {{policy: approve}}\n")
    (folder / "views" / "ids.sql").write_text(
        "CREATE MATERIALIZED VIEW ids AS SELECT id FROM shop.item"
    )
    with running(folder, spark) as project:
        wait_until(lambda: len(project.newest_head().views) == 2)
        assert not told.exists()
        change_shop(folder, "ALTER TABLE item RENAME COLUMN cents TO price")
        wait_until(lambda: told.exists() and told.read_text().endswith("\n"))
        for number in (2, 3):
            change_shop(folder, f"INSERT INTO item VALUES ({number}, 5)")
            wait_until(partial(has_rows, project, number))
    # At the end of a run, what is left in the queue is still sent.
    (found,) = map(json.loads, told.read_text().splitlines())
    assert (found["event"], found["view"]) == ("change_proposed", "items")
    assert "is held at a schema change that needs approval" in found["text"]
    assert "viewkeeper changes items" in found["hint"]


def change_shop(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as database, database:
        database.execute(statement)


def has_rows(project: Project, count: int) -> bool:
    """Whether the view that is not held shows so many rows."""
    return project.view("ids").arrow().num_rows == count


def test_there_is_no_shell(folder: Path) -> None:
    odd = "$(touch evil); touch evil & `touch evil` > evil"
    command = [sys.executable, "-c", "import sys; open('words', 'w').write(sys.argv[1])", odd]
    send(write_settings(folder, [command]), STOPPED)
    assert (folder / "words").read_text() == odd
    assert not (folder / "evil").exists()
    send(write_settings(folder, f"{sys.executable} -c \"open('text', 'w')\" > evil"), STOPPED)
    assert (folder / "text").exists()
    assert not (folder / "evil").exists()


def test_variables_are_filled_when_it_is_called(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = write_settings(folder, [save_into(folder / "${WHERE}")])
    send(settings, STOPPED)
    assert "WHERE is not set" in caplog.text
    monkeypatch.setenv("WHERE", "there")
    send(settings, STOPPED)
    assert (folder / "there").exists()


def test_hooks_hear_of_what_they_ask_for(folder: Path) -> None:
    all_of_them = {"command": save_into(folder / "all"), "events": list(EVENTS)}
    send(write_settings(folder, [save_into(folder / "bad"), all_of_them]), BACK)
    assert (folder / "all").exists()
    assert not (folder / "bad").exists()
    assert set(BAD_EVENTS) < set(EVENTS)


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (["no-such-program"], "No such file"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "ended with 3"),
        ("http://127.0.0.1:1/secret-hook", "cannot be reached"),
        ("http://127.0.0.1:1/secret hook", "hook 127.0.0.1 failed"),
    ],
)
def test_a_hook_that_fails_is_logged_and_the_next_is_called(
    folder: Path, caplog: pytest.LogCaptureFixture, hook: object, words: str
) -> None:
    send(write_settings(folder, [hook, save_into(folder / "next")]), STOPPED)
    assert (folder / "next").exists()
    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert words in record.getMessage()
    assert "secret" not in record.getMessage()


def test_a_command_that_hangs_is_killed_with_all_it_started(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('child', 'w').write(str(child.pid)); time.sleep(600)\n"
    )
    hook = {"command": [sys.executable, "-c", script], "timeout": "2s"}
    send(write_settings(folder, [hook]), STOPPED)
    assert "longer than 2 s" in caplog.text
    child, end = int((folder / "child").read_text()), time.monotonic() + 30
    while is_running(child):
        assert time.monotonic() < end, "what it started goes on"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_nobody_waits_for_a_hook(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewkeeper.engine.event_hooks.WAITING_MAX", 3)
    gate = folder / "gate"
    os.mkfifo(gate)
    script = "import sys; open(sys.argv[1]).read()"
    hook = {"command": [sys.executable, "-c", script, str(gate)], "timeout": "60s"}
    hooks = EventHooks(write_settings(folder, [hook]))
    with hooks.calling_hooks():
        for _ in range(9):
            hooks.on_state_change(STOPPED)
        assert "too many events wait" in caplog.text
        stop = threading.Event()
        opener = threading.Thread(target=open_gate, args=(gate, stop))
        opener.start()
    # It was full when it ended, and ended all the same.
    assert "viewkeeper-hooks" not in [thread.name for thread in threading.enumerate()]
    stop.set()
    with closing(os.fdopen(os.open(gate, os.O_RDONLY | os.O_NONBLOCK))):
        opener.join(30)
    assert not opener.is_alive()


class Kinds(SilentObserver):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_state_change(self, change: StateChange) -> None:
        self.seen.append(change.kind)

    def have_seen(self, kinds: list[str]) -> bool:
        return self.seen == kinds


def test_nobody_waits_for_a_hook_when_files_are_taken_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another session begins then, with the hooks that the files name now."""
    monkeypatch.setattr(SparkHandle, "begin_start", lambda _: None)
    monkeypatch.setattr("viewkeeper.engine.event_hooks.END_SECONDS", 600.0)
    gate, told = folder / "gate", folder / "told"
    os.mkfifo(gate)
    reading = [sys.executable, "-c", "import sys; open(sys.argv[1]).read()", str(gate)]
    hanging = {"command": reading, "timeout": "60s", "events": ["project_taken"]}
    write_settings(folder, [hanging])
    watching, stop = Kinds(), threading.Event()
    with viewkeeper.open(folder) as project:
        run = threading.Thread(target=project.run, args=(watching, stop), daemon=True)
        run.start()
        wait_until(lambda: project.newest_head().views)
        for count in (1, 2):
            saving = {"command": save_into(told), "events": ["project_taken"]}
            write_settings(folder, [{**hanging, "timeout": f"{60 + count}s"}, saving])
            wait_until(partial(watching.have_seen, ["project_taken"] * count))
        assert not told.exists()
        stop.set()
        opener = threading.Thread(target=open_gate, args=(gate, opened := threading.Event()))
        opener.start()
        run.join(60)
        opened.set()
    assert not run.is_alive()
    # What waited was called in the end.
    assert told.exists()
    with closing(os.fdopen(os.open(gate, os.O_RDONLY | os.O_NONBLOCK))):
        opener.join(30)


def open_gate(gate: Path, stop: threading.Event) -> None:
    while not stop.is_set():
        with gate.open("w"):
            pass


class Receiver(BaseHTTPRequestHandler):
    seen: list[tuple[str, Any]] = []  # noqa: RUF012 - of one test at a time

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, json.loads(body)))
        self.send_response(302 if "elsewhere" in self.path else 204)
        self.send_header("Location", "/redirected")
        self.end_headers()

    def do_GET(self) -> None:
        self.seen.append((self.path, None))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[str]:
    Receiver.seen.clear()
    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_address_gets_the_same_json(
    folder: Path, receiver: str, caplog: pytest.LogCaptureFixture
) -> None:
    send(write_settings(folder, [f"{receiver}/hook"]), STOPPED)
    ((path, told),) = Receiver.seen
    assert (path, told["event"], told["view"]) == ("/hook", "view_stopped", "lines")
    assert caplog.records == []


def test_an_address_that_leads_elsewhere_has_failed(
    folder: Path, receiver: str, caplog: pytest.LogCaptureFixture
) -> None:
    send(write_settings(folder, [f"{receiver}/elsewhere"]), STOPPED)
    assert [path for path, _ in Receiver.seen] == ["/elsewhere"]
    assert "answered with 302" in caplog.text


@pytest.mark.parametrize(
    ("hooks", "words"),
    [
        (7, "must name commands or addresses"),
        ([[]], "a command is a text"),
        ([[1]], "a command is a text"),
        ([""], "a command is a text"),
        (["say 'it"], "No closing quotation"),
        (["file:///etc/passwd"], "begins with https"),
        ([{"url": "ftp://x"}], "begins with https"),
        ([{"url": "https://x", "command": "y"}], "either a command or a url"),
        ([{"events": []}], "either a command or a url"),
        ([{"command": "y", "evnts": []}], 'unknown key "evnts"'),
        ([{"command": "y", "events": ["view_stoped"]}], "no event 'view_stoped'"),
        ([{"command": "y", "timeout": "1h"}], "at most 300s"),
        ([{"command": "y", "timeout": "0s"}], "more than 0s"),
        ([{"command": "y", "timeout": "soon"}], "a duration"),
    ],
)
def test_wrong_settings_are_refused(folder: Path, hooks: object, words: str) -> None:
    with pytest.raises(ProjectError, match=words):
        write_settings(folder, hooks)


def test_a_view_that_stops_and_a_source_that_goes_call_the_hook(folder: Path) -> None:
    append = "import sys; open('told', 'a').write(sys.stdin.read() + '\\n')"
    write_settings(folder, [[sys.executable, "-c", append]])
    with viewkeeper.open(folder) as project:
        project.refresh(SilentObserver())
        (folder / "shop.db").rename(folder / "gone.db")
        project.refresh(SilentObserver())
        (folder / "gone.db").rename(folder / "shop.db")
        with closing(sqlite3.connect(folder / "shop.db")) as database, database:
            database.execute("DROP TABLE item")
        project.refresh(SilentObserver())
    told = [json.loads(line) for line in (folder / "told").read_text().splitlines()]
    assert [(each["event"], each["source"], each["view"]) for each in told] == [
        ("source_away", "shop", None),
        ("view_stopped", None, "items"),
    ]
