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
from viewkeeper.maintain.algorithm_protocol import Action, Delivered, Event, Resume
from viewkeeper.maintain.query_terms import source_evaluate
from viewkeeper.maintain.running_sweeps import Jobs
from viewkeeper.maintain.strobe_family.key_delete import (
    Keys,
    at_places,
    changes_of,
    inserts,
    key_deletes,
    net_of,
    stored,
)
from viewkeeper.maintain.unit_intake import Intake, Taken
from viewkeeper.view.sweep_plan import SweepPlan


class Conventional(Generic[D]):
    """Conventional maintenance, without compensation."""

    def __init__(self, algebra: Algebra[D], plan: SweepPlan, resume: Resume, *, keys: Keys) -> None:
        self._algebra = algebra
        self._plan = plan
        self._keys = keys
        self._intake = Intake(plan.view, resume, apart=True)
        self._jobs: Jobs[int, D | None] = Jobs(self._intake.backlog.known)

    def receive(self, event: Event) -> list[Action]:
        if not isinstance(event, Delivered):
            self._intake.answered(event)
            return self._intake.asking(self._jobs.answer(event)) + self._inserted()
        self._intake.deliver(event)
        actions: list[Action] = []
        while self._intake.ready:
            actions += self._handled(self._intake.take())
        return actions

    def _handled(self, taken: Taken) -> list[Action]:
        net = net_of(self._plan, self._keys, changes_of(taken.unit))
        deletes = key_deletes(self._plan, self._keys, net.deleted)
        if not net.inserted:
            return taken.actions + self._intake.commit([taken.ts], deletes)
        actions = taken.actions
        if deletes:
            actions += self._intake.commit([], deletes)
        sweep = source_evaluate(self._algebra, self._plan, at_places(self._plan, net.inserted))
        actions += self._intake.asking(self._jobs.start(taken.ts, sweep))
        return actions + self._inserted()

    def _inserted(self) -> list[Action]:
        """The commits of answers that are whole, as they are."""
        actions: list[Action] = []
        for ts, found in self._jobs.take():
            changes = [] if found is None else inserts(stored(self._algebra, self._plan, found))
            actions += self._intake.commit([ts], changes)
        return actions

    @property
    def idle(self) -> bool:
        return self._intake.idle
