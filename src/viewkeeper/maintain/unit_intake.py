"""The intake of an algorithm: from deliveries to units with a ts, and from results to commits.

Every algorithm takes units in some order, works on them, and commits them in the same or another
order. What they share is here: the backlog that compensation reads, the units that wait, the ts
that they get when they are taken, and the *low-water mark*: the ts up to which everything is in the
view. Commits out of order (PVM) are listed above the mark, so that a crash between them neither
loses nor doubles a row.

After a crash, transactions that had their ts keep it, and nothing is taken before all of them have
come again: a restart does exactly what was begun.

Putting global transactions together, and keeping each source's order while doing so.

A global transaction is maintained when all of its parts have arrived; a part that is missing holds
back what follows the others at their sources. Parts that two sources committed in opposite orders
have no serial order: they become one unit, with one ts. A part that another source reported early
waits for what its own source committed before it (Strobe, section 5.4: sequence numbers).

What comes out, in order, are *units*: one transaction, or the parts that belong together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from viewkeeper.maintain.algorithm_protocol import (
    AcknowledgeAction,
    Action,
    Answered,
    AskAction,
    CommitAction,
    Delivered,
    ResumePoint,
    StampAction,
)
from viewkeeper.updates.backlog import Backlog
from viewkeeper.updates.transaction import Transaction
from viewkeeper.updates.view_actions import ViewAction
from viewkeeper.view.definition import Relation, ViewDefinition

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


@dataclass(frozen=True, slots=True, eq=False)
class TakenUnit:
    """A unit with its ts; `stamp` makes the ts durable, None if it is already."""

    ts: int
    unit: Unit
    stamp: StampAction | None

    @property
    def stamp_actions(self) -> list[Action]:
        return [] if self.stamp is None else [self.stamp]


class UnitIntake:
    """Deliveries, units, ts and commits of one view."""

    def __init__(self, view: ViewDefinition, resume: ResumePoint, apart: bool = False) -> None:
        """`apart`: the parts of a global transaction are taken for transactions of their own."""
        self.backlog = Backlog(view, resume.positions)
        self.waiting: deque[Unit] = deque()
        """Units that nobody has taken yet, in order."""
        self._apart = apart
        self._gather = GlobalParts(resume.positions)
        self._mark = resume.ts
        self._positions = dict(resume.positions)
        self._next_ts = max([resume.ts, *(stamp.ts for stamp in resume.stamps)]) + 1
        self._stamps = list(resume.stamps)
        self._ahead = set(resume.ahead)
        self._again: list[TakenUnit] = []
        self._taken: dict[int, Unit] = {}
        self._acknowledged = dict(resume.positions)
        for transaction in resume.again:
            self.backlog.add_transaction(transaction, committed=True)

    def take_delivery(self, event: Delivered) -> None:
        """Take in a report; the units that it completes wait now."""
        arrived = event.transactions
        if self._apart:
            arrived = tuple(replace(transaction, whole=None) for transaction in arrived)
        for transaction in arrived:
            self.backlog.add_transaction(transaction)
        self.waiting.extend(self._gather.add_transactions(arrived))
        if self._stamps:
            self._restore_stamps()

    def _restore_stamps(self) -> None:
        """Give transactions that had a ts before the crash the same one, once all are there."""
        named = {(t.source, t.position): t for unit in self.waiting for t in unit}
        wanted = [key for stamp in self._stamps for key in stamp.transactions]
        if not all(key in named for key in wanted):
            return
        for stamp in sorted(self._stamps, key=lambda stamp: stamp.ts):
            unit = tuple(named[key] for key in stamp.transactions)
            self.backlog.take_transactions(unit, stamp.ts)
            self._taken[stamp.ts] = unit
            if stamp.ts in self._ahead:
                self.backlog.mark_committed(unit)
            else:
                self._again.append(TakenUnit(stamp.ts, unit, None))
        gone = set(wanted)
        rest = [unit for unit in self.waiting if not gone & {(t.source, t.position) for t in unit}]
        self.waiting = deque(rest)
        self._stamps = []

    @property
    def can_take(self) -> bool:
        """Whether there is something to take."""
        return not self._stamps and bool(self._again or self.waiting)

    @property
    def resumed_count(self) -> int:
        """How many of the next units had their ts before a crash, and keep it."""
        return len(self._again)

    def take_unit(self, unit: Unit | None = None) -> TakenUnit:
        """The next unit, or a given one of those that wait, with its ts."""
        if unit is None and self._again:
            return self._again.pop(0)
        if unit is None:
            unit = self.waiting.popleft()
        else:
            self.waiting.remove(unit)
        ts, self._next_ts = self._next_ts, self._next_ts + 1
        self.backlog.take_transactions(unit, ts)
        self._taken[ts] = unit
        return TakenUnit(ts, unit, StampAction(ts, tuple((t.source, t.position) for t in unit)))

    def note_asks(self, asks: Iterable[AskAction]) -> list[Action]:
        """The asks themselves, noted: until they are answered, their cuts may be old."""
        noted = list(asks)
        for ask in noted:
            self.backlog.note_asked(ask.number, ask.source)
        return [*noted]

    def note_answer(self, event: Answered) -> None:
        """Note what an answer says about cuts to come."""
        self.backlog.note_answered(event.number, event.answers[0].cut)

    def commit_units(self, stamps: Iterable[int], changes: Iterable[ViewAction]) -> list[Action]:
        """The commit of these ts, and what can be acknowledged after it."""
        for ts in stamps:
            self.backlog.mark_committed(self._taken[ts])
            self._ahead.add(ts)
        while self._mark + 1 in self._ahead:
            self._mark += 1
            self._ahead.remove(self._mark)
            for transaction in self._taken.pop(self._mark):
                self._positions[transaction.source] = transaction.position
        ahead = tuple(sorted(self._ahead))
        done = CommitAction(self._mark, dict(self._positions), tuple(changes), ahead)
        return [done, *self.acknowledge_sources()]

    def acknowledge_sources(self) -> list[Action]:
        """Forget what nothing needs, and tell the sources."""
        self.backlog.forget_settled()
        actions: list[Action] = []
        for source, position in self.backlog.acknowledged_positions(self._positions).items():
            if position > self._acknowledged.get(source, 0):
                self._acknowledged[source] = position
                actions.append(AcknowledgeAction(source, position))
        return actions

    @property
    def has_held(self) -> bool:
        """Whether something delivered waits for a missing part, or for what precedes it."""
        return bool(self._gather.held_transactions)

    @property
    def is_idle(self) -> bool:
        """Whether everything delivered is committed."""
        uncommitted = set(self._taken) - self._ahead
        return not (self.waiting or self._again or self._gather.held_transactions or uncommitted)
