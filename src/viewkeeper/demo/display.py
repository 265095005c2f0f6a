"""What the demo shows while it runs: a table that changes on a terminal, plain lines elsewhere.

The *meter* is told of every batch by the maintaining thread and samples from the main thread; the
*screen* turns it into text. What has been written is counted from the writers' journals, for
databases of all kinds alike, and lag in transactions: those that are in the journals and not yet in
the view over the ledger.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from viewkeeper.demo.demo_world import VIEW, ledger_view
from viewkeeper.engine.project import Project
from viewkeeper.engine.report import BatchReport, Observer
from viewkeeper.errors import ViewkeeperError

RATE_SECONDS = 4.0
LINE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class MeterSample:
    """A moment: changes written, changes maintained, and the lag per database."""

    at: float
    seen: int = 0
    maintained: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    ts: int = 0


class JournalTally:
    """What the writers have noted so far; reads on where it stopped."""

    def __init__(self, journals: Mapping[str, Sequence[Path]]) -> None:
        self._journals = journals
        self._read: Counter[Path] = Counter()
        self.transactions: Counter[str] = Counter(dict.fromkeys(journals, 0))
        self.changes = 0

    def update_counts(self) -> None:
        for name, journals in self._journals.items():
            for journal in journals:
                for line in self._new_lines(journal):
                    self.transactions[name] += 1
                    # One more than is noted: the row in the ledger.
                    self.changes += len(json.loads(line)["changes"]) + 1

    def _new_lines(self, journal: Path) -> list[bytes]:
        """The lines that are new, as far as they are whole."""
        if not journal.exists():
            return []
        with journal.open("rb") as file:
            file.seek(self._read[journal])
            whole, end, _ = file.read().rpartition(b"\n")
        self._read[journal] += len(whole) + len(end)
        return whole.splitlines()


class DemoMeter(Observer):
    """Counts what happens; what a change of state has of interest, `on_trouble` has said."""

    def __init__(self, clock: float, tally: JournalTally) -> None:
        self._tally = tally
        self.phase = "starting"
        self.reached: str | None = None
        self.loaded_at: float | None = None
        self.views: dict[str, int] = {}
        self.batches: list[BatchReport] = []
        self.steady: list[float] = []
        self.troubles: list[str] = []
        self.samples: deque[MeterSample] = deque([MeterSample(clock)], maxlen=1000)
        self.started = clock

    def on_load_progress(self, view: str, stage: str) -> None:
        self.reached = view
        self.phase = f"loading {view}: {stage}"

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        self.views[view] = rows
        if view == VIEW:
            self.loaded_at = time.monotonic()
            self.phase = "keeping the views fresh while the writers write"

    def on_batch_commit(self, report: BatchReport) -> None:
        self.batches.append(report)
        since_load = time.monotonic() - self.loaded_at if self.loaded_at else 0.0
        # The batch that catches up with the load has changes as old as the load took.
        if report.freshness is not None and report.freshness <= since_load:
            self.steady.append(report.freshness)

    def on_schema_change(self, view: str, what: str) -> None:
        self.troubles.append(f"{view}: {what}")

    def on_trouble(self, error: ViewkeeperError) -> None:
        self.troubles.append(str(error))

    def take_sample(self, project: Project) -> None:
        views = project.newest_head().views
        self._tally.update_counts()
        shown = {n: ledger_view(n) for n in self._tally.transactions}
        rows = {n: views[view].rows if view in views else 0 for n, view in shown.items()}
        self.samples.append(
            MeterSample(
                time.monotonic(),
                self._tally.changes,
                self.changes,
                # A view may show what its writer is about to note.
                {n: max(0, count - rows[n]) for n, count in self._tally.transactions.items()},
                views[VIEW].rows if VIEW in views else 0,
                views[VIEW].ts if VIEW in views else 0,
            )
        )

    @property
    def changes(self) -> int:
        return sum(batch.changes for batch in self.batches)

    @property
    def spark_batches(self) -> int:
        return sum(batch.where == "spark" for batch in self.batches)

    @property
    def inline_batches(self) -> int:
        return len(self.batches) - self.spark_batches

    @property
    def lookups(self) -> int:
        return sum(sum(batch.lookups.values()) for batch in self.batches)

    def lookups_of(self, source: str) -> int:
        """How often a source was asked."""
        return sum(batch.lookups.get(source, 0) for batch in self.batches)

    @property
    def lookups_per_batch(self) -> float:
        return self.lookups / max(1, len(self.batches))

    def recent_rates(self) -> tuple[float, float]:
        """Changes per second seen and maintained, over the last seconds."""
        last = self.samples[-1]
        first = next(s for s in self.samples if s.at >= last.at - RATE_SECONDS)
        seconds = last.at - first.at or 1.0
        seen, maintained = last.seen - first.seen, last.maintained - first.maintained
        return seen / seconds, maintained / seconds


def percentile_of(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed; 0 if none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


class DemoScreen:
    """Shows progress: live on a terminal, as lines elsewhere, not at all if quiet."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._live: Live | None = None
        self._said = -math.inf

    def print_text(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, highlight=False, soft_wrap=not self._console.is_terminal)

    def print_content(self, content: object) -> None:
        if not self._quiet:
            self._console.print(content)

    @contextmanager
    def show_live(self) -> Iterator[None]:
        """Show the meter from here on."""
        if self._quiet or not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def show_meter(self, meter: DemoMeter, until: float | None) -> None:
        """The meter as it is now; `until` is when the writers are to stop."""
        if self._live is not None:
            self._live.update(meter_table(meter, until), refresh=True)
        elif time.monotonic() - self._said >= LINE_SECONDS:
            self._said = time.monotonic()
            self.print_text(meter_line(meter))


