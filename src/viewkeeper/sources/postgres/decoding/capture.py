"""Capturing by logical decoding: from the slot's stream into the spool.

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg

from viewkeeper.errors import GapError, SourceAwayError, SourceError, WarehouseError
from viewkeeper.sources.postgres.decoding.pgoutput import (
    PIECE_ROWS,
    DecodedTransaction,
    FollowedRelation,
    PgoutputDecoder,
)
from viewkeeper.sources.postgres.decoding.slot import (
    ReplicationSlot,
    check_ours,
    emit_mark,
    read_slot,
)
from viewkeeper.sources.postgres.decoding.state import (
    VERSION,
    FollowedTable,
    KnownTransaction,
    PostgresState,
    forget_state,
    read_state,
    write_state,
)
from viewkeeper.sources.postgres.decoding.stream import ReplicationStream, ServerIdentity
from viewkeeper.sources.postgres.decoding.stream_shapes import StreamShapes
from viewkeeper.sources.postgres.decoding.visibility import VisibleTransactions
from viewkeeper.sources.postgres.errors import gap_error
from viewkeeper.sources.postgres.postgres_server import PostgresServer
from viewkeeper.sources.stream.spool import Spool, StreamedTransaction
from viewkeeper.sources.stream.stage import TransactionStage
from viewkeeper.updates.source_protocol import LOOK_SECONDS

ANCHOR, WATERMARK = "anchor", "watermark"


class SlotCapture:
    """Reads one slot into one spool; used under its source's lock."""

    def __init__(self, server: PostgresServer, slot: str, publication: str, home: Path) -> None:
        self._server = server
        self.source = server.source
        self.slot = slot
        self.publication = publication
        self.home = home
        self.spool = Spool(home)
        self.shapes = StreamShapes(server, home)
        self._decoder = PgoutputDecoder(
            server.source, self._find_followed, self.shapes, TransactionStage(home)
        )
        self._stream: ReplicationStream | None = None
        self._control: psycopg.Connection[Any] | None = None
        self.state = PostgresState("", 0, slot)
        self.floor = 0
        self.newest: KnownTransaction | None = None
        self._expected: KnownTransaction | None = None
        self._ended: list[StreamedTransaction] = []
        self.troubles: dict[int, Mapping[str, SourceError]] = {}
        self._followed: dict[int, FollowedRelation | None] = {}
        self.is_copy = False
        """Whether a copy of the slot is read, beside somebody who reads the slot itself."""
        self._kept_until = 0

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    def is_alive(self) -> bool:
        """Whether the stream is open and the server has not ended it."""
        if self._stream is not None and not self._stream.is_alive():
            self.close_stream()
        return self._stream is not None

    def open_stream(self, control: psycopg.Connection[Any], copy: str | None = None) -> None:
        """Open the stream where it was left, or where the slot stands; `copy` names a slot that is
        made as a copy of ours and goes with the stream."""
        stream = ReplicationStream(self._server)
        try:
            slot = read_slot(control, self.slot)
            check_ours(self._server.source, self.slot, slot, control.info.dbname)
            identity = stream.identify_server()
            if copy is not None and slot is not None and not slot.is_lost:
                slot = replace(slot, confirmed=stream.copy_slot(self.slot, copy))
            # After the slot, which whoever else may advance meanwhile: it is advanced only to
            # where the remembered transactions have got already.
            remembered = read_state(self.home)
            confirmed = self._check_slot(slot, identity, remembered)
            if copy is not None and remembered is not None:
                confirmed = max(confirmed, remembered.floor)
            resumed = self.newest
            start = confirmed if resumed is None else resumed.position
            stream.start_replication(copy or self.slot, self.publication, start)
        except BaseException:
            stream.close()
            raise
        self._stream, self._control, self.is_copy = stream, control, copy is not None
        self._decoder.reset_stream()
        self._decoder.skip = max(start, remembered.floor if remembered else 0)
        self._kept_until = 0 if resumed is None else start
        self._ended = []
        if resumed is None:
            self.floor = confirmed
            self._expected = remembered.newest if remembered else None
            self.state = replace(remembered or self.state, slot=self.slot)
        else:
            self._expected = resumed
        believed = self._expected.position if self._expected else 0
        self.shapes.reopen_history(
            control, self._decoder.skip, believed, is_resumed=resumed is not None
        )
        self.state = replace(self.state, system=identity.system, timeline=identity.timeline)
        self.keep_tables(self.state.tables)

    def _check_slot(
        self,
        slot: ReplicationSlot | None,
        identity: ServerIdentity,
        remembered: PostgresState | None,
    ) -> int:
        """Where the slot is confirmed; a GapError if it cannot be the one that we left."""
        known = self.newest or (remembered.newest if remembered else None)
        cause = None
        if remembered and remembered.version != VERSION:
            cause = "what an earlier version remembered of it cannot be gone on from"
        elif slot is None:
            cause = f'its replication slot "{self.slot}" is gone'
        elif slot.is_lost:
            cause = f'its replication slot "{self.slot}" has lost what is still needed'
        elif remembered and remembered.system not in ("", identity.system):
            cause = "this is another server than the one that was followed"
        elif known and identity.flushed < known.position:
            cause = "it was restored to an earlier state"
        elif known and slot.confirmed is not None and slot.confirmed > known.position:
            cause = f'somebody else has advanced its replication slot "{self.slot}"'
        if cause is not None:
            raise gap_error(self._server.source, cause)
        assert slot is not None
        assert slot.confirmed is not None
        return slot.confirmed

    def keep_tables(self, tables: Mapping[str, FollowedTable]) -> None:
        """Keep these columns of these tables of what is read from now on."""
        self.state = replace(self.state, tables=dict(tables))
        self._followed = {}
        for name, table in tables.items():
            leaves = frozenset(table.leaves)
            followed = FollowedRelation(name, table.oid, table.columns, table.key, leaves)
            for oid in (table.oid, *table.leaves):
                self._followed[oid] = followed
        self._decoder.forget_relations()

    def _find_followed(self, oid: int) -> FollowedRelation | None:
        """What is kept of a relation; a partition that is new is found by its root."""
        if oid in self._followed:
            return self._followed[oid]
        assert self._control is not None
        query = "SELECT pg_partition_root(oid)::oid::int8 FROM pg_class WHERE oid = %s"
        with self._server.translate_errors():
            row = self._control.execute(query, (oid,)).fetchone()
        root = self._followed.get(int(row[0])) if row and row[0] is not None else None
        if root is not None:
            table = self.state.tables[root.table]
            grown = replace(table, leaves=(*table.leaves, oid))
            self.state = replace(self.state, tables={**self.state.tables, root.table: grown})
            root = replace(root, leaves=frozenset(grown.leaves))
            for each in (table.oid, *grown.leaves):
                self._followed[each] = root
        self._followed[oid] = root
        return root

    def read_stream(self, target: int, after: int | None = None, limit: int = 0) -> bool:
        """Read until everything committed before the log position `target` has come, or until so
        many transactions after a position have; whether the target was passed."""
        found = 0 if after is None else len(self.spool.transactions_after(after))

        def is_enough(done: DecodedTransaction) -> bool:
            nonlocal found
            found += after is not None and done.position > after
            full = bool(limit) and found >= limit and self._expected is None
            return full or done.end >= target

        with self._guard_reading() as stream:
            passed = stream.read_frames(
                lambda frame: self._take_frame(frame, is_enough), target, LOOK_SECONDS
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
        if passed and self._expected is not None and target >= self._expected.position:
            self._discard_read()
            raise self._other_history()
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
                    lambda frame: self._take_frame(frame, is_met), 1 << 62, LOOK_SECONDS
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
        """What has ended is in the spool afterwards; a stream that failed is opened anew."""
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
            raise self._disk_error(error) from error
        except BaseException:
            self.close_stream()
            raise
        finally:
            if collects:
                gc.enable()
            self._flush_to_spool()

    def _disk_error(self, error: OSError) -> WarehouseError:
        return WarehouseError(
            f'source "{self._server.source}": what was read of its change stream cannot be kept',
            detail=f"{error}, below {self.home}",
            hint="make room on that disk, or make the folder writable, and run again",
        )

    def _discard_read(self) -> None:
        """What was read does not count; whoever looks again reads it again, or is told again."""
        self.close_stream()
        for _ in self._decoder.take_ended():
            pass
        self._ended = []
        self.spool.clear_all()
        self.newest = None

    def _take_frame(self, frame: bytes, is_enough: Any) -> bool:
        done = self._decoder.take_frame(frame)
        if done is None:
            return False
        self._verify_expected(done)
        is_kept = _is_kept(done) or done.position <= self._decoder.skip
        if done.position > self._kept_until and is_kept:
            self._keep_transaction(done)
        if done.is_large or self._decoder.waiting >= PIECE_ROWS:
            self._flush_to_spool()
        return bool(is_enough(done))

    def _verify_expected(self, done: DecodedTransaction) -> None:
        expected = self._expected
        if expected is None or done.position < expected.position:
            return
        if KnownTransaction(done.position, done.id, done.committed_us) != expected:
            raise self._other_history()
        self._expected = None

    def _other_history(self) -> GapError:
        return gap_error(
            self._server.source, "its newest transactions are not those that were reported"
        )

    def _keep_transaction(self, done: DecodedTransaction) -> None:
        self._ended.append(
            StreamedTransaction(
                done.position,
                done.committed_at,
                max(done.changes, len(done.troubles)),
                done.id,
                done.end,
                tuple(done.emptied),
                tuple(done.keyed),
            )
        )
        self.newest = KnownTransaction(done.position, done.id, done.committed_us)
        if done.troubles:
            self.troubles[done.position] = done.troubles

    def _flush_to_spool(self) -> None:
        try:
            for table, batch in self._decoder.take_ended():
                self.spool.write_batch(table, batch)
        except OSError as error:
            # Part of a transaction may be in the spool: all that is not confirmed is read again.
            self._discard_read()
            raise self._disk_error(error) from error
        for transaction in self._ended:
            self.spool.end_transaction(transaction)
        self._ended = []

    def save_state(self, durable: bool) -> None:
        """Write down what must be found again; only whoever has the slot itself may."""
        if not self.is_copy:
            self.state = replace(
                self.state, newest=self.newest or self.state.newest, floor=self.floor
            )
            self.shapes.save_steps()
            write_state(self.home, self.state, durable)

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
        self.spool.forget_until(last)
        self.shapes.history.fold_until(last)
        self.troubles = {at: each for at, each in self.troubles.items() if at > last}
        self.floor = last

    def keep_alive(self) -> None:
        """Show the server that we are there."""
        if self._stream is not None:
            self._stream.send_keepalive()

    def forget_all(self) -> None:
        """Nothing was ever read; the next opening begins where the slot stands."""
        self.close_stream()
        self.is_copy = False
        self.spool.clear_all()
        self.newest, self._expected, self.floor = None, None, 0
        made = (read_state(self.home) or self.state).made_publication
        self.troubles, self.state = {}, PostgresState("", 0, self.slot, made)
        self.shapes.clear_steps()
        forget_state(self.home)

    def close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream = None

    def close(self) -> None:
        self.close_stream()
        self.is_copy = False
        self.spool.clear_all()
        self.newest = None


def _is_kept(done: DecodedTransaction) -> bool:
    found = done.changes or done.emptied or done.troubles or done.reshaped
    return bool(found or ANCHOR.encode() in done.marks)
