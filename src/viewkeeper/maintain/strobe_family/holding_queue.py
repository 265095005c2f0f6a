"""The holding queue of the complete Strobe algorithms: updates received and not yet handled.

An answer sees everything that was received from its source before it arrived. What of that is
still in the holding queue it saw too early, and the queue says how to put it right: rows that were
deleted must be asked for again, rows that came must be taken out.

Citation: Zhuge, Garcia-Molina, Wiener: The Strobe Algorithms for Multi-Source Warehouse Consistency
(1996), section 6 and appendix B.

What must hold:
1. Updates of one source are in its order. A report that overtook what precedes it at its source
   counts as received when the gap is closed; no answer of that source is handed over before.
2. Rows are compared in the columns that the view reads at a place. Two versions of a row that look
   the same there are one row that never went away.

Symbols: an update U is `RowUpdate`; "U_p received after U_j" is `Moment` order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from viewkeeper.maintain.global_parts import Unit
from viewkeeper.maintain.strobe_family.key_delete import (
    Changes,
    Values,
    comparable_rows,
    insertion_flags,
)
from viewkeeper.updates.backlog import Backlog
from viewkeeper.updates.transaction import Transaction
from viewkeeper.view.definition import Place, Relation

Moment = tuple[int, int]
"""When an update was received, and at which place it counts: a relation may have two."""

START: Moment = (0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class RowUpdate:
    """One insertion or deletion; `row` is a table of one row."""

    number: int
    relation: Relation
    row: pa.Table
    inserts: bool


def changes_from(updates: Iterable[RowUpdate]) -> Changes:
    """Updates as rows per relation, in their order."""
    found: dict[Relation, list[pa.Table]] = {}
    for update in updates:
        found.setdefault(update.relation, []).append(update.row)
    return {relation: pa.concat_tables(rows) for relation, rows in found.items()}


class HoldingQueue:
    """Updates that were received and not handled, in the order of arrival."""

    def __init__(self, positions: Mapping[str, int]) -> None:
        self._received = dict(positions)
        self._numbers = count(1)
        self._held: dict[tuple[str, int], list[RowUpdate]] = {}

    def receive_arrivals(self, backlog: Backlog) -> None:
        """Take in what has arrived since the last call."""
        transactions = [kept.transaction for kept in backlog if not kept.committed]
        for transaction in sorted(transactions, key=lambda t: t.position):
            source, position = transaction.source, transaction.position
            if self._received.get(source, 0) < position <= backlog.known_position(source):
                self._received[source] = position
                self._held[source, position] = self._split_transaction(transaction)

    def _split_transaction(self, transaction: Transaction) -> list[RowUpdate]:
        return [
            RowUpdate(next(self._numbers), relation, rows.slice(at, 1), added)
            for relation, rows in transaction.changes.items()
            for at, added in enumerate(insertion_flags(rows))
        ]

    def updates_of(self, unit: Unit) -> list[RowUpdate]:
        """The updates of a unit, each relation's in its source's order."""
        return [u for t in unit for u in self._held.get((t.source, t.position), ())]

    def remove_updates(self, updates: Iterable[RowUpdate]) -> None:
        """Remove updates that are handled: questions asked from here on want them."""
        gone = {update.number for update in updates}
        held = {
            key: [update for update in mine if update.number not in gone]
            for key, mine in self._held.items()
        }
        self._held = {key: mine for key, mine in held.items() if mine}

    def _updates_at(self, place: Place) -> list[RowUpdate]:
        mine = [u for held in self._held.values() for u in held if u.relation == place.relation]
        return sorted(mine, key=lambda update: update.number)

    def deletions_since(self, place: Place, since: Moment) -> list[RowUpdate]:
        """The deletions at a place that were received after a moment."""
        return [
            u for u in self._updates_at(place) if not u.inserts and (u.number, place.index) > since
        ]

    def new_rows(self, place: Place) -> set[Values]:
        """The rows of a place that were not there before the queue: inserted, not deleted first."""
        first: dict[Values, bool] = {}
        for update in self._updates_at(place):
            (row,) = comparable_rows(update.row, place.columns)
            first.setdefault(row, update.inserts)
        return {row for row, inserted in first.items() if inserted}
