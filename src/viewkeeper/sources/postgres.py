"""PostgreSQL as a source: logical decoding gives the changes, exported snapshots the answers.

The stream of a replication slot goes into a spool (`postgres_capture`); positions are those of
commits in PostgreSQL's log. What a snapshot contains is told by transaction ids, never by positions
(`postgres_visible`), and all tasks share one snapshot (`postgres_snapshot`). Types are in
`postgres_types`, slot and publication in `postgres_slot`.

A look asks the server how far its log is flushed, on the control connection, and reads the stream
until it has passed that. While nothing was written it costs one round trip.

Servers that do not allow logical decoding are captured by triggers (`postgres_triggers`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from viewkeeper.errors import GapError, SourceError
from viewkeeper.sources.postgres_capture import ANCHOR, Capture
from viewkeeper.sources.postgres_database import PostgresDatabase
from viewkeeper.sources.postgres_export import (
    check_shape,
    lock_and_export,
    told_opener,
    wait_for_visibility,
    watermark,
)
from viewkeeper.sources.postgres_follow import check_privilege, extended
from viewkeeper.sources.postgres_report import Subject, diagnose, health, shown
from viewkeeper.sources.postgres_rows import layout
from viewkeeper.sources.postgres_slot import (
    create_slot,
    derived_name,
    drop_publication,
    drop_slot,
    emit,
    ensure_publication,
    pass_gate,
    publication_name,
    read_slot,
    slot_name,
)
from viewkeeper.sources.postgres_snapshot import PostgresOpener
from viewkeeper.sources.postgres_state import FollowedTable, forget_state, read_state
from viewkeeper.sources.postgres_table import Table, read_table
from viewkeeper.sources.postgres_troubles import WAY_OUT, kept_too_much
from viewkeeper.sources.postgres_visible import Visible
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.spool import Streamed
from viewkeeper.updates.protocol import (
    LOOK_TRANSACTIONS,
    Boundary,
    Detached,
    Finding,
    Health,
    Source,
    Tables,
)

_HOUSEKEEPING_SECONDS = 5.0
# So much of the log may follow the newest transaction that we know before we put an empty one of
# our own behind it, which the slot can then be advanced to.
IDLE_BYTES = 16 << 20
RETENTION_BYTES = 10 << 30


class PostgresSource(PostgresDatabase):
    """One PostgreSQL database, followed by the project `reader` through a slot of its own."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        super().__init__(settings, reader)
        slot, publication = slot_name(settings, reader), publication_name(settings, reader)
        self._capture = Capture(self._server, slot, publication, self.home)
        self._tables: dict[str, Table] = {}
        self._flushed = 0
        self._housekept = 0.0
        self._remembered = 0
        self._holds: dict[str, tuple[int, float]] = {}

    def advice(self) -> str | None:
        return None

    def _refusals(self, table: Table) -> dict[str, str]:
        found = super()._refusals(table)
        for column in table.columns:
            if column.generated:
                found[column.name] = (
                    "generated columns are not in PostgreSQL's change stream; use the columns "
                    "that it is computed from, or `capture: triggers`"
                )
        return found

    def follow(self, tables: Tables) -> int:
        """Capture these columns too, besides what is followed already.

        Makes or extends publication and slot, then waits at the gate, so that every snapshot opened
        later has what the stream lacks. Nothing happens if everything is captured already.
        """
        with self._using() as control:
            found = {name: read_table(control, self.name, name) for name in tables}
            for name, table in found.items():
                self._check_columns(table, tables[name])
                check_privilege(control, self.name, table)
            by_key = self._by_key
            extended(self.name, {}, found, tables, by_key)
            publication = self._capture.publication
            made, changed = ensure_publication(control, self.name, publication, found.values())
            is_new = self._begin(control)
            capture = self._capture
            capture.state = replace(
                capture.state, made_publication=made or capture.state.made_publication
            )
            wanted = extended(self.name, capture.state.tables, found, tables, by_key)
            self._tables.update(found)
            if is_new or changed or wanted != capture.state.tables or capture.newest is None:
                self._pass_gate(control, wanted)
            else:
                capture.read(_flushed(control))
            assert capture.newest is not None, "the gate has left an anchor"
            return capture.newest.position

    def _begin(self, control: psycopg.Connection[Any]) -> bool:
        """Open the stream; whether its slot had to be made, because nothing can go on from it."""
        capture = self._capture
        try:
            self._open_stream(control)
            capture.read(_flushed(control))
            return False
        except GapError:
            capture.forget_all()
            drop_slot(control, self.name, capture.slot)
            create_slot(control, self.name, capture.slot)
            capture.open(control)
            return True

    def _pass_gate(
        self, control: psycopg.Connection[Any], wanted: Mapping[str, FollowedTable]
    ) -> None:
        """Change what is kept of the stream; `postgres_slot` says what is waited for and why."""
        capture = self._capture
        # To the end of a transaction, so that none is kept with two shapes.
        capture.read_mark(emit(control, ANCHOR))
        capture.follow(wanted)
        pass_gate(control, self.name, emit(control, ANCHOR), self._server.statement_seconds)
        capture.read_mark(emit(control, ANCHOR))
        capture.remember(durable=True)

    def _open_stream(self, control: psycopg.Connection[Any]) -> None:
        """Have a stream that answers; one that the server ended meanwhile is opened again."""
        capture = self._capture
        if not capture.is_open or not capture.is_alive():
            self._flushed = 0
            capture.open(control)

    def look(self, after: int) -> tuple[Boundary, ...]:
        """What was committed after a position, one boundary per transaction.

        An empty transaction is reported only where nothing else would let the slot advance.
        """
        capture = self._capture
        with self._using() as control:
            self._open_stream(control)
            flushed = _flushed(control)
            if flushed != self._flushed:
                full = len(capture.spool.transactions(after, LOOK_TRANSACTIONS))
                if full < LOOK_TRANSACTIONS:
                    passed = capture.read(flushed, after, LOOK_TRANSACTIONS)
                    full = len(capture.spool.transactions(after, LOOK_TRANSACTIONS))
                    if passed and full < LOOK_TRANSACTIONS:
                        self._flushed = flushed
            self._check_known(after)
            self._keep_house(control)
            if capture.newest and capture.newest.position != self._remembered:
                capture.remember(durable=False)
                self._remembered = capture.newest.position
            return self._boundaries(after)

    def _boundaries(self, after: int) -> tuple[Boundary, ...]:
        found = self._capture.spool.transactions(after, LOOK_TRANSACTIONS)
        told = tuple(self._boundary(each) for each in found if each.changes or each.emptied)
        if not told and found and found[-1].position - after >= IDLE_BYTES:
            return (self._boundary(found[-1]),)
        return told

    def _boundary(self, each: Streamed) -> Boundary:
        names = self._capture.names_of
        emptied = (name for table in each.emptied for name in names(table))
        keyed = (name for table in each.keyed for name in names(table))
        return Boundary(
            each.position, each.committed_at, each.changes, tuple(emptied), tuple(keyed)
        )

    def _check_known(self, after: int) -> None:
        """A GapError if the position cannot be one that this server has given."""
        capture = self._capture
        newest = capture.newest.position if capture.newest else 0
        if after < capture.floor or (
            after <= max(newest, self._flushed) and not capture.knows(after)
        ):
            raise GapError(
                self.name,
                f"position {after} is not one of this server's stream, which begins at "
                f"{capture.floor}",
                detail="its slot was made anew, or it was restored from a backup",
                hint=WAY_OUT,
            )

    def _keep_house(self, control: psycopg.Connection[Any]) -> None:
        """From time to time: watch what the slot keeps, and let it advance over what is not ours.

        A slot that would fill the server's disk is dropped, whatever that costs us.
        """
        if time.monotonic() < self._housekept or self._capture.is_copy:
            return
        self._housekept = time.monotonic() + _HOUSEKEEPING_SECONDS
        capture = self._capture
        capture.tend()
        slot = read_slot(control, capture.slot)
        retained = slot.retained if slot else None
        if retained is not None and retained > self._retention:
            capture.forget_all()
            drop_slot(control, self.name, capture.slot)
            raise kept_too_much(self.name, shown(retained), shown(self._retention))
        newest = capture.newest.position if capture.newest else capture.floor
        if self._flushed - newest > IDLE_BYTES:
            capture.read_mark(emit(control, ANCHOR))

    def _disconnect(self) -> None:
        super()._disconnect()
        self._capture.close_stream()

    def close(self) -> None:
        with self._lock:
            super().close()
            self._capture.close()

    def changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Streamed from the spool; `_position` is that of the commit."""
        capture = self._capture
        for name, columns in tables.items():
            with self._lock:
                shape = layout(self.name, self._table(name), columns)
                self._check_readable(name, columns, after, until)
                batches = capture.spool.changes(capture.kept_name(name), after, until)
            while True:
                with self._lock:
                    batch = next(batches, None)
                if batch is None:
                    break
                yield name, shape.from_spool(batch)

    def _check_readable(self, name: str, columns: Sequence[str], after: int, until: int) -> None:
        capture = self._capture
        kept = capture.kept_name(name)
        for position, troubles in sorted(capture.troubles.items()):
            if after < position <= until and kept in troubles:
                raise troubles[kept]

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            self._tables[name] = self._read_table(name)
        return self._tables[name]

    @contextmanager
    def snapshots(self, after: int, tables: Tables) -> Iterator[PostgresOpener]:
        """One snapshot, exported; it can be imported until the context ends."""
        with self._coordinator() as coordinator:
            opener = self._export(coordinator, after, tables)
            try:
                yield opener
            finally:
                for told in opener.told.values():
                    if isinstance(told.changes, Path):
                        told.changes.unlink(missing_ok=True)

    def _export(
        self, coordinator: psycopg.Connection[Any], after: int, tables: Tables
    ) -> PostgresOpener:
        """Export a snapshot and read the stream past everything that it can contain."""
        end = time.monotonic() + self._server.statement_seconds
        while True:
            found = {name: self._table(name) for name in tables}
            with self._server.errors():
                exported = lock_and_export(coordinator, found)
            with self._using() as control:
                self._open_stream(control)
                watermark(control, self._capture)
                self._check_known(after)
                for name in tables:
                    check_shape(coordinator, self.name, self._capture, name)
                opener = told_opener(self._server, self._capture, exported, found, after, tables)
            if opener is not None:
                return opener
            with self._server.errors():
                coordinator.execute("ROLLBACK")
            wait_for_visibility(self.name, end)

    def acknowledge(self, position: int) -> None:
        """Confirm what every view has committed and a snapshot taken now sees.

        What is not visible yet would be neither sent again nor seen after a crash.
        """
        with self._using() as control:
            if not self._capture.is_open:
                return
            held = [at for at, until in self._holds.values() if until > time.monotonic()]
            row = control.execute("SELECT pg_current_snapshot()::text").fetchone()
            assert row is not None
            self._capture.acknowledge(min([position, *held]), Visible.parse(row[0]))

    def hold(self, name: str, seconds: float) -> None:
        """Keep what is kept now: of our own slot, or of a copy of it that only we use.

        A copy goes with its connection, also if this process dies.
        """
        with self._using() as control:
            capture = self._capture
            if not capture.is_open:
                pid = control.info.backend_pid
                self._flushed = 0
                capture.open(control, copy=f"{capture.slot[:50]}_copy_{pid}")
            self._holds[name] = (capture.floor, time.monotonic() + seconds)

    def release(self, name: str) -> None:
        """End a hold; nothing happens if it has ended."""
        with self._lock:
            self._holds.pop(name, None)
            if not self._holds and self._capture.is_copy:
                self._capture.close()

    def health(self, positions: Iterable[int]) -> Health:
        """What the server tells without its stream being touched."""
        with self._using() as control:
            return health(control, self._subject())

    def diagnose(self, tables: Tables) -> list[Finding]:
        try:
            with self._using() as control:
                return list(diagnose(control, self._subject(), tables))
        except SourceError as error:
            return [Finding("reachable", "bad", str(error), error.hint)]

    def _subject(self) -> Subject:
        return Subject(
            self.name,
            self._capture.slot,
            self._capture.publication,
            self._retention,
            self._check_columns,
            self._check_followed,
        )

    def _check_followed(self, table: Table, columns: Sequence[str]) -> None:
        extended(self.name, {}, {table.asked: table}, {table.asked: columns}, self._by_key)

    @property
    def _by_key(self) -> Sequence[str]:
        by_key = self.settings.options.get("delete_by_key", ())
        assert isinstance(by_key, list | tuple)
        return by_key

    @property
    def _retention(self) -> int:
        return self.settings.size("retention", RETENTION_BYTES)

    def detach(self, force: bool = False) -> Detached:
        """Drop our slot, and the publication if we made it. Nobody else uses either."""
        capture = self._capture
        with self._using() as control:
            remembered = read_state(self.home)
            capture.forget_all()
            dropped = drop_slot(control, self.name, capture.slot)
            derived = capture.publication == derived_name(self.settings, self.reader)
            if derived or (remembered is not None and remembered.made_publication):
                drop_publication(control, capture.publication)
            forget_state(self.home)
            return Detached(dropped, capture_dropped=dropped)


def _flushed(control: psycopg.Connection[Any]) -> int:
    row = control.execute("SELECT (pg_current_wal_flush_lsn() - '0/0')::int8").fetchone()
    assert row is not None
    return int(row[0])


def open_source(settings: SourceSettings, reader: str) -> Source:
    """The source that the settings describe; nothing is connected yet."""
    return PostgresSource(settings, reader)
