"""Whether a look may be worthwhile, from the bytes that wait in the socket of a change stream.

A server sends a transaction as soon as it is committed. So as long as no byte has come since the
last look, and that one found everything read, another look would find nothing. The bytes are
counted, not read: signs of life that nobody has read yet are no news a second time.

A stream may tell of a transaction a little before looks may report it (MariaDB), and bytes may wait
in the buffers of a driver, where nobody counts them. So after a look that has read something, or
has found other bytes than the one before, looks go on for a moment.
"""

from __future__ import annotations

import fcntl
import struct
import termios
import time

NO_STREAM = -1
"""The count of a stream that is not open: it cannot tell."""

RESTLESS_SECONDS = 0.05
"""So long after bytes have come looks go on, whatever the socket says."""

FIRST_PAUSE_SECONDS = 0.002
IN_VAIN_SECONDS = 0.02
"""After a look in vain the next one waits so long, then twice that, up to the second of these: a
server may be busy with what is not followed."""

_COUNT = struct.Struct("i")


def count_waiting(socket: int) -> int:
    """How many bytes have come that nobody has read; `NO_STREAM` if the socket is closed."""
    try:
        return int(_COUNT.unpack(fcntl.ioctl(socket, termios.FIONREAD, bytes(_COUNT.size)))[0])
    except (OSError, ValueError):
        return NO_STREAM


class SocketHint:
    """What the last look at a stream has found, and what its socket had then."""

    def __init__(self) -> None:
        self._waiting: int | None = None
        self._looked_at = 0.0
        self._restless_until = 0.0
        self._pause = 0.0

    def note_look(self, waiting: int, is_read: bool, is_found: bool) -> None:
        """A look is over: so many bytes waited *before* it asked how far the server is, and it has
        read something of the stream, or reported something."""
        self._looked_at = time.monotonic()
        if is_read or waiting != self._waiting:
            self._restless_until = self._looked_at + RESTLESS_SECONDS
        is_calm = self._looked_at >= self._restless_until
        longer = min(IN_VAIN_SECONDS, max(FIRST_PAUSE_SECONDS, 2 * self._pause))
        self._pause = 0.0 if is_found or is_calm else longer
        self._waiting = waiting

    def has_news(self, waiting: int) -> bool | None:
        """Whether a look may be worthwhile, now that so many bytes wait; None without a stream."""
        if waiting == NO_STREAM:
            return None
        now = time.monotonic()
        if waiting == self._waiting and now >= self._restless_until:
            return False
        return now - self._looked_at >= self._pause
