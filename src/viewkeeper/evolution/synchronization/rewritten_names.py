"""How the rewritten SQL names its tables and columns, and what can be named without its table.

Tables keep the names that the SQL has for them. One that is called differently now, and had no
alias, gets its old name as alias where something in the SQL needs it. A column may be named without
its table where only one table has that name; a table that got another column, or that came in
beside, can end that. USING shows its column once, as long as both sides have it under one name.

A star means every column that there is, so it takes in a column that was added, and lets go of one
that was dropped. It is written out where it would say something else than the view shall show: a
column under it has another name now, the view is to keep its columns, a table came in beside, or an
added column has a name that the view has already. A bare star is then written table by table, so
that those tables which still can be are said by a star of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from viewkeeper.evolution.synchronization.part_choice import ColumnPlace, PartChoice
from viewkeeper.evolution.synchronization.parts_of_sql import (
    Mention,
    ShownColumn,
    ViewCondition,
    ViewParts,
    quote_if_needed,
)
from viewkeeper.evolution.synchronization.substitute_columns import JoinedSubstitute
from viewkeeper.evolution.synchronization.table_now import field_named
from viewkeeper.view.definition import Field
from viewkeeper.view.keyed_view import PREFIX
from viewkeeper.view.render import spark_type_of
from viewkeeper.view.sql.bind import RESERVED
from viewkeeper.view.sql.scope import qualifier_of
from viewkeeper.view.sql.sql_text import Span

Owner = int | JoinedSubstitute


class RewrittenNames:
    """The names in one rewriting; more tables need an alias as references are made."""

    def __init__(self, view: ViewParts, choice: PartChoice, kept: Iterable[str]) -> None:
        """`kept` are names of tables, in lower case, that must stay because others refer to them
        by these."""
        self.view, self.choice = view, choice
        self.left = [i for i in range(len(view.tables)) if i not in choice.gone]
        self._beside = self._new_aliases()
        self._needed = {
            place
            for place in self.left
            if self._has_collision(place) or view.tables[place].alias.lower() in kept
        }
        self.using: dict[int, list[str]] = {}
        """The USINGs that can stay, by table, each with its names of now in lower case."""
        self._find_using()

    def alias_of(self, owner: Owner) -> str:
        """The name of a table, for a reference to it."""
        if isinstance(owner, JoinedSubstitute):
            return quote_if_needed(self._beside[owner])
        self._needed.add(owner)
        return quote_if_needed(self.view.tables[owner].alias)

    def needs_alias(self, place: int) -> bool:
        """Whether a table must be given its old name as alias."""
        return place in self._needed and self._is_called_otherwise(place)

    def is_renamed(self, place: int) -> bool:
        """Whether the table at a place has another name than the SQL says."""
        return self._relation_now(place) != str(self.view.tables[place].relation)

    def _relation_now(self, place: int) -> str:
        standing = self.choice.standings[place]
        assert standing is not None, "what is gone has no name"
        return str(standing.relation)

    def _is_called_otherwise(self, place: int) -> bool:
        table = self.view.tables[place]
        return not table.aliased and self._last_name(place).lower() != table.alias.lower()

    def _last_name(self, place: int) -> str:
        return self._relation_now(place).rpartition(".")[2]

    def _has_collision(self, place: int) -> bool:
        others = {self.view.tables[i].alias.lower() for i in self.left if i != place}
        plain = [i for i in self.left if i != place and not self.view.tables[i].aliased]
        others |= {self._last_name(i).lower() for i in plain}
        others |= {alias.lower() for alias in self._beside.values()}
        return self._is_called_otherwise(place) and self._last_name(place).lower() in others

    def _new_aliases(self) -> dict[JoinedSubstitute, str]:
        taken = {table.alias.lower() for table in self.view.tables}
        plain = [place for place in self.left if not self.view.tables[place].aliased]
        taken |= {self._last_name(place).lower() for place in plain}
        found: dict[JoinedSubstitute, str] = {}
        for beside in self.choice.beside:
            base = beside.relation.table.rpartition(".")[2]
            tried = [base, *(f"{base}_{number}" for number in range(2, len(taken) + 3))]
            found[beside] = next(name for name in tried if name.lower() not in taken)
            taken.add(found[beside].lower())
        return found

    def all_owners(self) -> list[Owner]:
        """What WHERE and the SELECT list see."""
        return [*self.left, *self.choice.beside]

    def owners_seen_by(self, place: int) -> list[Owner]:
        """What the ON of a table sees: its group up to itself."""
        group = self.view.tables[place].group
        return [i for i in self.left if i <= place and self.view.tables[i].group == group]

    def reference_to(
        self, value: ColumnPlace, scope: Sequence[Owner], mention: Mention | None = None
    ) -> str:
        """A column as the text should name it; a mention keeps its form if it can."""
        name = quote_if_needed(value.column)
        if mention is None or mention.parts == 0:
            bare = isinstance(value.owner, int) and self._count_visible(value.column, scope) == 1
            return name if bare else f"{self.alias_of(value.owner)}.{name}"
        same = value.owner == mention.use[0]
        if same and mention.parts > 1 and isinstance(value.owner, int):
            if not self.is_renamed(value.owner):
                return self._prefix_of(mention) + name
        elif same:
            self.alias_of(value.owner)
            return self._prefix_of(mention) + name
        return f"{self.alias_of(value.owner)}.{name}"

    def change_mention(
        self, value: ColumnPlace, scope: Sequence[Owner], mention: Mention
    ) -> tuple[Span, str] | None:
        """What becomes of a mention; None if it can stay as it is written."""
        sql = self.view.parsed.sql
        written = sql.text_of(mention.span)
        reference = self.reference_to(value, scope, mention)
        name = sql.text_of(mention.name).strip("`")
        if name.lower() == value.column.lower():
            kept = reference[: len(reference) - len(quote_if_needed(value.column))]
            reference = kept + sql.text_of(mention.name)
        return None if reference == written else (mention.span, reference)

    def _prefix_of(self, mention: Mention) -> str:
        return self.view.parsed.sql.text_of(Span(mention.span.start, mention.name.start))

    def _fields_of(self, owner: Owner) -> tuple[Field, ...]:
        if isinstance(owner, JoinedSubstitute):
            return owner.fields
        standing = self.choice.standings[owner]
        assert standing is not None, "what is gone has no columns"
        return standing.fields

    def _count_visible(self, name: str, scope: Sequence[Owner]) -> int:
        """How many columns of a name can be seen, those of a USING as one."""
        have = [owner for owner in scope if field_named(self._fields_of(owner), name) is not None]
        shared = [
            home for home, names in self.using.items() if home in scope and name.lower() in names
        ]
        return len(have) - len(shared)

    def _find_using(self) -> None:
        # From left to right: what a USING can see depends on those before it.
        for home in self.left:
            pairs = [c for c in self.view.conditions if c.home == home and c.pair is not None]
            names = [self._shared_name(home, condition) for condition in pairs]
            if pairs and None not in names:
                self.using[home] = [name for name in names if name is not None]

    def _shared_name(self, home: int, condition: ViewCondition) -> str | None:
        """The one name of both columns, if USING by it means these two."""
        if self.view.conditions.index(condition) not in self.choice.conditions:
            return None
        assert condition.pair is not None
        left, right = (self.choice.values[use] for use in condition.pair)
        at_home = (left.owner, right.owner) == (condition.pair[0][0], condition.pair[1][0])
        before = [owner for owner in self.owners_seen_by(home) if owner != home]
        same = left.column.lower() == right.column.lower()
        if not at_home or not same or self._count_visible(left.column, before) != 1:
            return None
        return left.column.lower()


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
