"""The stored view of a world with schema changes: its columns, its rows, and the states it showed.

It does by definition what the warehouse does on disk. Counts add up; a redefinition keeps the
columns that stay, folds the rows over those that go and puts NULL into those that come; a
replacement says what the rows are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa

from viewkeeper.delta.algebra import COUNT, TS
from viewkeeper.evolution.dyno.dyno_events import DynoRedefinition, DynoStamp
from viewkeeper.maintain.algorithm_protocol import CommitAction
from viewkeeper.simulate.schema_changes.reshaped_judge import ReshapedState
from viewkeeper.simulate.schema_changes.reshaped_tables import Row
from viewkeeper.updates.view_actions import AddRows, ReplaceRows


class ReshapedStore:
    """The stored view."""

    def __init__(
        self, columns: Sequence[str], rows: Mapping[Row, int], sources: Sequence[str]
    ) -> None:
        self._columns = tuple(columns)
        self._counts = Counter(dict(rows))
        self._positions = dict.fromkeys(sources, 0)
        self._stamps: dict[int, DynoStamp] = {}
        self._ts = 0
        self.states = [self._state_now("initial")]
        """What a reader of the newest state saw."""
        self.as_of = list(self.states)
        """The state as of every ts."""

    def note_stamp(self, stamp: DynoStamp) -> None:
        self._stamps[stamp.ts] = stamp

    def redefine_view(self, step: DynoRedefinition) -> None:
        """A new definition and its commit, in one step."""
        names = [output.name for output in step.definition.view.outputs]
        at = [self._columns.index(n) if n in self._columns else None for n in names]
        rows: Counter[Row] = Counter()
        for row, count in self._counts.items():
            rows[tuple(None if i is None else row[i] for i in at)] += count
        self._columns, self._counts = tuple(names), rows
        self.apply_commit(step.commit)

    def apply_commit(self, commit: CommitAction) -> None:
        """One atomic step."""
        for change in commit.changes:
            if isinstance(change, ReplaceRows):
                self._counts = Counter()
                for row, count, _ in self._signed_rows(change.rows):
                    self._counts[row] += count
        added = [
            row
            for c in commit.changes
            if isinstance(c, AddRows)
            for row in self._signed_rows(c.rows)
        ]
        for ts in range(self._ts + 1, commit.ts + 1):
            for row, count, when in added:
                # What has the ts of another commit is appended all the same.
                late = ts == commit.ts and not self._ts < when <= commit.ts
                self._counts[row] += count if when == ts or late else 0
            self._positions = dict(self._stamps[ts].positions)
            self.as_of.append(self._state_now(f"as of ts {ts}"))
        self._ts = commit.ts
        assert self._positions == commit.positions, "a commit is the state as of its ts"
        self.states.append(self._state_now(f"ts {commit.ts}"))

    def _state_now(self, label: str) -> ReshapedState:
        rows = frozenset((row, count) for row, count in self._counts.items() if count)
        return ReshapedState(self._columns, rows, dict(self._positions), label)

    def _signed_rows(self, table: pa.Table) -> list[tuple[Row, int, int]]:
        """Signed rows, each with its ts; those of a replacement have none."""
        return [
            (tuple(values[name] for name in self._columns), values[COUNT], values.get(TS, 0))
            for values in table.to_pylist()
        ]
