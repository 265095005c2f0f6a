"""What a handle stands for, decided inside the transaction that reads the rows.

A handle that is followed stands for a table's number and columns' numbers (`shapes`); any other is
a name of now. What the names are now is written down as long as the schema has the version that it
had then; else the triggers say it (`observe_table`), so nothing can come between a question and
what it is meant for: a table or column that is gone, is another one, or was rewritten since the
asker's position is a BrokenQueryError, and a look that comes later reports it.

The book of handles (`viewkeeper.sources.handles`) is the project's own; what tables and columns are
by number is in the database, for all who follow it. A handle is made before its table is captured,
and is a name of now until it is followed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from viewkeeper.errors import BrokenQueryError, GapError, SchemaError, reload_hint, suggest_names
from viewkeeper.sources.handles import Book, HandleTarget, SourceHandles
from viewkeeper.sources.sqlite.capture import recorded_shapes
from viewkeeper.sources.sqlite.capture.capture_tables import (
    active_capture,
    database_id,
    is_installed,
    is_recorded,
    read_captures,
)
from viewkeeper.sources.sqlite.capture.recorded_shapes import (
    LivingTable,
    SqliteShape,
    SqliteShapeColumn,
    capture_on_table,
    observe_table,
    refuse_uncapturable,
    shape_of,
)
from viewkeeper.sources.sqlite.schema import (
    SqliteTable,
    fold_case,
    prefix_of,
    read_table,
    resolve_name,
)
from viewkeeper.sources.sqlite.types import SqliteLayout, kind_of, kind_of_declared
from viewkeeper.sources.tables.column_type import ColumnRefusal
from viewkeeper.sources.tables.shape_changes import broken_query_error, list_shape_changes
from viewkeeper.updates.schema_change import SchemaChange, name_of_handle
from viewkeeper.updates.source_protocol import CurrentNames, TableDescription, Tables
from viewkeeper.view.definition import Field


@dataclass(frozen=True, slots=True)
class FoundTable:
    """The table that a handle stands for; without a number nobody captures it.

    `named` are the handle's names for columns, with their numbers.
    """

    source: str
    handle: str
    relation: int | None
    shape: SqliteShape
    named: Mapping[str, str] = field(default_factory=dict)

    def column_named(self, name: str) -> SqliteShapeColumn:
        """A column by the handle's name for it, in SQLite's way: without regard to ASCII case."""
        number = next(
            (n for each, n in self.named.items() if fold_case(each) == fold_case(name)), None
        )
        if number is not None:
            column = self.shape.column_numbered(int(number))
            if column is None:
                raise BrokenQueryError(
                    self.source, name_of_handle(self.handle), f"column {name} is gone"
                )
            return column
        claimed = {int(number) for number in self.named.values()}
        free = [column for column in self.shape.columns if column.id not in claimed]
        for column in free:
            if fold_case(column.name) == fold_case(name):
                return column
        raise SchemaError(
            self.source,
            f'table "{self.shape.name}" has no column "{name}"',
            hint=suggest_names(name, [*self.named, *(column.name for column in free)]),
        )

    def current_names(self) -> dict[str, str]:
        """The names that the handle's columns have now, of those that are there."""
        found = {
            name: self.shape.column_numbered(int(number)) for name, number in self.named.items()
        }
        return {name: column.name for name, column in found.items() if column is not None}

    def layout_of(self, columns: Sequence[str], integers: tuple[str, ...] = ()) -> SqliteLayout:
        """How columns are read; a SchemaError for one that cannot be kept."""
        kinds = tuple(
            kind_of_declared(self.source, self.shape.name, name, self.column_named(name).declared)
            for name in columns
        )
        return SqliteLayout(self.source, self.shape.name, tuple(columns), kinds, integers)


def identity_of(connection: sqlite3.Connection, relation: int) -> str:
    """A table's number, together with the database that gave it."""
    return f"{database_id(connection)[0]}/{relation}"


