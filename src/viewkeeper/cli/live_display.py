"""The live display of `viewkeeper run` on a terminal: views, sources, throughput, and what happens.

Two things feed it. Batches and loads are told by the maintaining thread; the committed head and
the sources' logs are read by a `StatusReader`, as for the web page, about once a second, so that it
also shows the lag of a source whose view does not advance. Nothing is waited for while it is drawn:
lines that are said meanwhile wait for the drawing, and the maintaining thread for its lines.

Java writes to stderr whenever it likes, which would tear the display. So while it is up, stderr is
the file `run.log` in the warehouse (`viewkeeper.cli.log_output`), and the display has the terminal
for itself. Lines about loads and troubles come from the log.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from viewkeeper.cli.format import amount_text, duration_text, kept_text
from viewkeeper.cli.terminal import make_grid
from viewkeeper.engine.event_log import BatchTally
from viewkeeper.engine.operations.project_status import ProjectStatus, ViewStatus
from viewkeeper.engine.report import BatchReport, Observer
from viewkeeper.sources.kinds import position_text_of
from viewkeeper.web.project_monitor import StatusReader

READ_SECONDS = 1.0
WINDOW_SECONDS = 10.0


@contextmanager
def own_console(terminal: int) -> Iterator[Console]:
    """A console on the terminal behind a descriptor, whatever stderr is now."""
    with os.fdopen(os.dup(terminal), "w", encoding="utf-8") as stream:
        yield Console(file=stream, highlight=False, emoji=False, force_terminal=True)


@dataclass(frozen=True, slots=True)
class DisplayStage:
    """What is being done, if anything is to be said of it, and since when."""

    text: str
    began: float


class LiveDisplay(Observer):
    """An observer with a screen; use as a context manager. Of other events the log has lines, which
    are shown above it."""

    def __init__(self, reader: StatusReader, target: Console) -> None:
        self._reader = reader
        self.console = target
        self._total = BatchTally()
        self._recent: deque[tuple[float, BatchReport]] = deque()
        self._fresh: dict[str, float] = {}
        self._stage = DisplayStage("starting", time.monotonic())
        self._started = time.monotonic()
        self._live = Live(
            get_renderable=self.render_display,
            console=self.console,
            refresh_per_second=4,
            transient=True,
        )

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        """A line that stays, above the display."""
        self.console.print(Text(line), soft_wrap=True)

    def on_load_progress(self, view: str, stage: str) -> None:
        same = self._stage.text.startswith(f"{view}: ")
        began = self._stage.began if same else time.monotonic()
        self._stage = DisplayStage(f"{view}: {stage}", began)

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        self._stage = DisplayStage("", time.monotonic())

    def on_batch_commit(self, report: BatchReport) -> None:
        self._total.add_batch(report)
        self._recent.append((time.monotonic(), report))
        for view in report.views:
            self._fresh[view] = report.freshness or 0.0

    def render_display(self) -> RenderableType:
        """The whole display; called by its own thread, four times a second."""
        now = time.monotonic()
        reading = self._reader.read_latest(READ_SECONDS, 0.0)
        parts: list[RenderableType] = []
        if reading.status is not None:
            if self._stage.text == "starting" and all(v.loaded for v in reading.status.views):
                self._stage = DisplayStage("", self._stage.began)
            tables = (self._view_table(reading.status), source_table(reading.status))
            parts += [part for table in tables for part in (table, Text())]
        parts.append(self._footer_text(now, reading.trouble))
        if self._stage.text:
            took = duration_text(now - self._stage.began)
            parts.append(Spinner("dots", Text(f"{self._stage.text}, {took}")))
        return Group(*parts)

    def _view_table(self, status: ProjectStatus) -> RenderableType:
        table = make_grid("view", "rows>", "ts>", "last freshness>", "oldest waiting>", "state")
        for view in status.views:
            fresh = self._fresh.get(view.name)
            waiting = "?" if view.lag_seconds is None else duration_text(view.lag_seconds)
            table.add_row(
                view.name,
                "" if view.rows is None else f"{view.rows:,}",
                "" if view.ts is None else f"{view.ts:,}",
                "" if fresh is None else duration_text(fresh),
                waiting if view.lag_seconds else "",
                _state_text(view),
            )
        return table

    def _footer_text(self, now: float, trouble: str | None) -> Text:
        while self._recent and now - self._recent[0][0] > WINDOW_SECONDS:
            self._recent.popleft()
        window = min(WINDOW_SECONDS, max(now - self._started, 1.0))
        rate = sum(report.changes for _, report in list(self._recent)) / window
        total = self._total
        per_batch = total.lookups / total.batches if total.batches else 0.0
        line = (
            f"{rate:,.0f} changes/s   {amount_text(total.changes, 'change')} in "
            f"{amount_text(total.batches, 'batch', 'batches')} "
            f"({total.batches - total.on_spark} inline, {total.on_spark} on Spark), "
            f"{per_batch:.1f} lookups per batch   "
            f"up {duration_text(now - self._started)}   Ctrl-C stops"
        )
        return Text(f"{line}\n{trouble}" if trouble else line, "dim")


def source_table(status: ProjectStatus) -> RenderableType:
    """The sources: how far they are, and what of them is not shown yet."""
    table = make_grid("source", "position>", "waiting changes>", "oldest>", "log kept>", "state")
    for source in status.sources:
        changes, oldest = status.lag_of(source.name) or (0, 0.0)
        position = source.position
        table.add_row(
            source.name,
            "" if position is None else position_text_of(source.positions, position),
            f"{changes:,}",
            duration_text(oldest) if changes else "",
            kept_text(source.retained, source.unit),
            Text("away", "red") if source.error else Text("followed" if source.followed else ""),
        )
    return table


def _state_text(view: ViewStatus) -> Text:
    """How a view is, if it is not simply maintained."""
    if view.state == "maintained":
        return Text("")
    return Text(view.state_words, "red" if view.problem and not view.is_up else "")
