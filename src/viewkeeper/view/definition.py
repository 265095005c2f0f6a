"""A view as typed relational data: which relations, joined how, showing what.

A `ViewDefinition` is what SQL is parsed and bound into (`viewkeeper.view.sql.view_statement`,
`.bind`). It is a select-project-join expression over bags. Relations are named by *place*: their
index in FROM, so that a relation used twice has two places. Everything here is frozen and can be
sent to a task.

A view that is more than that has a `Graph`: nodes, each one relational operator, with a core - a
select-project-join like that of a plain view, whose places may be *keyed* - wherever rows are
joined. What a node reads is named by a `Relation` like any other: one whose source is `PROJECT` is
a view of the same project, or, as `#3`, another node of the same graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal as OneOf

import pyarrow as pa

from viewkeeper.view.expression import Column, Expression, Scalar, needs_spark, type_of

PROJECT = ""
"""The source of relations that are views of the project itself, or nodes of a graph."""

CLOCK = "clock"
"""The source that a view reads whose text calls for the present time."""


@dataclass(frozen=True, slots=True, order=True)
class Relation:
    """A table of a source; `table` is `name` or `schema.name` as the source spells it, or the
    handle by which the source is asked for it."""

    source: str
    table: str

    def __str__(self) -> str:
        return f"{self.source}.{name_of_handle(self.table)}" if self.source else self.table

    @property
    def is_own(self) -> bool:
        """Whether it is a view of the project itself, or a node of a graph."""
        return self.source == PROJECT

    @property
    def node(self) -> int | None:
        """The number of the node that it is; None if it is a table or a view."""
        _, mark, number = self.table.rpartition("#")
        return int(number) if self.is_own and mark else None


def relation_of_node(number: int, view: str = "") -> Relation:
    """The name under which other nodes read a node of the same graph; with the name of its view it
    is unique in a project.

    >>> relation_of_node(3).node, Relation("shop", "orders").node
    (3, None)
    """
    return Relation(PROJECT, f"{view}#{number}")


def name_of_handle(handle: str) -> str:
    """The name that a table had when its handle was made.

    A handle is that name, with a number behind it where the name had been used before.

    >>> name_of_handle("shop.orders#2"), name_of_handle("orders"), name_of_handle("odd#name")
    ('shop.orders', 'orders', 'odd#name')
    >>> name_of_handle("#3")
    '#3'
    """
    name, mark, number = handle.rpartition("#")
    return name if name and mark and number.isdigit() else handle


@dataclass(frozen=True, slots=True)
class Field:
    """A named, typed column of a relation or of a view."""

    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Equality:
    """An equi-join condition between columns of one type at two different places."""

    left: Column
    right: Column
    null_safe: bool


@dataclass(frozen=True, slots=True)
class KeyedJoin:
    """How a keyed place is joined: through a total function of its key, not row by row.

    `on` has at least one equality; its left sides are columns of the place `parent`, its right
    sides columns of the keyed place itself. `conditions` are all others of its ON: over the keyed
    place, its parent, and places that are joined before it.

    A `left` place shows its columns, NULL where nothing matches. A `semi` or `anti` place shows no
    column, an `exists` place only the boolean column called `EXISTS`; nothing is joined to them.
    """

    kind: OneOf["left", "semi", "anti", "exists"]
    parent: int
    on: tuple[Equality, ...]
    conditions: tuple[Expression, ...] = ()
    unique: bool = False
    """Whether the source enforces that the key is unique, so that nobody need ask for the row
    that a change takes away."""


EXISTS = "exists"
"""The name of the one column that an existence place shows."""


@dataclass(frozen=True, slots=True)
class Place:
    """One use of a relation: its index, the alias the SQL gave it, and the columns the view
    reads, those in the ON of a keyed place included.
    """

    index: int
    alias: str
    relation: Relation
    fields: tuple[Field, ...]
    keyed: KeyedJoin | None = None
    known: tuple[Field, ...] = ()
    """All columns of a table of a report, in its order: its text may name them, as in a star."""
    unique: frozenset[frozenset[str]] = field(default=frozenset(), compare=False)
    """Sets of columns of which no two rows have the same values. They only say in which order it
    is cheap to ask, so they are no part of what the place is, and may be wrong."""

    def is_unique_by(self, columns: Iterable[str]) -> bool:
        """Whether a lookup by these columns finds one row for each key at most."""
        asked = frozenset(columns)
        return any(key <= asked for key in self.unique)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @property
    def shown_fields(self) -> tuple[Field, ...]:
        """The columns that joined rows have of it: of a semi or anti place none."""
        if self.keyed is None or self.keyed.kind == "left":
            return self.fields
        return (Field(EXISTS, pa.bool_()),) if self.keyed.kind == "exists" else ()

    @property
    def shown_labels(self) -> list[str]:
        """What these columns are called in joined rows."""
        return [f"{self.index}.{field.name}" for field in self.shown_fields]


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the view."""

    name: str
    expression: Expression


