"""Repeated work: what a thread does again and again for as long as a block of code lasts.

A running maintainer has two of these: the tables follow the journal, and the lease is renewed. The
thread ends with the block that it was begun for, whatever ended that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from viewkeeper.errors import ViewkeeperError


@contextmanager
def repeating_work(name: str, seconds: float, work: Callable[[], None]) -> Iterator[None]:
    """Do some work every so many seconds for as long as the block lasts.

    An error of ours ends nothing: what is in doubt, or lost, is found out, and said, by whoever
    commits next.
    """
    stop = threading.Event()

    def repeat() -> None:
        while not stop.wait(seconds):
            with suppress(ViewkeeperError):
                work()

    thread = threading.Thread(target=repeat, name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
