"""The change stream of one source: open whenever it is needed, held and acknowledged.

Looks, changes and answers all need the stream to have been read far enough. A stream that is not
open, or that the server has ended, is opened again and continues where it was left.

Whoever reads beside the maintainer (`verify`) reads a copy of the slot. The copy is temporary: it
goes with its connection, whatever happens to this process. The server ends a change stream that
says nothing for a minute, and a verification is busy with other things for longer than that. So a
thread goes on reading the copy, which also lets a server that is shut down go: it waits for
everything to have been read.

A look asks the server how far its log is flushed, on the control connection, and reads the stream
until it has passed that. While nothing was written it costs one round trip. Schema changes are in
the stream too: event triggers put them there, or a look does, which compares the catalogue with the
history of shapes (`ddl_watch`).

A process that has lost the warehouse, and is stopped, keeps the slot until the server's patience
with it ends. Who holds the warehouse now ends the connection of that process, and of no other: one
that serves another project keeps the slot, which is an error then.

From time to time a look also keeps house: a slot that would fill the server's disk is dropped, and
one that is idle is let advance.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from viewkeeper.errors import GapError, ViewkeeperError, reload_hint
from viewkeeper.sources.postgres import postgres_server
from viewkeeper.sources.postgres.answers.questions import PostgresQuestions
from viewkeeper.sources.postgres.answers.snapshot import read_visible
from viewkeeper.sources.postgres.database_description import PostgresDescriber
from viewkeeper.sources.postgres.decoding.capture import ANCHOR, WATERMARK, SlotCapture
from viewkeeper.sources.postgres.decoding.ddl_watch import emit_shapes, is_watched
from viewkeeper.sources.postgres.decoding.slot import (
    drop_slot,
    emit_mark,
    end_stream,
    flushed_position,
    read_slot,
)
from viewkeeper.sources.postgres.decoding.stream import lsn_text
from viewkeeper.sources.postgres.errors import format_size, hold_lost_error, retention_error
from viewkeeper.sources.postgres.shape_steps import schema_changes_of, unexplained_shapes
from viewkeeper.sources.postgres.types import PgConnection
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.stream.socket_hint import SocketHint
from viewkeeper.sources.stream.spool import SpooledTransaction
from viewkeeper.updates.source_protocol import LOOK_TRANSACTIONS, Boundary

_NAME_MAX = 63
_TIMES = 4  # so often within the server's patience


class SourceStream:
    """Opens the stream of one source and knows how far it was read."""

    def __init__(self, describer: PostgresDescriber, capture: SlotCapture) -> None:
        self.connections = describer.connections
        self.capture = capture
        self.flushed = 0
        """Up to where the log was flushed when everything up to there had been read."""
        self._source = describer.source
        self._describer = describer
        self._keeper: CopyKeeper | None = None
        self._holds: dict[str, tuple[int, float]] = {}
        self._predecessor: str | None = None

    def inherit_from(self, connection_name: str) -> None:
        """Take our slot from connections of this name, whenever it is opened."""
        self._predecessor = connection_name[: postgres_server.NAME_BYTES]

    def describe_source(self) -> str:
        """Where the database is, and how schema changes become known."""
        location = self.connections.server.describe_location()
        match self.capture.shapes.is_watched:
            case None:
                return location
            case True:
                return f"{location}, event triggers tell its schema changes"
            case False:
                return f"{location}, looks find its schema changes"

    def open_stream(self, control: PgConnection) -> None:
        """Have a stream that answers; one that the server ended meanwhile is opened again."""
        capture = self.capture
        if capture.shapes.is_watched is None:
            capture.shapes.set_watched(is_watched(control, capture.names.derived))
        if capture.is_copy:
            self._open_copy(control)
        elif not capture.is_open or not capture.is_alive():
            self.flushed = 0
            if self._predecessor is not None:
                end_stream(control, capture.names.slot, self._predecessor)
            capture.open_stream(control)

    def read_flushed(self, control: PgConnection, after: int, limit: int) -> bool:
        """Read what the server has flushed, or until the spool has so many transactions after a
        position; whether all of it was read."""
        flushed = flushed_position(control)
        if flushed != self.flushed and self._has_room(after, limit):
            passed = self.capture.read_stream(flushed, after, limit)
            if passed and self._has_room(after, limit):
                self.flushed = flushed
        return flushed == self.flushed

    def _has_room(self, after: int, limit: int) -> bool:
        return len(self.capture.spool.transactions_after(after, limit)) < limit

    def read_until(self, position: int) -> None:
        """Have read the stream up to a position that was reported earlier."""
        with self.connections.use_control() as control:
            self.open_stream(control)
            if (self.capture.newest_position or 0) < position:
                self.read_past_watermark(control)

    def read_past_watermark(self, control: PgConnection) -> None:
        """Read the stream past everything that a snapshot taken before can contain."""
        self.capture.read_mark(emit_mark(control, WATERMARK))

    def check_known(self, after: int) -> None:
        """A GapError if what was committed after the position cannot be known any more.

        It need not be that of a transaction in our stream: another reader may have reported it. A
        server that was restored is noticed when the stream is opened.
        """
        floor = self.capture.floor
        if after < floor:
            raise GapError(
                self._source,
                f"position {lsn_text(after)} is not one of this server's stream, which begins at "
                f"{lsn_text(floor)}",
                detail="its slot is a new one, or it was restored from a backup",
                hint=reload_hint(),
            )

    def acknowledge_position(self, position: int) -> None:
        """Confirm what every view has committed and a snapshot taken now sees.

        What is not visible yet would be neither sent again nor seen after a crash.
        """
        with self.connections.use_control() as control:
            if not self.capture.is_open:
                return
            held = [at for at, until in self._holds.values() if until > time.monotonic()]
            visible = read_visible(control, self._source)
            self.capture.confirm_visible(min([position, *held]), visible)

    def begin_hold(self, name: str, seconds: float) -> None:
        """Keep what is kept now: of our own slot, or of a copy of it that only we use.

        A copy goes with its connection, also if this process dies.
        """
        with self.connections.use_control() as control:
            if not self.capture.is_open:
                self._describer.reload_handles()
                self.flushed = 0
                self._copy_slot(control)
                self._keeper = CopyKeeper(self._read_copy)
            self._holds[name] = (self.capture.floor, time.monotonic() + seconds)

    def end_hold(self, name: str) -> None:
        """End a hold; nothing happens if it has ended."""
        with self.connections.lock:
            self._holds.pop(name, None)
            if not self._holds and self.capture.is_copy:
                self._close_copy()

    def _open_copy(self, control: PgConnection) -> None:
        """Have a copy of the slot that answers; never the slot itself, which is somebody else's.

        A copy that was lost can be made again as long as nobody has advanced the slot.
        """
        capture, held = self.capture, self.capture.floor
        if not capture.is_alive():
            self.flushed = 0
            if self._is_advanced(control, held):
                raise hold_lost_error(self._source)
            try:
                self._copy_slot(control)
            except GapError:
                # It may have been advanced since we asked: a maintainer confirms by messages.
                if self._is_advanced(control, held):
                    raise hold_lost_error(self._source) from None
                raise
            if capture.floor > held:
                raise hold_lost_error(self._source)

    def _is_advanced(self, control: PgConnection, held: int) -> bool:
        slot = read_slot(control, self.capture.names.slot)
        return slot is not None and (slot.confirmed or 0) > held

    def _copy_slot(self, control: PgConnection) -> None:
        """Read a copy of the slot, of this connection and this moment, from now on."""
        end = f"_copy_{control.info.backend_pid}_{time.monotonic_ns() % 1_000_000}"
        name = f"{self.capture.names.slot[: _NAME_MAX - len(end)]}{end}"
        self.capture.open_stream(control, copy=name)

    def _read_copy(self) -> None:
        with self.connections.use_control() as control:
            if self.capture.is_copy:
                self._open_copy(control)
                self.capture.keep_alive()
                self.capture.read_stream(flushed_position(control))

    def _close_copy(self) -> None:
        if self._keeper is not None:
            self._keeper.stop_reading()
        self._keeper = None
        self.capture.close()

    def close(self) -> None:
        with self.connections.lock:
            self.connections.close()
            self._close_copy()


class CopyKeeper:
    """Calls `read` from time to time until it is stopped."""

    def __init__(self, read: Callable[[], None]) -> None:
        self._read = read
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep_reading, name="slot copy", daemon=True)
        self._thread.start()

    def _keep_reading(self) -> None:
        while not self._stopped.wait(postgres_server.SENDER_SECONDS / _TIMES):
            try:
                self._read()
            except ViewkeeperError:
                # The next request meets the same error, and reports it.
                continue

    def stop_reading(self) -> None:
        """Not waited for: it may be waiting for the lock that we hold."""
        self._stopped.set()


_HOUSEKEEPING_SECONDS = 5.0
# So much of the log may follow the newest transaction that we know before we put an empty one of
# our own behind it, which the slot can then be advanced to.
IDLE_BYTES = 16 << 20
# So long after a comparison of shapes the next one is made at the earliest, if no event triggers
# report them, and if they do.
_UNWATCHED_SECONDS = 0.2
_WATCHED_SECONDS = 5.0
RETENTION_BYTES = 10 << 30


def retention_of(settings: SourceSettings) -> int:
    """How many bytes of the server's log our slot may keep."""
    return settings.read_size("retention", RETENTION_BYTES)


