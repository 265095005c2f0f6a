"""SWEEP: one update after the other, each swept through all other sources and corrected on the way.

Citation: Agrawal, El Abbadi, Singh, Yurek: Efficient View Maintenance at Data Warehouses, SIGMOD
1997, sections 4 and 5, figure 4.

Assumes: every answer knows what it contains, by arrival order as in the paper or by its cut.

Guarantees: complete consistency; a global transaction is one update once all of its parts are
there. n updates over m relations cost n(m - 1) lookups.

Invariants:
1. Units are committed in the order in which they arrived, each in a commit of its own.
2. What is received meanwhile is later than the unit at work and is removed from every answer.

Symbols: UpdateMessageQueue is `UnitIntake.waiting` and the backlog; ViewChange is `view_change`.

Variants, both of section 5.3: *pipelined*, several updates are swept at the same time and committed
in order; *arms*, SWEEP's left and right sweep, which are independent, are made at the same time and
merged at the end. In a join tree a change has as many arms as neighbours. The paper merges what
they found by a join over the change's own columns; taken literally that multiplies the change's
count once per arm. So every arm starts with each changed row counted once, and the change's own
count is carried by the merge alone:

    merged  =  changed rows with their counts  join  arm 1  join  arm 2  join ...

What must hold of arms:
1. An arm makes exactly the steps of the walk that lie in its branch; all arms together ask m - 1
   lookups, and none waits for another.
2. A condition over places of different arms is checked when they are merged.

A change of several places takes the plan's two passes instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from viewkeeper.delta.algebra import COUNT, TS, Algebra, D
from viewkeeper.maintain.algorithm_protocol import ResumePoint
from viewkeeper.maintain.compensation import KnownChanges
from viewkeeper.maintain.sweep_family.sweep_machine import ParallelSweep, SweepMode
from viewkeeper.maintain.sweep_family.unit_change import Effort, by_walk, origins_of
from viewkeeper.maintain.unit_intake import TakenUnit
from viewkeeper.maintain.view_change import SweepGenerator, relevant_changes, sweep_stages
from viewkeeper.view.expression import Column
from viewkeeper.view.join_tree import JoinKey
from viewkeeper.view.sweep_plan import SweepPlan, SweepStep


def by_arms(
    algebra: Algebra[D], plan: SweepPlan, taken: TakenUnit, pending: KnownChanges
) -> Effort[D]:
    """The branches around the place that changed, each in a sweep of its own."""
    origins = origins_of(plan, taken)
    if len(origins) != 1:
        return by_walk(algebra, plan, taken, pending)
    ((origin, changes),) = origins.items()
    rows = relevant_changes(algebra, plan, origin, changes)
    around = _Arms(algebra, plan, origin, rows, branches_of(plan, origin))
    return Effort([around.sweep_arm(arm, pending) for arm in around.arms], around.merge_arms)


def branches_of(plan: SweepPlan, origin: int) -> list[tuple[SweepStep, ...]]:
    """The walk from a place, cut into its branches."""
    arms: list[list[SweepStep]] = []
    for step in plan.steps_from(origin):
        if step.via == origin:
            arms.append([])
        arms[-1].append(step)
    return [tuple(arm) for arm in arms]


@dataclass(frozen=True, slots=True, eq=False)
class _Arms(Generic[D]):
    """The changed rows at a place, with their counts, and the arms around it."""

    algebra: Algebra[D]
    plan: SweepPlan
    origin: int
    rows: D
    arms: Sequence[Sequence[SweepStep]]

    def sweep_arm(
        self, arm: Sequence[SweepStep], pending: KnownChanges
    ) -> SweepGenerator[D | None]:
        """Each changed row, counted once, extended by the relations of one arm."""
        once = self.algebra.lift_table(self.algebra.lower_delta(self.rows).drop_columns([COUNT]))
        stages = [[step] for step in arm]
        started = {self.origin: once}
        found = yield from sweep_stages(self.algebra, self.plan, started, pending, stages)
        return found.get(self.origin)

    def merge_arms(self, results: Sequence[D | None]) -> D | None:
        """The changed rows with their counts, joined with what every arm found for them."""
        rows, covered = self.rows, frozenset({self.origin})
        for arm, found in zip(self.arms, results, strict=True):
            if found is None:
                return None
            before, covered = covered, covered | {step.target for step in arm}
            rows = self._join_arm(rows, found, covered)
            rows = self.algebra.where(rows, self.plan.decidable_conditions(covered, before))
        rows = self._select_places(rows, covered)
        return None if self.algebra.is_empty(rows) else rows

    def _join_arm(self, rows: D, found: D, covered: frozenset[int]) -> D:
        """Both sides have the change's columns: those of the arm get a place of their own."""
        aside = len(self.plan.view.places)
        fields = self.plan.view.places[self.origin].fields
        table = self.algebra.lower_delta(found)
        names = [f"{self.origin}.{field.name}" for field in fields]
        renamed = {old: f"{aside}.{f.name}" for old, f in zip(names, fields, strict=True)}
        right = self.algebra.lift_table(
            table.rename_columns([renamed.get(name, name) for name in table.column_names])
        )
        on = [
            JoinKey(
                Column(self.origin, f.name, f.type), Column(aside, f.name, f.type), null_safe=True
            )
            for f in fields
        ]
        return self._select_places(self.algebra.join(rows, right, on, None), covered)

    def _select_places(self, rows: D, covered: frozenset[int]) -> D:
        places = [place for place in self.plan.view.places if place.index in covered]
        return self.algebra.select_columns(
            rows, [*(f"{p.index}.{c}" for p in places for c in p.columns), TS]
        )


def make_sweep(
    algebra: Algebra[D], plan: SweepPlan, resume: ResumePoint, parallel: int = 1, arms: bool = False
) -> ParallelSweep[D]:
    """SWEEP; `parallel` is the number of updates in the pipeline, 1 as in figure 4.

    `arms`: the branches around a change are swept at the same time.
    """
    mode: SweepMode[D] = SweepMode(parallel, by_arms if arms else by_walk, ordered=True)
    return ParallelSweep(algebra, plan, resume, mode)
