"""Random lives of every kind of source, seeded: whatever happens in whatever order, it all adds up.

Transactions, looks, snapshots, acknowledgements, holds and restarts in random order; every report,
every interval that is not acknowledged and every answer is compared with what was committed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.sources.conformance.changes import Change, Delete, Insert, Row, Update, Word, inserts
from tests.sources.conformance.database import Database
from tests.sources.conformance.reading import Follower, answered, lookup_of, snapshot_at

COLUMNS: dict[str, Word] = {"sku": "int", "name": "text", "price": "decimal"}
NAMES = [None, "", "a", "A", "a ", "é", "e\u0301", "𝄞", "it's"]
STEPS = 40


def random_row(rng: random.Random) -> Row:
    price = rng.choice([None, Decimal(rng.randint(-500, 500)) / 100])
    return rng.randint(0, 12), rng.choice(NAMES), price


class Life:
    """One source, and what a maintainer knows of it."""

    def __init__(self, database: Database, rng: random.Random) -> None:
        self.rng = rng
        self.database = database
        self.tables = ["t", "u"][: database.tables_max]
        self.rows: dict[str, list[Row]] = {table: [] for table in self.tables}
        for number, table in enumerate(self.tables):
            database.table(table, COLUMNS, indexes=[["sku"]] if number else [])
        self.begin()
        self.follower = Follower(database)

    def begin(self) -> None:
        for table in self.tables:
            rows = [random_row(self.rng) for _ in range(self.rng.randint(0, 8))]
            self.rows[table] = rows
            if rows:
                self.database.commit(*inserts(table, rows))

    def commit(self) -> None:
        """Between one and six changes, at least one of which is seen for good."""
        changes = [self._change() for _ in range(self.rng.randint(0, 5))]
        table = self.rng.choice(self.tables)
        row = random_row(self.rng)
        self.rows[table].append(row)
        self.database.commit(*changes, Insert(table, row))

    def _change(self) -> Change:
        table = self.rng.choice(self.tables)
        rows = self.rows[table]
        kind = self.rng.choice(["insert", "update", "delete"]) if rows else "insert"
        new = random_row(self.rng)
        if kind == "insert":
            rows.append(new)
            return Insert(table, new)
        old = rows.pop(self.rng.randrange(len(rows)))
        if kind == "delete":
            return Delete(table, old)
        rows.append(new)
        return Update(table, old, new)

    def abandon(self) -> None:
        rows = self.rows[self.tables[0]]
        gone: list[Change] = [Delete(self.tables[0], rows[0])] if rows else []
        self.database.abandon(Insert(self.tables[0], random_row(self.rng)), *gone)

    def look(self) -> None:
        self.follower.look()

    def position(self) -> int:
        return self.rng.choice(sorted(self.follower.states))

    def snapshot(self) -> None:
        self.follower.check_snapshot(self.position())

    def ask(self) -> None:
        """By a random set of keys, in a random column."""
        after, table = self.position(), self.rng.choice(self.tables)
        skus = self.rng.sample(range(15), self.rng.randint(0, 6))
        keys = pa.table({"sku": pa.array(skus, pa.int64())})
        with snapshot_at(self.follower.source, after, self.follower.tables) as snapshot:
            answer = snapshot.answer_lookup(lookup_of(table, list(COLUMNS), keys), after)
        found = answered(answer, list(COLUMNS), after)
        state = self.follower.states[after][table]
        assert {r: n for r, n in found.items() if r[0] in skus} == {
            r: n for r, n in state.items() if r[0] in skus
        }

    def acknowledge(self) -> None:
        position = self.position()
        self.follower.source.acknowledge_position(position)
        states = self.follower.states
        self.follower.states = {at: states[at] for at in states if at >= position}

    def restart(self) -> None:
        self.follower.restart()

    def hold(self) -> None:
        self.follower.source.begin_hold("verify", 30.0)
        self.follower.check_snapshot(min(self.follower.states))
        self.follower.source.end_hold("verify")

    def intervals(self) -> None:
        self.follower.check_intervals(20)


ACTS: dict[Callable[[Life], None], int] = {
    Life.commit: 16,
    Life.abandon: 2,
    Life.look: 10,
    Life.snapshot: 4,
    Life.ask: 4,
    Life.acknowledge: 2,
    Life.restart: 1,
    Life.hold: 1,
    Life.intervals: 1,
}


@pytest.mark.parametrize("seed", [11])
def test_a_random_life_adds_up(database: Database, seed: int) -> None:
    rng = random.Random(seed)
    life = Life(database, rng)
    for act in rng.choices(list(ACTS), list(ACTS.values()), k=STEPS):
        act(life)
    life.look()
    life.intervals()
    assert life.follower.states[life.follower.newest] == life.follower.state()
    for after in rng.sample(sorted(life.follower.states), min(4, len(life.follower.states))):
        life.follower.check_snapshot(after)
