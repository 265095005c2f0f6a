"""Partial rows on their way through the joins of a view.

They are kept apart by the place of the change that they come from, each with the ts of that change,
and it is known which places each of them has met. A sweep is linear in them: any of them can be
taken out and swept on their own, and the sum of the results is the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic

from viewkeeper.delta.algebra import TS, Algebra, D
from viewkeeper.maintain.window_lookup import forget_columns
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
