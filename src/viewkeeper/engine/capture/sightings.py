"""Sightings: what was seen of the sources and no batch has taken yet.

Each reported transaction gets the ts that it will have, in the order in which it was seen. Nothing
here is durable: what is forgotten in a crash is simply seen again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from viewkeeper.updates.source_protocol import Boundary
from viewkeeper.warehouse.metadata.batch_plan import LedgerEntry
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
        """The ts of what is seen next."""
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

    def forget_all(self) -> None:
        """Forget what was seen; it is seen again."""
        self._seen.clear()
        self.known.clear()
