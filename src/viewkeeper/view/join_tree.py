"""The join tree: relations are nodes, equi-joins are edges.

A view's equalities form a graph over its places; a spanning tree of it is what a sweep walks. All
equalities between two neighbours are one edge with a key of several columns. Equalities that close
a cycle are not needed to find candidates: they are residual, checked as predicates once both places
are there. Places that no equality connects are hung under the root by an edge without a key, which
is answered by a scan.

The root is the place from which most others are found one row by one row, by unique keys, and among
those the one with the most neighbours: in a star and in a snowflake that is the fact table, and
every change of a dimension then reaches the other dimensions in the passes that the others use
anyway. The tree grows along unique keys first, so that an equality which multiplies rows (customers
and suppliers of one nation) closes a cycle wherever something better joins its two places.

A keyed place hangs below the parent that its definition names, once all places that its ON reads
are in the tree; places that are joined through columns of a left place hang below it. The root is
then one of the places that are joined with place 0 without passing a keyed place. A NULL that a
left place shows where nothing matches is found by no lookup of that place, so a null-safe equality
with its columns is never a key of an edge below it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from viewkeeper.view.definition import Equality, KeyedJoin, Place, ViewDefinition
from viewkeeper.view.expression import Column, Compare, Expression, places_of
from viewkeeper.view.moving_window import moving_window_of


@dataclass(frozen=True, slots=True)
class JoinKey:
    """One column of an edge's key, seen from the end that has rows to the end that is looked up."""

    have: Column
    want: Column
    null_safe: bool

    def reversed_key(self) -> JoinKey:
        return JoinKey(self.want, self.have, self.null_safe)


@dataclass(frozen=True, slots=True)
class KeyedMatch:
    """How rows meet a keyed place: by which key, and under which other conditions of its ON."""

    place: Place
    on: tuple[JoinKey, ...]
    conditions: tuple[Expression, ...]

    @property
    def join(self) -> KeyedJoin:
        assert self.place.keyed is not None
        return self.place.keyed

    def as_anti_match(self) -> KeyedMatch:
        """The match that keeps the rows that this one finds nothing for."""
        return replace(self, place=replace(self.place, keyed=replace(self.join, kind="anti")))

    @property
    def needed_places(self) -> frozenset[int]:
        """The places that a row must have before it can be matched."""
        read = (place for condition in self.conditions for place in places_of(condition))
        return frozenset({self.join.parent, *read}) - {self.place.index}

    @property
    def own_conditions(self) -> list[Expression]:
        """The conditions that a row of the place meets or not, whatever it is joined with."""
        return [c for c in self.conditions if places_of(c) <= {self.place.index}]

    @property
    def other_conditions(self) -> list[Expression]:
        """The conditions that depend on the row that meets the place."""
        return [c for c in self.conditions if not places_of(c) <= {self.place.index}]


@dataclass(frozen=True, slots=True)
class Edge:
    """Parent and child, and the key that joins them, oriented from parent to child; `match` if the
    child is keyed."""

    parent: int
    child: int
    on: tuple[JoinKey, ...]
    match: KeyedMatch | None = None


Neighbours = defaultdict[int, dict[int, list[JoinKey]]]
"""Per place, the places that equalities join it with, and their keys."""


@dataclass(frozen=True, slots=True)
class JoinTree:
    """A rooted spanning tree; edges with parents before children, breadth first if none is keyed.

    What a keyed place needs comes before it.
    """

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

    def matches_above(self, place: int) -> list[KeyedMatch]:
        """The keyed places between a place and the root."""
        found: list[KeyedMatch] = []
        at = place
        for edge in reversed(self.edges):
            if edge.child == at:
                found += [edge.match] if edge.match is not None and at != place else []
                at = edge.parent
        return found


def join_tree_of(view: ViewDefinition) -> JoinTree:
    matches = {p.index: _match_of(view, p, p.keyed) for p in view.places if p.keyed is not None}
    usable = _usable_equalities(e for e in view.equalities if not _reads_padding(e, matches))
    neighbours = _neighbours_of(usable)
    degrees = {place.index: len(neighbours[place.index]) for place in view.places}
    for match in matches.values():
        degrees[match.join.parent] += 1
    found = {place: _count_found(view, neighbours, place) for place in degrees}
    order = sorted(degrees, key=lambda place: (-found[place], -degrees[place], place))
    if matches:
        around = _Growth(view, 0, neighbours, matches).reached
        root = next(place for place in order if place in around)
    else:
        root = order[0]
    windows = {p.index: w.target for p in view.places if (w := moving_window_of(view, p.index))}
    growth = _Growth(view, root, neighbours, matches, windows)
    growth.grow_everywhere(order)
    edges = growth.edges if matches else _breadth_first(root, growth.edges)
    used = {frozenset((e.parent, e.child)) for e in edges if e.on and e.match is None}
    residual = tuple(e for e in view.equalities if e not in usable or _ends_of(e) not in used)
    return JoinTree(root, tuple(edges), residual)


