"""A file or folder of a warehouse, wherever the warehouse is.

A warehouse is a folder, whose files have paths, or lies in object storage, whose files have
`ObjectPath`s. Both have names, and both can be read and listed in the same words. Whatever changes
a file, and whatever the two do differently, is asked of their storage (`stored_files`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class StoragePath(Protocol):
    """As much of a path as a warehouse may know of its files; `pathlib.Path` is one."""

    @property
    def name(self) -> str: ...
    @property
    def stem(self) -> str: ...
    @property
    def suffix(self) -> str: ...
    @property
    def parent(self) -> StoragePath: ...

    def __truediv__(self, name: str, /) -> StoragePath: ...

    def absolute(self) -> StoragePath: ...

    def read_bytes(self) -> bytes:
        """The content; FileNotFoundError if there is none."""

    def is_dir(self) -> bool: ...

    def is_file(self) -> bool: ...

    def glob(self, pattern: str) -> Iterator[StoragePath]: ...

    def rglob(self, pattern: str) -> Iterator[StoragePath]: ...

    def iterdir(self) -> Iterator[StoragePath]: ...


def name_of(place: StoragePath) -> str:
    """What files are put in order by."""
    return place.name
