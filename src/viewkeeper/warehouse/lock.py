"""One writer per warehouse.

The lock is `flock` on the file `lock`, which the operating system gives back when the holder dies,
however it dies; the file's content only says who holds it, for the error message. Where `flock`
does not hold (some network file systems give it to another when the holder is silent for long) and
where somebody removes the file, the content is the fence: it names another process, or nobody, and
`confirm_held` refuses. Everything that the holder names or removes asks that first.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from viewkeeper.errors import LockedError, WarehouseError
from viewkeeper.storage import disk


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who maintains the warehouse; `since` is in seconds since the epoch."""

    pid: int
    host: str
    since: float
    command: str

    @staticmethod
    def this_process(command: str, since: float) -> LockHolder:
        return LockHolder(os.getpid(), socket.gethostname(), since, command)

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        return f"process {self.pid} on {self.host} ({self.command}), since {since}"


class Lock:
    """The held lock; `release_lock` gives it back, and so does the end of the process."""

    def __init__(self, path: Path, descriptor: int, content: bytes) -> None:
        self._path = path
        self._descriptor: int | None = descriptor
        self._content = content

    @staticmethod
    def take_lock(path: Path, holder: LockHolder) -> Lock:
        """Take the lock now or say who has it; never waits."""
        with disk.translate_os_errors("open", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise _locked_error(path) from error
        lock = Lock(path, descriptor, json.dumps(asdict(holder)).encode())
        try:
            with disk.translate_os_errors("write", path):
                if os.fstat(descriptor).st_size:
                    os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, lock._content, 0)
            lock.confirm_held()
        except BaseException:
            os.close(descriptor)
            raise
        return lock

    def confirm_held(self) -> None:
        """Be sure that it is still held; LockedError says who has it instead."""
        if self._is_ours():
            return
        who = read_holder(self._path)
        raise LockedError(
            f'warehouse "{self._path.parent}": another process has taken it over',
            detail=f"now {who}" if who else f"{self._path} was removed or emptied",
            hint="nothing more is committed here: leave it to the other process, or stop that one "
            "and run again; never remove the lock file while a process runs",
        )

    def release_lock(self) -> None:
        if self._descriptor is None:
            return
        # Emptied first, so that nobody is told of a holder that is gone; who has ended is no harm.
        with suppress(OSError, WarehouseError):
            if self._is_ours():
                os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = None

    def _is_ours(self) -> bool:
        with disk.translate_os_errors("read", self._path):
            try:
                return self._path.read_bytes() == self._content
            except FileNotFoundError:
                return False


def read_holder(path: Path) -> LockHolder | None:
    """Who wrote the lock file last; None if nobody or not readable."""
    try:
        return LockHolder(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _locked_error(path: Path) -> LockedError:
    who = read_holder(path)
    return LockedError(
        f'warehouse "{path.parent}": another process maintains it',
        detail=str(who) if who else "its holder has not written its name yet",
        hint=f"stop {f'process {who.pid}' if who else 'it'} first, or wait until it ends",
    )
