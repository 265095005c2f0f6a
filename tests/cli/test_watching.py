"""What is said while views are maintained: the log, and the live display on a fake terminal."""

from __future__ import annotations

import io
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import viewkeeper
from tests.cli.conftest import call
from viewkeeper.cli.live_display import LiveDisplay
from viewkeeper.cli.log_output import (
    JsonFormatter,
    NoteHandler,
    RunLogHandler,
    TextFormatter,
    keeping_stderr,
    writing_log,
)
from viewkeeper.engine.event_log import EventLog
from viewkeeper.engine.report import BatchReport, SilentObserver, StateChange
from viewkeeper.engine.settings.project_file import Settings, read_settings
from viewkeeper.errors import (
    ConversionError,
    ExpressionError,
    SourceAwayError,
    UnexpectedSourceError,
    UnexpectedViewError,
)
from viewkeeper.web.project_monitor import StatusReader

BATCH = BatchReport(
    *(7, "inline", ("order_lines",), 2, 3, 5, {"crm": 1, "shop": 2}, 1, 0.02, 0.5),
    ts=41,
    phases={"read": 0.01},
)


@pytest.fixture
def plain(shop: Path) -> Path:
    """The sample without its report, so that nothing needs Spark."""
    (shop / "views" / "customer_totals.sql").unlink()
    return shop


def test_batches_in_between_are_summed_up() -> None:
    log = EventLog(clock=iter([10.0, 10.0, 10.5, 11.5, 11.5]).__next__)
    said: list[str] = []
    with writing_log("info", "text", NoteHandler(said.append)):
        for _ in range(3):
            log.on_batch_commit(BATCH)
    assert [line[25:] for line in said] == [
        "info    1 batch: 2 transactions, 3 changes -> 5 rows, 3 lookups, 0.020 s, freshness 0.500"
        " s, to ts 41 (batch 7) of order_lines",
        "info    2 batches: 4 transactions, 6 changes -> 10 rows, 6 lookups, 0.040 s, freshness"
        " 0.500 s, to ts 41 (batch 7) of order_lines",
    ]


def test_debug_has_a_line_for_each_batch_with_view_batch_and_ts() -> None:
    log, said = EventLog(clock=lambda: 10.0), list[str]()
    with writing_log("debug", "json", NoteHandler(said.append)):
        for _ in range(3):
            log.on_batch_commit(BATCH)
    events = [json.loads(line) for line in said]
    assert len(events) == 3
    wanted = {"event": "batch", "level": "debug", "view": "order_lines", "batch": 7, "ts": 41}
    assert wanted.items() <= events[0].items()
    assert events[0]["read"] == 0.01


def test_warnings_are_troubles_once_a_minute() -> None:
    log, said = EventLog(clock=iter([0.0, 30.0, 61.0]).__next__), list[str]()
    with writing_log("warning", "text", NoteHandler(said.append)):
        log.on_load_end("order_lines", 6, 1.0)
        for _ in range(3):
            log.on_trouble(SourceAwayError("crm", "gone", hint="bring it back"))
    assert len(said) == 2
    assert all('source "crm": gone; hint: bring it back' in line for line in said)


SECRET = "4711-hunter2"


def make_errors() -> Iterator[viewkeeper.ViewkeeperError]:
    yield ConversionError("crm", f'column "price": {SECRET} is not a number', detail=SECRET)
    yield ExpressionError(f"an expression failed on {SECRET}", detail=f"the value {SECRET}")
    yield UnexpectedSourceError("crm", ValueError(f"cannot read {SECRET}"))
    yield UnexpectedViewError("order_lines", ValueError(f"cannot read {SECRET}"))


