"""Which orders are unsafe, by definition: every dependency is listed and looked at.

The program only asks for the earliest dependency of one update; the tests compare with this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from viewkeeper.evolution.dependencies import (
    Dependency,
    DependencyGraph,
    DependencyKind,
    ReceivedUpdate,
    graph_of,
)


def dependencies_of(graph: DependencyGraph, id: int) -> Iterator[Dependency]:
    """What an update depends on; each reason once."""
    for first in graph.before.get(id, ()):
        yield Dependency(id, first, DependencyKind.SEMANTIC)
    found: dict[int, None] = {}
    for relation in sorted(graph.updates[id].reads):
        found |= dict.fromkeys(graph.breakers.get(relation, ()))
    for first in sorted(found):
        if first != id:
            yield Dependency(id, first, DependencyKind.CONCURRENT)


def all_dependencies(updates: Sequence[ReceivedUpdate]) -> list[Dependency]:
    """Every dependency among updates in the order of arrival, by the update that has it."""
    graph = graph_of(updates)
    return [found for id in graph.updates for found in dependencies_of(graph, id)]


def unsafe_dependencies(
    dependencies: Iterable[Dependency], order: Sequence[int]
) -> list[Dependency]:
    """Those that the order violates: what is depended on comes later (definition 7)."""
    at = {id: position for position, id in enumerate(order)}
    return [found for found in dependencies if at[found.later] < at[found.first]]
