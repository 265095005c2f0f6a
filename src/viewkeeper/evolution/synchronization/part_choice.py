"""Which outputs, conditions and relations of a view stay, and what stands in for what is lost.

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
from viewkeeper.evolution.preferences import Parts, Preferences
from viewkeeper.evolution.synchronization.parts_of_sql import Anatomy, Condition, Shown, Use
from viewkeeper.evolution.synchronization.substitute_columns import Beside, StandIn, StandIns
from viewkeeper.evolution.synchronization.table_now import UNKNOWN, Standing


@dataclass(frozen=True, slots=True)
class Value:
    """Where a column is found now: at a place of the view, or in a relation joined beside it."""

    owner: int | Beside
    column: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What was decided. Indexes are those of the anatomy; `gone` are places."""

    standings: tuple[Standing | None, ...]
    gone: frozenset[int]
    values: dict[Use, Value]
    shown: frozenset[int]
    nulled: dict[int, frozenset[Use]]
    """Outputs that stay, but show NULL for these columns."""
    conditions: frozenset[int]
    beside: tuple[Beside, ...]
    used: tuple[StandIn, ...]
    extent: Extent


@dataclass(frozen=True, slots=True)
class Failure:
    """Why nothing is possible, and what would have to be dispensable for more to be."""

    reasons: tuple[str, ...]
    needs: Parts
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


