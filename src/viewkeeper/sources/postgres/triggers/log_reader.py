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

from viewkeeper.sources.postgres.answers.questions import PostgresAsking
from viewkeeper.sources.postgres.answers.rows import Layout
from viewkeeper.sources.postgres.answers.snapshot import BEGIN
from viewkeeper.sources.postgres.decoding.state import read_state
from viewkeeper.sources.postgres.errors import gap
from viewkeeper.sources.postgres.shape_query import read_shapes
from viewkeeper.sources.postgres.shape_steps import History
from viewkeeper.sources.postgres.triggers import installation as capture
from viewkeeper.sources.postgres.triggers import readers
from viewkeeper.sources.postgres.triggers.log import (
    Logged,
    Pending,
    changes_query,
    pending,
    snapshot_of,
)
from viewkeeper.sources.postgres.triggers.look_shapes import read_history, store
from viewkeeper.sources.postgres.triggers.snapshot import TriggersOpener
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.schema_change import called
from viewkeeper.updates.source_protocol import Tables

STORE_LOOK = (
    "INSERT INTO viewkeeper.look (snapshot) VALUES (%s::pg_snapshot) RETURNING position, at"
)
_PIECE_ROWS = 20_000


class TriggersReading(PostgresAsking):
    """What can be read of a database whose changes are captured by triggers."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        super().__init__(settings, reader)
        self._verified = False

    def _check_state(self, control: psycopg.Connection[Any], after: int) -> dict[str, Logged]:
        """What is followed, if this is still the database in which `after` was reached."""
        installed = capture.is_installed(control)
        _, tables = readers.require_reader(control, self.name, self.reader, installed)
        self._verify(control)
        snapshot_of(control, self.name, after)
        for kept, table in tables.items():
            if not capture.fires(control, table.oid, table.partitioned) and read_shapes(
                control, (table.oid,)
            ):
                name = self._called(kept)
                raise gap(self.name, f'table "{name}": its triggers are gone or switched off')
        return tables

    def _verify(self, control: psycopg.Connection[Any]) -> None:
        """A GapError if the newest look that we know of is not the one of this database."""
        remembered = read_state(self.home)
        if self._verified or remembered is None or remembered.newest is None:
            return
        query = "SELECT at FROM viewkeeper.look WHERE position = %s"
        row = control.execute(query, (remembered.newest.position,)).fetchone()
        at = microseconds(row[0]) if row else None
        if at != remembered.newest.committed_us or database_id(control) != remembered.system:
            raise gap(self.name, "it was restored to an earlier state, or replaced by another one")
        self._verified = True

    @contextmanager
    def _alone(self, control: psycopg.Connection[Any]) -> Iterator[None]:
        """Looks are taken one after the other, whoever takes them."""
        control.execute("SELECT pg_advisory_lock(%s)", (capture.LOCK,))
        try:
            yield
        finally:
            if not control.closed and not control.broken:
                control.execute("SELECT pg_advisory_unlock(%s)", (capture.LOCK,))

    def _pending(
        self, control: psycopg.Connection[Any], tables: Mapping[str, Logged], after: int
    ) -> list[tuple[str, Pending]]:
        since = snapshot_of(control, self.name, after)
        return [
            (kept, each)
            for kept, table in tables.items()
            for each in pending(control, self.name, self._called(kept), table, after, since, 0)
            if each.changes or each.emptied or each.trouble
        ]

    def _called(self, kept: str) -> str:
        """What a table is called in messages."""
        return next((called(handle) for handle in self._names.of(kept)), kept)

    def changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Streamed from the log; `_position` is the first look that has seen a change."""
        with self._using() as control:
            followed = self._check_state(control, after)
            since = snapshot_of(control, self.name, after)
            snapshot_of(control, self.name, until)
            history = read_history(control)
            logs = {handle: self._logged(handle, followed) for handle in tables}
            for handle, columns in tables.items():
                self._check_askable(handle, columns, after, history)
            self._check_readable(control, logs, after, until)
        with self._coordinator() as connection:
            for handle, columns in tables.items():
                numbers = self._known_numbers(handle, columns)
                shape = self._seen_layout(handle, numbers, history)
                query = changes_query(logs[handle], tuple(numbers.values()), after, since, until)
                for batch in self._fetched(connection, query, shape):
                    yield handle, batch

    def _logged(self, handle: str, followed: Mapping[str, Logged]) -> Logged:
        kept = str(self._oid(handle))
        if kept not in followed:
            raise gap(self.name, f'table "{called(handle)}" is not captured any more')
        return followed[kept]

    def _seen_layout(self, handle: str, numbers: Mapping[str, int], history: History) -> Layout:
        """How columns are read from the log, in the types that were seen last."""
        columns = history.now(self._oid(handle)).by_number
        kinds = tuple(self._kind(handle, name, columns[n]) for name, n in numbers.items())
        return Layout(self.name, handle, tuple(numbers), kinds)

    def _fetched(
        self, connection: psycopg.Connection[Any], query: str, shape: Layout
    ) -> Iterator[pa.RecordBatch]:
        """The changes in pieces, through a cursor of the server."""
        with self._server.errors():
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
        logs: Mapping[str, Logged],
        after: int,
        until: int,
    ) -> None:
        asked = {str(logged.oid): logged for logged in logs.values()}
        for _, each in self._pending(control, asked, after):
            if each.trouble is not None and 0 < each.position <= until:
                raise each.trouble

    @contextmanager
    def snapshots(self, after: int, tables: Tables) -> Iterator[TriggersOpener]:
        """One snapshot, exported and stored as a look, with the shapes that it shows."""
        with self._coordinator() as coordinator:
            with self._using() as control:
                followed = self._check_state(control, after)
                logs = {handle: self._logged(handle, followed) for handle in tables}
                with self._alone(control):
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
                        store(control, position, fresh)
                    history = read_history(control)
                for handle, columns in tables.items():
                    self._check_shown(handle, columns, after, history, locked)
            yield TriggersOpener(
                self.settings, locked.exported, locked.snapshot, position, locked.tables, logs
            )


def microseconds(moment: datetime.datetime) -> int:
    return round(moment.timestamp() * 1e6)


def database_id(control: psycopg.Connection[Any]) -> str:
    row = control.execute("SELECT id::text FROM viewkeeper.database").fetchone()
    return str(row[0]) if row else ""
