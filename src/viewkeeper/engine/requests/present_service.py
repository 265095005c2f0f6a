"""The service of the session that maintains at present, for requests that outlive one session.

A run has one socket and may have many sessions, one for each change of the project's files. A
request that comes while one session ends waits for the next one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from viewkeeper.engine.requests.run_requests import ANSWER_SECONDS
from viewkeeper.engine.requests.run_service import RunService
from viewkeeper.errors import RunEndingError

T = TypeVar("T")


class PresentService:
    """Passes requests on to the session that maintains; used by the threads of a socket."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._service: RunService | None = None
        self._is_over = False

    def use_service(self, service: RunService) -> None:
        """A session has begun: it is asked from now on."""
        with self._changed:
            self._service = service
            self._changed.notify_all()

    def close(self) -> None:
        """The run is over: no session follows."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def ask_service(self, action: Callable[[RunService], T]) -> T:
        """Have something done by the session that maintains, or by the one that follows it."""
        end = time.monotonic() + ANSWER_SECONDS
        service = self._wait_for_other(None, end)
        while True:
            try:
                return service.requests.ask_maintainer(partial(action, service))
            except RunEndingError:
                service = self._wait_for_other(service, end)

    def _wait_for_other(self, last: RunService | None, end: float) -> RunService:
        """The service of a session that follows the last one."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_over or self._service is not last,
                max(0.0, end - time.monotonic()),
            )
            if self._service is None or self._service is last:
                raise RunEndingError
            return self._service
