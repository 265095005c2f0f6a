"""The replication slot and the publication of a project: made, extended, watched and dropped.

The slot keeps the log for us; the publication says which tables come. It lists tables one by one (a
publication of all tables would make UPDATE and DELETE fail at the source for tables without a key),
and publishes partitions under their own names: under the root's name PostgreSQL would leave out a
TRUNCATE of one partition, and would show a row that a partition without FULL identity deleted as if
its other columns had been NULL.

The publication is made before the slot, because decoding looks it up in the catalogues as they were
at the time of each change.

What happened in transactions that were open when the capture began is not, or only partly, in the
stream. The *gate* waits until all of them are visible: a snapshot that is opened afterwards
has them, and the position that is returned lies after them.

A project remembers which server it was, what is followed, and the newest transaction that was
reported: its position, id and commit time. When a stream is opened, that transaction must come
again. If it does not, this is another server, or one that was restored to an earlier state, and
nothing may go on over the gap. The shapes that followed tables had since the last acknowledged
position (`shape_steps`) are in a file of their own, which is seldom written.

The files are replaced as a whole. They are durable before the slot is advanced. What merely was
reported since may be lost with the power, or, where the warehouse is in object storage, with the
process: then an earlier transaction, which the server still sends, is the one that must come again.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from psycopg import errors

from viewkeeper.errors import SchemaError, SourceAwayError
from viewkeeper.sources.postgres.schema import PostgresTable
from viewkeeper.sources.postgres.types import PgConnection, quote_name, read_row
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.storage.typed_json import read_typed

_NAME_MAX = 63
_GATE_PAUSE_SECONDS = 0.02

_SLOT = """
SELECT active_pid, coalesce(wal_status, ''), (confirmed_flush_lsn - '0/0')::int8,
       (pg_current_wal_lsn() - restart_lsn)::int8, safe_wal_size, database, coalesce(plugin, '')
  FROM pg_replication_slots WHERE slot_name = %s
"""
_END_STREAM = """
SELECT pg_terminate_backend(a.pid, %s) FROM pg_replication_slots s
  JOIN pg_stat_activity a ON a.pid = s.active_pid
 WHERE s.slot_name = %s AND s.database = current_database() AND a.application_name = %s
"""
_END_MS = 5_000
_PUBLICATION = """
SELECT puballtables, pubviaroot, pubinsert AND pubupdate AND pubdelete AND pubtruncate
  FROM pg_publication WHERE pubname = %s
"""
_PUBLISHED = """
SELECT r.prrelid::int8, coalesce(to_jsonb(r) ->> 'prqual', to_jsonb(r) ->> 'prattrs') IS NOT NULL
  FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE p.pubname = %s
"""
_OTHERS = """
SELECT slot_name FROM pg_replication_slots
 WHERE slot_type = 'logical' AND database = current_database() AND plugin = 'pgoutput' ORDER BY 1
"""
_OPEN = """
SELECT 'session ' || pid || ' (' || coalesce(nullif(application_name, ''), usename)
       || '), open for ' || extract(epoch FROM clock_timestamp() - xact_start)::int || ' s'
  FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
 UNION ALL SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts LIMIT 5
