"""Who follows a database that is captured by triggers: their columns, positions and leases.

Several projects may follow one database. A table is captured once, with the columns that any of
them uses; its log is trimmed up to what the slowest has acknowledged. A lease is a reader whose
name begins with that of its project, and it has an end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg

from viewkeeper.errors import GapError, reload_hint
from viewkeeper.sources.postgres.triggers.log import LoggedTable
from viewkeeper.updates.source_protocol import RetainedLog

_LIVING = "until IS NULL OR until > clock_timestamp()"


def lease_name(reader: str, name: str) -> str:
    return f"{reader}/{name}"


def read_reader(
    connection: psycopg.Connection[Any], reader: str
) -> tuple[int, dict[str, LoggedTable]] | None:
    """A reader's position and what it follows; None if it is not registered."""
    query = "SELECT position, tables FROM viewkeeper.reader WHERE reader = %s"
    row = connection.execute(query, (reader,)).fetchone()
    return None if row is None else (int(row[0]), _decode_tables(row[1]))


def require_reader(
    connection: psycopg.Connection[Any], source: str, reader: str, installed: bool
) -> tuple[int, dict[str, LoggedTable]]:
    found = read_reader(connection, reader) if installed else None
    if found is None:
        raise GapError(
            source,
            "it is not followed any more",
            detail="its log or this project's place in it is gone",
            hint=reload_hint(),
        )
    return found


def _decode_tables(stored: Mapping[str, Any]) -> dict[str, LoggedTable]:
    found: dict[str, LoggedTable] = {}
    for each in stored.values():
        columns = each["columns"]
        # An earlier version kept tables and columns by their names.
        numbers = [facts[0] for facts in columns.values()] if isinstance(columns, dict) else columns
        before = found.get(str(each["oid"]), LoggedTable(each["oid"], ()))
        both = tuple(dict.fromkeys([*before.columns, *numbers]))
        found[str(each["oid"])] = LoggedTable(each["oid"], both, each["partitioned"])
    return found


def write_reader(
    connection: psycopg.Connection[Any],
    reader: str,
    position: int,
    tables: Mapping[str, LoggedTable],
) -> None:
    """Register a reader, or change what it follows; its position stays."""
    stored = {
        name: {"oid": each.oid, "columns": each.columns, "partitioned": each.partitioned}
        for name, each in tables.items()
    }
    connection.execute(
        "INSERT INTO viewkeeper.reader VALUES (%s, %s, %s::jsonb, NULL)"
        " ON CONFLICT (reader) DO UPDATE SET tables = excluded.tables",
        (reader, position, json.dumps(stored)),
    )


def write_lease(
    connection: psycopg.Connection[Any], reader: str, name: str, seconds: float
) -> None:
    """Keep from the reader's own position on what is kept now, for some time."""
    connection.execute(
        "INSERT INTO viewkeeper.reader SELECT %s, position, '{}',"
        " clock_timestamp() + make_interval(secs => %s) FROM viewkeeper.reader WHERE reader = %s"
        " ON CONFLICT (reader) DO UPDATE SET until = excluded.until",
        (lease_name(reader, name), seconds, reader),
    )


def remove_lease(connection: psycopg.Connection[Any], reader: str, name: str) -> None:
    held = (lease_name(reader, name),)
    connection.execute("DELETE FROM viewkeeper.reader WHERE reader = %s", held)


def advance_reader(connection: psycopg.Connection[Any], reader: str, position: int) -> None:
    connection.execute(
        "UPDATE viewkeeper.reader SET position = greatest(position, %s) WHERE reader = %s",
        (position, reader),
    )


def remove_reader(connection: psycopg.Connection[Any], reader: str) -> tuple[bool, tuple[str, ...]]:
    """Remove a reader and its leases; whether it was there, and who else is."""
    own = connection.execute("DELETE FROM viewkeeper.reader WHERE reader = %s", (reader,)).rowcount
    lease = lease_name(reader, "")
    connection.execute("DELETE FROM viewkeeper.reader WHERE starts_with(reader, %s)", (lease,))
    query = "SELECT reader FROM viewkeeper.reader WHERE until IS NULL ORDER BY reader"
    return bool(own), tuple(str(name) for (name,) in connection.execute(query))


def needed_columns(connection: psycopg.Connection[Any]) -> dict[int, set[int]]:
    """Per captured table, by its oid, the numbers of the columns that any reader uses."""
    found: dict[int, set[int]] = {}
    for (stored,) in connection.execute("SELECT tables FROM viewkeeper.reader"):
        for table in _decode_tables(stored).values():
            found.setdefault(table.oid, set()).update(table.columns)
    return found


def retained_by_readers(
    connection: psycopg.Connection[Any], reader: str, tables: Mapping[int, object]
) -> Iterator[RetainedLog]:
    """Who keeps how many rows of the log."""
    query = f"SELECT reader, position, extract(epoch FROM until)::float8 FROM viewkeeper.reader \
WHERE {_LIVING} ORDER BY position, reader"
    for name, position, until in connection.execute(query.encode()).fetchall():
        ours = str(name).partition("/")[0] == reader
        amount = sum(_count_beyond(connection, oid, int(position)) for oid in tables)
        yield RetainedLog(str(name), ours, int(position), amount, until)


def _count_beyond(connection: psycopg.Connection[Any], oid: int, position: int) -> int:
    query = (
        f"SELECT count(*) FROM viewkeeper.log_{oid} g JOIN viewkeeper.look l ON l.position = %s"
        " WHERE g.xid >= pg_snapshot_xmin(l.snapshot)"
        " AND NOT pg_visible_in_snapshot(g.xid, l.snapshot)"
    )
    row = connection.execute(query.encode(), (position,)).fetchone()
    return int(row[0]) if row else 0


def trim_logs(connection: psycopg.Connection[Any]) -> None:
    """Delete what every reader has acknowledged, and looks that nobody can ask for."""
    connection.execute(f"DELETE FROM viewkeeper.reader WHERE NOT ({_LIVING})".encode())
    row = connection.execute(
        "SELECT l.position, pg_snapshot_xmin(l.snapshot)::text FROM viewkeeper.look l"
        " WHERE l.position = (SELECT min(position) FROM viewkeeper.reader)"
    ).fetchone()
    if row is None:
        return
    for oid in needed_columns(connection):
        connection.execute(
            f"DELETE FROM viewkeeper.log_{oid} WHERE xid < %s::xid8".encode(), row[1:]
        )
    connection.execute("DELETE FROM viewkeeper.look WHERE position < %s", row[:1])
    connection.execute(
        "DELETE FROM viewkeeper.shape s WHERE EXISTS (SELECT FROM viewkeeper.shape n"
        " WHERE n.oid = s.oid AND n.position > s.position AND n.position <= %s)",
        row[:1],
    )
