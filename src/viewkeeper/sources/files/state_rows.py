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
import urllib.parse
import uuid
from collections.abc import Callable, Collection, Iterator, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from viewkeeper.storage import disk
from viewkeeper.storage.named_digest import DigestNamedFile, stems_of, write_parquet
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
        return self._write_file(_COPIES, content, schema)

    def take_copy(self, content: str, path: StoragePath) -> str:
        if self._copies is not None:
            self._copies[content] = path.stem
        return path.stem

    def changes_path(self, number: int, table: str) -> Path:
        stem = _changes_stem(number, table)
        found = (self._folder / _CHANGES).glob("*.parquet")
        first = self._folder / _CHANGES / f"{stem}.parquet"
        return min((path for path in found if stem in stems_of(path.name)), default=first)

    def write_changes(
        self, number: int, table: str, schema: pa.Schema
    ) -> AbstractContextManager[DigestNamedFile]:
        return self._write_file(_CHANGES, _changes_stem(number, table), schema)

    def _write_file(
        self, folder: str, stem: str, schema: pa.Schema
    ) -> AbstractContextManager[DigestNamedFile]:
        disk.make_folder(self._folder / folder)
        first = self._folder / folder / f"{stem}.parquet.{uuid.uuid4().hex}{_TEMPORARY}"
        return write_parquet(first, schema, stem=stem)

    def set_aside(self, path: StoragePath) -> None:
        """What no state refers to is removed in time."""
        with suppress(OSError):
            os.replace(str(path), f"{path}.damaged")

    def remove_others(self, copies: Set[str], changes: Collection[Changes]) -> None:
        named = {_COPIES: copies, _CHANGES: {_changes_stem(*each) for each in changes}}
        for path in self._list_files():
            if path.suffix != ".parquet" or named[path.parent.name].isdisjoint(stems_of(path.name)):
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
            found = [key for key in self._list_keys() if stem in self._changes_in(key)]
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
                and stems.isdisjoint(self._changes_in(key))
                and _epoch_of(key) <= epoch
            ]
        )
        self._copies = None

    def measure_bytes(self) -> int:
        sizes = (storage_of(self._place).file_sizes(self._place / n) for n in (_COPIES, _CHANGES))
        return sum(size for found in sizes for size in found.values())

    @contextmanager
    def _write_object(self, path: ObjectPath, schema: pa.Schema) -> Iterator[DigestNamedFile]:
        with write_parquet(path, schema) as written:
            yield written
        assert isinstance(written.path, ObjectPath)
        if self._there is not None:
            self._there.add(written.path.key)

    def _own_folder(self, name: str) -> ObjectPath:
        return self._place / name / f"{self._place.storage.epoch:08d}"

    def _changes_in(self, key: str) -> Set[str]:
        """The changes that an object may have, as they are named; none, if it is a copy."""
        is_changes = key.startswith(f"{(self._place / _CHANGES).key}/")
        return stems_of(key.rpartition("/")[2]) if is_changes else set()

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
