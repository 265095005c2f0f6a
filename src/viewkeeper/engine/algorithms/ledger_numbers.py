"""Between the numbers that a machine gives and the ts of the ledger, and what of both is committed.

A machine numbers the transactions that it takes by itself, in the order in which it takes them. The
ledger gave them their ts before; one ts may have an entry for each of several sources, and is
committed when all of them are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile

import pyarrow as pa

from viewkeeper.maintain.algorithm_protocol import CommitAction, ResumePoint, StampAction
from viewkeeper.updates.source_protocol import TS
from viewkeeper.warehouse.metadata.batch_plan import LedgerEntry


class LedgerNumbers:
    """The numbers of one run of a machine."""

    def __init__(self, entries: Sequence[LedgerEntry], ahead: Sequence[int]) -> None:
        """`ahead` was committed before a crash; it lies among these entries."""
        self._begun = [entry for entry in entries if ahead and entry.ts <= max(ahead)]
        self._entries: list[LedgerEntry] = []
        self._numbers = {number: entry.ts for number, entry in enumerate(self._begun, 1)}
        """From the machine's ts to the ledger's."""
        self._committed = set(ahead)
        """What is committed, by the ledger's ts."""
        self._done = {number for number, ts in self._numbers.items() if ts in self._committed}
        """What is committed, by the machine's ts."""

    def make_resume(self, positions: Mapping[str, int]) -> ResumePoint:
        """What was committed ahead before a crash is in the view; what lies before it is not."""
        stamps = tuple(
            StampAction(number, ((entry.source, entry.until),))
            for number, entry in enumerate(self._begun, 1)
        )
        return ResumePoint(0, dict(positions), stamps, frozenset(self._done))

    def add_entries(self, entries: Sequence[LedgerEntry]) -> None:
        """These are delivered to the machine."""
        self._entries += entries

    def note_stamp(self, stamp: StampAction) -> None:
        """The machine has numbered a transaction."""
        (named,) = stamp.transactions
        self._numbers[stamp.ts] = next(e.ts for e in self._entries if (e.source, e.until) == named)

    def note_commit(self, commit: CommitAction) -> None:
        """The machine has committed everything up to a number, and some beyond."""
        self._done |= {number for number in self._numbers if number <= commit.ts}
        self._done |= {*commit.ahead}
        # A ts may have an entry for each of several sources: it is there when all of them are.
        done = Counter(self._numbers[number] for number in self._done)
        parts = Counter(entry.ts for entry in self._entries)
        self._committed |= {ts for ts in done if done[ts] == parts[ts]}

    def split_committed(self) -> tuple[list[int], tuple[int, ...]]:
        """The ts of all entries before the first that is not committed, and those ahead of it."""
        prefix = [e.ts for e in takewhile(lambda e: e.ts in self._committed, self._entries)]
        return prefix, tuple(sorted(self._committed - set(prefix)))

    @property
    def is_in_order(self) -> bool:
        """Whether the machine took everything in the order of the ledger."""
        return sorted(self._numbers.values()) == [ts for _, ts in sorted(self._numbers.items())]

    @property
    def is_whole(self) -> bool:
        """Whether every ts of which the machine has committed a part is committed."""
        return {self._numbers[number] for number in self._done} <= self._committed

    def is_committed(self, ts: int) -> bool:
        """Whether a ts of the ledger is committed."""
        return ts in self._committed

    def stamps_of(self, rows: pa.Table) -> list[int]:
        """The ledger's ts of rows that have the machine's."""
        return [self._numbers[int(number)] for number in rows[TS].to_numpy()]
