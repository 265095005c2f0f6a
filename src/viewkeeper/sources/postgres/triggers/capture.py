"""Capture by triggers where logical decoding is not allowed, as one project sees it.

A position is the number of a *look*: a snapshot that was taken and stored (`log`). Rows and log are
read in one snapshot, so an answer's tail is exact, there is nothing to wait for, and the replica
identity does not matter. What was committed between two looks is reported as one transaction: whole
commits, never split. `installation` says what is put into the database.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from viewkeeper.sources.postgres.database_description import PostgresDescriber
from viewkeeper.sources.postgres.decoding.slot import (
    KnownTransaction,
    PostgresState,
    forget_state,
    read_state,
    write_state,
)
from viewkeeper.sources.postgres.errors import gap_error
from viewkeeper.sources.postgres.shape_query import read_shapes
from viewkeeper.sources.postgres.triggers.installation import LOCK, has_triggers, is_installed
from viewkeeper.sources.postgres.triggers.log import (
    LoggedTable,
    PendingLog,
    advance_reader,
    find_pending,
    remove_lease,
    require_reader,
    snapshot_of,
    trim_logs,
    write_lease,
)
from viewkeeper.sources.postgres.types import PgConnection, read_row
from viewkeeper.updates.schema_change import name_of_handle

_NEWEST = "SELECT position, at FROM viewkeeper.look ORDER BY position DESC LIMIT 1"
_STORE = "INSERT INTO viewkeeper.look (snapshot) VALUES (%s::pg_snapshot) RETURNING position, at"


class TriggerCapture:
    """The looks and logs of one database, followed by the project `reader`."""

    def __init__(self, describer: PostgresDescriber, reader: str) -> None:
        self.reader = reader
        self._describer = describer
        self._connections = describer.connections
        self._source = describer.source
        self._saved: KnownTransaction | None = None
        self._is_verified = False

    def describe_source(self) -> str:
        return f"{self._connections.server.describe_location()}, captured by triggers"

    def check_state(self, control: PgConnection, after: int) -> dict[str, LoggedTable]:
        """What is followed, if this is still the database in which `after` was reached."""
        _, tables = require_reader(control, self._source, self.reader, is_installed(control))
        self._verify_newest(control)
        snapshot_of(control, self._source, after)
        for identity, table in tables.items():
            if not has_triggers(control, table.oid, table.partitioned) and read_shapes(
                control, (table.oid,)
            ):
                name = self._name_of(identity)
                raise gap_error(
                    self._source, f'table "{name}": its triggers are gone or switched off'
                )
        return tables

    def _verify_newest(self, control: PgConnection) -> None:
        """A GapError if the newest look that we know of is not the one of this database."""
        remembered = read_state(self._describer.files)
        if self._is_verified or remembered is None or remembered.newest is None:
            return
        query = "SELECT at FROM viewkeeper.look WHERE position = %s"
        row = control.execute(query, (remembered.newest.position,)).fetchone()
        at = _microseconds_of(row[0]) if row else None
        if at != remembered.newest.committed_us or _database_id(control) != remembered.system:
            raise gap_error(
                self._source, "it was restored to an earlier state, or replaced by another one"
            )
        self._is_verified = True

    def mark_followed(self) -> None:
        """Tables were followed here just now, so this is the right database."""
        self._is_verified = True

    @contextmanager
    def hold_lock(self, control: PgConnection) -> Iterator[None]:
        """Hold the lock under which all processes take looks, one after the other."""
        control.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
        try:
            yield
        finally:
            if not control.closed and not control.broken:
                control.execute("SELECT pg_advisory_unlock(%s)", (LOCK,))

    def take_look(self, control: PgConnection) -> int:
        """Store the snapshot of the running transaction as a position."""
        return self.store_look(control, read_row(control, "SELECT pg_current_snapshot()::text")[0])

    def store_look(self, control: PgConnection, snapshot: str) -> int:
        """Store a snapshot as a position."""
        return int(read_row(control, _STORE, (snapshot,))[0])

    def newest_look(self, control: PgConnection) -> int | None:
        row = control.execute(_NEWEST).fetchone()
        return int(row[0]) if row else None

    def save_newest(self, control: PgConnection) -> None:
        """Remember the newest look, by which the database is known again."""
        row = control.execute(_NEWEST).fetchone()
        if row is not None:
            newest = KnownTransaction(int(row[0]), 0, _microseconds_of(row[1]))
            if newest != self._saved:
                state = PostgresState(_database_id(control), 0, "triggers", newest=newest)
                write_state(self._describer.files, state, durable=False)
                self._saved = newest

    def find_pending(
        self, control: PgConnection, tables: Mapping[str, LoggedTable], after: int
    ) -> list[tuple[str, PendingLog]]:
        """What was logged of these tables after a look, with the identity of each table."""
        since = snapshot_of(control, self._source, after)
        return [
            (identity, each)
            for identity, table in tables.items()
            for each in find_pending(
                control, self._source, self._name_of(identity), table, after, since
            )
            if each.changes or each.emptied or each.trouble
        ]

    def _name_of(self, identity: str) -> str:
        """What a table is called in messages."""
        handles = self._describer.handles.handles_of(identity)
        return next((name_of_handle(handle) for handle in handles), identity)

    def acknowledge_position(self, position: int) -> None:
        """Store the position, then trim what every reader has acknowledged."""
        self._describer.files.save_noted()
        with (
            self._connections.use_control() as control,
            self.hold_lock(control),
            control.transaction(),
        ):
            require_reader(control, self._source, self.reader, is_installed(control))
            advance_reader(control, self.reader, position)
            trim_logs(control)

    def begin_hold(self, name: str, seconds: float) -> None:
        """Keep what is kept now for some time: a reader of its own, with an end."""
        with self._connections.use_control() as control:
            require_reader(control, self._source, self.reader, is_installed(control))
            write_lease(control, self.reader, name, seconds)

    def end_hold(self, name: str) -> None:
        """End a hold; nothing happens if it has ended."""
        with self._connections.use_control() as control:
            if is_installed(control):
                remove_lease(control, self.reader, name)

    def forget_all(self) -> None:
        """Nothing is followed any more."""
        forget_state(self._describer.files)
        self._describer.handles.forget_all()
        self._saved, self._is_verified = None, False

    def close(self) -> None:
        self._connections.close()


def _microseconds_of(moment: datetime.datetime) -> int:
    return round(moment.timestamp() * 1e6)


def _database_id(control: PgConnection) -> str:
    row = control.execute("SELECT id::text FROM viewkeeper.database").fetchone()
    return str(row[0]) if row else ""
