"""The SQLSTATE with which a server refused a connection.

The driver gives errors of opening a connection as text alone, in whatever language the server
speaks. Its library can be told to write nothing but the state, on one connection and before that is
made; psycopg has no call for it. So a connection whose refusal is not understood is tried once more
by the library itself. Where the library is not found, the state is not known.
"""

from __future__ import annotations

import ctypes
import re
import select
import time
from pathlib import Path
from typing import Any

from psycopg import pq

_ONLY_STATES = 3  # PQERRORS_SQLSTATE
_STATE = re.compile(r":\s+([0-9A-Z]{5})\s*$")


def find_driver_library() -> ctypes.CDLL | None:
    """The library that psycopg has loaded; None where that cannot be seen."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    paths = {line.split(maxsplit=5)[-1] for line in lines if "/libpq" in line}
    return ctypes.CDLL(min(paths)) if paths else None


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
        left = end - time.monotonic()
        waits = [connection.socket]
        is_read = status == pq.PollingStatus.READING
        ready = select.select(waits if is_read else [], [] if is_read else waits, [], max(left, 0))
        if not any(ready):
            return
        status = pq.PollingStatus(connection.connect_poll())
