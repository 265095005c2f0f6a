"""The states of views and sources, compared with before: what wants attention is said once.

A view stops, or goes on again; a source is away, or back; what a source keeps for a view is about
to be lost. Each of these has many causes and places, so none of them says it: the states themselves
are compared, in the loop's routine, which costs microseconds while nothing has changed.

The log that a waiting view may hold back is in danger from the half of `batch.wait_rows` on. What
a source itself warns of (a replication slot near its limit, a log that expires) is asked for in a
thread, on a connection of its own, every minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from viewkeeper.engine.capture.lookout import Lookout
from viewkeeper.engine.connections.guarded_source import contain_errors
from viewkeeper.engine.event_log import LoggedError, logged_error
from viewkeeper.engine.report import StateChange
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoices
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import ViewkeeperError
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.upstream.any_source import open_source
from viewkeeper.warehouse.waiting_reasons import WaitingReasons, write_waiting

RETENTION_SECONDS = 5.0
"""How often it is looked at how much waiting views hold back."""

WARNING_SECONDS = 60.0
"""How often sources are asked for warnings."""

DANGER_SHARE = 0.5
"""A log is in danger when a view holds back this share of what it may."""

COMPARE_SECONDS = 0.1
JOIN_SECONDS = 1.0


class SourceWarnings:
    """What sources warn of, asked for beside the loop."""

    def __init__(self, sources: Mapping[str, SourceSettings], reader: str) -> None:
        self._sources = sources
        self._reader = reader
        self._lock = threading.Lock()
        self._found: dict[str, tuple[str, ...]] = {}

    def ask_sources(self, names: Iterable[str]) -> None:
        """Ask these sources; one that does not answer says nothing."""
        for name in names:
            with (
                suppress(ViewkeeperError),
                contain_errors(name),
                closing(open_source(self._sources[name], self._reader)) as source,
            ):
                warnings = source.read_health(()).warnings
                with self._lock:
                    self._found[name] = warnings

    def take_over(self, before: SourceWarnings) -> None:
        """Go by what another one knew, until the sources that are left are asked again."""
        with self._lock:
            known = before.read_warnings().items()
            self._found = {name: warnings for name, warnings in known if name in self._sources}

    def read_warnings(self) -> dict[str, tuple[str, ...]]:
        """Per source, what it warned of when it was last asked."""
        with self._lock:
            return dict(self._found)


NOTE_SECONDS = 1.0
"""How often it is noted at most why views wait."""


class WaitingNotes:
    """Notes for others why views of a warehouse are not up to date, whenever that has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._noted: WaitingReasons | None = None
        self._noted_at = 0.0

    def note_waiting(self, find_waiting: Callable[[], WaitingReasons], now: bool = False) -> None:
        """Note why views wait; at most once a second, unless `now`."""
        if not now and time.monotonic() - self._noted_at < NOTE_SECONDS:
            return
        self._noted_at = time.monotonic()
        found = find_waiting()
        if found != self._noted:
            self._noted = found
            write_waiting(self._folder, found)


