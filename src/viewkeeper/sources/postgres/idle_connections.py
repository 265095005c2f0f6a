"""Connections that answered in a snapshot, kept by their process for the next one.

A connection takes longer to open than few keys take to answer: 10 ms, and 60 where answers are
Arrow, whose driver first reads all types of the server. So a process, the driver or a worker of
Spark, keeps one of each kind for a server. One that is not in use holds no transaction, so it keeps
nothing from being cleaned up; it goes with the worker, or when the source is closed.

Whoever takes one finds out whether it still is a connection to that server by importing a snapshot
on it: one that cannot is closed, and another is opened.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from viewkeeper.sources.settings import SourceSettings

IDLE_MAX = 1
"""So many of a kind are kept for a server: a task uses one of each."""


class IdleConnections:
    """The connections of one kind that nobody uses, by the settings of their source."""

    def __init__(self) -> None:
        self._idle: dict[str, list[Any]] = {}
        self._lock = threading.Lock()

    def has_connection(self, settings: SourceSettings) -> bool:
        """Whether one is there to be taken."""
        return bool(self._idle.get(repr(settings)))

    def take_connections(self, settings: SourceSettings) -> Iterator[Any]:
        """Those that are there, one after the other; who takes one closes it or gives it back."""
        while True:
            with self._lock:
                idle = self._idle.get(repr(settings))
                if not idle:
                    return
                taken = idle.pop()
            yield taken

    def give_back(self, settings: SourceSettings, connection: Any) -> None:
        """Keep a connection that is in no transaction; one too many is closed."""
        with self._lock:
            idle = self._idle.setdefault(repr(settings), [])
            is_kept = len(idle) < IDLE_MAX
            if is_kept:
                idle.append(connection)
        if not is_kept:
            connection.close()

    def close_connections(self, settings: SourceSettings) -> None:
        """Close those of a source."""
        with self._lock:
            idle = self._idle.pop(repr(settings), [])
        for connection in idle:
            connection.close()


TEXT = IdleConnections()
ARROW = IdleConnections()


def close_idle_connections(settings: SourceSettings) -> None:
    """Close all that this process keeps for a source."""
    for kind in (TEXT, ARROW):
        kind.close_connections(settings)
