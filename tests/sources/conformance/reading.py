"""Reading a source as the engine does, checked on the way against what the protocol promises.

A `Follower` is a maintainer in miniature: it looks, reads the changes of every transaction that is
reported, and knows the state as of every position. What a snapshot says of a position must be that
state, however it was asked.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import combinations
from typing import Any

import pyarrow as pa

from tests.sources.conformance.changes import ARROW, Bag, bag_of, comparable, minus, plus, project
from tests.sources.conformance.database import NAME, Database
from viewkeeper.updates.source_protocol import (
    COUNT,
    POSITION,
    Answer,
    Boundary,
    Lookup,
    Opener,
    Snapshot,
    Source,
)
from viewkeeper.view.definition import Relation

State = Mapping[str, Bag]
Tables = Mapping[str, Sequence[str]]


def rows_of(table: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    if not columns:
        return [()] * table.num_rows
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def look_all(source: Source, after: int) -> list[Boundary]:
    """Look until nothing more is reported; positions must grow."""
    found: list[Boundary] = []
    for _ in range(200):
        reported = source.look_for_transactions(after)
        if not reported:
            return found
        for boundary in reported:
            assert boundary.position > after, "positions grow"
            after = boundary.position
        found += reported
    raise AssertionError("it reports without end")


@contextmanager
def snapshot_at(source: Source, after: int, tables: Tables) -> Iterator[Snapshot]:
    """One snapshot in which a position can be asked about."""
    with source.prepare_snapshots(after, tables) as opener, closing(opener()) as snapshot:
        yield snapshot


class Follower:
    """Follows some columns of a database and compares all that it is told with its history."""

    def __init__(
        self, database: Database, source: Source | None = None, tables: Tables | None = None
    ) -> None:
        self.database = database
        self.source = source or database.source()
        self.tables = database.followed() if tables is None else tables
        self.start = self.source.follow_tables(self.tables)
        self._seen = len(database.history)
        self.states: dict[int, State] = {self.start: self.state()}

    @property
    def newest(self) -> int:
        return max(self.states)

    def state(self, number: int | None = None) -> State:
        """The followed columns after so many commits; now, without a number."""
        known = self.database.state if number is None else self.database.history[number]
        return {
            table: project(known[table], list(self.database.columns[table]), columns)
            for table, columns in self.tables.items()
        }

    def look(self) -> list[Boundary]:
        """Take what was committed since; every report must end at the state of a commit."""
        boundaries = look_all(self.source, self.newest)
        for boundary in boundaries:
            self._take(boundary)
        assert self._seen == len(self.database.history), "everything committed was reported"
        return boundaries

    def changes(self, after: int, until: int, tables: Tables | None = None) -> dict[str, Bag]:
        """The net changes between two positions, and that they come as they were asked for."""
        return self._read(after, until, self.tables if tables is None else tables)[0]

    def _read(self, after: int, until: int, tables: Tables) -> tuple[dict[str, Bag], int]:
        net: dict[str, Bag] = {table: Counter() for table in tables}
        rows = 0
        for table, batch in self.source.read_changes(tables, after, until):
            words = self.database.columns[table]
            columns = list(tables[table])
            assert batch.schema.names == [*columns, COUNT, POSITION]
            types = [*(ARROW[words[name]] for name in columns), pa.int64(), pa.int64()]
            assert batch.schema.types == types
            assert set(batch[COUNT].to_pylist()) <= {1, -1}
            positions: list[Any] = batch[POSITION].to_pylist()
            assert all(after < position <= until for position in positions)
            rows += batch.num_rows
            for *row, count in rows_of(batch, [*columns, COUNT]):
                net[table][comparable(row)] += count
        return {table: minus(bag, Counter()) for table, bag in net.items()}, rows

    def _take(self, boundary: Boundary) -> None:
        before = self.newest
        changed, rows = self._read(before, boundary.position, self.tables)
        state = {table: plus(self.states[before][table], net) for table, net in changed.items()}
        assert rows <= boundary.changes, "a report counts at least its changes"
        assert not boundary.emptied
        assert not boundary.keyed
        if boundary.changes:
            last = len(self.database.history)
            ends = range(self._seen, last if self.database.merges_commits else self._seen + 1)
            found = [number for number in ends if self.state(number) == state]
            assert found, f"position {boundary.position} is not the state of the next commit"
            self._seen = found[-1] + 1
        else:
            assert state == self.states[before]
        self.states[boundary.position] = state

    def check_intervals(self, many: int = 40) -> None:
        """Between any two known positions, the changes are the difference of the states."""
        pairs = list(combinations(sorted(self.states), 2))
        for after, until in pairs[:: 1 + len(pairs) // many]:
            wanted = {t: minus(self.states[until][t], self.states[after][t]) for t in self.tables}
            assert self.changes(after, until) == wanted, (after, until)

    def check_snapshot(self, after: int) -> None:
        """Scans and answers about a position are the state as of it."""
        with self.source.prepare_snapshots(after, self.tables) as opener:
            self.check_opener(opener, after)

    def check_opener(self, opener: Opener, after: int) -> None:
        snapshot = opener()
        try:
            for table, columns in self.tables.items():
                wanted = self.states[after][table]
                assert scanned(snapshot, table, columns, after) == wanted
                assert asked(snapshot, table, columns, after) == wanted
        finally:
            snapshot.close()

    def restart(self) -> None:
        """Go on with another source object, as another process would."""
        self.source.close()
        self.source = self.database.source()


def in_rows_minus(rows: Sequence[Sequence[Any]], tail: Sequence[Sequence[Any]]) -> Bag:
    """Rows minus tail, whose last column is the count."""
    result = bag_of(tuple(row) for row in rows)
    for *row, count in tail:
        result[comparable(row)] -= count
    return minus(result, Counter())


def scanned(snapshot: Snapshot, table: str, columns: Sequence[str], after: int) -> Bag:
    """A relation as of a position, by a scan."""
    scan = snapshot.scan_relation(Relation(NAME, table), columns, after)
    rows = [row for batch in scan.batches for row in rows_of(batch, columns)]
    tail = [row for batch in scan.tail for row in rows_of(batch, [*columns, COUNT])]
    return in_rows_minus(rows, tail)


def lookup_of(
    table: str,
    columns: Sequence[str],
    keys: pa.Table | None = None,
    null_safe: Sequence[bool] = (),
) -> Lookup:
    on = tuple(keys.column_names) if keys is not None else ()
    safe = tuple(null_safe) or tuple(False for _ in on)
    return Lookup(0, Relation(NAME, table), tuple(columns), on, safe, keys)


def asked(snapshot: Snapshot, table: str, columns: Sequence[str], after: int) -> Bag:
    """A relation as of a position, by a lookup without keys."""
    return answered(snapshot.answer_lookup(lookup_of(table, columns), after), columns, after)


def answered(answer: Answer, columns: Sequence[str], after: int) -> Bag:
    """Rows minus tail of an answer, whose form is checked."""
    assert answer.after == after
    assert answer.rows.column_names == list(columns)
    assert answer.tail.column_names == [*columns, COUNT, POSITION]
    assert answer.tail.schema.types == [*answer.rows.schema.types, pa.int64(), pa.int64()]
    assert set(answer.tail[COUNT].to_pylist()) <= {1, -1}
    tail = rows_of(answer.tail, [*columns, COUNT])
    return in_rows_minus(rows_of(answer.rows, columns), tail)


def read_elsewhere(packed: bytes, tables: Tables, after: int) -> dict[str, tuple[Bag, Bag]]:
    """What a task in another process reads with an opener that was sent to it."""
    opener: Opener = pickle.loads(packed)
    snapshot = opener()
    try:
        return {
            table: (
                scanned(snapshot, table, columns, after),
                asked(snapshot, table, columns, after),
            )
            for table, columns in tables.items()
        }
    finally:
        snapshot.close()
