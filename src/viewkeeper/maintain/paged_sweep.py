"""A view change in pieces, for changes that meet more rows than one wants to hold.

One changed row may meet millions of rows. A view change is linear in its partial rows, so they need
not be there at the same time: an answer is taken in pieces, the partial rows that a piece makes are
swept through all steps that are left before the next piece is looked at, and what comes out is
given away at once. The corrections of the answer are one more piece.

What must be whole is what a function of a whole bag needs, and that is less than the bag: a keyed
place only needs to know which partial rows some row matches, and that is counted piece by piece. A
left place also shows the rows that match: the pieces go on one by one, and after the last of them
the rows that nothing matched, with NULLs.

What must hold:
1. No partial rows of more than about three times `Paging.rows` are made by the rows of an answer: a
   piece is cut by the pairs that it makes, not by its rows.
2. Every piece makes lookups of its own for the steps that are left. Where nothing is cut, there are
   no more lookups than in `viewkeeper.maintain.view_change`, with the same results.
3. The sum of the pieces is what `view_change` returns. The same row may be in several pieces, also
   with counts that cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, Algebra, D
from viewkeeper.delta.kernel import matching_pairs
from viewkeeper.maintain.compensation import (
    KnownChanges,
    RelationVersions,
    join_versions,
    versions_of_answer,
    versions_without_rows,
)
from viewkeeper.maintain.partial_rows import PartialRows
from viewkeeper.maintain.view_change import (
    filtered_lookup_of,
    find_unasked_versions,
    project_outputs,
    start_changes,
)
from viewkeeper.updates.answer_pages import Paging
from viewkeeper.updates.source_protocol import Answer, Lookup
from viewkeeper.view.join_tree import KeyedMatch
from viewkeeper.view.sweep_plan import SweepPlan, SweepStep


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
) -> PagedSweep[D]:
    """The rows of `view_change` in pieces."""
    sweeper = PagedSweeper(algebra, plan, pending, paging)
    yield from sweeper.sweep_steps(start_changes(algebra, plan, origins), plan.steps)


def sweep_in_pages(
    algebra: Algebra[D],
    plan: SweepPlan,
    origins: Mapping[int, pa.Table],
    pending: KnownChanges,
    paging: Paging,
) -> PagedSweep[D]:
    """The rows of `batch_sweep` in pieces: the view's own columns, summed within each piece."""

    def project_piece(rows: D) -> D:
        return project_outputs(algebra, plan, rows)

    sweeper = PagedSweeper(algebra, plan, pending, paging, project_piece)
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
            keys, names = pa.concat_tables([each.cast(types) for each in mine]), types.names
            grouped = keys.group_by(names).aggregate([([], "count_all")])
            self._counted = (grouped.select(names), grouped["count_all"].to_numpy())
        return self._counted
