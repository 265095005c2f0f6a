"""Storage on a disk: files and folders, `flock`, and a journal of segments.

Everything is done by `disk`, `local_lock` and `journal_file`, exactly as their names say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from viewkeeper.storage import disk, journal_file
from viewkeeper.storage.disk import Guard
from viewkeeper.storage.journal_file import Frame, JournalFile, Mark
from viewkeeper.storage.local_lock import Lock, LockHolder, running_holder
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.storage_protocol import Clock, FileFacts, TableAddress

LOCK = "lock"


def _path_of(place: StoragePath) -> Path:
    assert isinstance(place, Path), f"{place} is not on a disk"
    return place


class LocalFile:
    """A file that is being written to a folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with disk.translate_os_errors("create", path):
            self._file = disk.open_new(path)

    @property
    def place(self) -> Path:
        return self._path

    @property
    def sink(self) -> BinaryIO:
        return self._file

    def finish_file(
        self, name: Callable[[Path], str], *, durable: bool = True
    ) -> tuple[StoragePath, int]:
        """Sync the file and rename it; who wrote the last one syncs the folder."""
        if durable:
            os.fsync(self._file.fileno())
        size = os.fstat(self._file.fileno()).st_size
        self._file.close()
        self._path = self._path.rename(self._path.with_name(name(self._path)))
        return self._path, size

    def abandon_file(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


class LocalCommits:
    """The lock file of a warehouse, and the segments of its journal."""

    def take_lock(self, root: StoragePath, holder: LockHolder, steady: Clock, over: object) -> Lock:
        return Lock.take_lock(_path_of(root) / LOCK, holder, over)

    def running_holder(self, root: StoragePath, now: float) -> LockHolder | None:
        return running_holder(_path_of(root) / LOCK)

    def create_segment(
        self, folder: StoragePath, name: str, segment: int, size: int
    ) -> JournalFile:
        return JournalFile.create(_path_of(folder) / name, segment, size)

    def continue_journal(self, folder: StoragePath, at: Mark) -> JournalFile:
        raise AssertionError("a journal on a disk begins with a segment")

    def seal_journal(self, folder: StoragePath, at: Mark) -> tuple[Mark, list[Frame]]:
        raise AssertionError("a journal on a disk is copied by whoever takes over")

    def remove_numbers(self, folder: StoragePath, numbers: range) -> None:
        raise AssertionError("a journal on a disk has segments")

    def remove_older(self, folder: StoragePath, before: int) -> None:
        raise AssertionError("a journal on a disk has segments")

    def read_shown(self, segment: StoragePath, after: Mark) -> tuple[Mark, list[Frame]]:
        return journal_file.read_shown(_path_of(segment), after)

    def read_prefix(self, segment: StoragePath, after: Mark) -> list[Frame]:
        return journal_file.read_prefix(_path_of(segment), after)

    def read_shown_mark(self, segment: StoragePath, after: Mark) -> object | None:
        return journal_file.read_shown_mark(_path_of(segment))


class LocalStorage:
    """The disks of this machine; it has nothing of its own."""

    has_lasting_journal = False
    epoch = 0
    commits = LocalCommits()

    def create_new(self, place: StoragePath, data: bytes, guard: Guard) -> None:
        disk.create_new(_path_of(place), data, guard)

    def replace_file(
        self, place: StoragePath, data: bytes, guard: Guard, *, durable: bool, whole: bool
    ) -> None:
        disk.replace_file(_path_of(place), data, guard, durable=durable, whole=whole)

    def begin_file(self, folder: StoragePath, name: str) -> LocalFile:
        return LocalFile(_path_of(folder) / name)

    def remove_file(self, place: StoragePath) -> None:
        disk.remove_file(_path_of(place))

    def remove_tree(self, folder: StoragePath) -> None:
        disk.remove_tree(_path_of(folder))

    def file_facts(self, place: StoragePath) -> FileFacts | None:
        try:
            found = os.stat(_path_of(place))
        except FileNotFoundError:
            return None
        mark = found.st_ino, found.st_mtime_ns, found.st_size
        return FileFacts(found.st_size, found.st_mtime, mark)

    def file_sizes(self, folder: StoragePath) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in _path_of(folder).iterdir()}

    def touch_file(self, place: StoragePath, at: float) -> None:
        os.utime(_path_of(place), (at, at))

    def read_end(self, place: StoragePath, count: int) -> tuple[bytes, int]:
        with open(_path_of(place), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            return os.pread(file.fileno(), min(size, count), max(0, size - count)), size

    def parquet_source(self, place: StoragePath) -> str:
        return str(_path_of(place))

    def read_marks(
        self, root: StoragePath, names: Sequence[str], folders: Sequence[StoragePath]
    ) -> tuple[object, ...]:
        paths = [str(root / name) for name in names]
        for folder in folders:
            paths += [str(folder), f"{folder}/_delta_log"]
        for home in disk.list_names(str(root / "sources")):
            paths += [home, *disk.list_names(home)]
        return tuple(disk.mark_of(path) for path in paths)

    def make_folder(self, folder: StoragePath) -> None:
        disk.make_folder(_path_of(folder))

    def sync_folder(self, folder: StoragePath) -> None:
        disk.sync_folder(_path_of(folder))

    def remove_temporaries(self, folder: StoragePath, guard: Guard) -> None:
        disk.remove_temporaries(_path_of(folder), guard)

    def open_to(self, root: StoragePath, group: bool) -> None:
        disk.open_to(_path_of(root), group)

    def can_write(self, folder: StoragePath) -> bool:
        return os.access(_path_of(folder), os.W_OK)

    def local_folder(self, root: StoragePath) -> Path:
        return _path_of(root)

    def table_address(self, folder: StoragePath) -> TableAddress:
        return TableAddress(str(_path_of(folder)), None)

    def sync_other(self, places: Iterator[StoragePath]) -> None:
        for place in places:
            disk.protect_file(_path_of(place))
            disk.sync_file(_path_of(place))
