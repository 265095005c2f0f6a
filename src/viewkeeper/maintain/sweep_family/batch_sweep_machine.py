"""The batch sweep as a state machine: everything that waits is one batch, swept in parts.

Citation: Viewkeeper's own; the batch sweep itself is `viewkeeper.maintain.sweep_family.batch_sweep`, which the
Spark tasks of the engine run as well.

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
from viewkeeper.maintain.algorithm_protocol import Action, Add, Change, Resume
from viewkeeper.maintain.compensation import Pending
from viewkeeper.maintain.sweep_family.batch_sweep import Part, batch_sweep, split
from viewkeeper.maintain.sweep_family.sweep_machine import Machine
from viewkeeper.maintain.sweep_family.unit_change import Effort, added, origins_of
from viewkeeper.maintain.unit_intake import Taken
from viewkeeper.maintain.view_change import Sweep
from viewkeeper.view.sweep_plan import SweepPlan


class BatchSweep(Machine[None, D]):
    """The batch sweep; `part_rows` is the most that is swept on its own."""

    def __init__(
        self, algebra: Algebra[D], plan: SweepPlan, resume: Resume, part_rows: int = 10_000
    ) -> None:
        super().__init__(algebra, plan, resume)
        self._part_rows = part_rows
        self._batch: list[Taken] = []

    def _go_on(self) -> list[Action]:
        actions = self._committed()
        while self._intake.ready and not self._batch:
            self._batch = self._formed()
            effort = in_parts(
                self._algebra, self._plan, self._batch, self._intake.backlog, self._part_rows
            )
            actions += [stamp for taken in self._batch for stamp in taken.actions]
            actions += self._intake.asking(self._efforts.start(None, effort))
            actions += self._committed()
        return actions

    def _formed(self) -> list[Taken]:
        """What was begun before a crash, alone; otherwise everything that waits."""
        size = self._intake.begun or len(self._intake.waiting)
        return [self._intake.take() for _ in range(size)]

    def _committed(self) -> list[Action]:
        actions: list[Action] = []
        for _, rows in self._efforts.take():
            stamps = [taken.ts for taken in self._batch]
            self._batch = []
            changes: list[Change] = []
            if rows is not None:
                changes.append(Add(self._algebra.lower(self._algebra.consolidate(rows))))
            actions += self._intake.commit(stamps, changes)
        return actions


def in_parts(
    algebra: Algebra[D],
    plan: SweepPlan,
    batch: Sequence[Taken],
    pending: Pending,
    part_rows: int,
) -> Effort[D]:
    """The sweeps of a batch: one for each part of its origin rows."""
    origins = origins_of(plan, *batch)
    sizes = {p.index: len(origins.get(p.index, ())) for p in plan.view.places}

    def sweep_of(part: Part) -> Sweep[D | None]:
        mine = {s.place: origins[s.place].slice(s.start, s.stop - s.start) for s in part}
        return batch_sweep(algebra, plan, mine, pending)

    sweeps = [sweep_of(part) for part in split(plan, sizes, part_rows)]
    return Effort(sweeps, lambda results: added(algebra, results))
