"""ECA: every query also asks for the opposite of what it does to the queries under way.

Citation: Zhuge, Garcia-Molina, Hammer, Widom: View Maintenance in a Warehousing Environment, SIGMOD
1995, as told by Agrawal, El Abbadi, Singh, Yurek 1997, section 3, and by the Strobe paper.

Assumes: one source has all relations, evaluates a whole query in one of its states, and sends
reports and answers in order. Rows have signed counts; no keys are needed.

Guarantees: strong consistency in every scenario, since with one source every transaction is local.
It needs quiet moments. Questions grow with the square of the number of updates that overlap (SWEEP
paper, section 3), which is the case of two relations: if k updates that overlap change place p, for
each p, they ask for the product of all k + 1, less one, terms together.

A query that is unanswered when a transaction T arrives will see T. So the query for T takes back
what T changes in it. Relations are read after T, and before T each changed relation was smaller by
its own change; so what T adds to a product is the sum, over the non-empty sets S of changed places
that are still free in it, of the product with the changes in S given, with a minus where S is even.
That covers transactions of several relations, and relations that the view uses twice.

Invariants:
1. Q(T) = V<T> - sum of Q<T> over all unanswered Q; every answer is evaluated in a state that
   contains exactly what was delivered when it arrives.
2. The view changes only when nothing is unanswered, by everything collected, in one commit.

Symbols: V<T> and Q<T> are `substitute_changes`; UQS is `_unanswered`; COLLECT is `_collected`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, count
from typing import Generic

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS, Algebra, D
from viewkeeper.maintain.algorithm_protocol import (
    Action,
    Answered,
    AskAction,
    Delivered,
    Event,
    ResumePoint,
    Term,
)
from viewkeeper.maintain.unit_intake import TakenUnit, UnitIntake, changes_of
from viewkeeper.maintain.view_change import project_outputs, relevant_changes
from viewkeeper.updates.view_actions import AddRows, ViewAction
from viewkeeper.view.sweep_plan import SweepPlan


def substitute_changes(terms: Iterable[Term], changes: Mapping[int, pa.Table]) -> Iterator[Term]:
    """What a transaction adds to a sum of terms that are read after it."""
    for term in terms:
        free = [place for place in changes if place not in term.bound]
        for size in range(1, len(free) + 1):
            sign = term.sign if size % 2 else -term.sign
            for places in combinations(free, size):
                yield Term(sign, {**term.bound, **{place: changes[place] for place in places}})


class Eca(Generic[D]):
    """The eager compensating algorithm."""

    def __init__(self, algebra: Algebra[D], plan: SweepPlan, resume: ResumePoint) -> None:
        assert len(plan.view.sources) == 1, "ECA is for one source"
        self._algebra = algebra
        self._plan = plan
        self._source = plan.view.sources[0]
        self._intake = UnitIntake(plan.view, resume)
        self._numbers = count(1)
        self._unanswered: dict[int, tuple[Term, ...]] = {}
        self._collected: list[pa.Table] = []
        self._through: list[int] = []
        """The ts of transactions that were handled since the last commit."""

    def receive_event(self, event: Event) -> list[Action]:
        actions: list[Action] = []
        if isinstance(event, Delivered):
            self._intake.take_delivery(event)
            while self._intake.can_take:
                actions += self._handle_unit(self._intake.take_unit())
        else:
            self._collect_answer(event)
        return actions + self._commit_collected()

    def _handle_unit(self, taken: TakenUnit) -> list[Action]:
        self._through.append(taken.ts)
        changes = self._changes_by_place(taken)
        whole = Term(1, {})
        under_way = [term for terms in self._unanswered.values() for term in terms]
        undone = [Term(-term.sign, term.bound) for term in substitute_changes(under_way, changes)]
        terms = (*substitute_changes([whole], changes), *undone)
        if not terms:
            return taken.stamp_actions
        number = next(self._numbers)
        self._unanswered[number] = terms
        known = self._intake.backlog.known_position(self._source)
        return taken.stamp_actions + self._intake.note_asks(
            [AskAction(number, self._source, known, terms=terms)]
        )

    def _changes_by_place(self, taken: TakenUnit) -> dict[int, pa.Table]:
        """Signed rows by place, where they can affect the view."""
        changes = changes_of(taken.unit)
        found = {}
        for place in self._plan.view.places:
            rows = changes.get(place.relation)
            if rows is None:
                continue
            netted = self._algebra.consolidate(
                self._algebra.lift_table(rows.select([*place.columns, COUNT]))
            )
            table = self._algebra.lower_delta(netted)
            if not self._algebra.is_empty(
                relevant_changes(self._algebra, self._plan, place.index, table)
            ):
                found[place.index] = table
        return found

    def _collect_answer(self, event: Answered) -> None:
        self._intake.note_answer(event)
        del self._unanswered[event.number]
        self._collected.append(event.answers[0].rows)

    def _commit_collected(self) -> list[Action]:
        if self._unanswered or not self._through:
            return []
        through, self._through = self._through, []
        collected, self._collected = self._collected, []
        found = [self._project_answer(rows, through[-1]) for rows in collected if rows.num_rows]
        changes: list[ViewAction] = []
        if found:
            total = self._algebra.consolidate(self._algebra.add(found))
            changes.append(AddRows(self._algebra.lower_delta(total)))
        return self._intake.commit_units(through, changes)

    def _project_answer(self, rows: pa.Table, ts: int) -> D:
        """Joined rows of an answer as the view shows them, under the ts of their commit."""
        bare = rows.drop_columns([TS]) if TS in rows.column_names else rows
        stamped = bare.append_column(TS, pa.array(np.full(rows.num_rows, ts)))
        return project_outputs(self._algebra, self._plan, self._algebra.lift_table(stamped))

    @property
    def is_idle(self) -> bool:
        return self._intake.is_idle
