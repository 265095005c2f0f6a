"""The log that triggers write, read between two looks, and the shapes that looks have seen.

A look is a snapshot with a number. The changes between two looks are those that the later snapshot
sees and the earlier does not, by transaction id; each belongs to the first look that sees it.
Looks are taken one after the other under a lock, so every one sees all that the one before saw.

The shapes that a look's snapshot shows are those of the tables as of the look. Only shapes that
differ from those before are stored, with the look that saw them first. There is no order between a
schema change and the rows that were written between the same two looks; the log has values by
column numbers, so it needs none.

Several projects may follow one database. A table is captured once, with the columns that any of
them uses; its log is trimmed up to what the slowest has acknowledged. A lease is a reader whose
name begins with that of its project, and it has an end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from viewkeeper.errors import GapError, SourceError, reload_hint
from viewkeeper.sources.postgres.errors import partly_emptied_error, unlogged_change_error
from viewkeeper.sources.postgres.shape_query import PostgresShape, decode_shape
from viewkeeper.sources.postgres.shape_steps import PostgresShapeHistory, ShapeStep
from viewkeeper.sources.postgres.triggers.installation import log_name
from viewkeeper.sources.postgres.types import PgConnection, quote_literal, read_row
from viewkeeper.updates.source_protocol import RetainedLog

_SNAPSHOT = "SELECT snapshot::text FROM viewkeeper.look WHERE position = %s"

_STEPS = "SELECT position, shape FROM viewkeeper.shape ORDER BY position"


@dataclass(frozen=True, slots=True)
class LoggedTable:
    """A followed table: its oid, and the numbers of its followed columns."""

    oid: int
    columns: tuple[int, ...]
    partitioned: bool = False


@dataclass(frozen=True, slots=True)
class PendingLog:
    """The changes of one table that one look saw: how many, since when, and what is special."""

    position: int
    changes: int
    oldest_at: float
    emptied: bool
    trouble: SourceError | None


def snapshot_of(connection: PgConnection, source: str, position: int) -> str:
    """The snapshot that a position stands for; a GapError if it is not known any more."""
    row = connection.execute(_SNAPSHOT, (position,)).fetchone()
    if row is None:
        raise GapError(
            source,
            f"position {position} is not one that this database has given",
            detail="its log was trimmed or removed, or it was restored from a backup",
            hint=reload_hint(),
        )
    return str(row[0])


def _rows_beyond(log: str, after: str) -> str:
    """The transactions that the log shows here and an earlier snapshot does not see."""
    seen = f"{quote_literal(after)}::pg_snapshot"
    return (
        f"{log} g WHERE g.xid >= pg_snapshot_xmin({seen})"
        f" AND NOT pg_visible_in_snapshot(g.xid, {seen})"
    )


def _placed_query(table: LoggedTable, after: int, since: str, until: int | None) -> str:
    """Queries for `placed`, each transaction in the range with the first look that sees it, and for
    `emptied`, where in the log a look saw the table emptied last."""
    log, beyond = log_name(table.oid), "" if until is None else f" AND l.position <= {until}"
    return (
        f"WITH span AS MATERIALIZED (SELECT DISTINCT g.xid FROM {_rows_beyond(log, since)}),"
        " placed AS MATERIALIZED (SELECT s.xid, (SELECT min(l.position) FROM viewkeeper.look l"
        f" WHERE l.position > {after}{beyond}"
        " AND pg_visible_in_snapshot(s.xid, l.snapshot)) AS look FROM span s),"
        f" emptied AS (SELECT p.look, max(g.seq) AS seq FROM {log} g JOIN placed p USING (xid)"
        " WHERE g.sign = 0 GROUP BY p.look)"
    )


def find_pending(
    connection: PgConnection, source: str, name: str, table: LoggedTable, after: int, since: str
) -> Iterator[PendingLog]:
    """What was logged of a table after a look, per look; position 0 if none has seen it."""
    log = log_name(table.oid)
    query = (
        f"{_placed_query(table, after, since, None)}"
        " SELECT coalesce(p.look, 0), count(*) FILTER (WHERE g.sign IN (1, -1)"
        " AND g.seq > coalesce(e.seq, 0)), extract(epoch FROM min(g.at))::float8,"
        " bool_or(g.sign = 0), bool_or(g.sign IS NULL), bool_or(g.sign = -2)"
        f" FROM {log} g JOIN placed p USING (xid)"
        " LEFT JOIN emptied e ON e.look IS NOT DISTINCT FROM p.look GROUP BY 1 ORDER BY 1"
    )
    for position, changes, oldest, emptied, failed, partly in connection.execute(query.encode()):
        trouble: SourceError | None = None
        if failed:
            trouble = unlogged_change_error(source, name)
        elif partly and not emptied:
            trouble = partly_emptied_error(source, name)
        yield PendingLog(int(position), int(changes), float(oldest), bool(emptied), trouble)


def changes_query(
    table: LoggedTable, numbers: Sequence[int], after: int, since: str, until: int
) -> str:
    """The changes of these columns between two looks, in order."""
    log = log_name(table.oid)
    select = "".join(f"g.c{number}, " for number in numbers)
    return (
        f"{_placed_query(table, after, since, until)} SELECT {select}g.sign::int8, p.look::int8"
        f" FROM {log} g JOIN placed p USING (xid)"
        " LEFT JOIN emptied e USING (look) WHERE p.look IS NOT NULL AND g.sign IN (1, -1)"
        " AND g.seq > coalesce(e.seq, 0) ORDER BY p.look, g.seq"
    )


def tail_query(table: LoggedTable, numbers: Sequence[int], since: str, position: int) -> str:
    """The entries of the log that a snapshot shows and an earlier one does not."""
    select = "".join(f"g.c{number}, " for number in numbers)
    log = _rows_beyond(log_name(table.oid), since)
    return f"SELECT {select}g.sign::int8, {position}::int8 FROM {log} ORDER BY g.seq"


def read_history(connection: PgConnection) -> PostgresShapeHistory:
    """The shapes that are stored; the first of a table is what it began with."""
    # A trigger logs a column from when it is followed; values from before are not in the log.
    history = PostgresShapeHistory(with_generated=True, captures_added=False)
    for position, stored in connection.execute(_STEPS):
        shape = decode_shape(stored)
        if shape.oid in history:
            history.add_step(ShapeStep(int(position), shape))
        else:
            history.begin_table(shape)
    return history


def store_shapes(
    connection: PgConnection, position: int, shapes: Mapping[int, PostgresShape]
) -> None:
    """Store these shapes, which the tables have from a position on."""
    for oid, shape in shapes.items():
        connection.execute(
            "INSERT INTO viewkeeper.shape VALUES (%s, %s, %s::jsonb) ON CONFLICT DO NOTHING",
            (position, oid, json.dumps(asdict(shape))),
        )


def look_times(connection: PgConnection, positions: set[int]) -> dict[int, float]:
    """When looks were taken."""
    query = (
        "SELECT position, extract(epoch FROM at)::float8 FROM viewkeeper.look"
        " WHERE position = ANY(%s)"
    )
    rows = connection.execute(query, (sorted(positions),))
    return {int(position): float(at) for position, at in rows}


_LIVING = "until IS NULL OR until > clock_timestamp()"


def lease_name(reader: str, name: str) -> str:
    return f"{reader}/{name}"


def read_reader(connection: PgConnection, reader: str) -> tuple[int, dict[str, LoggedTable]] | None:
    """A reader's position and what it follows; None if it is not registered."""
    query = "SELECT position, tables FROM viewkeeper.reader WHERE reader = %s"
    row = connection.execute(query, (reader,)).fetchone()
    return None if row is None else (int(row[0]), _decode_tables(row[1]))


