"""Why a recorded run of several warehouses is not consistent, in sentences with names and rows.

A view that matches no vector shows some base in two states, through different parents. Which one is
found by letting every parent have its own vector: first those that the members claim, then all that
there are. The combination in which the fewest bases differ is the easiest to understand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, product

from viewkeeper.check.fleet.fleet_checker import (
    LIMIT,
    FleetFault,
    FleetFaultKind,
    FleetVerdict,
    Vector,
)
from viewkeeper.check.history_words import difference_text, list_words, rows_text
from viewkeeper.view.definition import Relation

EXAMPLES_MAX = 3
"""How many faults of one kind are told."""

Split = dict[Relation, Vector]
"""For every parent of a view, the vector that it is seen at."""


def explain_fleet(verdict: FleetVerdict) -> list[str]:
    """Everything that is wrong with a run, or could not be decided; the first of each kind."""
    words = _FleetExplainer(verdict)
    sentences = []
    for kind in FleetFaultKind:
        faults = verdict.faults_of(kind)
        sentences += [words.explain_fault(fault) for fault in faults[:EXAMPLES_MAX]]
        if len(faults) > EXAMPLES_MAX:
            sentences.append(f"{len(faults) - EXAMPLES_MAX} other states: the same ({kind.value}).")
    return sentences


class _FleetExplainer:
    """The sentences about one verdict."""

    def __init__(self, verdict: FleetVerdict) -> None:
        self._history = verdict.history
        self._values = verdict.values
        self._claims = verdict.claims

    def explain_fault(self, fault: FleetFault) -> str:
        match fault.kind:
            case FleetFaultKind.BASE:
                return self._explain_base(fault)
            case FleetFaultKind.VIEW:
                return self._explain_view(fault)
            case FleetFaultKind.CLAIM:
                return self._explain_claim(fault)
            case FleetFaultKind.BACKWARDS:
                return f"{self._state_text(fault)} goes back at {list_words(list(fault.bases))}."
            case FleetFaultKind.LAST:
                return self._explain_last(fault)
            case FleetFaultKind.UNKNOWN:
                return (
                    f"{self._state_text(fault)}: not decided, there are more than {LIMIT:,} "
                    "vectors."
                )

    def _explain_base(self, fault: FleetFault) -> str:
        shown = rows_text(self._rows_of(fault.view, fault.state))
        split = self._find_split(fault)
        if split is None:
            return f"{self._state_text(fault)} matches no state of its bases: its rows are {shown}."
        told = "; ".join(
            self._explain_twice(fault.view, base, split) for base in self._differing_bases(split)
        )
        return (
            f"{self._state_text(fault)} matches no single state of each base: its rows are "
            f"{shown}. {told}."
        )

    def _explain_twice(self, view: Relation, base: str, split: Split) -> str:
        """Which base is shown in two states, and through whom."""
        seen = {
            parent: vector[self._history.bases_of(parent).index(base)]
            for parent, vector in split.items()
            if base in self._history.bases_of(parent)
        }
        early, late = min(seen.values()), max(seen.values())
        name = self._transaction_name(base, early + 1)
        before = list_words([str(parent) for parent, at in seen.items() if at == early])
        after = list_words([str(parent) for parent, at in seen.items() if at == late])
        return (
            f"{view} shows {base} before and after {name}: before it through {before}, "
            f"after it through {after}"
        )

    def _explain_view(self, fault: FleetFault) -> str:
        assert fault.other is not None, "view consistency is about two views"
        other = self._state_text(FleetFault(fault.kind, fault.other, fault.other_state))
        one = self._state_vector_text(fault.view, fault.state, fault.bases)
        two = self._state_vector_text(fault.other, fault.other_state, fault.bases)
        return (
            f"{self._state_text(fault)} and {other} stand for different states of "
            f"{list_words(list(fault.bases))}: {fault.view} for {one}, {fault.other} for {two}."
        )

    def _explain_claim(self, fault: FleetFault) -> str:
        claimed = self._claims.claimed_vector(fault.view, fault.state)
        if claimed is None:
            several = list_words(list(fault.bases)) or "some base"
            return f"{self._state_text(fault)} claims to stand for no one state of {several}."
        right = self._values.bag_of(self._values.value_over(fault.view, claimed))
        wrong = difference_text(self._rows_of(fault.view, fault.state), right)
        bases = self._history.bases_of(fault.view)
        return (
            f"{self._state_text(fault)} claims to stand for {self._vector_text(bases, claimed)}; "
            f"compared with the view there, it {wrong}."
        )

    def _explain_last(self, fault: FleetFault) -> str:
        final = tuple(len(self._history.base_by_name[base].states) - 1 for base in fault.bases)
        right = self._values.bag_of(self._values.value_over(fault.view, final))
        wrong = difference_text(self._rows_of(fault.view, fault.state), right)
        return (
            f"{self._state_text(fault)} is the last one and not the view over the bases' final "
            f"states: it {wrong}."
        )

    def _find_split(self, fault: FleetFault) -> Split | None:
        """Vectors of the parents, one for each, that together give the rows."""
        shown = self._values.number_of(self._rows_of(fault.view, fault.state))
        best: Split | None = None
        for split in self._possible_splits(fault):
            numbers = {parent: self._values.value_over(parent, v) for parent, v in split.items()}
            if self._values.join_parents(fault.view, numbers) == shown:
                if best is None or len(self._differing_bases(split)) < len(
                    self._differing_bases(best)
                ):
                    best = split
                if len(self._differing_bases(best)) == 1:
                    break
        return best

    def _possible_splits(self, fault: FleetFault) -> Iterator[Split]:
        parents = self._history.definition_of(fault.view).relations
        claimed = self._claimed_split(fault, parents)
        if claimed is not None:
            yield claimed
        if max(map(self._values.count_vectors, parents)) <= LIMIT:
            vectors = (
                [v for given in self._values.vectors_by_value(p).values() for v in given]
                for p in parents
            )
            for chosen in islice(product(*vectors), LIMIT):
                yield dict(zip(parents, chosen, strict=True))

    def _claimed_split(self, fault: FleetFault, parents: tuple[Relation, ...]) -> Split | None:
        found: Split = {}
        positions = self._history.member_by_name[fault.view.source].states[fault.state].positions
        for parent in parents:
            if parent.source not in positions:
                return None
            said = self._claims.base_states_at(parent.source, positions[parent.source])
            ats = [said.get(base, frozenset()) for base in self._history.bases_of(parent)]
            if any(len(at) != 1 for at in ats):
                return None
            found[parent] = tuple(min(at) for at in ats)
        return found

    def _differing_bases(self, split: Mapping[Relation, Vector]) -> list[str]:
        seen: dict[str, set[int]] = {}
        for parent, vector in split.items():
            for base, at in zip(self._history.bases_of(parent), vector, strict=True):
                seen.setdefault(base, set()).add(at)
        return sorted(base for base, ats in seen.items() if len(ats) > 1)

    def _rows_of(self, view: Relation, state: int) -> Mapping[tuple[object, ...], int]:
        return self._history.member_by_name[view.source].states[state].rows[view.table]

    def _state_text(self, fault: FleetFault) -> str:
        state = self._history.member_by_name[fault.view.source].states[fault.state]
        where = f" in {state.group}" if state.group else ""
        after = f" (after {state.id}{where})" if state.id else ""
        name = str(fault.view) if fault.view.table else fault.view.source
        return f"{name}, ts {state.ts}{after},"

    def _state_vector_text(self, view: Relation, state: int, common: tuple[str, ...]) -> str:
        bases = self._history.bases_of(view)
        vectors = self._values.vectors_by_value(view).get(
            self._values.number_of(self._rows_of(view, state))
        )
        if not vectors:
            return "none"
        claimed = self._claims.claimed_vector(view, state)
        vector = claimed if claimed in vectors else vectors[0]
        at = dict(zip(bases, vector, strict=True))
        return self._vector_text(common, tuple(at[base] for base in common))

    def _vector_text(self, bases: tuple[str, ...], vector: Vector) -> str:
        parts = zip(bases, vector, strict=True)
        return list_words([f"{base} {self._position_text(base, at)}" for base, at in parts])

    def _position_text(self, base: str, at: int) -> str:
        return f"after {self._transaction_name(base, at)}" if at else "at its start"

    def _transaction_name(self, base: str, at: int) -> str:
        state = self._history.base_by_name[base].states[at]
        return state.name or f"{base}@{state.position}"
