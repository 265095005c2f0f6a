"""View change: the delta of a view for one transaction, or for a set of them. Written once.

SWEEP (Agrawal, El Abbadi, Singh, Yurek 1997, figure 4) calls it `ViewChange` and runs it on one
update at a time; PVM runs it on p updates at a time; the batch sweep on all of them. Here it is one
function over the sweep plan, because every partial row carries the ts of the change that it comes
from, and partial rows are kept apart by the place of that change: (ts, place) is all that
compensation needs to know.

It is a generator: it yields lookups and is sent their answers. It does no I/O, reads no clock and
starts no thread, so that the same code runs in a Spark task, in the driver and in simulation.

A change at a keyed place is a *touch*: a key, and the ts at which some row with that key changed.
Touches walk like changes to all places that the ON of the keyed place reads; then they become the
difference between what the keyed place shows to these rows after their ts and before it.

What must hold:
1. At most 2(m - 1) lookups for m relations, whatever the number of changes, and one more for each
   keyed place that was touched and whose key is not unique.
2. A step that no partial row needs asks nobody: a source that is not asked may be down.
3. The result, summed up to any ts of the batch, is the view at that ts minus the view before it.

Symbols: the paper's TempView is `partials`; its left and right sweep are the up and the down pass.

Of each partial row it is known which places it has met. A sweep is linear in partial rows: any of
them can be taken out and swept on their own, and the sum of the results is the result.

**In pieces.** One changed row may meet millions of rows, more than one wants to hold. An answer is
taken in pieces, the partial rows that a piece makes are swept through all steps that are left
before the next piece is looked at, and what comes out is given away at once. The corrections of the
answer are one more piece.

What must be whole is what a function of a whole bag needs, and that is less than the bag: a keyed
place only needs to know which partial rows some row matches, and that is counted piece by piece. A
left place also shows the rows that match: the pieces go on one by one, and after the last of them
the rows that nothing matched, with NULLs.

What must hold of the pieces:
1. No partial rows of more than about three times `Paging.rows` are made by the rows of an answer: a
   piece is cut by the pairs that it makes, not by its rows.
2. Every piece makes lookups of its own for the steps that are left. Where nothing is cut, there are
   no more lookups than in one sweep, with the same results.
3. The sum of the pieces is what `view_change` returns. The same row may be in several pieces, also
   with counts that cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS, Algebra, D
from viewkeeper.delta.kernel import count_rows, matching_pairs
from viewkeeper.delta.row_errors import can_fail
from viewkeeper.maintain.compensation import (
    KnownChanges,
    RelationVersions,
    join_corrected,
    join_versions,
    versions_by_unique_key,
    versions_of_answer,
    versions_without_rows,
)
from viewkeeper.maintain.window_lookup import forget_columns, window_lookup
from viewkeeper.updates.answer_pages import Paging
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.view.expression import IsNull, Not
from viewkeeper.view.join_tree import KeyedMatch
from viewkeeper.view.sweep_plan import SweepPlan, SweepStep


class PartialRows(Generic[D]):
    """Partial rows, by the place they come from; only those that are left."""

    def __init__(
        self,
        algebra: Algebra[D],
        plan: SweepPlan,
        started: Mapping[int, D],
        covered: Mapping[int, frozenset[int]] | None = None,
    ) -> None:
        """Without `covered` they are changes that have met nothing yet."""
        self._algebra = algebra
        self._plan = plan
        self.rows = {p: delta for p, delta in started.items() if not algebra.is_empty(delta)}
        # Touches have a key of their place, and none of its rows.
        alone = {p: frozenset(() if plan.match_at(p) else (p,)) for p in self.rows}
        self._covered = alone if covered is None else {p: covered[p] for p in self.rows}

    def take_waiting(self, step: SweepStep) -> dict[int, D]:
        """The rows that a step is for."""
        mine = [place for place in sorted(self.rows) if place in step.origins]
        if not step.is_own:
            return {p: self.rows[p] for p in mine}
        return {
            p: order_columns(self._algebra, self._plan, self.rows[p], self._covered[p])
            for p in mine
        }

    def extend_rows(self, step: SweepStep, extended: Mapping[int, D]) -> None:
        """The rows of these places have met the target of a step; conditions are checked."""
        for p, delta in extended.items():
            before, after = self._covered[p], self._covered[p] | {step.target}
            self._covered[p] = after
            conditions = self._plan.decidable_conditions(after, before, p)
            kept = self._algebra.where(delta, conditions)
            if step.window is not None and p == step.via:
                places = [place for place in self._plan.view.places if place.index in after]
                kept = forget_columns(self._algebra, p, places, kept)
            self.rows[p] = kept
            if self._algebra.is_empty(kept):
                del self.rows[p]

    def fork_rows(self, rows: Mapping[int, D]) -> PartialRows[D]:
        """Some of the rows, on their own."""
        return PartialRows(self._algebra, self._plan, rows, self._covered)

    def drop_rows(self, places: Iterable[int]) -> None:
        """Forget the rows that come from these places."""
        for place in places:
            del self.rows[place]

    def sum_joined(self) -> D | None:
        """All rows together, with their columns in the view's order; None if there are none."""
        ordered = [order_columns(self._algebra, self._plan, delta) for delta in self.rows.values()]
        return self._algebra.add(ordered) if ordered else None