def require_reader(
    connection: PgConnection, source: str, reader: str, installed: bool
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
    connection: PgConnection, reader: str, position: int, tables: Mapping[str, LoggedTable]
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


def write_lease(connection: PgConnection, reader: str, name: str, seconds: float) -> None:
    """Keep from the reader's own position on what is kept now, for some time."""
    connection.execute(
        "INSERT INTO viewkeeper.reader SELECT %s, position, '{}',"
        " clock_timestamp() + make_interval(secs => %s) FROM viewkeeper.reader WHERE reader = %s"
        " ON CONFLICT (reader) DO UPDATE SET until = excluded.until",
        (lease_name(reader, name), seconds, reader),
    )


def remove_lease(connection: PgConnection, reader: str, name: str) -> None:
    held = (lease_name(reader, name),)
    connection.execute("DELETE FROM viewkeeper.reader WHERE reader = %s", held)


def advance_reader(connection: PgConnection, reader: str, position: int) -> None:
    connection.execute(
        "UPDATE viewkeeper.reader SET position = greatest(position, %s) WHERE reader = %s",
        (position, reader),
    )


def remove_reader(connection: PgConnection, reader: str) -> tuple[bool, tuple[str, ...]]:
    """Remove a reader and its leases; whether it was there, and who else is."""
    own = connection.execute("DELETE FROM viewkeeper.reader WHERE reader = %s", (reader,)).rowcount
    lease = lease_name(reader, "")
    connection.execute("DELETE FROM viewkeeper.reader WHERE starts_with(reader, %s)", (lease,))
    query = "SELECT reader FROM viewkeeper.reader WHERE until IS NULL ORDER BY reader"
    return bool(own), tuple(str(name) for (name,) in connection.execute(query))


def needed_columns(connection: PgConnection) -> dict[int, set[int]]:
    """Per captured table, by its oid, the numbers of the columns that any reader uses."""
    found: dict[int, set[int]] = {}
    for (stored,) in connection.execute("SELECT tables FROM viewkeeper.reader"):
        for table in _decode_tables(stored).values():
            found.setdefault(table.oid, set()).update(table.columns)
    return found


def retained_by_readers(
    connection: PgConnection, reader: str, tables: Mapping[int, object]
) -> Iterator[RetainedLog]:
    """Who keeps how many rows of the log."""
    query = f"SELECT reader, position, extract(epoch FROM until)::float8 FROM viewkeeper.reader \
WHERE {_LIVING} ORDER BY position, reader"
    for name, position, until in connection.execute(query.encode()).fetchall():
        ours = str(name).partition("/")[0] == reader
        amount = sum(_count_beyond(connection, oid, int(position)) for oid in tables)
        yield RetainedLog(str(name), ours, int(position), amount, until)


def _count_beyond(connection: PgConnection, oid: int, position: int) -> int:
    query = (
        f"SELECT count(*) FROM viewkeeper.log_{oid} g JOIN viewkeeper.look l ON l.position = %s"
        " WHERE g.xid >= pg_snapshot_xmin(l.snapshot)"
        " AND NOT pg_visible_in_snapshot(g.xid, l.snapshot)"
    )
    return int(read_row(connection, query, (position,))[0])


def trim_logs(connection: PgConnection) -> None:
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
