"""What maintenance did, in numbers: per batch as it happens, and summed for a whole refresh.

Whoever wants to know while it goes on, a display or a log, is an `Observer`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from viewkeeper.errors import ViewkeeperError


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One committed batch.

    `freshness` is the age in seconds, at the commit, of the oldest change in it. `rows` counts the
    signed rows that were written to views.
    """

    number: int
    where: Literal["inline", "spark"]
    views: tuple[str, ...]
    transactions: int
    changes: int
    rows: int
    lookups: Mapping[str, int]
    parts: int
    seconds: float
    freshness: float | None


@dataclass(slots=True)
class Report:
    """A refresh: what was maintained, and what had to wait and why."""

    transactions: int = 0
    changes: int = 0
    rows: int = 0
    batches: int = 0
    batches_on_spark: int = 0
    seconds: float = 0.0
    lookups: Counter[str] = field(default_factory=Counter)
    loaded: dict[str, int] = field(default_factory=dict)
    """Views that were loaded from scratch, with their number of rows."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Views that did not get all the way, and the reason."""

    def end_report(self, waiting: Mapping[str, str], seconds: float) -> None:
        """All is done that could be: what had to wait and why, and how long it took."""
        self.waiting, self.seconds = dict(waiting), seconds
        # Several are loaded side by side, and end in any order.
        self.loaded = dict(sorted(self.loaded.items()))

    def add_batch(self, batch: BatchReport) -> None:
        self.transactions += batch.transactions
        self.changes += batch.changes
        self.rows += batch.rows
        self.batches += 1
        self.batches_on_spark += batch.where == "spark"
        self.lookups.update(batch.lookups)


class Observer(Protocol):
    """Hears of what the engine does; all calls come from the maintaining thread."""

    def on_load_progress(self, view: str, stage: str) -> None:
        """The initial load of a view reached a stage."""
        ...

    def on_load_end(self, view: str, rows: int, seconds: float) -> None: ...

    def on_batch_commit(self, report: BatchReport) -> None: ...

    def on_schema_change(self, view: str, what: str) -> None:
        """A view met schema changes; what becomes of it."""
        ...

    def on_trouble(self, error: ViewkeeperError) -> None:
        """An error that the user should know; maintenance continues where it can."""
        ...


class SilentObserver:
    """An observer that keeps quiet."""

    def on_load_progress(self, view: str, stage: str) -> None:
        pass

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        pass

    def on_batch_commit(self, report: BatchReport) -> None:
        pass

    def on_schema_change(self, view: str, what: str) -> None:
        pass

    def on_trouble(self, error: ViewkeeperError) -> None:
        pass
