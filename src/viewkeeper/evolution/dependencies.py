"""Dependencies between updates: which of them must be maintained before which, and why.

Citation: Chen, Chen, Zhang, Rundensteiner: Detection and Correction of Conflicting Concurrent Data
Warehouse Updates (2001), section 4. Two kinds of dependencies are constraints on one order:

- *concurrent* (definition 3): the maintenance queries of one update read a relation that another
  one reshapes, so they break, or read something else, until that one has been maintained. Updates
  of rows alone never break a query: their effect on answers is compensated.
- *semantic* (definition 5): updates of one source that refer to the same thing keep their order.
  The paper says "the same relation". Here every update that moves its source's data keeps the order
  of its source, because a state with a later one and without an earlier one is a state that its
  source never had; updates that move nothing (renames) keep the order of what they refer to.

A dependency is *safe* if the update that is depended on comes first (definition 7). As long as no
update reshapes anything all dependencies are semantic ones and safe in the order of arrival, so the
graph is not made at all: one look at every update is all that pure data traffic costs.

What must hold: edges between updates that arrived are few enough to be kept. Semantic ones join
neighbours only; concurrent ones go through the relation, n for its readers and s for its reshapers
instead of n times s.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from viewkeeper.view.definition import Relation, ViewDefinition

Relations = frozenset[Relation]
NONE: Relations = frozenset()


@dataclass(frozen=True, slots=True)
class ReceivedUpdate:
    """A received update, reduced to what decides its place in the order.

    `changes` are the relations that it refers to, under every name that matters. `reads` are those
    that its maintenance queries ask. `breaks` are those that, once it has been committed at its
    source, cannot be asked any more as they were before. `moves`: rows or values of its source are
    others after it; a rename moves nothing.
    """

    id: int
    source: str
    changes: Relations
    reads: Relations = NONE
    breaks: Relations = NONE
    moves: bool = True


class DependencyKind(Enum):
    """The kind of a dependency."""

    CONCURRENT = "concurrent"
    SEMANTIC = "semantic"


@dataclass(frozen=True, slots=True)
class Dependency:
    """`later` depends on `first`: it must not be maintained before it. Both are ids of updates."""

    later: int
    first: int
    why: DependencyKind


def reads_of(view: ViewDefinition, changed: Iterable[Relation]) -> Relations:
    """What the maintenance queries of an update of these relations read: all others of the view,
    and a changed one too where the view has it at two places or where two of them changed."""
    mine = [place for place in view.places if place.relation in set(changed)]
    if len(mine) == 1:
        return frozenset(p.relation for p in view.places if p is not mine[0])
    return frozenset(view.relations) if mine else NONE


def is_reshaped(updates: Iterable[ReceivedUpdate]) -> bool:
    """The pre-scan: whether one of them breaks queries, so that a graph is needed at all."""
    return any(update.breaks for update in updates)


@dataclass(slots=True)
class DependencyGraph:
    """The dependencies of updates in the order of their arrival."""

    updates: dict[int, ReceivedUpdate]
    breakers: dict[Relation, list[int]] = field(default_factory=dict)
    """Per relation the updates that break queries to it, in order of arrival."""
    before: dict[int, list[int]] = field(default_factory=dict)
    """Per update those that it depends on semantically."""

    def earliest_dependency(self, id: int, done: Container[int]) -> Dependency | None:
        """The dependency of an update on what arrived first of all that is not done."""
        best: Dependency | None = None
        reads = sorted(self.updates[id].reads)
        reasons = [(DependencyKind.SEMANTIC, self.before[id])]
        reasons += [
            (DependencyKind.CONCURRENT, self.breakers[r]) for r in reads if r in self.breakers
        ]
        for why, arrived in reasons:
            first = next((f for f in arrived if f != id and f not in done), None)
            if first is not None and (best is None or first < best.first):
                best = Dependency(id, first, why)
        return best


def graph_of(updates: Sequence[ReceivedUpdate]) -> DependencyGraph:
    """The dependency graph (section 6.1.1) of updates that are given in the order of arrival."""
    graph = DependencyGraph({update.id: update for update in updates})
    assert list(graph.updates) == sorted(graph.updates), "ids grow in the order of arrival"
    latest: dict[str | Relation, int] = {}
    for update in updates:
        for relation in update.breaks:
            graph.breakers.setdefault(relation, []).append(update.id)
        shared: list[str | Relation] = [*sorted(update.changes)]
        if update.moves:
            shared.append(update.source)
        found = {latest[thing] for thing in shared if thing in latest}
        graph.before[update.id] = sorted(found)
        latest |= dict.fromkeys(shared, update.id)
    return graph
