"""Handles and what they mean: which table, and what its columns are called now.

A handle that something is followed under means tables and columns by identity
(`viewkeeper.sources.handles`); any other one is the name of a table that is there now. What is
answered carries the handle's names, so names go through here in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from viewkeeper.sources.handles import HandleTarget, SourceHandles
from viewkeeper.sources.mariadb.logged_shapes import (
    LoggedChange,
    LoggedShape,
    LoggedShapes,
    ShapedColumn,
)
from viewkeeper.sources.mariadb.schema import MariadbTable
from viewkeeper.sources.tables.column_type import ColumnRefusal, TableColumns
from viewkeeper.sources.tables.shape import split_columns
from viewkeeper.sources.tables.shape_changes import ShapeChange, report_changes
from viewkeeper.updates.schema_change import SchemaChange, name_of_handle
from viewkeeper.updates.source_protocol import CurrentNames


@dataclass(frozen=True, slots=True)
class MariadbMeaning:
    """A handle's table as it is now; `names` are the current names by those of the handle."""

    table: MariadbTable
    names: Mapping[str, str]

    @property
    def columns(self) -> TableColumns:
        """The columns by the handle's names."""
        kinds = {name: self.table.find_column(now).kind for name, now in self.names.items()}
        return split_columns(
            {n: k if isinstance(k, ColumnRefusal) else k.arrow for n, k in kinds.items()}
        )

    @property
    def indexed_columns(self) -> frozenset[str]:
        """The columns that can be kept and that an index begins with."""
        found = (field.name for field in self.columns.fields)
        return frozenset(n for n in found if self.table.index_prefix_of([self.names[n]]))

    @property
    def key(self) -> tuple[str, ...]:
        names = {now: name for name, now in self.names.items()}
        key = self.table.exact_key
        return tuple(names[column] for column in key) if names.keys() >= set(key) else ()


def meaning_of(
    table: MariadbTable, named: HandleTarget | None, shape: LoggedShape | None
) -> MariadbMeaning:
    """What a handle means in a table; without what it is followed as, the table's own names."""
    own: dict[str, str] = {}
    taken: set[str] = set()
    if named is not None and shape is not None:
        taken = {name.lower() for name in named.columns}
        for name, id in named.columns.items():
            shaped = shape.column_by_id(id)
            if shaped is not None and table.has_column(shaped.name):
                own[name] = table.find_column(shaped.name).name
    names = {now: name for name, now in own.items()}
    order = {}
    for column in table.columns:
        if column.name in names:
            order[names[column.name]] = column.name
        elif column.name.lower() not in taken:
            order[column.name] = column.name
    return MariadbMeaning(table, order)


def current_form_of(
    handle: str,
    named: HandleTarget | None,
    shape: LoggedShape,
    database: str,
    columns: Sequence[str],
) -> CurrentNames:
    """What the table behind a handle is now; `columns` are its columns if nothing is followed."""
    table = spell_table_name(handle, shape.database, shape.name, database)
    if named is None:
        return CurrentNames(table, {name: name for name in columns})
    # A handle may have two names for one column: that of before a rename, and the new one.
    now = {name: shape.column_by_id(id) for name, id in named.columns.items()}
    return CurrentNames(
        table, {name: column.name for name, column in now.items() if column is not None}
    )


def spell_table_name(handle: str, database: str, name: str, own: str) -> str:
    """A table's name as a view writes it: with its database where that is not the url's."""
    qualified = name_of_handle(handle).partition(".")[0] == database and "." in name_of_handle(
        handle
    )
    return name if database == own and "." not in name and not qualified else f"{database}.{name}"


@dataclass(frozen=True, slots=True)
class BoundHandle:
    """A handle and what it means: the identities of its table and of its columns, by their names
    in lower case, the last name of the table, and the columns whose changes will be asked for.

    Without an identity nothing is followed under the handle. What is gone has no name.
    """

    handle: str
    identity: str
    name: tuple[str, str] | None
    columns: Mapping[str, str]
    asked: tuple[str, ...]

    def id_of(self, column: str) -> str:
        """The identity of a column; "" if the handle has none of that name."""
        return self.columns.get(column.lower(), "")

    @property
    def asked_ids(self) -> tuple[str, ...]:
        return tuple(filter(None, dict.fromkeys(self.id_of(name) for name in self.asked)))


def bind_handle(
    handle: str, columns: Sequence[str], names: SourceHandles, latest: LoggedShapes
) -> BoundHandle:
    named = names.target_of(handle)
    if named is None:
        return BoundHandle(handle, "", None, {}, tuple(columns))
    shape = latest.shape_by_id(named.identity)
    own = {name.lower(): id for name, id in named.columns.items()}
    now = {} if shape is None else {column.name.lower(): column.id for column in shape.columns}
    place = None if shape is None else (shape.database, shape.name)
    return BoundHandle(handle, named.identity, place, {**now, **own}, tuple(columns))


def wanted_columns_of(names: SourceHandles) -> dict[str, tuple[str, ...]]:
    """The columns that are followed under any handle, by table; all by identity."""
    found: dict[str, dict[str, None]] = {}
    for handle in names:
        named = names.target_of(handle)
        assert named is not None, "the book has what it lists"
        found.setdefault(named.identity, {}).update(dict.fromkeys(named.columns.values()))
    return {id: tuple(columns) for id, columns in found.items()}


def schema_changes_of(
    changes: Sequence[LoggedChange], names: SourceHandles, database: str
) -> tuple[SchemaChange, ...]:
    """The changes of tables by identity, as changes of the handles that mean them; each once."""
    reported = (
        each
        for one in changes
        for handle, named in names.handles_of(one.table).items()
        for each in report_changes(
            handle, _first_names(named), [_spell_change(one.change, handle, database)]
        )
    )
    return tuple(dict.fromkeys(reported))


def _first_names(named: HandleTarget) -> HandleTarget:
    """What a handle stands for; a column that it has two names for is reported by the first."""
    return replace(named, columns=dict(reversed(list(named.columns.items()))))


def _spell_change(change: ShapeChange, handle: str, database: str) -> ShapeChange:
    """A change, with the new name of a table as those who use this handle would write it."""
    if change.kind != "rename_table":
        return change
    place, _, name = change.now.partition(".")
    return replace(change, now=spell_table_name(handle, place, name, database))


def find_first_column(id: str, versions: Sequence[LoggedShape | None]) -> ShapedColumn | None:
    """A column in the first of some shapes that has it."""
    columns = (shape.column_by_id(id) for shape in versions if shape is not None)
    return next((column for column in columns if column is not None), None)