class DecodingLook:
    """Looks of one source; it remembers what the last ones have compared and written down."""

    def __init__(
        self, stream: SourceStream, describer: PostgresDescriber, questions: PostgresQuestions
    ) -> None:
        self._stream = stream
        self._capture = stream.capture
        self._describer = describer
        self._questions = questions
        self._house_at = 0.0
        self._saved_position = 0
        self._compared_until = 0
        self._compare_at = 0.0
        self._hint = SocketHint()

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """What was committed after a position, one boundary per transaction.

        An empty transaction is reported only where nothing else would let the slot advance.
        """
        capture = self._capture
        with self._describer.connections.use_control() as control:
            self._stream.open_stream(control)
            waiting, before = capture.waiting_bytes, self._stream.flushed
            is_read = self._stream.read_flushed(control, after, LOOK_TRANSACTIONS)
            if is_read and self._is_compare_due():
                self.compare_shapes(control)
                self._compared_until = self._stream.flushed
            self._stream.check_known(after)
            self._keep_house(control)
            newest = capture.newest_position
            if newest is not None and newest != self._saved_position:
                capture.save_state(durable=False)
                self._saved_position = newest
            reported = self._report_boundaries(after)
            has_moved = not is_read or self._stream.flushed != before
            self._hint.note_look(waiting, has_moved, bool(reported))
            return reported

    def has_news(self) -> bool | None:
        """Whether the server has sent something since the last look."""
        return self._hint.has_news(self._capture.waiting_bytes)

    def has_passed(self, position: int) -> bool:
        """A transaction lies before the end of its commit, which is flushed when it is reported."""
        return position <= self._stream.flushed

    def _is_compare_due(self) -> bool:
        """Whether something may have changed that the stream does not report."""
        if self._questions.has_suspicion:
            return True
        has_grown = self._stream.flushed != self._compared_until
        return has_grown and time.monotonic() >= self._compare_at

    def compare_shapes(self, control: PgConnection) -> None:
        """Have the shapes in the stream that the catalogue has by now."""
        shapes = self._capture.shapes
        pause = _WATCHED_SECONDS if shapes.is_watched else _UNWATCHED_SECONDS
        self._compare_at = time.monotonic() + pause
        unexplained = unexplained_shapes(control, shapes.history)
        if unexplained:
            shapes.set_watched(is_watched(control, self._capture.names.derived))
            xid = emit_shapes(control, unexplained, bool(shapes.is_watched))
            if xid is None:
                self._questions.set_suspicion(True)
                return
            self._capture.read_mark(xid)
        self._questions.set_suspicion(False)

    def _report_boundaries(self, after: int) -> tuple[Boundary, ...]:
        ended = self._capture.spool.transactions_after(after, LOOK_TRANSACTIONS)
        # A full report has the empty ones too, so that it is seen to be full.
        is_full = len(ended) >= LOOK_TRANSACTIONS
        steps = self._capture.shapes.history.step_positions()
        boundaries = [self._boundary_of(each, each.position in steps) for each in ended]
        reported = tuple(b for b in boundaries if is_full or b.changes or b.emptied or b.reshaped)
        if not reported and ended and ended[-1].position - after >= IDLE_BYTES:
            return (boundaries[-1],)
        return reported

    def _boundary_of(self, each: SpooledTransaction, is_reshaped: bool) -> Boundary:
        history, handles = self._capture.shapes.history, self._describer.handles
        changes = history.changes_at(each.position) if is_reshaped else []
        return Boundary(
            each.position,
            each.committed_at,
            each.changes,
            tuple(handle for table in each.emptied for handle in handles.handles_of(table)),
            tuple(handle for table in each.keyed for handle in handles.handles_of(table)),
            schema_changes_of(handles, changes, self._describer.connections.search_path),
        )

    def _keep_house(self, control: PgConnection) -> None:
        """From time to time: watch what the slot keeps, and let it advance over what is not ours.

        A slot that would fill the server's disk is dropped, whatever that costs us.
        """
        capture = self._capture
        if time.monotonic() < self._house_at or capture.is_copy:
            return
        self._house_at = time.monotonic() + _HOUSEKEEPING_SECONDS
        capture.keep_alive()
        slot, source = read_slot(control, capture.names.slot), self._describer.source
        retained = slot.retained if slot else None
        allowed = retention_of(self._describer.connections.server.settings)
        if retained is not None and retained > allowed:
            capture.forget_all()
            drop_slot(control, source, capture.names.slot)
            raise retention_error(source, format_size(retained), format_size(allowed))
        newest = capture.newest_position
        if self._stream.flushed - (capture.floor if newest is None else newest) > IDLE_BYTES:
            capture.read_mark(emit_mark(control, ANCHOR))
