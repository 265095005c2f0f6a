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
the same time and merged at the end (left and right sweep in parallel,
`viewkeeper.maintain.sweep_family.sweep_arms`).

Symbols: UpdateMessageQueue is `UnitIntake.waiting` and the backlog; ViewChange is `view_change`.
"""

from __future__ import annotations

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.algorithm_protocol import ResumePoint
from viewkeeper.maintain.sweep_family.sweep_arms import by_arms
from viewkeeper.maintain.sweep_family.sweep_machine import ParallelSweep, SweepMode
from viewkeeper.maintain.sweep_family.unit_change import by_walk
from viewkeeper.view.sweep_plan import SweepPlan


def make_sweep(
    algebra: Algebra[D],
    plan: SweepPlan,
    resume: ResumePoint,
    parallel: int = 1,
    arms: bool = False,
) -> ParallelSweep[D]:
    """SWEEP; `parallel` is the number of updates in the pipeline, 1 as in figure 4.

    `arms`: the branches around a change are swept at the same time.
    """
    mode: SweepMode[D] = SweepMode(parallel, by_arms if arms else by_walk, ordered=True)
    return ParallelSweep(algebra, plan, resume, mode)
