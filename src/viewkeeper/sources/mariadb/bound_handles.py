"""Handles and what they mean: which table, and what its columns are called now.

A handle that something is followed under means tables and columns by identity
(`viewkeeper.sources.handles`); any other one is the name of a table that is there now. What is
answered carries the handle's names, so names go through here in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from viewkeeper.errors import SchemaError
from viewkeeper.sources.handles import Named, Names
from viewkeeper.sources.mariadb.binlog.shape_tracker import Told
from viewkeeper.sources.mariadb.logged_shapes import Shape, ShapedColumn, Shapes
from viewkeeper.sources.mariadb.schema import Table
from viewkeeper.sources.mariadb.types import Refusal
from viewkeeper.updates.schema_change import SchemaChange, called
from viewkeeper.updates.source_protocol import Became
from viewkeeper.view.definition import Field


@dataclass(frozen=True, slots=True)
class Meaning:
    """A handle's table as it is now; `names` has for each name of the handle the one of now."""

    table: Table
    names: Mapping[str, str]

    def now(self, column: str) -> str:
        """What a column of the handle is called now; a SchemaError if it is not there."""
        folded = column.lower()
        for name, now in self.names.items():
            if name.lower() == folded:
                return now
        # Names that the handle has, or used to have, for something else are not its columns.
        hidden = {now.lower() for now in self.names.values()}
        if folded in hidden or self.table.has(column):
            raise SchemaError(
                self.table.source,
                f'column "{column}" of table "{self.table.full_name}" is not what it was',
                hint="bind the view again",
            )
        return self.table.column(column).name

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns that can be kept exactly, by the handle's names."""
        found = ((name, self.table.column(now).kind) for name, now in self.names.items())
        return tuple(Field(n, kind.arrow) for n, kind in found if not isinstance(kind, Refusal))

    @property
    def refused(self) -> dict[str, str]:
        found = ((name, self.table.column(now).kind) for name, now in self.names.items())
        return {n: f"{k.reason}; {k.hint}" for n, k in found if isinstance(k, Refusal)}

    @property
    def key(self) -> tuple[str, ...]:
        names = {now: name for name, now in self.names.items()}
        key = self.table.exact_key
        return tuple(names[column] for column in key) if names.keys() >= set(key) else ()


def meaning_of(table: Table, named: Named | None, shape: Shape | None) -> Meaning:
    """What a handle means in a table; without what it is followed as, the table's own names."""
    own: dict[str, str] = {}
    taken: set[str] = set()
    if named is not None and shape is not None:
        taken = {name.lower() for name in named.columns}
        for name, id in named.columns.items():
            shaped = shape.column(id)
            if shaped is not None and table.has(shaped.name):
                own[name] = table.column(shaped.name).name
    names = {now: name for name, now in own.items()}
    order = {}
    for column in table.columns:
        if column.name in names:
            order[names[column.name]] = column.name
        elif column.name.lower() not in taken:
            order[column.name] = column.name
    return Meaning(table, order)


def became(
    handle: str, named: Named | None, shape: Shape, database: str, columns: Sequence[str]
) -> Became:
    """What the table behind a handle is now; `columns` are its columns if nothing is followed."""
    table = spelled(handle, shape.database, shape.name, database)
    if named is None:
        return Became(table, {name: name for name in columns})
    now = {name: shape.column(id) for name, id in named.columns.items()}
    return Became(table, {name: column.name for name, column in now.items() if column is not None})


def spelled(handle: str, database: str, name: str, own: str) -> str:
    """A table's name as a view writes it: with its database where that is not the url's."""
    qualified = called(handle).partition(".")[0] == database and "." in called(handle)
    return name if database == own and "." not in name and not qualified else f"{database}.{name}"


@dataclass(frozen=True, slots=True)
class Bound:
    """A handle for whoever asks about it: the identities of its table and of its columns, by
    their names in lower case, what the table was called last, and the columns whose changes will be
    asked for.

    Without an identity nothing is followed under the handle. What is gone has no name.
    """

    handle: str
    identity: str
    name: tuple[str, str] | None
    columns: Mapping[str, str]
    asked: tuple[str, ...]

    def id(self, column: str) -> str:
        """The identity of a column; "" if the handle has none of that name."""
        return self.columns.get(column.lower(), "")

    @property
    def asked_ids(self) -> tuple[str, ...]:
        return tuple(filter(None, dict.fromkeys(self.id(name) for name in self.asked)))


def bound(handle: str, columns: Sequence[str], names: Names, latest: Shapes) -> Bound:
    named = names.get(handle)
    if named is None:
        return Bound(handle, "", None, {}, tuple(columns))
    shape = latest.get(named.identity)
    own = {name.lower(): id for name, id in named.columns.items()}
    now = {} if shape is None else {column.name.lower(): column.id for column in shape.columns}
    place = None if shape is None else (shape.database, shape.name)
    return Bound(handle, named.identity, place, {**now, **own}, tuple(columns))


def wanted(names: Names) -> dict[str, tuple[str, ...]]:
    """The columns that are followed under any handle, by table; all by identity."""
    found: dict[str, dict[str, None]] = {}
    for handle in names:
        named = names.get(handle)
        assert named is not None, "the book has what it lists"
        found.setdefault(named.identity, {}).update(dict.fromkeys(named.columns.values()))
    return {id: tuple(columns) for id, columns in found.items()}


def reported(told: Sequence[Told], names: Names, database: str) -> tuple[SchemaChange, ...]:
    """What is told by identity, for every handle that it concerns."""
    found: dict[SchemaChange, None] = {}
    for one in told:
        for handle, named in names.of(one.change.table).items():
            change = _reported(one.change, handle, named, database)
            if change is not None:
                found[change] = None
    return tuple(found)


def _reported(
    change: SchemaChange, handle: str, named: Named, database: str
) -> SchemaChange | None:
    if change.kind in ("add_column", "add_filled_column"):
        return SchemaChange(change.kind, handle, change.now)
    now = change.now
    if change.kind == "rename_table":
        place, _, name = now.partition(".")
        now = spelled(handle, place, name, database)
        # A handle that was made later has the new name already.
        return None if now == called(handle) else SchemaChange(change.kind, handle, now=now)
    if not change.column:
        return SchemaChange(change.kind, handle, now=now)
    column = next((n for n, id in named.columns.items() if id == change.column), None)
    if column is None or (change.kind == "rename_column" and column == now):
        return None
    return SchemaChange(change.kind, handle, column, now)


def type_of(id: str, versions: Sequence[Shape | None]) -> ShapedColumn | None:
    """A column in the first of some shapes that has it."""
    columns = (shape.column(id) for shape in versions if shape is not None)
    return next((column for column in columns if column is not None), None)
