"""What is captured in a SQLite database, and for whom: the tables that Viewkeeper keeps in it.

    _viewkeeper_database   one row: a random id, up to where the log has been trimmed, and the
                           version of the schema up to which shapes are written down
    _viewkeeper_log        the change log: seq, capture, sign, at, c0, c1, ... (untyped columns)
    _viewkeeper_capture    what the columns of a log row mean: a capture is a table and its columns
    _viewkeeper_shape      what captured tables and their columns are called, from a position on
    _viewkeeper_reader     who follows, from which position, which columns; leases have an end
    _viewkeeper_pending_N  rows of the table of capture N that REPLACE may delete silently

A captured table has a number, and its columns have numbers (`shapes`): captures and readers know
them by these, so that names may change. Several projects may follow one database. A table is
captured once, with the columns that any reader uses and no others, because SQLite refuses to drop a
column that a trigger names. When another column is needed, a new capture takes the place of the old
one; rows that the old one wrote are still read by its columns.
"""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
from dataclasses import dataclass

from viewkeeper.errors import GapError, reload_hint
from viewkeeper.sources.sqlite.schema import OWN_PREFIX, quote_name

LOG = f"{OWN_PREFIX}log"
# The time of the statement, in days; 'now' is constant within one statement, so it costs little.
NOW = "julianday('now')"

_CREATE = (
    "CREATE TABLE IF NOT EXISTS _viewkeeper_database (id TEXT, trimmed INTEGER, shaped INTEGER)",
    f"CREATE TABLE IF NOT EXISTS {LOG} (seq INTEGER PRIMARY KEY, capture, sign, at)",
    "CREATE TABLE IF NOT EXISTS _viewkeeper_capture (id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " relation INTEGER, columns TEXT, since INTEGER, gap INTEGER, active INTEGER, form TEXT)",
    "CREATE TABLE IF NOT EXISTS _viewkeeper_shape (relation INTEGER, seq INTEGER, shape TEXT,"
    " PRIMARY KEY (relation, seq))",
    "CREATE TABLE IF NOT EXISTS _viewkeeper_reader (reader TEXT PRIMARY KEY, position INTEGER,"
    " tables TEXT, lease_until REAL)",
)
_TABLES = ("database", "log", "capture", "shape", "reader")
_OWN_NAMES = {
    "table": re.compile(rf"{OWN_PREFIX}({'|'.join(_TABLES)}|pending_[0-9]+)"),
    "trigger": re.compile(rf"{OWN_PREFIX}[0-9]+_[a-z_]+"),
}


@dataclass(frozen=True, slots=True)
class TableCapture:
    """A table and its captured columns, all by number, in force after seq `since`.

    With a `gap`, changes from before that may have been missed: nothing is read across it. `form`
    is the text of its triggers but for the names in it.
    """

    id: int
    relation: int
    columns: tuple[int, ...]
    since: int
    gap: bool
    active: bool
    form: str


def pending_name(capture: int) -> str:
    return f"{OWN_PREFIX}pending_{capture}"


def lease_name(reader: str, name: str) -> str:
    return f"{reader}/hold/{name}"


def is_installed(connection: sqlite3.Connection) -> bool:
    marks = ", ".join("?" for _ in _TABLES)
    query = f"SELECT count(*) FROM main.sqlite_master WHERE type = 'table' AND name IN ({marks})"
    names = [f"{OWN_PREFIX}{part}" for part in _TABLES]
    return bool(connection.execute(query, names).fetchone()[0] == len(names))


def require_installed(connection: sqlite3.Connection, source: str) -> None:
    if not is_installed(connection):
        raise GapError(
            source,
            "the change log is not there",
            detail="the database was replaced or restored, or somebody detached it",
            hint=reload_hint(),
        )


def create_tables(connection: sqlite3.Connection) -> None:
    """Make our tables, unless they are there; a part of them is of no use to anybody."""
    if is_installed(connection):
        return
    remove_all(connection)
    for statement in _CREATE:
        connection.execute(statement)
    fresh = (secrets.token_hex(16), newest_position(connection))
    connection.execute("INSERT INTO _viewkeeper_database VALUES (?, ?, NULL)", fresh)


def remove_all(connection: sqlite3.Connection) -> None:
    """Remove everything that is ours, by the names that we give."""
    for kind in ("trigger", "table"):
        query = "SELECT name FROM main.sqlite_master WHERE type = ?"
        for (name,) in connection.execute(query, (kind,)).fetchall():
            if _OWN_NAMES[kind].fullmatch(name):
                connection.execute(f"DROP {kind} main.{quote_name(name)}")


def foreign_users(connection: sqlite3.Connection) -> list[str]:
    """Views and triggers of others that read or sit on our tables; they would not outlive them."""
    query = "SELECT type, name, sql FROM main.sqlite_master WHERE type IN ('view', 'trigger')"
    return [
        f"{kind} {name}"
        for kind, name, sql in connection.execute(query).fetchall()
        if OWN_PREFIX in sql.lower() and not _OWN_NAMES["trigger"].fullmatch(name)
    ]