"""


@dataclass(frozen=True, slots=True)
class ReplicationSlot:
    """A slot as the server shows it: how far it is confirmed, and what it keeps, in bytes."""

    active_pid: int | None
    status: str
    confirmed: int | None
    retained: int | None
    safe: int | None
    database: str | None
    plugin: str

    @property
    def is_lost(self) -> bool:
        return self.status == "lost" or self.confirmed is None or self.retained is None


@dataclass(frozen=True, slots=True)
class SlotNames:
    """What a project calls its slot and its publication; `derived` is the name that both have if
    the settings give none, and that its event triggers have in any case."""

    slot: str
    publication: str
    derived: str


def slot_names(settings: SourceSettings, reader: str) -> SlotNames:
    """The names of this project for this source, unique on the whole server."""
    derived = derived_name(settings, reader)
    publication = settings.read_text("publication") or derived
    if len(publication.encode()) > _NAME_MAX:
        raise SchemaError(
            settings.name,
            f'the name of the publication "{publication}" is too long',
            hint=f"PostgreSQL cuts names off after {_NAME_MAX} bytes; choose a shorter one",
        )
    return SlotNames(settings.read_text("slot") or derived, publication, derived)


def derived_name(settings: SourceSettings, reader: str) -> str:
    """Readable, of the letters that a slot may have, and different for different projects."""
    whole = f"{reader}/{settings.name}"
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    plain = re.sub(r"[^a-z0-9]+", "_", settings.name.lower()).strip("_")
    return f"viewkeeper_{plain[: _NAME_MAX - len('viewkeeper__') - len(digest)]}_{digest}"


def read_slot(connection: PgConnection, name: str) -> ReplicationSlot | None:
    row = connection.execute(_SLOT, (name,)).fetchone()
    return None if row is None else ReplicationSlot(*row)


def check_ours(source: str, name: str, slot: ReplicationSlot | None, database: str) -> None:
    """A SchemaError if a slot of that name serves something else: it is not ours to drop."""
    if slot is not None and (slot.database != database or slot.plugin != "pgoutput"):
        raise SchemaError(
            source,
            f'the replication slot "{name}" belongs to something else',
            detail=f"it decodes database {slot.database} with {slot.plugin or 'no plugin'}",
            hint="give the source another `slot:` in viewkeeper.yml",
        )


def create_slot(connection: PgConnection, source: str, name: str) -> None:
    """Make the slot; it waits for the transactions that are open now to end."""
    try:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
    except errors.QueryCanceled:
        raise _waiting_error(connection, source) from None
    except errors.ObjectNotInPrerequisiteState as error:
        raise SchemaError(
            source,
            "the server does not allow logical decoding",
            detail=str(error),
            hint="ALTER SYSTEM SET wal_level = logical, then restart the server; "
            "or set `capture: triggers`",
        ) from None
    except errors.ConfigurationLimitExceeded as error:
        raise SchemaError(
            source,
            "the server has no free replication slot",
            detail=str(error),
            hint="ALTER SYSTEM SET max_replication_slots = 20, then restart the server",
        ) from None
    except errors.InsufficientPrivilege as error:
        raise SchemaError(
            source,
            "the role may not make a replication slot",
            detail=str(error),
            hint=f"ALTER ROLE {quote_name(str(connection.info.user))} REPLICATION; "
            "or set `capture: triggers`",
        ) from None


def drop_slot(connection: PgConnection, source: str, name: str) -> bool:
    """Drop the slot if it is there; waits a little for a connection of ours that just ended."""
    for _ in range(50):
        try:
            query = (
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                " WHERE slot_name = %s"
            )
            return connection.execute(query, (name,)).fetchone() is not None
        except errors.ObjectInUse:
            time.sleep(0.1)
    raise SourceAwayError(
        source,
        f'its slot "{name}" is used by another process',
        hint="stop the `viewkeeper run` that uses it",
    )


def end_stream(connection: PgConnection, slot: str, connection_name: str) -> None:
    """End the connection that streams from a slot, if it has this name, and wait for its end.

    Where the role may not, the slot is found to be in use.
    """
    with suppress(errors.InsufficientPrivilege):
        connection.execute(_END_STREAM, (_END_MS, slot, connection_name))


def ensure_publication(
    connection: PgConnection, source: str, name: str, tables: Iterable[PostgresTable]
) -> tuple[bool, bool]:
    """Publish these tables; whether the publication was made, and whether it was changed."""
    wanted = {table.oid: table for table in tables}
    row = connection.execute(_PUBLICATION, (name,)).fetchone()
    listed = ", ".join(table.quoted_name for table in wanted.values())
    if row is None:
        _run_publication(
            connection, source, f"CREATE PUBLICATION {quote_name(name)} FOR TABLE {listed}"
        )
        return True, True
    every, via_root, whole = row
    if not whole or (via_root and any(table.partitioned for table in wanted.values())):
        settings = (
            "publish = 'insert, update, delete, truncate', publish_via_partition_root = false"
        )
        _run_publication(
            connection, source, f"ALTER PUBLICATION {quote_name(name)} SET ({settings})"
        )
    if every:
        return False, not whole or via_root
    published = dict(connection.execute(_PUBLISHED, (name,)).fetchall())
    filtered = [table.quoted_name for oid, table in wanted.items() if published.get(oid)]
    if filtered:
        raise SchemaError(
            source,
            f'publication "{name}" publishes only some rows or columns of {", ".join(filtered)}',
            hint=f"ALTER PUBLICATION {quote_name(name)} DROP TABLE {', '.join(filtered)}, then "
            f"ALTER PUBLICATION {quote_name(name)} ADD TABLE {', '.join(filtered)}",
        )
    missing = ", ".join(table.quoted_name for oid, table in wanted.items() if oid not in published)
    if missing:
        _run_publication(
            connection, source, f"ALTER PUBLICATION {quote_name(name)} ADD TABLE {missing}"
        )
    return False, bool(missing) or not whole or via_root


def _run_publication(connection: PgConnection, source: str, statement: str) -> None:
    try:
        connection.execute(statement.encode())
    except (errors.InsufficientPrivilege, errors.WrongObjectType) as error:
        raise SchemaError(
            source,
            "the role may not publish these tables",
            detail=str(error).strip(),
            hint=f"let the tables' owner run: {statement};",
        ) from None


def drop_publication(connection: PgConnection, name: str, is_shared: bool) -> tuple[str, ...]:
    """Drop the publication; why it is left alone, if it is.

    One whose name the user chose may serve other projects too. A server does not tell which slots
    are read through it, so it stays as long as there is any other one.
    """
    others = [str(slot) for (slot,) in connection.execute(_OTHERS)] if is_shared else []
    if others:
        slots = ", ".join(others)
        return (f'publication "{name}", which others may read through: slots {slots}',)
    try:
        with connection.transaction():
            connection.execute(f"DROP PUBLICATION IF EXISTS {quote_name(name)}".encode())
    except errors.InsufficientPrivilege:
        return (f'publication "{name}", which belongs to another role',)
    return ()


def emit_mark(connection: PgConnection, mark: str) -> int:
    """Commit an empty transaction that carries a mark through the stream; its 64-bit id."""
    query = "SELECT pg_current_xact_id()::text::int8, pg_logical_emit_message(true, %s, %s::text)"
    return int(read_row(connection, query, ("viewkeeper", mark))[0])


def pass_gate(connection: PgConnection, source: str, xid: int, seconds: float) -> None:
    """Wait until every transaction up to `xid` has ended and is visible."""
    end = time.monotonic() + seconds
    query = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::int8"
    while True:
        if int(read_row(connection, query)[0]) > xid:
            return
        if time.monotonic() > end:
            raise _waiting_error(connection, source)
        time.sleep(_GATE_PAUSE_SECONDS)


def _waiting_error(connection: PgConnection, source: str) -> SourceAwayError:
    open_now: Sequence[str] = [str(text) for (text,) in connection.execute(_OPEN)]
    return SourceAwayError(
        source,
        "following has to wait for transactions that are still open",
        detail="; ".join(open_now) or None,
        hint="end them, or wait; it is tried again",
    )


def flushed_position(control: PgConnection) -> int:
    """Up to where the server has flushed its log."""
    return int(read_row(control, "SELECT (pg_current_wal_flush_lsn() - '0/0')::int8")[0])


FILE = "state.json"
SHAPES = "shapes.json"
VERSION = 2
"""A state file of another version cannot be continued."""


@dataclass(frozen=True, slots=True)
class KnownTransaction:
    """A transaction that was reported, distinct from any other that may take its position."""

    position: int
    id: int
    committed_us: int


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """A table by its oid; columns and key by their numbers; the oids of its partitions."""

    oid: int
    columns: tuple[int, ...]
    key: tuple[int, ...] = ()
    leaves: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PostgresState:
    """The whole file. `made_publication` says that the publication is ours to drop; up to `floor`
    nothing is asked for any more, even if the server should send it again."""

    system: str
    timeline: int
    slot: str
    made_publication: bool = False
    newest: KnownTransaction | None = None
    tables: Mapping[str, FollowedTable] = field(default_factory=dict)
    floor: int = 0
    version: int = VERSION


def read_state(files: StateFiles) -> PostgresState | None:
    """What was remembered; None if nothing was."""
    return files.read_file(FILE, "state", _decode_state)


def _decode_state(stored: Any) -> PostgresState:
    if stored.get("version") != VERSION:
        known = {name: stored[name] for name in ("system", "timeline", "slot")}
        return read_typed(PostgresState, {**known, "version": 0})
    return read_typed(PostgresState, stored)


def write_state(files: StateFiles, state: PostgresState, durable: bool) -> None:
    """What is not durable may be lost with the power, or, in object storage, with the process."""
    if durable:
        files.write_file(FILE, "state", asdict(state))
    else:
        files.note_file(FILE, "state", asdict(state), durable=False)


def read_steps(files: StateFiles) -> list[list[dict[str, Any]]]:
    """The steps that were remembered, per table."""
    read = partial(read_typed, list[list[dict[str, Any]]])
    return files.read_file(SHAPES, "shapes", read) or []


def write_steps(files: StateFiles, steps: list[list[dict[str, Any]]]) -> None:
    files.write_file(SHAPES, "shapes", steps)


def forget_state(files: StateFiles) -> None:
    files.remove_files((FILE, SHAPES))
