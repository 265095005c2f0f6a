"""Reading the log that triggers write: between two looks, or beyond one in the same snapshot.

A look is a snapshot with a number. The changes between two looks are those that the later snapshot
sees and the earlier does not, told by transaction id; each belongs to the first look that sees it.
Looks are taken one after the other under a lock, so every one sees all that the one before saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from viewkeeper.errors import GapError, SourceError, reload_hint
from viewkeeper.sources.postgres.errors import partly_emptied_error, unlogged_change_error
from viewkeeper.sources.postgres.triggers.installation import log_name
from viewkeeper.sources.postgres.types import quote_literal

TAIL = "SELECT snapshot::text FROM viewkeeper.look WHERE position = %s"


@dataclass(frozen=True, slots=True)
class LoggedTable:
    """A followed table: its oid, and the numbers of its followed columns."""

    oid: int
    columns: tuple[int, ...]
    partitioned: bool = False


@dataclass(frozen=True, slots=True)
class PendingLog:
    """What one look found of one table: where, how much, since when, and what is special."""

    position: int
    changes: int
    oldest_at: float
    emptied: bool
    trouble: SourceError | None


def snapshot_of(connection: psycopg.Connection[Any], source: str, position: int) -> str:
    """The snapshot that a position stands for; a GapError if it is not known any more."""
    row = connection.execute(TAIL, (position,)).fetchone()
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
    """A query for `placed`: each transaction in the range with the first look that sees it."""
    beyond = "" if until is None else f" AND l.position <= {until}"
    return (
        "span AS MATERIALIZED (SELECT DISTINCT g.xid FROM "
        f"{_rows_beyond(log_name(table.oid), since)}),"
        " placed AS MATERIALIZED (SELECT s.xid, (SELECT min(l.position) FROM viewkeeper.look l"
        f" WHERE l.position > {after}{beyond}"
        " AND pg_visible_in_snapshot(s.xid, l.snapshot)) AS look FROM span s)"
    )


def find_pending(
    connection: psycopg.Connection[Any],
    source: str,
    name: str,
    table: LoggedTable,
    after: int,
    since: str,
    newest: int,
) -> Iterator[PendingLog]:
    """What was logged of a table after a look, per look; what none has seen is `newest`'s."""
    log = log_name(table.oid)
    query = (
        f"WITH {_placed_query(table, after, since, None)}, emptied AS (SELECT p.look, "
        "max(g.seq) AS seq"
        f" FROM {log} g JOIN placed p USING (xid) WHERE g.sign = 0 GROUP BY p.look)"
        f" SELECT coalesce(p.look, {newest}), count(*) FILTER (WHERE g.sign IN (1, -1)"
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
        f"WITH {_placed_query(table, after, since, until)}, emptied AS (SELECT p.look, "
        "max(g.seq) AS seq"
        f" FROM {log} g JOIN placed p USING (xid) WHERE g.sign = 0 GROUP BY p.look)"
        f" SELECT {select}g.sign::int8, p.look::int8 FROM {log} g JOIN placed p USING (xid)"
        " LEFT JOIN emptied e USING (look) WHERE p.look IS NOT NULL AND g.sign IN (1, -1)"
        " AND g.seq > coalesce(e.seq, 0) ORDER BY p.look, g.seq"
    )


def tail_query(table: LoggedTable, numbers: Sequence[int], since: str, position: int) -> str:
    """What a snapshot shows of the log beyond an earlier one; also what is no row."""
    select = "".join(f"g.c{number}, " for number in numbers)
    log = _rows_beyond(log_name(table.oid), since)
    return f"SELECT {select}g.sign::int8, {position}::int8 FROM {log} ORDER BY g.seq"