def order_columns(
    algebra: Algebra[D], plan: SweepPlan, delta: D, places: frozenset[int] | None = None
) -> D:
    """Partial rows of different origins have their columns in different orders; make them one.

    With `places`, only the columns of these.
    """
    kept = [p for p in plan.view.places if places is None or p.index in places]
    return algebra.select_columns(delta, [*(n for p in kept for n in p.shown_labels), TS])


SweepGenerator = Generator[tuple[Lookup, ...], tuple[Answer, ...], D]
"""Yields the lookups that can be asked at the same time, is sent their answers in that order."""

Stages = Sequence[Sequence[SweepStep]]
"""Steps in their order; those of one stage are asked at the same time."""


def view_change(
    algebra: Algebra[D],
    plan: SweepPlan,
    origins: Mapping[int, pa.Table],
    pending: KnownChanges,
    stages: Stages | None = None,
    bound: Mapping[int, pa.Table] | None = None,
) -> SweepGenerator[D | None]:
    """The rows that the changes of `origins` add to and take from the join, not yet projected.

    `origins` maps a place to changes of its relation: the place's columns, `_ts` and `_count`. None
    means that there are no such rows. Without `stages` the plan's own steps are made one by one. At
    a `bound` place the partial rows meet the given signed rows and nobody is asked.
    """
    started = start_changes(algebra, plan, origins)
    in_order = stages if stages is not None else [[step] for step in plan.steps]
    rows = yield from sweep_stages(algebra, plan, started, pending, in_order, bound)
    return PartialRows(algebra, plan, rows).sum_joined()


def start_changes(
    algebra: Algebra[D], plan: SweepPlan, origins: Mapping[int, pa.Table]
) -> dict[int, D]:
    """What of the changes sets out to meet the other places, by their own place."""
    return {place: relevant_changes(algebra, plan, place, rows) for place, rows in origins.items()}


def sweep_stages(
    algebra: Algebra[D],
    plan: SweepPlan,
    started: Mapping[int, D],
    pending: KnownChanges,
    stages: Stages,
    bound: Mapping[int, pa.Table] | None = None,
) -> SweepGenerator[dict[int, D]]:
    """Partial rows, by the place they come from, after these stages; only those that are left."""
    partials = PartialRows(algebra, plan, started)
    for stage in stages:
        asked: list[tuple[SweepStep, Lookup]] = []
        for step in stage:
            waiting = partials.take_waiting(step)
            if not waiting:
                continue
            if bound and step.target in bound:
                joined = _join_bound(algebra, plan, step, bound[step.target], waiting)
                partials.extend_rows(step, joined)
                continue
            lookup = filtered_lookup_of(algebra, plan, step, waiting)
            versions = find_unasked_versions(algebra, plan, step, lookup, pending)
            if versions is None:
                asked.append((step, lookup))
            else:
                partials.extend_rows(step, join_versions(algebra, step, versions, waiting))
        answers = (yield tuple(lookup for _, lookup in asked)) if asked else ()
        for (step, lookup), answer in zip(asked, answers, strict=True):
            waiting = partials.take_waiting(step)
            joined = join_corrected(algebra, step, lookup, answer, pending, waiting)
            partials.extend_rows(step, joined)
    return partials.rows


