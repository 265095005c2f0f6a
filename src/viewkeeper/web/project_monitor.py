"""What is known of a running project: an observer that remembers, and a reader of its status.

Two things feed it, as they feed the live display. The maintaining thread tells of events, which are
noted under a lock that is held for microseconds. A thread of its own reads the status, as `status`
does, when somebody wants to know and the last one is too old for that, and never more than a fifth
of the time. Whoever asks waits for it, but not for long: a source that hangs delays nobody, what is
known is shown. So nobody who maintains ever waits for who watches.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from viewkeeper.engine.event_log import BatchTally
from viewkeeper.engine.operations.project_status import ProjectStatus, gather_status
from viewkeeper.engine.report import BatchReport, StateChange
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.errors import ViewkeeperError
from viewkeeper.warehouse.metadata.head import Head, read_head

REST_SHARE = 4.0
"""So many times as long as a reading took, no other one begins."""

RATE_SECONDS = 10.0
BATCHES_MAX, EVENTS_MAX = 60, 60
BUCKET_SECONDS, BUCKETS_MAX = 5.0, 180
JOIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class NotedBatch:
    """A batch, and when it was committed, in seconds since the epoch."""

    at: float
    report: BatchReport


@dataclass(frozen=True, slots=True)
class NotedEvent:
    """Something that happened, in words; `is_bad` if it wants attention."""

    at: float
    kind: str
    text: str
    hint: str | None
    is_bad: bool


@dataclass(slots=True)
class ViewTally:
    """What happened to one view since the run began."""

    inline: int = 0
    on_spark: int = 0
    rows: int = 0
    lookups: int = 0
    loading: str | None = None
    fresh: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=BUCKETS_MAX))
    """Every five seconds with a batch: their time, and the age of the oldest change in them."""

    def note_batch(self, at: float, report: BatchReport, view: str) -> None:
        """A batch had this view."""
        self.inline += report.where == "inline"
        self.on_spark += report.where == "spark"
        self.rows += report.view_rows.get(view, 0)
        self.lookups += report.view_lookups.get(view, 0)
        if report.freshness is None:
            return
        bucket = at - at % BUCKET_SECONDS
        if self.fresh and self.fresh[-1][0] == bucket:
            self.fresh[-1] = bucket, max(self.fresh[-1][1], report.freshness)
        else:
            self.fresh.append((bucket, report.freshness))

    def copy_tally(self) -> ViewTally:
        """The same, for another thread."""
        return replace(self, fresh=deque(self.fresh, maxlen=BUCKETS_MAX))


@dataclass(frozen=True, slots=True)
class Remembered:
    """What an observer has heard, at one moment, `since` when it listens."""

    since: float
    total: BatchTally
    batches: tuple[NotedBatch, ...]
    events: tuple[NotedEvent, ...]
    views: dict[str, ViewTally]
    away: dict[str, str]
    row_rates: dict[str, float]
    change_rates: dict[str, float]
    lookups: dict[str, int]
    errors: int


class EventMemory:
    """An observer that remembers the last things that happened; read from other threads."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._since = clock()
        self._lock = threading.Lock()
        self._total = BatchTally()
        self._batches: deque[NotedBatch] = deque(maxlen=BATCHES_MAX)
        self._recent: deque[NotedBatch] = deque()
        self._events: deque[NotedEvent] = deque(maxlen=EVENTS_MAX)
        self._views: dict[str, ViewTally] = {}
        self._away: dict[str, str] = {}
        self._lookups: Counter[str] = Counter()
        self._errors = 0

    def on_load_progress(self, view: str, stage: str) -> None:
        with self._lock:
            self._views.setdefault(view, ViewTally()).loading = stage

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        text = f"{view}: loaded {rows:,} rows in {seconds:.1f} s"
        with self._lock:
            self._views.setdefault(view, ViewTally()).loading = None
            self._note_event("load_end", text, None, is_bad=False)

    def on_batch_commit(self, report: BatchReport) -> None:
        noted = NotedBatch(self._clock(), report)
        with self._lock:
            self._total.add_batch(report)
            self._batches.append(noted)
            self._recent.append(noted)
            self._lookups.update(report.lookups)
            self._forget_before(noted.at - RATE_SECONDS)
            for view in report.views:
                tally = self._views.setdefault(view, ViewTally())
                tally.note_batch(noted.at, report, view)

    def on_schema_change(self, view: str, what: str) -> None:
        with self._lock:
            self._note_event("schema_change", f"{view}: {what}", None, is_bad=False)

    def on_trouble(self, error: ViewkeeperError) -> None:
        """The same one is listed once, with its last time."""
        kind, text = type(error).__name__, error.message
        with self._lock:
            self._errors += 1
            same = [each for each in self._events if (each.kind, each.text) == (kind, text)]
            for each in same:
                self._events.remove(each)
            self._note_event(kind, text, error.hint, is_bad=True)

    def on_state_change(self, change: StateChange) -> None:
        with self._lock:
            if change.kind == "source_away" and change.source is not None:
                self._away[change.source] = change.text
            elif change.kind == "source_back" and change.source is not None:
                self._away.pop(change.source, None)
            self._note_event(change.kind, change.text, change.hint, not change.is_good)

    def recall(self) -> Remembered:
        """What is remembered now."""
        with self._lock:
            now = self._clock()
            self._forget_before(now - RATE_SECONDS)
            rows: Counter[str] = Counter()
            changes: Counter[str] = Counter()
            for noted in self._recent:
                rows.update(noted.report.view_rows)
                changes.update(noted.report.source_changes)
            return Remembered(
                since=self._since,
                total=replace(self._total),
                batches=tuple(self._batches),
                events=tuple(self._events),
                views={name: tally.copy_tally() for name, tally in self._views.items()},
                away=dict(self._away),
                row_rates={name: count / RATE_SECONDS for name, count in rows.items()},
                change_rates={name: count / RATE_SECONDS for name, count in changes.items()},
                lookups=dict(self._lookups),
                errors=self._errors,
            )

    def _forget_before(self, at: float) -> None:
        while self._recent and self._recent[0].at < at:
            self._recent.popleft()

    def _note_event(self, kind: str, text: str, hint: str | None, is_bad: bool) -> None:
        self._events.append(NotedEvent(self._clock(), kind, text, hint, is_bad))


