"""Which columns a Relation message means, without an event trigger that says it.

A table lives through random changes. What is known is its shape at one moment, the message comes at
a later one, the catalogue is read at a third. Whatever is sure must be true; and the plain cases
must be sure.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from viewkeeper.sources.postgres.decoding.pgoutput import RelationColumn
from viewkeeper.sources.postgres.decoding.stream_shapes import (
    is_described_by,
    is_untouched,
    shape_of_message,
)
from viewkeeper.sources.postgres.shape_query import PostgresShape, PostgresShapeColumn, shape_of

INT, TEXT = (23, "int4"), (25, "text")
NAMES = ("a", "b", "c", "d")


def column(
    number: int, name: str, kind: tuple[int, str] = INT, stamp: str = "0"
) -> PostgresShapeColumn:
    facts = (kind[0], -1, kind[1], kind[1], -1, False, False, False, False)
    return PostgresShapeColumn(number, name, *facts, stamp)


def table(*columns: PostgresShapeColumn) -> PostgresShape:
    return PostgresShape(1, "public", "t", max(c.number for c in columns), "1", columns)


def message(shape: PostgresShape) -> tuple[RelationColumn, ...]:
    return tuple(
        RelationColumn(c.name, c.type, c.modifier, in_old_rows=True) for c in shape.columns
    )


class Life:
    """A table that changes; every change has a stamp of its own."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shape = table(column(1, "a"), column(2, "b"), column(3, "c"))
        self.stamp = 0

    def change(self) -> None:
        self.stamp += 1
        step = self.random.choice((self.rename, self.rename, self.drop, self.add, self.retype))
        step()

    def _touch(
        self, which: PostgresShapeColumn, name: str, kind: tuple[int, str] | None = None
    ) -> None:
        stamp = str(self.stamp)
        touched = replace(which, name=name, stamp=stamp)
        if kind is not None:
            touched = replace(touched, type=kind[0], declared=kind[1], base=kind[1])
        columns = tuple(touched if c is which else c for c in self.shape.columns)
        self.shape = replace(self.shape, columns=columns)

    def _free(self) -> list[str]:
        return [name for name in NAMES if all(c.name != name for c in self.shape.columns)]

    def rename(self) -> None:
        if self._free():
            self._touch(self.random.choice(self.shape.columns), self.random.choice(self._free()))

    def retype(self) -> None:
        which = self.random.choice(self.shape.columns)
        self._touch(which, which.name, self.random.choice((INT, TEXT)))

    def drop(self) -> None:
        if len(self.shape.columns) > 1:
            gone = self.random.choice(self.shape.columns)
            columns = tuple(c for c in self.shape.columns if c is not gone)
            self.shape = replace(self.shape, columns=columns)

    def add(self) -> None:
        if self._free():
            number = self.shape.width + 1
            new = column(number, self.random.choice(self._free()), stamp=str(self.stamp))
            columns = (*self.shape.columns, new)
            self.shape = replace(self.shape, columns=columns, width=number)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_sure_is_true(seed: int) -> None:
    for number in range(100):
        life = Life(seed * 1000 + number)
        known = life.shape
        for _ in range(3):
            # Each message is read with the catalogue of some later time, after what was inferred.
            for _ in range(life.random.randrange(3)):
                life.change()
            there = life.shape
            later = Life(0)
            later.random, later.shape, later.stamp = life.random, there, life.stamp
            for _ in range(life.random.randrange(3)):
                later.change()
            is_same = is_described_by(known, message(there), is_root=True)
            if not is_same or not is_untouched(known, later.shape):
                known = shape_of_message(known, later.shape, message(there), is_root=True)
            for found in known.columns:
                true = there.by_number.get(found.number)
                if found.sure:
                    assert true is not None
                    assert (found.name, found.type) == (true.name, true.type)
            mandatory = there.by_number.keys() & later.shape.by_number.keys()
            assert mandatory & set(range(1, 4)) <= known.by_number.keys()
            life.shape, life.stamp = later.shape, later.stamp


@pytest.mark.parametrize(
    ("there", "now"),
    [
        ("renamed", (column(1, "a"), column(2, "x", stamp="1"), column(3, "c"))),
        ("added", (column(1, "a"), column(2, "b"), column(3, "c"), column(4, "d", stamp="1"))),
        ("dropped", (column(1, "a"), column(3, "c"))),
        ("renamed and dropped", (column(1, "x", stamp="1"), column(3, "c"))),
        ("dropped and added", (column(1, "a"), column(3, "c"), column(4, "b", stamp="1"))),
    ],
)
def test_plain_changes_are_sure(there: str, now: tuple[PostgresShapeColumn, ...]) -> None:
    known = table(column(1, "a"), column(2, "b"), column(3, "c"))
    after = replace(table(*now), width=max(3, now[-1].number))
    told = shape_of_message(known, after, message(after), is_root=True)
    followed = [c for c in told.columns if c.number <= 3]
    assert [(c.number, c.name) for c in followed] == [
        (c.number, c.name) for c in now[: len(followed)]
    ]
    assert all(c.sure for c in followed)


def test_what_can_be_read_in_two_ways_is_not_sure() -> None:
    known = table(column(1, "a"), column(2, "b"), column(3, "c"))
    now = replace(table(column(3, "z", stamp="2")), width=3)
    # One of three was dropped by then; which of the others is called x, nobody can say.
    there = table(column(1, "x"), column(3, "c"))
    told = shape_of_message(known, now, message(there), is_root=True)
    assert {c.number: c.sure for c in told.columns} == {3: False}


def test_a_partition_may_have_another_order() -> None:
    known = table(column(1, "a"), column(2, "b"), column(3, "c"))
    now = table(column(1, "a"), column(2, "x", stamp="1"), column(3, "c"))
    there = (message(now)[1], message(now)[2], message(now)[0])
    assert not is_described_by(known, there, is_root=False)
    told = shape_of_message(known, now, there, is_root=False)
    assert {c.number: (c.name, c.sure) for c in told.columns} == {
        1: ("a", True),
        2: ("x", True),
        3: ("c", True),
    }


@pytest.mark.parametrize("below", [["_text", -1, False], ["text[]", -1, False, None]])
def test_shapes_of_earlier_event_triggers_are_understood(below: list[object]) -> None:
    column = [1, "tags", 1009, -1, "text[]", below, False, False, False, "0"]
    facts = {"oid": 1, "schema": "public", "name": "t", "width": 1, "file": "1", "keys": None}
    (found,) = shape_of({**facts, "columns": [column]}).columns
    assert (found.base, found.labels, found.stamp) == ("text[]", (), "0")
