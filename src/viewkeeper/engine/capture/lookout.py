"""The lookout: what the sources have committed that no batch has taken yet.

Looking is cheap and gives each reported transaction the ts that it will have, in the order in which
it was seen. Nothing here is durable: what is forgotten in a crash is simply seen again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from viewkeeper.engine.views.view_binding import columns_of
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import BarrierError, SchemaError, SourceError
from viewkeeper.updates.source_protocol import (
    LOOK_SECONDS,
    LOOK_TRANSACTIONS,
    Boundary,
    Source,
    Tables,
)
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.warehouse.metadata.batch_plan import LedgerEntry

PATIENCE_SECONDS = 5.0
"""For so long a look waits for its sources, where nobody else has to be kept fresh meanwhile."""


@dataclass(frozen=True, slots=True)
class LookResult:
    """What a look at a source from a position has found, whether there may be more, and the views
    whose tables could not be followed."""

    after: int
    boundaries: tuple[Boundary, ...]
    more: bool
    refused: Mapping[str, SchemaError] = field(default_factory=dict)


class LoadPoint(Protocol):
    """Where a load that is under way stands: its ts, and the positions of its sources there."""

    @property
    def ts(self) -> int: ...

    @property
    def positions(self) -> Mapping[str, int]: ...


class Lookout:
    """Watches the sources of all views whose definition is known."""

    def __init__(self, workspace: Workspace, load: Callable[[], LoadPoint | None]) -> None:
        """`load` gives the load that is under way."""
        self._store = workspace.store
        self._catalogue = workspace.catalogue
        self._connections = workspace.connections
        self._load = load
        self._seen: list[LedgerEntry] = []
        self.known: dict[str, int] = {}
        """Per source, the position up to which it was looked at."""
        self.full = False
        """Whether some source had more to report than one look takes."""
        self._refused: dict[str, SchemaError] = {}
        self.broken: dict[str, SourceError] = {}
        """Sources that have lost what is still needed, or their shape; not looked at again."""
        self._ahead: dict[str, LookResult] = {}

    def note_failed(self, failed: Mapping[str, SourceError]) -> dict[str, SourceError]:
        """Look no more at sources that have failed elsewhere; those that were not known so."""
        new = {name: error for name, error in failed.items() if name not in self.broken}
        self.broken |= new
        return new

    def can_load(self, sources: Iterable[str]) -> bool:
        """Whether a view over these sources can be loaded at the positions that are known."""
        return self.known.keys() >= {*sources} and not self.full

    @property
    def has_pending(self) -> bool:
        """Whether something was seen that cannot be taken yet, for others."""
        return False

    @property
    def waiting_reason(self) -> str | None:
        """What is waited for, if anything is pending."""
        return None

    def close(self) -> None:
        """Nothing is looked at any more."""

    def look_at_sources(self, seconds: float = PATIENCE_SECONDS) -> dict[str, SourceError]:
        """See what is new; the sources that turned out to be broken.

        Those that do not answer within so many seconds are passed over until they do.
        """
        self.full = False
        found = self._look_ahead(self.watched_sources(), seconds)
        for name, seen in self._ahead.items():
            self._take_in(name, seen)
        self.broken |= found
        return found

    def _look_question(self, name: str) -> Callable[[Source], LookResult]:
        """A look at a source, as it is asked in a thread: all that it needs is found now."""
        known, left = self.known.get(name), self._left_position(name)
        followed = self._tables_by_view(name)

        def look(source: Source) -> LookResult:
            refused: dict[str, SchemaError] = {}
            at = known
            if at is None:
                at, refused = position_of(source, left, followed)
            return LookResult(at, *look_once(source, at), refused)

        return look

    def _look_ahead(self, names: Iterable[str], seconds: float) -> dict[str, SourceError]:
        """Look at known sources in threads; `_reported_boundaries` then has what they found."""
        found: dict[str, SourceError] = {}
        questions = {name: self._look_question(name) for name in names}
        self._ahead = {}
        self._connections.send_errands(questions, seconds)
        for name in questions:
            try:
                seen = self._connections.take_answer(name)
            except SourceError as error:
                found[name] = error
                continue
            if isinstance(seen, LookResult):
                self._ahead[name] = seen
        return found

    def _reported_boundaries(self, source: Source, after: int) -> tuple[tuple[Boundary, ...], bool]:
        """What a source reports after a position: found ahead, or now."""
        seen = self._ahead.pop(source.name, None)
        if seen is not None and seen.after == after:
            return seen.boundaries, seen.more
        return look_once(source, after)

    def _take_in(self, name: str, seen: LookResult) -> None:
        """Note what a look has found, unless we have got further by other means since."""
        self._refused |= seen.refused
        if self.known.setdefault(name, seen.after) != seen.after:
            return
        self.full |= seen.more
        for boundary in seen.boundaries:
            self._seen.append(self._make_entry(name, boundary))
            self.known[name] = boundary.position

    def take_with_gap(self, name: str) -> tuple[LedgerEntry, ...]:
        """A source has lost what follows where we are: everything seen, and that as a gap."""
        left = self._left_position(name) or 0
        at = self.known.pop(name, left)
        self._seen.append(LedgerEntry(self._next_ts, name, at, at + 1, time.time(), 0, gap=True))
        return self.take_entries()

    def begin_again(self, name: str) -> None:
        """Follow a source anew, from where it stands now: what lies before that is a gap."""
        self.broken.pop(name, None)
        position = self._connections.try_action(name, self.follow_source)
        if position is not None:
            self.known[name] = position

    def entries_until(self, name: str, position: int) -> tuple[LedgerEntry, ...]:
        """What a source has committed up to a position, looked at now; nothing else may wait.

        A report that goes beyond the position is split there: a cut lies between commits. Where
        rows went unlisted or shapes changed, nothing is taken: the next look reports that.
        """
        assert not self._seen, "what was seen earlier is taken first"
        source, at, found = self._connections.get_source(name), self.known[name], []
        more = True
        while more and at < position:
            boundaries, more = look_once(source, at)
            for boundary in boundaries:
                if at < position:
                    found.append(boundary)
                    at = boundary.position
        for boundary in found:
            reshaped = [change.table for change in boundary.reshaped]
            for table in (*boundary.emptied, *boundary.keyed, *reshaped):
                raise BarrierError(name, table, boundary.position)
        for boundary in found:
            until = min(boundary.position, position)
            self._seen.append(self._make_entry(name, replace(boundary, position=until)))
            self.known[name] = until
        return self.take_entries()

    def extend_capture(self, names: Iterable[str]) -> dict[str, SourceError]:
        """Have these sources capture also what new views read; those that turned out to be broken.

        Looking first finds a log that was lost; following would silently begin a new one. A source
        that has not what a view reads is not broken; its error is that view's.
        """
        found: dict[str, SourceError] = {}
        for name in names:
            if name in self.known:
                try:
                    self._connections.try_action(name, self._follow_on)
                except SourceError as error:
                    found[name] = error
        self.broken |= {n: e for n, e in found.items() if not isinstance(e, SchemaError)}
        return found

    def take_entries(self) -> tuple[LedgerEntry, ...]:
        """Everything seen; it is no longer the lookout's."""
        entries, self._seen = tuple(self._seen), []
        return entries

    @property
    def waiting_changes(self) -> int:
        """How many changes were seen and not taken."""
        return sum(entry.changes for entry in self._seen)

    def changes_of(self, source: str) -> int:
        """How many changes of a source were seen and not taken."""
        return sum(entry.changes for entry in self._seen if entry.source == source)

    @property
    def oldest_committed_at(self) -> float | None:
        """When the oldest change that was seen and not taken was committed."""
        return min((entry.committed_at for entry in self._seen), default=None)

    def watched_sources(self) -> list[str]:
        """The sources that are looked at."""
        used = dict.fromkeys(s for view in self._followed_views() for s in view.sources)
        return [source for source in used if source not in self.broken]

    def loaded_before(self, ts: int) -> list[ViewDefinition]:
        """The views that were loaded before a ts and go on: since then all that they
        read is captured."""
        views = self._store.head.views
        return [
            view
            for view in self._catalogue.bound_views()
            if view.name in views
            and views[view.name].created_ts < ts
            and not views[view.name].stopped
        ]

    def follow_source(self, source: Source) -> int:
        """Have everything captured that the known views read; the source's position now.

        Where something cannot be captured, that is the trouble of the views that read it.
        """
        position, refused = follow_each(source, self._tables_by_view(source.name))
        self._refused |= refused
        return position

    def _tables_by_view(self, source: str) -> dict[str, dict[str, list[str]]]:
        """Per view, what it reads of a source."""
        views = [view for view in self._followed_views() if source in view.sources]
        found: dict[str, dict[str, list[str]]] = {}
        for view in views:
            mine = captured_tables([view], source)
            found[view.name] = union_tables([found.get(view.name, {}), mine])
        return found

    def take_refused(self) -> dict[str, SchemaError]:
        """The views whose tables turned out not to be followable; each is told once."""
        refused, self._refused = self._refused, {}
        return refused

    def _followed_views(self) -> list[ViewDefinition]:
        """The definitions that views have, and those that they are on their way to."""
        return [*self._catalogue.bound_views(), *self._catalogue.coming.values()]

    def _follow_on(self, source: Source) -> int:
        return self._follow_after(source, self.known[source.name])

    def _follow_after(self, source: Source, after: int) -> int:
        """Follow what views read now, where we go on after a position."""
        # Looking first finds a log that was lost; following would silently begin a new one.
        source.look_for_transactions(after)
        return self.follow_source(source)

    def _start_position(self, source: Source) -> int:
        """Where a source's stream stands for us; where it stands now if no view has it."""
        position = self._left_position(source.name)
        if position is None:
            return self.follow_source(source)
        self._follow_after(source, position)
        return position

    def _left_position(self, name: str) -> int | None:
        """Where the ledger says that a source was left; None if no view has it, or gets it now."""
        views, load = self._store.head.views.values(), self._load()
        using = [(view.ts, view.positions[name]) for view in views if name in view.positions]
        if load is not None and name in load.positions:
            using.append((load.ts, load.positions[name]))
        if not using:
            return None
        ts, position = max(using, key=lambda each: each[0])
        ledger = self._store.ledger
        since = [e for e in ledger.entries_between(ts, ledger.next_ts) if e.source == name]
        return since[-1].until if since else position

    @property
    def _next_ts(self) -> int:
        return self._seen[-1].ts + 1 if self._seen else self._store.ledger.next_ts

    def _make_entry(self, source: str, boundary: Boundary) -> LedgerEntry:
        ts = self._next_ts
        after, until = self.known[source], boundary.position
        return LedgerEntry(
            ts,
            source,
            after,
            until,
            boundary.committed_at,
            boundary.changes,
            boundary.emptied,
            boundary.keyed,
            boundary.reshaped,
        )


