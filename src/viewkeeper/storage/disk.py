"""The few ways in which a warehouse's folder is written.

A file is either there with its whole content or not there at all, also after a power cut: it is
written under a temporary name, synced, given its name by `link` (only if the name is free) or by
`rename` (replacing), and then the folder is synced, because a name lives in the folder. An O_EXCL
create of the final name would not do: a process killed between create and write leaves an empty
record that looks like a commit.

Files hold rows, so nobody but their owner may read them: 0600, and 0700 for folders, whatever the
umask is. Where a folder is open to its group, what is made in it is too (0640, 0750): access is a
property of the warehouse's own folder, which `open_to` sets, and needs no other setting. Nothing is
ever opened to all.

Whoever writes under a lock passes a guard, which raises once somebody else has that lock. It is
asked when the temporary file is written and before that gets its name; whoever takes a lock over
removes all temporary files first. So a process that slept through a takeover can name nothing any
more: either its guard refuses, or what it wanted to name is gone.

The disk's refusals become `WarehouseError`s that say what to do.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from viewkeeper.errors import WarehouseError

TEMPORARY = ".new-"

Guard = Callable[[], None]

_HINTS = {
    errno.ENOSPC: "the disk is full; nothing of this step was committed: free space and run again",
    errno.EDQUOT: "the quota is used up; nothing of this step was committed: raise it, run again",
    errno.EFBIG: "a file size limit was hit; nothing of this step was committed: raise ulimit -f",
    errno.EACCES: "give this user write access to the warehouse folder and run again",
    errno.EPERM: "the warehouse needs a file system with hard links, writable by this user",
    errno.EROFS: "the file system is read-only; mount it for writing and run again",
}


def no_guard() -> None:
    """The guard of files that are written under no lock."""


@contextmanager
def translate_os_errors(doing: str, path: object) -> Iterator[None]:
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


def create_new(path: Path, data: bytes, guard: Guard = no_guard) -> None:
    """Create a file that must not exist yet; FileExistsError if somebody else made it."""
    with translate_os_errors("create", path):
        temporary = _write_temporary(path, data)
        try:
            guard()
            os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)


def replace_file(
    path: Path,
    data: bytes,
    guard: Guard = no_guard,
    *,
    durable: bool = True,
    whole: bool = True,
) -> None:
    """Give a file new content, and make its folder; a reader sees the old or the new, whole.

    What is not durable may be the old content again after a power cut. What is not even `whole` may
    be anything then, as many zeros as it had bytes or nothing at all: a file system may write the
    new name before the content. Only what is made again without a loss is written so.
    """
    make_folder(path.parent)
    with translate_os_errors("write", path):
        _give_name(_write_temporary(path, data, durable or whole), path, guard)
        if durable:
            sync_folder(path.parent)


def open_new(path: Path) -> BinaryIO:
    """A file that must not exist yet, open for writing, unbuffered."""
    mode = _file_mode(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    os.fchmod(descriptor, mode)
    return open(descriptor, "wb", buffering=0)


def mark_of(path: Path | str) -> tuple[int, int, int] | None:
    """Which file or folder has a name, when it was last written, and its size; None without one.

    A file that is replaced has another mark, and so has a folder once a name in it comes or goes.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def list_names(folder: str) -> list[str]:
    """The paths of all that a folder holds, in order; nothing where there is none."""
    try:
        return sorted(f"{folder}/{name}" for name in os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def protect_file(path: Path) -> None:
    """Give a file that another library made the permissions that its folder asks for."""
    with translate_os_errors("change the permissions of", path):
        os.chmod(path, _file_mode(path.parent))


def sync_file(path: Path) -> None:
    """Make the content of a file that another library wrote durable."""
    _sync_path(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    _sync_path(path, os.O_RDONLY | os.O_DIRECTORY)


def make_folder(path: Path) -> None:
    """Create a folder, and those above it, durably."""
    if path.is_dir():
        return
    with translate_os_errors("create", path):
        for folder in reversed([f for f in (path, *path.parents) if not f.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
            _open_folder(folder, _is_open(folder.parent))
            sync_folder(folder.parent)


def open_to(root: Path, group: bool) -> None:
    """Let a warehouse's folder, and all that is in it, be read by its owner only, or by its group.

    Everything is looked through only if the folder itself was not like that already. A folder of
    somebody else stays as that user made it.
    """
    with translate_os_errors("change the permissions of", root):
        found = root.stat()
        if found.st_mode & 0o777 == (0o750 if group else 0o700) or found.st_uid != os.geteuid():
            return
        for folder, _, files in os.walk(root):
            _open_folder(Path(folder), group)
            for name in files:
                with suppress(FileNotFoundError):
                    os.chmod(Path(folder) / name, _file_mode(Path(folder)))
        _open_folder(root, group)


def remove_file(path: Path) -> None:
    """Remove a file if it is there. Not synced: one that a power cut restores is removed again."""
    with translate_os_errors("remove", path):
        path.unlink(missing_ok=True)


def remove_tree(folder: Path) -> None:
    """Remove a folder and all that is in it; not synced either."""
    with translate_os_errors("remove", folder):
        shutil.rmtree(folder)


def remove_temporaries(folder: Path, guard: Guard = no_guard) -> None:
    """Remove what a killed process left half made; only under the lock."""
    for path in folder.glob(f"{TEMPORARY}*"):
        guard()
        remove_file(path)


def read_link(path: Path) -> str | None:
    """Where a link leads, as it is written; None if there is none."""
    return os.readlink(path) if path.is_symlink() else None


def replace_link(path: Path, target: str, guard: Guard = no_guard) -> None:
    """Let a link lead to another name in its folder; a reader gets the old one or the new one."""
    temporary = _temporary_of(path)
    with translate_os_errors("write", path):
        os.symlink(target, temporary)
        _give_name(temporary, path, guard)
        sync_folder(path.parent)


def _give_name(temporary: Path, path: Path, guard: Guard) -> None:
    """Let what was made under a temporary name replace what has the name."""
    try:
        guard()
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _temporary_of(path: Path) -> Path:
    return path.parent / f"{TEMPORARY}{path.name}-{uuid.uuid4().hex}"


def _write_temporary(path: Path, data: bytes, synced: bool = True) -> Path:
    temporary = _temporary_of(path)
    try:
        with open_new(temporary) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            if synced:
                os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _is_open(folder: Path) -> bool:
    """Whether a folder's group may read what is in it, and nobody else may."""
    return stat.S_IMODE(folder.stat().st_mode) & 0o057 == 0o050


def _file_mode(folder: Path) -> int:
    return 0o640 if _is_open(folder) else 0o600


def _open_folder(folder: Path, group: bool) -> None:
    # The bit by which what is made in a folder gets the folder's group stays as it is.
    inherited = folder.stat().st_mode & stat.S_ISGID
    os.chmod(folder, (0o750 if group else 0o700) | inherited)


def _sync_path(path: Path, flags: int) -> None:
    with translate_os_errors("sync", path):
        descriptor = os.open(path, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def is_alive(process: int) -> bool:
    """Whether a process of this machine, which may have left files behind, still runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
