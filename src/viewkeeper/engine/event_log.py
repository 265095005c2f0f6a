"""The log of events: what an observer hears, as records of the standard `logging` module.

All go to the logger `viewkeeper`, so that a program that opens a project has them wherever its own
records go, and `viewkeeper run` where `--log-format` says. A record is one event and one line; its
facts (view, batch, ts and numbers) are in the attribute `facts`, for writers of JSON.

Nothing of a row's values is written: an error that quotes one (`ConversionError`,
`ExpressionError`, those that nobody foresaw) is logged by its kind and the object that it names,
and `viewkeeper status` shows the rest to who may read the views.

Batches are summed up, at most one record a second; at the level DEBUG each has its own. A trouble
that stays is said once a minute.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from viewkeeper.engine.report import BatchReport, Observer, Report, StateChange
from viewkeeper.errors import (
    ConversionError,
    ExpressionError,
    UnexpectedSourceError,
    UnexpectedViewError,
    ViewkeeperError,
)

LOGGER = "viewkeeper"
LINE_SECONDS = 1.0
TROUBLE_SECONDS = 60.0
TROUBLES_MAX = 1_000
"""So many different troubles are remembered as said."""

SEE_STATUS = "`viewkeeper status` shows all of it"


@dataclass
class BatchTally:
    """Batches summed up; `number`, `ts` and `views` are of the last one."""

    batches: int = 0
    on_spark: int = 0
    transactions: int = 0
    changes: int = 0
    rows: int = 0
    lookups: int = 0
    seconds: float = 0.0
    freshness: float = 0.0
    number: int = 0
    ts: int = 0
    views: tuple[str, ...] = ()

    def add_batch(self, batch: BatchReport) -> None:
        self.batches += 1
        self.on_spark += batch.where == "spark"
        self.transactions += batch.transactions
        self.changes += batch.changes
        self.rows += batch.rows
        self.lookups += sum(batch.lookups.values())
        self.seconds += batch.seconds
        self.freshness = max(self.freshness, batch.freshness or 0.0)
        self.number, self.ts, self.views = batch.number, batch.ts, batch.views


@dataclass(frozen=True, slots=True)
class LoggedError:
    """What may be written down of an error: its kind, the object that it names, the way out."""

    kind: str
    message: str
    detail: str | None
    hint: str | None

    @property
    def text(self) -> str:
        """All of it in one line."""
        named = (("detail", self.detail), ("hint", self.hint))
        parts = [self.message, *(f"{word}: {part}" for word, part in named if part)]
        return "; ".join(" ".join(part.split()) for part in parts)


def logged_error(error: ViewkeeperError) -> LoggedError:
    """An error without anything that can quote a row.

    >>> logged_error(ConversionError("crm", "column price: 'a lot' is not a number")).text
    'source "crm": a value does not fit the type of its column; hint: `viewkeeper status` shows \
all of it'
    """
    kind = type(error).__name__
    match error:
        case ConversionError(source=str() as source):
            text = f'source "{source}": a value does not fit the type of its column'
            return LoggedError(kind, text, None, SEE_STATUS)
        case ExpressionError():
            return LoggedError(kind, "an expression of a view failed", None, SEE_STATUS)
        case UnexpectedSourceError(source=str() as source):
            text = f'source "{source}": an unexpected error'
            return LoggedError(kind, text, error.detail, error.hint)
        case UnexpectedViewError(view=str() as view):
            text = f'view "{view}": an unexpected error'
            return LoggedError(kind, text, error.detail, error.hint)
    return LoggedError(kind, error.message, error.detail, error.hint)


@dataclass
class EventLog:
    """An observer that writes records."""

    logger: logging.Logger = field(default_factory=lambda: logging.getLogger(LOGGER))
    clock: Callable[[], float] = time.monotonic
    _waiting: BatchTally = field(default_factory=BatchTally)
    _said_at: float = -LINE_SECONDS
    _troubles: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Batches that wait may be flushed by another thread, so that no line comes late."""

    def say(self, text: str) -> None:
        """A remark of the program itself."""
        self._log(logging.INFO, "note", text, {})

    def on_load_progress(self, view: str, stage: str) -> None:
        text = f"{view}: loading: {stage}"
        self._log(logging.INFO, "load_progress", text, {"view": view, "stage": stage})

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        facts = {"view": view, "rows": rows, "seconds": round(seconds, 3)}
        self._log(
            logging.INFO, "load_end", f"{view}: loaded {rows:,} rows in {seconds:.1f} s", facts
        )

    def on_batch_commit(self, report: BatchReport) -> None:
        if self.logger.isEnabledFor(logging.DEBUG):
            one = BatchTally()
            one.add_batch(report)
            phases = {name: round(seconds, 6) for name, seconds in report.phases.items()}
            self._log_batches(logging.DEBUG, "batch", one, {"where": report.where, **phases})
            return
        with self._lock:
            self._waiting.add_batch(report)
        if self.clock() - self._said_at >= LINE_SECONDS:
            self.flush_batches()

    def on_schema_change(self, view: str, what: str) -> None:
        text = f"{view}: {' '.join(what.split())}"
        self._log(logging.INFO, "schema_change", text, {"view": view})

    def on_trouble(self, error: ViewkeeperError) -> None:
        """Said once a minute each: a source that is away is tried again and again."""
        found, now = logged_error(error), self.clock()
        if now - self._troubles.get(found.text, -TROUBLE_SECONDS) < TROUBLE_SECONDS:
            return
        if len(self._troubles) >= TROUBLES_MAX:
            self._troubles.clear()
        self._troubles[found.text] = now
        facts = {"error": found.kind, "detail": found.detail, "hint": found.hint}
        named = {key: getattr(error, key, None) for key in ("view", "source")}
        self._log(logging.WARNING, "trouble", found.text, {**named, **facts})

    def on_state_change(self, change: StateChange) -> None:
        level = logging.INFO if change.is_good else logging.WARNING
        facts = {"view": change.view, "source": change.source, "ts": change.ts, "hint": change.hint}
        text = f"{change.text}; hint: {change.hint}" if change.hint else change.text
        self._log(level, change.kind, text, facts)

    def log_end(self, report: Report) -> None:
        """What a whole run did, and which views did not get all the way."""
        self.flush_batches()
        waiting = sorted(report.waiting)
        text = f"ended after {report.seconds:.1f} s: {_count_text(report.batches, 'batch', 'es')}"
        if waiting:
            text += f"; not up to date: {', '.join(waiting)}; hint: {SEE_STATUS}"
        facts = {
            "batches": report.batches,
            "on_spark": report.batches_on_spark,
            "transactions": report.transactions,
            "changes": report.changes,
            "rows": report.rows,
            "lookups": sum(report.lookups.values()),
            "seconds": round(report.seconds, 3),
            "loaded": report.loaded,
            "waiting": waiting,
        }
        self._log(logging.WARNING if waiting else logging.INFO, "end", text, facts)

    def flush_batches(self) -> None:
        """Say what was not said yet."""
        with self._lock:
            tally, self._waiting = self._waiting, BatchTally()
        if tally.batches:
            self._said_at = self.clock()
            self._log_batches(logging.INFO, "batches", tally, {"batches": tally.batches})

    def _log_batches(
        self, level: int, event: str, tally: BatchTally, more: Mapping[str, object]
    ) -> None:
        facts = {
            "view": ",".join(tally.views),
            "batch": tally.number,
            "ts": tally.ts,
            **more,
            "on_spark": tally.on_spark,
            "transactions": tally.transactions,
            "changes": tally.changes,
            "rows": tally.rows,
            "lookups": tally.lookups,
            "seconds": round(tally.seconds, 6),
            "freshness": round(tally.freshness, 6),
        }
        self._log(level, event, batch_text(tally), facts)

    def _log(self, level: int, event: str, text: str, facts: Mapping[str, object]) -> None:
        known = {key: value for key, value in facts.items() if value is not None}
        self.logger.log(level, "%s", text, extra={"event": event, "facts": known})


@contextmanager
def use_observer(observer: Observer | None) -> Iterator[Observer]:
    """The observer that is given, or else the log."""
    if observer is not None:
        yield observer
        return
    log = EventLog()
    try:
        yield log
    finally:
        log.flush_batches()


def batch_text(tally: BatchTally) -> str:
    """Batches in words."""
    where = f", {tally.on_spark} on Spark" if tally.on_spark else ""
    return (
        f"{_count_text(tally.batches, 'batch', 'es')}{where}: "
        f"{_count_text(tally.transactions, 'transaction')}, "
        f"{_count_text(tally.changes, 'change')} -> "
        f"{_count_text(tally.rows, 'row')}, {_count_text(tally.lookups, 'lookup')}, "
        f"{tally.seconds:.3f} s, freshness {tally.freshness:.3f} s, "
        f"to ts {tally.ts} (batch {tally.number}) of {', '.join(tally.views)}"
    )


def _count_text(number: int, noun: str, ending: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else ending}"
