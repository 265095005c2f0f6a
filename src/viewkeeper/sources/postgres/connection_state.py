"""The SQLSTATE with which a server refused a connection.

The driver gives errors of opening a connection as text alone, in whatever language the server
speaks. Its library can be told to write nothing but the state, on one connection and before that is
made; psycopg has no call for it. So a connection whose refusal is not understood is tried once more
by the library itself: by the one that psycopg has loaded, for another library's pointers mean
nothing to it, and other programs in this process may have loaded theirs. Where it is not found for
sure, or its file was replaced by an upgrade, the state is not known.
"""

from __future__ import annotations

import ctypes
import re
import select
import time
from pathlib import Path
from typing import Any

from psycopg import pq

MAPS = Path("/proc/self/maps")
_ONLY_STATES = 3  # PQERRORS_SQLSTATE
_STATE = re.compile(r":\s+([0-9A-Z]{5})\s*$")
_LIBRARY = re.compile(r"/.*/libpq[-.][^/\n]*$", re.MULTILINE)


def find_driver_library() -> ctypes.CDLL | None:
    """The library that psycopg has loaded; None where that cannot be seen."""
    try:
        (path,) = {path for path in _LIBRARY.findall(MAPS.read_text()) if _is_drivers(Path(path))}
        return ctypes.CDLL(path)
    except (OSError, ValueError):
        return None


def _is_drivers(path: Path) -> bool:
    """Whether a library is where psycopg takes its own from: wheels have one beside them."""
    return (path.parent.name == "psycopg_binary.libs") == (pq.__impl__ == "binary")


def read_connection_state(conninfo: str, seconds: float) -> str:
    """The state of the error with which this connection fails; empty if it is not known."""
    library = find_driver_library()
    if library is None:
        return ""
    connection = pq.PGconn.connect_start(conninfo.encode())
    try:
        driver: Any = connection
        library.PQsetErrorVerbosity(ctypes.c_void_p(driver.pgconn_ptr), _ONLY_STATES)
        _wait_for_end(connection, time.monotonic() + seconds)
        return state_in_text(connection.get_error_message())
    finally:
        connection.finish()


def state_in_text(text: str) -> str:
    """The state at the end of an error that has nothing else.

    >>> state_in_text('connection to server at "127.0.0.1", port 5432 failed: FATAL:  28P01')
    '28P01'
    """
    found = _STATE.search(text)
    return found.group(1) if found else ""


def _wait_for_end(connection: pq.abc.PGconn, end: float) -> None:
    """Let the connection be made or fail."""
    status = pq.PollingStatus.WRITING
    waiting = (pq.PollingStatus.READING, pq.PollingStatus.WRITING)
    # What cannot even be begun has no socket.
    while status in waiting and connection.status != pq.ConnStatus.BAD:
        is_read = status == pq.PollingStatus.READING
        poll = select.poll()
        poll.register(connection.socket, select.POLLIN if is_read else select.POLLOUT)
        if not poll.poll(1000 * max(end - time.monotonic(), 0)):
            return
        status = pq.PollingStatus(connection.connect_poll())
