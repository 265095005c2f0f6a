"""The mailbox of a running maintainer: requests from any thread, answered between two rounds.

1. A request is answered in the thread that maintains, or not at all: who stops waiting withdraws
   it, unless it is being answered just then.
2. What goes wrong with a request is the trouble of who asked; the maintainer goes on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar, cast

from viewkeeper.errors import RunEndingError, ViewkeeperError

T = TypeVar("T")

ANSWER_SECONDS = 60.0
"""So long a request waits for its turn: batches and barriers come first."""


class RunRequest:
    """Something that the maintainer is to do, and what came of it."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._answer: object = None
        self._error: Exception | None = None
        self._is_answered = threading.Event()

    def answer_request(self) -> None:
        """Do it, in the thread of the maintainer."""
        try:
            self._answer = self._action()
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            self._error = error
        except BaseException:
            # An interrupt ends the run.
            self._error = RunEndingError()
            raise
        finally:
            self._is_answered.set()

    def refuse_request(self, error: ViewkeeperError) -> None:
        """Answer it with an error."""
        self._error = error
        self._is_answered.set()

    def wait_for_answer(self, seconds: float | None) -> bool:
        """Wait for some time; whether it is answered."""
        return self._is_answered.wait(seconds)

    def take_answer(self) -> object:
        """What came of it; its error if it went wrong."""
        if self._error is not None:
            raise self._error
        return self._answer


class RunRequests:
    """The requests that wait for a maintainer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[RunRequest] = deque()
        self._is_open = True

    def ask_maintainer(self, action: Callable[[], T], seconds: float = ANSWER_SECONDS) -> T:
        """Have something done by the maintainer, and wait for what comes of it."""
        request = RunRequest(action)
        with self._lock:
            if not self._is_open:
                raise RunEndingError
            self._waiting.append(request)
        if not request.wait_for_answer(seconds):
            with self._lock:
                is_withdrawn = request in self._waiting
                if is_withdrawn:
                    self._waiting.remove(request)
            if is_withdrawn:
                raise ViewkeeperError(
                    f"the maintainer was busy for {seconds:.0f} s",
                    hint="nothing was changed: ask again when its batch is done",
                )
            request.wait_for_answer(None)
        return cast("T", request.take_answer())

    def answer_all(self) -> None:
        """Answer what waits; called by the maintainer between two rounds."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                request = self._waiting.popleft()
            request.answer_request()

    def close(self) -> None:
        """The run ends: nothing is answered any more."""
        with self._lock:
            self._is_open = False
            waiting, self._waiting = [*self._waiting], deque()
        for request in waiting:
            request.refuse_request(RunEndingError())
