"""What a handle stands for, decided inside the transaction that reads the rows.

A handle that is followed stands for a table's number and columns' numbers (`shapes`); any other is
a name of now. What the names are now is written down as long as the schema has the version that it
had then; else the triggers say it (`observe`), so nothing can come between a question and what it
is meant for: a table or column that is gone, is another one, or was rewritten since the asker's
position is a BrokenQueryError, and a look that comes later reports it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from viewkeeper.errors import BrokenQueryError, GapError, SchemaError
from viewkeeper.sources.names import Book, Named
from viewkeeper.sources.sqlite import shapes
from viewkeeper.sources.sqlite.batch import Layout, kind_of_declared
from viewkeeper.sources.sqlite.capture import (
    active_capture,
    captures,
    database_id,
    is_installed,
    is_recorded,
)
from viewkeeper.sources.sqlite.observe import Alive, captured_as, observe
from viewkeeper.sources.sqlite.shapes import Shape, ShapeColumn, schema_changes, shape_of
from viewkeeper.sources.sqlite.table import Table, fold, nearest, read_table, resolve
from viewkeeper.updates.schema_change import called


@dataclass(frozen=True, slots=True)
class Found:
    """The table that a handle stands for; without a number nobody captures it.

    `named` are the handle's names for columns, with their numbers.
    """

    source: str
    handle: str
    relation: int | None
    shape: Shape
    named: Mapping[str, str] = field(default_factory=dict)

    def column(self, name: str) -> ShapeColumn:
        """A column by the handle's name for it, in SQLite's way: without regard to ASCII case."""
        number = next((n for each, n in self.named.items() if fold(each) == fold(name)), None)
        if number is not None:
            column = self.shape.column(int(number))
            if column is None:
                raise BrokenQueryError(self.source, called(self.handle), f"column {name} is gone")
            return column
        claimed = {int(number) for number in self.named.values()}
        free = [column for column in self.shape.columns if column.id not in claimed]
        for column in free:
            if fold(column.name) == fold(name):
                return column
        raise SchemaError(
            self.source,
            f'table "{self.shape.name}" has no column "{name}"',
            hint=nearest(name, [*self.named, *(column.name for column in free)]),
        )

    def called(self) -> dict[str, str]:
        """The names that the handle's columns have now, of those that are there."""
        found = {name: self.shape.column(int(number)) for name, number in self.named.items()}
        return {name: column.name for name, column in found.items() if column is not None}

    def layout(self, columns: Sequence[str], integers: tuple[str, ...] = ()) -> Layout:
        """How columns are read; a SchemaError for one that cannot be kept."""
        kinds = tuple(
            kind_of_declared(self.source, self.shape.name, name, self.column(name).declared)
            for name in columns
        )
        return Layout(self.source, self.shape.name, tuple(columns), kinds, integers)


def identity_of(connection: sqlite3.Connection, relation: int) -> str:
    """A table's number, together with the database that gave it."""
    return f"{database_id(connection)[0]}/{relation}"


def find(connection: sqlite3.Connection, source: str, book: Book, handle: str) -> Found:
    """What a handle stands for now; a BrokenQueryError if that is gone."""
    named = book.get(handle)
    if named is None:
        return find_name(connection, source, handle)
    relation = _number(connection, source, handle, named)
    shape = _present(connection, source, relation)
    if shape is None:
        raise _gone(source, handle)
    return Found(source, handle, relation, shape, named.columns)


def _gone(source: str, handle: str) -> BrokenQueryError:
    return BrokenQueryError(source, called(handle), "it is gone, or another table is called so")


def find_name(connection: sqlite3.Connection, source: str, handle: str) -> Found:
    """The table that is called so now, or was called so when its handle was numbered."""
    table = read_table(connection, source, _name(connection, source, handle))
    capture = captured_as(connection, table.name) if is_installed(connection) else None
    for each in captures(connection) if capture is not None else ():
        if each.id == capture:
            shape = _present(connection, source, each.relation)
            if shape is not None:
                return Found(source, handle, each.relation, shape)
    return Found(source, handle, None, shape_of(table, {}, None))


def _name(connection: sqlite3.Connection, source: str, handle: str) -> str:
    try:
        return resolve(connection, source, handle)
    except SchemaError:
        if called(handle) == handle:
            raise
        return resolve(connection, source, called(handle))


def _number(connection: sqlite3.Connection, source: str, handle: str, named: Named) -> int:
    database, _, number = named.identity.partition("/")
    if not is_installed(connection) or database != database_id(connection)[0]:
        raise GapError(
            source,
            f'table "{called(handle)}" was followed in another database',
            detail="it was restored from a backup, replaced by another one, or detached",
            hint="follow it again and load its views anew",
        )
    return int(number)


def _present(connection: sqlite3.Connection, source: str, relation: int) -> Shape | None:
    """The shape of a captured table in this transaction; None if it is gone."""
    known, capture = shapes.newest(connection, relation), active_capture(connection, relation)
    if known is None or known.gone or capture is None:
        return None
    if is_recorded(connection):
        return known
    found = observe(connection, source, capture, known)
    if not isinstance(found, Alive):
        return None
    found.require_intact(source)
    return found.shape


def table_of(connection: sqlite3.Connection, found: Found) -> Table:
    """The table with its keys and indexes; columns are asked for by the handle's names."""
    table = read_table(connection, found.source, found.shape.name)
    return replace(table, called=found.called())


def find_logged(
    connection: sqlite3.Connection,
    source: str,
    book: Book,
    handle: str,
    columns: Sequence[str],
    span: tuple[int, int],
) -> Found:
    """What a handle stands for in a range of the log; the table itself may be gone since.

    Columns come as they are now, if all that happened to them since has kept their values.
    """
    named = book.get(handle)
    if named is None:
        now = find_name(connection, source, handle)
    else:
        number = _number(connection, source, handle, named)
        shape = shapes.newest(connection, number)
        if shape is None:
            raise LookupError("a followed table has no shape")
        now = Found(source, handle, number, shape, named.columns)
    then = _at(connection, now, span[1]) or now.shape
    if then.gone:
        raise _gone(source, handle)
    if now.shape.gone or _broken(now, columns, then, now.shape):
        now = replace(now, shape=then)
    before = _at(connection, now, span[0])
    if what := _broken(now, columns, before, then):
        raise BrokenQueryError(source, called(handle), what)
    return now


def refuse_broken(
    connection: sqlite3.Connection, found: Found, columns: Sequence[str], after: int
) -> None:
    """A BrokenQueryError if these columns' values at a position cannot be known any more."""
    if what := _broken(found, columns, _at(connection, found, after), found.shape):
        raise BrokenQueryError(found.source, called(found.handle), what)


def _at(connection: sqlite3.Connection, found: Found, position: int) -> Shape | None:
    return None if found.relation is None else shapes.at(connection, found.relation, position)


def _broken(found: Found, columns: Sequence[str], before: Shape | None, until: Shape) -> str | None:
    """What between two shapes did not keep the values of these columns."""
    if before is None:
        return None
    numbers = {}
    for name in columns:
        column = found.column(name)
        numbers[name] = str(column.id)
        fresh = before.column(column.id) is None and until.column(column.id) is not None
        if fresh and not column.blank:
            return f"column {name} was added with values"
    changes = schema_changes(found.handle, Named("", numbers), before, until)
    adds = ("add_column", "add_filled_column")
    return next((str(c) for c in changes if c.kind not in adds and not c.keeps_values), None)
