"""What the machines of the sweep family have in common: events in, sweeps at work, commits out.

`Machine` is the frame: a delivery goes to the intake, an answer to the sweep that asked. `Sweeping`
has up to `parallel` units at work, each swept on its own, and commits each as soon as it is ready;
`InOrder` keeps what is ready in a commit queue until everything before it is committed. SWEEP, PVM
and PVM CC are these with a strategy and a number: that is PVM's own point (Zhang, Ding,
Rundensteiner 2003, section 7.2: with one thread it is SWEEP).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Generic, TypeVar

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.algorithm_protocol import (
    Action,
    Answered,
    Change,
    Delivered,
    Event,
    Resume,
)
from viewkeeper.maintain.sweep_family.unit_change import Efforts, Strategy, unit_rows
from viewkeeper.maintain.unit_intake import Intake
from viewkeeper.view.sweep_plan import SweepPlan

K = TypeVar("K", bound=Hashable)


class Machine(ABC, Generic[K, D]):
    """An algorithm that makes efforts, each under a key."""

    def __init__(self, algebra: Algebra[D], plan: SweepPlan, resume: Resume) -> None:
        self._algebra = algebra
        self._plan = plan
        self._intake = Intake(plan.view, resume)
        self._efforts: Efforts[K, D] = Efforts(self._intake.backlog.known)

    def receive(self, event: Event) -> list[Action]:
        if isinstance(event, Delivered):
            self._intake.deliver(event)
            return self._go_on()
        return self._answered(event)

    def _answered(self, event: Answered) -> list[Action]:
        self._intake.answered(event)
        actions = self._intake.asking(self._efforts.answer(event))
        return actions + self._go_on()

    @abstractmethod
    def _go_on(self) -> list[Action]:
        """Commit what is done, and take what there is room for."""

    @property
    def idle(self) -> bool:
        return self._intake.idle


class Sweeping(Machine[int, D]):
    """Units swept side by side, by ts, and committed as soon as they are ready."""

    def __init__(
        self,
        algebra: Algebra[D],
        plan: SweepPlan,
        resume: Resume,
        parallel: int,
        strategy: Strategy[D],
    ) -> None:
        super().__init__(algebra, plan, resume)
        self._parallel = parallel
        self._strategy = strategy
        self._at_work: list[int] = []
        """The ts that were taken and are not committed, in order."""

    def _go_on(self) -> list[Action]:
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


class InOrder(Sweeping[D]):
    """The same, committed in the order of the ts."""

    def __init__(
        self,
        algebra: Algebra[D],
        plan: SweepPlan,
        resume: Resume,
        parallel: int,
        strategy: Strategy[D],
    ) -> None:
        super().__init__(algebra, plan, resume, parallel, strategy)
        self._queue: dict[int, list[Change]] = {}
        """View changes that are done, by ts, until everything before them is committed."""

    def _finished(self, ts: int, changes: list[Change]) -> list[Action]:
        self._queue[ts] = changes
        actions: list[Action] = []
        while self._at_work and self._at_work[0] in self._queue:
            first = self._at_work[0]
            actions += super()._finished(first, self._queue.pop(first))
        return actions