class StateWatch:
    """Compares states for the observer of a workspace; used by the thread that maintains."""

    def __init__(
        self,
        workspace: Workspace,
        lookout: Lookout,
        troubles: Iterable[ViewkeeperError],
        choices: AlgorithmChoices,
    ) -> None:
        """`troubles` are the last ones that were reported, for which a view may have stopped; the
        `choices` know which views are refused."""
        self._choices = choices
        self._workspace = workspace
        self._lookout = lookout
        self._troubles = troubles
        self._warnings = SourceWarnings(workspace.settings.sources, workspace.connections.reader)
        self._stopped: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._away: dict[str, LoggedError] = {}
        self._danger: dict[tuple[str, str], str] = {}
        self._compared_at = 0.0
        self._looked_at = 0.0
        self.notes = WaitingNotes(workspace.store.local_root)

    @contextmanager
    def asking_sources(self) -> Iterator[None]:
        """Ask the sources that are read for warnings, in a thread, while the block lasts."""
        catalogue = self._workspace.catalogue
        names = {source for view in catalogue for source in catalogue.sources_of(view)}
        known = [name for name in sorted(names) if name in self._workspace.settings.sources]
        stop = threading.Event()

        def ask_again() -> None:
            while not stop.wait(WARNING_SECONDS):
                self._warnings.ask_sources(known)

        thread = threading.Thread(target=ask_again, name="viewkeeper-warnings", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            # A source that hangs keeps nobody from ending.
            thread.join(JOIN_SECONDS)

    def go_on_from(self, before: StateWatch) -> None:
        """Compare with what another one has seen last, whose place this one takes."""
        self._stopped, self._refused = before._stopped, before._refused
        self._away, self._danger = before._away, before._danger
        self._warnings.take_over(before._warnings)

    def compare_refused(self) -> None:
        """Say which views are refused now and were not, or for another reason."""
        refused = self._choices.refused_views()
        before, self._refused = self._refused, {n: str(error) for n, error in refused.items()}
        if self._refused == before:
            return
        for name in (name for name in sorted(refused) if before.get(name) != self._refused[name]):
            found, reason = logged_error(refused[name]), self._refused[name]
            text = f'view "{name}" is refused: {found.message}'
            change = StateChange("view_refused", text, found.hint, view=name, reason=reason)
            self._workspace.observer.on_state_change(change)

    def compare_states(self, now: bool = False) -> None:
        """Say what is otherwise than it was; at most ten times a second, unless `now`."""
        if not now and time.monotonic() - self._compared_at < COMPARE_SECONDS:
            return
        self._compared_at = time.monotonic()
        self.compare_refused()
        for change in (*self._compare_views(), *self._compare_sources(), *self._compare_logs(now)):
            self._workspace.observer.on_state_change(change)

    def _compare_views(self) -> list[StateChange]:
        views = self._workspace.store.head.shown_views
        stopped = {name: view.stopped for name, view in views.items() if view.stopped}
        before, self._stopped = self._stopped, stopped
        if stopped == before:
            return []
        changes = [
            self._stop_change(name, reason, views[name].ts)
            for name, reason in stopped.items()
            if name not in before
        ]
        return changes + [
            StateChange("view_resumed", f'view "{name}" is maintained again', view=name)
            for name in before
            if name not in stopped and name in views
        ]

    def _stop_change(self, name: str, reason: str, ts: int) -> StateChange:
        known = [error for error in self._troubles if reason.startswith(str(error))]
        why = f": {logged_error(known[-1]).message}" if known else ""
        hint = "`viewkeeper status` says why, and what mends it"
        text = f'view "{name}" has stopped{why}'
        return StateChange("view_stopped", text, hint, view=name, ts=ts, reason=reason)

    def _compare_sources(self) -> list[StateChange]:
        connections = self._workspace.connections
        errors = {name: away.error for name, away in connections.away.items()}
        away = {n: logged_error(error) for n, error in {**errors, **connections.failed}.items()}
        before, self._away = self._away, away
        changes = [
            StateChange("source_away", found.message, found.hint, source=name)
            for name, found in away.items()
            if name not in before
        ]
        return changes + [
            StateChange("source_back", f'source "{name}" is back', source=name)
            for name in before
            if name not in away
        ]

    def _compare_logs(self, now: bool) -> list[StateChange]:
        if not now and time.monotonic() - self._looked_at < RETENTION_SECONDS:
            return []
        self._looked_at = time.monotonic()
        before, self._danger = self._danger, dict(self._find_danger())
        return [
            StateChange("retention_danger", text, view=view or None, source=source)
            for (source, view), text in self._danger.items()
            if (source, view) not in before
        ]

    def _find_danger(self) -> Iterator[tuple[tuple[str, str], str]]:
        """By source and view, what is about to be lost."""
        for source, warnings in self._warnings.read_warnings().items():
            if warnings:
                yield (source, ""), f'source "{source}": {"; ".join(warnings)}'
        store, most = self._workspace.store, self._workspace.settings.batch.wait_rows
        for name, view in store.head.maintained_views.items():
            waiting = store.ledger.entries_between(view.ts, store.ledger.next_ts)
            for source in view.positions if not (view.stopped or view.is_inner) else ():
                held = sum(entry.changes for entry in waiting if entry.source == source)
                held += self._lookout.sightings.changes_of(source)
                if held > most * DANGER_SHARE:
                    text = (
                        f'view "{name}" holds back {held:,} changes of source "{source}", and stops'
                        f" beyond {most:,}"
                    )
                    yield (source, name), text