def fields_of_outputs(outputs: Sequence[Output]) -> tuple[Field, ...]:
    """The columns that compiled outputs make."""
    found = []
    for output in outputs:
        kind = type_of(output.expression)
        assert kind is not None, "a compiled expression has a type"
        found.append(Field(output.name, kind))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """What a view shows.

    `predicates` are all conditions that are not in `equalities`: local ones read one place,
    residual ones several, constant ones none. `query` is the user's own SELECT in Spark SQL with
    each table called `__place_` and its place: recomputation runs exactly what the user wrote.
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
    graph: Graph | None = None
    """What a view is compiled into that is more than a select-project-join. Its `places` are then
    the tables of its text, with the columns that the graph reads; its `outputs` are columns of the
    graph's root; `equalities` and `predicates` are empty."""
    behind: tuple[str, ...] = ()
    """The sources behind the views of the project that it reads."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that the view stands for, in order of first use."""
        own = [place.relation.source for place in self.places if not place.relation.is_own]
        return tuple(dict.fromkeys((*own, *self.behind)))

    @property
    def parents(self) -> tuple[str, ...]:
        """The views of the project that it reads, each once."""
        return tuple(r.table for r in self.relations if r.is_own and r.node is None)

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


@dataclass(frozen=True, slots=True)
class Core:
    """A node that joins, filters and projects: a select-project-join over places, swept as a plain
    view is. `view.outputs` are the columns of the node."""

    number: int
    view: ViewDefinition
    copies: Column | None = None
    """An output that says how often each row counts; it is not a column of the node."""
    scalars: tuple[int, ...] = ()
    """The places that have exactly one row at every ts: values of uncorrelated scalar subqueries.
    There is then one more place, the first: the side that they are compared with."""
    stored: bool = False
    """Whether the node has a table: it is the side of scalars, which is read whole when one of
    them changes."""

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return self.view.relations

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of the node; a type that only Spark knows is filled in when compiled."""
        found = fields_of_outputs(self.view.outputs)
        return tuple(f for f in found if self.copies is None or f.name != self.copies.name)


@dataclass(frozen=True, slots=True)
class FoldCall:
    """An aggregate over columns of a fold's input, computed from accumulators.

    `function` is a name of `viewkeeper.stages.fold_calls`. Rows for which the boolean column
    `where` is not true are left out.
    """

    name: str
    function: str
    arguments: tuple[Field, ...]
    type: pa.DataType
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """A node with one row per group of its input: its groups, and calls over the group's rows.

    Without groups there is always exactly one row. `outputs` are the columns that the node shows,
    over columns of place 0 called as groups and calls are.
    """

    number: int
    input: Relation
    groups: tuple[Field, ...]
    calls: tuple[FoldCall, ...]
    outputs: tuple[Output, ...]
    is_global: bool = False

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @property
    def fields(self) -> tuple[Field, ...]:
        return fields_of_outputs(self.outputs)


@dataclass(frozen=True, slots=True)
class Union:
    """A node with the rows of all its inputs; `columns[i]` are the names in input i of `fields`."""

    number: int
    inputs: tuple[Relation, ...]
    columns: tuple[tuple[str, ...], ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Expand:
    """A node that shows every row of its input once per projection, as ROLLUP needs it.

    Each projection has the columns of the node, over columns of place 0.
    """

    number: int
    input: Relation
    projections: tuple[tuple[Output, ...], ...]
    fields: tuple[Field, ...]

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)


@dataclass(frozen=True, slots=True)
class SplitText:
    """A generator that the kernel knows: the parts of a text column between separators, each with
    its number before it if `has_position`."""

    column: str
    separator: str
    has_position: bool


@dataclass(frozen=True, slots=True)
class GeneratedColumn:
    """A column of a node that generates rows: one of its input that is `kept`, or what the
    generator gives, by its number there, or a `part` of that where it is a struct."""

    kept: str | None = None
    number: int = 0
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Generate:
    """A node that shows a row of its input once per row that a generator makes of it.

    `call` is the generator in Spark's SQL, over columns of the input; `columns` says what each of
    the fields is. With `outer` a row of which nothing is made is shown once, with NULLs.
    """

    number: int
    input: Relation
    call: str
    width: int
    """How many columns the generator gives."""
    columns: tuple[GeneratedColumn, ...]
    fields: tuple[Field, ...]
    outer: bool = False
    split: SplitText | None = None

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @property
    def needs_spark(self) -> bool:
        """Whether only Spark can run the generator."""
        return self.split is None


@dataclass(frozen=True, slots=True)
class Constant:
    """A node with rows that the text itself gives: VALUES, `range`, one row without columns."""

    number: int
    fields: tuple[Field, ...]
    rows: tuple[tuple[Scalar, ...], ...]

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column by which rows are put in order."""

    column: str
    descending: bool = False
    nulls_last: bool = False