@dataclass(frozen=True, slots=True)
class StatusReading:
    """The status as it was read, the head beside it, and what went wrong if nothing could be."""

    number: int = 0
    status: ProjectStatus | None = None
    head: Head | None = None
    trouble: str | None = None


class StatusReader:
    """Reads the status of a project in a thread, when somebody wants it."""

    def __init__(self, settings_now: Callable[[], Settings]) -> None:
        self._settings_now = settings_now
        self._changed = threading.Condition()
        self._is_wanted = False
        self._stopping = False
        self._reading = StatusReading()
        self._read_at = -math.inf
        self._rests_until = 0.0
        self._thread = threading.Thread(
            target=self._read_when_wanted, name="viewkeeper-monitor", daemon=True
        )

    @contextmanager
    def reading_status(self) -> Iterator[None]:
        """Read for as long as the block lasts."""
        self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._stopping = True
                self._changed.notify_all()
            # It may hang at a source that is away; then it ends with the process.
            self._thread.join(JOIN_SECONDS)

    def read_latest(self, age_max: float, wait_seconds: float) -> StatusReading:
        """What was read last; if that is older than so many seconds, it is read again, which is
        waited for, but not for long."""
        with self._changed:
            if time.monotonic() - self._read_at > age_max:
                number, self._is_wanted = self._reading.number, True
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: self._stopping or self._reading.number > number, wait_seconds
                )
            return self._reading

    @property
    def latest(self) -> StatusReading:
        """What was read last, however old."""
        with self._changed:
            return self._reading

    def _read_when_wanted(self) -> None:
        while self._wait_until_wanted():
            began = time.monotonic()
            reading = self._read_once()
            with self._changed:
                self._reading, self._read_at = reading, time.monotonic()
                self._rests_until = self._read_at + (self._read_at - began) * REST_SHARE
                self._changed.notify_all()

    def _wait_until_wanted(self) -> bool:
        """Wait until somebody wants to know, and the last reading was long enough ago."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._is_wanted)
            rest = self._rests_until - time.monotonic()
            self._changed.wait_for(lambda: self._stopping, max(0.0, rest))
            self._is_wanted = False
            return not self._stopping

    def _read_once(self) -> StatusReading:
        before = self._reading
        try:
            settings = self._settings_now()
            status = gather_status(settings, time.time(), count_transactions=False)
            head = read_head(settings.warehouse)
        except ViewkeeperError as error:
            return StatusReading(before.number + 1, before.status, before.head, error.message)
        except Exception as error:  # noqa: BLE001 - it is shown, and the next reading may succeed
            what = f"the status met an unexpected {type(error).__name__}: {error}"
            return StatusReading(before.number + 1, before.status, before.head, what)
        return StatusReading(before.number + 1, status, head)
