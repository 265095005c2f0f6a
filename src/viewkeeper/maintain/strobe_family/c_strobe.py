"""C-Strobe: the view after every single update, by queries that put right what queries saw early.

Citation: Zhuge, Garcia-Molina, Wiener: The Strobe Algorithms for Multi-Source Warehouse Consistency
(1996), section 6 and appendix B; C-TStrobe, at the end of section 6, is left to the reader there.

Assumes: the stored view has a key of every relation; a source's reports and answers arrive in the
order in which they were sent; for C-TStrobe, also that a transaction of one source is reported as
a unit.

Guarantees: complete consistency when every transaction is one insertion or one deletion; like
Strobe it does not understand transactions, and with several changes in one only convergence is
left. *C-TStrobe* handles whole transactions, each with one query for all that it inserts, and is
complete for those of one source too; of global ones it handles the parts like transactions of their
sources, as T-Strobe does, and is weak. With `gather`, parts wait until the transaction is whole;
since what waits counts as later and is compensated, global transactions are then complete too.
With a `period` of k, up to k updates that wait are handled together and shown together: strong
instead of complete. Neither needs quiet moments.

Invariants, with a transaction for an update in C-TStrobe (what is left of it when rows that it
inserts and deletes again are removed: its deletions by key first, then the rows of its one query):
1. Updates are handled one at a time (k at a time), in order; all later ones wait in the holding
   queue. A deletion is a key delete. An insertion is a query, whose rows are collected in Delta.
2. An answer lacks the rows of later deletions. For each of those, received after what caused the
   query and before its answer, the query is asked once more with the deleted row in place of its
   relation; that has one relation less, so it ends. `grouped`: one query for all deletions of a
   place.
3. When all is answered, rows that later updates inserted are taken out of Delta, unless the very
   same row (in every column that the view reads) was deleted by a later update before: then it was
   there all the time.
4. Delta has unprojected rows, so that versions of one key can be told apart; it has no duplicates.
5. A commit stands for whole transactions only, as in Strobe.
6. The holding queue has the updates of one source in its order. A report that overtook what
   precedes it at its source counts as received when the gap is closed; no answer of that source is
   handed over before.
7. Rows are compared in the columns that the view reads at a place. Two versions of a row that look
   the same there are one row that never went away.

How many queries: with K deletions during each query and n relations, the paper bounds one
insertion's compensating queries by K^(n-2), and by (n-1)! when grouped. It counts only the last
round. With all rounds there are K + K^2 + ... + K^(n-2), and grouped (n-1) + (n-1)(n-2) + ... down
to queries with one relation. `queries` and `compensating` count those that need a source at all.

Symbols: an update U is `RowUpdate`; "U_p received after U_j" is `Moment` order; UL(T) without pairs
is `net_of`; Q_{i,i,0} is the first `StrobeQuery` of a `_Work`, Q_{i,j,k}<U_p> is
`_compensating_queries`; Delta is `_Work.delta`; key_delete* is `rows_without` on all columns of a
place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Generic

import pyarrow as pa

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.algorithm_protocol import Action, Delivered, Event, ResumePoint
from viewkeeper.maintain.query_terms import source_evaluate
from viewkeeper.maintain.running_sweeps import RunningSweeps
from viewkeeper.maintain.strobe_family.key_delete import (
    Changes,
    Keys,
    Values,
    changes_at_places,
    comparable_rows,
    insert_changes,
    insertion_flags,
    key_deletes,
    net_of,
    rows_without,
    stored_rows,
)
from viewkeeper.maintain.unit_intake import TakenUnit, Unit, UnitIntake
from viewkeeper.updates.backlog import Backlog
from viewkeeper.updates.transaction import Transaction
from viewkeeper.updates.view_actions import ViewAction
from viewkeeper.view.definition import Place, Relation
from viewkeeper.view.sweep_plan import SweepPlan

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


@dataclass(frozen=True, slots=True, eq=False)
class StrobeQuery:
    """Inserted rows at their places, deleted rows at others, and what it was caused by."""

    origins: Mapping[int, pa.Table]
    bound: Mapping[int, pa.Table]
    since: Moment


@dataclass(frozen=True, slots=True, eq=False)
class UpdatePiece:
    """Updates that are handled at a time; `ts` if their transactions are through with them."""

    updates: tuple[RowUpdate, ...]
    ts: int | None


@dataclass(slots=True, eq=False)
class _Work(Generic[D]):
    """The pieces at work: what they delete, and what they insert as far as it is known."""

    stamps: list[int]
    deletes: list[ViewAction]
    delta: list[D] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CStrobeRules:
    """`grouped` and `period` as above; whole transactions, and `gather`, are C-TStrobe's."""

    grouped: bool
    period: int
    whole_units: bool = False
    gather: bool = False


