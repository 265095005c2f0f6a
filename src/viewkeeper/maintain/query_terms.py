"""Questions that a source with all relations answers by itself: sums of terms.

A term is the view's join with some relations replaced by given rows. Evaluating it needs no
compensation: everything is read in one state of one source (ECA, which sends whole queries), or
every answer is taken as it is (Strobe's *source_evaluate*). It is the same view change as
everywhere, with nothing to correct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, POSITION, TS, Algebra, D
from viewkeeper.maintain.algorithm_protocol import AskAction, Term
from viewkeeper.maintain.view_change import SweepGenerator, project_outputs, run_sweep, view_change
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.view.definition import Field
from viewkeeper.view.sweep_plan import SweepPlan


class NoKnownChanges:
    """Nothing is known to be pending: answers are taken as they are."""

    def __init__(self, plan: SweepPlan) -> None:
        self._plan = plan

    def matching_changes(self, lookup: Lookup) -> pa.Table:
        return _no_changes(self._plan.view.places[lookup.place].fields)


@lru_cache(maxsize=1024)
def _no_changes(fields: tuple[Field, ...]) -> pa.Table:
    columns = [(field.name, field.type) for field in fields]
    extra = [(name, pa.int64()) for name in (COUNT, POSITION, TS)]
    return pa.schema([*columns, *extra]).empty_table()


def source_evaluate(
    algebra: Algebra[D],
    plan: SweepPlan,
    origins: Mapping[int, pa.Table],
    bound: Mapping[int, pa.Table] | None = None,
) -> SweepGenerator[D | None]:
    """The joined rows that have rows of `origins` at one of its places, answers taken as they are.

    At `bound` places there are the given rows instead of a relation. Not yet projected, all under
    ts 0; None if there are none.
    """
    stamped = {
        place: rows.append_column(TS, pa.array(np.zeros(rows.num_rows, np.int64)))
        for place, rows in origins.items()
    }
    stages = [[step] for step in plan.steps_from(*origins)] if len(origins) == 1 else None
    return (yield from view_change(algebra, plan, stamped, NoKnownChanges(plan), stages, bound))


def term_rows(algebra: Algebra[D], plan: SweepPlan, term: Term) -> SweepGenerator[D | None]:
    """The joined rows of one term, not yet projected, all under ts 0; None if there are none."""
    start = min(term.bound)
    bound = {place: table for place, table in term.bound.items() if place != start}
    found = yield from source_evaluate(algebra, plan, {start: term.bound[start]}, bound)
    return found if found is None or term.sign > 0 else algebra.negate(found)


def sum_of_terms(algebra: Algebra[D], plan: SweepPlan, terms: Sequence[Term]) -> SweepGenerator[D]:
    """The joined rows of all terms together, consolidated."""
    found: list[D] = []
    for term in terms:
        rows = yield from term_rows(algebra, plan, term)
        if rows is not None:
            found.append(rows)
    return (
        algebra.consolidate(algebra.add(found))
        if found
        else algebra.lift_table(_empty_answer(plan))
    )


def join_given_rows(algebra: Algebra[D], plan: SweepPlan, rows: Mapping[int, pa.Table]) -> D:
    """The view over given signed rows at every place, projected, all under ts 0."""

    def refuse_lookup(lookup: Lookup) -> Answer:
        raise AssertionError(f"{lookup.relation} is given and must not be asked for")

    joined, _ = run_sweep(sum_of_terms(algebra, plan, [Term(1, rows)]), refuse_lookup)
    return project_outputs(algebra, plan, joined)


def _empty_answer(plan: SweepPlan) -> pa.Table:
    columns = [(f"{p.index}.{f.name}", f.type) for p in plan.view.places for f in p.fields]
    return pa.schema([*columns, (TS, pa.int64()), (COUNT, pa.int64())]).empty_table()


def answer_question(
    algebra: Algebra[D], plan: SweepPlan, ask: AskAction, read: Callable[[Lookup], Answer], now: Cut
) -> tuple[Answer, ...]:
    """The answers to a question, given a way to read one state of the source that is asked.

    Lookups keep their tails. Terms are evaluated in that very state: nothing in it is too early.
    Where nothing has to be read, the state is the one of the cut `now`.
    """
    if not ask.terms:
        return tuple(read(lookup) for lookup in ask.lookups)
    cuts: list[Cut] = []

    def as_it_is(lookup: Lookup) -> Answer:
        answer = read(lookup)
        cuts.append(answer.whole_cut)
        return replace(answer, after=answer.cut.position, tail=answer.tail.slice(0, 0))

    rows, _ = run_sweep(sum_of_terms(algebra, plan, ask.terms), as_it_is)
    cut = Cut(cuts[-1].position, frozenset().union(*(c.missing for c in cuts))) if cuts else now
    return (Answer(algebra.lower_delta(rows), cut, ask.after, pa.table({})),)
