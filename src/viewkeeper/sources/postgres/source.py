"""PostgreSQL as a source: logical decoding gives the changes, exported snapshots the answers.

The stream of a replication slot goes into a spool (`capture`); positions are those of
commits in PostgreSQL's log. What a snapshot contains is told by transaction ids, never by positions
(`visible`), and all tasks share one snapshot (`snapshot`). Types are in
`types`, slot and publication in `slot`.

A look asks the server how far its log is flushed, on the control connection, and reads the stream
until it has passed that. While nothing was written it costs one round trip. Schema changes are in
the stream too: event triggers put them there (`create_watch`), or a look does (`compare`).

Servers that do not allow logical decoding are captured by triggers (`triggers`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import psycopg

from viewkeeper.errors import GapError, SourceError
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.postgres.decoding.capture import ANCHOR
from viewkeeper.sources.postgres.decoding.ddl_watch import create_watch, is_watched, remove_watch
from viewkeeper.sources.postgres.decoding.follow import extend_followed
from viewkeeper.sources.postgres.decoding.shape_comparison import emit_shapes, unexplained_shapes
from viewkeeper.sources.postgres.decoding.slot import (
    create_slot,
    derived_name,
    drop_publication,
    drop_slot,
    emit_mark,
    ensure_publication,
    pass_gate,
    read_slot,
)
from viewkeeper.sources.postgres.decoding.spool_reader import SpoolReader, flushed_now
from viewkeeper.sources.postgres.decoding.state import FollowedTable, forget_state, read_state
from viewkeeper.sources.postgres.decoding.visibility import VisibleTransactions
from viewkeeper.sources.postgres.doctor import (
    ReportSubject,
    format_size,
    health_of_slot,
    server_findings,
)
from viewkeeper.sources.postgres.errors import retention_error
from viewkeeper.sources.postgres.handle_changes import schema_changes_of
from viewkeeper.sources.postgres.schema import PostgresTable
from viewkeeper.sources.postgres.shape_query import read_shapes
from viewkeeper.sources.postgres.triggers.capture import PostgresTriggerSource
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.stream.spool import StreamedTransaction
from viewkeeper.updates.source_protocol import (
    LOOK_TRANSACTIONS,
    Boundary,
    DetachResult,
    Finding,
    Health,
    Source,
    Tables,
)

_HOUSEKEEPING_SECONDS = 5.0
# So much of the log may follow the newest transaction that we know before we put an empty one of
# our own behind it, which the slot can then be advanced to.
IDLE_BYTES = 16 << 20
# So long after a comparison of shapes the next one is made at the earliest, if no event triggers
# tell of them, and if they do.
_UNWATCHED_SECONDS = 0.2
_WATCHED_SECONDS = 5.0
RETENTION_BYTES = 10 << 30


class PostgresSource(SpoolReader):
    """One PostgreSQL database, followed by the project `reader` through a slot of its own."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        super().__init__(settings, reader)
        self._housekept = 0.0
        self._remembered = 0
        self._watched: bool | None = None
        self._compared, self._compare_at = 0, 0.0
        self._holds: dict[str, tuple[int, float]] = {}

    def _find_refusals(self, table: PostgresTable) -> dict[str, str]:
        found = super()._find_refusals(table)
        for column in table.columns:
            if column.generated:
                found[column.name] = (
                    "generated columns are not in PostgreSQL's change stream; use the columns "
                    "that it is computed from, or `capture: triggers`"
                )
        return found

    def describe_source(self) -> str:
        told = {True: "event triggers tell", False: "looks find", None: ""}[self._watched]
        return super().describe_source() + (f", {told} its schema changes" if told else "")

    def follow_tables(self, tables: Tables) -> int:
        """Capture these columns too, besides what is followed already.

        Makes or extends publication and slot, then waits at the gate, so that every snapshot opened
        later has what the stream lacks. Nothing happens if everything is captured already.
        """
        with self._use_control() as control:
            followable = self._followable_tables(control, tables)
            found = {handle: table for handle, (table, _) in followable.items()}
            columns = {handle: each.values() for handle, (_, each) in followable.items()}
            by_key = self._by_key
            extend_followed(self.name, {}, found, columns, by_key)
            publication = self._capture.publication
            made = changed = False
            if found:
                made, changed = ensure_publication(control, self.name, publication, found.values())
            is_new = self._begin_stream(control)
            self._set_watched(create_watch(control, self._derived_name))
            capture = self._capture
            capture.state = replace(
                capture.state, made_publication=made or capture.state.made_publication
            )
            wanted = extend_followed(self.name, capture.state.tables, found, columns, by_key)
            capture.shapes.begin_tables(
                read_shapes(control, [table.oid for table in found.values()]).values()
            )
            if is_new or changed or wanted != capture.state.tables or capture.newest is None:
                self._pass_gate(control, wanted)
            else:
                capture.read_stream(flushed_now(control))
            self._compare_shapes(control)
            self._add_handles(followable)
            assert capture.newest is not None, "the gate has left an anchor"
            return capture.newest.position

    def _set_watched(self, watched: bool) -> None:
        self._watched = self._capture.shapes.is_watched = watched

    def _open_stream(self, control: psycopg.Connection[Any]) -> None:
        if self._watched is None:
            self._set_watched(is_watched(control, self._derived_name))
        super()._open_stream(control)

    def _begin_stream(self, control: psycopg.Connection[Any]) -> bool:
        """Open the stream; whether its slot had to be made, because nothing can go on from it."""
        capture = self._capture
        try:
            self._open_stream(control)
            capture.read_stream(flushed_now(control))
            return False
        except GapError:
            capture.forget_all()
            drop_slot(control, self.name, capture.slot)
            create_slot(control, self.name, capture.slot)
            capture.open_stream(control)
            return True

    def _pass_gate(
        self, control: psycopg.Connection[Any], wanted: Mapping[str, FollowedTable]
    ) -> None:
        """Change what is kept of the stream; `slot` says what is waited for and why."""
        capture = self._capture
        # To the end of a transaction, so that none is kept with two shapes.
        capture.read_mark(emit_mark(control, ANCHOR))
        capture.keep_tables(wanted)
        pass_gate(control, self.name, emit_mark(control, ANCHOR), self._server.statement_seconds)
        capture.read_mark(emit_mark(control, ANCHOR))
        capture.save_state(durable=True)

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """What was committed after a position, one boundary per transaction.

        An empty transaction is reported only where nothing else would let the slot advance.
        """
        capture = self._capture
        with self._use_control() as control:
            self._open_stream(control)
            flushed = flushed_now(control)
            if flushed != self._flushed:
                full = len(capture.spool.transactions_after(after, LOOK_TRANSACTIONS))
                if full < LOOK_TRANSACTIONS:
                    passed = capture.read_stream(flushed, after, LOOK_TRANSACTIONS)
                    full = len(capture.spool.transactions_after(after, LOOK_TRANSACTIONS))
                    if passed and full < LOOK_TRANSACTIONS:
                        self._flushed = flushed
            if flushed == self._flushed and self._compare_is_due(flushed):
                self._compare_shapes(control)
                self._compared = flushed
            self._check_known(after)
            self._keep_house(control)
            if capture.newest and capture.newest.position != self._remembered:
                capture.save_state(durable=False)
                self._remembered = capture.newest.position
            return self._report_boundaries(after)

    def has_passed(self, position: int) -> bool:
        """A transaction lies before the end of its commit, which is flushed when it is reported."""
        return position <= self._flushed

    def _compare_is_due(self, flushed: int) -> bool:
        """Whether something may have changed that the stream does not tell."""
        if self._suspects:
            return True
        return flushed != self._compared and time.monotonic() >= self._compare_at

    def _compare_shapes(self, control: psycopg.Connection[Any]) -> None:
        """Have the shapes in the stream that the catalogue has by now."""
        pause = _WATCHED_SECONDS if self._watched else _UNWATCHED_SECONDS
        self._compare_at = time.monotonic() + pause
        found = unexplained_shapes(control, self._capture.shapes.history)
        if found:
            self._set_watched(is_watched(control, self._derived_name))
            xid = emit_shapes(control, found, bool(self._watched))
            if xid is None:
                self._suspects = True
                return
            self._capture.read_mark(xid)
        self._suspects = False

    def _report_boundaries(self, after: int) -> tuple[Boundary, ...]:
        found = self._capture.spool.transactions_after(after, LOOK_TRANSACTIONS)
        # A full report has the empty ones too, so that it is seen to be full.
        full = len(found) >= LOOK_TRANSACTIONS
        reshaped = self._capture.shapes.history.step_positions()
        all_of_it = [self._boundary_of(each, each.position in reshaped) for each in found]
        told = tuple(b for b in all_of_it if full or b.changes or b.emptied or b.reshaped)
        if not told and found and found[-1].position - after >= IDLE_BYTES:
            return (all_of_it[-1],)
        return told

    def _boundary_of(self, each: StreamedTransaction, is_reshaped: bool) -> Boundary:
        found = self._capture.shapes.history.differences_at(each.position) if is_reshaped else []
        emptied = (name for table in each.emptied for name in self._names.handles_of(table))
        keyed = (name for table in each.keyed for name in self._names.handles_of(table))
        return Boundary(
            each.position,
            each.committed_at,
            each.changes,
            tuple(emptied),
            tuple(keyed),
            schema_changes_of(self._names, found, self._path),
        )

    def _keep_house(self, control: psycopg.Connection[Any]) -> None:
        """From time to time: watch what the slot keeps, and let it advance over what is not ours.

        A slot that would fill the server's disk is dropped, whatever that costs us.
        """
        if time.monotonic() < self._housekept or self._capture.is_copy:
            return
        self._housekept = time.monotonic() + _HOUSEKEEPING_SECONDS
        capture = self._capture
        capture.keep_alive()
        slot = read_slot(control, capture.slot)
        retained = slot.retained if slot else None
        if retained is not None and retained > self._retention_bytes:
            capture.forget_all()
            drop_slot(control, self.name, capture.slot)
            raise retention_error(
                self.name, format_size(retained), format_size(self._retention_bytes)
            )
        newest = capture.newest.position if capture.newest else capture.floor
        if self._flushed - newest > IDLE_BYTES:
            capture.read_mark(emit_mark(control, ANCHOR))

    def acknowledge_position(self, position: int) -> None:
        """Confirm what every view has committed and a snapshot taken now sees.

        What is not visible yet would be neither sent again nor seen after a crash.
        """
        with self._use_control() as control:
            if not self._capture.is_open:
                return
            held = [at for at, until in self._holds.values() if until > time.monotonic()]
            row = control.execute("SELECT pg_current_snapshot()::text").fetchone()
            assert row is not None
            self._capture.confirm_visible(
                min([position, *held]), VisibleTransactions.parse_snapshot(self.name, row[0])
            )

    def begin_hold(self, name: str, seconds: float) -> None:
        """Keep what is kept now: of our own slot, or of a copy of it that only we use.

        A copy goes with its connection, also if this process dies.
        """
        with self._use_control() as control:
            capture = self._capture
            if not capture.is_open:
                self._names = SourceHandles(self.home)
                self._begin_copy(control)
            self._holds[name] = (capture.floor, time.monotonic() + seconds)

    def end_hold(self, name: str) -> None:
        """End a hold; nothing happens if it has ended."""
        with self._lock:
            self._holds.pop(name, None)
            if not self._holds and self._capture.is_copy:
                self._end_copy()

    def read_health(self, positions: Iterable[int]) -> Health:
        """What the server tells without its stream being touched."""
        with self._use_control() as control:
            return health_of_slot(control, self._report_subject())

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        try:
            with self._use_control() as control:
                return list(server_findings(control, self._report_subject(), tables))
        except SourceError as error:
            return [Finding("reachable", "bad", str(error), error.hint)]

    def _report_subject(self) -> ReportSubject:
        return ReportSubject(
            self.name,
            self._capture.slot,
            self._capture.publication,
            self._retention_bytes,
            self._derived_name,
            self._find_table,
            self._check_usable,
        )

    def _check_usable(self, table: PostgresTable, columns: Sequence[str]) -> None:
        """A SchemaError if a table cannot be followed with these columns, by its handle's names."""
        seen = table.named_by_handle(table.asked, self._column_numbers(table.asked))
        self._check_columns(seen, columns)
        numbers = {table.asked: [seen.column_numbers[column] for column in columns]}
        extend_followed(self.name, {}, {table.asked: table}, numbers, self._by_key)

    @property
    def _derived_name(self) -> str:
        return derived_name(self.settings, self.reader)

    @property
    def _by_key(self) -> Sequence[str]:
        by_key = self.settings.options.get("delete_by_key", ())
        assert isinstance(by_key, list | tuple)
        return by_key

    @property
    def _retention_bytes(self) -> int:
        return self.settings.read_size("retention", RETENTION_BYTES)

    def detach_source(self, force: bool = False) -> DetachResult:
        """Drop our slot, and the publication if we made it and nobody else can be using it."""
        capture = self._capture
        with self._use_control() as control:
            remembered = read_state(self.home)
            capture.close_stream()
            dropped = drop_slot(control, self.name, capture.slot)
            capture.forget_all()
            left = remove_watch(control, self._derived_name)
            self._names.forget_all()
            self._watched = None
            made = remembered is not None and remembered.made_publication
            if made or capture.publication == self._derived_name:
                is_shared = capture.publication != self._derived_name
                left += drop_publication(control, capture.publication, is_shared)
            forget_state(self.home)
            return DetachResult(dropped, capture_dropped=dropped, left=left)


def open_source(settings: SourceSettings, reader: str) -> Source:
    """The source that the settings describe; nothing is connected yet."""
    if settings.read_text("capture", "decoding") == "triggers":
        return PostgresTriggerSource(settings, reader)
    return PostgresSource(settings, reader)
