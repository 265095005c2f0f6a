"""Reading a database that triggers capture: changes from the log, answers with it in one snapshot.

Everything is refused if this is not the database in which the asked position was reached, or if the
capture has a gap.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa

from viewkeeper.sources.postgres.answers.questions import PostgresQuestions
from viewkeeper.sources.postgres.answers.rows import PostgresLayout
from viewkeeper.sources.postgres.answers.snapshot import BEGIN
from viewkeeper.sources.postgres.decoding.state import read_state
from viewkeeper.sources.postgres.errors import gap_error
from viewkeeper.sources.postgres.shape_query import read_shapes
from viewkeeper.sources.postgres.shape_steps import PostgresShapeHistory
from viewkeeper.sources.postgres.triggers import installation as capture
from viewkeeper.sources.postgres.triggers import readers
from viewkeeper.sources.postgres.triggers.log import (
    LoggedTable,
    PendingLog,
    changes_query,
    find_pending,
    snapshot_of,
)
from viewkeeper.sources.postgres.triggers.look_shapes import read_history, store_shapes
from viewkeeper.sources.postgres.triggers.snapshot import TriggersOpener
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import Tables

STORE_LOOK = (
    "INSERT INTO viewkeeper.look (snapshot) VALUES (%s::pg_snapshot) RETURNING position, at"
)
_PIECE_ROWS = 20_000


class TriggerLogReader(PostgresQuestions):
    """What can be read of a database whose changes are captured by triggers."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        super().__init__(settings, reader)
        self._verified = False

    def _check_state(self, control: psycopg.Connection[Any], after: int) -> dict[str, LoggedTable]:
        """What is followed, if this is still the database in which `after` was reached."""
        installed = capture.is_installed(control)
        _, tables = readers.require_reader(control, self.name, self.reader, installed)
        self._verify_newest(control)
        snapshot_of(control, self.name, after)
        for kept, table in tables.items():
            if not capture.has_triggers(control, table.oid, table.partitioned) and read_shapes(
                control, (table.oid,)
            ):
                name = self._name_of(kept)
                raise gap_error(self.name, f'table "{name}": its triggers are gone or switched off')
        return tables

    def _verify_newest(self, control: psycopg.Connection[Any]) -> None:
        """A GapError if the newest look that we know of is not the one of this database."""
        remembered = read_state(self.home)
        if self._verified or remembered is None or remembered.newest is None:
            return
        query = "SELECT at FROM viewkeeper.look WHERE position = %s"
        row = control.execute(query, (remembered.newest.position,)).fetchone()
        at = microseconds_of(row[0]) if row else None
        if at != remembered.newest.committed_us or database_id(control) != remembered.system:
            raise gap_error(
                self.name, "it was restored to an earlier state, or replaced by another one"
            )
        self._verified = True

    @contextmanager
    def _hold_lock(self, control: psycopg.Connection[Any]) -> Iterator[None]:
        """Looks are taken one after the other, whoever takes them."""
        control.execute("SELECT pg_advisory_lock(%s)", (capture.LOCK,))
        try:
            yield
        finally:
            if not control.closed and not control.broken:
                control.execute("SELECT pg_advisory_unlock(%s)", (capture.LOCK,))

    def _find_pending(
        self, control: psycopg.Connection[Any], tables: Mapping[str, LoggedTable], after: int
    ) -> list[tuple[str, PendingLog]]:
        since = snapshot_of(control, self.name, after)
        return [
            (kept, each)
            for kept, table in tables.items()
            for each in find_pending(
                control, self.name, self._name_of(kept), table, after, since, 0
            )
            if each.changes or each.emptied or each.trouble
        ]

    def _name_of(self, kept: str) -> str:
        """What a table is called in messages."""
        return next((name_of_handle(handle) for handle in self._names.handles_of(kept)), kept)

    def read_changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Streamed from the log; `_position` is the first look that has seen a change."""
        with self._use_control() as control:
            followed = self._check_state(control, after)
            since = snapshot_of(control, self.name, after)
            snapshot_of(control, self.name, until)
            history = read_history(control)
            logs = {handle: self._logged_table(handle, followed) for handle in tables}
            for handle, columns in tables.items():
                self._check_askable(handle, columns, after, history)
            self._check_readable(control, logs, after, until)
        with self._use_coordinator() as connection:
            for handle, columns in tables.items():
                numbers = self._known_numbers(handle, columns)
                shape = self._seen_layout(handle, numbers, history)
                query = changes_query(logs[handle], tuple(numbers.values()), after, since, until)
                for batch in self._fetch_changes(connection, query, shape):
                    yield handle, batch

    def _logged_table(self, handle: str, followed: Mapping[str, LoggedTable]) -> LoggedTable:
        kept = str(self._oid_of(handle))
        if kept not in followed:
            raise gap_error(self.name, f'table "{name_of_handle(handle)}" is not captured any more')
        return followed[kept]

    def _seen_layout(
        self, handle: str, numbers: Mapping[str, int], history: PostgresShapeHistory
    ) -> PostgresLayout:
        """How columns are read from the log, in the types that were seen last."""
        columns = history.latest_shape(self._oid_of(handle)).by_number
        kinds = tuple(self._kind_of_column(handle, name, columns[n]) for name, n in numbers.items())
        return PostgresLayout(self.name, handle, tuple(numbers), kinds)

    def _fetch_changes(
        self, connection: psycopg.Connection[Any], query: str, shape: PostgresLayout
    ) -> Iterator[pa.RecordBatch]:
        """The changes in pieces, through a cursor of the server."""
        with self._server.translate_errors():
            connection.execute(BEGIN.encode())
            connection.execute(f"DECLARE changes NO SCROLL CURSOR FOR {query}".encode())
            while True:
                result = connection.execute(f"FETCH {_PIECE_ROWS} FROM changes".encode()).pgresult
                assert result is not None
                if not result.ntuples:
                    break
                yield from shape.changes_from_result(result).to_batches()
            connection.execute("ROLLBACK")

    def _check_readable(
        self,
        control: psycopg.Connection[Any],
        logs: Mapping[str, LoggedTable],
        after: int,
        until: int,
    ) -> None:
        asked = {str(logged.oid): logged for logged in logs.values()}
        for _, each in self._find_pending(control, asked, after):
            if each.trouble is not None and 0 < each.position <= until:
                raise each.trouble

    @contextmanager
    def prepare_snapshots(self, after: int, tables: Tables) -> Iterator[TriggersOpener]:
        """One snapshot, exported and stored as a look, with the shapes that it shows."""
        with self._use_coordinator() as coordinator:
            with self._use_control() as control:
                followed = self._check_state(control, after)
                logs = {handle: self._logged_table(handle, followed) for handle in tables}
                with self._hold_lock(control):
                    locked = self._lock_tables(coordinator, tables)
                    with control.transaction():
                        row = control.execute(STORE_LOOK, (locked.snapshot,)).fetchone()
                        assert row is not None
                        position = int(row[0])
                        history = read_history(control)
                        shapes = {each.oid: each for each in locked.shapes.values()}
                        fresh = {
                            oid: each
                            for oid, each in shapes.items()
                            if not history.is_explained(each)
                        }
                        store_shapes(control, position, fresh)
                    history = read_history(control)
                for handle, columns in tables.items():
                    self._check_shown(handle, columns, after, history, locked)
            yield TriggersOpener(
                self.settings, locked.exported, locked.snapshot, position, locked.tables, logs
            )


def microseconds_of(moment: datetime.datetime) -> int:
    return round(moment.timestamp() * 1e6)


def database_id(control: psycopg.Connection[Any]) -> str:
    row = control.execute("SELECT id::text FROM viewkeeper.database").fetchone()
    return str(row[0]) if row else ""