def find_unasked_versions(
    algebra: Algebra[D], plan: SweepPlan, step: SweepStep, lookup: Lookup, pending: KnownChanges
) -> RelationVersions[D] | None:
    """What a step needs of its target, if it need not ask: no key can match, or the known changes
    of a unique key say it all."""
    target = plan.view.places[step.target]
    if lookup.keys is not None and lookup.keys.num_rows == 0:
        return versions_without_rows(algebra, target)
    if not step.asks_somebody:
        return versions_by_unique_key(algebra, target, lookup, pending)
    return None


def relevant_changes(algebra: Algebra[D], plan: SweepPlan, place: int, changes: pa.Table) -> D:
    """The changes of a place's relation that can affect the view through it.

    A change in no used column cancels itself, and what a local condition hides never appears; both
    cost no lookup. Of a keyed place it is the touches: every key with every ts that changes it,
    once.
    """
    labelled = algebra.label_columns(
        algebra.lift_table(changes), place, plan.view.places[place].columns
    )
    net = algebra.consolidate(labelled)
    match = plan.match_at(place)
    if match is None:
        return algebra.where(net, plan.decidable_conditions(frozenset({place}), before=None))
    hidden = plan.decidable_conditions(frozenset(), before=None)
    known = [Not(IsNull(key.want)) for key in match.on if not key.null_safe]
    touching = algebra.where(net, [*hidden, *match.own_conditions, *known])
    return algebra.take_distinct(touching, [*(key.want.label for key in match.on), TS])


def project_outputs(algebra: Algebra[D], plan: SweepPlan, rows: D) -> D:
    """The view's own columns, the ts, and counts summed per (row, ts)."""
    return algebra.consolidate(algebra.project(rows, plan.view.outputs))


def map_changes(algebra: Algebra[D], plan: SweepPlan, changes: pa.Table) -> D:
    """The rows of a view over one place for changes of its relation, in their order: nothing is
    joined, and nothing is summed."""
    (place,) = plan.view.places
    labelled = algebra.label_columns(algebra.lift_table(changes), place.index, place.columns)
    shown = plan.decidable_conditions(frozenset({place.index}), before=None)
    return algebra.project(algebra.where(labelled, shown), plan.view.outputs)


def _join_bound(
    algebra: Algebra[D], plan: SweepPlan, step: SweepStep, rows: pa.Table, waiting: Mapping[int, D]
) -> dict[int, D]:
    """Partial rows joined with rows that are given instead of asked for."""
    columns = plan.view.places[step.target].columns
    given = algebra.label_columns(algebra.lift_table(rows), step.target, columns)
    return {p: algebra.join(partial, given, step.on, None) for p, partial in waiting.items()}


def lookup_for(
    algebra: Algebra[D], plan: SweepPlan, step: SweepStep, waiting: Mapping[int, D]
) -> Lookup:
    """What partial rows ask of the step's target: their distinct keys, or all rows without one."""
    target = plan.view.places[step.target]
    if step.window is not None and {*waiting} == {step.via}:
        moved = window_lookup(algebra, step.window, target, waiting[step.via])
        if moved is not None:
            return moved
    return Lookup(
        place=step.target,
        relation=target.relation,
        columns=target.columns,
        on=tuple(key.want.name for key in step.on),
        null_safe=tuple(key.null_safe for key in step.on),
        keys=algebra.distinct_keys(list(waiting.values()), step.on) if step.on else None,
    )


def filtered_lookup_of(
    algebra: Algebra[D], plan: SweepPlan, step: SweepStep, waiting: Mapping[int, D]
) -> Lookup:
    """The same, without the rows that the conditions of the target hide from all partial rows."""
    lookup = lookup_for(algebra, plan, step, waiting)
    local = plan.local_conditions(step, can_fail)
    return replace(lookup, conditions=(*lookup.conditions, *local))


def run_sweep(sweep: SweepGenerator[D], ask: Callable[[Lookup], Answer]) -> tuple[D, int]:
    """Run a sweep to its end by asking directly; its result and the number of lookups."""
    lookups = 0
    try:
        asked = next(sweep)
        while True:
            lookups += len(asked)
            asked = sweep.send(tuple(ask(lookup) for lookup in asked))
    except StopIteration as finished:
        result: D = finished.value
        return result, lookups


# -- in pieces ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class SweptPiece(Generic[D]):
    """Rows that are through."""

    rows: D


PagedSweep = Generator[Lookup | SweptPiece[D], Answer | None, None]
"""Yields a lookup and is sent its answer, or yields rows that are through."""


