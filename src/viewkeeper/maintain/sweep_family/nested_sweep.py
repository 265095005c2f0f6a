"""Nested SWEEP: an update takes those that interfere with it into its own sweep.

Citation: Agrawal, El Abbadi, Singh, Yurek: Efficient View Maintenance at Data Warehouses, SIGMOD
1997, section 6, figure 6.

Assumes: every answer knows what it contains, by arrival order as in the paper or by its cut.

Guarantees: strong consistency. Lookups are shared by all updates that a composite has taken; the
states between them are not shown.

The idea: an answer for place j that contains changes of waiting units is corrected as in SWEEP.
Then these units are taken, what they lack over the places covered so far is computed by a sweep of
its own, which may meet further updates in its turn, and is added. All further lookups serve all of
them. This is figure 6 on a join tree: its interval from Left to Right is the set of places covered.

Invariants:
1. Every partial row of the composite covers the same places, and there is one for every change of
   every taken unit at these places. A taken unit's change at another place starts when the
   composite reaches it.
2. What is taken gets its ts then, so whatever waits is later; with (ts, place) of its origin in
   every row, compensation is exact row by row.
3. With a unit everything is taken that precedes it at its sources: a commit is a prefix of every
   source's transactions, and global transactions are whole.
4. Nesting ends at `depth`: there, interfering updates are only compensated for, as in SWEEP, and
   stay in the queue. Without it, two sources that change in turns would never let the view move.

Symbols: UpdateMessageQueue is `UnitIntake.waiting`; ViewChange is `CompositeChange._sweep_region`;
Left and Right are its `region`, TempView and Delta-V are `partials`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic

import pyarrow as pa

from viewkeeper.delta.algebra import TS, Algebra, D
from viewkeeper.maintain.algorithm_protocol import Action, Answered, Delivered, Event, ResumePoint
from viewkeeper.maintain.compensation import KnownChanges, join_corrected
from viewkeeper.maintain.running_sweeps import RunningSweeps
from viewkeeper.maintain.sweep_family.unit_change import origins_of, sum_results, unit_rows
from viewkeeper.maintain.unit_intake import TakenUnit, Unit, UnitIntake
from viewkeeper.maintain.view_change import SweepGenerator, lookup_for, relevant_changes
from viewkeeper.updates.cut import Cut
from viewkeeper.view.definition import Relation
from viewkeeper.view.sweep_plan import SweepPlan, SweepStep

Region = frozenset[int]
"""Places that are connected in the join tree."""

Interfering = Callable[[Relation, Cut], list[TakenUnit]]
"""Takes the waiting units that an answer for a relation contains, and what must come with them."""


class NestedSweep:
    """Nested SWEEP; `depth` bounds how often interfering updates are taken within each other."""

    def __init__(
        self, algebra: Algebra[D], plan: SweepPlan, resume: ResumePoint, depth: int = 5
    ) -> None:
        self._algebra = algebra
        self._plan = plan
        self._intake = UnitIntake(plan.view, resume)
        self._composite = CompositeChange(
            algebra, plan, self._intake.backlog, self._take_interfering, depth
        )
        self._jobs: RunningSweeps[None, D | None] = RunningSweeps(
            self._intake.backlog.known_position
        )
        self._taken: list[TakenUnit] = []
        """What the composite at work consists of."""
        self._stamps: list[Action] = []
        """Of units that were taken since the last event was answered."""

    def receive_event(self, event: Event) -> list[Action]:
        if isinstance(event, Delivered):
            self._intake.take_delivery(event)
            return self._go_on()
        return self._take_answer(event)

    def _take_answer(self, event: Answered) -> list[Action]:
        self._intake.note_answer(event)
        asks = self._intake.note_asks(self._jobs.take_answer(event))
        return self._take_stamps() + asks + self._go_on()

    def _go_on(self) -> list[Action]:
        actions = self._commit_finished()
        while self._intake.can_take and not self._taken:
            # What was begun before a crash is begun together: some of it may have been committed in
            # one step only, and what follows it must not overtake the rest.
            first = [self._take_unit(None) for _ in range(self._intake.resumed_count or 1)]
            asks = self._intake.note_asks(
                self._jobs.start_sweep(None, self._composite.sweep_composite(first))
            )
            actions += self._take_stamps() + asks + self._commit_finished()
        return actions

    def _take_unit(self, unit: Unit | None) -> TakenUnit:
        taken = self._intake.take_unit(unit)
        self._taken.append(taken)
        self._stamps += taken.stamp_actions
        return taken

    def _take_stamps(self) -> list[Action]:
        stamps, self._stamps = self._stamps, []
        return stamps

    def _take_interfering(self, relation: Relation, cut: Cut) -> list[TakenUnit]:
        chosen = interfering_units(self._intake.waiting, relation, cut)
        return [self._take_unit(unit) for unit in chosen]

    def _commit_finished(self) -> list[Action]:
        actions: list[Action] = []
        for _, rows in self._jobs.take_results():
            stamps = [taken.ts for taken in self._taken]
            self._taken = []
            actions += self._intake.commit_units(stamps, unit_rows(self._algebra, self._plan, rows))
        return actions

    @property
    def is_idle(self) -> bool:
        return self._intake.is_idle


def interfering_units(waiting: Iterable[Unit], relation: Relation, cut: Cut) -> list[Unit]:
    """The waiting units of which a cut contains changes of a relation, in order, with all that
    precede them at their sources."""
    chosen: list[Unit] = []
    sources = set[str]()
    for unit in reversed(list(waiting)):
        seen = any(
            t.source == relation.source and relation in t.changes and cut.includes(t.position)
            for t in unit
        )
        mine = {transaction.source for transaction in unit}
        if seen or mine & sources:
            chosen.append(unit)
            sources |= mine
    return chosen[::-1]


class CompositeChange(Generic[D]):
    """The composite view change: one at a time."""

    def __init__(
        self,
        algebra: Algebra[D],
        plan: SweepPlan,
        pending: KnownChanges,
        take: Interfering,
        depth: int,
    ) -> None:
        self._algebra = algebra
        self._plan = plan
        self._pending = pending
        self._take = take
        self._depth = depth
        self._unstarted: dict[int, pa.Table] = {}
        """Changes of taken units by place, until a sweep covers the place."""

    def sweep_composite(self, first: Iterable[TakenUnit]) -> SweepGenerator[D | None]:
        """The joined rows of these units and of all that were taken on the way."""
        self._note_units(first)
        region = frozenset(place.index for place in self._plan.view.places)
        if not self._unstarted:
            return None
        partials = yield from self._sweep_region(region, 0)
        left = [rows for rows in partials.values() if not self._algebra.is_empty(rows)]
        return sum_results(self._algebra, [self._order_columns(rows, region) for rows in left])

    def _note_units(self, units: Iterable[TakenUnit]) -> None:
        for place, rows in origins_of(self._plan, *units).items():
            noted = self._unstarted.get(place)
            self._unstarted[place] = rows if noted is None else pa.concat_tables([noted, rows])

    def _sweep_region(self, region: Region, depth: int) -> SweepGenerator[dict[int, D]]:
        """Partial rows over a region, by place of origin, of all that is unstarted in it."""
        origin = min(place for place in self._unstarted if place in region)
        rows = relevant_changes(self._algebra, self._plan, origin, self._unstarted.pop(origin))
        partials = {origin: rows}
        covered = frozenset({origin})
        for step in self._plan.steps_from(origin):
            if step.target not in region:
                continue
            partials, taken = yield from self._extend_partials(step, partials, covered, depth)
            self._note_units(taken)
            covered |= {step.target}
            if any(place in covered for place in self._unstarted):
                missing = yield from self._sweep_region(covered, depth + bool(taken))
                partials = self._sum_partials(partials, missing, covered)
        return partials

    def _extend_partials(
        self, step: SweepStep, partials: Mapping[int, D], covered: Region, depth: int
    ) -> SweepGenerator[tuple[dict[int, D], list[TakenUnit]]]:
        """Partial rows extended by one relation, and the units that were taken then."""
        algebra = self._algebra
        waiting = {p: rows for p, rows in partials.items() if not algebra.is_empty(rows)}
        if not waiting:
            return {}, []
        lookup = lookup_for(algebra, self._plan, step, waiting)
        if lookup.keys is not None and lookup.keys.num_rows == 0:
            return {}, []
        (answer,) = yield (lookup,)
        taken = self._take(lookup.relation, answer.cut) if depth < self._depth else []
        extended = join_corrected(algebra, step, lookup, answer, self._pending, waiting)
        conditions = self._plan.decidable_conditions(covered | {step.target}, covered)
        return {p: algebra.where(rows, conditions) for p, rows in extended.items()}, taken

    def _sum_partials(
        self, some: Mapping[int, D], others: Mapping[int, D], covered: Region
    ) -> dict[int, D]:
        result = {}
        for place in sorted({*some, *others}):
            rows = [self._order_columns(d[place], covered) for d in (some, others) if place in d]
            result[place] = self._algebra.add(rows)
        return result

    def _order_columns(self, rows: D, covered: Region) -> D:
        """Walks from different places have the columns in different orders; make them one."""
        places = [place for place in self._plan.view.places if place.index in covered]
        columns = [f"{p.index}.{name}" for p in places for name in p.columns]
        return self._algebra.select_columns(rows, [*columns, TS])
