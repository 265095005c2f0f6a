"""Stars in a view whose tables have changed: kept where they still mean the view's columns.

A star means every column that there is, so it takes in a column that was added, and lets go of one
that was dropped. It is written out where it would say something else than the view shall show: a
column under it has another name now, the view is to keep its columns, a table came in beside, or an
added column has a name that the view has already. A bare star is then written table by table, so
that those tables which still can be are said by a star of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from viewkeeper.evolution.synchronization.part_choice import ColumnPlace, PartChoice
from viewkeeper.evolution.synchronization.parts_of_sql import ShownColumn, ViewParts
from viewkeeper.evolution.synchronization.quoted_names import quote_if_needed
from viewkeeper.evolution.synchronization.rewritten_names import RewrittenNames
from viewkeeper.view.keyed_view import PREFIX
from viewkeeper.view.render import spark_type_of
from viewkeeper.view.sql.bind import RESERVED
from viewkeeper.view.sql.scope import qualifier_of


@dataclass(frozen=True, slots=True)
class StarText:
    """What an item says now, None if it can stay; `out` if that is no star any more. `taken` are
    columns that it takes in."""

    text: str | None
    taken: tuple[tuple[int, str], ...] = ()
    out: bool = False


class StarWriter:
    """Writes the stars of one view."""

    def __init__(
        self, view: ViewParts, choice: PartChoice, naming: RewrittenNames, keep_columns: bool
    ) -> None:
        self.view, self.choice, self.naming = view, choice, naming
        self.keep_columns = keep_columns
        self._names = {view.shown[i].name.lower() for i in choice.shown}

    def write_star(self, item: int) -> StarText:
        """The star that an item is; a text of nothing means that nothing is left of it."""
        bare = isinstance(self.view.items[item].piece.node, exp.Star)
        shown = [i for i, each in enumerate(self.view.shown) if each.item == item]
        stated = {place: self._outputs_of(place, shown) for place in self._places_of(shown, bare)}
        if not stated:
            return StarText("")
        new = {place: self._new_columns(place) for place in stated}
        taken = tuple((place, name) for place, names in new.items() for name in names)
        fits = {p: self._is_star_right(p, stated[p], new[p]) for p in stated}
        if all(fits.values()) and not (bare and self._is_bare_star_wrong()):
            return StarText(None if bare else self._renamed_star(item, *stated), taken)
        texts: list[str] = []
        if bare and any(table.using for table in self.view.tables):
            texts += [*self._write_outputs(shown), *map(self._write_added, taken)]
        else:
            for place in stated:
                if bare and fits[place]:
                    texts.append(f"{self.naming.alias_of(place)}.*")
                else:
                    texts += self._write_outputs(stated[place])
                    texts += [self._write_added((place, name)) for name in new[place]]
        return StarText(", ".join(texts), taken, out=True)

    def _renamed_star(self, item: int, place: int) -> str | None:
        """A star of one table, by the name that the table has for the view."""
        node = self.view.items[item].piece.node
        assert isinstance(node, exp.Column), "a star without a table is of all of them"
        alias = self.naming.alias_of(place)
        full = len(qualifier_of(node)) > 1 and self.naming.is_renamed(place)
        return f"{alias}.*" if full else None

    def _places_of(self, shown: list[int], bare: bool) -> list[int]:
        """The places that a star stands for and that are left, in their order."""
        if bare:
            return list(self.naming.left)
        places = {place for i in shown for place, _ in self.view.shown[i].uses}
        return [place for place in self.naming.left if place in places]

    def _outputs_of(self, place: int, shown: list[int]) -> list[int]:
        return [i for i in shown if {p for p, _ in self.view.shown[i].uses} == {place}]

    def _is_bare_star_wrong(self) -> bool:
        """Whether a bare star would show other tables, or what USING has shown once."""
        using = all(
            self.naming.using.get(home, []) == [name.name.lower() for name in table.using]
            for home, table in enumerate(self.view.tables)
        )
        return bool(self.choice.gone or self.choice.beside) or not using

    def _new_columns(self, place: int) -> list[str]:
        """The columns of a table that the star takes in."""
        standing = self.choice.standings[place]
        assert standing is not None, "what is gone has no columns"
        if self.keep_columns or standing.substitute is not None:
            return []
        accepted = []
        for name in self._extra_columns(place):
            fits = name.lower() not in self._names
            if fits and not name.lower().startswith((*RESERVED, PREFIX)):
                accepted.append(name)
                self._names.add(name.lower())
        return accepted

    def _extra_columns(self, place: int) -> list[str]:
        standing = self.choice.standings[place]
        assert standing is not None, "what is gone has no columns"
        known = {name.lower() for name in standing.columns.values()}
        return [field.name for field in standing.fields if field.name.lower() not in known]

    def _is_star_right(self, place: int, shown: list[int], taken: list[str]) -> bool:
        """Whether a star of this table alone says what the view shall show of it."""
        return taken == self._extra_columns(place) and all(
            i in self.choice.shown and i not in self.choice.nulled and self._is_unchanged(place, i)
            for i in shown
            if not self._is_vanishing(i)
        )

    def _is_vanishing(self, index: int) -> bool:
        """Whether an output is dropped because the star does not give its column any more."""
        ((place, name),) = self.view.shown[index].uses
        standing = self.choice.standings[place]
        gone = standing is not None and standing.column_now(name) is None
        return index not in self.choice.shown and gone

    def _is_unchanged(self, place: int, index: int) -> bool:
        shown = self.view.shown[index]
        value = self.choice.values[_only_use(shown)]
        return value.owner == place and value.column == shown.name

    def _write_outputs(self, shown: list[int]) -> list[str]:
        """Outputs written one by one."""
        return [self._write_output(i) for i in shown if i in self.choice.shown]

    def _write_output(self, index: int) -> str:
        shown = self.view.shown[index]
        use = _only_use(shown)
        if index in self.choice.nulled:
            kind = spark_type_of(self.view.types[use])
            return f"CAST(NULL AS {kind}) AS {quote_if_needed(shown.name)}"
        value = self.choice.values[use]
        alias = "" if value.column == shown.name else f" AS {quote_if_needed(shown.name)}"
        return f"{self._full_reference(value)}{alias}"

    def _write_added(self, column: tuple[int, str]) -> str:
        return self._full_reference(ColumnPlace(*column))

    def _full_reference(self, value: ColumnPlace) -> str:
        name = quote_if_needed(value.column)
        alone = len(self.naming.all_owners()) == 1
        return name if alone else f"{self.naming.alias_of(value.owner)}.{name}"


def _only_use(shown: ShownColumn) -> tuple[int, str]:
    (use,) = shown.uses
    return use
