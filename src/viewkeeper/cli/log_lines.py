"""Who watches maintenance for the user: log lines, a live display, or nobody.

Log lines are for files and pipes: one per load and trouble, and at most one a second for batches,
which sums up those in between. The live display is in `viewkeeper.cli.live_display`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from viewkeeper.cli.format import amount_text, duration_text
from viewkeeper.cli.terminal import print_note
from viewkeeper.engine.report import BatchReport
from viewkeeper.errors import ViewkeeperError

LINE_SECONDS = 1.0


@dataclass
class BatchTally:
    """Batches summed up."""

    batches: int = 0
    on_spark: int = 0
    transactions: int = 0
    changes: int = 0
    rows: int = 0
    lookups: int = 0
    seconds: float = 0.0
    freshness: float = 0.0

    def add_batch(self, batch: BatchReport) -> None:
        self.batches += 1
        self.on_spark += batch.where == "spark"
        self.transactions += batch.transactions
        self.changes += batch.changes
        self.rows += batch.rows
        self.lookups += sum(batch.lookups.values())
        self.seconds += batch.seconds
        self.freshness = max(self.freshness, batch.freshness or 0.0)


@dataclass
class LogLines:
    """An observer that writes lines; `quiet` leaves troubles only."""

    quiet: bool = False
    say: Callable[[str], None] = print_note
    clock: Callable[[], float] = time.monotonic
    _waiting: BatchTally = field(default_factory=BatchTally)
    _said_at: float = -LINE_SECONDS
    _troubles: dict[str, float] = field(default_factory=dict)

    def on_load_progress(self, view: str, stage: str) -> None:
        self._say_line(f"{view}: loading: {stage}")

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        self._say_line(f"{view}: loaded {amount_text(rows, 'row')} in {duration_text(seconds)}")

    def on_batch_commit(self, report: BatchReport) -> None:
        self._waiting.add_batch(report)
        if self.clock() - self._said_at >= LINE_SECONDS:
            self.flush_batches()

    def on_schema_change(self, view: str, what: str) -> None:
        self._say_line(f"{view}: {what}")

    def on_trouble(self, error: ViewkeeperError) -> None:
        """Said once a minute each: a source that is away is tried again and again."""
        text, now = str(error), self.clock()
        if now - self._troubles.get(text, -60.0) >= 60.0:
            self._troubles[text] = now
            self.say(f"{_time_text()} {text}")

    def flush_batches(self) -> None:
        """Say what was not said yet."""
        tally, self._waiting = self._waiting, BatchTally()
        if tally.batches:
            self._said_at = self.clock()
            self._say_line(batch_line(tally))

    def _say_line(self, text: str) -> None:
        if not self.quiet:
            self.say(f"{_time_text()} {text}")


def batch_line(tally: BatchTally) -> str:
    where = f", {tally.on_spark} on Spark" if tally.on_spark else ""
    return (
        f"{amount_text(tally.batches, 'batch', 'batches')}{where}: "
        f"{amount_text(tally.transactions, 'transaction')}, "
        f"{amount_text(tally.changes, 'change')} -> "
        f"{amount_text(tally.rows, 'row')}, {amount_text(tally.lookups, 'lookup')}, "
        f"{duration_text(tally.seconds)}, freshness {duration_text(tally.freshness)}"
    )


def _time_text() -> str:
    return datetime.now().strftime("%H:%M:%S")
