"""The handles of a SQLite source: made when tables are bound, asked for what they became.

The book of handles (`viewkeeper.sources.names`) is the project's own; what tables and columns are
by number is in the database, for all who follow it. A handle is made before its table is captured,
and is a name of now until it is followed.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass, replace

from viewkeeper.errors import BrokenQueryError, SchemaError
from viewkeeper.sources.names import Book, Names
from viewkeeper.sources.sqlite import shapes
from viewkeeper.sources.sqlite.observe import refuse_uncapturable
from viewkeeper.sources.sqlite.resolve import find, find_name, identity_of, table_of
from viewkeeper.sources.sqlite.table import Table
from viewkeeper.updates.protocol import Became, Tables
from viewkeeper.updates.schema_change import SchemaChange, called


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a handle is to follow: its table, and its names for columns with those of now."""

    handle: str
    table: Table
    columns: dict[str, str]


def handle_of(connection: sqlite3.Connection, source: str, names: Names, name: str) -> str:
    """The handle of the table that is called so now; a SchemaError if it cannot be captured."""
    found = find_name(connection, source, name)
    refuse_uncapturable(connection, source, table_of(connection, found))
    if found.relation is None:
        return names.handle(name, "", {})
    columns = {column.name: str(column.id) for column in found.shape.columns}
    return names.handle(name, identity_of(connection, found.relation), columns)


def became(connection: sqlite3.Connection, source: str, book: Book, handle: str) -> Became | None:
    try:
        found = find(connection, source, book, handle)
    except (BrokenQueryError, SchemaError):
        return None
    columns = found.called() if handle in book else table_of(connection, found).names
    return Became(found.shape.name, columns)


def table_behind(connection: sqlite3.Connection, source: str, book: Book, handle: str) -> Table:
    """The table behind a handle; a SchemaError if it is gone."""
    try:
        return table_of(connection, find(connection, source, book, handle))
    except BrokenQueryError:
        raise SchemaError(
            source,
            f'table "{called(handle)}" is gone',
            hint="bring it back, or change the views that use it",
        ) from None


def wanted(connection: sqlite3.Connection, source: str, book: Book, tables: Tables) -> list[Wanted]:
    """What there is to follow; tables and columns that are gone are passed over."""
    found = []
    for handle, names in tables.items():
        known = book[handle].columns if handle in book else {}
        with suppress(BrokenQueryError):
            behind, columns = find(connection, source, book, handle), {}
            for name in names:
                with suppress(BrokenQueryError):
                    now = behind.column(name).name
                    columns[name if name in known else now] = now
            table = replace(table_of(connection, behind), called={})
            found.append(Wanted(handle, table, columns))
    return found


def reshaped(
    connection: sqlite3.Connection, book: Book, after: int, until: int
) -> tuple[SchemaChange, ...]:
    """The schema changes in a range of positions that concern what is followed."""
    found: list[SchemaChange] = []
    if shapes.are_between(connection, after, until):
        for handle, named in book.items():
            relation = int(named.identity.partition("/")[2])
            before = shapes.at(connection, relation, after)
            found += shapes.schema_changes(
                handle, named, before, shapes.at(connection, relation, until)
            )
    return tuple(found)
