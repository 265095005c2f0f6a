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
from viewkeeper.maintain.algorithm_protocol import Action, Delivered, Event, Resume
from viewkeeper.maintain.strobe_family.action_list import ActionList
from viewkeeper.maintain.strobe_family.key_delete import Keys, net_of, one_by_one
from viewkeeper.maintain.unit_intake import Intake, Taken
from viewkeeper.view.sweep_plan import SweepPlan


class Strobe(Generic[D]):
    """Strobe."""

    def __init__(self, algebra: Algebra[D], plan: SweepPlan, resume: Resume, *, keys: Keys) -> None:
        self._plan = plan
        self._keys = keys
        self._intake = Intake(plan.view, resume, apart=True)
        self._list = ActionList(algebra, plan, keys, self._intake)
        self._through: list[int] = []
        """The ts of transactions all of whose changes were handled since the last commit."""

    def receive(self, event: Event) -> list[Action]:
        if not isinstance(event, Delivered):
            return self._list.answer(event) + self._applied()
        self._intake.deliver(event)
        actions: list[Action] = []
        while self._intake.ready:
            actions += self._handled(self._intake.take())
        return actions

    def _handled(self, taken: Taken) -> list[Action]:
        actions = taken.actions
        for change in one_by_one(taken.unit):
            actions += self._applied()
            net = net_of(self._plan, self._keys, change)
            self._list.delete(net.deleted)
            actions += self._list.insert(net.inserted)
        self._through.append(taken.ts)
        return actions + self._applied()

    def _applied(self) -> list[Action]:
        """The commit of the action list, if it is whole and there is something to commit."""
        if not self._list.quiet or (self._list.is_empty and not self._through):
            return []
        through, self._through = self._through, []
        return self._intake.commit(through, self._list.take())

    @property
    def idle(self) -> bool:
        return self._intake.idle
