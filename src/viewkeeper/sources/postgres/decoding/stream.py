"""A replication connection: frames of the change stream come in, acknowledgements go out.

There is no thread. The server ends a connection that says nothing for a minute, which costs no more
than opening it again; were it told to wait for ever, it could not be shut down while we are busy.
For the same reason a status says how far we have read, but nothing of what we have made durable,
unless it confirms: at its end the server waits until the last status has caught up.

Whoever wants to have seen everything up to a log position asks for a sign of life and
reads until one, or a commit, lies beyond it. All commits that were flushed before have come by
then, since the server decodes in order and sends a transaction when it meets its commit.
"""

from __future__ import annotations

import re
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct

from psycopg import pq
from psycopg.generators import execute

from viewkeeper.errors import GapError, SourceAwayError, SourceError, reload_hint
from viewkeeper.sources.postgres.decoding.pgoutput import EPOCH_SECONDS
from viewkeeper.sources.postgres.errors import unreadable_stream_error
from viewkeeper.sources.postgres.postgres_server import PostgresServer, error_of_state
from viewkeeper.sources.postgres.types import PgConnection, quote_literal, quote_name
from viewkeeper.sources.stream.socket_hint import count_waiting

_STATUS = Struct("!cQQQqB")
_wide = Struct("!Q").unpack_from
_MESSAGE, _ALIVE = ord("w"), ord("k")
_ALIVE_SIZE = 18
_RETRY_SECONDS = 5.0
# The log may be flushed up to the middle of a record, which nobody can read until it is whole. That
# may be the case when signs of life have not moved for so long.
_STANDSTILL_SECONDS = 0.05
_PAUSE_SECONDS = 0.005
# Longer than a server needs that decodes one large transaction between two signs of life.
_SILENCE_SECONDS = 90.0
# The other side has closed; systems other than Linux report it when reading.
_HANGUP: int = getattr(select, "POLLRDHUP", 0)
_IN_USE, _MISSING, _LOST = "55006", "42704", "55000"


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """Which server answers, on which timeline, and how far its log has been flushed."""

    system: str
    timeline: int
    flushed: int