def newest_position(connection: sqlite3.Connection) -> int:
    """The newest position.

    The newest row is never trimmed, so numbers are not used twice. AUTOINCREMENT would not do: a
    statement that fails under OR FAIL keeps the rows that it logged but not their numbers in
    sqlite_sequence, and it costs writers a quarter of their speed.
    """
    row = connection.execute(f"SELECT max(seq) FROM main.{LOG}").fetchone()
    return int(row[0] or 0)


def write_mark(connection: sqlite3.Connection, at: int | None = None) -> int:
    """A new position, at which no row changed: the next one, or one farther on."""
    query = f"INSERT INTO {LOG} (seq, capture, sign, at) VALUES (?, 0, 0, {NOW})"
    connection.execute(query, (at,))
    return newest_position(connection)


def database_id(connection: sqlite3.Connection) -> tuple[str, int]:
    """The database's random id, and the position up to which its log has been trimmed."""
    row = connection.execute("SELECT id, trimmed FROM main._viewkeeper_database").fetchone()
    return str(row[0]), int(row[1])


def schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA main.schema_version").fetchone()[0])


def is_recorded(connection: sqlite3.Connection) -> bool:
    """Whether the shapes that are written down are the current ones."""
    row = connection.execute("SELECT shaped FROM main._viewkeeper_database").fetchone()
    return row is not None and row[0] == schema_version(connection)


def set_recorded(connection: sqlite3.Connection) -> None:
    version = schema_version(connection)
    connection.execute("UPDATE _viewkeeper_database SET shaped = ?", (version,))


def reader_position(connection: sqlite3.Connection, source: str, reader: str) -> int:
    query = "SELECT position FROM main._viewkeeper_reader WHERE reader = ?"
    row = connection.execute(query, (reader,)).fetchone()
    if row is None:
        raise GapError(
            source,
            f'the database does not know the reader "{reader}"',
            detail="it was detached, or the database was restored from before it was followed",
            hint=reload_hint(),
        )
    return int(row[0])


def reader_columns(connection: sqlite3.Connection, reader: str) -> dict[int, list[int]]:
    """The columns that a reader follows, by the tables' numbers."""
    query = "SELECT tables FROM main._viewkeeper_reader WHERE reader = ?"
    row = connection.execute(query, (reader,)).fetchone()
    return _decode_columns(row[0]) if row else {}


def _decode_columns(tables: str) -> dict[int, list[int]]:
    found = json.loads(tables).items()
    return {int(table): [int(column) for column in columns] for table, columns in found}


def register_reader(
    connection: sqlite3.Connection, reader: str, wanted: dict[int, list[int]]
) -> None:
    """Let a reader follow these columns too."""
    known = reader_columns(connection, reader)
    merged = {
        table: sorted({*known.get(table, ()), *wanted.get(table, ())})
        for table in {*known, *wanted}
    }
    connection.execute(
        "INSERT INTO _viewkeeper_reader (reader, position, tables) VALUES (?, ?, ?)"
        " ON CONFLICT (reader) DO UPDATE SET tables = excluded.tables, lease_until = NULL",
        (reader, newest_position(connection), json.dumps(merged)),
    )


def needed_columns(connection: sqlite3.Connection, relation: int) -> set[int]:
    """The columns of a table that any reader follows."""
    rows = connection.execute("SELECT tables FROM main._viewkeeper_reader").fetchall()
    return {column for (tables,) in rows for column in _decode_columns(tables).get(relation, ())}


def is_needed(connection: sqlite3.Connection, relation: int) -> bool:
    rows = connection.execute("SELECT tables FROM main._viewkeeper_reader").fetchall()
    return any(relation in _decode_columns(tables) for (tables,) in rows)


def read_captures(
    connection: sqlite3.Connection, relation: int | None = None
) -> tuple[TableCapture, ...]:
    """The captures of a table, or of all tables, oldest first."""
    query = (
        "SELECT id, relation, columns, since, gap, active, form FROM main._viewkeeper_capture"
        " WHERE ?1 IS NULL OR relation = ?1 ORDER BY id"
    )
    return tuple(
        TableCapture(
            int(number),
            int(table),
            tuple(int(each) for each in json.loads(ids)),
            int(since),
            bool(gap),
            bool(active),
            str(form),
        )
        for number, table, ids, since, gap, active, form in connection.execute(
            query, (relation,)
        ).fetchall()
    )


def active_capture(connection: sqlite3.Connection, relation: int) -> TableCapture | None:
    """The capture of a table that is in force; None if it is gone, or nobody follows it."""
    return next((each for each in read_captures(connection, relation) if each.active), None)
