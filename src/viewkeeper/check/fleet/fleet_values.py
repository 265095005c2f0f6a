"""What a view is over one state of each base, through all levels, by definition.

A *vector* gives every base behind a view one of its states, by index. The view over a vector is its
join over its parents over that vector, down to the bases; nothing that a member showed is used.
Values are numbered, so that equal rows have equal numbers, and joins are kept by the numbers of
what is joined: vectors that no parent can tell apart cost one look.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod

from viewkeeper.check.fleet.fleet_history import FleetHistory
from viewkeeper.check.history.recorded_history import Bag, Row
from viewkeeper.check.view_join import Join
from viewkeeper.view.definition import Relation

Vector = tuple[int, ...]
"""Per base of a view, in the order of their names, the index of a state."""


class FleetValues:
    """The values of all views of a history over all vectors."""

    def __init__(self, history: FleetHistory) -> None:
        self.history = history
        self._joins: dict[Relation, Join] = {}
        self._over: dict[tuple[Relation, Vector], int] = {}
        self._joined: dict[tuple[Relation, tuple[int, ...]], int] = {}
        self._numbers: dict[frozenset[tuple[Row, int]], int] = {}
        self._bags: list[dict[Row, int]] = []
        self._matches: dict[Relation, dict[int, list[Vector]]] = {}

    def number(self, bag: Bag) -> int:
        """The number of a bag of rows."""
        value = frozenset(item for item in bag.items() if item[1])
        number = self._numbers.setdefault(value, len(self._bags))
        if number == len(self._bags):
            self._bags.append(dict(value))
        return number

    def bag(self, number: int) -> Bag:
        return self._bags[number]

    def over(self, relation: Relation, vector: Vector) -> int:
        """The number of a relation's value over a vector of its bases."""
        known = self._over.get((relation, vector))
        if known is None:
            known = self._over[relation, vector] = self._compute(relation, vector)
        return known

    def _compute(self, relation: Relation, vector: Vector) -> int:
        base = self.history.base.get(relation.source)
        if base is not None:
            return self.number(base.states[vector[0]].rows[relation.table])
        at = dict(zip(self.history.bases_of(relation), vector, strict=True))
        parents = self.history.definition(relation).relations
        return self.joined(relation, {p: self.over(p, self.part(p, at)) for p in parents})

    def part(self, relation: Relation, at: Mapping[str, int]) -> Vector:
        """The vector of a relation's own bases."""
        return tuple(at[base] for base in self.history.bases_of(relation))

    def joined(self, view: Relation, parents: Mapping[Relation, int]) -> int:
        """The number of a view's value over values of its parents."""
        if view not in self._joins:
            self._joins[view] = Join(self.history.definition(view))
        join = self._joins[view]
        given = tuple(parents[step.place.relation] for step in join.steps)
        known = self._joined.get((view, given))
        if known is None:
            bags = (
                step.number(self.bag(number), self.history.columns(step.place.relation))
                for step, number in zip(join.steps, given, strict=True)
            )
            known = self._joined[view, given] = self.number(join.rows(tuple(bags)))
        return known

    def count(self, relation: Relation) -> int:
        """How many vectors a relation has."""
        return prod(len(self.history.base[b].states) for b in self.history.bases_of(relation))

    def matches(self, relation: Relation) -> dict[int, list[Vector]]:
        """For every value of a relation, all vectors that give it."""
        if relation not in self._matches:
            found: dict[int, list[Vector]] = {}
            sizes = (len(self.history.base[b].states) for b in self.history.bases_of(relation))
            for vector in product(*map(range, sizes)):
                found.setdefault(self.over(relation, vector), []).append(vector)
            self._matches[relation] = found
        return self._matches[relation]
