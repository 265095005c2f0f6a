"""The durable side of a simulated warehouse: the stored view, its ts, and the states it showed.

It does by definition what `viewkeeper.warehouse` does on disk: counts add up and may be negative,
rows with a count of zero or less are not shown, key deletes and inserts are evaluated against what
is stored. Everything here survives a crash; each commit is one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import pyarrow as pa

from viewkeeper.check.history.recorded_history import Row, ShownState
from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.maintain.algorithm_protocol import CommitAction, ResumePoint, StampAction
from viewkeeper.updates.transaction import Transaction
from viewkeeper.updates.view_actions import (
    AddRows,
    DeleteKeys,
    InsertMissing,
    ReplaceRows,
    ViewAction,
)


class SimulatedStore:
    """The stored view; `columns` are those stored, of which `hidden` are not shown."""

    def __init__(
        self,
        columns: Sequence[str],
        hidden: Sequence[str],
        rows: Mapping[Row, int],
        positions: Mapping[str, int],
    ) -> None:
        self._columns = tuple(columns)
        self._shown = [i for i, name in enumerate(columns) if name not in hidden]
        self._counts = Counter(rows)
        self._positions = dict(positions)
        self._ts = 0
        self._ahead: tuple[int, ...] = ()
        self._stamps: dict[int, StampAction] = {}
        self.states = [ShownState(self.visible_rows, dict(positions), label="initial")]
        """What a reader of the newest state saw."""
        self.as_of = list(self.states)
        """The state as of every ts; only where commits are in order."""

    def note_stamp(self, stamp: StampAction) -> None:
        self._stamps[stamp.ts] = stamp

    def apply_commit(self, commit: CommitAction) -> None:
        """One atomic step."""
        for ts in range(self._ts + 1, commit.ts + 1):
            self._note_as_of(ts, commit)
        for change in commit.changes:
            self._apply_change(change)
        assert commit.ts >= self._ts, "a view never goes back"
        self._ts, self._ahead = commit.ts, commit.ahead
        self._positions = dict(commit.positions)
        claim = None if commit.ahead else dict(commit.positions)
        self.states.append(ShownState(self.visible_rows, claim, label=f"ts {commit.ts}"))

    def resume_point(self, again: tuple[Transaction, ...]) -> ResumePoint:
        """What a machine that starts now begins with."""
        above = tuple(stamp for ts, stamp in sorted(self._stamps.items()) if ts > self._ts)
        return ResumePoint(self._ts, dict(self._positions), above, frozenset(self._ahead), again)

    @property
    def positions(self) -> Mapping[str, int]:
        return self._positions

    @property
    def visible_rows(self) -> Mapping[Row, int]:
        """What a reader sees now."""
        shown: Counter[Row] = Counter()
        for row, count in self._counts.items():
            if count > 0:
                shown[tuple(row[i] for i in self._shown)] += count
        return dict(shown)

    @property
    def stored_counts(self) -> Mapping[Row, int]:
        """What is stored, hidden columns and negative counts included."""
        return self._counts

    @property
    def summed_rows(self) -> Mapping[Row, int]:
        """What is stored, summed over hidden columns: what is shown, if no count is below zero."""
        summed: Counter[Row] = Counter()
        for row, count in self._counts.items():
            summed[tuple(row[i] for i in self._shown)] += count
        return {row: count for row, count in summed.items() if count}

    def _note_as_of(self, ts: int, commit: CommitAction) -> None:
        """The state as of a ts of this commit: rows of that ts, added to the state before it."""
        if any(not isinstance(change, AddRows) for change in commit.changes) or commit.ahead:
            return
        total = Counter(dict(self.as_of[-1].rows))
        for change in commit.changes:
            assert isinstance(change, AddRows)
            for row, count, when in _signed_rows(change.rows, self._columns):
                if when == ts:
                    total[tuple(row[i] for i in self._shown)] += count
        claim = dict(self.as_of[-1].claim or {})
        claim |= dict(self._stamps[ts].transactions) if ts in self._stamps else {}
        shown = {row: count for row, count in total.items() if count}
        self.as_of.append(ShownState(shown, claim, label=f"as of ts {ts}"))

    def _apply_change(self, change: ViewAction) -> None:
        match change:
            case AddRows():
                for row, count, _ in _signed_rows(change.rows, self._columns):
                    self._counts[row] += count
            case DeleteKeys():
                at = [self._columns.index(name) for name in change.columns]
                keys = {
                    tuple(key[name] for name in change.columns) for key in _row_dicts(change.keys)
                }
                self._counts = Counter(
                    {
                        row: count
                        for row, count in self._counts.items()
                        if tuple(row[i] for i in at) not in keys
                    }
                )
            case InsertMissing():
                for values in _row_dicts(change.rows):
                    self._counts[tuple(values[name] for name in self._columns)] = 1
            case ReplaceRows():
                self._counts = Counter()
                for values in _row_dicts(change.rows):
                    row = tuple(values[name] for name in self._columns)
                    self._counts[row] += values[COUNT]
            case _:
                assert_never(change)
        self._counts = Counter({row: count for row, count in self._counts.items() if count})


def _row_dicts(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist()


def _signed_rows(table: pa.Table, columns: Sequence[str]) -> list[tuple[Row, int, int]]:
    return [
        (tuple(values[name] for name in columns), values[COUNT], values[TS])
        for values in table.to_pylist()
    ]
