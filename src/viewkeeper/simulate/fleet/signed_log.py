"""Signed rows by position: a base with its transactions, or a warehouse with its ts.

Both are read in the same way: changes after a position, and rows as of one. A lookup is answered
with its cut; of a base as it is now, of a warehouse as of the ts that was asked for, which is an
exact prefix.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from viewkeeper.check.history.recorded_history import Row
from viewkeeper.delta.algebra import COUNT, POSITION, TS
from viewkeeper.simulate.fleet.fleet_scenario import COLUMNS
from viewkeeper.updates.cut import Cut
from viewkeeper.updates.source_protocol import Answer, Lookup

Signed = Mapping[str, Mapping[Row, int]]
"""Signed rows by table."""
Change = tuple[int, Row, int]
"""Position, row, count."""


class SignedLog:
    """What one base, or one warehouse, has committed."""

    def __init__(self, rows: Signed, position: int = 0) -> None:
        self.positions = [position]
        self._states: list[dict[str, dict[Row, int]]] = [{t: dict(r) for t, r in rows.items()}]
        self._changes: dict[str, list[Change]] = {table: [] for table in rows}

    @property
    def position(self) -> int:
        """The newest."""
        return self.positions[-1]

    def commit_changes(self, position: int, changes: Signed) -> None:
        state = dict(self._states[-1])
        for table, rows in changes.items():
            state[table] = dict(state[table])
            for row, count in rows.items():
                state[table][row] = state[table].get(row, 0) + count
                if not state[table][row]:
                    del state[table][row]
                self._changes[table].append((position, row, count))
        self.positions.append(position)
        self._states.append(state)

    def tables_at(self, position: int) -> Mapping[str, Mapping[Row, int]]:
        return self._states[bisect_right(self.positions, position) - 1]

    def changes_between(self, table: str, after: int, until: int) -> Iterator[Change]:
        listed = self._changes[table]
        begin = bisect_right(listed, after, key=lambda change: change[0])
        for change in listed[begin:]:
            if change[0] > until:
                return
            yield change

    def answer_lookup(self, lookup: Lookup, at: int, after: int) -> Answer:
        """The rows as of a position, with the changes that bring them back to another one."""
        indexes = [COLUMNS.index(name) for name in lookup.columns]
        rows = self.tables_at(at)[lookup.relation.table]
        listed = [tuple(row[i] for i in indexes) for row in rows]
        found = _arrow_table(lookup.columns, listed, {COUNT: list(rows.values())})
        tail = list(self.changes_between(lookup.relation.table, after, at))
        return Answer(found, Cut(at), after, change_table(lookup.columns, tail))


def change_table(columns: tuple[str, ...], changes: Iterable[Change]) -> pa.Table:
    """Changes as a source reports them: these columns, counts, positions."""
    listed = list(changes)
    indexes = [COLUMNS.index(name) for name in columns]
    extra = {COUNT: [count for _, _, count in listed], POSITION: [at for at, _, _ in listed]}
    return _arrow_table(columns, [tuple(row[i] for i in indexes) for _, row, _ in listed], extra)


def stamped_table(columns: tuple[str, ...], changes: Iterable[tuple[int, Change]]) -> pa.Table:
    """The same, each with the ts that it was given."""
    listed = list(changes)
    found = change_table(columns, [change for _, change in listed])
    return found.append_column(TS, pa.array([ts for ts, _ in listed], pa.int64()))


def _arrow_table(
    columns: tuple[str, ...], rows: list[Row], extra: Mapping[str, list[int]]
) -> pa.Table:
    by_column = zip(*rows, strict=True) if rows else ((),) * len(columns)
    arrays = [pa.array(values, pa.int64()) for values in by_column]
    more = [pa.array(values, pa.int64()) for values in extra.values()]
    return pa.table([*arrays, *more], names=[*columns, *extra])
