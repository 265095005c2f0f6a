"""The checker of many warehouses: base consistency everywhere, view consistency inside groups.

Ding, Zhang, Rundensteiner, Scalable Maintenance in Distributed Data Warehousing Environment (2000),
Definitions 4 and 5. A view is *base consistent* if each of its states is its definition, evaluated
down to the bases, over one state of each base. Two views of a group are *view consistent* if after
every id their states stand for the same state of each base that both derive from.

A state is first compared with the view over the vector that its member claims; if that gives its
rows, it is base consistent, whoever said so. Otherwise all vectors are tried, and a claim that is
wrong is a fault of its own. So is a state that stands for less than the one before it. Where there
are more vectors than the limit, the answer is unknown.

A *vector* gives every base behind a view one of its states, by index. The view over a vector is its
join over its parents over that vector, down to the bases; nothing that a member showed is used.
Values are numbered, so that equal rows have equal numbers, and joins are kept by the numbers of
what is joined: vectors that no parent can tell apart cost one look.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import combinations, product
from math import prod

from viewkeeper.check.fleet.fleet_history import FleetHistory, MemberHistory, MemberState
from viewkeeper.check.recomputation import BagNumbers, ViewJoin
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
        values = BagNumbers()
        self.number_of, self.bag_of = values.number_of, values.bag_of
        self._matches: dict[Relation, dict[int, list[Vector]]] = {}

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


LIMIT = 20_000
"""As many vectors of one view are tried at most."""


class FleetFaultKind(Enum):
    """What can be wrong with a state."""

    BASE = "base consistency"
    VIEW = "view consistency"
    CLAIM = "claim"
    BACKWARDS = "order"
    LAST = "convergence"
    UNKNOWN = "limit"


@dataclass(frozen=True, slots=True)
class FleetFault:
    """Something wrong with a member's state, and of a pair the other one.

    `view` is the view that shows it; `bases` are those that it is about.
    """

    kind: FleetFaultKind
    view: Relation
    state: int
    bases: tuple[str, ...] = ()
    other: Relation | None = None
    other_state: int = 0


@dataclass(frozen=True, slots=True)
class FleetVerdict:
    """What the checker found; `faults` are in the order of members and states."""

    history: FleetHistory
    values: FleetValues
    claims: FleetClaims
    faults: tuple[FleetFault, ...]

    def faults_of(self, *kinds: FleetFaultKind) -> list[FleetFault]:
        return [fault for fault in self.faults if fault.kind in kinds]


class FleetClaims:
    """What members say that they stand for, as states of bases, through all levels."""

    def __init__(self, history: FleetHistory) -> None:
        self._history = history
        self._known: dict[tuple[str, int], dict[str, frozenset[int]]] = {}

    def base_states_of(self, member: str, state: int) -> Mapping[str, frozenset[int]]:
        """Per base the states, by index, that a state stands for: one, if all is well."""
        if (member, state) not in self._known:
            found: dict[str, frozenset[int]] = {}
            positions = self._history.member_by_name[member].states[state].positions
            for source, position in positions.items():
                for base, at in self.base_states_at(source, position).items():
                    found[base] = found.get(base, frozenset()) | at
            self._known[member, state] = found
        return self._known[member, state]

    def base_states_at(self, source: str, position: int) -> Mapping[str, frozenset[int]]:
        """The same for a source at a position of its own."""
        base = self._history.base_by_name.get(source)
        if base is not None:
            at = bisect_right(base.states, position, key=lambda state: state.position) - 1
            return {source: frozenset({at})} if at >= 0 else {source: frozenset()}
        states = self._history.member_by_name[source].states
        at = bisect_right(states, position, key=lambda state: state.ts) - 1
        return self.base_states_of(source, at) if at >= 0 else {}

    def claimed_vector(self, view: Relation, state: int) -> Vector | None:
        """The vector that a view's state claims; None if it names none, or several."""
        found = self.base_states_of(view.source, state)
        ats = [found.get(base, frozenset()) for base in self._history.bases_of(view)]
        return tuple(min(at) for at in ats) if all(len(at) == 1 for at in ats) else None


def check_fleet(
    history: FleetHistory, ended: Collection[str] = (), limit: int = LIMIT
) -> FleetVerdict:
    """Decide a recorded run; `ended` are members that had nothing left to do in the end."""
    values, claims = FleetValues(history), FleetClaims(history)
    examination = _FleetExamination(history, values, claims, limit)
    faults = [fault for member in history.members for fault in examination.check_member(member)]
    faults += [
        fault for name in ended for fault in examination.check_last(history.member_by_name[name])
    ]
    faults += examination.check_pairs()
    return FleetVerdict(history, values, claims, tuple(faults))