MONTHS = " months"
"""Ends the bound of a frame that is counted in months."""


@dataclass(frozen=True, slots=True)
class WindowFrame:
    """Which rows around a row, in its order, a call looks at: from `start` to `end`, both included.

    A bound is the distance from the row itself, negative before it; None is where the rows of the
    key begin or end. The distance is counted in rows, or in `range` frames added to the row's own
    value of the first sort key: all rows with an equal value belong together. To a date or a moment
    months can be added: `-3 months`.
    """

    unit: OneOf["rows", "range"]
    start: str | None = None
    end: str | None = None


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A function over the rows of a key in their order, with a value for each row.

    `function` is a name of `viewkeeper.stages.window_calls`; `settings` are its arguments that are
    constants. Rows for which the boolean column `where` is not true are left out.
    """

    name: str
    function: str
    arguments: tuple[Field, ...]
    type: pa.DataType
    frame: WindowFrame
    settings: tuple[str, ...] = ()
    order: tuple[SortKey, ...] = ()
    """The order that the call itself has, as listagg(...) WITHIN GROUP (ORDER BY ...)."""
    ignores_nulls: bool = False
    is_distinct: bool = False
    where: str | None = None


@dataclass(frozen=True, slots=True)
class KeyRecompute:
    """A node that is evaluated again for each key that a batch touches, from all rows of the key.

    Rows of one key are put into the user's `order`, which says which rows are equal in rank, and
    then into the order of `completion`, which leaves no two different rows without an order. Every
    row is shown with the values of `calls`; if `is_grouped`, one row for each key. `outputs` are
    columns of place 0, called as those of the input and the calls are. Without keys all rows belong
    together; if they are grouped, there is then always exactly one.
    """

    number: int
    input: Relation
    read: tuple[Field, ...]
    """The columns of the input that are read."""
    keys: tuple[str, ...]
    order: tuple[SortKey, ...]
    completion: tuple[SortKey, ...]
    calls: tuple[WindowCall, ...]
    outputs: tuple[Output, ...]
    is_grouped: bool = False

    @property
    def inputs(self) -> tuple[Relation, ...]:
        return (self.input,)

    @property
    def fields(self) -> tuple[Field, ...]:
        return fields_of_outputs(self.outputs)


Node = Core | Fold | Union | Expand | Generate | Constant | KeyRecompute


@dataclass(frozen=True, slots=True)
class Graph:
    """What a view's query is compiled into: nodes, inputs before those that read them.

    `nodes[i].number` is i; the last one is the root, whose columns are the view's.
    """

    nodes: tuple[Node, ...]
    recomputed: str | None = None
    """Why the view is computed again instead of maintained; its one node then has no rows."""

    @property
    def root(self) -> Node:
        return self.nodes[-1]
