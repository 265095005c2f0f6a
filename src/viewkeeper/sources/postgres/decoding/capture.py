"""Capturing by logical decoding: from the slot's stream into the spool.

`SlotCapture` opens the stream and reads it; `SpoolIntake` puts the transactions that come into the
spool; `FollowedRelations` says which of their rows are kept.

Invariants:
1. The spool holds, in commit order, every transaction after `floor` that was read and that changed
   a followed table, carries an anchor of ours, or is a trouble.
2. The slot is confirmed at `floor`, which is the position of a transaction: that one is sent again
   when a stream is opened. Nothing is confirmed that was not visible in a snapshot taken before.
3. When a stream is opened, the newest transaction that was ever reported comes again with the same
   id and commit time, or nothing is reported any more (GapError).
4. The history has the shape of every followed table at `floor`, and every step that was read since.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from viewkeeper.errors import GapError, SourceAwayError, SourceError, WarehouseError
from viewkeeper.sources.postgres.answers.snapshot import VisibleTransactions
from viewkeeper.sources.postgres.decoding.pgoutput import (
    PIECE_ROWS,
    DecodedTransaction,
    PgoutputDecoder,
)
from viewkeeper.sources.postgres.decoding.slot import (
    VERSION,
    FollowedTable,
    KnownTransaction,
    PostgresState,
    ReplicationSlot,
    SlotNames,
    check_ours,
    emit_mark,
    forget_state,
    read_slot,
    read_state,
    write_state,
)
from viewkeeper.sources.postgres.decoding.stream import ReplicationStream, ServerIdentity
from viewkeeper.sources.postgres.decoding.stream_shapes import StreamShapes
from viewkeeper.sources.postgres.errors import gap_error
from viewkeeper.sources.postgres.postgres_server import PostgresServer
from viewkeeper.sources.postgres.types import PgConnection
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.sources.stream.socket_hint import NO_STREAM
from viewkeeper.sources.stream.spool import Spool
from viewkeeper.sources.stream.stage import TransactionStage
from viewkeeper.updates.source_protocol import LOOK_SECONDS

ANCHOR, WATERMARK = "anchor", "watermark"
IsEnough = Callable[[DecodedTransaction], bool]


class FollowedRelations:
    """The followed table that each relation of the stream belongs to, by oid."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._control: PgConnection | None = None
        self._by_oid: dict[int, FollowedTable | None] = {}
        self.tables: dict[str, FollowedTable] = {}

    def keep_tables(
        self, control: PgConnection | None, tables: Mapping[str, FollowedTable]
    ) -> None:
        """Keep the rows of these tables; `control` is asked for the roots of new partitions."""
        self._control, self.tables, self._by_oid = control, dict(tables), {}
        for table in tables.values():
            for oid in (table.oid, *table.leaves):
                self._by_oid[oid] = table

    def find_table(self, oid: int) -> FollowedTable | None:
        """The table of a relation; a partition that is new is found by its root."""
        if oid in self._by_oid:
            return self._by_oid[oid]
        assert self._control is not None
        query = "SELECT pg_partition_root(oid)::oid::int8 FROM pg_class WHERE oid = %s"
        with self._server.translate_errors():
            row = self._control.execute(query, (oid,)).fetchone()
        table = self._by_oid.get(int(row[0])) if row and row[0] is not None else None
        if table is not None:
            table = replace(table, leaves=(*table.leaves, oid))
            self.tables[str(table.oid)] = table
            for each in (table.oid, *table.leaves):
                self._by_oid[each] = table
        self._by_oid[oid] = table
        return table


