"""The join tree: relations are nodes, equi-joins are edges.

A view's equalities form a graph over its places; a spanning tree of it is what a sweep walks. All
equalities between two neighbours are one edge with a key of several columns. Equalities that close
a cycle are not needed to find candidates: they are residual, checked as predicates once both places
are there. Places that no equality connects are hung under the root by an edge without a key, which
is answered by a scan.

The root is the place with the most neighbours: in a star that is the fact table, and every change
of a dimension then reaches the other dimensions in the passes that the others use anyway.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from viewkeeper.view.definition import Equality, ViewDefinition
from viewkeeper.view.expression import Column


@dataclass(frozen=True, slots=True)
class JoinKey:
    """One column of an edge's key, seen from the end that has rows to the end that is looked up."""

    have: Column
    want: Column
    null_safe: bool

    def reversed_key(self) -> JoinKey:
        return JoinKey(self.want, self.have, self.null_safe)


@dataclass(frozen=True, slots=True)
class Edge:
    """Parent and child, and the key that joins them, oriented from parent to child."""

    parent: int
    child: int
    on: tuple[JoinKey, ...]


@dataclass(frozen=True, slots=True)
class JoinTree:
    """A rooted spanning tree; edges in breadth-first order, parents before children."""

    root: int
    edges: tuple[Edge, ...]
    residual: tuple[Equality, ...]

    def subtree_of(self, place: int) -> frozenset[int]:
        """The place and everything below it."""
        inside = {place}
        for edge in self.edges:
            if edge.parent in inside:
                inside.add(edge.child)
        return frozenset(inside)


def join_tree_of(view: ViewDefinition) -> JoinTree:
    """The join tree of a view."""
    usable = _usable_equalities(view.equalities)
    neighbours = _neighbours_of(usable)
    order = sorted(range(len(view.places)), key=lambda place: (-len(neighbours[place]), place))
    root = order[0]
    reached, edges = {root}, list[Edge]()
    for start in order:
        if start not in reached:
            reached.add(start)
            edges.append(Edge(root, start, ()))
        _grow_tree(start, neighbours, reached, edges)
    used = {frozenset((edge.parent, edge.child)) for edge in edges if edge.on}
    residual = tuple(e for e in view.equalities if e not in usable or _ends_of(e) not in used)
    return JoinTree(root, tuple(_breadth_first(root, edges)), residual)


def _ends_of(equality: Equality) -> frozenset[int]:
    return frozenset((equality.left.place, equality.right.place))


def _usable_equalities(equalities: tuple[Equality, ...]) -> tuple[Equality, ...]:
    """Equalities that can be key columns together: no column twice between the same two places."""
    seen = set[tuple[frozenset[int], Column]]()
    usable = list[Equality]()
    for equality in equalities:
        ends = _ends_of(equality)
        columns = {(ends, equality.left), (ends, equality.right)}
        if not columns & seen:
            seen |= columns
            usable.append(equality)
    return tuple(usable)


def _neighbours_of(equalities: tuple[Equality, ...]) -> defaultdict[int, dict[int, list[JoinKey]]]:
    neighbours: defaultdict[int, dict[int, list[JoinKey]]] = defaultdict(dict)
    for equality in equalities:
        key = JoinKey(equality.left, equality.right, equality.null_safe)
        for oriented in (key, key.reversed_key()):
            ends = neighbours[oriented.have.place]
            ends.setdefault(oriented.want.place, []).append(oriented)
    return neighbours


def _grow_tree(
    start: int,
    neighbours: defaultdict[int, dict[int, list[JoinKey]]],
    reached: set[int],
    edges: list[Edge],
) -> None:
    frontier = [start]
    while frontier:
        parent = frontier.pop(0)
        for child, on in sorted(neighbours[parent].items()):
            if child not in reached:
                reached.add(child)
                edges.append(Edge(parent, child, tuple(on)))
                frontier.append(child)


def _breadth_first(root: int, edges: list[Edge]) -> list[Edge]:
    below: defaultdict[int, list[Edge]] = defaultdict(list)
    for edge in edges:
        below[edge.parent].append(edge)
    ordered, frontier = list[Edge](), [root]
    while frontier:
        outgoing = below[frontier.pop(0)]
        ordered.extend(outgoing)
        frontier.extend(edge.child for edge in outgoing)
    return ordered
