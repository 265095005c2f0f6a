"""T-Strobe: Strobe on whole transactions, each with one query for all that it inserts.

Citation: Zhuge, Garcia-Molina, Wiener: The Strobe Algorithms for Multi-Source Warehouse Consistency
(1996), section 5.3; global transactions, Example 5 and G-Strobe: section 5.4.

Assumes: the stored view has a key of every relation; a source's reports and answers arrive in the
order in which they were sent; a transaction of one source is reported as a unit.

Guarantees: strong consistency for single updates and for transactions of one source; weak
consistency for global transactions, because each part is handled when it arrives, like a
transaction of its source. It needs quiet moments.

With `gather`, parts wait until the transaction is whole, as the paper tells its Example 5. Every
state of that example is the same either way, but weak consistency is then lost in general: an
answer sees a part that waits, while the stored rows do not have it yet, so a state can mix a source
with and without one of its transactions. (r1 has a, r2 is empty; a part that waits inserts b, which
joins everything; the answer for a new row c is (c, b), and (a, b) is missing.) G-Strobe waits with
the commit too, and has no such state.

Invariants:
1. Of a transaction, what it inserts and deletes again is left out; its deletions go to the action
   list; all that it inserts is one query.
2. The view changes only when everything received is handled and no query is unanswered; it is then
   the view over exactly what was received.

Symbols: UL(T) without pairs is `net_of`, IL(T) is `Net.inserted`; AL, UQS and pending(Q) are
`ActionList`.

*G-Strobe* is T-Strobe that shows nothing while a global transaction has arrived in part. It assumes
that the parts of a global transaction name it and their number, or that one source reports them
all, and that transactions carry their source's sequence numbers. It guarantees strong consistency
for global transactions too, and needs moments at which none of them is half received. The view
changes under three conditions:
1. No query is unanswered.
2. What a received transaction depends on was received too: nothing that arrived waits for what
   precedes it at its source (the conservative form, by sequence numbers).
3. All parts of every transaction of which some part arrived were received and handled.

TT is what was handled since the last commit, together with what the intake holds
(`UnitIntake.has_held`).
"""

from __future__ import annotations

from typing import Generic, Literal

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.algorithm_protocol import Action, Delivered, Event, ResumePoint
from viewkeeper.maintain.strobe_family.action_list import ActionList
from viewkeeper.maintain.strobe_family.key_delete import Keys, net_of
from viewkeeper.maintain.unit_intake import TakenUnit, UnitIntake, changes_of
from viewkeeper.view.sweep_plan import SweepPlan

PartRule = Literal["apart", "gathered", "awaited"]
"""How the parts of a global transaction are handled: each on its own, when the transaction is
whole, or when it is whole while also the commit waits for it."""


class TStrobe(Generic[D]):
    """T-Strobe under one of its rules for global transactions; `awaited` makes it G-Strobe."""

    def __init__(
        self, algebra: Algebra[D], plan: SweepPlan, resume: ResumePoint, keys: Keys, parts: PartRule
    ) -> None:
        self._plan = plan
        self._keys = keys
        self._parts = parts
        self._intake = UnitIntake(plan.view, resume, apart=parts == "apart")
        self._list = ActionList(algebra, plan, keys, self._intake)
        self._through: list[int] = []
        """The ts of transactions that were handled since the last commit."""

    def receive_event(self, event: Event) -> list[Action]:
        if not isinstance(event, Delivered):
            return self._list.take_answer(event) + self._commit_list()
        self._intake.take_delivery(event)
        actions: list[Action] = []
        while self._intake.can_take:
            actions += self._handle_unit(self._intake.take_unit())
        return actions + self._commit_list()

    def _handle_unit(self, taken: TakenUnit) -> list[Action]:
        net = net_of(self._plan, self._keys, changes_of(taken.unit))
        self._list.note_deletions(net.deleted)
        self._through.append(taken.ts)
        return taken.stamp_actions + self._list.ask_insertions(net.inserted)

    def _commit_list(self) -> list[Action]:
        """The commit of the action list, if it is whole and stands for something."""
        if not self._through or not self._may_apply():
            return []
        through, self._through = self._through, []
        return self._intake.commit_units(through, self._list.take_changes())

    def _may_apply(self) -> bool:
        return self._list.is_quiet and not (self._parts == "awaited" and self._intake.has_held)

    @property
    def is_idle(self) -> bool:
        return self._intake.is_idle


def make_t_strobe(
    algebra: Algebra[D], plan: SweepPlan, resume: ResumePoint, *, keys: Keys, gather: bool = False
) -> TStrobe[D]:
    """T-Strobe; `gather`: the parts of a global transaction wait for each other."""
    return TStrobe(algebra, plan, resume, keys, "gathered" if gather else "apart")


def make_g_strobe(
    algebra: Algebra[D], plan: SweepPlan, resume: ResumePoint, *, keys: Keys
) -> TStrobe[D]:
    """G-Strobe."""
    return TStrobe(algebra, plan, resume, keys, "awaited")
