"""Why a recorded run of several warehouses is not consistent, in sentences with names and rows.

A view that matches no vector shows some base in two states, through different parents. Which one is
found by letting every parent have its own vector: first those that the members claim, then all that
there are. The combination in which the fewest bases differ is the easiest to understand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, product

from viewkeeper.check.fleet.fleet_checker import LIMIT, FleetFault, FleetVerdict, Kind
from viewkeeper.check.fleet.fleet_values import Vector
from viewkeeper.check.history_words import difference_text, listed, rows_text
from viewkeeper.view.definition import Relation

EXAMPLES_MAX = 3
"""How many faults of one kind are told."""

Split = dict[Relation, Vector]
"""For every parent of a view, the vector that it is seen at."""


def explain_fleet(verdict: FleetVerdict) -> list[str]:
    """Everything that is wrong with a run, or could not be decided; the first of each kind."""
    words = _Words(verdict)
    sentences = []
    for kind in Kind:
        faults = verdict.of(kind)
        sentences += [words.fault(fault) for fault in faults[:EXAMPLES_MAX]]
        if len(faults) > EXAMPLES_MAX:
            sentences.append(f"{len(faults) - EXAMPLES_MAX} other states: the same ({kind.value}).")
    return sentences


class _Words:
    """The sentences about one verdict."""

    def __init__(self, verdict: FleetVerdict) -> None:
        self._history = verdict.history
        self._values = verdict.values
        self._claims = verdict.claims

    def fault(self, fault: FleetFault) -> str:
        match fault.kind:
            case Kind.BASE:
                return self._base(fault)
            case Kind.VIEW:
                return self._view(fault)
            case Kind.CLAIM:
                return self._claim(fault)
            case Kind.BACKWARDS:
                return f"{self._state(fault)} goes back at {listed(list(fault.bases))}."
            case Kind.LAST:
                return self._last(fault)
            case Kind.UNKNOWN:
                return f"{self._state(fault)}: not decided, there are more than {LIMIT:,} vectors."

    # -- kinds -------------------------------------------------------------------------------------

    def _base(self, fault: FleetFault) -> str:
        shown = rows_text(self._rows(fault.view, fault.state))
        split = self._split(fault)
        if split is None:
            return f"{self._state(fault)} matches no state of its bases: its rows are {shown}."
        told = "; ".join(self._twice(fault.view, base, split) for base in self._differing(split))
        return (
            f"{self._state(fault)} matches no single state of each base: its rows are {shown}. "
            f"{told}."
        )

    def _twice(self, view: Relation, base: str, split: Split) -> str:
        """Which base is shown in two states, and through whom."""
        seen = {
            parent: vector[self._history.bases_of(parent).index(base)]
            for parent, vector in split.items()
            if base in self._history.bases_of(parent)
        }
        early, late = min(seen.values()), max(seen.values())
        name = self._transaction(base, early + 1)
        before = listed([str(parent) for parent, at in seen.items() if at == early])
        after = listed([str(parent) for parent, at in seen.items() if at == late])
        return (
            f"{view} shows {base} before and after {name}: before it through {before}, "
            f"after it through {after}"
        )

    def _view(self, fault: FleetFault) -> str:
        assert fault.other is not None, "view consistency is about two views"
        other = self._state(FleetFault(fault.kind, fault.other, fault.other_state))
        one = self._stands(fault.view, fault.state, fault.bases)
        two = self._stands(fault.other, fault.other_state, fault.bases)
        return (
            f"{self._state(fault)} and {other} stand for different states of "
            f"{listed(list(fault.bases))}: {fault.view} for {one}, {fault.other} for {two}."
        )

    def _claim(self, fault: FleetFault) -> str:
        claimed = self._claims.vector(fault.view, fault.state)
        if claimed is None:
            several = listed(list(fault.bases)) or "some base"
            return f"{self._state(fault)} claims to stand for no one state of {several}."
        right = self._values.bag(self._values.over(fault.view, claimed))
        wrong = difference_text(self._rows(fault.view, fault.state), right)
        bases = self._history.bases_of(fault.view)
        return (
            f"{self._state(fault)} claims to stand for {self._vector(bases, claimed)}; compared "
            f"with the view there, it {wrong}."
        )

    def _last(self, fault: FleetFault) -> str:
        final = tuple(len(self._history.base[base].states) - 1 for base in fault.bases)
        right = self._values.bag(self._values.over(fault.view, final))
        wrong = difference_text(self._rows(fault.view, fault.state), right)
        return (
            f"{self._state(fault)} is the last one and not the view over the bases' final states: "
            f"it {wrong}."
        )

    # -- which base --------------------------------------------------------------------------------

    def _split(self, fault: FleetFault) -> Split | None:
        """Vectors of the parents, one for each, that together give the rows."""
        shown = self._values.number(self._rows(fault.view, fault.state))
        best: Split | None = None
        for split in self._splits(fault):
            numbers = {parent: self._values.over(parent, v) for parent, v in split.items()}
            if self._values.joined(fault.view, numbers) == shown:
                if best is None or len(self._differing(split)) < len(self._differing(best)):
                    best = split
                if len(self._differing(best)) == 1:
                    break
        return best

    def _splits(self, fault: FleetFault) -> Iterator[Split]:
        parents = self._history.definition(fault.view).relations
        claimed = self._claimed(fault, parents)
        if claimed is not None:
            yield claimed
        if max(map(self._values.count, parents)) <= LIMIT:
            vectors = (
                [v for given in self._values.matches(p).values() for v in given] for p in parents
            )
            for chosen in islice(product(*vectors), LIMIT):
                yield dict(zip(parents, chosen, strict=True))

    def _claimed(self, fault: FleetFault, parents: tuple[Relation, ...]) -> Split | None:
        found: Split = {}
        positions = self._history.member[fault.view.source].states[fault.state].positions
        for parent in parents:
            if parent.source not in positions:
                return None
            said = self._claims.at(parent.source, positions[parent.source])
            ats = [said.get(base, frozenset()) for base in self._history.bases_of(parent)]
            if any(len(at) != 1 for at in ats):
                return None
            found[parent] = tuple(min(at) for at in ats)
        return found

    def _differing(self, split: Mapping[Relation, Vector]) -> list[str]:
        seen: dict[str, set[int]] = {}
        for parent, vector in split.items():
            for base, at in zip(self._history.bases_of(parent), vector, strict=True):
                seen.setdefault(base, set()).add(at)
        return sorted(base for base, ats in seen.items() if len(ats) > 1)

    # -- names -------------------------------------------------------------------------------------

    def _rows(self, view: Relation, state: int) -> Mapping[tuple[object, ...], int]:
        return self._history.member[view.source].states[state].rows[view.table]

    def _state(self, fault: FleetFault) -> str:
        state = self._history.member[fault.view.source].states[fault.state]
        where = f" in {state.group}" if state.group else ""
        after = f" (after {state.id}{where})" if state.id else ""
        name = str(fault.view) if fault.view.table else fault.view.source
        return f"{name}, ts {state.ts}{after},"

    def _stands(self, view: Relation, state: int, common: tuple[str, ...]) -> str:
        bases = self._history.bases_of(view)
        vectors = self._values.matches(view).get(self._values.number(self._rows(view, state)))
        if not vectors:
            return "none"
        claimed = self._claims.vector(view, state)
        vector = claimed if claimed in vectors else vectors[0]
        at = dict(zip(bases, vector, strict=True))
        return self._vector(common, tuple(at[base] for base in common))

    def _vector(self, bases: tuple[str, ...], vector: Vector) -> str:
        parts = zip(bases, vector, strict=True)
        return listed([f"{base} {self._after(base, at)}" for base, at in parts])

    def _after(self, base: str, at: int) -> str:
        return f"after {self._transaction(base, at)}" if at else "at its start"

    def _transaction(self, base: str, at: int) -> str:
        state = self._history.base[base].states[at]
        return state.name or f"{base}@{state.position}"