@pytest.mark.parametrize("error", list(make_errors()), ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("form", ["text", "json"])
def test_nothing_of_a_row_is_logged(error: viewkeeper.ViewkeeperError, form: str) -> None:
    assert SECRET in str(error)
    log, said = EventLog(), list[str]()
    with writing_log("debug", form, NoteHandler(said.append)):
        log.on_trouble(error)
        log.on_state_change(
            StateChange("view_stopped", 'view "a" has stopped', "see", view="a", reason=str(error))
        )
    assert len(said) == 2
    assert not [line for line in said if SECRET in line]


def test_every_event_is_one_line() -> None:
    record = logging.LogRecord("viewkeeper", logging.INFO, "", 0, "two\nlines \x1b[2J", None, None)
    for formatter in (TextFormatter(), JsonFormatter()):
        assert "\n" not in formatter.format(record)
    assert json.loads(JsonFormatter().format(record))["message"] == "two\nlines \x1b[2J"


def test_the_log_file_is_the_stderr_and_is_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewkeeper.cli.log_output.FILE_BYTES", 300)
    path = tmp_path / "warehouse" / "run.log"
    with keeping_stderr(), writing_log("info", "text", RunLogHandler(path)):
        log = EventLog()
        for number in range(40):
            log.say(f"remark {number}")
            os.write(2, f"Java {number}\n".encode())
    names = sorted(file.name for file in path.parent.iterdir())
    assert names == ["run.log", "run.log.1", "run.log.2", "run.log.3"]
    assert "remark 39" in path.read_text()
    assert "Java 39" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    os.write(2, b"")


def test_run_writes_json_lines_and_nothing_else(plain: Path) -> None:
    done = call("run", "--once", "--log-format", "json", "--log-level", "debug")
    assert done.exit_code == 0, done.output
    events = [json.loads(line) for line in done.stderr.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds.count("load_end") == 2
    assert kinds[-1] == "end"
    assert {"time", "level", "event", "message"} <= events[0].keys()
    with sqlite3.connect(plain / "shop.db") as database:
        database.execute("UPDATE item SET quantity = quantity + 1")
    database.close()
    done = call("run", "--once", "--log-format", "json", "--log-level", "debug")
    batches = [json.loads(x) for x in done.stderr.splitlines() if json.loads(x)["event"] == "batch"]
    assert batches
    assert {"view", "batch", "ts", "changes", "read", "sweep", "commit"} <= batches[0].keys()
    assert batches[0]["ts"] > 0


def test_quiet_logs_warnings_only(plain: Path) -> None:
    (plain / "stock.db").unlink()
    done = call("run", "--once", "--quiet")
    assert done.exit_code == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("20")]
    assert lines
    assert all(" warning " in line for line in lines)
    assert any('source "stock"' in line for line in lines)


def test_a_python_program_has_the_events_in_its_own_log(
    plain: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "viewkeeper"), viewkeeper.open(plain) as project:
        project.refresh()
    events = [getattr(record, "event", None) for record in caplog.records]
    assert events.count("load_end") == 2


class StateChanges(SilentObserver):
    def __init__(self) -> None:
        self.changes: list[StateChange] = []

    def on_state_change(self, change: StateChange) -> None:
        self.changes.append(change)


def test_sources_that_go_and_come_back_are_said_once(plain: Path) -> None:
    watching = StateChanges()
    with viewkeeper.open(plain) as project:
        project.refresh(watching)
        assert watching.changes == []
        (plain / "stock.db").rename(plain / "elsewhere.db")
        project.refresh(watching)
        (away,) = watching.changes
        assert (away.kind, away.source) == ("source_away", "stock")


def test_a_view_that_stops_is_said_with_its_cause(plain: Path) -> None:
    watching = StateChanges()
    with viewkeeper.open(plain) as project:
        project.refresh(watching)
        with sqlite3.connect(plain / "shop.db") as database:
            database.execute("DROP TABLE item")
        database.close()
        project.refresh(watching)
        stopped = [change for change in watching.changes if change.kind == "view_stopped"]
        assert {change.view for change in stopped} >= {"order_lines"}
        assert all(change.reason for change in stopped)


def test_the_live_display_waits_for_no_source(shop: Path) -> None:
    answer = threading.Event()

    def settings_now() -> Settings:
        answer.wait(60)
        return read_settings(shop)

    out = io.StringIO()
    reader = StatusReader(settings_now)
    display = LiveDisplay(reader, Console(file=out, width=120))
    with reader.reading_status():
        display.console.print(display.render_display())
        display.say("a line of the log")
        assert not answer.is_set()
        answer.set()
    assert "starting, " in out.getvalue()
    assert "a line of the log" in out.getvalue()


def test_the_live_display_shows_views_sources_and_throughput(shop: Path) -> None:
    (shop / "stock.db").unlink()
    out = io.StringIO()
    reader = StatusReader(lambda: read_settings(shop))
    display = LiveDisplay(reader, Console(file=out, width=120))
    with reader.reading_status():
        reader.read_latest(0.0, 60.0)
        display.on_load_progress("order_lines", "scanning and joining")
        display.console.print(display.render_display())
        shown = out.getvalue()
        for text in ("order_lines", "not loaded yet", "away", "scanning and joining, "):
            assert text in shown
        display.on_batch_commit(BATCH)
        display.console.print(display.render_display())
    assert "3 changes in 1 batch (1 inline, 0 on Spark), 3.0 lookups per batch" in out.getvalue()
