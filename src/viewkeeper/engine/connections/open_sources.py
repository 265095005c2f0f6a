"""The sources of a project as the maintainer sees them: open, away, or coming back.

A source that cannot be reached is left alone for a while, longer each time; the views that need it
wait meanwhile and the others go on. Whoever uses a source has it from here, guarded, so that all
that goes wrong in it is its own error; `note_error` decides what an error means for the source.

What can hang is asked in errands, threads of their own: every look, and whether a source that was
away is back. While a source has an errand it is not ready, and nobody waits for it: neither the
views of other sources, nor whoever wants to stop.

Whoever sent an errand waits as long as it wants to and goes on without the answer; the answer is
there when it comes back. A source that hangs so keeps its errand, and nobody else. The thread ends
by the source's own limits; it does not keep the process from ending.

What a scan saw too early is taken back by the source's log. So whoever scans while a maintainer
acknowledges, a verification or a preview, holds the logs until it has read them.

The driver prepares *openers* of snapshots for its tasks: a source may have to do something before
tasks in other processes can read one state of it (PostgreSQL exports a snapshot and keeps it). For
work on Spark that is done in advance for every source that may be asked; one that is away then only
matters to a task that does ask it. For work in the driver it is done when a source is first asked.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from viewkeeper.engine.connections.guarded_source import GuardedSource, contain_errors
from viewkeeper.errors import (
    DamagedSourceError,
    SourceAwayError,
    SourceError,
    UnexpectedSourceError,
    ViewkeeperError,
)
from viewkeeper.sources.kinds import Differ, can_rest
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.storage.local_lock import LockHolder
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.updates.source_protocol import InheritedSource, Opener, Snapshot, Source, Tables
from viewkeeper.upstream.any_source import ParentSource, is_parent, open_source, parent_source_of
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.warehouse.metadata.warehouse_identity import known_identity

T = TypeVar("T")


class Errand(Generic[T]):
    """Something that is being done with a source."""

    def __init__(self, name: str, action: Callable[[], T]) -> None:
        self._action = action
        self._answer: list[T] = []
        self._error: BaseException | None = None
        self._afterwards: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._back = threading.Event()
        self.began = time.monotonic()
        self._thread = threading.Thread(target=self._run_action, name=f"source {name}", daemon=True)
        self._thread.start()

    def wait_until_back(self, seconds: float) -> bool:
        """Wait for some time at most; whether it is back."""
        return self._back.wait(max(0.0, seconds))

    def get_answer(self) -> T:
        """What it brought, once it is back; its error if it met one."""
        assert self._back.is_set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._answer[0]

    def call_afterwards(self, action: Callable[[], None]) -> None:
        """Do something when it is back, in its thread if that is later."""
        with self._lock:
            is_back = self._back.is_set()
            self._afterwards = None if is_back else action
        if is_back:
            action()

    def _run_action(self) -> None:
        try:
            self._answer.append(self._action())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._error = error
        with self._lock:
            self._back.set()
            afterwards = self._afterwards
        if afterwards is not None:
            afterwards()


RETRY_SECONDS_MAX = 30.0
SILENT_SECONDS = 2.0
"""A source that has not answered for so long is away."""

CLOSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Away:
    """Since when a source is away, why, and when it is tried again."""

    error: SourceAwayError
    since: float
    attempts: int
    retry_at: float


def reader_of(warehouse: StoragePath) -> str:
    """How the warehouse is called at its sources; nothing while it follows none."""
    return known_identity(warehouse)


class HarmlessErrors:
    """Errors that spoil nothing, noted and reported in the thread that made this: others have some
    too."""

    def __init__(self, note_error: Callable[[ViewkeeperError], None]) -> None:
        self._note_error = note_error
        self._waiting: deque[ViewkeeperError] = deque()
        self._thread = threading.get_ident()
        self._report: Callable[[ViewkeeperError], None] = lambda _: None

    def report_to(self, report: Callable[[ViewkeeperError], None]) -> None:
        self._report = report

    def add_error(self, error: ViewkeeperError) -> None:
        """Report an error, now or when the thread that reports comes by."""
        self._waiting.append(error)
        self.report_errors()

    def report_errors(self) -> None:
        """Report what waits, if this is the thread that reports."""
        while self._waiting and threading.get_ident() == self._thread:
            error = self._waiting.popleft()
            self._note_error(error)
            self._report(error)


class Connections:
    """Every source of a project, opened when first used."""

    def __init__(
        self,
        settings: Mapping[str, SourceSettings],
        reader: str,
        now: Callable[[], float],
        differ: Differ | None = None,
        predecessor: LockHolder | None = None,
    ) -> None:
        """`differ` takes large differences between states of folders; `predecessor` is who has lost
        the warehouse to this process, which then holds its lock."""
        self.settings = settings
        self.reader = reader
        self.away: dict[str, Away] = {}
        self._now = now

        def open_inherited(each: SourceSettings) -> Source:
            opened = open_source(each, reader, differ, now)
            if predecessor is not None and isinstance(opened, InheritedSource):
                opened.inherit_from(predecessor.connection_name)
            return opened

        self._open_source = open_inherited
        self._open: dict[str, GuardedSource] = {}
        self._errands: dict[str, Errand[object]] = {}
        self._probes: dict[str, Errand[object]] = {}
        """Errands that ask sources whether they are back."""
        self._greeted: set[str] = set()
        self._last: dict[str, Away] = {}
        """Per source, how it was away the last time."""
        self.failed: dict[str, SourceError] = {}
        """Sources that are damaged or failed as nobody foresaw: left alone until the next run."""
        self._harmless = HarmlessErrors(self.note_error)

    def report_to(self, trouble: Callable[[ViewkeeperError], None]) -> None:
        """Errors that spoil nothing, like that of closing a snapshot, are passed to `trouble`."""
        self._harmless.report_to(trouble)

    def get_parent(self, name: str) -> ParentSource | None:
        """The project behind a source, if it is one; the caller contains its errors."""
        return parent_source_of(self.get_source(name).inner) if self.is_parent(name) else None

    def is_parent(self, name: str) -> bool:
        """Whether a source is another project."""
        return is_parent(self.settings[name])

    def get_source(self, name: str) -> GuardedSource:
        """A source, with all its calls contained; opened when first used."""
        if name not in self._open:
            with contain_errors(name):
                opened = self._open_source(self.settings[name])
            self._open[name] = GuardedSource(opened, self._harmless.add_error)
        return self._open[name]

    def send_errands(
        self, questions: Mapping[str, Callable[[Source], object]], seconds: float
    ) -> None:
        """Send an errand to each of these sources that is ready, and wait for some time at most
        until all are back; `take_answer` has what they bring."""
        self._harmless.report_errors()
        end = time.monotonic() + seconds
        for name, question in questions.items():
            if self.can_ask([name]) and name not in self._errands:
                self._errands[name] = self._send_errand(name, question)
        for name in questions:
            if name in self._errands and not self._errands[name].wait_until_back(
                end - time.monotonic()
            ):
                self._note_silence(name)

    def take_answer(self, name: str) -> object:
        """What an errand brought; None if there was none, it is not back, or the source is away."""
        errand = self._errands.get(name)
        if errand is None or not errand.wait_until_back(0):
            return None
        del self._errands[name]
        return self._finish_action(name, errand.get_answer)

    def greet_sources(self, names: Iterable[str]) -> None:
        """Send an errand to those of these sources that were never asked anything, and wait a
        little: one that hangs must not hold up whoever binds the views of the others."""
        new = [name for name in names if name not in self._greeted]
        self._greeted |= {*new}
        end = time.monotonic() + SILENT_SECONDS
        for name in new:
            if self.can_ask([name]):
                self._probes[name] = self._send_errand(name, lambda source: source.read_health(()))
        for name in new:
            if name in self._probes:
                self._probes[name].wait_until_back(end - time.monotonic())

    def has_news(self, names: Iterable[str]) -> bool | None:
        """Whether a look at some of these sources may be worthwhile; None if one cannot tell and no
        other says yes. A source that is not ready now has none."""
        found: bool | None = False
        for name in names:
            source = self._open.get(name)
            if source is None or name in self.failed or self.is_busy(name):
                continue
            hint = source.has_news()
            if hint:
                return True
            found = None if hint is None else found
        return found

    @property
    def has_busy_source(self) -> bool:
        """Whether an errand to some source is not back."""
        return any(self.is_busy(name) for name in {*self._errands, *self._probes})

    def is_busy(self, name: str) -> bool:
        """Whether an errand to a source is not back."""
        sent = (self._errands.get(name), self._probes.get(name))
        return any(errand is not None and not errand.wait_until_back(0) for errand in sent)

    def _send_errand(self, name: str, question: Callable[[Source], object]) -> Errand[object]:
        source = self.get_source(name)

        def ask() -> object:
            with contain_errors(name):
                return question(source)

        return Errand(name, ask)

    def _note_silence(self, name: str) -> None:
        """Say of a source that has not answered for long that it is away."""
        silent = time.monotonic() - self._errands[name].began
        if silent > SILENT_SECONDS and name not in self.away:
            hint = "nothing to do: it is waited for, and the views of other sources go on"
            error = SourceAwayError(name, f"it has not answered for {silent:.0f} s", hint=hint)
            self.away[name] = Away(error, self._now(), 0, self._now())

    def try_action(self, name: str, action: Callable[[Source], T]) -> T | None:
        """Do something with a source; None if it is, or turns out to be, away."""
        if not self.can_ask([name]):
            return None

        def done() -> T:
            with contain_errors(name):
                return action(self.get_source(name))

        return self._finish_action(name, done)

    def _finish_action(self, name: str, action: Callable[[], T]) -> T | None:
        try:
            result = action()
        except SourceAwayError as error:
            self.note_error(error)
            return None
        self.away.pop(name, None)
        return result

    def can_ask(self, names: Iterable[str]) -> bool:
        """Whether all of these may be asked now.

        A source that is away must have answered an errand first, which is sent when its time has
        come.
        """
        states = [self._is_ready(name) for name in names]
        return all(states)

    def _is_ready(self, name: str) -> bool:
        if name in self.failed or self.is_busy(name):
            return False
        self._settle_probe(name)
        away = self.away.get(name)
        if away is not None and away.retry_at <= self._now():
            self._probes[name] = self._send_errand(name, lambda source: source.read_health(()))
        return away is None

    def _settle_probe(self, name: str) -> None:
        """A source that was asked whether it is back may have answered."""
        probe = self._probes.pop(name, None)
        try:
            if probe is not None:
                self._finish_action(name, probe.get_answer)
        except ViewkeeperError as error:
            # It answers, if not as wished: whoever needs more of it will say so.
            self.note_error(error)
            self.away.pop(name, None)

    def note_error(self, error: ViewkeeperError) -> None:
        """What an error means for the source that it names, if it names one."""
        match error:
            case SourceAwayError():
                self._mark_away(error)
            case UnexpectedSourceError() | DamagedSourceError():
                self.failed.setdefault(error.source, error)

    def _mark_away(self, error: SourceAwayError) -> None:
        """A source did not answer; it is tried again after 1, 2, 4 ... seconds."""
        now, before = self._now(), self.away.get(error.source)
        # One that answers looks and nothing else is not tried again at once each time.
        last = before or self._last.get(error.source)
        again = last is not None and now - last.retry_at < RETRY_SECONDS_MAX
        attempts = last.attempts + 1 if last is not None and again else 1
        wait = min(2.0 ** min(attempts - 1, 10), RETRY_SECONDS_MAX)
        since = before.since if before else now
        self.away[error.source] = Away(error, since, attempts, now + wait)
        self._last[error.source] = self.away[error.source]

    @property
    def has_trouble(self) -> bool:
        """Whether some source is away, has failed, or has not answered yet."""
        return bool(self.away or self.failed) or self.has_busy_source

    def close_restless(self) -> list[str]:
        """Close the sources that hold something as long as they are open; their names."""
        assert not self.has_busy_source, "a source that is asked is not closed"
        names = [name for name in self._open if not can_rest(self.settings[name])]
        for name in names:
            self._open.pop(name).close()
        return names

    def close(self) -> None:
        """Let go of all sources; one that hangs is let go of when it comes back."""
        end = time.monotonic() + CLOSE_SECONDS
        for name, source in self._open.items():
            sent = (self._errands.pop(name, None), self._probes.pop(name, None))
            late = [
                e for e in sent if e is not None and not e.wait_until_back(end - time.monotonic())
            ]
            if late:
                late[0].call_afterwards(source.close)
            else:
                source.close()
        self._open.clear()


LEASE_SECONDS = 600.0


@contextmanager
def hold_logs(connections: Connections, names: Sequence[str]) -> Iterator[None]:
    """Keep the sources' logs from being trimmed, by a lease that ends by itself if we die."""
    lease = f"verify:{connections.reader}:{time.time_ns()}"
    for name in names:
        connections.get_source(name).begin_hold(lease, LEASE_SECONDS)
    try:
        yield
    finally:
        for name in names:
            # One that has gone away lets the lease end by itself: the verdict stands.
            connections.try_action(name, lambda source: source.end_hold(lease))


