"""An algebra that notes compensations: what was removed from an answer, and what was added to it.

Compensation is a join with a condition on ts (`viewkeeper.maintain.compensation`), and no other
join has one. So the carrier shows every compensation, and the algorithm under test needs no hook
for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from viewkeeper.delta.algebra import TS, TsCondition
from viewkeeper.delta.reference_carrier import Reference, ReferenceDelta, Row
from viewkeeper.simulate.trace import Trace
from viewkeeper.view.join_tree import JoinKey


def observed_algebra(trace: Trace) -> Reference:
    """The reference carrier, with a trace that notes what was compensated."""

    def note_compensation(
        partial: ReferenceDelta,
        rows: ReferenceDelta,
        on: Sequence[JoinKey],
        when: TsCondition,
    ) -> None:
        """Note those of the corrections that met a partial row."""
        kept = [i for i, name in enumerate(rows.columns) if name != TS]
        met: Counter[Row] = Counter()
        for row, count in rows.counts.items():
            if (
                Reference()
                .join(partial, ReferenceDelta(rows.columns, {row: count}), on, when)
                .counts
            ):
                met[tuple(row[i] for i in kept)] += count
        place, _, _ = rows.columns[kept[0]].partition(".")
        trace.note_compensation(int(place), {row: count for row, count in met.items() if count})

    return Reference(note_compensation)
