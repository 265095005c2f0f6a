"""Who maintains a warehouse, and who takes it over: the clocks and threads of its lock.

While a warehouse is open its lease is renewed every two seconds, from a thread. Who finds it held
looks at the lock again and again: one that stays exactly the same for the length of a lease belongs
to a process that is stopped, cut off or dead, and is taken over. No two clocks are compared, only
one's own time since the lock last changed.

A holder that dies on this machine is found at once: the operating system gives its lock back, and
in object storage its process is seen to be gone. Takeover is safe whatever the other one does: it
cannot commit any more (`storage.local_lock`, `storage.objects.object_journal`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from viewkeeper.engine.repeated_work import repeating_work
from viewkeeper.errors import LockedError, ViewkeeperError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.warehouse.store import Store

LEASE_SECONDS = 6.0
"""A lock that has not changed for so long is taken over."""

RENEW_SECONDS = 2.0
WATCH_SECONDS = 0.25
"""How often a holder renews its lease, and how often others look at it."""


class LeaseWatch:
    """A lock that somebody else holds, watched on a clock of our own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: object = None
        self._since = 0.0

    def note_lock(self, error: LockedError) -> bool:
        """Note what the lock is now; whether it is another one than before, or the first."""
        is_new = error.seen != self._seen
        if is_new:
            self._seen, self._since = error.seen, self._clock()
        return is_new

    @property
    def expired(self) -> object:
        """What the lock is, if it has been that for the length of a lease; None otherwise."""
        return self._seen if self._clock() - self._since >= LEASE_SECONDS else None


def open_store(root: StoragePath, command: str, now: Callable[[], float]) -> Store:
    """Open a warehouse; a LockedError if another process maintains it and lives.

    In object storage nothing tells at once whether a holder lives: its lease is watched for a while
    then.
    """
    watch, looks = LeaseWatch(), 0
    while True:
        try:
            return Store.open(root, command, now, time.monotonic, watch.expired)
        except LockedError as error:
            is_new, looks = watch.note_lock(error), looks + 1
            if error.seen is None or not storage_of(root).has_lasting_journal:
                raise
            if is_new and looks > 1:
                raise
            time.sleep(WATCH_SECONDS)


def wait_for_store(
    root: StoragePath, command: str, now: Callable[[], float], stop: threading.Event
) -> Store | None:
    """Open a warehouse as soon as nobody maintains it any more; None if we are to stop first."""
    watch = LeaseWatch()
    while not stop.is_set():
        try:
            return Store.open(root, command, now, time.monotonic, watch.expired)
        except LockedError as error:
            watch.note_lock(error)
            stop.wait(WATCH_SECONDS)
    return None


@contextmanager
def renewing_lease(store: Store) -> Iterator[None]:
    """Renew the lease of an open warehouse, in a thread."""
    with suppress(ViewkeeperError):
        # At once, so that who waits sees a holder that renews.
        store.lock.renew_lease()
    with repeating_work("viewkeeper-lease", RENEW_SECONDS, store.lock.renew_lease):
        yield


def renewing_remote(store: Store) -> AbstractContextManager[None]:
    """The same for a warehouse in object storage; on a disk a short holder need not renew."""
    is_remote = storage_of(store.root).has_lasting_journal
    return renewing_lease(store) if is_remote else nullcontext()
