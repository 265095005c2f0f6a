"""The rows that accepted states refer to: copies of files, and changes, as Parquet files.

On a disk they are in the source's folder of the warehouse. Where the warehouse is in object
storage they are objects beside the source's state, so that a process on another machine has what
the next state is compared with, and tasks on other machines can read them.

There, names have the epoch of the lock under which they were written:

    copies/EPOCH/HASH-DIGESTS.parquet
    changes/EPOCH/N-TABLE-DIGESTS.parquet

Removing has no condition in object storage, so a process that has lost the lock must not be able to
remove what its successor needs. It removes only what its own states, or those that its successor
found, do not name, and nothing of a higher epoch; and the successor takes up no copy again that no
state names. What is there is listed once per process.
"""

from __future__ import annotations

import os
import re
import urllib.parse
import uuid
from collections.abc import Callable, Collection, Iterator, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.storage import disk, named_digest
from viewkeeper.storage.named_digest import DigestNamedFile, digest_name
from viewkeeper.storage.objects.object_path import ObjectPath
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import storage_of

_COPIES, _CHANGES = "copies", "changes"
_TEMPORARY = ".tmp"

Changes = tuple[int, str]
"""The number of a state, and a table."""


class StateRows(Protocol):
    """Copies by their names, changes by the state and table that they are of."""

    def copy_path(self, copy: str) -> StoragePath: ...

    def has_copy(self, copy: str) -> bool: ...

    def find_copy(self, content: str, named: Callable[[], Set[str]]) -> str | None:
        """The copy that was made of some content, if there is one; `named` are those that states
        refer to."""

    def write_copy(
        self, content: str, schema: pa.Schema
    ) -> AbstractContextManager[DigestNamedFile]:
        """Write a copy of some content; it gets its name when it is whole and durable."""

    def take_copy(self, content: str, path: StoragePath) -> str:
        """The name of a copy that was written."""

    def changes_path(self, number: int, table: str) -> StoragePath:
        """Where the changes of a state are, or would be if there were any."""

    def write_changes(
        self, number: int, table: str, schema: pa.Schema
    ) -> AbstractContextManager[DigestNamedFile]:
        """Write the changes of a state."""

    def set_aside(self, path: StoragePath) -> None:
        """Let a damaged file count as lost."""

    def remove_others(self, copies: Set[str], changes: Collection[Changes]) -> None:
        """Remove what nobody refers to."""

    def measure_bytes(self) -> int:
        """How much room the copies and changes take."""


def open_state_rows(place: StoragePath) -> StateRows:
    """The rows that are kept at a place."""
    return BucketRows(place) if isinstance(place, ObjectPath) else DiskRows(Path(str(place)))


