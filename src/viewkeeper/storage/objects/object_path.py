"""A place in object storage: the address of a warehouse, and a key below it.

There are no folders: one is there as long as some key begins with its name. Paths go to tasks on
other machines: what is pickled is the address with its options as the project file has them, so
that a `${NAME}` in them is looked up where the storage is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Protocol

from viewkeeper.storage.objects.object_address import ObjectAddress
from viewkeeper.storage.objects.object_client import ObjectClient
from viewkeeper.storage.storage_protocol import Storage


class PathStorage(Storage, Protocol):
    """The storage of such paths."""

    @property
    def address(self) -> ObjectAddress: ...

    @property
    def client(self) -> ObjectClient: ...

    @property
    def reopen_path(self) -> Callable[[ObjectAddress, int, str], ObjectPath]:
        """A path again, in another process."""


class ObjectPath:
    """A key below a warehouse's address; the empty one is the warehouse itself."""

    __slots__ = ("key", "storage")

    def __init__(self, storage: PathStorage, key: str = "") -> None:
        self.storage = storage
        self.key = key

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2] or self.storage.address.url.rpartition("/")[2]

    @property
    def stem(self) -> str:
        name = self.name
        return name.rpartition(".")[0] or name

    @property
    def suffix(self) -> str:
        stem, dot, end = self.name.rpartition(".")
        return dot + end if stem else ""

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(self.storage, self.key.rpartition("/")[0])

    def __truediv__(self, name: str, /) -> ObjectPath:
        return ObjectPath(self.storage, f"{self.key}/{name}" if self.key else name)

    def absolute(self) -> ObjectPath:
        return self

    def read_bytes(self) -> bytes:
        return self.storage.client.read(self.key)

    def is_file(self) -> bool:
        return self.storage.client.find_tag(self.key) is not None

    def is_dir(self) -> bool:
        return next(self.iterdir(), None) is not None

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str) -> Iterator[ObjectPath]:
        for key in self.storage.client.list_keys(self._prefix):
            path = ObjectPath(self.storage, key)
            if fnmatchcase(path.name, pattern):
                yield path

    def iterdir(self) -> Iterator[ObjectPath]:
        """What is directly below it, objects and folders."""
        for key in self.storage.client.list_folder(self._prefix):
            yield ObjectPath(self.storage, key)

    @property
    def _prefix(self) -> str:
        return f"{self.key}/" if self.key else ""

    def __str__(self) -> str:
        return f"{self.storage.address.url}/{self.key}" if self.key else self.storage.address.url

    def __repr__(self) -> str:
        return f"ObjectPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectPath):
            return NotImplemented
        return (self.storage.address, self.key) == (other.storage.address, other.key)

    def __hash__(self) -> int:
        return hash((self.storage.address, self.key))

    def __reduce__(self) -> tuple[object, ...]:
        return self.storage.reopen_path, (self.storage.address, self.storage.epoch, self.key)
