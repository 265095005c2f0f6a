"""The change stream of one source: open whenever it is needed, held and acknowledged.

Looks, changes and answers all need the stream to have been read far enough. A stream that is not
open, or that the server has ended, is opened again and continues where it was left.

Whoever reads beside the maintainer (`verify`) reads a copy of the slot. The copy is temporary: it
goes with its connection, whatever happens to this process. The server ends a change stream that
says nothing for a minute, and a verification is busy with other things for longer than that. So a
thread goes on reading the copy, which also lets a server that is shut down go: it waits for
everything to have been read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

from viewkeeper.errors import GapError, ViewkeeperError, reload_hint
from viewkeeper.sources.postgres import postgres_server
from viewkeeper.sources.postgres.database_description import PostgresDescriber
from viewkeeper.sources.postgres.decoding.capture import WATERMARK, SlotCapture
from viewkeeper.sources.postgres.decoding.ddl_watch import is_watched
from viewkeeper.sources.postgres.decoding.slot import emit_mark, flushed_position, read_slot
from viewkeeper.sources.postgres.decoding.visibility import VisibleTransactions
from viewkeeper.sources.postgres.errors import hold_lost_error

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

    def open_stream(self, control: psycopg.Connection[Any]) -> None:
        """Have a stream that answers; one that the server ended meanwhile is opened again."""
        capture = self.capture
        if capture.shapes.is_watched is None:
            capture.shapes.set_watched(is_watched(control, capture.names.derived))
        if capture.is_copy:
            self._open_copy(control)
        elif not capture.is_open or not capture.is_alive():
            self.flushed = 0
            capture.open_stream(control)

    def read_flushed(self, control: psycopg.Connection[Any], after: int, limit: int) -> bool:
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

    def read_past_watermark(self, control: psycopg.Connection[Any]) -> None:
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
                f"position {after} is not one of this server's stream, which begins at {floor}",
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
            row = control.execute("SELECT pg_current_snapshot()::text").fetchone()
            assert row is not None
            self.capture.confirm_visible(
                min([position, *held]), VisibleTransactions.parse_snapshot(self._source, row[0])
            )

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

    def _open_copy(self, control: psycopg.Connection[Any]) -> None:
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

    def _is_advanced(self, control: psycopg.Connection[Any], held: int) -> bool:
        slot = read_slot(control, self.capture.names.slot)
        return slot is not None and (slot.confirmed or 0) > held

    def _copy_slot(self, control: psycopg.Connection[Any]) -> None:
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
