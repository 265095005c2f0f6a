"""Batch sweep: a whole set of concurrent transactions in one sweep, complete as of every ts.

Citation: Viewkeeper's own, on the shoulders of SWEEP (Agrawal, El Abbadi, Singh, Yurek 1997) and
PVM (Zhang, Ding, Rundensteiner 2003); the proof idea is in docs/model.md. `batch_sweep` is one part
of it, which the Spark tasks of the engine run; `BatchSweep` is the state machine around all parts.

Assumes: every answer comes with its cut and with the changes after the batch that the cut includes;
each source's transactions get increasing ts in commit order.

Guarantees: complete consistency as of every ts; strong consistency for a reader of the newest
state, which moves batch by batch.

Invariants:
1. One batch is at work at a time: all that waited when the one before it was committed, a prefix of
   every source's stream. Its ts are durable before its first lookup, so after a crash the very same
   set is swept before any other. It is committed in one step, with the rows of all its ts.
2. Each part of the batch is swept on its own, each answer with a cut of its own, and makes at most
   2(m - 1) lookups.
3. Parts are ranges of origin rows, not of transactions: a view change is linear in them, so the sum
   of the parts' results is the result, and one transaction of a million rows is no special case.
   At a keyed place a part has all changes of the touches that begin in its range, so that no touch
   is in two parts.

Symbols: SWEEP's Delta-R is an origin, its Delta-V the sum of what `view_change` returns; PVM's p is
the number of parts at work at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import TS, Algebra, D
from viewkeeper.delta.kernel import Kernel, matching_pairs
from viewkeeper.maintain.algorithm_protocol import Action, ResumePoint
from viewkeeper.maintain.compensation import KnownChanges
from viewkeeper.maintain.sweep_family.sweep_machine import SweepMachine
from viewkeeper.maintain.sweep_family.unit_change import Effort, origins_of, sum_results
from viewkeeper.maintain.unit_intake import TakenUnit
from viewkeeper.maintain.view_change import SweepGenerator, project_outputs, view_change
from viewkeeper.updates.view_actions import AddRows, ViewAction
from viewkeeper.view.sweep_plan import SweepPlan


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of the changes of the relation at a place."""

    place: int
    start: int
    stop: int


Part = tuple[Slice, ...]
"""Origin rows that are swept together."""


def split_origins(plan: SweepPlan, rows: Mapping[int, int], part_rows: int) -> tuple[Part, ...]:
    """Cut the origin rows of every place into parts of at most `part_rows`, balanced by rows.

    >>> from types import SimpleNamespace as S
    >>> split_origins(S(view=S(places=(S(index=0), S(index=1)))), {0: 3, 1: 2}, 4)
    ((Slice(place=0, start=0, stop=3),), (Slice(place=1, start=0, stop=2),))
    """
    total = sum(rows.values())
    if total == 0:
        return ()
    size = -(-total // -(-total // part_rows))
    parts: list[list[Slice]] = [[]]
    room = size
    for place in plan.view.places:
        start = 0
        while start < rows[place.index]:
            if room == 0:
                parts.append([])
                room = size
            stop = min(rows[place.index], start + room)
            parts[-1].append(Slice(place.index, start, stop))
            room -= stop - start
            start = stop
    return tuple(tuple(part) for part in parts)


class ChangeRows(Protocol):
    """The changes of one relation, in the order of their ts."""

    @property
    def rows(self) -> int: ...

    def rows_between(self, start: int, stop: int) -> pa.Table: ...


def slice_origins(plan: SweepPlan, piece: Slice, changes: ChangeRows) -> pa.Table:
    """The origin rows of a slice.

    A keyed place is touched once for all changes of a key in one ts, which may lie on both sides of
    a border between slices: they are origin rows of the slice in which the first of them lies.
    """
    match = plan.match_at(piece.place)
    mine = changes.rows_between(piece.start, piece.stop)
    if match is None or mine.num_rows == 0:
        return mine
    stamps = changes.rows_between(0, changes.rows)[TS].to_numpy()
    begin = int(np.searchsorted(stamps, stamps[piece.start], side="left"))
    end = int(np.searchsorted(stamps, stamps[piece.stop - 1], side="right"))
    if (begin, end) == (piece.start, piece.stop):
        return mine
    around = changes.rows_between(begin, end)
    key = [key.want.name for key in match.on]
    return around.take(pa.array(_touched_rows(around, key, piece.start - begin, mine.num_rows)))


def _touched_rows(changes: pa.Table, key: Sequence[str], start: int, size: int) -> Any:
    """The numbers of the rows with a (key, ts) that first occurs among `size` rows from `start`."""
    names = [*key, TS]
    mine = Kernel().take_distinct(changes.slice(start, size), names)
    met, touch = matching_pairs(
        [(changes[name], True) for name in names],
        [(mine[name], True) for name in names],
        (changes.num_rows, mine.num_rows),
    )
    rows, touches = met.to_numpy(), touch.to_numpy()
    first = np.full(mine.num_rows, changes.num_rows)
    np.minimum.at(first, touches, rows)
    return np.sort(rows[first[touches] >= start])


def batch_sweep(
    algebra: Algebra[D], plan: SweepPlan, origins: Mapping[int, pa.Table], pending: KnownChanges
) -> SweepGenerator[D | None]:
    """One part of a batch: the view's signed rows that its origin rows cause, one per (row, ts)."""
    rows = yield from view_change(algebra, plan, origins, pending)
    return None if rows is None else project_outputs(algebra, plan, rows)


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