class _FleetExamination:
    """One check at work."""

    def __init__(
        self, history: FleetHistory, values: FleetValues, claims: FleetClaims, limit: int
    ) -> None:
        self._history = history
        self._values = values
        self._claims = claims
        self._limit = limit
        self._proven: set[tuple[Relation, int]] = set()
        """States whose claim is right."""

    def check_member(self, member: MemberHistory) -> Iterator[FleetFault]:
        for at, state in enumerate(member.states):
            for name in member.views:
                view = Relation(member.name, name)
                fault = self._check_state(view, at, state)
                if fault is not None:
                    yield fault
            before = member.states[at - 1].positions if at else {}
            back = tuple(s for s, p in state.positions.items() if p < before.get(s, p))
            if back:
                yield FleetFault(FleetFaultKind.BACKWARDS, Relation(member.name, ""), at, back)

    def _check_state(self, view: Relation, at: int, state: MemberState) -> FleetFault | None:
        """What is wrong with one state of a view by itself."""
        shown = self._values.number_of(state.rows[view.table])
        claimed = self._claims.claimed_vector(view, at)
        if claimed is not None and self._values.value_over(view, claimed) == shown:
            self._proven.add((view, at))
            return None
        if self._values.count_vectors(view) > self._limit:
            return FleetFault(FleetFaultKind.UNKNOWN, view, at)
        kind = (
            FleetFaultKind.CLAIM
            if shown in self._values.vectors_by_value(view)
            else FleetFaultKind.BASE
        )
        return FleetFault(kind, view, at, self._bases_twice(view, at))

    def _bases_twice(self, view: Relation, at: int) -> tuple[str, ...]:
        """The bases that a state claims to stand for in several states."""
        found = self._claims.base_states_of(view.source, at)
        return tuple(b for b in self._history.bases_of(view) if len(found.get(b, ())) > 1)

    def check_last(self, member: MemberHistory) -> Iterator[FleetFault]:
        """Whether the last state has everything, and nothing twice."""
        at = len(member.states) - 1
        for name, rows in member.states[at].rows.items():
            view = Relation(member.name, name)
            bases = self._history.bases_of(view)
            final = tuple(len(self._history.base_by_name[base].states) - 1 for base in bases)
            if self._values.value_over(view, final) != self._values.number_of(rows):
                yield FleetFault(FleetFaultKind.LAST, view, at, bases)

    def check_pairs(self) -> Iterator[FleetFault]:
        """View consistency: the states of two views after one id."""
        after: dict[tuple[str, str], list[tuple[str, int]]] = {}
        for member in self._history.members:
            for at, state in enumerate(member.states):
                if state.id:
                    after.setdefault((state.group, state.id), []).append((member.name, at))
        for shown in after.values():
            for one, other in combinations(shown, 2):
                if one[0] != other[0]:
                    yield from self._check_pair(one, other)

    def _check_pair(self, one: tuple[str, int], other: tuple[str, int]) -> Iterator[FleetFault]:
        if self._claims_agree(one, other):
            return
        for mine in self._history.member_by_name[one[0]].views:
            for theirs in self._history.member_by_name[other[0]].views:
                fault = self._compare_views(
                    Relation(one[0], mine), one[1], Relation(other[0], theirs), other[1]
                )
                if fault is not None:
                    yield fault

    def _claims_agree(self, one: tuple[str, int], other: tuple[str, int]) -> bool:
        """Whether right claims say that two members stand at the same state of common bases."""
        first, second = self._claims.base_states_of(*one), self._claims.base_states_of(*other)
        views = [
            (Relation(m, view), at)
            for m, at in (one, other)
            for view in self._history.member_by_name[m].views
        ]
        return self._proven.issuperset(views) and all(
            first[base] == second[base] for base in first.keys() & second.keys()
        )

    def _compare_views(
        self, view: Relation, at: int, other: Relation, there: int
    ) -> FleetFault | None:
        """What is wrong if no vectors of two views that give their rows agree."""
        ours, theirs = self._history.bases_of(view), self._history.bases_of(other)
        common = tuple(base for base in ours if base in theirs)
        if not common:
            return None
        if max(self._values.count_vectors(view), self._values.count_vectors(other)) > self._limit:
            return FleetFault(FleetFaultKind.UNKNOWN, view, at, common, other, there)
        mine = self._common_vectors(view, at, common)
        found = self._common_vectors(other, there, common)
        if mine & found:
            return None
        return FleetFault(FleetFaultKind.VIEW, view, at, common, other, there)

    def _common_vectors(self, view: Relation, at: int, common: tuple[str, ...]) -> set[Vector]:
        """The states of common bases that a state of a view can stand for."""
        rows = self._history.member_by_name[view.source].states[at].rows[view.table]
        bases = self._history.bases_of(view)
        keep = [bases.index(base) for base in common]
        vectors = self._values.vectors_by_value(view).get(self._values.number_of(rows), [])
        return {tuple(vector[i] for i in keep) for vector in vectors}