def find_handle(connection: sqlite3.Connection, source: str, book: Book, handle: str) -> FoundTable:
    """What a handle stands for now; a BrokenQueryError if that is gone."""
    named = book.get(handle)
    if named is None:
        return find_name(connection, source, handle)
    relation = _relation_number(connection, source, handle, named)
    shape = _present_shape(connection, source, relation)
    if shape is None:
        raise _gone_error(source, handle)
    return FoundTable(source, handle, relation, shape, named.columns)


def _gone_error(source: str, handle: str) -> BrokenQueryError:
    return BrokenQueryError(
        source, name_of_handle(handle), "it is gone, or another table is called so"
    )


def find_name(connection: sqlite3.Connection, source: str, handle: str) -> FoundTable:
    """The table that is called so now, or was called so when its handle was numbered."""
    table = read_table(connection, source, _resolve_handle_name(connection, source, handle))
    capture = capture_on_table(connection, table.name) if is_installed(connection) else None
    for each in read_captures(connection) if capture is not None else ():
        if each.id == capture:
            shape = _present_shape(connection, source, each.relation)
            if shape is not None:
                return FoundTable(source, handle, each.relation, shape)
    return FoundTable(source, handle, None, shape_of(table, {}, None))


def _resolve_handle_name(connection: sqlite3.Connection, source: str, handle: str) -> str:
    try:
        return resolve_name(connection, source, handle)
    except SchemaError:
        if name_of_handle(handle) == handle:
            raise
        return resolve_name(connection, source, name_of_handle(handle))


def _relation_number(
    connection: sqlite3.Connection, source: str, handle: str, named: HandleTarget
) -> int:
    database, _, number = named.identity.partition("/")
    if not is_installed(connection) or database != database_id(connection)[0]:
        raise GapError(
            source,
            f'table "{name_of_handle(handle)}" was followed in another database',
            detail="it was restored from a backup, replaced by another one, or detached",
            hint=reload_hint(),
        )
    return int(number)


def _present_shape(
    connection: sqlite3.Connection, source: str, relation: int
) -> SqliteShape | None:
    """The shape of a captured table in this transaction; None if it is gone."""
    known, capture = (
        recorded_shapes.newest_shape(connection, relation),
        active_capture(connection, relation),
    )
    if known is None or known.gone or capture is None:
        return None
    if is_recorded(connection):
        return known
    found = observe_table(connection, source, capture, known)
    if not isinstance(found, LivingTable):
        return None
    found.require_intact(source)
    return found.shape


def table_of(connection: sqlite3.Connection, found: FoundTable) -> SqliteTable:
    """The table with its keys and indexes; columns are asked for by the handle's names."""
    table = read_table(connection, found.source, found.shape.name)
    return replace(table, called=found.current_names())


def find_logged(
    connection: sqlite3.Connection,
    source: str,
    book: Book,
    handle: str,
    columns: Sequence[str],
    span: tuple[int, int],
) -> FoundTable:
    """What a handle stands for in a range of the log; the table itself may be gone since.

    Columns come as they are now, if all that happened to them since has kept their values.
    """
    named = book.get(handle)
    if named is None:
        now = find_name(connection, source, handle)
    else:
        number = _relation_number(connection, source, handle, named)
        shape = recorded_shapes.newest_shape(connection, number)
        if shape is None:
            raise LookupError("a followed table has no shape")
        now = FoundTable(source, handle, number, shape, named.columns)
    then = _shape_before(connection, now, span[1]) or now.shape
    if then.gone:
        raise _gone_error(source, handle)
    if now.shape.gone or _find_break(now, columns, then, now.shape):
        now = replace(now, shape=then)
    before = _shape_before(connection, now, span[0])
    if broken := _find_break(now, columns, before, then):
        raise broken
    return now


def refuse_broken(
    connection: sqlite3.Connection, found: FoundTable, columns: Sequence[str], after: int
) -> None:
    """A BrokenQueryError if these columns' values at a position cannot be known any more."""
    if broken := _find_break(found, columns, _shape_before(connection, found, after), found.shape):
        raise broken


def _shape_before(
    connection: sqlite3.Connection, found: FoundTable, position: int
) -> SqliteShape | None:
    return (
        None
        if found.relation is None
        else recorded_shapes.shape_at(connection, found.relation, position)
    )


