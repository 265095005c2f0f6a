"""One writer per warehouse.

The lock is `flock` on the file `lock`, which the operating system gives back when the holder dies,
however it dies; the file's content only says who holds it, for the error message. Where `flock`
does not hold (some network file systems), creating record n only if it is absent is the fence: of
two writers one fails there, before anything of its batch is visible.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from viewkeeper.errors import LockedError
from viewkeeper.storage import disk


@dataclass(frozen=True, slots=True)
class Holder:
    """Who maintains the warehouse; `since` is in seconds since the epoch."""

    pid: int
    host: str
    since: float
    command: str

    @staticmethod
    def this_process(command: str, since: float) -> Holder:
        return Holder(os.getpid(), socket.gethostname(), since, command)

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        return f"process {self.pid} on {self.host} ({self.command}), since {since}"


class Lock:
    """The held lock; `release` gives it back, and so does the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @staticmethod
    def take(path: Path, holder: Holder) -> Lock:
        """Take the lock now or say who has it; never waits."""
        with disk.refusals("open", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise _locked(path) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(holder)).encode(), 0)
        return Lock(descriptor)

    def release(self) -> None:
        if self._descriptor is None:
            return
        # Emptied first, so that nobody is told of a holder that is gone.
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = None


def holder(path: Path) -> Holder | None:
    """Who wrote the lock file last; None if nobody or not readable."""
    try:
        return Holder(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _locked(path: Path) -> LockedError:
    who = holder(path)
    return LockedError(
        f'warehouse "{path.parent}": another process maintains it',
        detail=str(who) if who else "its holder has not written its name yet",
        hint=f"stop {f'process {who.pid}' if who else 'it'} first, or wait until it ends",
    )
