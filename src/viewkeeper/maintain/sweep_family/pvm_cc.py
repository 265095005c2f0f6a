"""PVM CC: PVM with a commit queue, so that the view moves in the order in which updates came.

Citation: Zhang, Ding, Rundensteiner: Parallel multisource view maintenance, The VLDB Journal 2003,
section 4.2, figure 17.

Assumes: what PVM assumes, but for negative counts: in order, no count is ever below zero.

Guarantees: complete consistency.

Invariants:
1. Updates are committed one by one in the order of their ts; nothing is ever ahead of the low-water
   mark.
2. A view change that is done before an earlier one waits in the commit queue and, as in figure 17,
   keeps its place in the processing set: at most `parallel` updates are at work or queued.

Symbols: CommitQueue is `ParallelSweep._queue`; the others as in
`viewkeeper.maintain.sweep_family.pvm`.
"""

from __future__ import annotations

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.algorithm_protocol import ResumePoint
from viewkeeper.maintain.sweep_family.pvm import StrategyName, strategy_named
from viewkeeper.maintain.sweep_family.sweep_machine import ParallelSweep, SweepMode
from viewkeeper.view.sweep_plan import SweepPlan


def make_pvm_cc(
    algebra: Algebra[D],
    plan: SweepPlan,
    resume: ResumePoint,
    parallel: int = 4,
    strategy: StrategyName = "sweep",
) -> ParallelSweep[D]:
    """PVM CC; the parameters are PVM's."""
    mode: SweepMode[D] = SweepMode(parallel, strategy_named(strategy), ordered=True)
    return ParallelSweep(algebra, plan, resume, mode)
