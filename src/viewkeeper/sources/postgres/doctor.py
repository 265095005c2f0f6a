"""How a source is that is captured by decoding: its health for `status`, its findings for `doctor`.

Both ask the server's own views and never touch the stream, so that they can be asked beside a
maintainer. What a slot keeps of the log is the danger: it can fill the server's disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from viewkeeper.errors import SchemaError, SourceError
from viewkeeper.sources.postgres.database_description import PostgresDescriber
from viewkeeper.sources.postgres.decoding.ddl_watch import is_watched, watch_statements
from viewkeeper.sources.postgres.decoding.follow import SlotFollower
from viewkeeper.sources.postgres.decoding.slot import ReplicationSlot, flushed_position, read_slot
from viewkeeper.sources.postgres.decoding.source_stream import retention_of
from viewkeeper.sources.postgres.errors import format_size
from viewkeeper.sources.postgres.postgres_server import OLDEST_VERSION
from viewkeeper.sources.postgres.schema import PostgresTable, missing_grants, read_table
from viewkeeper.sources.postgres.types import PgConnection, quote_name, read_row
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import (
    Finding,
    Health,
    RetainedLog,
    Tables,
    finding_of_error,
)

_SLOTS = """
SELECT slot_name, (confirmed_flush_lsn - '0/0')::int8,
       coalesce((pg_current_wal_lsn() - restart_lsn)::int8, 0)
  FROM pg_replication_slots
 WHERE slot_type = 'logical' AND database = current_database() AND plugin = 'pgoutput'
   AND (slot_name LIKE 'viewkeeper%%' OR slot_name = %s) AND confirmed_flush_lsn IS NOT NULL
 ORDER BY 2
"""
_LIMITS = """
SELECT current_setting('wal_level'),
       current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots),
       current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_stat_replication),
       current_setting('max_slot_wal_keep_size'),
       (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user),
       extract(epoch FROM clock_timestamp())::float8,
       has_database_privilege(current_database(), 'CREATE')
"""
_NAMES = """
SELECT nspname, relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
 WHERE c.oid = ANY(%s)