def change_in_pages(
    algebra: Algebra[D],
    plan: SweepPlan,
    origins: Mapping[int, pa.Table],
    pending: KnownChanges,
    paging: Paging,
    finish: Callable[[D], D] | None = None,
) -> PagedSweep[D]:
    """The rows of `view_change` in pieces, each as `finish` makes it."""
    sweeper = PagedSweeper(algebra, plan, pending, paging, finish)
    yield from sweeper.sweep_steps(start_changes(algebra, plan, origins), plan.steps)


def run_pages(sweep: PagedSweep[D], ask: Callable[[Lookup], Answer]) -> Iterator[D]:
    """Run a sweep by asking directly; its pieces as they come."""
    answer: Answer | None = None
    while True:
        try:
            said = sweep.send(answer)
        except StopIteration:
            return
        if isinstance(said, SweptPiece):
            answer = None
            yield said.rows
        else:
            answer = ask(said)


@dataclass(frozen=True, slots=True, eq=False)
class PagedSweeper(Generic[D]):
    """Takes partial rows through the steps of a plan, in pieces, each as `finish` makes it."""

    algebra: Algebra[D]
    plan: SweepPlan
    pending: KnownChanges
    paging: Paging
    finish: Callable[[D], D] | None = None

    def sweep_steps(self, started: Mapping[int, D], steps: Sequence[SweepStep]) -> PagedSweep[D]:
        """All pieces that these rows become."""
        yield from self._sweep_on(PartialRows(self.algebra, self.plan, started), steps)

    def _sweep_on(self, partials: PartialRows[D], steps: Sequence[SweepStep]) -> PagedSweep[D]:
        for at, step in enumerate(steps):
            for piece in self._split_waiting(partials, step):
                yield from self._sweep_on(piece, steps[at:])
            waiting = partials.take_waiting(step)
            if not waiting:
                continue
            lookup = filtered_lookup_of(self.algebra, self.plan, step, waiting)
            versions = find_unasked_versions(self.algebra, self.plan, step, lookup, self.pending)
            if versions is None:
                answer = yield replace(lookup, paging=self.paging)
                assert answer is not None, "a lookup is answered"
                pieces = _AnswerPieces(self.algebra, step, answer, waiting, self._limit)
                versions = versions_of_answer(self.algebra, lookup, answer, self.pending)
                if not pieces.is_single:
                    versions = replace(versions, rows=self._nothing_at(step), pages=pieces)
                    if _shows_rows(step):
                        yield from self._sweep_pieces(partials, waiting, pieces, steps[at:])
                        partials.extend_rows(step, self._join_rest(step, versions, waiting))
                        continue
            partials.extend_rows(step, join_versions(self.algebra, step, versions, waiting))
        rows = partials.sum_joined()
        if rows is not None:
            yield SweptPiece(rows if self.finish is None else self.finish(rows))

    @property
    def _limit(self) -> int:
        return self.paging.rows

    def _split_waiting(self, partials: PartialRows[D], step: SweepStep) -> Iterator[PartialRows[D]]:
        """Partial rows that have become too many, in pieces; they leave the others."""
        for place, delta in partials.take_waiting(step).items():
            size = self.algebra.row_count(delta)
            if size <= 2 * self._limit:
                continue
            partials.drop_rows([place])
            table = self.algebra.lower_delta(delta)
            for start in range(0, table.num_rows, self._limit):
                some = self.algebra.lift_table(table.slice(start, self._limit))
                yield partials.fork_rows({place: some})

    def _sweep_pieces(
        self,
        partials: PartialRows[D],
        waiting: Mapping[int, D],
        pieces: _AnswerPieces[D],
        steps: Sequence[SweepStep],
    ) -> PagedSweep[D]:
        """What the rows of an answer add, without what corrects it."""
        step, *later = steps
        conditions = step.match.conditions if step.match is not None else ()
        mine = list(waiting.items())
        for rows in pieces:
            fork = partials.fork_rows(waiting)
            joined = [(p, self.algebra.join(each, rows, step.on, None)) for p, each in mine]
            fork.extend_rows(step, {p: self.algebra.where(each, conditions) for p, each in joined})
            yield from self._sweep_on(fork, later)

    def _join_rest(
        self, step: SweepStep, versions: RelationVersions[D], waiting: Mapping[int, D]
    ) -> dict[int, D]:
        """What corrects the rows of an answer and, at a left place, rows that nothing matches."""
        if step.match is None:
            return join_versions(self.algebra, step, replace(versions, pages=()), waiting)
        return {
            origin: self._join_unmatched(step.match, versions, each, step.target < origin)
            for origin, each in waiting.items()
        }

    def _join_unmatched(
        self, match: KeyedMatch, versions: RelationVersions[D], partial: D, including: bool
    ) -> D:
        algebra = self.algebra
        terms = versions.terms_at(algebra, including)
        unmatched = algebra.join_keyed(partial, terms, match.as_anti_match())
        nothing = versions_without_rows(algebra, match.place).terms_at(algebra, including)
        padded = algebra.join_keyed(unmatched, nothing, match)
        corrections = [
            algebra.where(algebra.join(partial, rows, match.on, when), match.conditions)
            for rows, when in versions.corrections_at(algebra, including)
        ]
        return algebra.add([padded, *corrections])

    def _nothing_at(self, step: SweepStep) -> D:
        return versions_without_rows(self.algebra, self.plan.view.places[step.target]).rows


