"""What is captured in a SQLite database, and for whom: the tables that Viewkeeper keeps in it.

    _viewkeeper_database   one row: a random id, and up to where the log has been trimmed
    _viewkeeper_log        the change log: seq, capture, sign, at, c0, c1, ... (untyped columns)
    _viewkeeper_capture    what the columns of a log row mean: a capture is a table and its columns
    _viewkeeper_reader     who follows, from which position, which columns; leases have an end
    _viewkeeper_pending_N  rows of the table of capture N that REPLACE may delete silently

Several projects may follow one database. A table is captured once, with the columns that any reader
uses and no others, because SQLite refuses to drop a column that a trigger names. When another
column is needed, a new capture takes the place of the old one; rows that the old one wrote
are still read by its columns. A capture that found its triggers gone or out of date, so that
changes may have been missed, is marked: nothing is read across that gap.

Everything here runs inside the caller's BEGIN IMMEDIATE, so that two projects cannot interfere.
"""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from viewkeeper.errors import GapError, SchemaError
from viewkeeper.sources.sqlite.batch import kind_or_refuse
from viewkeeper.sources.sqlite.table import OWN_PREFIX, Table, fires_before, read_table
from viewkeeper.sources.sqlite.triggers import LOG, Capturing, pending_name, trigger_prefix
from viewkeeper.updates.protocol import Detached

_CREATE = (
    "CREATE TABLE IF NOT EXISTS _viewkeeper_database (id TEXT, trimmed INTEGER)",
    f"CREATE TABLE IF NOT EXISTS {LOG} (seq INTEGER PRIMARY KEY, capture, sign, at)",
    "CREATE TABLE IF NOT EXISTS _viewkeeper_capture (id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " tbl TEXT, columns TEXT, since INTEGER, gap INTEGER, active INTEGER)",
    "CREATE TABLE IF NOT EXISTS _viewkeeper_reader (reader TEXT PRIMARY KEY, position INTEGER,"
    " tables TEXT, lease_until REAL)",
)


@dataclass(frozen=True, slots=True)
class Capture:
    """A table and its captured columns with their declared types, in force after seq `since`."""

    id: int
    table: str
    columns: tuple[tuple[str, str], ...]
    since: int
    gap: bool
    active: bool

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)


def lease_name(reader: str, name: str) -> str:
    return f"{reader}/hold/{name}"


def is_installed(connection: sqlite3.Connection) -> bool:
    query = "SELECT count(*) FROM main.sqlite_master WHERE name IN (?, ?, ?, ?)"
    names = [f"{OWN_PREFIX}{part}" for part in ("database", "log", "capture", "reader")]
    return bool(connection.execute(query, names).fetchone()[0] == len(names))


def require_installed(connection: sqlite3.Connection, source: str) -> None:
    if not is_installed(connection):
        raise GapError(
            source,
            "the change log is not there",
            detail="the database was replaced or restored, or somebody detached it",
            hint="follow it again and load its views anew",
        )


def position(connection: sqlite3.Connection) -> int:
    """The newest position.

    The newest row is never trimmed, so numbers are not used twice. AUTOINCREMENT would not do: a
    statement that fails under OR FAIL keeps the rows that it logged but not their numbers in
    `sqlite_sequence`, and it costs writers a quarter of their speed.
    """
    row = connection.execute(f"SELECT max(seq) FROM main.{LOG}").fetchone()
    return int(row[0] or 0)


def database_id(connection: sqlite3.Connection) -> tuple[str, int]:
    """The database's random id, and the position up to which its log has been trimmed."""
    row = connection.execute("SELECT id, trimmed FROM main._viewkeeper_database").fetchone()
    return str(row[0]), int(row[1])


def reader_position(connection: sqlite3.Connection, source: str, reader: str) -> int:
    query = "SELECT position FROM main._viewkeeper_reader WHERE reader = ?"
    row = connection.execute(query, (reader,)).fetchone()
    if row is None:
        raise GapError(
            source,
            f'the database does not know the reader "{reader}"',
            detail="it was detached, or the database was restored from before it was followed",
            hint="follow it again and load its views anew",
        )
    return int(row[0])


def reader_tables(connection: sqlite3.Connection, reader: str) -> dict[str, list[str]]:
    query = "SELECT tables FROM main._viewkeeper_reader WHERE reader = ?"
    row = connection.execute(query, (reader,)).fetchone()
    return dict(json.loads(row[0])) if row else {}


def captures(connection: sqlite3.Connection, table: str | None = None) -> tuple[Capture, ...]:
    """The captures of a table, or of all tables, oldest first."""
    query = (
        "SELECT id, tbl, columns, since, gap, active FROM main._viewkeeper_capture"
        " WHERE ?1 IS NULL OR tbl = ?1 ORDER BY id"
    )
    return tuple(
        Capture(number, name, _pairs(columns), since, bool(gap), bool(active))
        for number, name, columns, since, gap, active in connection.execute(query, (table,))
    )


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, declared) for name, declared in json.loads(text))


