"""What maintenance did, in numbers: per batch as it happens, and summed for a whole refresh.

Whoever wants to know while it goes on, a display, a log, figures or hooks, is an `Observer`. There
is one stream of events: who has several observers passes it through an `ObserverGroup`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from viewkeeper.engine.settings.hook_settings import StateKind
from viewkeeper.errors import ViewkeeperError


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One committed batch.

    `freshness` is the age in seconds, at the commit, of the oldest change in it. `rows` counts the
    signed rows that were written to views. `ts` is the newest in it. `phases` says where its
    seconds went, as far as that was measured: `read`, `sweep`, `commit`. `view_rows`,
    `view_lookups` and `source_changes` are `rows`, `lookups` and `changes` by view, by view and by
    source, where that is known.
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
    ts: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)
    view_rows: Mapping[str, int] = field(default_factory=dict)
    source_changes: Mapping[str, int] = field(default_factory=dict)
    view_lookups: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StateChange:
    """A view or a source is in another state than before, which may want somebody's attention; or
    the project's files are, and were taken up or refused.

    `text` and `hint` name objects and numbers, and never quote a row; `reason` is everything that
    is known, for the eyes of who may read the views.
    """

    kind: StateKind
    text: str
    hint: str | None = None
    view: str | None = None
    source: str | None = None
    ts: int | None = None
    reason: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether something is well again."""
        return self.kind in ("view_resumed", "view_taken", "project_taken", "source_back")


@dataclass(slots=True, repr=False)
class Report:
    """A refresh: what was maintained, and what had to wait and why.

    >>> Report(transactions=3, changes=12, rows=7, batches=1, loaded={"lines": 100})
    <Report: 3 transactions, 12 changes, 7 rows written, loaded lines>
    >>> Report(waiting={"lines": "its source is away"})
    <Report: 0 transactions, 0 changes, 0 rows written, waiting: lines>
    """

    transactions: int = 0
    changes: int = 0
    rows: int = 0
    batches: int = 0
    batches_on_spark: int = 0
    seconds: float = 0.0
    lookups: dict[str, int] = field(default_factory=dict)
    loaded: dict[str, int] = field(default_factory=dict)
    """Views that were loaded from scratch, with their number of rows."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Views that did not get all the way, and the reason."""

    def __repr__(self) -> str:
        parts = [
            f"{self.transactions:,} transactions, {self.changes:,} changes",
            f"{self.rows:,} rows written",
        ]
        if self.loaded:
            parts.append(f"loaded {', '.join(self.loaded)}")
        if self.waiting:
            parts.append(f"waiting: {', '.join(self.waiting)}")
        return f"<Report: {', '.join(parts)}>"

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
        for source, count in batch.lookups.items():
            self.lookups[source] = self.lookups.get(source, 0) + count


class Observer(Protocol):
    """Hears of what the engine does; all calls come from the maintaining thread.

    A class that derives from it needs only the methods of what it wants to hear:

    >>> import sqlite3, tempfile, viewkeeper
    >>> class Printer(viewkeeper.Observer):
    ...     def on_load_end(self, view: str, rows: int, seconds: float) -> None:
    ...         print(f"{view} is loaded, rows: {rows}")

    >>> from pathlib import Path
    >>> place = tempfile.TemporaryDirectory()
    >>> folder = Path(place.name)
    >>> (folder / "views").mkdir()
    >>> database = sqlite3.connect(folder / "shop.db")
    >>> _ = database.executescript("CREATE TABLE city (name TEXT); INSERT INTO city VALUES ('Ulm')")
    >>> settings = "warehouse: w\\nsources: {shop: {kind: sqlite, path: shop.db}}"
    >>> _ = (folder / "viewkeeper.yml").write_text(settings)
    >>> text = "CREATE MATERIALIZED VIEW cities AS SELECT c.name FROM shop.city c"
    >>> _ = (folder / "views" / "cities.sql").write_text(text)
    >>> with viewkeeper.open(folder) as project:
    ...     report = project.refresh(Printer())
    cities is loaded, rows: 1
    >>> database.close(), place.cleanup()
    (None, None)
    """

    def on_load_progress(self, view: str, stage: str) -> None:
        """The initial load of a view reached a stage."""
        return

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        """A view is loaded."""
        return

    def on_batch_commit(self, report: BatchReport) -> None:
        """A batch is committed: its views show more than before."""
        return

    def on_schema_change(self, view: str, what: str) -> None:
        """A view met schema changes; what becomes of it."""
        return

    def on_trouble(self, error: ViewkeeperError) -> None:
        """An error that the user should know; maintenance continues where it can."""
        return

    def on_state_change(self, change: StateChange) -> None:
        """A view or a source is in another state than before; said once for each change."""
        return


class SilentObserver(Observer):
    """An observer that keeps quiet."""


class ObserverGroup:
    """Several observers who hear of the same, in their order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def on_load_progress(self, view: str, stage: str) -> None:
        for observer in self._observers:
            observer.on_load_progress(view, stage)

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        for observer in self._observers:
            observer.on_load_end(view, rows, seconds)

    def on_batch_commit(self, report: BatchReport) -> None:
        for observer in self._observers:
            observer.on_batch_commit(report)

    def on_schema_change(self, view: str, what: str) -> None:
        for observer in self._observers:
            observer.on_schema_change(view, what)

    def on_trouble(self, error: ViewkeeperError) -> None:
        for observer in self._observers:
            observer.on_trouble(error)

    def on_state_change(self, change: StateChange) -> None:
        for observer in self._observers:
            observer.on_state_change(change)
