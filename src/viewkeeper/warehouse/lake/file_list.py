"""The digest of a table's list of files, which the head keeps.

Each file's name, size, rows and statistics are digested, and the digests are added up by exclusive
or: in any order, and one commit changes the digest by its own files only. A Delta Lake log that was
emptied, cut, added to or changed gives another list than the head has, and is not believed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol

NOTHING = "0" * 16


class ListedFile(Protocol):
    """What a log says of a file, and a record too."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def count_min(self) -> int: ...
    @property
    def count_max(self) -> int: ...
    @property
    def ts_min(self) -> int: ...
    @property
    def ts_max(self) -> int: ...


def list_digest(files: Iterable[ListedFile], before: str = NOTHING) -> str:
    """The digest of a list, or of a list with more files; taking a file out is adding it again.

    >>> list_digest([])
    '0000000000000000'
    """
    total = int(before, 16)
    for file in files:
        total ^= int.from_bytes(_file_digest(file), "big")
    return f"{total:016x}"


def _file_digest(f: ListedFile) -> bytes:
    facts = f"{f.path} {f.size} {f.rows} {f.count_min} {f.count_max} {f.ts_min} {f.ts_max}"
    return hashlib.sha256(facts.encode(), usedforsecurity=False).digest()[:8]
