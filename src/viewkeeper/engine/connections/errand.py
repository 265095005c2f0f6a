"""An errand: one thing that is asked of one source, in a thread of its own.

Whoever sent it waits as long as it wants to and goes on without the answer; the answer is there
when it comes back. A source that hangs so keeps its errand, and nobody else. The thread ends by the
source's own limits; it does not keep the process from ending.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Errand(Generic[T]):
    """Something that is being done with a source."""

    def __init__(self, name: str, action: Callable[[], T]) -> None:
        self._action = action
        self._answer: list[T] = []
        self._error: BaseException | None = None
        self._afterwards: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._back = threading.Event()
        self.began = time.monotonic()
        self._thread = threading.Thread(target=self._run_action, name=f"source {name}", daemon=True)
        self._thread.start()

    def wait_until_back(self, seconds: float) -> bool:
        """Wait for some time at most; whether it is back."""
        return self._back.wait(max(0.0, seconds))

    def get_answer(self) -> T:
        """What it brought, once it is back; its error if it met one."""
        assert self._back.is_set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._answer[0]

    def call_afterwards(self, action: Callable[[], None]) -> None:
        """Do something when it is back, in its thread if that is later."""
        with self._lock:
            is_back = self._back.is_set()
            self._afterwards = None if is_back else action
        if is_back:
            action()

    def _run_action(self) -> None:
        try:
            self._answer.append(self._action())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._error = error
        with self._lock:
            self._back.set()
            afterwards = self._afterwards
        if afterwards is not None:
            afterwards()
