"""Compensation: from what an answer contains to what a change needs. Written once.

A changed row of the relation at place p, in the transaction with ts t, meets relation R at place q.
It needs R with exactly the changes u for which (ts(u), q) < (t, p), compared lexicographically. The
answer A contains those that its cut includes. So what it needs is

    A  -  every u on R that A's cut includes and (ts(u), q) > (t, p)
       +  every u on R that A's cut does not include and (ts(u), q) < (t, p)

and since the join is bilinear, a partial row joins these three terms one by one. Changes after the
batch, the answer's tail, count as later than everything in it. That one rule covers concurrent
updates in both directions, transactions over several relations of one source, and self-joins.

Symbols: SWEEP's *error term* (Agrawal et al. 1997, section 4) is the first correction with one
interfering update; PVM's related set (Zhang et al. 2003) is the set of changes that can occur in
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import LAST_TS, TS, Algebra, D, Side, TsCondition
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.updates.source_protocol import POSITION, Answer, Lookup
from viewkeeper.view.sweep_plan import SweepStep


class KnownChanges(Protocol):
    """The changes that the asker knows, as far as compensation asks for them.

    Those after the position up to which the answer counts its tail are left aside: they are in the
    tail if they are in the answer.
    """

    def matching_changes(self, lookup: Lookup) -> pa.Table:
        """The changes of the lookup's relation whose key is among its keys, or more of them:
        its columns, `_ts`, `_position` and `_count`."""
        ...


def join_corrected(
    algebra: Algebra[D],
    step: SweepStep,
    lookup: Lookup,
    answer: Answer,
    pending: KnownChanges,
    partials: dict[int, D],
) -> dict[int, D]:
    """Partial rows, by the place they come from, joined with what they need of one relation."""
    place, columns = step.target, lookup.columns
    rows = algebra.label_columns(algebra.lift_table(answer.rows), place, columns)
    included, excluded = _split_by_cut(pending.matching_changes(lookup), answer)
    early = algebra.negate(_net_changes(algebra, included, place, columns))
    late = _net_changes(algebra, excluded, place, columns)

    def extend(origin: int, partial: D) -> D:
        found = algebra.join(partial, rows, step.on, None)
        corrections = []
        if not algebra.is_empty(early):
            seen_too_early = TsCondition(Side.LATER, tie=place > origin)
            corrections.append(algebra.join(partial, early, step.on, seen_too_early))
        if not algebra.is_empty(late):
            not_yet_seen = TsCondition(Side.EARLIER, tie=place < origin)
            corrections.append(algebra.join(partial, late, step.on, not_yet_seen))
        needed = algebra.add([found, *corrections])
        # Versions of a row that came and went cancel; left in, they would multiply at every step.
        many = sum(map(algebra.row_count, corrections)) > algebra.row_count(found)
        return algebra.consolidate(needed) if many else needed

    return {origin: extend(origin, partial) for origin, partial in partials.items()}


def _net_changes(algebra: Algebra[D], changes: pa.Table, place: int, columns: Sequence[str]) -> D:
    """Labelled changes with those of one ts netted: which of them came first no longer matters."""
    labelled = algebra.label_columns(algebra.lift_table(changes), place, columns)
    return labelled if algebra.is_empty(labelled) else algebra.consolidate(labelled)


def _split_by_cut(changes: pa.Table, answer: Answer) -> tuple[pa.Table, pa.Table]:
    """The changes that the answer contains, its tail among them, and those that it lacks."""
    inside = answer.cut.inclusion_mask(changes[POSITION])
    known = pc.less_equal(changes[POSITION], pa.scalar(answer.after, pa.int64()))
    after = pa.array(np.full(answer.tail.num_rows, LAST_TS))
    tail = answer.tail.append_column(TS, after).select(changes.column_names)
    included = pa.concat_tables([changes.filter(pc.and_(inside, known)), tail])
    return included, changes.filter(pc.and_not(known, inside))
