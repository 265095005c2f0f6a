"""What a source's handles stand for: tables and columns by identity, whatever they are called.

A handle is made when a table is bound: it has the table's name and, for every column that is
followed under it, the name that the column has then. The identities behind are the kind's own
(PostgreSQL: oid and attribute number; SQLite: a capture; MariaDB: numbers that follow the DDL in
the binary log), as text. A handle never comes to mean something else. When a name is used again for
another table, or a column's name for another column, binding makes the next handle: `orders#2`.

The book is kept in the source's own folder of the warehouse; only `follow` writes it. Without it a
handle would be a name of now, which may mean another table by then. So there is a copy, which is
written first and removed first, and which is read where the book itself has gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from viewkeeper.sources.state_files import read_kept, write_kept
from viewkeeper.storage.typed_json import read_typed

FILE = "names.json"
COPY = "names-copy.json"


@dataclass(frozen=True, slots=True)
class Named:
    """A handle's table, and its columns by the names that the handle has for them."""

    identity: str
    columns: Mapping[str, str] = field(default_factory=dict)

    def agrees(self, identity: str, columns: Mapping[str, str]) -> bool:
        """Whether that table with these columns, by their names now, is what the handle means."""
        return self.identity == identity and all(
            columns.get(name) == column for name, column in self.columns.items()
        )


Book: TypeAlias = Mapping[str, Named]
"""What is followed, by handle: plain data, which can be sent to tasks."""


class Names:
    """The handles of one source; without a folder they are kept in memory only."""

    def __init__(self, folder: Path | None) -> None:
        self._file = folder / FILE if folder is not None else None
        self._handles: dict[str, Named] = {}
        if self._file is not None:
            kept = read_kept(self._file, "names", _decode)
            if kept is None:
                kept = read_kept(self._file.with_name(COPY), "names", _decode)
            self._handles = kept or {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._handles)

    def get(self, handle: str) -> Named | None:
        """What a handle stands for; None if it was never followed: it is then a name of now."""
        return self._handles.get(handle)

    def book(self) -> dict[str, Named]:
        """All handles, as they are now."""
        return dict(self._handles)

    def of(self, identity: str) -> dict[str, Named]:
        """The handles of a table."""
        return {h: named for h, named in self._handles.items() if named.identity == identity}

    def handle(self, name: str, identity: str, columns: Mapping[str, str]) -> str:
        """The handle of the table that is called `name` now; `columns` are its columns' identities
        by the names that they have now.

        >>> names = Names(None)
        >>> names.follow("orders", "17", {"id": "1", "price": "2"})
        >>> names.handle("orders", "17", {"id": "1", "price": "2", "new": "3"})
        'orders'
        >>> names.handle("orders", "17", {"id": "1", "cost": "2"})
        'orders#2'
        """
        number = 1
        while True:
            handle = name if number == 1 else f"{name}#{number}"
            known = self._handles.get(handle)
            if known is None or known.agrees(identity, columns):
                return handle
            number += 1

    def follow(self, handle: str, identity: str, columns: Mapping[str, str]) -> None:
        """Let a handle stand for these columns, besides those that it stands for already."""
        known = self._handles.get(handle, Named(identity))
        assert known.identity == identity, "a handle never comes to mean another table"
        both = {**columns, **known.columns}
        if known.columns != both or handle not in self._handles or not self._is_whole():
            self._handles[handle] = Named(identity, both)
            self._save()

    def clear(self) -> None:
        """Forget everything: the source is not followed any more."""
        self._handles = {}
        if self._file is not None:
            self._file.with_name(COPY).unlink(missing_ok=True)
            self._file.unlink(missing_ok=True)

    def _is_whole(self) -> bool:
        """Whether the book and its copy are both there."""
        file = self._file
        return file is None or (file.exists() and file.with_name(COPY).exists())

    def _save(self) -> None:
        if self._file is None:
            return
        body = {h: {"id": n.identity, "columns": dict(n.columns)} for h, n in self._handles.items()}
        write_kept(self._file.with_name(COPY), "names", body)
        write_kept(self._file, "names", body)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A handle as the file has it."""

    id: str
    columns: Mapping[str, str]


def _decode(body: Any) -> dict[str, Named]:
    kept = read_typed(dict[str, _Kept], body)
    return {handle: Named(each.id, each.columns) for handle, each in kept.items()}
