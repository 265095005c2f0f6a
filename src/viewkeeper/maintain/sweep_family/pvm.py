"""PVM: view changes of several updates at the same time, committed as soon as they are ready.

Citation: Zhang, Ding, Rundensteiner: Parallel multisource view maintenance, The VLDB Journal 2003,
section 3, figure 14; PVM CC, with a commit queue, section 4.2, figure 17.

Assumes: every answer knows what it contains, by arrival order as in the paper or by its cut; the
stored view keeps rows with negative counts and hides what does not count more than zero. Under PVM
CC no count is ever below zero.

Guarantees: convergence. In between, the view may show states that no sources ever had, because
commits overtake each other. PVM CC is complete: the view moves in the order in which updates came.

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
5. PVM CC commits updates one by one in the order of their ts; nothing is ever ahead of the
   low-water mark. A view change that is done before an earlier one waits in the commit queue and,
   as in figure 17, keeps its place in the processing set: at most `parallel` updates are at work or
   queued.

Symbols: UMQ is `UnitIntake.waiting`, PPU `_at_work`, its size p `parallel`, RPU what the backlog
keeps of committed transactions; CommitManager is `_commit_finished`, AssignTimeStamp
`UnitIntake.take_unit`, CommitQueue `ParallelSweep._queue`; the machine is
`viewkeeper.maintain.sweep_family.sweep_machine.ParallelSweep`.

Posse: a view change in stages, each of which asks several sources at once where that is cheaper.

Citation: in the manner of O'Gorman, Agrawal, El Abbadi: Posse, a framework for optimizing
incremental view maintenance at data warehouses, DaWaK 1999, which the PVM paper names as another
view change (Zhang, Ding, Rundensteiner 2003, sections 3.1 and 3.5). Only the idea is taken.

Assumes: nothing of the sources; estimates that are wrong cost time, never correctness.

Guarantees: what the algorithm guarantees that uses it; every answer is corrected on its own.

The idea: relations whose keys are known can be asked together. That saves rounds. Asking one first
saves keys and rows where it finds few: the others are then asked for less. The plan is the cheapest
by an explicit cost,

    rounds * latency  +  keys sent  +  rows fetched

in units of one row, from the number of changed rows and one estimate per edge: how many rows of the
target meet one row at the other end, 1 if nothing is known.

Invariants:
1. Every place but the origin is asked exactly once: m - 1 lookups in at most m - 1 rounds.
2. A relation is asked only in a stage after the one in which its neighbour towards the origin was.

Symbols: none are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import prod
from typing import Literal

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.algorithm_protocol import ResumePoint
from viewkeeper.maintain.compensation import KnownChanges
from viewkeeper.maintain.sweep_family.sweep_machine import ParallelSweep, SweepMode
from viewkeeper.maintain.sweep_family.unit_change import (
    Effort,
    Strategy,
    by_walk,
    origins_of,
    single_effort,
)
from viewkeeper.maintain.unit_intake import TakenUnit
from viewkeeper.maintain.view_change import view_change
from viewkeeper.view.sweep_plan import SweepPlan, SweepStep

LATENCY = 100.0
"""What a round costs, in rows: some milliseconds against some ten microseconds a row."""

SEARCHED = 9
"""Up to so many places all plans are compared; beyond, whatever can be asked is asked."""

FanOut = Mapping[tuple[int, int], float]
"""For (via, target): rows of the target that meet one row at via; 1 where it is missing."""

Plan = list[list[SweepStep]]


def by_cost(
    algebra: Algebra[D], plan: SweepPlan, taken: TakenUnit, pending: KnownChanges
) -> Effort[D]:
    """One sweep in the cheapest stages, as far as nothing is known of the relations."""
    origins = origins_of(plan, taken)
    if len(origins) == 1:
        ((origin, rows),) = origins.items()
        stages = cheapest_stages(plan.steps_from(origin), origin, len(rows), {})
    else:
        stages = passes_by_level(plan)
    sweep = view_change(algebra, plan, origins, pending, stages)
    return single_effort(sweep)


def cheapest_stages(
    walk: tuple[SweepStep, ...], origin: int, rows: int, fan_out: FanOut, latency: float = LATENCY
) -> Plan:
    """The stages with the smallest cost for `rows` changed rows at the origin."""
    search = _Search(walk, origin, rows, fan_out, latency)
    if len(walk) >= SEARCHED:
        return search.greedy_stages()
    return [[search.step_to(target) for target in stage] for stage in search.cheapest_targets()]


def passes_by_level(plan: SweepPlan) -> Plan:
    """The plan's two passes; in each, the steps of one level of the tree are one stage."""
    depth = {plan.tree.root: 0}
    for edge in plan.tree.edges:
        depth[edge.child] = depth[edge.parent] + 1
    levels = range(1, max(depth.values()) + 1)
    rising = [
        [s for s in plan.steps if depth[s.target] < depth[s.via] == level]
        for level in reversed(levels)
    ]
    falling = [
        [s for s in plan.steps if depth[s.via] < depth[s.target] == level] for level in levels
    ]
    return rising + falling


@dataclass(frozen=True)
class _Search:
    """All plans of one walk; what is covered determines what everything after it costs."""

    walk: tuple[SweepStep, ...]
    origin: int
    rows: int
    fan_out: FanOut
    latency: float

    def step_to(self, target: int) -> SweepStep:
        return next(step for step in self.walk if step.target == target)

    def greedy_stages(self) -> Plan:
        """Every stage asks whatever can be asked."""
        stages: Plan = []
        covered = frozenset({self.origin})
        while ready := self._askable_steps(covered):
            stages.append(ready)
            covered |= {step.target for step in ready}
        return stages

    def cheapest_targets(self) -> list[tuple[int, ...]]:
        """The targets of every stage of the cheapest plan; of equal ones, one with few rounds."""

        @cache
        def plan(covered: frozenset[int]) -> tuple[float, int, tuple[tuple[int, ...], ...]]:
            ready = self._askable_steps(covered)
            if not ready:
                return 0.0, 0, ()
            options = []
            for size in range(1, len(ready) + 1):
                for chosen in combinations(ready, size):
                    targets = tuple(step.target for step in chosen)
                    cost, rounds, stages = plan(covered | frozenset(targets))
                    cost += self.latency + sum(self._step_cost(step, covered) for step in chosen)
                    options.append((cost, rounds + 1, (targets, *stages)))
            return min(options)

        return list(plan(frozenset({self.origin}))[2])

    def _askable_steps(self, covered: frozenset[int]) -> list[SweepStep]:
        return [s for s in self.walk if s.via in covered and s.target not in covered]

    def _step_cost(self, step: SweepStep, covered: frozenset[int]) -> float:
        """Keys sent and rows fetched: rows that are likely there at the step's near end.

        Relations on the way there multiply them; what was asked elsewhere can only have removed
        some, since keys are sent once however often a row repeats.
        """
        way = self._path_to(step.via)
        keys = self.rows * prod(
            self._fan_out(s) if s.target in way else min(1.0, self._fan_out(s))
            for s in self.walk
            if s.target in covered
        )
        return keys + keys * self._fan_out(step)

    def _path_to(self, place: int) -> frozenset[int]:
        """The places from the origin to a place."""
        way = set[int]()
        while place != self.origin:
            way.add(place)
            place = self.step_to(place).via
        return frozenset(way)

    def _fan_out(self, step: SweepStep) -> float:
        return self.fan_out.get((step.via, step.target), 1.0)


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
    return by_cost if strategy == "posse" else by_walk


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
