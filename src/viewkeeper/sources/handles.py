"""What a source's handles stand for: tables and columns by identity, whatever they are called.

A handle is made when a table is bound: it has the table's name and, for every column that is
followed under it, the name that the column has then. The identities behind are the kind's own
(PostgreSQL: oid and attribute number; SQLite: a capture; MariaDB: numbers that follow the DDL in
the binary log), as text. A handle never comes to mean something else. When a name is used again for
another table, or a column's name for another column, binding makes the next handle: `orders#2`.

The book is among what the source remembers; only `add_target` writes it. Without it a handle would
be a name of now, which may mean another table by then. So there is a copy where files can be lost
one by one: it is written first and removed first, and read where the book itself has gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from viewkeeper.sources.state_files import StateFiles
from viewkeeper.storage.typed_json import read_typed

FILE = "names.json"
COPY = "names-copy.json"


@dataclass(frozen=True, slots=True)
class HandleTarget:
    """A handle's table, and its columns by the names that the handle has for them."""

    identity: str
    columns: Mapping[str, str] = field(default_factory=dict)

    def is_same_table(self, identity: str, columns: Mapping[str, str]) -> bool:
        """Whether that table with these columns, by their names now, is what the handle means."""
        return self.identity == identity and all(
            columns.get(name) == column for name, column in self.columns.items()
        )


Book: TypeAlias = Mapping[str, HandleTarget]
"""What is followed, by handle: plain data, which can be sent to tasks."""


class SourceHandles:
    """The handles of one source; without files they are kept in memory only."""

    def __init__(self, files: StateFiles | None) -> None:
        self._files = files
        self._handles: dict[str, HandleTarget] = {}
        self.reload_handles()

    def reload_handles(self) -> None:
        """Read them again: another process may have followed tables since."""
        files = self._files
        if files is not None:
            found = (files.read_file(name, "names", _decode_book) for name in self._names)
            self._handles = next((book for book in found if book is not None), {})

    def __iter__(self) -> Iterator[str]:
        return iter(self._handles)

    def target_of(self, handle: str) -> HandleTarget | None:
        """The table behind a handle; None if it was never followed: it is then a table's name."""
        return self._handles.get(handle)

    def copy_book(self) -> dict[str, HandleTarget]:
        """All handles, as they are now."""
        return dict(self._handles)

    def handles_of(self, identity: str) -> dict[str, HandleTarget]:
        """The handles of a table."""
        return {h: named for h, named in self._handles.items() if named.identity == identity}

    def choose_handle(self, name: str, identity: str, columns: Mapping[str, str]) -> str:
        """The handle of the table that is called `name` now; `columns` are its columns' identities
        by the names that they have now.

        >>> names = SourceHandles(None)
        >>> names.add_target("orders", "17", {"id": "1", "price": "2"})
        >>> names.choose_handle("orders", "17", {"id": "1", "price": "2", "new": "3"})
        'orders'
        >>> names.choose_handle("orders", "17", {"id": "1", "cost": "2"})
        'orders#2'
        """
        number = 1
        while True:
            handle = name if number == 1 else f"{name}#{number}"
            known = self._handles.get(handle)
            if known is None or known.is_same_table(identity, columns):
                return handle
            number += 1

    def add_target(self, handle: str, identity: str, columns: Mapping[str, str]) -> None:
        """Let a handle stand for these columns, besides those that it stands for already."""
        known = self._handles.get(handle, HandleTarget(identity))
        assert known.identity == identity, "a handle never comes to mean another table"
        both = {**columns, **known.columns}
        if known.columns != both or handle not in self._handles or not self._is_whole():
            self._handles[handle] = HandleTarget(identity, both)
            self._write_book()

    def forget_all(self) -> None:
        """Forget everything: the source is not followed any more."""
        self._handles = {}
        if self._files is not None:
            self._files.remove_files(reversed(self._names))

    def _is_whole(self) -> bool:
        """Whether the book and its copy are both there."""
        return self._files is None or all(self._files.has_file(name) for name in self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        """The names of the book and of its copy, as they are read."""
        if self._files is None:
            return ()
        return (FILE,) if self._files.is_one_object else (FILE, COPY)

    def _write_book(self) -> None:
        body = {h: {"id": n.identity, "columns": dict(n.columns)} for h, n in self._handles.items()}
        for name in reversed(self._names):
            assert self._files is not None
            self._files.write_file(name, "names", body)


def _decode_book(body: Any) -> dict[str, HandleTarget]:
    spelled = {"id": "identity"}
    kept = {h: {spelled.get(k, k): v for k, v in each.items()} for h, each in body.items()}
    return read_typed(dict[str, HandleTarget], kept)