"""
_OWNED = "SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM pg_class WHERE oid = ANY(%s)"
_PUBLISHER = "SELECT pg_has_role(pubowner, 'USAGE') FROM pg_publication WHERE pubname = %s"
_CLOCK_SECONDS = 5.0


class SlotDoctor:
    """Examines one source that is captured by logical decoding."""

    def __init__(self, describer: PostgresDescriber, follower: SlotFollower) -> None:
        self._describer = describer
        self._follower = follower
        self._connections = describer.connections
        self._settings = describer.connections.server.settings

    def read_health(self, positions: Iterable[int]) -> Health:
        """Who keeps how much of the log, and what somebody should read about it; the stream is
        not touched."""
        names = self._follower.names
        with self._connections.use_control() as control:
            position = flushed_position(control)
            slot = read_slot(control, names.slot)
            if slot is None:
                return Health(followed=False, position=position, unit="bytes")
            readers = tuple(
                RetainedLog(str(name), name == names.slot, int(at), int(amount))
                for name, at, amount in control.execute(_SLOTS, (names.slot,))
            )
        warnings = tuple(_slot_warnings(names.slot, slot, retention_of(self._settings)))
        return Health(True, position, slot.retained or 0, "bytes", readers, warnings=warnings)

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        """Everything that can be wrong; one finding if the server does not answer."""
        try:
            with self._connections.use_control() as control:
                return list(self._examine_server(control, tables))
        except SourceError as error:
            return [finding_of_error("reachable", error)]

    def _examine_server(self, control: PgConnection, tables: Tables) -> Iterator[Finding]:
        names = self._follower.names
        version = control.info.server_version
        good = version >= OLDEST_VERSION
        yield Finding("reachable", "good", "the server answers")
        yield Finding(
            "version",
            "good" if good else "bad",
            f"PostgreSQL {version // 10000}.{version % 10000}",
            None if good else "PostgreSQL 14 or newer",
        )
        level, slots, senders, keep, replication, now, create = read_row(control, _LIMITS)
        slot = read_slot(control, names.slot)
        yield _check_wal_level(level)
        yield _check_free("replication slots", "max_replication_slots", slots, slot is not None)
        yield _check_free("wal senders", "max_wal_senders", senders, slot is not None)
        yield _check_replication(control.info.user, bool(replication))
        yield self._check_publication(control, tables, bool(create))
        for name, columns in tables.items():
            yield from self._check_table(control, name, columns)
        yield _check_watch(control, names.derived)
        yield _check_retention(names.slot, slot, retention_of(self._settings), str(keep))
        yield check_clock(float(now))

    def _check_publication(self, control: PgConnection, tables: Tables, create: bool) -> Finding:
        """Whether every table is published, or can be by us."""
        publication = self._follower.names.publication
        query = "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s"
        published = set(control.execute(query, (publication,)).fetchall())
        missing = []
        for name in tables:
            try:
                table = self._describer.find_by_handle(control, name)
            except SchemaError:
                continue
            if table is None:
                continue
            leaves = {part.oid for part in table.parts}
            if not published.issuperset(control.execute(_NAMES, (list(leaves),)).fetchall()):
                missing.append(table)
        if not missing:
            return Finding("publication", "good", f'"{publication}" has all tables')
        (is_owned,) = read_row(control, _OWNED, ([table.oid for table in missing],))
        row = control.execute(_PUBLISHER, (publication,)).fetchone()
        if is_owned and (create if row is None else row[0]):
            return Finding("publication", "good", "will be made when the first view is loaded")
        verbs = "CREATE PUBLICATION {} FOR" if row is None else "ALTER PUBLICATION {} ADD"
        listed = ", ".join(table.quoted_name for table in missing)
        mend = f"{verbs.format(quote_name(publication))} TABLE {listed};"
        text = "the role can neither make nor extend it; let the tables' owner do it"
        return Finding("publication", "bad", text, mend)

    def _check_table(
        self, control: PgConnection, name: str, columns: Sequence[str]
    ) -> Iterator[Finding]:
        check = f"table {name_of_handle(name)}"
        try:
            table = self._describer.find_by_handle(control, name) or read_table(
                control, self._describer.source, name_of_handle(name)
            )
        except SchemaError as error:
            yield finding_of_error(check, error)
            return
        yield from table_findings(
            control, check, table, columns, self._follower.find_obstacles(table, columns)
        )


def table_findings(
    control: PgConnection,
    check: str,
    table: PostgresTable,
    columns: Sequence[str],
    obstacles: Sequence[SchemaError],
) -> Iterator[Finding]:
    """Everything that a table lacks: grants, and what the obstacles ask for."""
    if grants := missing_grants(control, table):
        yield Finding(check, "bad", "the role may not read it", "\n".join(grants))
    yield from (finding_of_error(check, error) for error in obstacles)
    if not grants and not obstacles:
        yield Finding(check, "good", f"{len(columns)} columns can be kept exactly")


def _slot_warnings(name: str, slot: ReplicationSlot, retention: int) -> Iterator[str]:
    retained = slot.retained or 0
    if slot.is_lost:
        yield f'slot "{name}" has lost changes that are still needed'
    elif slot.status in ("unreserved", "extended") and slot.safe is not None:
        yield (
            f'slot "{name}" keeps {format_size(retained)} of the log; the server will drop it '
            f"after {format_size(max(slot.safe, 0))} more (max_slot_wal_keep_size)"
        )
    if retained > retention / 2:
        yield (
            f'slot "{name}" keeps {format_size(retained)} of the log on the server\'s disk; '
            f"it is dropped at {format_size(retention)} (option retention)"
        )


def _check_wal_level(level: str) -> Finding:
    if level == "logical":
        return Finding("wal_level", "good", "logical")
    mend = "ALTER SYSTEM SET wal_level = logical; -- then restart the server\n"
    mend += "-- or, where that is not allowed, set `capture: triggers` in viewkeeper.yml"
    return Finding("wal_level", "bad", f"{level}: the server does not decode its log", mend)


def _check_free(check: str, setting: str, free: int, have: bool) -> Finding:
    if free > 0:
        return Finding(check, "good", f"{free} are free")
    mend = f"ALTER SYSTEM SET {setting} = 20; -- then restart the server"
    text = "none is free; `verify` beside a run needs one" if have else "none is free"
    return Finding(check, "warning" if have else "bad", text, mend)


def _check_replication(user: str, allowed: bool) -> Finding:
    if allowed:
        return Finding("privileges", "good", "the role may use replication slots")
    mend = f"ALTER ROLE {quote_name(user)} REPLICATION;"
    return Finding("privileges", "bad", "the role may not use replication slots", mend)


def _check_watch(control: PgConnection, name: str) -> Finding:
    """How schema changes become known."""
    query = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
    if is_watched(control, name) or read_row(control, query)[0]:
        return Finding("schema changes", "good", "event triggers tell of them")
    text = "looks find them: not exactly where they were, and a new type counts as new values"
    mend = "-- a superuser may let event triggers tell:\n"
    return Finding("schema changes", "good", text, mend + ";\n".join([*watch_statements(name), ""]))


def _check_retention(name: str, slot: ReplicationSlot | None, retention: int, keep: str) -> Finding:
    if slot is None:
        return Finding("retention", "good", "not followed yet; the first run begins")
    troubles = list(_slot_warnings(name, slot, retention))
    if troubles:
        mend = "let `viewkeeper run` catch up, or `viewkeeper detach` if it is not needed any more"
        return Finding("retention", "bad" if slot.is_lost else "warning", troubles[0], mend)
    text = f"the slot keeps {format_size(slot.retained or 0)} of the log"
    if keep == "-1":
        mend = "ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'; SELECT pg_reload_conf();"
        text += "; the server itself sets no limit while Viewkeeper is not running"
        return Finding("retention", "warning", text, mend)
    return Finding("retention", "good", f"{text}, at most {keep}")


def check_clock(now: float) -> Finding:
    """How far the server's clock is from ours; lag is computed from both."""
    difference = now - time.time()
    if abs(difference) <= _CLOCK_SECONDS:
        return Finding("clock", "good", f"differs by {difference:.1f} s")
    return Finding(
        "clock",
        "warning",
        f"the server's clock differs by {difference:.0f} s, and so do the lags that are shown",
        "set both clocks by NTP",
    )
