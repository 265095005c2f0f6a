"""How the rewritten SQL names its tables and columns, and what can be named without its table.

Tables keep the names that the SQL has for them. One that is called differently now, and had no
alias, gets its old name as alias where something in the SQL needs it. A column may be named without
its table where only one table has that name; a table that got another column, or that came in
beside, can end that. USING shows its column once, as long as both sides have it under one name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from viewkeeper.evolution.synchronization.part_choice import Choice, Value
from viewkeeper.evolution.synchronization.parts_of_sql import Anatomy, Condition, Mention
from viewkeeper.evolution.synchronization.quoted_names import spelled
from viewkeeper.evolution.synchronization.substitute_columns import Beside
from viewkeeper.evolution.synchronization.table_now import named
from viewkeeper.view.definition import Field
from viewkeeper.view.sql.sql_text import Span

Owner = int | Beside


class Naming:
    """The names in one rewriting. `aliases_needed` grows as references are made."""

    def __init__(self, view: Anatomy, choice: Choice, kept: Iterable[str]) -> None:
        """`kept` are names of tables, in lower case, that must stay because others refer to them
        by these."""
        self.view, self.choice = view, choice
        self.left = [i for i in range(len(view.tables)) if i not in choice.gone]
        self._beside = self._new_aliases()
        self._needed = {
            place
            for place in self.left
            if self._collides(place) or view.tables[place].alias.lower() in kept
        }
        self.using: dict[int, list[str]] = {}
        """The USINGs that can stay, by table, each with its names of now in lower case."""
        self._find_using()

    # -- tables ---------------------------------------------------------------------------------

    def alias(self, owner: Owner) -> str:
        """The name of a table, for a reference to it."""
        if isinstance(owner, Beside):
            return spelled(self._beside[owner])
        self._needed.add(owner)
        return spelled(self.view.tables[owner].alias)

    def needs_alias(self, place: int) -> bool:
        """Whether a table must be given its old name as alias."""
        return place in self._needed and self._called_anew(place)

    def moved(self, place: int) -> bool:
        """Whether the table at a place has another name than the SQL says."""
        return self._relation(place) != str(self.view.tables[place].relation)

    def _relation(self, place: int) -> str:
        standing = self.choice.standings[place]
        assert standing is not None, "what is gone has no name"
        return str(standing.relation)

    def _called_anew(self, place: int) -> bool:
        table = self.view.tables[place]
        return not table.aliased and self._last(place).lower() != table.alias.lower()

    def _last(self, place: int) -> str:
        return self._relation(place).rpartition(".")[2]

    def _collides(self, place: int) -> bool:
        others = {self.view.tables[i].alias.lower() for i in self.left if i != place}
        plain = [i for i in self.left if i != place and not self.view.tables[i].aliased]
        others |= {self._last(i).lower() for i in plain}
        others |= {alias.lower() for alias in self._beside.values()}
        return self._called_anew(place) and self._last(place).lower() in others

    def _new_aliases(self) -> dict[Beside, str]:
        taken = {table.alias.lower() for table in self.view.tables}
        plain = [place for place in self.left if not self.view.tables[place].aliased]
        taken |= {self._last(place).lower() for place in plain}
        found: dict[Beside, str] = {}
        for beside in self.choice.beside:
            base = beside.relation.table.rpartition(".")[2]
            tried = [base, *(f"{base}_{number}" for number in range(2, len(taken) + 3))]
            found[beside] = next(name for name in tried if name.lower() not in taken)
            taken.add(found[beside].lower())
        return found

    # -- columns --------------------------------------------------------------------------------

    def everything(self) -> list[Owner]:
        """What WHERE and the SELECT list see."""
        return [*self.left, *self.choice.beside]

    def seen_by(self, place: int) -> list[Owner]:
        """What the ON of a table sees: its group up to itself."""
        group = self.view.tables[place].group
        return [i for i in self.left if i <= place and self.view.tables[i].group == group]

    def reference(
        self, value: Value, scope: Sequence[Owner], mention: Mention | None = None
    ) -> str:
        """A column as the text should name it; a mention keeps its form if it can."""
        name = spelled(value.column)
        if mention is None or mention.parts == 0:
            bare = isinstance(value.owner, int) and self._count(value.column, scope) == 1
            return name if bare else f"{self.alias(value.owner)}.{name}"
        same = value.owner == mention.use[0]
        if same and mention.parts > 1 and isinstance(value.owner, int):
            if not self.moved(value.owner):
                return self._prefix(mention) + name
        elif same:
            self.alias(value.owner)
            return self._prefix(mention) + name
        return f"{self.alias(value.owner)}.{name}"

    def change(
        self, value: Value, scope: Sequence[Owner], mention: Mention
    ) -> tuple[Span, str] | None:
        """What becomes of a mention; None if it can stay as it is written."""
        sql = self.view.parsed.sql
        written = sql.slice(mention.span)
        reference = self.reference(value, scope, mention)
        name = sql.slice(mention.name).strip("`")
        if name.lower() == value.column.lower():
            kept = reference[: len(reference) - len(spelled(value.column))]
            reference = kept + sql.slice(mention.name)
        return None if reference == written else (mention.span, reference)

    def _prefix(self, mention: Mention) -> str:
        return self.view.parsed.sql.slice(Span(mention.span.start, mention.name.start))

    def _fields(self, owner: Owner) -> tuple[Field, ...]:
        if isinstance(owner, Beside):
            return owner.fields
        standing = self.choice.standings[owner]
        assert standing is not None, "what is gone has no columns"
        return standing.fields

    def _count(self, name: str, scope: Sequence[Owner]) -> int:
        """How many columns of a name can be seen, those of a USING as one."""
        have = [owner for owner in scope if named(self._fields(owner), name) is not None]
        shared = [
            home for home, names in self.using.items() if home in scope and name.lower() in names
        ]
        return len(have) - len(shared)

    # -- USING ----------------------------------------------------------------------------------

    def _find_using(self) -> None:
        # From left to right: what a USING can see depends on those before it.
        for home in self.left:
            pairs = [c for c in self.view.conditions if c.home == home and c.pair is not None]
            names = [self._shared(home, condition) for condition in pairs]
            if pairs and None not in names:
                self.using[home] = [name for name in names if name is not None]

    def _shared(self, home: int, condition: Condition) -> str | None:
        """The one name of both columns, if USING by it means these two."""
        if self.view.conditions.index(condition) not in self.choice.conditions:
            return None
        assert condition.pair is not None
        left, right = (self.choice.values[use] for use in condition.pair)
        at_home = (left.owner, right.owner) == (condition.pair[0][0], condition.pair[1][0])
        before = [owner for owner in self.seen_by(home) if owner != home]
        same = left.column.lower() == right.column.lower()
        if not at_home or not same or self._count(left.column, before) != 1:
            return None
        return left.column.lower()
