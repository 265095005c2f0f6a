"""The backlog: received transactions, until nothing can need them any more.

It is what the papers call the update message queue (SWEEP), plus the parallel processing set and
the related processed set (PVM): one list, because compensation must find a change wherever it
stands. A transaction is *waiting* until it is taken and gets its ts, *taken* until its effect is
committed, and then *kept* for as long as some cut, open or still to be opened, may lack it or some
view change with a smaller ts may see it too early.

What is waiting counts as later than everything that is taken; what was committed before the backlog
began counts as earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, LAST_TS, POSITION, TS
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import Lookup
from viewkeeper.updates.transaction import Transaction
from viewkeeper.view.definition import ViewDefinition

BEFORE = 0
"""The ts of what was committed before the backlog began: earlier than everything in it."""


@dataclass(slots=True, eq=False)
class BacklogEntry:
    """A transaction in the backlog."""

    transaction: Transaction
    ts: int = LAST_TS
    committed: bool = False
    settled: bool = False
    """Every cut opened from now on includes it."""


class Backlog:
    """The transactions of a view's sources that something may still need."""

    def __init__(self, view: ViewDefinition, positions: Mapping[str, int]) -> None:
        self._schemas = {
            relation: pa.schema([(field.name, field.type) for field in view.fields_of(relation)])
            for relation in view.relations
        }
        self._kept: list[BacklogEntry] = []
        self._known = dict(positions)
        self._open: dict[int, str] = {}

    def __iter__(self) -> Iterator[BacklogEntry]:
        return iter(self._kept)

    def add_transaction(self, transaction: Transaction, committed: bool = False) -> BacklogEntry:
        """A transaction that has just been received; `committed` if the view already has it."""
        kept = BacklogEntry(transaction, settled=transaction.settled)
        if committed:
            kept.ts, kept.committed = BEFORE, True
        self._kept.append(kept)
        self._extend_known(transaction.source)
        return kept

    def _extend_known(self, source: str) -> None:
        mine = [k.transaction for k in self._kept if k.transaction.source == source]
        for transaction in sorted(mine, key=lambda t: t.position):
            if transaction.after <= self._known.get(source, 0) < transaction.position:
                self._known[source] = transaction.position

    def known_position(self, source: str) -> int:
        """The position up to which every transaction of a source was received."""
        return self._known.get(source, 0)

    def take_transactions(self, transactions: Iterable[Transaction], ts: int) -> None:
        """Give waiting transactions their ts."""
        for kept in self._entries_of(transactions):
            assert kept.ts == LAST_TS, "a transaction gets its ts once"
            kept.ts = ts

    def mark_committed(self, transactions: Iterable[Transaction]) -> None:
        """Their effect is in the view."""
        for kept in self._entries_of(transactions):
            kept.committed = True

    def _entries_of(self, transactions: Iterable[Transaction]) -> list[BacklogEntry]:
        wanted = {id(transaction) for transaction in transactions}
        return [kept for kept in self._kept if id(kept.transaction) in wanted]

    def note_asked(self, number: int, source: str) -> None:
        """A lookup is under way: its cut may be as old as now."""
        self._open[number] = source

    def note_answered(self, number: int, cut: Cut) -> None:
        """An answer came: what its cut includes is in every cut that is opened from now on."""
        source = self._open.pop(number)
        for kept in self._kept:
            if kept.transaction.source == source and cut.includes(kept.transaction.position):
                kept.settled = True

    def forget_settled(self) -> None:
        """Forget what nothing can need any more."""
        at_work = min((k.ts for k in self._kept if not k.committed), default=LAST_TS)
        asked = set(self._open.values())
        self._kept = [
            k
            for k in self._kept
            if not k.committed or not k.settled or k.ts > at_work or k.transaction.source in asked
        ]

    def acknowledged_positions(self, positions: Mapping[str, int]) -> dict[str, int]:
        """Per source, up to where nothing need be delivered again, given what is committed."""
        limits = dict(positions)
        for kept in self._kept:
            source, after = kept.transaction.source, kept.transaction.after
            limits[source] = min(limits.get(source, after), after)
        return limits

    def matching_changes(self, lookup: Lookup) -> pa.Table:
        """The changes of the lookup's relation, as compensation asks for them."""
        schema = self._schemas[lookup.relation]
        columns = [(name, schema.field(name).type) for name in lookup.columns]
        extra = [(name, pa.int64()) for name in (COUNT, POSITION, TS)]
        wanted = pa.schema([*columns, *extra])
        tables = [
            changes.append_column(TS, pa.array(np.full(changes.num_rows, kept.ts)))
            for kept in self._kept
            if (changes := kept.transaction.changes.get(lookup.relation)) is not None
        ]
        return pa.concat_tables([wanted.empty_table(), *(t.select(wanted.names) for t in tables)])
