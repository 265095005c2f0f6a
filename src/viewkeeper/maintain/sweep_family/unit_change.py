"""The view change of one unit, and the strategies that decide who is asked when.

PVM asks for a view change that can be exchanged (Zhang, Ding, Rundensteiner 2003, section 3.5): the
order of the lookups does not matter for the result, because every answer is corrected on its own. A
*strategy* turns a unit into an effort, which is one sweep or several that go on at the same time,
each at its own pace, and whose results are merged when all have ended:

- `by_walk`: SWEEP's order, one relation after the other, lower places first.
- `viewkeeper.maintain.sweep_family.sweep.by_arms`: the branches around the changed place, each
  in its own sweep.
- `viewkeeper.maintain.sweep_family.pvm.by_cost`: one sweep in stages, several sources asked in
  each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import TS, Algebra, D
from viewkeeper.maintain.algorithm_protocol import Answered, AskAction
from viewkeeper.maintain.compensation import KnownChanges
from viewkeeper.maintain.running_sweeps import RunningSweeps
from viewkeeper.maintain.unit_intake import TakenUnit
from viewkeeper.maintain.view_change import SweepGenerator, project_outputs, view_change
from viewkeeper.updates.view_actions import AddRows, ViewAction
from viewkeeper.view.sweep_plan import SweepPlan

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, eq=False)
class Effort(Generic[D]):
    """Sweeps that make one view change together, and how their results become one.

    A result of None has no rows.
    """

    sweeps: Sequence[SweepGenerator[D | None]]
    merge: Callable[[Sequence[D | None]], D | None]


Strategy = Callable[[Algebra[D], SweepPlan, TakenUnit, KnownChanges], Effort[D]]


def origins_of(plan: SweepPlan, *units: TakenUnit) -> dict[int, pa.Table]:
    """The changes of units by place: a relation used twice has them at both places."""
    found: dict[int, pa.Table] = {}
    for place in plan.view.places:
        tables = [
            changes.append_column(TS, pa.array(np.full(len(changes), taken.ts)))
            for taken in units
            for transaction in taken.unit
            if (changes := transaction.changes.get(place.relation)) is not None
        ]
        if tables:
            found[place.index] = pa.concat_tables(tables)
    return found


def single_effort(sweep: SweepGenerator[D | None]) -> Effort[D]:
    return Effort((sweep,), lambda results: results[0])


def by_walk(
    algebra: Algebra[D], plan: SweepPlan, taken: TakenUnit, pending: KnownChanges
) -> Effort[D]:
    """One relation after the other, from the place that changed; a change of several places takes
    the plan's two passes."""
    origins = origins_of(plan, taken)
    stages = None
    if len(origins) == 1:
        stages = [[step] for step in plan.steps_from(*origins)]
    sweep = view_change(algebra, plan, origins, pending, stages)
    return single_effort(sweep)


def unit_rows(algebra: Algebra[D], plan: SweepPlan, rows: D | None) -> list[ViewAction]:
    """What a view change adds to the view; nothing if it has no rows."""
    return (
        [] if rows is None else [AddRows(algebra.lower_delta(project_outputs(algebra, plan, rows)))]
    )


class RunningEfforts(Generic[K, D]):
    """Efforts at work, by key; `known` says up to which position a source's changes are known."""

    def __init__(self, known: Callable[[str], int]) -> None:
        self._jobs: RunningSweeps[tuple[K, int], D | None] = RunningSweeps(known)
        self._merges: dict[K, Callable[[Sequence[D | None]], D | None]] = {}
        self._results: dict[K, dict[int, D | None]] = {}
        self._sizes: dict[K, int] = {}

    def start_effort(self, key: K, effort: Effort[D]) -> list[AskAction]:
        """Begin an effort: its first questions, or none if it ended at once."""
        self._merges[key] = effort.merge
        self._results[key] = {}
        self._sizes[key] = len(effort.sweeps)
        return [
            ask
            for number, sweep in enumerate(effort.sweeps)
            for ask in self._jobs.start_sweep((key, number), sweep)
        ]

    def take_answer(self, event: Answered) -> list[AskAction]:
        """Hand over an answer: the questions that follow from it."""
        return self._jobs.take_answer(event)

    def take_changes(self) -> list[tuple[K, D | None]]:
        """The view changes that were completed since the last call."""
        for (key, number), result in self._jobs.take_results():
            self._results[key][number] = result
        ended = [k for k, results in self._results.items() if len(results) == self._sizes[k]]
        return [(key, self._merge_results(key)) for key in ended]

    def _merge_results(self, key: K) -> D | None:
        results, size = self._results.pop(key), self._sizes.pop(key)
        return self._merges.pop(key)([results[number] for number in range(size)])


def sum_results(algebra: Algebra[D], results: Iterable[D | None]) -> D | None:
    """The sum of results that have the same columns."""
    found = [result for result in results if result is not None]
    return algebra.add(found) if found else None
