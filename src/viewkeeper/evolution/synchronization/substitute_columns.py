"""Columns that stand in for lost columns: which one, and how its relation comes into the view.

A substitute for a column names a column of another relation and how that relation is joined. If the
view has that relation already, joined in that very way, its column is used as it is. That is not so
for a superset: there a row may meet several rows of the substitute, of which only one has the lost
value, and the view's own join would pair each of them with itself instead of with that one. For the
same reason two columns of one relation share a join only if the substitute is no superset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp, parse_one

from viewkeeper.evolution.condition_text import owner_of_column
from viewkeeper.evolution.extent import Extent
from viewkeeper.evolution.preferences import Preferences, Substitute
from viewkeeper.evolution.synchronization.parts_of_sql import (
    Use,
    ViewCondition,
    ViewParts,
    normal_form,
    quote_if_needed,
)
from viewkeeper.evolution.synchronization.table_now import (
    TableNow,
    TablesNow,
    field_named,
    is_comparable,
)
from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.sql.sql_text import Span, SqlText, leaf_span_of


@dataclass(frozen=True, slots=True)
class JoinedSubstitute:
    """A relation that is joined to the one at a place; `join` is the project file's condition."""

    place: int
    relation: Relation
    fields: tuple[Field, ...] = field(hash=False)
    substitute: Substitute = field(hash=False)
    for_column: str | None
    """Set where no other column may share the join."""

    def join_condition(
        self, world: TablesNow, view: ViewParts, place: str, alias: str
    ) -> str | None:
        """The join condition with both relations by these aliases; None if a column is gone."""
        assert self.substitute.join is not None
        sql = SqlText(self.substitute.join)
        changes: list[tuple[Span, str]] = []
        for column in parse_one(sql.text, dialect="spark").find_all(exp.Column):
            span, name = leaf_span_of(column), self._name_now(column, world, view)
            if span is None or name is None:
                return None
            mine = owner_of_column(column) == str(self.substitute.original).lower()
            changes.append((span, f"{place if mine else alias}.{quote_if_needed(name)}"))
        return sql.replace_spans(Span(0, len(sql.text)), changes)

    def _name_now(self, column: exp.Column, world: TablesNow, view: ViewParts) -> str | None:
        """What a column of the join condition is called now."""
        if owner_of_column(column) == str(self.substitute.original).lower():
            standing = world.table_now(view.tables[self.place].relation, [column.name])
            return None if standing is None else standing.column_now(column.name)
        found = field_named(self.fields, column.name)
        return None if found is None else found.name


@dataclass(frozen=True, slots=True)
class SubstituteColumn:
    """A column in the place of a lost one."""

    use: Use
    owner: int | JoinedSubstitute
    column: str
    substitute: Substitute


class SubstituteColumns:
    """The columns that may stand in for those of one view."""

    def __init__(
        self,
        view: ViewParts,
        world: TablesNow,
        standings: Sequence[TableNow | None],
        preferences: Preferences,
        substitutes: Sequence[Substitute],
    ) -> None:
        self.view, self.world, self.standings = view, world, standings
        self.substitutes = [s for s in substitutes if preferences.extent.can_accept(s.extent)]
        self._found: dict[Use, SubstituteColumn | None] = {}

    def substitute_for(self, use: Use) -> SubstituteColumn | None:
        """The first substitute for a column that fits; None if there is none."""
        if use not in self._found:
            tried = (self._try_substitute(use, substitute) for substitute in self.substitutes)
            self._found[use] = next((found for found in tried if found is not None), None)
        return self._found[use]

    def _try_substitute(self, use: Use, substitute: Substitute) -> SubstituteColumn | None:
        place, name = use
        standing = self.standings[place]
        if standing is None or standing.substitute is not None or substitute.column is None:
            return None
        called = {self.view.tables[place].relation, standing.relation}
        if substitute.original not in called or substitute.column.lower() != name.lower():
            return None
        relation = self.world.name_now(substitute.relation)
        if relation is None:
            return None
        fields = self.world.fields_now(relation) or ()
        target = field_named(fields, substitute.columns[substitute.column])
        if target is None or not is_comparable(self.view.types[use], target.type):
            return None
        if substitute.join is None:
            return SubstituteColumn(use, place, target.name, substitute)
        alone = name if substitute.extent is Extent.SUPERSET else None
        beside = self._owner_of_join(JoinedSubstitute(place, relation, fields, substitute, alone))
        return None if beside is None else SubstituteColumn(use, beside, target.name, substitute)

    def _owner_of_join(self, beside: JoinedSubstitute) -> int | JoinedSubstitute | None:
        """The place that has the relation joined so already, or one of an equal join."""
        wanted = beside.join_condition(self.world, self.view, f"p{beside.place}", "s")
        if wanted is None:
            return None
        if beside.for_column is not None:
            return beside
        for index, standing in enumerate(self.standings):
            if standing is None or index == beside.place or standing.substitute is not None:
                continue
            if standing.relation == beside.relation and self._has_join(wanted, index):
                return index
        others = (found.owner for found in self._found.values() if found is not None)
        for other in others:
            if isinstance(other, JoinedSubstitute) and other.for_column is None:
                same = (other.place, other.relation) == (beside.place, beside.relation)
                if (
                    same
                    and other.join_condition(self.world, self.view, f"p{other.place}", "s")
                    == wanted
                ):
                    return other
        return beside

    def _has_join(self, join: str, place: int) -> bool:
        """Whether every conjunct of a join is a condition of the view, with `s` for a place."""
        tree = parse_one(join, dialect="spark")
        conjuncts = list(tree.flatten()) if isinstance(tree, exp.And) else [tree]

        def at_place(column: exp.Column) -> tuple[str, str]:
            return (f"p{place}" if column.table == "s" else column.table, column.name)

        have = {self._normal_form(condition) for condition in self.view.conditions}
        return {normal_form(each, at_place) for each in conjuncts} <= have

    def _normal_form(self, condition: ViewCondition) -> str:
        """A condition of the view, written with places and the current names."""
        now: dict[Use, str] = {}
        for place, name in condition.uses:
            standing = self.standings[place]
            now[place, name] = (standing and standing.column_now(name)) or ""

        if condition.piece is None:
            assert condition.pair is not None
            sides = [exp.column(now[use], table=f"p{use[0]}") for use in condition.pair]
            equation = exp.EQ(this=sides[0], expression=sides[1])
            return normal_form(equation, lambda column: (column.table, column.name))

        def at_place(column: exp.Column) -> tuple[str, str]:
            found = condition.scope.resolve_column(column)
            return f"p{found.place}", now[found.place, found.name]

        return normal_form(condition.piece.node, at_place)