class SpoolIntake:
    """Decodes frames of the stream and puts the transactions into the spool."""

    def __init__(self, source: str, decoder: PgoutputDecoder, home: Path) -> None:
        self._source = source
        self._decoder = decoder
        self._home = home
        self.spool = Spool(home)
        self.newest: KnownTransaction | None = None
        """The newest transaction in the spool."""
        self.expected: KnownTransaction | None = None
        """The transaction that must come again before anything is believed."""
        self.troubles: dict[int, Mapping[str, SourceError]] = {}
        self._ended: list[DecodedTransaction] = []
        self._spooled_until = 0

    def begin_stream(self, start: int, known_until: int, expected: KnownTransaction | None) -> None:
        """A stream was opened; what is in the spool already comes again from `start` on."""
        self._decoder.reset_stream(known_until)
        self._spooled_until = 0 if self.newest is None else start
        self._ended, self.expected = [], expected

    def take_frame(self, frame: bytes, is_enough: IsEnough) -> bool:
        """Decode a frame; whether a transaction has ended with it and is enough."""
        done = self._decoder.take_frame(frame)
        if done is None:
            return False
        self._verify_expected(done)
        is_kept = _is_kept(done) or done.position <= self._decoder.known_until
        if done.position > self._spooled_until and is_kept:
            self._ended.append(done)
            self.newest = _known_transaction(done)
            if done.troubles:
                self.troubles[done.position] = done.troubles
        if done.is_large or self._decoder.waiting >= PIECE_ROWS:
            self.flush_to_spool()
        return is_enough(done)

    def _verify_expected(self, done: DecodedTransaction) -> None:
        if self.expected is None or done.position < self.expected.position:
            return
        if _known_transaction(done) != self.expected:
            raise self.other_history_error()
        self.expected = None

    def other_history_error(self) -> GapError:
        return gap_error(self._source, "its newest transactions are not those that were reported")

    def flush_to_spool(self) -> None:
        """Let readers see the transactions that have ended."""
        try:
            for table, batch in self._decoder.take_ended():
                self.spool.write_batch(table, batch)
        except OSError as error:
            # Part of a transaction may be in the spool: all that is not confirmed is read again.
            self.discard_read()
            raise self.disk_error(error) from error
        for transaction in self._ended:
            self.spool.end_transaction(transaction)
        self._ended = []

    def disk_error(self, error: OSError) -> WarehouseError:
        return WarehouseError(
            f'source "{self._source}": what was read of its change stream cannot be kept',
            detail=f"{error}, below {self._home}",
            hint="make room on that disk, or make the folder writable, and run again",
        )

    def discard_read(self) -> None:
        """Forget everything that was read; it is read again, or the error is met again."""
        for _ in self._decoder.take_ended():
            pass
        self._ended = []
        self.clear_spool()

    def clear_spool(self) -> None:
        self.spool.clear_all()
        self.newest = None

    def forget_until(self, position: int) -> None:
        self.spool.forget_until(position)
        self.troubles = {at: each for at, each in self.troubles.items() if at > position}

    def forget_all(self) -> None:
        self.clear_spool()
        self.expected, self.troubles = None, {}


def _is_kept(done: DecodedTransaction) -> bool:
    has_effect = done.changes or done.emptied or done.is_reshaped
    return bool(has_effect or ANCHOR.encode() in done.marks)


def _known_transaction(done: DecodedTransaction) -> KnownTransaction:
    return KnownTransaction(done.position, done.id, done.committed_us)