class DiskRows:
    """Files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copies: dict[str, str] | None = None

    def copy_path(self, copy: str) -> Path:
        return self._folder / _COPIES / f"{copy}.parquet"

    def has_copy(self, copy: str) -> bool:
        return self.copy_path(copy).exists()

    def find_copy(self, content: str, named: Callable[[], Set[str]]) -> str | None:
        if self._copies is None:
            found = sorted((self._folder / _COPIES).glob("*.parquet"))
            self._copies = {_content_of(path.stem): path.stem for path in found}
        copy = self._copies.get(content)
        return copy if copy is not None and self.has_copy(copy) else None

    def write_copy(
        self, content: str, schema: pa.Schema
    ) -> AbstractContextManager[DigestNamedFile]:
        return _write_file(self.copy_path(content), schema)

    def take_copy(self, content: str, path: StoragePath) -> str:
        if self._copies is not None:
            self._copies[content] = path.stem
        return path.stem

    def changes_path(self, number: int, table: str) -> Path:
        path = self._folder / _CHANGES / f"{_changes_stem(number, table)}.parquet"
        return next(_files_named(path), path)

    def write_changes(
        self, number: int, table: str, schema: pa.Schema
    ) -> AbstractContextManager[DigestNamedFile]:
        return _write_file(self.changes_path(number, table), schema)

    def set_aside(self, path: StoragePath) -> None:
        """What no state refers to is removed in time."""
        with suppress(OSError):
            os.replace(str(path), f"{path}.damaged")

    def remove_others(self, copies: Set[str], changes: Collection[Changes]) -> None:
        named = {self.copy_path(copy) for copy in copies}
        named |= {self.changes_path(*each) for each in changes}
        for path in self._list_files():
            if path not in named:
                path.unlink(missing_ok=True)

    def measure_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._list_files())

    def _list_files(self) -> Iterator[Path]:
        for name in (_COPIES, _CHANGES):
            yield from (self._folder / name).glob("*")


class BucketRows:
    """Objects below a place."""

    def __init__(self, place: ObjectPath) -> None:
        self._place = place
        self._copies: dict[str, str] | None = None
        self._there: set[str] | None = None
        """The keys of what is there, as far as this process knows."""

    def copy_path(self, copy: str) -> ObjectPath:
        return self._place / _COPIES / f"{copy}.parquet"

    def has_copy(self, copy: str) -> bool:
        return self.copy_path(copy).key in self._list_keys()

    def find_copy(self, content: str, named: Callable[[], Set[str]]) -> str | None:
        if self._copies is None:
            self._copies = {_content_of(copy.rpartition("/")[2]): copy for copy in named()}
        copy = self._copies.get(content)
        return copy if copy is not None and self.has_copy(copy) else None

    def write_copy(
        self, content: str, schema: pa.Schema
    ) -> AbstractContextManager[DigestNamedFile]:
        return self._write_object(self._own_folder(_COPIES) / f"{content}.parquet", schema)

    def take_copy(self, content: str, path: StoragePath) -> str:
        copy = f"{path.parent.name}/{path.stem}"
        if self._copies is not None:
            self._copies[content] = copy
        return copy

    def changes_path(self, number: int, table: str) -> ObjectPath:
        stem = _changes_stem(number, table)
        for _ in range(2):
            found = [key for key in self._list_keys() if self._is_changes(key, stem)]
            if found:
                return ObjectPath(self._place.storage, max(found))
            # The process that maintains may have written it since.
            self._there = None
        return self._own_folder(_CHANGES) / f"{stem}.parquet"

    def write_changes(
        self, number: int, table: str, schema: pa.Schema
    ) -> AbstractContextManager[DigestNamedFile]:
        name = f"{_changes_stem(number, table)}.parquet"
        return self._write_object(self._own_folder(_CHANGES) / name, schema)

    def set_aside(self, path: StoragePath) -> None:
        assert isinstance(path, ObjectPath)
        self._remove_keys([path.key])

    def remove_others(self, copies: Set[str], changes: Collection[Changes]) -> None:
        named = {self.copy_path(copy).key for copy in copies}
        stems = {_changes_stem(*each) for each in changes}
        epoch = self._place.storage.epoch
        self._remove_keys(
            [
                key
                for key in self._list_keys()
                if key not in named
                and not any(self._is_changes(key, stem) for stem in stems)
                and _epoch_of(key) <= epoch
            ]
        )
        self._copies = None

    def measure_bytes(self) -> int:
        sizes = (storage_of(self._place).file_sizes(self._place / n) for n in (_COPIES, _CHANGES))
        return sum(size for found in sizes for size in found.values())

    @contextmanager
    def _write_object(self, path: ObjectPath, schema: pa.Schema) -> Iterator[DigestNamedFile]:
        with named_digest.write_parquet(path, schema) as written:
            yield written
        assert isinstance(written.path, ObjectPath)
        if self._there is not None:
            self._there.add(written.path.key)

    def _own_folder(self, name: str) -> ObjectPath:
        return self._place / name / f"{self._place.storage.epoch:08d}"

    def _is_changes(self, key: str, stem: str) -> bool:
        return key.startswith(f"{(self._place / _CHANGES).key}/") and _is_named(
            key.rpartition("/")[2], stem
        )

    def _list_keys(self) -> set[str]:
        if self._there is None:
            client = self._place.storage.client
            folders = ((self._place / name).key for name in (_COPIES, _CHANGES))
            self._there = {key for folder in folders for key in client.list_keys(f"{folder}/")}
        return self._there

    def _remove_keys(self, keys: Collection[str]) -> None:
        if keys:
            self._place.storage.client.remove([*keys])
            if self._there is not None:
                self._there.difference_update(keys)


def _content_of(stem: str) -> str:
    """What a copy is of, by the beginning of its name."""
    return stem.partition("-")[0]


def _changes_stem(number: int, table: str) -> str:
    return f"{number}-{urllib.parse.quote(table, safe='')}"


def _epoch_of(key: str) -> int:
    folder = key.split("/")[-2]
    return int(folder) if folder.isdigit() else 0


def _is_named(name: str, stem: str) -> bool:
    """Whether a file has a name, with digests or, if it was written before, without."""
    return re.fullmatch(rf"{re.escape(stem)}(-[0-9a-f]{{36}})?\.parquet", name) is not None


def _files_named(path: Path) -> Iterator[Path]:
    """The files that have a name."""
    if not path.parent.is_dir():
        return iter(())
    return iter(sorted(each for each in path.parent.iterdir() if _is_named(each.name, path.stem)))


@contextmanager
def _write_file(path: Path, schema: pa.Schema) -> Iterator[DigestNamedFile]:
    """Write a Parquet file that gets its name, with digests, when it is whole and on disk."""
    disk.make_folder(path.parent)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_TEMPORARY}")
    try:
        with disk.translate_os_errors("write", path):
            writer = pq.ParquetWriter(
                temporary, schema, compression="zstd", write_page_checksum=True
            )
        try:
            written = DigestNamedFile(writer, path)
            yield written
        except BaseException:
            with suppress(OSError):
                writer.close()
            raise
        with disk.translate_os_errors("write", path):
            writer.close()
            disk.protect_file(temporary)
            disk.sync_file(temporary)
            named = path.with_name(digest_name(temporary, path.stem))
            written.take_name(named)
            os.replace(temporary, named)
            disk.sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
