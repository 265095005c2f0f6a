"""Shapes: what tables are called and consist of at some point of their sources' streams.

A table and each of its columns have an identity that outlives names (an oid and an attribute
number, say). A column whose values changed without being listed is another column from then on, of
the same name perhaps; so "is this what it was?" is one comparison of identities, for dropped and
recreated tables, swapped names and rewritten columns alike.

`BoundDefinition` is a view's SQL together with what its names meant when it was bound. Everything
here is a value; a schema change makes a new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.updates.source_protocol import CurrentNames
from viewkeeper.view.definition import Field, Relation, ViewDefinition
from viewkeeper.view.sql.bind import bind_view
from viewkeeper.view.sql.view_statement import ParsedView, parse_view


@dataclass(frozen=True, slots=True)
class DynoColumn:
    """A column by identity, with the name and the type that it has."""

    id: int
    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class DynoShape:
    """A table by identity, with the name and the columns that it has."""

    id: int
    name: str
    columns: tuple[DynoColumn, ...]

    def column_by_name(self, column: str) -> DynoColumn | None:
        return next((each for each in self.columns if each.name == column), None)

    def column_by_id(self, id: int) -> DynoColumn | None:
        return next((each for each in self.columns if each.id == id), None)


Key = tuple[str, int]
"""A table: its source and its identity there."""


def token_of(key: Key) -> Relation:
    """A table by identity, for a dependency graph; no name of a table is spelled like it."""
    return Relation(key[0], f"#{key[1]}")


@dataclass(frozen=True, slots=True)
class DynoShapes:
    """All tables of all sources."""

    tables: Mapping[Key, DynoShape]

    def __hash__(self) -> int:
        return hash(frozenset(self.tables.items()))

    def shape_named(self, relation: Relation) -> DynoShape | None:
        """The table that is called so."""
        for (source, _), shape in self.tables.items():
            if source == relation.source and shape.name == relation.table:
                return shape
        return None

    def fields_named(self, relation: Relation) -> tuple[Field, ...] | None:
        """The columns of the table that is called so."""
        shape = self.shape_named(relation)
        return None if shape is None else tuple(Field(c.name, c.type) for c in shape.columns)

    def table_after(self, source: str, meant: DynoShape) -> CurrentNames | None:
        """What a table is now, whatever it and its columns are called."""
        shape = self.tables.get((source, meant.id))
        if shape is None:
            return None
        now = {c.name: found.name for c in meant.columns if (found := shape.column_by_id(c.id))}
        return CurrentNames(shape.name, now)

    def apply_change(self, source: str, after: Mapping[int, DynoShape | None]) -> DynoShapes:
        """The shapes after a schema change of some tables of a source; None: dropped."""
        tables = dict(self.tables)
        for id, shape in after.items():
            if shape is None:
                tables.pop((source, id), None)
            else:
                tables[source, id] = shape
        return DynoShapes(tables)


@dataclass(frozen=True, slots=True, eq=False)
class BoundDefinition:
    """A view's SQL, bound, and the table that each name in it meant then."""

    parsed: ParsedView
    view: ViewDefinition
    meant: Mapping[Relation, DynoShape]

    @property
    def table_keys(self) -> dict[Relation, Key]:
        return {r: (r.source, shape.id) for r, shape in self.meant.items()}

    def columns_read(self, relation: Relation) -> list[DynoColumn]:
        return self.columns_named(relation, [field.name for field in self.view.fields_of(relation)])

    def columns_named(self, relation: Relation, names: Sequence[str]) -> list[DynoColumn]:
        """Columns of a relation, by the names that they had when the view was bound."""
        found = [self.meant[relation].column_by_name(name) for name in names]
        return [column for column in found if column is not None]


def define_view(text: str, shapes: DynoShapes) -> BoundDefinition:
    """A view's SQL, bound to the tables that have these names now."""
    parsed = parse_view(text)

    def fields(relation: Relation) -> tuple[Field, ...]:
        found = shapes.fields_named(relation)
        assert found is not None, f"{relation} is not there"
        return found

    view = bind_view(parsed, fields)
    meant = {relation: shapes.shape_named(relation) for relation in view.relations}
    return BoundDefinition(
        parsed, view, {r: shape for r, shape in meant.items() if shape is not None}
    )
