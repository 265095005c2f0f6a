"""Random transactions over the four relations, with NULLs, duplicates and few different values.

Everything that a table can meet: rows that come, go, change, change their key, become NULL, come
back; whole groups that go at once; several relations in one transaction. Between transactions the
clock is moved, and the days of rows lie about the days that it shows.
"""

from __future__ import annotations

import datetime
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

from tests.sql.relation_history import (
    MOMENT,
    SOURCES,
    TABLES,
    Row,
    RowChange,
    Step,
    Transaction,
)

RANDOM_TABLES = tuple(
    replace(shape, columns={**shape.columns, "at": MOMENT}) if shape.name == "tickets" else shape
    for shape in TABLES
)
"""The relations of the matrix, of which one has moments too."""
SHAPES = {shape.relation: shape for shape in RANDOM_TABLES}
START = datetime.datetime(2024, 1, 3, 22, 10, tzinfo=datetime.UTC)
"""What the clock shows when the views are loaded."""
MOVES = (*(datetime.timedelta(hours=hours) for hours in (1, 5, 24, 24, 50)),)

WORDS = (None, "u", "v", "w", "u_1", "", "U", "7 ")
NUMBERS = (None, 0, 1, 1, 2, 2, 3)
DAYS = (None, *(datetime.date(2024, 1, day) for day in range(1, 7)), datetime.date(2024, 2, 29))
LARGEST = {"shop": "shop.orders", "crm": "crm.tickets"}
VALUES: dict[str, tuple[Any, ...]] = {
    "customer": NUMBERS,
    "kind": (None, 1, 1, 2),
    "level": (None, 1, 2, 3, 3),
    "rank": (None, 1, 2, 40),
    "weight": (None, 0.0, 0.25, 0.5, -0.75, 2.0, 1e10),
    "note": WORDS,
    "name": WORDS,
    "day": DAYS,
    "at": (None, *(datetime.datetime(2024, 1, day, hour) for day in (2, 4, 5) for hour in (3, 22))),
    "price": (None, Decimal("0.00"), Decimal("1.50"), Decimal("-2.25"), Decimal("99999999.99")),
    "cost": (None, Decimal("0.250"), Decimal("1.500"), Decimal("-2.125"), Decimal("99999.999")),
}


class RandomHistory:
    """Writes transactions that fit each other, with one random generator."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rows: dict[str, dict[int, Row]] = {relation: {} for relation in SHAPES}
        self._next = 100

    def first_transactions(self) -> list[Transaction]:
        """What is there before anybody looks: one transaction for each source."""
        found = []
        for source in SOURCES:
            changes: list[RowChange] = []
            for relation in (r for r in SHAPES if SHAPES[r].source == source):
                rows = self._rng.choice((0, 3, 6)) if relation != "crm.customers" else 3
                changes += [self._insert(relation) for _ in range(rows)]
            found.append(tuple(changes) or (self._insert(LARGEST[source]),))
        return found

    def next_step(self) -> Step:
        """A transaction, or the clock is moved."""
        if self._rng.random() < 0.25:
            return self._rng.choice(MOVES)
        return self.next_transaction()

    def next_transaction(self) -> Transaction:
        """One to four changes, or a whole group that goes."""
        source = self._rng.choice(SOURCES)
        relations = [relation for relation in SHAPES if SHAPES[relation].source == source]
        if self._rng.random() < 0.08:
            relation = self._rng.choice(relations)
            gone = [self._delete(relation, row) for row in list(self._rows[relation])]
            if gone:
                return tuple(gone)
        count = self._rng.choice((1, 1, 2, 3, 4))
        return tuple(self._change(self._rng.choice(relations)) for _ in range(count))

    def _change(self, relation: str) -> RowChange:
        rows = self._rows[relation]
        share = self._rng.random()
        if not rows or share < 0.35:
            return self._insert(relation)
        row = self._rng.choice(list(rows))
        if share < 0.55:
            return self._delete(relation, row)
        return self._update(relation, row, new_key=share > 0.9)

    def _insert(self, relation: str) -> RowChange:
        shape, rows = SHAPES[relation], self._rows[relation]
        key = self._fresh_key(relation)
        values = tuple(self._value(name) for name in shape.columns)
        if rows and self._rng.random() < 0.3:
            values = self._rng.choice(list(rows.values()))
        if shape.key:
            values = (key, *values[1:])
        rows[key] = values
        return RowChange(relation, key, values, is_new=True)

    def _fresh_key(self, relation: str) -> int:
        """Small numbers come back; a key of the dimension is one that others have."""
        small = range(4) if relation == "crm.customers" else range(1, 9)
        free = [key for key in small if key not in self._rows[relation]]
        if SHAPES[relation].key and free:
            return self._rng.choice(free)
        self._next += 1
        return self._next

    def _delete(self, relation: str, row: int) -> RowChange:
        del self._rows[relation][row]
        return RowChange(relation, row, None)

    def _update(self, relation: str, row: int, new_key: bool) -> RowChange:
        shape, rows = SHAPES[relation], self._rows[relation]
        values = list(rows.pop(row))
        target = row
        if shape.key and new_key:
            target = values[0] = self._fresh_key(relation)
        names = [name for number, name in enumerate(shape.columns) if number or not shape.key]
        for name in self._rng.sample(names, self._rng.randint(1, min(2, len(names)))):
            values[list(shape.columns).index(name)] = self._value(name)
        rows[target] = tuple(values)
        return RowChange(relation, row, tuple(values))

    def _value(self, column: str) -> Any:
        return self._rng.choice(VALUES[column]) if column in VALUES else None