def follow(
    connection: sqlite3.Connection, source: str, reader: str, tables: Mapping[str, Sequence[str]]
) -> int:
    """Register the reader and capture what it and all others need; the newest position."""
    wanted = {
        table.name: [table.column(source, column).name for column in columns]
        for table, columns in _checked(connection, source, tables)
    }
    for statement in _CREATE:
        connection.execute(statement)
    if connection.execute("SELECT count(*) FROM _viewkeeper_database").fetchone()[0] == 0:
        fresh = (secrets.token_hex(16), position(connection))
        connection.execute("INSERT INTO _viewkeeper_database VALUES (?, ?)", fresh)
    _register(connection, reader, wanted)
    for name in wanted:
        _capture(connection, source, name)
    return position(connection)


def _checked(
    connection: sqlite3.Connection, source: str, tables: Mapping[str, Sequence[str]]
) -> list[tuple[Table, Sequence[str]]]:
    found = []
    for name, columns in tables.items():
        table = read_table(connection, source, name)
        for column in columns:
            kind_or_refuse(source, table, column)
        _refuse_uncapturable(connection, source, table)
        found.append((table, columns))
    return found


def _refuse_uncapturable(connection: sqlite3.Connection, source: str, table: Table) -> None:
    if any(not key.parts for key in table.unique_keys):
        raise SchemaError(
            source,
            f'table "{table.name}" has a unique index on an expression alone',
            detail="the rows that REPLACE deletes through it cannot be found",
            hint="put the expression into a generated column and make that unique",
        )
    # The table's own AFTER triggers could stop ours from being run for a row that is written.
    query = "SELECT name, sql FROM main.sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
    for name, sql in connection.execute(query, (table.name,)).fetchall():
        ignores = re.search(r"raise\s*\(\s*ignore", sql, re.IGNORECASE)
        if ignores and not fires_before(sql):
            raise SchemaError(
                source,
                f'table "{table.name}": its trigger "{name}" uses RAISE(IGNORE) after a change',
                detail="that skips every other trigger while the change stays",
                hint="make it a BEFORE trigger, or raise an error that takes the change back",
            )


def _register(connection: sqlite3.Connection, reader: str, wanted: dict[str, list[str]]) -> None:
    known = reader_tables(connection, reader)
    merged = {
        name: sorted({*known.get(name, ()), *wanted.get(name, ())}) for name in {*known, *wanted}
    }
    connection.execute(
        "INSERT INTO _viewkeeper_reader (reader, position, tables) VALUES (?, ?, ?)"
        " ON CONFLICT (reader) DO UPDATE SET tables = excluded.tables, lease_until = NULL",
        (reader, position(connection), json.dumps(merged)),
    )


def _needed(connection: sqlite3.Connection, name: str) -> list[str]:
    rows = connection.execute("SELECT tables FROM main._viewkeeper_reader").fetchall()
    return sorted({column for (tables,) in rows for column in json.loads(tables).get(name, ())})


def _is_needed(connection: sqlite3.Connection, name: str) -> bool:
    rows = connection.execute("SELECT tables FROM main._viewkeeper_reader").fetchall()
    return any(name in json.loads(tables) for (tables,) in rows)


def _capture(connection: sqlite3.Connection, source: str, name: str) -> None:
    """Make the table's active capture one of exactly what its readers need, now."""
    table = read_table(connection, source, name)
    types = {column.name: column.declared for column in table.columns}
    columns = tuple((c, types[c]) for c in _needed(connection, name) if c in types)
    active = [capture for capture in captures(connection, name) if capture.active]
    intact = bool(active) and all(is_intact(connection, table, capture) for capture in active)
    if intact and active[-1].columns == columns and not _is_outrun(connection, table, active[-1]):
        return
    for capture in active:
        _drop(connection, capture)
    row = (name, json.dumps(columns), position(connection), int(not intact))
    cursor = connection.execute(
        "INSERT INTO _viewkeeper_capture (tbl, columns, since, gap, active) VALUES (?, ?, ?, ?, 1)",
        row,
    )
    assert cursor.lastrowid is not None, "an insert has a rowid"
    _widen(connection, len(columns))
    capturing = Capturing(cursor.lastrowid, table, tuple(name for name, _ in columns))
    for statement in (*capturing.tables(), *capturing.triggers().values()):
        connection.execute(statement)


def _widen(connection: sqlite3.Connection, columns: int) -> None:
    present = (
        connection.execute("SELECT count(*) FROM pragma_table_info(?)", (LOG,)).fetchone()[0] - 4
    )
    for number in range(present, columns):
        connection.execute(f"ALTER TABLE {LOG} ADD COLUMN c{number}")


