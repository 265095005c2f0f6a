"""View change: the delta of a view for one transaction, or for a set of them. Written once.

SWEEP (Agrawal, El Abbadi, Singh, Yurek 1997, figure 4) calls it `ViewChange` and runs it on one
update at a time; PVM runs it on p updates at a time; the batch sweep on all of them. Here it is one
function over the sweep plan, because every partial row carries the ts of the change that it comes
from, and partial rows are kept apart by the place of that change: (ts, place) is all that
compensation needs to know.

It is a generator: it yields lookups and is sent their answers. It does no I/O, reads no clock and
starts no thread, so that the same code runs in a Spark task, in the driver and in simulation.

What must hold:
1. At most 2(m - 1) lookups for m relations, whatever the number of changes.
2. A step that no partial row needs asks nobody: a source that is not asked may be down.
3. The result, summed up to any ts of the batch, is the view at that ts minus the view before it.

Symbols: the paper's TempView is `partials`; its left and right sweep are the up and the down pass.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import pyarrow as pa

from viewkeeper.delta.algebra import TS, Algebra, D
from viewkeeper.maintain.compensation import KnownChanges, join_corrected
from viewkeeper.updates.source_protocol import Answer, Lookup
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
    started = {
        place: relevant_changes(algebra, plan, place, rows) for place, rows in origins.items()
    }
    in_order = stages if stages is not None else [[step] for step in plan.steps]
    partials = yield from sweep_stages(algebra, plan, started, pending, in_order, bound)
    return (
        algebra.add([_order_columns(algebra, plan, d) for d in partials.values()])
        if partials
        else None
    )


def sweep_stages(
    algebra: Algebra[D],
    plan: SweepPlan,
    started: Mapping[int, D],
    pending: KnownChanges,
    stages: Stages,
    bound: Mapping[int, pa.Table] | None = None,
) -> SweepGenerator[dict[int, D]]:
    """Partial rows, by the place they come from, after these stages; only those that are left."""
    partials = {place: delta for place, delta in started.items() if not algebra.is_empty(delta)}
    covered = {place: frozenset({place}) for place in partials}

    def extend(step: SweepStep, extended: Mapping[int, D]) -> None:
        for p, delta in extended.items():
            before, covered[p] = covered[p], covered[p] | {step.target}
            partials[p] = algebra.where(delta, plan.decidable_conditions(covered[p], before))
            if algebra.is_empty(partials[p]):
                del partials[p]

    for stage in stages:
        asked: list[tuple[SweepStep, Lookup]] = []
        for step in stage:
            waiting = {p: partials[p] for p in sorted(partials) if p in step.origins}
            if not waiting:
                continue
            if bound and step.target in bound:
                extend(step, _join_bound(algebra, plan, step, bound[step.target], waiting))
                continue
            lookup = lookup_for(algebra, plan, step, waiting)
            if lookup.keys is not None and lookup.keys.num_rows == 0:
                partials = {p: d for p, d in partials.items() if p not in waiting}
            else:
                asked.append((step, lookup))
        answers = (yield tuple(lookup for _, lookup in asked)) if asked else ()
        for (step, lookup), answer in zip(asked, answers, strict=True):
            waiting = {p: partials[p] for p in sorted(partials) if p in step.origins}
            extend(step, join_corrected(algebra, step, lookup, answer, pending, waiting))
    return partials


def relevant_changes(algebra: Algebra[D], plan: SweepPlan, place: int, changes: pa.Table) -> D:
    """The changes of a place's relation that can affect the view through it.

    A change in no used column cancels itself, and what a local condition hides never appears; both
    cost no lookup.
    """
    labelled = algebra.label_columns(
        algebra.lift_table(changes), place, plan.view.places[place].columns
    )
    return algebra.where(
        algebra.consolidate(labelled), plan.decidable_conditions(frozenset({place}), before=None)
    )


def project_outputs(algebra: Algebra[D], plan: SweepPlan, rows: D) -> D:
    """The view's own columns, the ts, and counts summed per (row, ts)."""
    return algebra.consolidate(algebra.project(rows, plan.view.outputs))


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
    return Lookup(
        place=step.target,
        relation=target.relation,
        columns=target.columns,
        on=tuple(key.want.name for key in step.on),
        null_safe=tuple(key.null_safe for key in step.on),
        keys=algebra.distinct_keys(list(waiting.values()), step.on) if step.on else None,
    )


def _order_columns(algebra: Algebra[D], plan: SweepPlan, delta: D) -> D:
    """Partial rows of different origins have their columns in different orders; make them one."""
    return algebra.select_columns(
        delta, [f"{p.index}.{name}" for p in plan.view.places for name in p.columns] + [TS]
    )


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
