"""The health of a SQLite source for `status`, and its findings for `doctor`.

Both read in one short transaction and change nothing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from viewkeeper.errors import SourceError
from viewkeeper.sources.handles import Book
from viewkeeper.sources.sqlite.capture import capture_tables
from viewkeeper.sources.sqlite.database import OLDEST_LIBRARY, journal_mode
from viewkeeper.sources.sqlite.handle_lookup import find_handle
from viewkeeper.sources.sqlite.log import captures_of_reader, summarize_changes
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import ChangesBehind, Finding, Health, RetainedLog, Tables


def health_of_log(connection: sqlite3.Connection, reader: str, positions: Iterable[int]) -> Health:
    """The state of the log, and who keeps it from where on."""
    if not capture_tables.is_installed(connection):
        return Health(followed=False, position=None)
    end, (_, trimmed) = (
        capture_tables.newest_position(connection),
        capture_tables.database_id(connection),
    )
    rows = connection.execute(
        "SELECT reader, position, lease_until FROM main._viewkeeper_reader ORDER BY position"
    ).fetchall()
    readers = tuple(
        RetainedLog(name, name.partition("/")[0] == reader, at, max(0, end - at), until)
        for name, at, until in rows
    )
    return Health(
        followed=any(kept.reader == reader for kept in readers),
        position=end,
        retained=end - trimmed,
        readers=readers,
        behind={at: _behind_of(connection, reader, at, end) for at in positions},
    )


def _behind_of(
    connection: sqlite3.Connection, reader: str, after: int, until: int
) -> ChangesBehind:
    found = summarize_changes(connection, captures_of_reader(connection, reader), after, until)
    return ChangesBehind(found.changes, found.oldest_at)


def wal_advice(source: str, path: Path, mode: str) -> str | None:
    """What to say of a database whose readers and writers wait for each other.

    `wal` is recommended: else our reads make the application's writers wait.
    """
    if mode == "wal":
        return None
    return (
        f'source "{source}" has the journal mode {mode}: our reads make its writers wait, and '
        f"theirs ours; {wal_statement(path)} switches it for good"
    )


def wal_statement(path: Path) -> str:
    return f"sqlite3 {path} 'PRAGMA journal_mode = WAL'"


def database_findings(
    connection: sqlite3.Connection, source: str, path: Path, book: Book, reader: str, tables: Tables
) -> list[Finding]:
    """Everything that can be wrong with a database that answers."""
    return [
        Finding("reachable", "good", f"{path} answers"),
        _check_library(),
        _check_writable(path),
        _check_journal(path, journal_mode(connection)),
        *(
            _check_table(connection, source, book, name, columns)
            for name, columns in tables.items()
        ),
        _check_followed(connection, reader),
    ]


def _check_library() -> Finding:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info >= OLDEST_LIBRARY:
        return Finding("version", "good", f"SQLite {version}")
    needed = ".".join(map(str, OLDEST_LIBRARY))
    return Finding("version", "bad", f"SQLite {version} is too old", f"SQLite {needed} or newer")


def _check_writable(path: Path) -> Finding:
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return Finding("privileges", "good", "the file and its folder can be written")
    return Finding(
        "privileges",
        "bad",
        "our triggers and log cannot be put into it: the file or its folder is read-only for us",
        f"chmod u+w {path} {path.parent}, or run as their owner",
    )


def _check_journal(path: Path, mode: str) -> Finding:
    if mode == "wal":
        return Finding("journal mode", "good", "wal: readers and writers do not wait")
    text = f"{mode}: our reads make its writers wait, and theirs ours"
    return Finding("journal mode", "warning", text, wal_statement(path))


def _check_table(
    connection: sqlite3.Connection, source: str, book: Book, handle: str, columns: Iterable[str]
) -> Finding:
    check = f"table {name_of_handle(handle)}"
    try:
        kinds = find_handle(connection, source, book, handle).layout_of(tuple(columns)).kinds
    except SourceError as error:
        return Finding(check, "bad", error.message, error.hint)
    return Finding(check, "good", f"{len(kinds)} columns can be kept exactly")


def _check_followed(connection: sqlite3.Connection, reader: str) -> Finding:
    found = health_of_log(connection, reader, ())
    if not found.followed:
        return Finding("retention", "good", "not followed yet; the first run begins")
    oldest = min(found.readers, key=lambda kept: kept.position)
    who = "this project" if oldest.ours else f"project {oldest.reader[:8]}"
    return Finding(
        "retention", "good", f"the log keeps {found.retained:,} changes, the oldest for {who}"
    )
