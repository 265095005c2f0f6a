"""The extremes of groups over a batch, step by step, asking the input where they were lost.

First every extreme is followed from what came in and went out at each step. Groups that lost all
ties of one are then asked, all of them in one question: their rows before the batch, and their
changes in the batch. From these the extreme of such a group is found again at each of its steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.algebra import TS
from viewkeeper.stages.exact_numbers import Places, numbers_of
from viewkeeper.stages.extreme import (
    ENDS,
    NONE,
    Candidates,
    Extreme,
    RankedBag,
    best_of_places,
    candidates_of_columns,
    candidates_of_rows,
    follow_extreme,
    join_candidates,
    rank_values,
    take_values,
)
from viewkeeper.stages.group_step import Steps

AskRows = Callable[[pa.Table], pa.Table]
"""Rows of a fold's input for given groups; it may give rows of other groups too."""


@dataclass(frozen=True, slots=True)
class ExtremeCourse:
    """An extreme at every step: its rank among `values`, its ties, and whether the step changed it.

    `before` are the ranks and ties of each group before the batch, `lost` the groups at whose steps
    the extreme is not known yet.
    """

    candidates: Candidates
    rows_of_ranks: Places
    ranks: Places
    ties: Places
    before: tuple[Places, Places]
    lost: frozenset[int]

    def values_at(self, steps: Places) -> tuple[Any, ...]:
        """The values at some steps; NULL where there is none."""
        return take_values(self.candidates.values, self.rows_of_ranks, self.ranks[steps])

    def changes_at(self, steps: Steps) -> Any:
        """Whether each step changed the value or its ties."""
        changed = np.zeros(steps.size, np.bool_)
        for column, before in zip((self.ranks, self.ties), self.before, strict=True):
            earlier = np.empty_like(column)
            earlier[1:] = column[:-1]
            earlier[steps.first] = before
            changed |= column != earlier
        return changed


@dataclass(frozen=True, slots=True)
class AskedRows:
    """What the input answered for groups that lost an extreme: rows, and the group of each."""

    before: pa.Table
    before_groups: Places
    changes: pa.Table
    changes_groups: Places


def follow_steps(
    extreme: Extreme, name: str, partials: pa.Table, before: pa.Table, places: CourseFrame
) -> ExtremeCourse:
    """The course of an extreme, by partials in the order of steps and the stored rows."""
    steps = places.steps
    parts = [
        candidates_of_columns(extreme, name + end, partials, np.arange(steps.size), sign)
        for end, sign in ENDS.items()
    ]
    stored = candidates_of_columns(extreme, name, before, places.stored_groups)
    pool = join_candidates([*parts, stored])
    ranks, rows = rank_values(extreme, pool.values)
    sizes = np.cumsum([len(part.counts) for part in parts])
    came_ranks, went_ranks, stored_ranks = np.split(ranks, sizes)
    moves = [
        *best_of_places(parts[0], came_ranks, steps.size, 1),
        *best_of_places(parts[1], went_ranks, steps.size, -1),
    ]
    held = best_of_places(stored, stored_ranks, len(steps.first), 1)
    found, ties, lost = follow_extreme(moves, held, steps.which, places.is_empty)
    return ExtremeCourse(pool, rows, np.array(found), np.array(ties), held, frozenset(lost))


@dataclass(frozen=True, slots=True)
class CourseFrame:
    """What all extremes of a fold have in common: steps, stored rows' groups, emptied groups."""

    steps: Steps
    stored_groups: Places
    is_empty: Any


def recover_course(
    extreme: Extreme, course: ExtremeCourse, steps: Steps, asked: AskedRows
) -> ExtremeCourse:
    """The course with the steps of lost groups filled in."""
    rows = candidates_of_rows(extreme, asked.before, asked.before_groups)
    changes = candidates_of_rows(extreme, asked.changes, np.arange(asked.changes.num_rows))
    pool = join_candidates([course.candidates, rows, changes])
    ranks, rows_of_ranks = rank_values(extreme, pool.values)
    sizes = np.cumsum([len(course.candidates.counts), len(rows.counts)])
    own, row_ranks, change_ranks = np.split(ranks, sizes)
    ts = numbers_of(asked.changes[TS])[changes.places]
    groups = asked.changes_groups[changes.places]
    found = _in_ranks(course.ranks, course.rows_of_ranks, own)
    ties = course.ties.copy()
    lost = np.array(sorted(course.lost))
    ours, theirs = _rows_by_group(rows.places, lost), _rows_by_group(groups, lost)
    ends = np.append(steps.first[1:], steps.size)
    for group, own_rows, own_changes in zip(lost, ours, theirs, strict=True):
        bag = _bag_of(row_ranks[own_rows], rows.counts[own_rows], change_ranks[own_changes])
        columns = (ts, change_ranks, changes.counts)
        moves = sorted(zip(*(column[own_changes].tolist() for column in columns), strict=True))
        at = slice(steps.first[group], ends[group])
        found[at], ties[at] = _replay_group(bag, moves, steps.ts[at].tolist())
    held = (_in_ranks(course.before[0], course.rows_of_ranks, own), course.before[1])
    return ExtremeCourse(pool, rows_of_ranks, found, ties, held, frozenset())


def _in_ranks(ranks: Places, rows_of_ranks: Places, others: Places) -> Places:
    """Ranks among some values as ranks among more of them."""
    if not len(rows_of_ranks):
        return ranks.copy()
    is_none = ranks == NONE
    return np.where(is_none, NONE, others[rows_of_ranks[np.where(is_none, 0, ranks)]])


def _rows_by_group(groups: Places, wanted: Places) -> list[Places]:
    """The rows of each wanted group."""
    order = np.argsort(groups, kind="stable")
    begin = np.searchsorted(groups[order], wanted)
    end = np.searchsorted(groups[order], wanted, side="right")
    return [order[i:j] for i, j in zip(begin.tolist(), end.tolist(), strict=True)]


def _bag_of(ranks: Places, counts: Places, changed: Places) -> RankedBag:
    """A group's values before the batch, as far as they can matter: those that change, and as many
    of the best as can be lost, and one more."""
    values, where = np.unique(ranks, return_inverse=True)
    totals = np.zeros(len(values), np.int64)
    np.add.at(totals, where, counts)
    values, totals = values[totals != 0], totals[totals != 0]
    touched = np.unique(changed)
    matters = np.isin(values, touched)
    matters[: len(touched) + 1] = True
    return RankedBag(values[matters].tolist(), totals[matters].tolist())


def _replay_group(
    bag: RankedBag, moves: list[tuple[int, int, int]], ts: list[int]
) -> tuple[list[int], list[int]]:
    """The best rank of a group and its ties after each ts."""
    ranks, ties, at = [], [], 0
    for now in ts:
        while at < len(moves) and moves[at][0] <= now:
            bag.add_rank(moves[at][1], moves[at][2])
            at += 1
        rank, count = bag.find_best()
        ranks.append(rank)
        ties.append(count)
    return ranks, ties
