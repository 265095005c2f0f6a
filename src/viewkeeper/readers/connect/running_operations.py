"""Queries that run, and the versions of views that they read until they have ended.

A client may lose its connection in the middle of an answer and take it up again, so the end of a
stream is not the end of a query. It has ended when the client says so, when its session is over, or
when nobody has asked for it for longer than Spark itself keeps what was abandoned.

A client may also send a query again under the name that it has. Whether Spark runs it once more or
says that it is there, nothing that either of them reads goes before both are over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from viewkeeper.readers.connect.pinned_views import ViewPin

ABANDONED_SECONDS = 360.0
"""Spark gives an answer up that nobody has asked for during five minutes."""


@dataclass(slots=True)
class RunningOperation:
    """A query: what it reads, the text that the client knows it by, and who takes its answer."""

    asked: float
    pins: list[ViewPin] = field(default_factory=list)
    text: Any = None
    """The relation of a `spark.sql`, as the client sent it; None for other plans."""
    streams: int = 0
    has_ended: bool = False


Key = tuple[str, str]
"""A session and an operation of it."""


class RunningOperations:
    """The queries of all clients; for any thread. `release` gives a pin back."""

    def __init__(
        self, release: Callable[[ViewPin], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._release = release
        self._now = now
        self._lock = threading.Lock()
        self._running: dict[Key, RunningOperation] = {}

    def begin_operation(self, key: Key, pin: ViewPin, text: Any) -> None:
        """A query begins, and its answer is being taken."""
        with self._lock:
            found = self._running.setdefault(key, RunningOperation(self._now()))
            found.pins.append(pin)
            found.text, found.has_ended = text, False
            found.streams += 1
        self._end_abandoned()

    def resume_operation(self, key: Key) -> Any:
        """Somebody takes the answer of a query up again; its text, if it has one."""
        with self._lock:
            found = self._running.get(key)
            if found is None:
                return None
            found.streams += 1
            return found.text

    def leave_stream(self, key: Key) -> None:
        """Nobody takes the answer any more, for now."""
        with self._lock:
            found = self._running.get(key)
            if found is not None:
                found.streams = max(0, found.streams - 1)
                found.asked = self._now()
        self._end_abandoned()

    def end_operation(self, key: Key) -> None:
        """The client has all that it wants."""
        with self._lock:
            found = self._running.get(key)
            if found is not None:
                found.has_ended = True
        self._end_abandoned()

    def end_session(self, session: str) -> None:
        """The client has left."""
        with self._lock:
            for key, found in self._running.items():
                if key[0] == session:
                    found.has_ended = True
        self._end_abandoned()

    def _end_abandoned(self) -> None:
        oldest = self._now() - ABANDONED_SECONDS
        with self._lock:
            ended = [
                key
                for key, found in self._running.items()
                if found.streams == 0 and (found.has_ended or found.asked < oldest)
            ]
            pins = [pin for key in ended for pin in self._running.pop(key).pins]
        for pin in pins:
            self._release(pin)