class Chooser:
    """Decides for one view, given what stands at each place."""

    def __init__(
        self,
        view: Anatomy,
        standings: Sequence[Standing | None],
        preferences: Preferences,
        stand_ins: StandIns,
        null_for_lost: bool,
    ) -> None:
        self.view, self.standings, self.preferences = view, tuple(standings), preferences
        self.stand_ins, self.null_for_lost = stand_ins, null_for_lost
        self.dispensable = Listed(view, preferences.dispensable)
        self.irreplaceable = Listed(view, preferences.irreplaceable)
        self.gone = {i for i, standing in enumerate(standings) if standing is None}

    def choose(self) -> Choice | Failure:
        while True:
            tally = _Tally()
            taken = self._conditions(tally)
            if taken is None:
                self._outputs(tally)
                taken = self._cut_off(tally)
            if taken is None:
                return self._result(tally)
            self.gone.add(taken)

    # -- parts ----------------------------------------------------------------------------------

    def _conditions(self, tally: _Tally) -> int | None:
        """Decide about every condition; the place that must go first, if there is one."""
        for index, condition in enumerate(self.view.conditions):
            missing = self._missing(condition, condition in self.irreplaceable)
            if not missing:
                tally.conditions.add(index)
            elif condition in self.dispensable:
                self._superset(tally, f"without the condition {condition.written}")
            elif covered := [place for place, _ in missing if self.dispensable.place(place)]:
                if covered[0] not in self.gone:
                    return covered[0]
            else:
                tally.reasons.append(f"{self._lost(missing)}, and {condition.written} needs it")
                tally.relations |= self._tables_lost(missing)
                if not self._tables_lost(missing):
                    tally.dropped.add(condition.written)
        return None

    def _outputs(self, tally: _Tally) -> None:
        for index, shown in enumerate(self.view.shown):
            missing = self._missing(shown, shown in self.irreplaceable)
            covered = all(self.dispensable.place(place) for place, _ in missing)
            if not missing:
                tally.shown.add(index)
            elif self.null_for_lost and self._typed(missing):
                tally.shown.add(index)
                tally.nulled[index] = missing
            elif shown not in self.dispensable and not covered and not shown.starred:
                needs = f'the view\'s column "{shown.name}" needs it'
                tally.reasons.append(f"{self._lost(missing)}, and {needs}")
                tally.relations |= self._tables_lost(missing)
                if not self._tables_lost(missing):
                    tally.columns.add(shown.name)

    def _missing(self, part: Shown | Condition, irreplaceable: bool) -> frozenset[Use]:
        return frozenset(use for use in part.uses if not self._has(use, irreplaceable))

    def _has(self, use: Use, irreplaceable: bool) -> bool:
        standing = self.standings[use[0]]
        if use[0] in self.gone or standing is None:
            return False
        if standing.now(use[1]) is not None:
            return standing.substitute is None or not irreplaceable
        return not irreplaceable and self.stand_ins.of(use) is not None

    def _typed(self, uses: Iterable[Use]) -> bool:
        return all(self.view.types[use] != UNKNOWN for use in uses)

    def _superset(self, tally: _Tally, how: str) -> None:
        if not self.preferences.extent.allows(Extent.SUPERSET):
            tally.too_many.append(how)

    def _tables_lost(self, uses: Iterable[Use]) -> set[str]:
        lost = {place for place, _ in uses if self.standings[place] is None}
        return {self.view.tables[place].alias for place in lost}

    def _lost(self, uses: Iterable[Use]) -> str:
        place, name = min(uses)
        relation = self.view.tables[place].relation
        standing = self.standings[place]
        if standing is None or place in self.gone:
            return f"{relation} is gone"
        if standing.now(name) is not None:
            return f"{relation} is gone and may not be replaced"
        if standing.substitute is not None:
            return f"{relation} is gone and {standing.relation} has nothing for {name}"
        return f"{relation}.{name} is gone"

    # -- the whole ------------------------------------------------------------------------------

    def _cut_off(self, tally: _Tally) -> int | None:
        """Complain about a join that would fall apart; or the place that goes instead."""
        for one, other in self._torn(tally):
            for place in (one, other):
                if self.dispensable.place(place) and len(self.gone) + 1 < len(self.standings):
                    return place
            names = " and ".join(self.view.tables[place].alias for place in (one, other))
            tally.reasons.append(f"nothing would join {names} any more")
            tally.relations.add(self.view.tables[other].alias)
            return None
        return None

    def _torn(self, tally: _Tally) -> list[tuple[int, int]]:
        """Pairs of places that were joined, if by way of others, and would not be."""
        all_uses = [condition.uses for condition in self.view.conditions]
        before = _joined(len(self.standings), all_uses)
        after = _joined(len(self.standings), [all_uses[index] for index in tally.conditions])
        left = [place for place in range(len(self.standings)) if place not in self.gone]
        return [
            (one, other)
            for one in left
            for other in left
            if one < other and before[one] == before[other] and after[one] != after[other]
        ]

    def _result(self, tally: _Tally) -> Choice | Failure:
        for place in sorted(self.gone):
            self._superset(tally, f"without {self.view.tables[place].relation}")
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
            needs = Parts(*map(frozenset, (tally.columns, tally.dropped, tally.relations)))
            more = tally.too_many or tally.dropped or tally.relations
            extent = Extent.SUPERSET if more else Extent.EQUAL
            return Failure(tuple(dict.fromkeys(tally.reasons)), needs, extent)
        return self._choice(tally)

    def _choice(self, tally: _Tally) -> Choice:
        parts: list[frozenset[Use]] = [
            self.view.shown[i].uses - tally.nulled.get(i, frozenset()) for i in tally.shown
        ]
        parts += [self.view.conditions[i].uses for i in tally.conditions]
        uses = sorted({use for part in parts for use in part})
        values, used = {}, list[StandIn]()
        for use in uses:
            standing = self.standings[use[0]]
            assert standing is not None, "what is gone is not used"
            if (name := standing.now(use[1])) is not None:
                values[use] = Value(use[0], name)
            else:
                stand_in = self.stand_ins.of(use)
                assert stand_in is not None, "what is missing is not used"
                values[use] = Value(stand_in.owner, stand_in.column)
                used.append(stand_in)
        owners = [each.owner for each in used]
        beside = tuple(dict.fromkeys(o for o in owners if isinstance(o, Beside)))
        return Choice(
            self.standings,
            frozenset(self.gone),
            values,
            frozenset(tally.shown),
            tally.nulled,
            frozenset(tally.conditions),
            beside,
            tuple(used),
            self._extent(tally, used),
        )

    def _extent(self, tally: _Tally, used: Iterable[StandIn]) -> Extent:
        extent = Extent.EQUAL
        kept = [s for i, s in enumerate(self.standings) if i not in self.gone]
        for standing in kept:
            if standing is not None and standing.substitute is not None:
                extent = extent.then(standing.substitute.extent)
        for stand_in in used:
            extent = extent.then(stand_in.substitute.extent)
        if self.gone or len(tally.conditions) < len(self.view.conditions):
            extent = extent.then(Extent.SUPERSET)
        return extent


class Listed:
    """Parts that the project file lists, recognised in a view."""

    def __init__(self, view: Anatomy, parts: Parts) -> None:
        self._tables = view.tables
        self._columns = {name.lower() for name in parts.columns}
        self._conditions = {view.normal(text) for text in parts.conditions}
        self._relations = {name.lower() for name in parts.relations}

    def __contains__(self, part: Shown | Condition) -> bool:
        if isinstance(part, Shown):
            return part.name.lower() in self._columns
        return part.normal in self._conditions

    def place(self, place: int) -> bool:
        table = self._tables[place]
        return bool({table.alias.lower(), str(table.relation).lower()} & self._relations)


def _joined(count: int, conditions: Iterable[frozenset[Use]]) -> list[int]:
    """For every place the number of the group that conditions tie it to."""
    group = list(range(count))
    for uses in conditions:
        tied = {group[place] for place, _ in uses}
        group = [min(tied) if member in tied else member for member in group]
    return group
