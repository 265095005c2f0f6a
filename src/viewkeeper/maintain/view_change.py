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
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from viewkeeper.delta.algebra import TS, Algebra, D
from viewkeeper.delta.row_errors import can_fail
from viewkeeper.maintain.compensation import (
    KnownChanges,
    RelationVersions,
    join_corrected,
    join_versions,
    versions_by_unique_key,
    versions_without_rows,
)
from viewkeeper.maintain.partial_rows import PartialRows
from viewkeeper.maintain.window_lookup import window_lookup
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.view.expression import IsNull, Not
from viewkeeper.view.sweep_plan import SweepPlan, SweepStep

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
