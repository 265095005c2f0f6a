"""What the tables of a view's SQL are now, and what they were.

A *standing* is what stands at a place of the view now: the table that was there, under its name of
now and with its columns under theirs; another table of the same name, because the old one is gone
and a view means a table by its name; or a substitute. Column names compare without regard to case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from viewkeeper.evolution.preferences import Substitute
from viewkeeper.updates.source_protocol import CurrentNames
from viewkeeper.view.definition import Field, Relation
from viewkeeper.view.expression import Column
from viewkeeper.view.sql.coerce import common_type
from viewkeeper.view.sql.scope import qualifier_of
from viewkeeper.view.sql.view_statement import ParsedView

NamesNow: TypeAlias = Mapping[Relation, CurrentNames | None]
"""What the tables of a view's SQL are called now, with their columns; None: it is gone."""

UNKNOWN = pa.null()
"""The type of a column that is gone and that nobody told the type of."""


@dataclass(frozen=True, slots=True)
class TableNow:
    """What is at a place now.

    `columns` has those of the view's columns that are there, by their old names in lower case;
    `anew` are those of them that are other columns of the same name.
    """

    relation: Relation
    fields: tuple[Field, ...]
    columns: Mapping[str, str]
    anew: frozenset[str] = frozenset()
    recreated: bool = False
    substitute: Substitute | None = None

    def column_now(self, column: str) -> str | None:
        return self.columns.get(column.lower())


@dataclass(frozen=True, slots=True)
class TablesNow:
    """The current tables, and what became of those that a view's SQL names."""

    became: NamesNow
    schema: Callable[[Relation], tuple[Field, ...] | None]
    _known: dict[Relation, tuple[Field, ...] | None] = field(default_factory=dict)

    def fields_now(self, relation: Relation) -> tuple[Field, ...] | None:
        """The columns of the table that is called so now."""
        if relation not in self._known:
            self._known[relation] = self.schema(relation)
        return self._known[relation]

    def name_now(self, relation: Relation) -> Relation | None:
        """The current name of a table; one that the SQL does not name already has it."""
        if relation not in self.became:
            return relation
        became = self.became[relation]
        return None if became is None else Relation(relation.source, became.table)

    def table_now(self, relation: Relation, columns: Iterable[str]) -> TableNow | None:
        """What these columns of a table of the SQL are now; None if nothing has its name."""
        now, became = self.name_now(relation), self.became.get(relation)
        others = {self.name_now(other) for other in self.became if other != relation}
        # What another table of the view is called now was not made in the place of this one.
        there = relation if now is None and relation not in others else now
        fields = None if there is None else self.fields_now(there)
        if there is None or fields is None:
            return None
        names = {each.name.lower(): each.name for each in fields}
        kept = {o.lower(): n.lower() for o, n in (became.columns if became else {}).items()}
        wanted = [name.lower() for name in columns]
        same = {name: names[kept[name]] for name in wanted if kept.get(name) in names}
        again = {
            name: names[name]
            for name in wanted
            if name not in same and name in names and name not in kept.values()
        }
        anew = frozenset(again) if now is not None else frozenset()
        return TableNow(there, fields, {**same, **again}, anew, recreated=now is None)

    def substitute_table_for(
        self, substitute: Substitute, columns: Mapping[str, pa.DataType]
    ) -> TableNow | None:
        """A substitute at the place of a relation of which these columns are used."""
        now = self.name_now(substitute.relation)
        fields = None if now is None else self.fields_now(now)
        if now is None or fields is None:
            return None
        given = {old.lower(): new.lower() for old, new in substitute.columns.items()}
        found: dict[str, str] = {}
        for name, kind in columns.items():
            wanted = given.get(name.lower(), name.lower())
            stand_in = field_named(fields, wanted)
            if stand_in is not None and is_comparable(kind, stand_in.type):
                found[name.lower()] = stand_in.name
        return TableNow(now, fields, found, substitute=substitute)


def field_named(fields: Iterable[Field], name: str) -> Field | None:
    """The field of a name, however it is spelled."""
    return next((each for each in fields if each.name.lower() == name.lower()), None)


def is_comparable(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of two types can be compared.

    >>> is_comparable(pa.int32(), pa.decimal128(10, 2)), is_comparable(pa.int32(), pa.string())
    (True, False)
    """
    return one == other or common_type(Column(0, "a", one), Column(1, "b", other)) is not None


def columns_before(
    parsed: ParsedView, world: TablesNow, types: Mapping[tuple[Relation, str], pa.DataType]
) -> Callable[[Relation], tuple[Field, ...]]:
    """The columns that the tables had when the view was bound, in their order.

    `types` has them, for each table all or none. Of a table that it says nothing about, the columns
    that are still there are known, and those that the SQL names together with the table.
    """
    known = {relation: _fields_before(relation, world, types) for relation in parsed.relations}
    for column in _written_columns(parsed):
        owner = _owner_of(parsed, column, known)
        if owner is not None and field_named(known[owner], column.name) is None:
            known[owner] = (*known[owner], Field(column.name, UNKNOWN))
    return known.__getitem__


def _fields_before(
    relation: Relation, world: TablesNow, types: Mapping[tuple[Relation, str], pa.DataType]
) -> tuple[Field, ...]:
    told = tuple(Field(name, kind) for (table, name), kind in types.items() if table == relation)
    now, became = world.name_now(relation), world.became.get(relation)
    fields = () if now is None else world.fields_now(now) or ()
    if told or became is None:
        return told
    back = {new.lower(): old for old, new in became.columns.items()}
    kept = [Field(back[f.name.lower()], f.type) for f in fields if f.name.lower() in back]
    return tuple(kept)


def _written_columns(parsed: ParsedView) -> list[exp.Column]:
    """Every column that the SQL names, in no order."""
    nodes = [item.piece.node for item in parsed.parts.items]
    nodes += [piece.node for piece in parsed.parts.where]
    nodes += [piece.node for table in parsed.parts.tables for piece in table.on]
    found = [column for node in nodes for column in node.find_all(exp.Column)]
    return [column for column in found if not isinstance(column.this, exp.Star)]


def _owner_of(
    parsed: ParsedView, column: exp.Column, known: Mapping[Relation, tuple[Field, ...]]
) -> Relation | None:
    """The relation that a column which nothing is known of must be of; None if that is open."""
    qualifier = [part.lower() for part in qualifier_of(column)]
    tables = parsed.parts.tables
    if not qualifier:
        has = any(field_named(fields, column.name) for fields in known.values())
        return tables[0].relation if len(tables) == 1 and not has else None
    for table in tables:
        names = [table.alias.lower()]
        if not table.aliased:
            names = str(table.relation).lower().split(".")
        if qualifier == names[-len(qualifier) :]:
            return table.relation
    return None
