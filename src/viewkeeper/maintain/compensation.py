"""Compensation: from what an answer contains to what a change needs. Written once.

A changed row of the relation at place p, in the transaction with ts t, meets relation R at place q.
It needs R with exactly the changes u for which (ts(u), q) < (t, p), compared lexicographically. The
answer A contains those that its cut includes. So what it needs is

    A  -  every u on R that A's cut includes and (ts(u), q) > (t, p)
       +  every u on R that A's cut does not include and (ts(u), q) < (t, p)

and since the join is bilinear, a partial row joins these three terms one by one. Changes after the
batch, the answer's tail, count as later than everything in it. That one rule covers concurrent
updates in both directions, transactions over several relations of one source, and self-joins.

A keyed place shows F of the rows that match, and F is no sum over them. So a partial row is given
the terms all at once, and the touches of a keyed place are given its rows twice: with the changes
of their ts and without.

Symbols: SWEEP's *error term* (Agrawal et al. 1997, section 4) is the first correction with one
interfering update; PVM's related set (Zhang et al. 2003) is the set of changes that can occur in
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, Protocol

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, LAST_TS, TS, Algebra, D, Side, Term, TsCondition
from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.kernel import Kernel, canonical_floats, matching_pairs
from viewkeeper.updates.source_protocol import POSITION, Answer, Lookup
from viewkeeper.view.definition import Place
from viewkeeper.view.join_tree import JoinKey, KeyedMatch
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


@dataclass(frozen=True, slots=True, eq=False)
class RelationVersions(Generic[D]):
    """The rows of a relation for some keys, from which it can be had as of any change.

    `rows` are those of the answer, or `pages` are; `early`, negated, the changes that are in them;
    `late` those that are not.
    """

    rows: D
    early: D | None = None
    late: D | None = None
    pages: Iterable[D] = ()

    def terms_at(self, algebra: Algebra[D], including: bool) -> Iterable[Term[D]]:
        """What is to be joined: with the changes before a partial row's ts and, if `including`,
        with those of that ts too. Pages are read as they are taken, once."""
        corrections = self.corrections_at(algebra, including)
        return chain([(self.rows, None)], ((page, None) for page in self.pages), corrections)

    def corrections_at(self, algebra: Algebra[D], including: bool) -> list[Term[D]]:
        """The same without the rows of the answer."""
        terms: list[Term[D]] = []
        if self.early is not None and not algebra.is_empty(self.early):
            terms.append((self.early, TsCondition(Side.LATER, tie=not including)))
        if self.late is not None and not algebra.is_empty(self.late):
            terms.append((self.late, TsCondition(Side.EARLIER, tie=including)))
        return terms

    def known_changes(self, algebra: Algebra[D]) -> list[D]:
        """All changes that are known, each with its ts."""
        included = [] if self.early is None else [algebra.negate(self.early)]
        return included + ([] if self.late is None else [self.late])


SAME_TS = TsCondition(Side.SAME, tie=True)


def join_corrected(
    algebra: Algebra[D],
    step: SweepStep,
    lookup: Lookup,
    answer: Answer,
    pending: KnownChanges,
    partials: dict[int, D],
) -> dict[int, D]:
    """Partial rows, by the place they come from, joined with what they need of one relation."""
    versions = versions_of_answer(algebra, lookup, answer, pending)
    return join_versions(algebra, step, versions, partials)


def versions_of_answer(
    algebra: Algebra[D], lookup: Lookup, answer: Answer, pending: KnownChanges
) -> RelationVersions[D]:
    """The rows that an answer holds in memory, and what corrects it."""
    place, columns = lookup.place, lookup.columns
    rows = algebra.label_columns(algebra.lift_table(answer.rows), place, columns)
    included, excluded = _split_by_cut(pending.matching_changes(lookup), answer)
    early = algebra.negate(_net_changes(algebra, included, place, columns))
    late = _net_changes(algebra, excluded, place, columns)
    return RelationVersions(rows, early, late)


def join_versions(
    algebra: Algebra[D], step: SweepStep, versions: RelationVersions[D], partials: Mapping[int, D]
) -> dict[int, D]:
    """Partial rows joined with the versions of a relation that they need."""

    def extend(origin: int, partial: D) -> D:
        if step.match is not None and step.is_own:
            return _match_changes(algebra, step.match, versions, partial)
        terms = versions.terms_at(algebra, including=step.target < origin)
        if step.match is not None:
            return algebra.join_keyed(partial, terms, step.match)
        return _join_terms(algebra, partial, terms, step.on)

    return {origin: extend(origin, partial) for origin, partial in partials.items()}


def _join_terms(
    algebra: Algebra[D], partial: D, terms: Iterable[Term[D]], on: Sequence[JoinKey]
) -> D:
    found, *corrections = [algebra.join(partial, rows, on, when) for rows, when in terms]
    needed = algebra.add([found, *corrections])
    # Versions of a row that came and went cancel; left in, they would multiply at every step.
    many = sum(map(algebra.row_count, corrections)) > algebra.row_count(found)
    return algebra.consolidate(needed) if many else needed


def _match_changes(
    algebra: Algebra[D], match: KeyedMatch, versions: RelationVersions[D], partial: D
) -> D:
    """What the changes of one ts at a keyed place change for partial rows that they touch."""
    if match.join.kind == "left":
        return _padding_changes(algebra, match, versions, partial)
    after = algebra.join_keyed(partial, versions.terms_at(algebra, including=True), match)
    before = algebra.join_keyed(partial, versions.terms_at(algebra, including=False), match)
    return algebra.consolidate(algebra.add([after, algebra.negate(before)]))


def _padding_changes(
    algebra: Algebra[D], match: KeyedMatch, versions: RelationVersions[D], partial: D
) -> D:
    """The same for a left place: the changed rows themselves, and a row of NULLs where the last
    match went or the first one came. Matches that stay are not multiplied out only to cancel."""
    unmatched = _match_changes(algebra, match.as_anti_match(), versions, partial)
    nothing = versions_without_rows(algebra, match.place)
    padded = algebra.join_keyed(unmatched, nothing.terms_at(algebra, including=True), match)
    changes = [
        algebra.where(algebra.join(partial, rows, match.on, SAME_TS), match.conditions)
        for rows in versions.known_changes(algebra)
    ]
    return algebra.add([padded, *changes])


def versions_without_rows(algebra: Algebra[D], place: Place) -> RelationVersions[D]:
    """A relation of which nothing is asked, because no key can match."""
    schema = pa.schema([(field.name, field.type) for field in place.fields])
    rows = algebra.lift_table(schema.empty_table())
    return RelationVersions(algebra.label_columns(rows, place.index, place.columns))


def versions_by_unique_key(
    algebra: Algebra[D], place: Place, lookup: Lookup, pending: KnownChanges
) -> RelationVersions[D]:
    """The rows of changed keys where a key has one row at most, from the changes alone."""
    changes = pending.matching_changes(lookup)
    before = algebra.lift_table(rows_before_changes(changes, lookup.on))
    return RelationVersions(
        rows=algebra.label_columns(before, place.index, place.columns),
        late=_net_changes(algebra, changes, place.index, place.columns),
    )


def rows_before_changes(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows that the first changes of every key take away.

    >>> changes = {"k": [1, 1, 2, 1], "v": ["a", "b", "c", "b"]}
    >>> changes |= {"_ts": [5, 5, 5, 6], "_count": [-1, 1, 1, -1]}
    >>> rows_before_changes(pa.table(changes), ["k"]).to_pydict()
    {'k': [1], 'v': ['a'], '_count': [1]}
    """
    columns = [name for name in changes.column_names if name not in (COUNT, POSITION, TS)]
    net = Kernel().consolidate(changes.select([*columns, TS, COUNT]))
    values = [canonical_floats(net[name]) for name in key]
    keyed = pa.table([*values, net[TS]], names=[*key, TS])
    first = keyed.group_by(list(key)).aggregate([(TS, "min")]).select([*key, f"{TS}_min"])
    ours, _ = matching_pairs(
        [(column, True) for column in keyed.columns],
        [(column, True) for column in first.columns],
        (net.num_rows, first.num_rows),
    )
    taken = Kernel().negate(net.take(ours).select([*columns, COUNT]))
    return taken.filter(pc.greater(taken[COUNT], 0))


def _net_changes(algebra: Algebra[D], changes: pa.Table, place: int, columns: Sequence[str]) -> D:
    """Labelled changes with those of one ts netted: which of them came first no longer matters."""
    labelled = algebra.label_columns(algebra.lift_table(changes), place, columns)
    return labelled if algebra.is_empty(labelled) else algebra.consolidate(labelled)


def _split_by_cut(changes: pa.Table, answer: Answer) -> tuple[pa.Table, pa.Table]:
    """The changes that the answer contains, its tail among them, and those that it lacks."""
    if not changes.num_rows and not answer.tail.num_rows:
        return changes, changes
    inside = answer.cut.inclusion_mask(changes[POSITION])
    known = pc.less_equal(changes[POSITION], pa.scalar(answer.after, pa.int64()))
    after = pa.array(np.full(answer.tail.num_rows, LAST_TS))
    tail = answer.tail.append_column(TS, after).select(changes.column_names)
    included = pa.concat_tables([changes.filter(pc.and_(inside, known)), tail])
    return included, changes.filter(pc.and_not(known, inside))