class CStrobe(Generic[D]):
    """C-Strobe and C-TStrobe, by their rules."""

    def __init__(
        self,
        algebra: Algebra[D],
        plan: SweepPlan,
        resume: ResumePoint,
        keys: Keys,
        rules: CStrobeRules,
    ) -> None:
        self._algebra = algebra
        self._plan = plan
        self._keys = keys
        self._rules = rules
        self._intake = UnitIntake(plan.view, resume, apart=not rules.gather)
        self._queue = HoldingQueue(resume.positions)
        self._jobs: RunningSweeps[StrobeQuery, D | None] = RunningSweeps(
            self._intake.backlog.known_position
        )
        self._pieces: deque[UpdatePiece] = deque()
        """The rest of what was taken."""
        self._work: _Work[D] | None = None
        self.queries = 0
        """How many queries the insertions themselves needed."""
        self.compensating = 0
        """How many queries later deletions made necessary."""

    def receive_event(self, event: Event) -> list[Action]:
        actions: list[Action] = []
        if isinstance(event, Delivered):
            self._intake.take_delivery(event)
            self._queue.receive_arrivals(self._intake.backlog)
        else:
            self._intake.note_answer(event)
            actions += self._intake.note_asks(self._jobs.take_answer(event))
            actions += self._collect_answers()
        while self._work is None and (self._pieces or self._intake.can_take):
            actions += self._begin_work()
        return actions

    def _begin_work(self) -> list[Action]:
        actions: list[Action] = []
        pieces: list[UpdatePiece] = []
        while len(pieces) < self._rules.period and (self._pieces or self._intake.can_take):
            if not self._pieces:
                taken = self._intake.take_unit()
                actions += taken.stamp_actions
                self._pieces.extend(self._split_unit(taken))
            pieces.append(self._pieces.popleft())
        updates = [update for piece in pieces for update in piece.updates]
        self._queue.remove_updates(updates)
        net = net_of(self._plan, self._keys, changes_from(updates))
        stamps = [piece.ts for piece in pieces if piece.ts is not None]
        self._work = _Work(stamps, key_deletes(self._plan, self._keys, net.deleted))
        if net.inserted:
            first = StrobeQuery(changes_at_places(self._plan, net.inserted), {}, START)
            self.queries += self._needs_source(first)
            actions += self._start_query(first)
        return actions + self._collect_answers()

    def _split_unit(self, taken: TakenUnit) -> list[UpdatePiece]:
        """Each update on its own; the last of them brings its transaction through."""
        updates = self._queue.updates_of(taken.unit)
        if self._rules.whole_units or not updates:
            return [UpdatePiece(tuple(updates), taken.ts)]
        pieces = [UpdatePiece((update,), None) for update in updates[:-1]]
        return [*pieces, UpdatePiece((updates[-1],), taken.ts)]

    def _start_query(self, query: StrobeQuery) -> list[Action]:
        sweep = source_evaluate(self._algebra, self._plan, query.origins, query.bound)
        return self._intake.note_asks(self._jobs.start_sweep(query, sweep))

    def _collect_answers(self) -> list[Action]:
        """Collect answers and ask for what they lack; commit when nothing is unanswered."""
        assert self._work is not None, "answers belong to the work at hand"
        actions: list[Action] = []
        while ended := self._jobs.take_results():
            for query, found in ended:
                if found is not None:
                    self._work.delta.append(found)
                for again in self._compensating_queries(query):
                    self.compensating += self._needs_source(again)
                    actions += self._start_query(again)
        return actions if len(self._jobs) else actions + self._commit_work(self._work)

    def _compensating_queries(self, query: StrobeQuery) -> Iterator[StrobeQuery]:
        """The query with rows that were deleted after its cause in place of their relation."""
        for place in self._plan.view.places:
            origins = {p: rows for p, rows in query.origins.items() if p != place.index}
            if place.index in query.bound or not origins:
                continue
            deletions = self._queue.deletions_since(place, query.since)
            groups = [deletions] if self._rules.grouped else [[deletion] for deletion in deletions]
            for group in groups:
                if group:
                    rows = changes_at_places(self._plan, changes_from(group))[place.index]
                    bound = {**query.bound, place.index: rows}
                    yield StrobeQuery(origins, bound, (group[0].number, place.index))

    def _needs_source(self, query: StrobeQuery) -> bool:
        """Whether some relation is left to be asked for."""
        return len(self._plan.view.places) > len(query.bound) + 1

    def _commit_work(self, work: _Work[D]) -> list[Action]:
        changes = list(work.deletes)
        if work.delta:
            rows = self._algebra.lower_delta(
                self._algebra.consolidate(self._algebra.add(work.delta))
            )
            for place in self._plan.view.places:
                rows = rows_without(rows, _column_labels(place), self._queue.new_rows(place))
            changes += insert_changes(
                stored_rows(self._algebra, self._plan, self._algebra.lift_table(rows))
            )
        self._work = None
        if not work.stamps and not changes:
            return []
        return self._intake.commit_units(work.stamps, changes)

    @property
    def is_idle(self) -> bool:
        return self._intake.is_idle


def _column_labels(place: Place) -> list[str]:
    return [f"{place.index}.{name}" for name in place.columns]


def make_c_strobe(
    algebra: Algebra[D],
    plan: SweepPlan,
    resume: ResumePoint,
    *,
    keys: Keys,
    grouped: bool = True,
    period: int = 1,
) -> CStrobe[D]:
    """C-Strobe."""
    return CStrobe(algebra, plan, resume, keys, CStrobeRules(grouped, period))


def make_c_t_strobe(
    algebra: Algebra[D],
    plan: SweepPlan,
    resume: ResumePoint,
    *,
    keys: Keys,
    grouped: bool = True,
    period: int = 1,
    gather: bool = False,
) -> CStrobe[D]:
    """C-TStrobe."""
    rules = CStrobeRules(grouped, period, whole_units=True, gather=gather)
    return CStrobe(algebra, plan, resume, keys, rules)
