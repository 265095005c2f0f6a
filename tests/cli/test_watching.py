"""What is told while views are maintained: log lines, and the live display on a fake terminal."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from viewkeeper.cli.live_display import LiveDisplay
from viewkeeper.cli.log_lines import LogLines
from viewkeeper.engine.report import BatchReport
from viewkeeper.engine.settings.project_file import read_settings
from viewkeeper.errors import SourceAwayError

BATCH = BatchReport(1, "inline", ("order_lines",), 2, 3, 5, {"crm": 1, "shop": 2}, 1, 0.02, 0.5)


def test_batches_in_between_are_summed_up() -> None:
    said: list[str] = []
    clock = iter([10.0, 10.0, 10.5, 11.5, 11.5]).__next__
    lines = LogLines(say=said.append, clock=clock)
    for _ in range(3):
        lines.on_batch_commit(BATCH)
    assert [line[9:] for line in said] == [
        "1 batch: 2 transactions, 3 changes -> 5 rows, 3 lookups, 20 ms, freshness 500 ms",
        "2 batches: 4 transactions, 6 changes -> 10 rows, 6 lookups, 40 ms, freshness 500 ms",
    ]


def test_quiet_lines_are_troubles_once_a_minute() -> None:
    said: list[str] = []
    clock = iter([0.0, 30.0, 61.0]).__next__
    lines = LogLines(quiet=True, say=said.append, clock=clock)
    lines.on_load_end("order_lines", 6, 1.0)
    for _ in range(3):
        lines.on_trouble(SourceAwayError("crm", "gone", hint="bring it back"))
    assert len(said) == 2
    assert all('source "crm": gone' in line for line in said)


def test_the_live_display_shows_views_sources_and_throughput(shop: Path) -> None:
    (shop / "stock.db").unlink()
    out = io.StringIO()
    display = LiveDisplay(read_settings(shop), Console(file=out, width=120))
    display.on_load_progress("order_lines", "scanning and joining")
    display.console.print(display.render_display())
    shown = out.getvalue()
    for text in ("order_lines", "not loaded yet", "away", "scanning and joining, 0 ms"):
        assert text in shown
    display.on_batch_commit(BATCH)
    display.console.print(display.render_display())
    assert "3 changes in 1 batch (1 inline, 0 on Spark), 3.0 lookups per batch" in out.getvalue()
