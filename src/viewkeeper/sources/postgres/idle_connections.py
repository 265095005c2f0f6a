"""Connections that answered in a snapshot, kept by their process for the next one.

A connection takes longer to open than few keys take to answer: 10 ms, and 60 where answers are
Arrow, whose driver first reads all types of the server. So a process, the driver or a worker of
Spark, keeps one of each kind for a server. One that is not in use holds no transaction, so it keeps
nothing from being cleaned up; it goes with the worker, or when the source is closed.

Whoever takes one finds out whether it still is a connection to that server by importing a snapshot
on it: one that cannot is closed, and another is opened.
"""

from __future__ import annotations

from typing import Any

from viewkeeper.sources.settings import SourceSettings


class IdleConnections:
    """The connections of one kind that nobody uses, one per source; used by any thread."""

    def __init__(self) -> None:
        self._idle: dict[str, Any] = {}

    def has_connection(self, settings: SourceSettings) -> bool:
        """Whether one is there to be taken."""
        return repr(settings) in self._idle

    def take_connection(self, settings: SourceSettings) -> Any:
        """The one that is there, or None; who takes it closes it or gives it back."""
        return self._idle.pop(repr(settings), None)

    def give_back(self, settings: SourceSettings, connection: Any) -> None:
        """Keep a connection that is in no transaction; one too many is closed."""
        if self._idle.setdefault(repr(settings), connection) is not connection:
            connection.close()


TEXT = IdleConnections()
ARROW = IdleConnections()


def close_idle_connections(settings: SourceSettings) -> None:
    """Close all that this process keeps for a source."""
    for kind in (TEXT, ARROW):
        if (kept := kind.take_connection(settings)) is not None:
            kept.close()
