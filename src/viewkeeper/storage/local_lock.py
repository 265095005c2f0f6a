"""One writer per warehouse.

The lock is `flock` on the file `lock`, which the operating system gives back when the holder dies,
however it dies; the file's content only says who holds it, for the error message. Where `flock`
does not hold (some network file systems give it to another when the holder is silent for long) and
where somebody removes the file, the content is the fence: it names another process, or nobody, and
`confirm_held` refuses. Everything that the holder names or removes asks that first.

A holder that renews its *lease* changes one number of the content every few seconds. Who waits for
the lock may take it over from a holder that lives and is silent, stopped or on a machine that is:
the file is replaced, so that the old `flock` is on a file that has no name any more, and the new
content is the fence. A holder that never renews is not taken over from.

The *epoch* counts how often the lock was taken. It stays in the file when the lock is given back.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from viewkeeper.errors import LockedError, WarehouseError
from viewkeeper.storage import disk

TAKEOVER = ".takeover"
CONTENT_BYTES = 1024
READS = 3


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who maintains the warehouse; `since` is in seconds since the epoch.

    `epoch` counts the holders, `renewed` how often this one has renewed its lease; -1 if it does
    not.
    """

    pid: int
    host: str
    since: float
    command: str
    epoch: int = 0
    renewed: int = -1

    @staticmethod
    def this_process(command: str, since: float) -> LockHolder:
        return LockHolder(os.getpid(), socket.gethostname(), since, command)

    def is_gone(self) -> bool:
        """Whether it was a process of this machine, which has ended."""
        return self.host == socket.gethostname() and not disk.is_alive(self.pid)

    @property
    def connection_name(self) -> str:
        """What connections of the process are called at servers that keep something for them."""
        return f"viewkeeper {self.pid} on {self.host}"

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        return f"process {self.pid} on {self.host} ({self.command}), since {since}"


class Lock:
    """The held lock; `release_lock` gives it back, and so does the end of the process."""

    def __init__(
        self, path: Path, descriptor: int, holder: LockHolder, before: LockHolder | None
    ) -> None:
        self._path = path
        self._descriptor: int | None = descriptor
        self._holder = holder
        self.predecessor = before
        self._content = _encode_holder(holder)
        self._before: bytes | None = None

    @staticmethod
    def take_lock(path: Path, holder: LockHolder, over: object = None) -> Lock:
        """Take the lock now or say who has it; never waits.

        One whose content still is `over` is taken from its holder.
        """
        with disk.translate_os_errors("open", path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            found = _read_content(descriptor)
            os.close(descriptor)
            if over is not None and found == over:
                return _take_over(path, holder, found)
            raise _locked_error(path, found) from error
        before = _read_content(descriptor)
        numbered = replace(holder, epoch=_epoch_of(before) + 1)
        lock = Lock(path, descriptor, numbered, _decode_holder(before))
        try:
            with disk.translate_os_errors("write", path):
                # Content is written over: to truncate a file costs more than all the rest.
                if os.fstat(descriptor).st_size > CONTENT_BYTES:
                    os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, lock._content, 0)
            lock.confirm_held()
        except BaseException:
            os.close(descriptor)
            raise
        return lock

    @property
    def epoch(self) -> int:
        return self._holder.epoch

    @property
    def is_after_death(self) -> bool:
        """Nothing depends on it here: who takes over reads everything in any case."""
        return False

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

    def renew_lease(self) -> None:
        """Change the content, for those who wait."""
        if self._descriptor is None or not self._is_ours():
            return
        holder = replace(self._holder, renewed=self._holder.renewed + 1)
        content = _encode_holder(holder)
        with disk.translate_os_errors("write", self._path):
            # While it is written, it may be either.
            self._before = self._content
            self._holder, self._content = holder, content
            os.pwrite(self._descriptor, content, 0)
            self._before = None

    def release_lock(self, *, is_clean: bool = True) -> None:
        """Give the lock back; the epoch stays in the file, and no holder."""
        if self._descriptor is None:
            return
        # Written over first: nobody shall read of a holder that is gone; who has ended is no harm.
        descriptor, self._descriptor = self._descriptor, None
        try:
            with suppress(OSError, WarehouseError):
                if self._is_ours():
                    left = json.dumps({"epoch": self.epoch}).encode()
                    os.pwrite(descriptor, left.ljust(CONTENT_BYTES), 0)
        finally:
            os.close(descriptor)

    def _is_ours(self) -> bool:
        with disk.translate_os_errors("read", self._path):
            for _ in range(READS):
                # A renewal comes from another thread: the content may be the one of before or
                # after, and while it is written something of both.
                known = (self._before, self._content)
                try:
                    found = self._path.read_bytes()
                except FileNotFoundError:
                    return False
                if found in (*known, self._before, self._content):
                    return True
        return False


def _take_over(path: Path, holder: LockHolder, over: bytes) -> Lock:
    """Replace the lock file of a silent holder; those who want to at the same time take turns."""
    beside = path.with_name(path.name + TAKEOVER)
    with disk.translate_os_errors("open", beside):
        turn = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        found = path.read_bytes() if path.exists() else b""
        if found != over:
            raise _locked_error(path, found)
        with disk.translate_os_errors("write", path):
            temporary = path.with_name(f"{disk.TEMPORARY}lock-{uuid.uuid4().hex}")
            descriptor = os.open(
                temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
            )
            numbered = replace(holder, epoch=_epoch_of(over) + 1)
            lock = Lock(path, descriptor, numbered, _decode_holder(over))
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(descriptor, lock._content, 0)
            os.replace(temporary, path)
        return lock
    finally:
        os.close(turn)


def read_holder(path: Path) -> LockHolder | None:
    """Who wrote the lock file last; None if nobody or not readable."""
    try:
        return _decode_holder(path.read_bytes())
    except OSError:
        return None


def running_holder(path: Path) -> LockHolder | None:
    """Who holds a lock now, if anybody does.

    A holder that was killed leaves its name behind. The lock itself is tried only where a process
    of that number lives, so that a maintainer that is just starting is never in our way, nor we in
    its.
    """
    found = read_holder(path)
    if found is None or found.host != socket.gethostname():
        return found
    try:
        os.kill(found.pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return found
    return found if _is_locked(path) else None


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _encode_holder(holder: LockHolder) -> bytes:
    """The content for a holder; always as long, so that a renewal writes over all of it."""
    return json.dumps(asdict(holder)).encode().ljust(CONTENT_BYTES)


def _decode_holder(content: bytes) -> LockHolder | None:
    """Who is named; nobody, where the lock was given back or the content is none of ours."""
    try:
        return LockHolder(**json.loads(content))
    except (ValueError, TypeError):
        return None


def _epoch_of(content: bytes) -> int:
    try:
        return int(json.loads(content)["epoch"])
    except (ValueError, TypeError, KeyError):
        return 0


def _read_content(descriptor: int) -> bytes:
    return os.pread(descriptor, 1 << 16, 0)


def _locked_error(path: Path, content: bytes) -> LockedError:
    who = _decode_holder(content)
    error = LockedError(
        f'warehouse "{path.parent}": another process maintains it',
        detail=str(who) if who else "its holder has not written its name yet",
        hint=f"stop {f'process {who.pid}' if who else 'it'} first, or wait until it ends",
    )
    return error.seen_as(content) if who is not None and who.renewed >= 0 else error
