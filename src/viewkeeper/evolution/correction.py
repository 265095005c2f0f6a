"""Static correction: from updates in the order of arrival to units in a legal order.

Citation: Chen, Chen, Zhang, Rundensteiner: Detection and Correction of Conflicting Concurrent Data
Warehouse Updates (2001), section 6.2, figures 9 and 10 (SDC). While there is an unsafe dependency,
pick one. If it lies on a cycle, no order of its updates will do, and they are merged into the first
of them, to be maintained as one (*Op-MergeForward*); otherwise what is depended on is moved before
what depends on it (*Op-Precede*).

Which one is picked is free. Here it is the foremost update that depends on something behind it, and
of that the one that arrived first. So a prefix that is in order stays in order for good, every
update is moved at most once per update that waits for it, and the end is certain:

1. The result has every update exactly once, and no unsafe dependency.
2. Merged are exactly the updates that depend on each other in a cycle, and no others.
3. Inside a unit, updates are in the order of arrival, which is that of every source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from viewkeeper.evolution.dependencies import (
    Dependency,
    DependencyGraph,
    ReceivedUpdate,
    graph_of,
    is_reshaped,
)
from viewkeeper.partition.view_graph import find_knots
from viewkeeper.view.definition import Relation

Unit = tuple[ReceivedUpdate, ...]
"""Updates that are maintained as one; mostly a single one."""


class Operation(Enum):
    """What a correction does."""

    PRECEDE = "precede"
    MERGE = "merge forward"


@dataclass(frozen=True, slots=True)
class CorrectionStep:
    """One correction: the unsafe dependency that was picked, what was done, the order after it."""

    picked: Dependency
    operation: Operation
    order: tuple[tuple[int, ...], ...]


def legal_order_of(updates: Sequence[ReceivedUpdate]) -> tuple[Unit, ...]:
    """Units in an order in which all of them can be maintained, given updates as they arrived.

    Where nothing is reshaped that is the order of arrival, and costs one look at every update.
    """
    if not is_reshaped(updates):
        return tuple((update,) for update in updates)
    correction = Correction(updates)
    for _ in correction.run_steps():
        pass
    return correction.units


class Correction:
    """A queue under correction; `run_steps` makes it legal, one operation at a time."""

    def __init__(self, updates: Sequence[ReceivedUpdate]) -> None:
        self._graph = graph_of(updates)
        self._cycle = cycles_of(self._graph)
        self._placed: list[tuple[int, ...]] = []
        """In order for good."""
        self._front: list[tuple[int, ...]] = []
        """Moved before the rest, the last one foremost: each waits for what is before it."""
        self._rest = [(update.id,) for update in updates]
        self._at = 0
        self._moved: set[int] = set()
        self._settled: set[int] = set()

    @property
    def order(self) -> tuple[tuple[int, ...], ...]:
        """The ids of the units as they stand now."""
        rest = [unit for unit in self._rest[self._at :] if unit[0] not in self._moved]
        return (*self._placed, *reversed(self._front), *rest)

    @property
    def units(self) -> tuple[Unit, ...]:
        return tuple(tuple(self._graph.updates[id] for id in unit) for unit in self.order)

    def run_steps(self, keep: bool = False) -> Iterator[CorrectionStep]:
        """The operations, until no dependency is unsafe; with `keep` each has the order after."""
        while (unit := self._foremost_unit()) is not None:
            picked = self._pick_dependency(unit)
            if picked is None:
                self._placed.append(self._front.pop())
                self._settled |= set(unit)
                continue
            together = self._cycle.get(picked.later)
            if together is not None and picked.first in together:
                self._merge_cycle(unit, together)
                operation = Operation.MERGE
            else:
                self._precede(picked.first)
                operation = Operation.PRECEDE
            yield CorrectionStep(picked, operation, self.order if keep else ())

    def _foremost_unit(self) -> tuple[int, ...] | None:
        """The first unit that is not known to be in order."""
        while not self._front:
            if self._at == len(self._rest):
                return None
            unit = self._rest[self._at]
            self._at += 1
            if unit[0] not in self._moved:
                self._take_unit(unit)
        return self._front[-1]

    def _take_unit(self, unit: tuple[int, ...]) -> None:
        self._front.append(unit)
        self._moved |= set(unit)

    def _pick_dependency(self, unit: tuple[int, ...]) -> Dependency | None:
        """The unsafe dependency of a unit on what arrived first."""
        ready = self._settled.union(unit) if len(unit) > 1 else self._settled
        found = (self._graph.earliest_dependency(id, ready) for id in unit)
        return min((each for each in found if each), key=lambda each: each.first, default=None)

    def _precede(self, first: int) -> None:
        assert first not in self._moved, "what waits for a unit is on a cycle with it"
        self._take_unit((first,))

    def _merge_cycle(self, unit: tuple[int, ...], together: frozenset[int]) -> None:
        """All of a cycle become one unit, at the foremost place that one of them has."""
        self._front = [each for each in self._front if not together & set(each)]
        self._take_unit(tuple(sorted(together)))


def cycles_of(graph: DependencyGraph) -> dict[int, frozenset[int]]:
    """Per update that lies on a cycle, all updates that it is on a cycle with."""
    found: dict[int, frozenset[int]] = {}
    nodes: list[int | Relation] = [*graph.updates, *graph.breakers]
    for component in find_knots({node: _nodes_below(graph, node) for node in nodes}):
        ids = frozenset(node for node in component if isinstance(node, int))
        if len(ids) > 1:
            found |= dict.fromkeys(ids, ids)
    return found


def _nodes_below(graph: DependencyGraph, node: int | Relation) -> list[int | Relation]:
    """What a node depends on; readers and breakers of a relation meet in the relation itself."""
    if isinstance(node, Relation):
        return [*graph.breakers[node]]
    reads = [relation for relation in graph.updates[node].reads if relation in graph.breakers]
    return [*graph.before[node], *sorted(reads)]