def _shows_rows(step: SweepStep) -> bool:
    """Whether partial rows multiply at a step; others only learn whether something matches."""
    return step.match is None or (step.match.join.kind == "left" and not step.is_own)


class _AnswerPieces(Generic[D]):
    """The labelled rows of an answer, in pieces that do not meet too many partial rows each."""

    def __init__(
        self,
        algebra: Algebra[D],
        step: SweepStep,
        answer: Answer,
        waiting: Mapping[int, D],
        limit: int,
    ) -> None:
        self._algebra = algebra
        self._step = step
        self._answer = answer
        self._waiting = [algebra.lower_delta(partial) for partial in waiting.values()]
        self._limit = limit
        self._meeting = sum(partial.num_rows for partial in self._waiting)
        self._counted: tuple[pa.Table, Any] | None = None

    @property
    def is_single(self) -> bool:
        """Whether it is one piece, the rows that the answer has in memory."""
        return self._answer.pages is None and len(self._cuts_of(self._answer.rows)) <= 2

    def __iter__(self) -> Iterator[D]:
        pages = self._answer.pages
        for page in [self._answer.rows] if pages is None else pages:
            cuts = self._cuts_of(page)
            for start, stop in pairwise(cuts):
                rows = self._algebra.lift_table(page.slice(start, stop - start))
                yield self._algebra.label_columns(rows, self._step.target, self._columns_of(page))

    def _columns_of(self, page: pa.Table) -> list[str]:
        return [name for name in page.column_names if name != COUNT]

    def _cuts_of(self, page: pa.Table) -> list[int]:
        """Where pieces begin and end."""
        if not page.num_rows:
            return [0]
        if not page.num_columns or page.num_rows * max(self._meeting, 1) <= self._limit:
            return [0, page.num_rows]
        if self._step.on and self._meeting:
            # Most pages are one piece, and that can be known without joining.
            most = int(self._count_keys()[1].max())
            if page.num_rows * most <= self._limit:
                return [0, page.num_rows]
        pairs = np.cumsum(np.maximum(self._count_pairs(page), 1))
        wholes = (pairs - 1) // self._limit
        inner = np.flatnonzero(wholes[1:] > wholes[:-1]) + 1
        return [0, *(int(cut) for cut in inner), page.num_rows]

    def _count_pairs(self, page: pa.Table) -> Any:
        """How many partial rows each row of a page meets."""
        on = self._step.on
        if not on:
            return np.full(page.num_rows, self._meeting, np.int64)
        keys, times = self._count_keys()
        theirs, ours = matching_pairs(
            [(page[key.want.name], key.null_safe) for key in on],
            [(keys[key.want.name], key.null_safe) for key in on],
            (page.num_rows, keys.num_rows),
        )
        found = np.zeros(page.num_rows, np.int64)
        np.add.at(found, theirs.to_numpy(), times[ours.to_numpy()])
        return found

    def _count_keys(self) -> tuple[pa.Table, Any]:
        """The keys of the partial rows, and how many have each."""
        if self._counted is None:
            labels = [key.have.label for key in self._step.on]
            types = pa.schema([(key.want.name, key.have.type) for key in self._step.on])
            mine = [each.select(labels).rename_columns(types.names) for each in self._waiting]
            self._counted = count_rows(pa.concat_tables([each.cast(types) for each in mine]))
        return self._counted
