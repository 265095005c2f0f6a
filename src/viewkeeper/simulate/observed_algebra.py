"""An algebra that notes compensations: what was removed from an answer, and what was added to it.

Compensation is a join with a condition on ts (`viewkeeper.maintain.compensation`), and no other
join has one. So whoever carries out the algebra sees every compensation, and the algorithm under
test needs no hook for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from viewkeeper.delta.algebra import TS, TsCondition
from viewkeeper.delta.reference_carrier import Reference, ReferenceDelta, Row
from viewkeeper.simulate.trace import Trace
from viewkeeper.view.join_tree import JoinKey


class ObservedAlgebra(Reference):
    """The reference carrier, which tells a trace what was compensated."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def join(
        self,
        partial: ReferenceDelta,
        rows: ReferenceDelta,
        on: Sequence[JoinKey],
        when: TsCondition | None,
    ) -> ReferenceDelta:
        joined = super().join(partial, rows, on, when)
        if when is not None and joined.counts:
            self._note_compensation(partial, rows, on, when)
        return joined

    def _note_compensation(
        self,
        partial: ReferenceDelta,
        rows: ReferenceDelta,
        on: Sequence[JoinKey],
        when: TsCondition,
    ) -> None:
        """Those of the corrections that met a partial row."""
        kept = [i for i, name in enumerate(rows.columns) if name != TS]
        met: Counter[Row] = Counter()
        for row, count in rows.counts.items():
            if super().join(partial, ReferenceDelta(rows.columns, {row: count}), on, when).counts:
                met[tuple(row[i] for i in kept)] += count
        place, _, _ = rows.columns[kept[0]].partition(".")
        self._trace.note_compensation(
            int(place), {row: count for row, count in met.items() if count}
        )
