"""Putting global transactions together, and keeping each source's order while doing so.

A global transaction is maintained when all of its parts have arrived; a part that is missing holds
back what follows the others at their sources. Parts that two sources committed in opposite orders
have no serial order: they become one unit, with one ts. A part that another source reported early
waits for what its own source committed before it (Strobe, section 5.4: sequence numbers).

What comes out, in order, are *units*: one transaction, or the parts that belong together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from viewkeeper.updates.transaction import Transaction
from viewkeeper.view.definition import Relation

Unit = tuple[Transaction, ...]


class GlobalParts:
    """Transactions go in as they arrive; units come out as soon as they are whole."""

    def __init__(self, positions: Mapping[str, int]) -> None:
        self._released = dict(positions)
        self._held: list[Transaction] = []

    @property
    def held_transactions(self) -> tuple[Transaction, ...]:
        """What waits for a missing part, or for what precedes it."""
        return tuple(self._held)

    def add_transactions(self, transactions: Iterable[Transaction]) -> list[Unit]:
        """The units that these transactions complete, in an order that keeps every source's."""
        self._held += transactions
        units = []
        while (unit := self._smallest_unit()) is not None:
            units.append(unit)
            for transaction in unit:
                self._released[transaction.source] = transaction.position
            self._held = [t for t in self._held if all(t is not taken for taken in unit)]
        return units

    def _smallest_unit(self) -> Unit | None:
        """The smallest unit that is whole."""
        closures = [found for t in self._held if (found := self._closure_of(t)) is not None]
        return min(closures, key=len, default=None)

    def _closure_of(self, start: Transaction) -> Unit | None:
        """A transaction with everything that must come with it; None if some of it is missing."""
        inside: list[Transaction] = []
        waiting = [start]
        while waiting:
            transaction = waiting.pop()
            if any(transaction is member for member in inside):
                continue
            inside.append(transaction)
            needed = self._needed_with(transaction)
            if needed is None:
                return None
            waiting += needed
        return tuple(sorted(inside, key=lambda t: (t.source, t.position)))

    def _needed_with(self, transaction: Transaction) -> list[Transaction] | None:
        """The other parts of the whole, and the transaction before it at its source."""
        needed = []
        if transaction.after > self._released.get(transaction.source, 0):
            before = [
                t
                for t in self._held
                if t.source == transaction.source and t.position == transaction.after
            ]
            if not before:
                return None
            needed += before
        if transaction.whole is not None:
            parts = [t for t in self._held if t.whole == transaction.whole]
            if len(parts) < transaction.whole.parts:
                return None
            needed += parts
        return needed


def changes_of(unit: Unit) -> dict[Relation, pa.Table]:
    """All changes of a unit, each relation's in its source's order."""
    found: dict[Relation, list[pa.Table]] = {}
    for transaction in unit:
        for relation, rows in transaction.changes.items():
            found.setdefault(relation, []).append(rows)
    return {relation: pa.concat_tables(tables) for relation, tables in found.items()}
