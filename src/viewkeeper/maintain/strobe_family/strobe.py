"""Strobe: deletions by key, insertions by query, and nothing shown before all answers are there.

Citation: Zhuge, Garcia-Molina, Wiener: The Strobe Algorithms for Multi-Source Warehouse Consistency
(1996), section 5.2 and appendix A.

Assumes: the stored view has a key of every relation; a source's reports and answers arrive in the
order in which they were sent.

Guarantees: strong consistency when every transaction is one insertion or one deletion. It does not
understand transactions: those of several changes, at one source or at many, are shown in part, and
only convergence is left (the paper's Example 4; an update is a deletion and an insertion, so it is
such a transaction). It needs quiet moments: while queries keep overlapping, the view stands still.

Invariants:
1. Every change is handled on its own, in the order of arrival.
2. The view changes only when no query is unanswered, by the whole action list in one commit; it is
   then the view over exactly what was received.
3. A commit stands for whole transactions only. One between two changes of a transaction claims what
   precedes it; after a crash the transaction is handled once more from its beginning, and comes to
   the same rows, because key deletes and inserts without duplicates can be repeated.

Symbols: AL, UQS and pending(Q) are `ActionList`; V<U> is `source_evaluate`.
"""

from __future__ import annotations

from typing import Generic

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.algorithm_protocol import Action, Delivered, Event, ResumePoint
from viewkeeper.maintain.strobe_family.action_list import ActionList
from viewkeeper.maintain.strobe_family.key_delete import Keys, net_of, single_changes
from viewkeeper.maintain.unit_intake import TakenUnit, UnitIntake
from viewkeeper.view.sweep_plan import SweepPlan


class Strobe(Generic[D]):
    """Strobe."""

    def __init__(
        self, algebra: Algebra[D], plan: SweepPlan, resume: ResumePoint, *, keys: Keys
    ) -> None:
        self._plan = plan
        self._keys = keys
        self._intake = UnitIntake(plan.view, resume, apart=True)
        self._list = ActionList(algebra, plan, keys, self._intake)
        self._through: list[int] = []
        """The ts of transactions all of whose changes were handled since the last commit."""

    def receive_event(self, event: Event) -> list[Action]:
        if not isinstance(event, Delivered):
            return self._list.take_answer(event) + self._commit_list()
        self._intake.take_delivery(event)
        actions: list[Action] = []
        while self._intake.can_take:
            actions += self._handle_unit(self._intake.take_unit())
        return actions

    def _handle_unit(self, taken: TakenUnit) -> list[Action]:
        actions = taken.stamp_actions
        for change in single_changes(taken.unit):
            actions += self._commit_list()
            net = net_of(self._plan, self._keys, change)
            self._list.note_deletions(net.deleted)
            actions += self._list.ask_insertions(net.inserted)
        self._through.append(taken.ts)
        return actions + self._commit_list()

    def _commit_list(self) -> list[Action]:
        """The commit of the action list, if it is whole and there is something to commit."""
        if not self._list.is_quiet or (self._list.is_empty and not self._through):
            return []
        through, self._through = self._through, []
        return self._intake.commit_units(through, self._list.take_changes())

    @property
    def is_idle(self) -> bool:
        return self._intake.is_idle
