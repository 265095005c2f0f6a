"""The outputs, conditions and relations of a view that stay, and the substitutes of lost ones.

Each output and each condition is decided for itself, in EVE's order. What misses nothing stays.
Else what it misses is replaced, if a substitute is named for it, the part is not irreplaceable, and
the substitute's extent is one that the view allows. Else an output shows NULL for what it misses,
if that is asked for, so that the view keeps its columns. Else the part is dispensed with, if it is
dispensable, as an output is that only a star asks for. A condition that can neither stay nor go
takes its relation with it, if that is dispensable. What cannot be decided so is a failure, with
everything that would have had to be dispensable.

Extents: an output that goes changes no row; a condition or a relation that goes restricts no more,
which gives a superset; a substitute gives its own. A step is allowed or not by itself, because
allowed steps are allowed together (`viewkeeper.evolution.extent`).

Nothing is left out that would leave a cross product where there was a join.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from viewkeeper.evolution.extent import Extent
from viewkeeper.evolution.preferences import NamedParts, Preferences
from viewkeeper.evolution.synchronization.parts_of_sql import (
    ShownColumn,
    Use,
    ViewCondition,
    ViewParts,
)
from viewkeeper.evolution.synchronization.substitute_columns import (
    JoinedSubstitute,
    SubstituteColumn,
    SubstituteColumns,
)
from viewkeeper.evolution.synchronization.table_now import UNKNOWN, TableNow


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """Where a column is found now: at a place of the view, or in a relation joined beside it."""

    owner: int | JoinedSubstitute
    column: str


@dataclass(frozen=True, slots=True)
class PartChoice:
    """What was decided. Indexes are those of the anatomy; `gone` are places."""

    standings: tuple[TableNow | None, ...]
    gone: frozenset[int]
    values: dict[Use, ColumnPlace]
    shown: frozenset[int]
    nulled: dict[int, frozenset[Use]]
    """Outputs that stay, but show NULL for these columns."""
    conditions: frozenset[int]
    beside: tuple[JoinedSubstitute, ...]
    used: tuple[SubstituteColumn, ...]
    extent: Extent


@dataclass(frozen=True, slots=True)
class ChoiceFailure:
    """Why nothing is possible, and what would have to be dispensable for more to be."""

    reasons: tuple[str, ...]
    needs: NamedParts
    extent: Extent


@dataclass(slots=True)
class _Tally:
    """What one attempt finds."""

    shown: set[int] = field(default_factory=set)
    nulled: dict[int, frozenset[Use]] = field(default_factory=dict)
    conditions: set[int] = field(default_factory=set)
    reasons: list[str] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    relations: set[str] = field(default_factory=set)
    too_many: list[str] = field(default_factory=list)


class PartChooser:
    """Decides for one view, given the table that is at each place now."""

    def __init__(
        self,
        view: ViewParts,
        standings: Sequence[TableNow | None],
        preferences: Preferences,
        stand_ins: SubstituteColumns,
        null_for_lost: bool,
    ) -> None:
        self.view, self.standings, self.preferences = view, tuple(standings), preferences
        self.stand_ins, self.null_for_lost = stand_ins, null_for_lost
        self.dispensable = ListedParts(view, preferences.dispensable)
        self.irreplaceable = ListedParts(view, preferences.irreplaceable)
        self.gone = {i for i, standing in enumerate(standings) if standing is None}

    def choose_parts(self) -> PartChoice | ChoiceFailure:
        while True:
            tally = _Tally()
            taken = self._decide_conditions(tally)
            if taken is None:
                self._decide_outputs(tally)
                taken = self._check_joins(tally)
            if taken is None:
                return self._choice_or_failure(tally)
            self.gone.add(taken)

    def _decide_conditions(self, tally: _Tally) -> int | None:
        """Decide about every condition; the place that must go first, if there is one."""
        for index, condition in enumerate(self.view.conditions):
            missing = self._missing_uses(condition, condition in self.irreplaceable)
            if not missing:
                tally.conditions.add(index)
            elif condition in self.dispensable:
                self._note_superset(tally, f"without the condition {condition.written}")
            elif covered := [place for place, _ in missing if self.dispensable.has_place(place)]:
                if covered[0] not in self.gone:
                    return covered[0]
            else:
                tally.reasons.append(
                    f"{self._loss_text(missing)}, and {condition.written} needs it"
                )
                tally.relations |= self._tables_lost(missing)
                if not self._tables_lost(missing):
                    tally.dropped.add(condition.written)
        return None

    def _decide_outputs(self, tally: _Tally) -> None:
        for index, shown in enumerate(self.view.shown):
            missing = self._missing_uses(shown, shown in self.irreplaceable)
            covered = all(self.dispensable.has_place(place) for place, _ in missing)
            if not missing:
                tally.shown.add(index)
            elif self.null_for_lost and all(self.view.types[use] != UNKNOWN for use in missing):
                tally.shown.add(index)
                tally.nulled[index] = missing
            elif shown not in self.dispensable and not covered and not shown.starred:
                needs = f'the view\'s column "{shown.name}" needs it'
                tally.reasons.append(f"{self._loss_text(missing)}, and {needs}")
                tally.relations |= self._tables_lost(missing)
                if not self._tables_lost(missing):
                    tally.columns.add(shown.name)

    def _missing_uses(
        self, part: ShownColumn | ViewCondition, irreplaceable: bool
    ) -> frozenset[Use]:
        return frozenset(use for use in part.uses if not self._has_column(use, irreplaceable))

    def _has_column(self, use: Use, irreplaceable: bool) -> bool:
        standing = self.standings[use[0]]
        if use[0] in self.gone or standing is None:
            return False
        if standing.column_now(use[1]) is not None:
            return standing.substitute is None or not irreplaceable
        return not irreplaceable and self.stand_ins.substitute_for(use) is not None

    def _note_superset(self, tally: _Tally, how: str) -> None:
        if not self.preferences.extent.can_accept(Extent.SUPERSET):
            tally.too_many.append(how)

    def _tables_lost(self, uses: Iterable[Use]) -> set[str]:
        lost = {place for place, _ in uses if self.standings[place] is None}
        return {self.view.tables[place].alias for place in lost}

    def _loss_text(self, uses: Iterable[Use]) -> str:
        place, name = min(uses)
        relation = self.view.tables[place].relation
        standing = self.standings[place]
        if standing is None or place in self.gone:
            return f"{relation} is gone"
        if standing.column_now(name) is not None:
            return f"{relation} is gone and may not be replaced"
        if standing.substitute is not None:
            return f"{relation} is gone and {standing.relation} has nothing for {name}"
        return f"{relation}.{name} is gone"

    def _check_joins(self, tally: _Tally) -> int | None:
        """Complain about a join that would fall apart, or give the place to drop instead."""
        for one, other in self._torn_joins(tally):
            for place in (one, other):
                if self.dispensable.has_place(place) and len(self.gone) + 1 < len(self.standings):
                    return place
            names = " and ".join(self.view.tables[place].alias for place in (one, other))
            tally.reasons.append(f"nothing would join {names} any more")
            tally.relations.add(self.view.tables[other].alias)
            return None
        return None

    def _torn_joins(self, tally: _Tally) -> list[tuple[int, int]]:
        """Pairs of places that were joined, if by way of others, and would not be."""
        all_uses = [condition.uses for condition in self.view.conditions]
        before = _joined_groups(len(self.standings), all_uses)
        after = _joined_groups(len(self.standings), [all_uses[index] for index in tally.conditions])
        left = [place for place in range(len(self.standings)) if place not in self.gone]
        return [
            (one, other)
            for one in left
            for other in left
            if one < other and before[one] == before[other] and after[one] != after[other]
        ]

    def _choice_or_failure(self, tally: _Tally) -> PartChoice | ChoiceFailure:
        for place in sorted(self.gone):
            self._note_superset(tally, f"without {self.view.tables[place].relation}")
        if not tally.shown and not tally.reasons:
            tally.reasons.append("no column of the view would be left")
        elif len(self.gone) == len(self.standings) and not tally.reasons:
            tally.reasons.append("no table of the view would be left")
        if not tally.reasons:
            wanted = self.preferences.extent.value
            tally.reasons += [
                f"{how} the view would be a superset of what it was, and it wants {wanted}"
                for how in tally.too_many
            ]
        if tally.reasons:
            needs = NamedParts(*map(frozenset, (tally.columns, tally.dropped, tally.relations)))
            more = tally.too_many or tally.dropped or tally.relations
            extent = Extent.SUPERSET if more else Extent.EQUAL
            return ChoiceFailure(tuple(dict.fromkeys(tally.reasons)), needs, extent)
        return self._make_choice(tally)

    def _make_choice(self, tally: _Tally) -> PartChoice:
        parts: list[frozenset[Use]] = [
            self.view.shown[i].uses - tally.nulled.get(i, frozenset()) for i in tally.shown
        ]
        parts += [self.view.conditions[i].uses for i in tally.conditions]
        uses = sorted({use for part in parts for use in part})
        values, used = {}, list[SubstituteColumn]()
        for use in uses:
            standing = self.standings[use[0]]
            assert standing is not None, "what is gone is not used"
            if (name := standing.column_now(use[1])) is not None:
                values[use] = ColumnPlace(use[0], name)
            else:
                stand_in = self.stand_ins.substitute_for(use)
                assert stand_in is not None, "what is missing is not used"
                values[use] = ColumnPlace(stand_in.owner, stand_in.column)
                used.append(stand_in)
        owners = [each.owner for each in used]
        beside = tuple(dict.fromkeys(o for o in owners if isinstance(o, JoinedSubstitute)))
        return PartChoice(
            self.standings,
            frozenset(self.gone),
            values,
            frozenset(tally.shown),
            tally.nulled,
            frozenset(tally.conditions),
            beside,
            tuple(used),
            self._extent_of(tally, used),
        )

    def _extent_of(self, tally: _Tally, used: Iterable[SubstituteColumn]) -> Extent:
        extent = Extent.EQUAL
        kept = [s for i, s in enumerate(self.standings) if i not in self.gone]
        for standing in kept:
            if standing is not None and standing.substitute is not None:
                extent = extent.followed_by(standing.substitute.extent)
        for stand_in in used:
            extent = extent.followed_by(stand_in.substitute.extent)
        if self.gone or len(tally.conditions) < len(self.view.conditions):
            extent = extent.followed_by(Extent.SUPERSET)
        return extent


class ListedParts:
    """Parts that the project file lists, recognised in a view."""

    def __init__(self, view: ViewParts, parts: NamedParts) -> None:
        self._tables = view.tables
        self._columns = {name.lower() for name in parts.columns}
        self._conditions = {view.normal_form_of(text) for text in parts.conditions}
        self._relations = {name.lower() for name in parts.relations}

    def __contains__(self, part: ShownColumn | ViewCondition) -> bool:
        if isinstance(part, ShownColumn):
            return part.name.lower() in self._columns
        return part.normal in self._conditions

    def has_place(self, place: int) -> bool:
        table = self._tables[place]
        return bool({table.alias.lower(), str(table.relation).lower()} & self._relations)


def _joined_groups(count: int, conditions: Iterable[frozenset[Use]]) -> list[int]:
    """For every place the number of the group that conditions tie it to."""
    group = list(range(count))
    for uses in conditions:
        tied = {group[place] for place, _ in uses}
        group = [min(tied) if member in tied else member for member in group]
    return group
