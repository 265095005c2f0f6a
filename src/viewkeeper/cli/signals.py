"""Ctrl-C and SIGTERM: the first asks politely, the second leaves at once.

The first sets an event, which the loop sees after the commit under way. The second ends the process
without waiting for Spark; that is safe, because a crash at any point is, and the JVM ends when its
parent is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from viewkeeper.cli.terminal import print_note

SIGNALS = (signal.SIGINT, signal.SIGTERM)
CANCELLED = 130
SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def stop_on_signals(
    what: str, said: Callable[[str], None] = print_note
) -> Iterator[threading.Event]:
    """An event that the first signal sets; `what` is what will be finished then."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            _leave_at_once()
        stop.set()
        said(f"finishing {what}; press again to cancel")

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_at_once() -> None:
    if sys.stdin.isatty():
        # A live display hides the cursor of the terminal, wherever the streams go.
        with suppress(OSError), open("/dev/tty", "w", encoding="ascii") as terminal:
            terminal.write(SHOW_CURSOR + "\n")
    os._exit(CANCELLED)