def captured_tables(views: Iterable[ViewDefinition], source: str) -> dict[str, list[str]]:
    """What some views read of a source."""
    wanted = columns_of(views)
    return {r.table: [f.name for f in fs] for r, fs in wanted.items() if r.source == source}


def position_of(
    source: Source, left: int | None, views: Mapping[str, Tables]
) -> tuple[int, dict[str, SchemaError]]:
    """Where a source's stream stands for us, now that what views read is followed; the views that
    cannot be."""
    if left is not None:
        # Looking first finds a log that was lost; following would silently begin a new one.
        source.look_for_transactions(left)
    now, refused = follow_each(source, views)
    return now if left is None else left, refused


def follow_each(source: Source, views: Mapping[str, Tables]) -> tuple[int, dict[str, SchemaError]]:
    """Have what views read captured; the position, and the views that it cannot be done for."""
    try:
        return source.follow_tables(union_tables(views.values())), {}
    except SchemaError:
        position, refused = None, dict[str, SchemaError]()
        for name, tables in views.items():
            try:
                position = source.follow_tables(tables)
            except SchemaError as error:
                refused[name] = error
        if position is None:
            raise
        return position, refused


def union_tables(wanted: Iterable[Tables]) -> dict[str, list[str]]:
    """Every column of every table that somebody wants."""
    found: dict[str, list[str]] = {}
    for tables in wanted:
        for table, columns in tables.items():
            mine = found.setdefault(table, [])
            mine += [column for column in columns if column not in mine]
    return found


def look_once(source: Source, after: int) -> tuple[tuple[Boundary, ...], bool]:
    """What a source reports, and whether there may be more than one look takes."""
    end = time.monotonic() + LOOK_SECONDS
    found = source.look_for_transactions(after)
    return found, len(found) >= LOOK_TRANSACTIONS or time.monotonic() >= end
