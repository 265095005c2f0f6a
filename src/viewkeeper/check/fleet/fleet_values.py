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
from viewkeeper.check.view_join import ViewJoin
from viewkeeper.view.definition import Relation

Vector = tuple[int, ...]
"""Per base of a view, in the order of their names, the index of a state."""


class FleetValues:
    """The values of all views of a history over all vectors."""

    def __init__(self, history: FleetHistory) -> None:
        self.history = history
        self._joins: dict[Relation, ViewJoin] = {}
        self._over: dict[tuple[Relation, Vector], int] = {}
        self._joined: dict[tuple[Relation, tuple[int, ...]], int] = {}
        self._numbers: dict[frozenset[tuple[Row, int]], int] = {}
        self._bags: list[dict[Row, int]] = []
        self._matches: dict[Relation, dict[int, list[Vector]]] = {}

    def number_of(self, bag: Bag) -> int:
        """The number of a bag of rows."""
        value = frozenset(item for item in bag.items() if item[1])
        number = self._numbers.setdefault(value, len(self._bags))
        if number == len(self._bags):
            self._bags.append(dict(value))
        return number

    def bag_of(self, number: int) -> Bag:
        return self._bags[number]

    def value_over(self, relation: Relation, vector: Vector) -> int:
        """The number of a relation's value over a vector of its bases."""
        known = self._over.get((relation, vector))
        if known is None:
            known = self._over[relation, vector] = self._compute_value(relation, vector)
        return known

    def _compute_value(self, relation: Relation, vector: Vector) -> int:
        base = self.history.base_by_name.get(relation.source)
        if base is not None:
            return self.number_of(base.states[vector[0]].rows[relation.table])
        at = dict(zip(self.history.bases_of(relation), vector, strict=True))
        parents = self.history.definition_of(relation).relations
        return self.join_parents(
            relation, {p: self.value_over(p, self.vector_of(p, at)) for p in parents}
        )

    def vector_of(self, relation: Relation, at: Mapping[str, int]) -> Vector:
        """The vector of a relation's own bases."""
        return tuple(at[base] for base in self.history.bases_of(relation))

    def join_parents(self, view: Relation, parents: Mapping[Relation, int]) -> int:
        """The number of a view's value over values of its parents."""
        if view not in self._joins:
            self._joins[view] = ViewJoin(self.history.definition_of(view))
        join = self._joins[view]
        given = tuple(parents[step.place.relation] for step in join.steps)
        known = self._joined.get((view, given))
        if known is None:
            bags = (
                step.number_bag(self.bag_of(number), self.history.columns_of(step.place.relation))
                for step, number in zip(join.steps, given, strict=True)
            )
            known = self._joined[view, given] = self.number_of(join.rows_over(tuple(bags)))
        return known

    def count_vectors(self, relation: Relation) -> int:
        """How many vectors a relation has."""
        return prod(
            len(self.history.base_by_name[b].states) for b in self.history.bases_of(relation)
        )

    def vectors_by_value(self, relation: Relation) -> dict[int, list[Vector]]:
        """For every value of a relation, all vectors that give it."""
        if relation not in self._matches:
            found: dict[int, list[Vector]] = {}
            sizes = (
                len(self.history.base_by_name[b].states) for b in self.history.bases_of(relation)
            )
            for vector in product(*map(range, sizes)):
                found.setdefault(self.value_over(relation, vector), []).append(vector)
            self._matches[relation] = found
        return self._matches[relation]