def _count_found(view: ViewDefinition, neighbours: Neighbours, start: int) -> int:
    """How many places a row of one place finds, one row of each at most."""
    found, frontier = {start}, [start]
    while frontier:
        for place, on in neighbours[frontier.pop()].items():
            if place not in found and fan_out_of(view, on) is FanOut.ONE:
                found.add(place)
                frontier.append(place)
    return len(found)


class FanOut(IntEnum):
    """How many rows a row finds through a key: one at most; those that belong to it alone; any."""

    ONE = 0
    SOME = 1
    MANY = 2


def fan_out_of(view: ViewDefinition, on: Sequence[JoinKey]) -> FanOut:
    """What unique keys say of an edge, from the end that has rows to the other."""
    if on and view.places[on[0].want.place].is_unique_by(key.want.name for key in on):
        return FanOut.ONE
    if on and view.places[on[0].have.place].is_unique_by(key.have.name for key in on):
        return FanOut.SOME
    return FanOut.MANY


def _match_of(view: ViewDefinition, place: Place, join: KeyedJoin) -> KeyedMatch:
    """The key by which a keyed place is asked; what cannot be one is a condition."""
    padded = view.places[join.parent].keyed is not None
    key = _usable_equalities(e for e in join.on if not (padded and e.null_safe))
    assert key, f"place {place.index}: no equality of its ON can be a key below a left place"
    others = tuple(comparison_of(e) for e in join.on if e not in key)
    on = tuple(JoinKey(e.left, e.right, e.null_safe) for e in key)
    return KeyedMatch(place, on, others + join.conditions)


def comparison_of(equality: Equality) -> Compare:
    """An equality as a condition."""
    return Compare("<=>" if equality.null_safe else "=", equality.left, equality.right)


def _reads_padding(equality: Equality, matches: Mapping[int, KeyedMatch]) -> bool:
    """Whether an equality can hold where a left place shows NULL, or joins two keyed places."""
    keyed = _ends_of(equality) & matches.keys()
    return len(keyed) > 1 or (bool(keyed) and equality.null_safe)


class _Growth:
    """A tree that grows from its root: along equalities, and to keyed places that can be met."""

    def __init__(
        self,
        view: ViewDefinition,
        root: int,
        neighbours: Neighbours,
        matches: Mapping[int, KeyedMatch],
        windows: Mapping[int, int] | None = None,
    ) -> None:
        """`windows` gives the places of the windows that other places move."""
        self._view = view
        self._root = root
        self._windows = windows or {}
        self._neighbours = neighbours
        self._matches = matches
        self.reached = {root}
        self.edges: list[Edge] = []
        self._grow_from(root)

    def grow_everywhere(self, order: Sequence[int]) -> None:
        """Reach every place; a place that nothing joins hangs below the root without a key."""
        while True:
            match = self._next_match()
            if match is not None:
                place, parent = match.place.index, match.join.parent
                self._attach(Edge(parent, place, match.on, match))
                continue
            apart = [p for p in order if p not in self.reached and p not in self._matches]
            if not apart:
                break
            # The place that moves a window hangs where the window is.
            above = {p: self._windows.get(p, self._root) for p in apart}
            place = next((p for p in apart if above[p] in self.reached), apart[0])
            parent = above[place] if above[place] in self.reached else self._root
            self._attach(Edge(parent, place, ()))
        assert self.reached == set(order), "the ON of a keyed place reads a place joined after it"

    def _next_match(self) -> KeyedMatch | None:
        waiting = (m for place, m in self._matches.items() if place not in self.reached)
        return next((m for m in waiting if m.needed_places <= self.reached), None)

    def _attach(self, edge: Edge) -> None:
        self.reached.add(edge.child)
        self.edges.append(edge)
        self._grow_from(edge.child)

    def _grow_from(self, start: int) -> None:
        """Breadth first, along keys that find few rows before those that find many."""
        grown = [start]
        while found := self._next_edges(grown):
            _, at, child = min(found)
            self.reached.add(child)
            self.edges.append(Edge(grown[at], child, tuple(self._neighbours[grown[at]][child])))
            grown.append(child)

    def _next_edges(self, grown: Sequence[int]) -> list[tuple[FanOut, int, int]]:
        """Where the tree can grow: how many rows are found, from which place, and to which."""
        return [
            (fan_out_of(self._view, on), at, child)
            for at, parent in enumerate(grown)
            for child, on in self._neighbours[parent].items()
            if child not in self.reached and child not in self._matches
        ]


def _ends_of(equality: Equality) -> frozenset[int]:
    return frozenset((equality.left.place, equality.right.place))


def _usable_equalities(equalities: Iterable[Equality]) -> tuple[Equality, ...]:
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


def _neighbours_of(equalities: tuple[Equality, ...]) -> Neighbours:
    neighbours: Neighbours = defaultdict(dict)
    for equality in equalities:
        key = JoinKey(equality.left, equality.right, equality.null_safe)
        for oriented in (key, key.reversed_key()):
            ends = neighbours[oriented.have.place]
            ends.setdefault(oriented.want.place, []).append(oriented)
    return neighbours


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