def meter_table(meter: DemoMeter, until: float | None) -> Table:
    """Everything, as a table."""
    last, (seen, maintained) = meter.samples[-1], meter.recent_rates()
    elapsed = f"{last.at - meter.started:.0f} s"
    if until is not None:
        elapsed += f", {max(0.0, until - last.at):.0f} s to go"
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    for name, text in {
        "phase": f"{meter.phase} ({elapsed})",
        "changes": f"{last.seen:,} seen ({seen:,.0f}/s), "
        f"{last.maintained:,} maintained ({maintained:,.0f}/s)",
        "freshness": freshness_text(meter),
        "lag": ", ".join(f"{name} {lag:,}" for name, lag in last.lag.items()) + " transactions",
        "batches": (
            f"{meter.inline_batches} inline, {meter.spark_batches} on Spark{last_batch_text(meter)}"
        ),
        "lookups": f"{meter.lookups:,}, {meter.lookups_per_batch:.1f} per batch",
        "view": f"{VIEW}: {last.rows:,} rows at ts {last.ts:,}",
        **({"trouble": meter.troubles[-1]} if meter.troubles else {}),
    }.items():
        table.add_row(name, text)
    return table


def freshness_text(meter: DemoMeter) -> str:
    if not meter.steady:
        return "-"
    p50, p95, p99 = (percentile_of(meter.steady, share) for share in (0.5, 0.95, 0.99))
    return f"last {meter.steady[-1]:.2f} s, p50 {p50:.2f} s, p95 {p95:.2f} s, p99 {p99:.2f} s"


def last_batch_text(meter: DemoMeter) -> str:
    if not meter.batches:
        return ""
    last = meter.batches[-1]
    where = "on Spark" if last.where == "spark" else "inline"
    lookups = sum(last.lookups.values())
    return f"; last: {last.changes:,} changes {where}, {lookups} lookups, {last.seconds:.2f} s"


def meter_line(meter: DemoMeter) -> str:
    """The most important, in one line."""
    last, (seen, maintained) = meter.samples[-1], meter.recent_rates()
    lag = ", ".join(f"{name} {lag:,}" for name, lag in last.lag.items())
    return (
        f"{last.at - meter.started:4.0f} s  {seen:,.0f}/s seen, {maintained:,.0f}/s maintained; "
        f"freshness {freshness_text(meter)}; lag {lag}; batches {meter.inline_batches} inline, "
        f"{meter.spark_batches} on Spark; {meter.lookups_per_batch:.1f} lookups per batch; "
        f"{last.rows:,} rows"
    )
