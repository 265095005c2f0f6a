"""SWEEP: one update after the other, each swept through all other sources and corrected on the way.

Citation: Agrawal, El Abbadi, Singh, Yurek: Efficient View Maintenance at Data Warehouses, SIGMOD
1997, sections 4 and 5, figure 4.

Assumes: every answer knows what it contains, by arrival order as in the paper or by its cut.

Guarantees: complete consistency; a global transaction is one update once all of its parts are
there. n updates over m relations cost n(m - 1) lookups.

Invariants:
1. Units are committed in the order in which they arrived, each in a commit of its own.
2. What is received meanwhile is later than the unit at work and is removed from every answer.

Variants: *pipelined*, several updates are swept at the same time and committed in order (the
paper's section 5.3); *arms*, the branches of the join tree around the changed relation are swept at
the same time and merged at the end (left and right sweep in parallel, `viewkeeper.maintain.arms`).

Symbols: UpdateMessageQueue is `Intake.waiting` and the backlog; ViewChange is `view_change`.
"""

from __future__ import annotations

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.arms import by_arms
from viewkeeper.maintain.intake import Intake, Taken
from viewkeeper.maintain.protocol import Action, Answered, Change, Delivered, Event, Resume
from viewkeeper.maintain.unit_change import Efforts, Strategy, by_walk, unit_rows
from viewkeeper.view.plan import SweepPlan


class Sweep:
    """SWEEP; `parallel` is the number of updates in the pipeline, 1 as in figure 4.

    `arms`: the branches around a change are swept at the same time.
    """

    def __init__(
        self,
        algebra: Algebra[D],
        plan: SweepPlan,
        resume: Resume,
        parallel: int = 1,
        arms: bool = False,
    ) -> None:
        self._algebra = algebra
        self._plan = plan
        self._parallel = parallel
        self._strategy: Strategy[D] = by_arms if arms else by_walk
        self._intake = Intake(plan.view, resume)
        self._efforts: Efforts[int, D] = Efforts(self._intake.backlog.known)
        self._line: list[Taken] = []
        """What was taken and is not committed, in order."""
        self._results: dict[int, list[Change]] = {}

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
        """Commit what is first in line and done; take what there is room for."""
        actions = self._committed()
        while self._intake.ready and len(self._line) < self._parallel:
            taken = self._intake.take()
            self._line.append(taken)
            effort = self._strategy(self._algebra, self._plan, taken, self._intake.backlog)
            asks = self._efforts.start(taken.ts, effort)
            actions += taken.actions + self._intake.asking(asks)
            actions += self._committed()
        return actions

    def _committed(self) -> list[Action]:
        for ts, rows in self._efforts.take():
            self._results[ts] = unit_rows(self._algebra, self._plan, rows)
        actions: list[Action] = []
        while self._line and self._line[0].ts in self._results:
            ts = self._line.pop(0).ts
            actions += self._intake.commit([ts], self._results.pop(ts))
        return actions

    @property
    def idle(self) -> bool:
        return self._intake.idle