def _find_break(
    found: FoundTable, columns: Sequence[str], before: SqliteShape | None, until: SqliteShape
) -> BrokenQueryError | None:
    """What between two shapes did not keep the values of these columns."""
    if before is None or before is until:
        return None
    numbers = {name: found.column_named(name) for name in columns}
    identities = {name: str(column.id) for name, column in numbers.items()}
    for name, column in numbers.items():
        is_new = before.column_numbered(column.id) is None
        if is_new and not column.blank and until.column_numbered(column.id) is not None:
            what = f"column {name} was added with values"
            return BrokenQueryError(found.source, name_of_handle(found.handle), what)
    for change in list_shape_changes(before.table_shape(), until.table_shape()):
        if change.kind != "add_filled_column" and change.is_ending(identities.values()):
            return broken_query_error(found.source, found.handle, identities, change)
    return None


@dataclass(frozen=True, slots=True)
class WantedTable:
    """What a handle is to follow: its table, and its names for columns with the present ones."""

    handle: str
    table: SqliteTable
    columns: dict[str, str]


def handle_of(connection: sqlite3.Connection, source: str, names: SourceHandles, name: str) -> str:
    """The handle of the table that is called so now; a SchemaError if it cannot be captured."""
    found = find_name(connection, source, name)
    refuse_uncapturable(connection, source, table_of(connection, found))
    if found.relation is None:
        return names.choose_handle(name, "", {})
    columns = {column.name: str(column.id) for column in found.shape.columns}
    return names.choose_handle(name, identity_of(connection, found.relation), columns)


def describe_table(
    connection: sqlite3.Connection, source: str, book: Book, handle: str
) -> TableDescription:
    """The table behind a handle; a SchemaError if it is gone."""
    try:
        found = find_handle(connection, source, book, handle)
    except BrokenQueryError:
        raise SchemaError(
            source,
            f'table "{name_of_handle(handle)}" is gone',
            hint="bring it back, or change the views that use it",
        ) from None
    table = table_of(connection, found)
    declared = {column.name: column.declared for column in table.columns}
    kinds = {name: kind_of(declared[now]) for name, now in table.current_names.items()}
    kept = {name: kind for name, kind in kinds.items() if not isinstance(kind, ColumnRefusal)}
    exact = frozenset(name for name, kind in kept.items() if kind.one_spelling)
    names = {now: name for name, now in table.current_names.items()}
    key = recorded_shapes.key_of(table)
    return TableDescription(
        CurrentNames(
            found.shape.name, found.current_names() if handle in book else table.current_names
        ),
        tuple(Field(name, kind.arrow) for name, kind in kept.items()),
        {name: str(kind) for name, kind in kinds.items() if isinstance(kind, ColumnRefusal)},
        tuple(names[now] for now in key) if names.keys() >= set(key) else (),
        frozenset(name for name in exact if prefix_of(table, [table.current_names[name]])),
        exact,
    )


def find_wanted(
    connection: sqlite3.Connection, source: str, book: Book, tables: Tables
) -> list[WantedTable]:
    """What there is to follow; tables and columns that are gone are passed over."""
    found = []
    for handle, names in tables.items():
        known = book[handle].columns if handle in book else {}
        with suppress(BrokenQueryError):
            behind, columns = find_handle(connection, source, book, handle), {}
            for name in names:
                with suppress(BrokenQueryError):
                    now = behind.column_named(name).name
                    columns[name if name in known else now] = now
            table = replace(table_of(connection, behind), called={})
            found.append(WantedTable(handle, table, columns))
    return found


def schema_changes_between(
    connection: sqlite3.Connection, book: Book, after: int, until: int
) -> tuple[SchemaChange, ...]:
    """The schema changes in a range of positions that concern what is followed."""
    found: list[SchemaChange] = []
    if recorded_shapes.has_shapes_between(connection, after, until):
        for handle, named in book.items():
            relation = int(named.identity.partition("/")[2])
            before = recorded_shapes.shape_at(connection, relation, after)
            found += recorded_shapes.schema_changes(
                handle, named, before, recorded_shapes.shape_at(connection, relation, until)
            )
    return tuple(found)
