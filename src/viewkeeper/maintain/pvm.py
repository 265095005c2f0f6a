"""PVM: view changes of several updates at the same time, committed as soon as they are ready.

Citation: Zhang, Ding, Rundensteiner: Parallel multisource view maintenance, The VLDB Journal 2003,
section 3, figure 14.

Assumes: every answer knows what it contains, by arrival order as in the paper or by its cut; the
stored view keeps rows with negative counts and hides what does not count more than zero.

Guarantees: convergence. In between, the view may show states that no sources ever had, because
commits overtake each other.

Invariants:
1. At most `parallel` updates are at work; they were taken in the order of their ts, and a ts is
   durable before its first lookup.
2. Every answer is corrected by every update that is known and has a larger ts or lacks in it,
   whether that one waits, is at work or is committed.
3. An update that is committed is kept for as long as one with a smaller ts is at work (the paper's
   Definition 2, seen from the moment at which the finished update has left the processing set; the
   printed clean-up runs just before it).
4. Everything up to the low-water mark is in the view; finished ts above it are listed with every
   commit, so that a crash between commits neither loses nor doubles a row.

Symbols: UMQ is `Intake.waiting`, PPU `_at_work`, its size p `parallel`, RPU what the backlog keeps
of committed transactions; CommitManager is `_finished`, AssignTimeStamp `Intake.take`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.intake import Intake
from viewkeeper.maintain.posse import by_cost
from viewkeeper.maintain.protocol import Action, Answered, Change, Delivered, Event, Resume
from viewkeeper.maintain.unit_change import Efforts, Strategy, by_walk, unit_rows
from viewkeeper.view.plan import SweepPlan

StrategyName = Literal["sweep", "posse"]


class Pvm:
    """PVM with `parallel` updates at work.

    `strategy` is the view change: one relation after the other, or stages by cost, which may be
    given estimates: `fan_out` says for (via, target) how many rows of one meet a row of the other.
    """

    def __init__(
        self,
        algebra: Algebra[D],
        plan: SweepPlan,
        resume: Resume,
        parallel: int = 4,
        strategy: StrategyName = "sweep",
        fan_out: Mapping[tuple[int, int], float] | None = None,
    ) -> None:
        self._algebra = algebra
        self._plan = plan
        self._parallel = parallel
        self._strategy: Strategy[D] = by_cost(fan_out) if strategy == "posse" else by_walk
        self._intake = Intake(plan.view, resume)
        self._efforts: Efforts[int, D] = Efforts(self._intake.backlog.known)
        self._at_work: list[int] = []
        """The ts that were taken and are not committed, in order."""

    def receive(self, event: Event) -> list[Action]:
        if isinstance(event, Delivered):
            self._intake.deliver(event)
            return self._go_on()
        return self._answered(event)

    def _answered(self, event: Answered) -> list[Action]:
        self._intake.answered(event)
        actions = self._intake.asking(self._efforts.answer(event))
        return actions + self._go_on()

    def _go_on(self) -> list[Action]:
        """Commit what is done and take what there is room for, until neither goes."""
        actions = self._committed()
        while self._intake.ready and len(self._at_work) < self._parallel:
            taken = self._intake.take()
            self._at_work.append(taken.ts)
            effort = self._strategy(self._algebra, self._plan, taken, self._intake.backlog)
            asks = self._efforts.start(taken.ts, effort)
            actions += taken.actions + self._intake.asking(asks)
            actions += self._committed()
        return actions

    def _committed(self) -> list[Action]:
        actions: list[Action] = []
        for ts, rows in self._efforts.take():
            actions += self._finished(ts, unit_rows(self._algebra, self._plan, rows))
        return actions

    def _finished(self, ts: int, changes: list[Change]) -> list[Action]:
        """A view change is done: commit it, whatever is still at work before it."""
        self._at_work.remove(ts)
        return self._intake.commit([ts], changes)

    @property
    def idle(self) -> bool:
        return self._intake.idle