class ReplicationStream:
    """One connection in COPY BOTH mode, or about to be."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._connection: PgConnection = server.open_replication()
        self._pgconn = self._connection.pgconn
        self._socket = self._pgconn.socket
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN | _HANGUP)
        self.reached = 0
        """Up to where the server has sent everything."""
        self.messages = 0
        """How many messages have come."""
        self._asked_at: float | None = None
        """Since when it owes a sign of life."""
        self.stands_still = False
        """Whether the last read ended because the server could not go on."""

    def identify_server(self) -> ServerIdentity:
        result = self._run_command("IDENTIFY_SYSTEM")
        return identity_of(
            self._server.source, [result.get_value(0, number) or b"" for number in range(3)]
        )

    def copy_slot(self, slot: str, copy: str) -> int:
        """Make a copy of a slot that ends with this connection; where the copy begins."""
        call = (
            f"pg_copy_logical_replication_slot({quote_literal(slot)}, {quote_literal(copy)}, true)"
        )
        result = self._run_command(f"SELECT (lsn - '0/0')::int8 FROM {call}")
        return int(result.get_value(0, 0) or b"0")

    def start_replication(self, slot: str, publication: str, start: int) -> None:
        """Begin at a position; waits a little for a dead connection of ours to let go of it."""
        # The commands of replication have a grammar of their own: a backslash is no escape in it.
        names = quote_name(publication).replace("'", "''")
        command = (
            f"START_REPLICATION SLOT {quote_name(slot)} LOGICAL {lsn_text(start)} "
            "(proto_version '1', "
            f"publication_names '{names}', messages 'true')"
        )
        end = time.monotonic() + _RETRY_SECONDS
        while True:
            try:
                self._run_command(command, pq.ExecStatus.COPY_BOTH)
                return
            except _InUseError as error:
                if time.monotonic() > end:
                    raise SourceAwayError(
                        self._server.source,
                        f'its slot "{slot}" is used by another process',
                        detail=str(error),
                        hint="stop the other `viewkeeper run`; a machine that is lost lets go "
                        "within a minute",
                    ) from None
                time.sleep(0.1)

    def read_frames(self, take: Callable[[bytes], bool], target: int, seconds: float) -> bool:
        """Hand over messages until `take` says stop, the target lies behind us, or time is up.

        False if the end of what can be read lies before the target.
        """
        with self._server.translate_errors():
            return self._read_until(take, target, time.monotonic() + seconds)

    def _read_until(self, take: Callable[[bytes], bool], target: int, end: float) -> bool:
        fetch, asked = self._pgconn.get_copy_data, False
        moved = ask_at = time.monotonic()
        self.stands_still = False
        while True:
            size, view = fetch(1)
            if size > 0:
                if view[0] == _MESSAGE:
                    moved = 0.0
                    self.messages += 1
                    if take(bytes(view)):
                        return True
                    continue
                if view[0] != _ALIVE or len(view) != _ALIVE_SIZE:
                    raise unreadable_stream_error(self._server.source, "a frame of an unknown kind")
                (reached,) = _wide(view, 1)
                if reached >= target:
                    self.reached = reached
                    return True
                now = time.monotonic()
                if reached != self.reached or not moved:
                    self.reached, moved = reached, now
                elif now - moved > _STANDSTILL_SECONDS:
                    self.stands_still = True
                    return False
                ask_at = now + _PAUSE_SECONDS if asked else ask_at
                asked = False
            elif size == 0:
                if not asked and time.monotonic() >= ask_at:
                    self._ask_sign()
                    asked = True
                if (
                    not self._wait_for_input(end if asked else min(end, ask_at))
                    and time.monotonic() >= end
                ):
                    return False
            else:
                self._raise_end()

    def _wait_for_input(self, end: float) -> bool:
        """Read what the server has sent; False if it sends nothing until `end`."""
        left = end - time.monotonic()
        if left <= 0 or not self._poll.poll(int(left * 1000) + 1):
            return False
        self._pgconn.consume_input()
        self._asked_at = None
        return True

    def _ask_sign(self) -> None:
        """Ask for a sign of life; a stream that gave none for long has lost its server."""
        now = time.monotonic()
        self._asked_at = self._asked_at or now
        if now - self._asked_at > _SILENCE_SECONDS:
            raise SourceAwayError(
                self._server.source,
                "the change stream has ended without a word",
                detail=f"no sign of life in {_SILENCE_SECONDS:g} s",
                hint="nothing to do: it is opened again",
            )
        self._send_status(reply=True)

    def confirm_position(self, position: int) -> None:
        """Nothing before this position has to be sent again; the transaction at it still is."""
        with self._server.translate_errors():
            self._send_status(reply=False, confirmed=position)
            self._send_status(reply=False)

    def send_keepalive(self) -> None:
        """Show that we are there."""
        with self._server.translate_errors():
            self._send_status(reply=False)

    def _send_status(self, reply: bool, confirmed: int = 0) -> None:
        # A confirmed position of zero confirms nothing.
        now = int((time.time() - EPOCH_SECONDS) * 1e6)
        read = max(self.reached, confirmed)
        self._pgconn.put_copy_data(_STATUS.pack(b"r", read, confirmed, confirmed, now, reply))
        while self._pgconn.flush():
            pass

    def _raise_end(self) -> None:
        result = self._pgconn.get_result()
        raise self._error_of(result)

    def _run_command(
        self, command: str, expected: pq.ExecStatus = pq.ExecStatus.TUPLES_OK
    ) -> pq.abc.PGresult:
        with self._server.translate_errors():
            self._pgconn.send_query(command.encode())
            result: pq.abc.PGresult = self._connection.wait(execute(self._pgconn))[-1]
        if result.status != expected:
            raise self._error_of(result)
        return result

    def _error_of(self, result: pq.abc.PGresult | None) -> Exception:
        source = self._server.source
        if result is None:
            return SourceAwayError(source, "the change stream ended")
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        text = self._server.scrub_password(result.error_message.decode("utf-8", "replace"))
        if state == _IN_USE:
            return _InUseError(text)
        if state in (_MISSING, _LOST):
            return GapError(
                source,
                "its slot or publication is gone, or has lost what is still needed",
                detail=text,
                hint=reload_hint(),
            )
        error: SourceError = error_of_state(source, state, text, is_connection=True)
        return error

    @property
    def waiting_bytes(self) -> int:
        """How many bytes the server has sent that were not read yet."""
        return count_waiting(self._socket)

    def is_alive(self) -> bool:
        """Whether the server is still there, as far as the socket knows."""
        ended = self._poll.poll(0)
        return not ended or not ended[0][1] & (select.POLLHUP | select.POLLERR | _HANGUP)

    def close(self) -> None:
        self._connection.close()


class _InUseError(Exception):
    """Another connection streams from the slot."""


def identity_of(source: str, values: Sequence[bytes]) -> ServerIdentity:
    """Who the server says that it is: system, timeline and position."""
    system, timeline, position = (value.decode("ascii", "replace") for value in values)
    if not re.fullmatch(r"[0-9]{1,10} [0-9A-F]{1,8}/[0-9A-F]{1,8}", f"{timeline} {position}"):
        raise unreadable_stream_error(
            source, f"timeline {timeline[:50]!r}, position {position[:50]!r}"
        )
    return ServerIdentity(system, int(timeline), lsn_of(position))


def lsn_of(text: str) -> int:
    """
    >>> lsn_of("1/A0")
    4294967456
    """
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(position: int) -> str:
    """
    >>> lsn_text(4294967456)
    '1/A0'
    """
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