def _drop(connection: sqlite3.Connection, capture: Capture) -> None:
    for name in _triggers(connection, capture.id):
        connection.execute(f'DROP TRIGGER "{name}"')
    connection.execute(f"DROP TABLE IF EXISTS {pending_name(capture.id)}")
    connection.execute("UPDATE _viewkeeper_capture SET active = 0 WHERE id = ?", (capture.id,))


def _triggers(connection: sqlite3.Connection, capture: int) -> dict[str, str]:
    query = (
        "SELECT name, sql FROM main.sqlite_master WHERE type = 'trigger' AND substr(name, 1, ?) = ?"
    )
    prefix = trigger_prefix(capture)
    return dict(connection.execute(query, (len(prefix), prefix)).fetchall())


def is_intact(connection: sqlite3.Connection, table: Table, capture: Capture) -> bool:
    """Whether the triggers are there and are those that the table, as it is now, needs.

    They name every unique key and captured column, so this also finds a key that was added and
    a column that was renamed (SQLite rewrites the text of triggers then).
    """
    types = {column.name: column.declared for column in table.columns}
    if any(types.get(name) != declared for name, declared in capture.columns):
        return False
    # Both forms capture everything; which one is needed is a matter of renewing (invariant 4).
    forms = [table, dataclasses.replace(table, nests=not table.nests)]
    present = _triggers(connection, capture.id)
    return any(present == Capturing(capture.id, form, capture.names).triggers() for form in forms)


def check_intact(connection: sqlite3.Connection, source: str, reader: str) -> None:
    """A GapError if changes of the reader's tables may have been missed."""
    for name in reader_tables(connection, reader):
        table = read_table(connection, source, name)
        active = [capture for capture in captures(connection, name) if capture.active]
        if not active or not is_intact(connection, table, active[-1]):
            raise GapError(
                source,
                f'table "{name}" was changed so that its capture is no longer complete',
                detail="it was made again, a unique key was added, a column was renamed, or the "
                "triggers were removed",
                hint="follow it again and load the views that use it anew",
            )


def is_outrun(connection: sqlite3.Connection, source: str, reader: str) -> bool:
    """Whether the application has made triggers that ours have to be made again for."""
    tables = reader_tables(connection, reader)
    followed = [each for each in captures(connection) if each.active and each.table in tables]
    return any(
        _is_outrun(connection, read_table(connection, source, capture.table), capture)
        for capture in followed
    )


def renew(connection: sqlite3.Connection, source: str, reader: str) -> None:
    """Make the triggers of the reader's tables again, where that is needed."""
    for name in reader_tables(connection, reader):
        _capture(connection, source, name)


def _is_outrun(connection: sqlite3.Connection, table: Table, capture: Capture) -> bool:
    """Whether ours are not the youngest, or of the other form; `triggers`, invariant 4."""
    expected = Capturing(capture.id, table, capture.names).triggers()
    if _triggers(connection, capture.id) != expected:
        return True
    query = (
        "SELECT max(rowid) FILTER (WHERE substr(name, 1, ?1) = ?2), max(rowid)"
        " FROM main.sqlite_master WHERE type = 'trigger' AND tbl_name = ?3"
    )
    prefix = trigger_prefix(capture.id)
    ours, newest = connection.execute(query, (len(prefix), prefix, capture.table)).fetchone()
    return bool(ours != newest)


def detach(connection: sqlite3.Connection, source: str, reader: str, force: bool) -> Detached:
    """Remove a reader, and everything of Viewkeeper once nobody else follows (or by force)."""
    if not is_installed(connection):
        return Detached(False, False)
    removed = connection.execute(
        "DELETE FROM _viewkeeper_reader WHERE reader = ?", (reader,)
    ).rowcount
    prefix = lease_name(reader, "")
    connection.execute(
        "DELETE FROM _viewkeeper_reader WHERE lease_until IS NOT NULL AND substr(reader, 1, ?) = ?",
        (len(prefix), prefix),
    )
    query = "SELECT reader FROM _viewkeeper_reader WHERE lease_until IS NULL ORDER BY reader"
    others = tuple(str(name) for (name,) in connection.execute(query))
    if force or not others:
        _remove_all(connection)
        return Detached(bool(removed), True, others)
    for capture in [each for each in captures(connection) if each.active]:
        if _is_needed(connection, capture.table):
            _capture(connection, source, capture.table)
        else:
            _drop(connection, capture)
    return Detached(bool(removed), False, others)


def _remove_all(connection: sqlite3.Connection) -> None:
    for kind in ("trigger", "table"):
        query = "SELECT name FROM main.sqlite_master WHERE type = ? AND substr(name, 1, ?) = ?"
        found = connection.execute(query, (kind, len(OWN_PREFIX), OWN_PREFIX)).fetchall()
        for (name,) in found:
            connection.execute(f'DROP {kind} "{name}"')
