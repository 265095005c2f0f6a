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

Symbols: UMQ is `UnitIntake.waiting`, PPU `_at_work`, its size p `parallel`, RPU what the backlog
keeps of committed transactions; CommitManager is `_commit_finished`, AssignTimeStamp
`UnitIntake.take_unit`; the machine is
`viewkeeper.maintain.sweep_family.sweep_machine.ParallelSweep`.
"""

from __future__ import annotations

from typing import Literal

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.algorithm_protocol import ResumePoint
from viewkeeper.maintain.sweep_family.posse import by_cost
from viewkeeper.maintain.sweep_family.sweep_machine import ParallelSweep, SweepMode
from viewkeeper.maintain.sweep_family.unit_change import Strategy, by_walk
from viewkeeper.view.sweep_plan import SweepPlan

StrategyName = Literal["sweep", "posse"]


def make_pvm(
    algebra: Algebra[D],
    plan: SweepPlan,
    resume: ResumePoint,
    parallel: int = 4,
    strategy: StrategyName = "sweep",
) -> ParallelSweep[D]:
    """PVM with `parallel` updates at work; `strategy` is the view change: one relation after the
    other, or stages by cost."""
    mode: SweepMode[D] = SweepMode(parallel, strategy_named(strategy), ordered=False)
    return ParallelSweep(algebra, plan, resume, mode)


def strategy_named(strategy: StrategyName) -> Strategy[D]:
    """The view change with this name."""
    return by_cost() if strategy == "posse" else by_walk
