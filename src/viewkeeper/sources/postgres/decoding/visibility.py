"""Which transactions a snapshot of PostgreSQL sees: the exact test, by transaction id.

A commit is decoded before it is visible, so the visible set is no prefix of the change stream and
must never be derived from log positions. `pg_current_snapshot()` says it exactly: every transaction
below `xmax` that is not among those in progress.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from viewkeeper.sources.postgres.errors import unreadable_stream_error

_EPOCH = 1 << 32


@dataclass(frozen=True, slots=True)
class VisibleTransactions:
    """A pg_snapshot: `xmin:xmax:xip,xip,...`.

    >>> seen = VisibleTransactions.parse_snapshot("shop", "741:743:741")
    >>> [seen.has_transaction(xid) for xid in (740, 741, 742, 743)]
    [True, False, True, False]
    """

    xmin: int
    xmax: int
    in_progress: frozenset[int]

    @staticmethod
    def parse_snapshot(source: str, text: str) -> VisibleTransactions:
        match = re.fullmatch(r"([0-9]{1,20}):([0-9]{1,20}):([0-9,]*)", text, re.ASCII)
        if match is None:
            raise unreadable_stream_error(source, f"a snapshot that is called {text[:100]!r}")
        xmin, xmax, rest = match.groups()
        ids = [each for each in rest.split(",") if each]
        if any(len(each) > 20 for each in ids):
            raise unreadable_stream_error(source, "a snapshot with odd transaction ids")
        return VisibleTransactions(int(xmin), int(xmax), frozenset(int(each) for each in ids))

    def has_transaction(self, xid: int) -> bool:
        """Whether the transaction that pgoutput calls `xid`, with 32 bits, is seen."""
        whole = self._widen_id(xid)
        return whole < self.xmax and whole not in self.in_progress

    def _widen_id(self, xid: int) -> int:
        """The 64-bit id nearest to ours that ends in these 32 bits.

        >>> snapshot = "4294967296:4294967300:"
        >>> VisibleTransactions.parse_snapshot("shop", snapshot).has_transaction(4294967295)
        True
        """
        whole = self.xmax - self.xmax % _EPOCH + xid
        if whole > self.xmax + _EPOCH // 2:
            return whole - _EPOCH
        if whole < self.xmax - _EPOCH // 2:
            return whole + _EPOCH
        return whole
