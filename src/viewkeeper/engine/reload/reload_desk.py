"""Where a reload is asked for, from any thread, and answered by the one that maintains.

Who asks waits for the answer, but not for ever: a load that cannot be interrupted may have to end
first, and what is waited for is the answer then.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ANSWER_SECONDS = 60.0

ReloadAnswer = Mapping[str, Any]
"""What became of a reload, as plain JSON: see `ReloadOutcome.as_answer`."""


@dataclass(slots=True)
class ReloadRequest:
    """Somebody wants the project's files to be taken up now."""

    answer: ReloadAnswer | None = None
    is_answered: threading.Event = field(default_factory=threading.Event)

    def give_answer(self, answer: ReloadAnswer) -> None:
        """Let who asked know."""
        self.answer = answer
        self.is_answered.set()


class ReloadDesk:
    """The requests of one running maintainer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[ReloadRequest] = []
        self._reason = "the batch under way"
        self._is_closed = False

    def ask_reload(self, seconds: float = ANSWER_SECONDS) -> ReloadAnswer:
        """Ask, and wait for the answer; what is waited for if it does not come in time."""
        request = ReloadRequest()
        with self._lock:
            if self._is_closed:
                return ENDED
            self._waiting.append(request)
        if request.is_answered.wait(seconds) and request.answer is not None:
            return request.answer
        return {"pending": self._reason}

    def take_requests(self) -> list[ReloadRequest]:
        """What was asked for since this was last called."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        return taken

    def say_waiting(self, reason: str) -> None:
        """What a reload waits for now."""
        self._reason = reason

    def close(self, left: Iterable[ReloadRequest] = ()) -> None:
        """Nobody takes requests any more; `left` were taken and are not answered."""
        with self._lock:
            self._is_closed = True
        for request in (*left, *self.take_requests()):
            request.give_answer(ENDED)


ENDED: ReloadAnswer = {"error": "the maintainer has ended meanwhile", "detail": None, "hint": None}
