"""The few ways in which the warehouse touches the disk, all of them synced.

A file is either there with its whole content or not there at all, also after a power cut: it is
written under a temporary name, synced, given its name by `link` (only if the name is free) or by
`rename` (replacing), and then the folder is synced, because a name lives in the folder. An O_EXCL
create of the final name would not do: a process killed between create and write leaves an empty
record that looks like a commit.

The disk's refusals become `WarehouseError`s that say what to do.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from viewkeeper.errors import WarehouseError

TEMPORARY = ".new-"

_HINTS = {
    errno.ENOSPC: "the disk is full; nothing of this step was committed: free space and run again",
    errno.EDQUOT: "the quota is used up; nothing of this step was committed: raise it, run again",
    errno.EFBIG: "a file size limit was hit; nothing of this step was committed: raise ulimit -f",
    errno.EACCES: "give this user write access to the warehouse folder and run again",
    errno.EPERM: "the warehouse needs a file system with hard links, writable by this user",
    errno.EROFS: "the file system is read-only; mount it for writing and run again",
}


@contextmanager
def refusals(doing: str, path: Path) -> Iterator[None]:
    """Turn what the operating system refuses into an error with a way out."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "look at the disk, then run again")
        raise WarehouseError(
            f'warehouse file "{path}": cannot {doing}', detail=str(error), hint=hint
        ) from error


def create_new(path: Path, data: bytes) -> None:
    """Create a file that must not exist yet; FileExistsError if somebody else made it."""
    with refusals("create", path):
        temporary = _written(path, data)
        try:
            os.link(temporary, path)
        finally:
            os.unlink(temporary)
        sync_folder(path.parent)


def replace(path: Path, data: bytes) -> None:
    """Give a file new content; a reader sees the old or the new, whole."""
    with refusals("write", path):
        os.replace(_written(path, data), path)
        sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Make the content of a file that another library wrote durable."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def make_folder(path: Path) -> None:
    """Create a folder, and those above it, durably."""
    with refusals("create", path):
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            sync_folder(folder.parent)


def remove(path: Path) -> None:
    """Remove a file if it is there. Not synced: what comes back after a power cut goes again."""
    with refusals("remove", path):
        path.unlink(missing_ok=True)


def remove_temporaries(folder: Path) -> None:
    """Remove what a killed process left half made; only under the lock."""
    for path in folder.glob(f"{TEMPORARY}*"):
        remove(path)


def _written(path: Path, data: bytes) -> Path:
    temporary = path.parent / f"{TEMPORARY}{path.name}-{uuid.uuid4().hex}"
    try:
        with open(temporary, "xb", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _sync(path: Path, flags: int) -> None:
    with refusals("sync", path):
        descriptor = os.open(path, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
