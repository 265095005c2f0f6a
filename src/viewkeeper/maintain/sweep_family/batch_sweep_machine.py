"""The batch sweep as a state machine: everything that waits is one batch, swept in parts.

Citation: Viewkeeper's own; the batch sweep itself is
`viewkeeper.maintain.sweep_family.batch_sweep`, which the Spark tasks of the engine run as well.

Assumes: every answer knows what it contains, by its cut.

Guarantees: complete consistency of the states as of every ts; strong consistency for a reader of
the newest state, which moves batch by batch.

Invariants:
1. One batch is at work at a time; it is all that waited when the one before it was committed.
2. Its ts are durable before its first lookup. A crash before its commit is followed by the very
   same batch, and by a new one only after it.
3. Parts are ranges of origin rows, swept at the same time, each answer with a cut of its own. A
   batch is committed in one step, with the rows of all its ts.

Symbols: see `viewkeeper.maintain.sweep_family.batch_sweep`.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.algorithm_protocol import (
    Action,
    ResumePoint,
)
from viewkeeper.maintain.compensation import KnownChanges
from viewkeeper.maintain.sweep_family.batch_sweep import Part, batch_sweep, split_origins
from viewkeeper.maintain.sweep_family.sweep_machine import SweepMachine
from viewkeeper.maintain.sweep_family.unit_change import Effort, origins_of, sum_results
from viewkeeper.maintain.unit_intake import TakenUnit
from viewkeeper.maintain.view_change import SweepGenerator
from viewkeeper.updates.view_actions import AddRows, ViewAction
from viewkeeper.view.sweep_plan import SweepPlan


class BatchSweep(SweepMachine[None, D]):
    """The batch sweep; `part_rows` is the most that is swept on its own."""

    def __init__(
        self, algebra: Algebra[D], plan: SweepPlan, resume: ResumePoint, part_rows: int = 10_000
    ) -> None:
        super().__init__(algebra, plan, resume)
        self._part_rows = part_rows
        self._batch: list[TakenUnit] = []

    def _go_on(self) -> list[Action]:
        actions = self._commit_finished()
        while self._intake.can_take and not self._batch:
            self._batch = self._form_batch()
            effort = sweep_in_parts(
                self._algebra, self._plan, self._batch, self._intake.backlog, self._part_rows
            )
            actions += [stamp for taken in self._batch for stamp in taken.stamp_actions]
            actions += self._intake.note_asks(self._efforts.start_effort(None, effort))
            actions += self._commit_finished()
        return actions

    def _form_batch(self) -> list[TakenUnit]:
        """What was begun before a crash, alone; otherwise everything that waits."""
        size = self._intake.resumed_count or len(self._intake.waiting)
        return [self._intake.take_unit() for _ in range(size)]

    def _commit_finished(self) -> list[Action]:
        actions: list[Action] = []
        for _, rows in self._efforts.take_changes():
            stamps = [taken.ts for taken in self._batch]
            self._batch = []
            changes: list[ViewAction] = []
            if rows is not None:
                changes.append(AddRows(self._algebra.lower_delta(self._algebra.consolidate(rows))))
            actions += self._intake.commit_units(stamps, changes)
        return actions


def sweep_in_parts(
    algebra: Algebra[D],
    plan: SweepPlan,
    batch: Sequence[TakenUnit],
    pending: KnownChanges,
    part_rows: int,
) -> Effort[D]:
    """The sweeps of a batch: one for each part of its origin rows."""
    origins = origins_of(plan, *batch)
    sizes = {p.index: len(origins.get(p.index, ())) for p in plan.view.places}

    def sweep_of(part: Part) -> SweepGenerator[D | None]:
        mine = {s.place: origins[s.place].slice(s.start, s.stop - s.start) for s in part}
        return batch_sweep(algebra, plan, mine, pending)

    sweeps = [sweep_of(part) for part in split_origins(plan, sizes, part_rows)]
    return Effort(sweeps, lambda results: sum_results(algebra, results))
