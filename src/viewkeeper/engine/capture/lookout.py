"""The lookout: looking at the sources, often and cheaply, for what they have committed.

Sources are looked at in threads; one that does not answer in time is passed over until it does.
What a look has found goes into the `Sightings`, in an order of our own; a member of a group has a
lookout that takes it in the order of the group (`viewkeeper.engine.group.group_lookout`).

Each reported transaction gets the ts that it will have, in the order in which it was seen. Nothing
here is durable: what is forgotten in a crash is simply seen again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from viewkeeper.engine.capture.followed_tables import FollowedTables, position_of
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.errors import BarrierError, SchemaError, SourceAwayError, SourceError
from viewkeeper.updates.source_protocol import LOOK_SECONDS, LOOK_TRANSACTIONS, Boundary, Source
from viewkeeper.warehouse.metadata.plan_files import LedgerEntry
from viewkeeper.warehouse.store import Store


class Sightings:
    """What waits to be taken, and how far each source was looked at."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: list[LedgerEntry] = []
        self.known: dict[str, int] = {}
        """Per source, the position up to which it was looked at."""
        self.full = False
        """Whether some source had more to report than one look takes."""

    @property
    def next_ts(self) -> int:
        return self._seen[-1].ts + 1 if self._seen else self._store.ledger.next_ts

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be taken."""
        return not self._seen

    @property
    def waiting_changes(self) -> int:
        """How many changes were seen and not taken."""
        return sum(entry.changes for entry in self._seen)

    @property
    def oldest_committed_at(self) -> float | None:
        """When the oldest change that was seen and not taken was committed."""
        return min((entry.committed_at for entry in self._seen), default=None)

    def changes_of(self, source: str) -> int:
        """How many changes of a source were seen and not taken."""
        return sum(entry.changes for entry in self._seen if entry.source == source)

    def begin_look(self) -> None:
        """A look begins: so far no source has more to report than it takes."""
        self.full = False

    def note_more(self, more: bool) -> None:
        """Some source may have more to report."""
        self.full |= more

    def add_boundary(self, source: str, boundary: Boundary) -> None:
        """A source has reported a transaction."""
        entry = LedgerEntry(
            self.next_ts,
            source,
            self.known[source],
            boundary.position,
            boundary.committed_at,
            boundary.changes,
            boundary.emptied,
            boundary.keyed,
            boundary.reshaped,
        )
        self._seen.append(entry)
        self.known[source] = boundary.position

    def add_gap(self, source: str, left: int | None) -> None:
        """A source has lost what follows where we are, or where it was left."""
        at = self.known.pop(source, left or 0)
        self._seen.append(LedgerEntry(self.next_ts, source, at, at + 1, time.time(), 0, gap=True))

    def add_entries(self, entries: Iterable[LedgerEntry]) -> None:
        """Transactions that have got their ts elsewhere."""
        self._seen += entries

    def take_entries(self) -> tuple[LedgerEntry, ...]:
        """Everything seen; it is no longer ours."""
        entries, self._seen = tuple(self._seen), []
        return entries

    def forget_source(self, name: str) -> None:
        """A source is followed again from where it was left; nothing of it waits."""
        assert not self.changes_of(name), "what was seen is taken first"
        self.known.pop(name, None)

    def forget_all(self) -> None:
        """Forget what was seen; it is seen again."""
        self._seen.clear()
        self.known.clear()


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


LookQuestion = Callable[[Source], LookResult]
"""A look at a source, as it is asked in a thread."""


class Lookout(Protocol):
    """Who watches the sources of all views whose definition is known."""

    sightings: Sightings
    tables: FollowedTables

    def look_at_sources(self, seconds: float = PATIENCE_SECONDS) -> dict[str, SourceError]:
        """See what is new; the sources that turned out to be broken.

        Those that do not answer within so many seconds are passed over until they do.
        """
        ...

    def has_news(self) -> bool | None:
        """Whether a look may be worthwhile now; None if a source cannot tell."""
        ...

    def entries_until(self, name: str, position: int) -> tuple[LedgerEntry, ...]:
        """What a source has committed up to a position, looked at now; nothing else may wait."""
        ...

    def take_with_gap(self, name: str) -> tuple[LedgerEntry, ...]:
        """A source has lost what follows where we are: everything seen, and that as a gap."""
        ...

    def begin_again(self, name: str) -> None:
        """Follow a source again, from its newest position: what lies before that is a gap."""
        ...

    def extend_capture(self, names: Iterable[str]) -> dict[str, SourceError]:
        """Have these sources capture also what new views read; those that turned out to be broken.

        A source that has not what a view reads is not broken; its error is that view's.
        """
        ...

    def can_load(self, sources: Iterable[str]) -> bool:
        """Whether a view over these sources can be loaded at the positions that are known."""
        ...

    @property
    def has_pending(self) -> bool:
        """Whether something was seen that cannot be taken yet, for others."""
        ...

    @property
    def waiting_reason(self) -> str | None:
        """What is waited for, if anything is pending."""
        ...

    def close(self) -> None:
        """Nothing is looked at any more."""
        ...


class LocalLookout:
    """Watches the sources of a project that has an order of its own."""

    def __init__(
        self, connections: Connections, sightings: Sightings, tables: FollowedTables
    ) -> None:
        self._connections = connections
        self.sightings = sightings
        self.tables = tables

    @property
    def has_pending(self) -> bool:
        return False

    @property
    def waiting_reason(self) -> str | None:
        return None

    def close(self) -> None:
        pass

    def can_load(self, sources: Iterable[str]) -> bool:
        return self.sightings.known.keys() >= {*sources} and not self.sightings.full

    def look_at_sources(self, seconds: float = PATIENCE_SECONDS) -> dict[str, SourceError]:
        self.sightings.begin_look()
        questions = {name: self._look_question(name) for name in self.tables.watched_sources()}
        seen, failed = look_ahead(self._connections, questions, seconds)
        for name, result in seen.items():
            self._take_in(name, result)
        return self.tables.note_failed(failed)

    def has_news(self) -> bool | None:
        return self._connections.has_news(self.sightings.known)

    def _look_question(self, name: str) -> LookQuestion:
        """A look at a source: all that it needs is found now, before its thread."""
        known = self.sightings.known.get(name)
        if known is not None:
            return lambda source: LookResult(known, *look_once(source, known))
        left, followed = self.tables.left_position(name), self.tables.tables_by_view(name)

        def follow(source: Source) -> LookResult:
            at, refused = position_of(source, left, followed)
            return LookResult(at, *look_once(source, at), refused)

        return follow

    def _take_in(self, name: str, seen: LookResult) -> None:
        """Note what a look has found, unless we have got further by other means since."""
        self.tables.note_refused(seen.refused)
        if self.sightings.known.setdefault(name, seen.after) != seen.after:
            return
        self.sightings.note_more(seen.more)
        for boundary in seen.boundaries:
            self.sightings.add_boundary(name, boundary)

    def take_with_gap(self, name: str) -> tuple[LedgerEntry, ...]:
        self.sightings.add_gap(name, self.tables.left_position(name))
        return self.sightings.take_entries()

    def begin_again(self, name: str) -> None:
        self.tables.broken.pop(name, None)
        position = self._connections.try_action(name, self.tables.follow_source)
        if position is not None:
            self.sightings.known[name] = position

    def entries_until(self, name: str, position: int) -> tuple[LedgerEntry, ...]:
        """What a source has committed up to a position, looked at now; nothing else may wait.

        A report that goes beyond the position is split there: a cut lies between commits. Where
        rows went unlisted or shapes changed, nothing is taken: the next look reports that.
        """
        assert self.sightings.is_empty, "what was seen earlier is taken first"
        if name not in self.sightings.known:
            hint = "nothing to do: it is waited for"
            raise SourceAwayError(name, "it is being followed again", hint=hint)
        source, at, found = self._connections.get_source(name), self.sightings.known[name], []
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
            self.sightings.add_boundary(name, replace(boundary, position=until))
        return self.sightings.take_entries()

    def extend_capture(self, names: Iterable[str]) -> dict[str, SourceError]:
        known = self.sightings.known
        there = [name for name in names if name in known]
        return self.tables.extend_capture(
            there, lambda source: self.tables.follow_after(source, known[source.name])
        )


def look_ahead(
    connections: Connections, questions: Mapping[str, LookQuestion], seconds: float
) -> tuple[dict[str, LookResult], dict[str, SourceError]]:
    """Look at sources in threads: what those that answer in time have found, and the errors."""
    seen: dict[str, LookResult] = {}
    failed: dict[str, SourceError] = {}
    connections.send_errands(questions, seconds)
    for name in questions:
        try:
            result = connections.take_answer(name)
        except SourceError as error:
            failed[name] = error
            continue
        if isinstance(result, LookResult):
            seen[name] = result
    return seen, failed


def look_once(source: Source, after: int) -> tuple[tuple[Boundary, ...], bool]:
    """What a source reports, and whether there may be more than one look takes."""
    end = time.monotonic() + LOOK_SECONDS
    found = source.look_for_transactions(after)
    return found, len(found) >= LOOK_TRANSACTIONS or time.monotonic() >= end
