"""The action list of the Strobe algorithms: what will be done to the view once it is quiet.

A deletion becomes a key delete at once; an insertion becomes a query over the other relations, and
its answer, cleaned of everything that was deleted meanwhile, becomes an insert. Nothing is done to
the stored view before no query is unanswered: then the whole list is one commit.

Citation: Zhuge, Garcia-Molina, Wiener: The Strobe Algorithms for Multi-Source Warehouse Consistency
(1996), section 5.2.

What must hold:
1. The list is in the order in which deletions and answers were received.
2. A deletion is pending for exactly the queries that were unanswered when it was received.

Symbols: AL is `ActionList`; UQS and pending(Q) are its `_pending`, per query and place the deleted
keys; source_evaluate(Q) is a sweep in `_jobs`.
"""

from __future__ import annotations

from itertools import count
from typing import Generic

from viewkeeper.delta.algebra import Algebra, D
from viewkeeper.maintain.algorithm_protocol import Action, Answered
from viewkeeper.maintain.query_terms import source_evaluate
from viewkeeper.maintain.running_sweeps import RunningSweeps
from viewkeeper.maintain.strobe_family.key_delete import (
    Changes,
    Keys,
    Values,
    changes_at_places,
    comparable_rows,
    insert_changes,
    key_deletes,
    rows_without,
    stored_rows,
)
from viewkeeper.maintain.unit_intake import UnitIntake
from viewkeeper.updates.view_actions import ViewAction
from viewkeeper.view.sweep_plan import SweepPlan


class ActionList(Generic[D]):
    """Actions that wait, and the queries that more of them will come from."""

    def __init__(
        self, algebra: Algebra[D], plan: SweepPlan, keys: Keys, intake: UnitIntake
    ) -> None:
        self._algebra = algebra
        self._plan = plan
        self._keys = keys
        self._intake = intake
        self._jobs: RunningSweeps[int, D | None] = RunningSweeps(intake.backlog.known_position)
        self._numbers = count(1)
        self._pending: dict[int, dict[int, set[Values]]] = {}
        self._changes: list[ViewAction] = []

    @property
    def is_quiet(self) -> bool:
        """Whether no query is unanswered."""
        return not self._pending

    @property
    def is_empty(self) -> bool:
        return not self._changes

    def note_deletions(self, deleted: Changes) -> None:
        """Rows were deleted: from the stored view, and from every answer still to come."""
        self._changes += key_deletes(self._plan, self._keys, deleted)
        for place, rows in changes_at_places(self._plan, deleted).items():
            gone = comparable_rows(rows, [column for column, _ in self._keys[place]])
            for pending in self._pending.values():
                pending.setdefault(place, set()).update(gone)

    def ask_insertions(self, inserted: Changes) -> list[Action]:
        """Rows were inserted: one query for all of them, at all of their places."""
        if not inserted:
            return []
        number = next(self._numbers)
        self._pending[number] = {}
        sweep = source_evaluate(self._algebra, self._plan, changes_at_places(self._plan, inserted))
        actions = self._intake.note_asks(self._jobs.start_sweep(number, sweep))
        self._note_answers()
        return actions

    def take_answer(self, event: Answered) -> list[Action]:
        """An answer to a part of a query: the next part, or the whole query's insert."""
        self._intake.note_answer(event)
        actions = self._intake.note_asks(self._jobs.take_answer(event))
        self._note_answers()
        return actions

    def take_changes(self) -> list[ViewAction]:
        """The whole list; what follows begins a new one."""
        assert self.is_quiet, "the list is whole when no query is unanswered"
        changes, self._changes = self._changes, []
        return changes

    def _note_answers(self) -> None:
        for number, found in self._jobs.take_results():
            pending = self._pending.pop(number)
            if found is None:
                continue
            rows = stored_rows(self._algebra, self._plan, found)
            for place, gone in pending.items():
                rows = rows_without(rows, [name for _, name in self._keys[place]], gone)
            self._changes += insert_changes(rows)
