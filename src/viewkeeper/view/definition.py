"""A view as typed relational data: which relations, joined how, showing what.

A `ViewDefinition` is what SQL is parsed and bound into (`viewkeeper.view.sql.view_statement`,
`.bind`). It is a select-project-join expression over bags. Relations are named by *place*: their
index in FROM, so that a relation used twice has two places. Everything here is frozen and can be
sent to a task.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from viewkeeper.view.expression import Column, Expression, needs_spark, type_of


@dataclass(frozen=True, slots=True, order=True)
class Relation:
    """A table of a source; `table` is `name` or `schema.name` as the source spells it, or the
    handle by which the source is asked for it."""

    source: str
    table: str

    def __str__(self) -> str:
        return f"{self.source}.{name_of_handle(self.table)}"


def name_of_handle(handle: str) -> str:
    """The name that a table had when its handle was made.

    A handle is that name, with a number behind it where the name had been used before.

    >>> name_of_handle("shop.orders#2"), name_of_handle("orders"), name_of_handle("odd#name")
    ('shop.orders', 'orders', 'odd#name')
    """
    name, mark, number = handle.rpartition("#")
    return name if mark and number.isdigit() else handle


@dataclass(frozen=True, slots=True)
class Field:
    """A named, typed column of a relation or of a view."""

    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Place:
    """One use of a relation: its index, the alias the SQL gave it, and the columns the view
    reads.
    """

    index: int
    alias: str
    relation: Relation
    fields: tuple[Field, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)


@dataclass(frozen=True, slots=True)
class Equality:
    """An equi-join condition between columns of one type at two different places."""

    left: Column
    right: Column
    null_safe: bool


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the view."""

    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """What a view shows.

    `predicates` are all conditions that are not in `equalities`: local ones read one place,
    residual ones several, constant ones none. `query` is the user's own SELECT in Spark SQL with
    the table at place i called `__place_i`: recomputation runs exactly what the user wrote.
    `warnings` are sentences for `explain`.
    """

    name: str
    places: tuple[Place, ...]
    equalities: tuple[Equality, ...]
    predicates: tuple[Expression, ...]
    outputs: tuple[Output, ...]
    query: str
    text: str
    path: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that the view reads, in order of first use."""
        return tuple(dict.fromkeys(place.relation.source for place in self.places))

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The relations that the view reads, each once."""
        return tuple(dict.fromkeys(place.relation for place in self.places))

    def fields_of(self, relation: Relation) -> tuple[Field, ...]:
        """Every column of a relation that some place of it reads, sorted by name."""
        used = {f for place in self.places if place.relation == relation for f in place.fields}
        return tuple(sorted(used, key=lambda field: field.name))

    @property
    def needs_spark(self) -> bool:
        """Whether some expression can only be evaluated by Spark."""
        expressions = [*self.predicates, *(output.expression for output in self.outputs)]
        return any(needs_spark(expression) for expression in expressions)

    @property
    def schema(self) -> pa.Schema | None:
        """The Arrow schema of the view's rows; None while only Spark knows some type."""
        fields: list[tuple[str, pa.DataType]] = []
        for output in self.outputs:
            kind = type_of(output.expression)
            if kind is None:
                return None
            fields.append((output.name, kind))
        return pa.schema(fields)