Openers = Mapping[str, Opener]


@dataclass(frozen=True, slots=True)
class UnavailableOpener:
    """The opener of a source that could not be prepared: its error, raised when it opens."""

    error: ViewkeeperError

    def __call__(self) -> Snapshot:
        raise self.error


class PreparedOpeners(Mapping[str, Opener]):
    """The openers of sources as of positions; each is prepared when first taken."""

    def __init__(
        self,
        stack: ExitStack,
        connections: Connections,
        positions: Mapping[str, int],
        tables: Mapping[str, Tables],
    ) -> None:
        self._stack = stack
        self._connections = connections
        self._positions = positions
        self._tables = tables
        self._ready: dict[str, Opener] = {}

    def __getitem__(self, name: str) -> Opener:
        if name not in self._ready:
            self._ready[name] = self._prepare_opener(name)
        return self._ready[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def _prepare_opener(self, name: str) -> Opener:
        try:
            source = self._connections.get_source(name)
            context = source.prepare_snapshots(self._positions[name], self._tables[name])
            return self._stack.enter_context(context)
        except ViewkeeperError as error:
            return UnavailableOpener(error)


@contextmanager
def prepare_openers(
    connections: Connections,
    positions: Mapping[str, int],
    views: Iterable[ViewDefinition],
    *,
    when_asked: bool = False,
) -> Iterator[Openers]:
    """The openers of all sources of some views, for as long as the context lasts."""
    with ExitStack() as stack:
        preparing = PreparedOpeners(stack, connections, positions, tables_by_source(views))
        yield preparing if when_asked else dict(preparing)


def tables_by_source(views: Iterable[ViewDefinition]) -> dict[str, dict[str, list[str]]]:
    """Per source, the tables that these views read, with the columns that they read of them."""
    found: dict[str, dict[str, list[str]]] = {}
    for view in views:
        for relation in view.relations:
            if relation.is_own:
                continue
            columns = found.setdefault(relation.source, {}).setdefault(relation.table, [])
            columns += [f.name for f in view.fields_of(relation) if f.name not in columns]
    return found
