"""A copy of the slot, for whoever reads beside the maintainer: alive as long as it is held.

The copy is temporary: it goes with its connection, whatever happens to this process. The server
ends a change stream that says nothing for a minute, and a verification is busy with other things
for longer than that. So a thread goes on reading the stream, which also lets a server that is shut
down go: it waits for everything to have been read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

from viewkeeper.errors import ViewkeeperError
from viewkeeper.sources.postgres import postgres_server as connecting

_NAME_MAX = 63
_TIMES = 4  # so often within the server's patience


def copy_name(control: psycopg.Connection[Any], slot: str) -> str:
    """The name of one copy: of this connection and this moment, no longer than a slot's may be."""
    end = f"_copy_{control.info.backend_pid}_{time.monotonic_ns() % 1_000_000}"
    return f"{slot[: _NAME_MAX - len(end)]}{end}"


class CopyKeeper:
    """Calls `read` from time to time until it is stopped."""

    def __init__(self, read: Callable[[], None]) -> None:
        self._read = read
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep_reading, name="slot copy", daemon=True)
        self._thread.start()

    def _keep_reading(self) -> None:
        while not self._stopped.wait(connecting.SENDER_SECONDS / _TIMES):
            try:
                self._read()
            except ViewkeeperError:
                # Whoever asks next meets the same trouble, and is told.
                continue

    def stop_reading(self) -> None:
        """Not waited for: it may be waiting for the lock that we hold."""
        self._stopped.set()