class SlotCapture:
    """Reads one slot into one spool; used under its source's lock."""

    def __init__(self, server: PostgresServer, names: SlotNames, files: StateFiles) -> None:
        self._server = server
        self.names = names
        self.files = files
        self.shapes = StreamShapes(server, files)
        self.followed = FollowedRelations(server)
        stage = TransactionStage(files.local)
        self._decoder = PgoutputDecoder(server.source, self.followed.find_table, self.shapes, stage)
        self.intake = SpoolIntake(server.source, self._decoder, files.local)
        self._stream: ReplicationStream | None = None
        self._control: PgConnection | None = None
        self._state = PostgresState("", 0, names.slot)
        self.floor = 0
        self.is_copy = False
        """Whether a copy of the slot is read, beside somebody who reads the slot itself."""

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    @property
    def spool(self) -> Spool:
        return self.intake.spool

    @property
    def newest_position(self) -> int | None:
        """The position of the newest transaction in the spool; None without one."""
        newest = self.intake.newest
        return None if newest is None else newest.position

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of the stream have come that nobody has read yet."""
        stream = self._stream
        return NO_STREAM if stream is None else stream.waiting_bytes

    def is_alive(self) -> bool:
        """Whether the stream is open and the server has not ended it."""
        if self._stream is not None and not self._stream.is_alive():
            self.close_stream()
        return self._stream is not None

    def open_stream(self, control: PgConnection, copy: str | None = None) -> None:
        """Open the stream where it was left, or where the slot is confirmed; `copy` names a
        slot that is made as a copy of ours and ends with the stream."""
        stream = ReplicationStream(self._server)
        try:
            slot = read_slot(control, self.names.slot)
            check_ours(self._server.source, self.names.slot, slot, control.info.dbname)
            if copy is not None and slot is not None and not slot.is_lost:
                slot = replace(slot, confirmed=stream.copy_slot(self.names.slot, copy))
            # After the slot, which another process may advance meanwhile: it is advanced only to
            # where the remembered transactions have got already.
            if copy is not None:
                self.files.reload_files()
            remembered = read_state(self.files)
            # And the server after that: what is remembered was flushed before.
            identity = stream.identify_server()
            confirmed = self._check_slot(slot, identity, remembered)
            if copy is not None and remembered is not None:
                confirmed = max(confirmed, remembered.floor)
            resumed = self.intake.newest
            start = confirmed if resumed is None else resumed.position
            stream.start_replication(copy or self.names.slot, self.names.publication, start)
        except BaseException:
            stream.close()
            raise
        self._stream, self._control, self.is_copy = stream, control, copy is not None
        known_until = max(start, remembered.floor if remembered else 0)
        expected = resumed
        if resumed is None:
            self.floor = confirmed
            expected = remembered.newest if remembered else None
            self._state = replace(remembered or self._state, slot=self.names.slot)
        self.intake.begin_stream(start, known_until, expected)
        believed = expected.position if expected else 0
        self.shapes.reopen_history(control, known_until, believed, is_resumed=resumed is not None)
        self._state = replace(self._state, system=identity.system, timeline=identity.timeline)
        if resumed is None and remembered is not None:
            self.keep_tables(remembered.tables)
        else:
            self.keep_tables(self.followed.tables)

    def _check_slot(
        self,
        slot: ReplicationSlot | None,
        identity: ServerIdentity,
        remembered: PostgresState | None,
    ) -> int:
        """Where the slot is confirmed; a GapError if it cannot be the one that we left."""
        known = self.intake.newest or (remembered.newest if remembered else None)
        cause = None
        if remembered and remembered.version != VERSION:
            cause = "what an earlier version remembered of it cannot be gone on from"
        elif slot is None:
            cause = f'its replication slot "{self.names.slot}" is gone'
        elif slot.is_lost:
            cause = f'its replication slot "{self.names.slot}" has lost what is still needed'
        elif remembered and remembered.system not in ("", identity.system):
            cause = "this is another server than the one that was followed"
        elif known and identity.flushed < known.position:
            cause = "it was restored to an earlier state"
        elif known and slot.confirmed is not None and slot.confirmed > known.position:
            cause = f'somebody else has advanced its replication slot "{self.names.slot}"'
        if cause is not None:
            raise gap_error(self._server.source, cause)
        assert slot is not None
        assert slot.confirmed is not None
        return slot.confirmed

    def keep_tables(self, tables: Mapping[str, FollowedTable]) -> None:
        """Keep these columns of these tables of what is read from now on."""
        self.followed.keep_tables(self._control, tables)
        self._decoder.forget_relations()

    def own_publication(self) -> None:
        """Remember that the publication was made by us, and is ours to drop."""
        self._state = replace(self._state, made_publication=True)

    def read_stream(self, target: int, after: int | None = None, limit: int = 0) -> bool:
        """Read until everything committed before the log position `target` has come, or until so
        many transactions after a position have; whether the target was passed."""
        count = 0 if after is None else len(self.spool.transactions_after(after))

        def is_enough(done: DecodedTransaction) -> bool:
            nonlocal count
            count += after is not None and done.position > after
            is_full = bool(limit) and count >= limit and self.intake.expected is None
            return is_full or done.end >= target

        with self._guard_reading() as stream:
            passed = stream.read_frames(
                lambda frame: self.intake.take_frame(frame, is_enough), target, LOOK_SECONDS
            )
            stands_still = stream.stands_still
        if stands_still:
            # The log was flushed up to the middle of a record, or the server is slow to wake: a
            # commit of ours makes the record whole, and all that comes before it is read.
            assert self._control is not None
            with self._server.translate_errors():
                mark = emit_mark(self._control, WATERMARK)
            self.read_mark(mark)
            passed = True
        expected = self.intake.expected
        if passed and expected is not None and target >= expected.position:
            self._discard_read()
            raise self.intake.other_history_error()
        return passed

    def read_mark(self, xid: int) -> int:
        """Read until the transaction with this 64-bit id has come; its position."""
        met: list[int] = []

        def is_met(done: DecodedTransaction) -> bool:
            if done.id == xid & 0xFFFFFFFF:
                met.append(done.position)
            return bool(met)

        # A transaction may be as large as it likes, as long as it goes on.
        progress, end = (-1, -1), 0.0
        while not met:
            with self._guard_reading() as stream:
                stream.read_frames(
                    lambda frame: self.intake.take_frame(frame, is_met), 1 << 62, LOOK_SECONDS
                )
                if (stream.messages, stream.reached) != progress:
                    progress = (stream.messages, stream.reached)
                    end = time.monotonic() + self._server.statement_seconds
            if not met and time.monotonic() > end:
                raise SourceAwayError(
                    self._server.source,
                    "its change stream does not go on",
                    hint="raise statement_seconds, or look what the server does",
                )
        return met[0]

    @contextmanager
    def _guard_reading(self) -> Iterator[ReplicationStream]:
        """Afterwards the ended transactions are in the spool; a stream that failed is closed."""
        assert self._stream is not None, "open first"
        collects = gc.isenabled()
        gc.disable()
        try:
            yield self._stream
        except GapError:
            self._discard_read()
            raise
        except OSError as error:
            self.close_stream()
            raise self.intake.disk_error(error) from error
        except BaseException:
            self.close_stream()
            raise
        finally:
            if collects:
                gc.enable()
            try:
                self.intake.flush_to_spool()
            except WarehouseError:
                self.close_stream()
                raise

    def _discard_read(self) -> None:
        self.close_stream()
        self.intake.discard_read()

    def save_state(self, durable: bool) -> None:
        """Write down what must be found again; only the process that has the slot itself may."""
        if not self.is_copy:
            self._state = replace(
                self._state,
                newest=self.intake.newest or self._state.newest,
                tables=dict(self.followed.tables),
                floor=self.floor,
            )
            self.shapes.save_steps()
            write_state(self.files, self._state, durable)

    def confirm_visible(self, position: int, visible: VisibleTransactions) -> None:
        """Confirm and forget what lies at or before a position and is visible."""
        last = None
        for transaction in self.spool.transactions_until(position):
            if not visible.has_transaction(transaction.id):
                break
            last = transaction.position
        if last is None or self._stream is None:
            return
        self.save_state(durable=True)
        if not self.is_copy:
            self._stream.confirm_position(last)
        self.intake.forget_until(last)
        self.shapes.history.fold_until(last)
        self.floor = last

    def keep_alive(self) -> None:
        """Show the server that we are there."""
        if self._stream is not None:
            self._stream.send_keepalive()

    def forget_all(self) -> None:
        """Forget what was read; the next opening begins where the slot is confirmed."""
        self.close_stream()
        self.is_copy, self.floor = False, 0
        self.intake.forget_all()
        made = (read_state(self.files) or self._state).made_publication
        self._state = PostgresState("", 0, self.names.slot, made)
        self.followed.keep_tables(None, {})
        self.shapes.clear_steps()
        forget_state(self.files)

    def close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = None

    def close(self) -> None:
        self.close_stream()
        self.is_copy = False
        self.intake.clear_spool()
