"""What the machines of the sweep family have in common: events in, sweeps at work, commits out.

`SweepMachine` is the frame: a delivery goes to the intake, an answer to the sweep that asked.
`ParallelSweep` has up to `parallel` units at work, each swept on its own. It commits each as soon
as it is ready or, `ordered`, keeps what is ready in a commit queue until everything before it is
committed. SWEEP, PVM and PVM CC are this machine in three modes: that is PVM's own point (Zhang,
Ding, Rundensteiner 2003, section 7.2: with one thread it is SWEEP).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import takewhile
from typing import Generic, TypeVar

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.algorithm_protocol import Action, Answered, Delivered, Event, ResumePoint
from viewkeeper.maintain.sweep_family.unit_change import RunningEfforts, Strategy, unit_rows
from viewkeeper.maintain.unit_intake import UnitIntake
from viewkeeper.updates.view_actions import ViewAction
from viewkeeper.view.sweep_plan import SweepPlan

K = TypeVar("K", bound=Hashable)


class SweepMachine(ABC, Generic[K, D]):
    """An algorithm that makes efforts, each under a key."""

    def __init__(self, algebra: Algebra[D], plan: SweepPlan, resume: ResumePoint) -> None:
        self._algebra = algebra
        self._plan = plan
        self._intake = UnitIntake(plan.view, resume)
        self._efforts: RunningEfforts[K, D] = RunningEfforts(self._intake.backlog.known_position)

    def receive_event(self, event: Event) -> list[Action]:
        if isinstance(event, Delivered):
            self._intake.take_delivery(event)
            return self._go_on()
        return self._take_answer(event)

    def _take_answer(self, event: Answered) -> list[Action]:
        self._intake.note_answer(event)
        actions = self._intake.note_asks(self._efforts.take_answer(event))
        return actions + self._go_on()

    @abstractmethod
    def _go_on(self) -> list[Action]:
        """Commit what is done, and take what there is room for."""

    @property
    def is_idle(self) -> bool:
        return self._intake.is_idle


@dataclass(frozen=True, slots=True)
class SweepMode(Generic[D]):
    """How units are swept: so many at a time, by a strategy; `ordered`: committed in ts order."""

    parallel: int
    strategy: Strategy[D]
    ordered: bool


class ParallelSweep(SweepMachine[int, D]):
    """Units swept side by side, by ts, and committed as soon as the mode allows it."""

    def __init__(
        self, algebra: Algebra[D], plan: SweepPlan, resume: ResumePoint, mode: SweepMode[D]
    ) -> None:
        super().__init__(algebra, plan, resume)
        self._mode = mode
        self._at_work: list[int] = []
        """The ts that were taken and are not committed, in order."""
        self._queue: dict[int, list[ViewAction]] = {}
        """View changes that are done and not committed, by ts."""

    def _go_on(self) -> list[Action]:
        actions = self._commit_finished()
        while self._intake.can_take and len(self._at_work) < self._mode.parallel:
            taken = self._intake.take_unit()
            self._at_work.append(taken.ts)
            effort = self._mode.strategy(self._algebra, self._plan, taken, self._intake.backlog)
            asks = self._efforts.start_effort(taken.ts, effort)
            actions += taken.stamp_actions + self._intake.note_asks(asks)
            actions += self._commit_finished()
        return actions

    def _commit_finished(self) -> list[Action]:
        actions: list[Action] = []
        for ts, rows in self._efforts.take_changes():
            self._queue[ts] = unit_rows(self._algebra, self._plan, rows)
            for ready in self._ready_stamps():
                self._at_work.remove(ready)
                actions += self._intake.commit_units([ready], self._queue.pop(ready))
        return actions

    def _ready_stamps(self) -> list[int]:
        """The ts whose changes are done and need not wait for one before them."""
        if self._mode.ordered:
            return list(takewhile(self._queue.__contains__, self._at_work))
        return list(self._queue)
