"""Conventional maintenance: as if nothing else ever happened while a query is under way.

Citation: Blakeley, Larson, Tompa: Efficiently updating materialized views, SIGMOD 1986, as the
Strobe paper runs it over several sources (Zhuge, Garcia-Molina, Wiener 1996, Example 1).

Assumes: the stored view has a key of every relation; updates are so far apart that none overlaps
with the query of another.

Guarantees: nothing, where they overlap. A deletion that arrives while an insertion's query is under
way finds nothing to delete, and the answer brings the row in for good. It is here to show that.

Invariants:
1. Deletions are applied by key when they arrive, an insertion's answer when it arrives; nobody is
   told of the other.
2. A commit claims what the algorithm believes: the transactions that it has handled.

Symbols: V<U> is `source_evaluate`.
"""

from __future__ import annotations

from typing import Generic

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.algorithm_protocol import Action, Delivered, Event, ResumePoint
from viewkeeper.maintain.query_terms import source_evaluate
from viewkeeper.maintain.running_sweeps import RunningSweeps
from viewkeeper.maintain.strobe_family.key_delete import (
    Keys,
    changes_at_places,
    insert_changes,
    key_deletes,
    net_of,
    stored_rows,
)
from viewkeeper.maintain.unit_intake import TakenUnit, UnitIntake, changes_of
from viewkeeper.view.sweep_plan import SweepPlan


class Conventional(Generic[D]):
    """Conventional maintenance, without compensation."""

    def __init__(
        self, algebra: Algebra[D], plan: SweepPlan, resume: ResumePoint, *, keys: Keys
    ) -> None:
        self._algebra = algebra
        self._plan = plan
        self._keys = keys
        self._intake = UnitIntake(plan.view, resume, apart=True)
        self._jobs: RunningSweeps[int, D | None] = RunningSweeps(
            self._intake.backlog.known_position
        )

    def receive_event(self, event: Event) -> list[Action]:
        if not isinstance(event, Delivered):
            self._intake.note_answer(event)
            return self._intake.note_asks(self._jobs.take_answer(event)) + self._commit_answers()
        self._intake.take_delivery(event)
        actions: list[Action] = []
        while self._intake.can_take:
            actions += self._handle_unit(self._intake.take_unit())
        return actions

    def _handle_unit(self, taken: TakenUnit) -> list[Action]:
        net = net_of(self._plan, self._keys, changes_of(taken.unit))
        deletes = key_deletes(self._plan, self._keys, net.deleted)
        if not net.inserted:
            return taken.stamp_actions + self._intake.commit_units([taken.ts], deletes)
        actions = taken.stamp_actions
        if deletes:
            actions += self._intake.commit_units([], deletes)
        sweep = source_evaluate(
            self._algebra, self._plan, changes_at_places(self._plan, net.inserted)
        )
        actions += self._intake.note_asks(self._jobs.start_sweep(taken.ts, sweep))
        return actions + self._commit_answers()

    def _commit_answers(self) -> list[Action]:
        """The commits of answers that are whole, as they are."""
        actions: list[Action] = []
        for ts, found in self._jobs.take_results():
            changes = (
                []
                if found is None
                else insert_changes(stored_rows(self._algebra, self._plan, found))
            )
            actions += self._intake.commit_units([ts], changes)
        return actions

    @property
    def is_idle(self) -> bool:
        return self._intake.is_idle
