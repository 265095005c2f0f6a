"""Schema changes of a parent's views, as a child sees them.

A view's own columns keep their names when its sources rename theirs, so most of what a parent
follows does not concern its children at all. They learn of a column that went, came or got another
type, of a view that was loaded again into a new table, which is another one, and of one that was
dropped.

A parent does not say as of which ts it changed a definition: rows of the past are read under the
newest columns too. So a change gets the position of the first transaction that a child has not
taken when it is noticed, and that is remembered, for whoever asks again.

A column added to a view is NULL in all its past states; where the parent fills it, that is a change
of rows like any other, so values are always kept by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from viewkeeper.sources.files.parquet_types import type_change
from viewkeeper.sources.handles import Named
from viewkeeper.storage.sealed_json import Body
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.schema_text import schema_of, schema_text


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a view from its version number `versions` on.

    `position` is where the child was told; None if it has not been yet. `gone` are columns that
    some version since the shape before had not, whatever is called so now.
    """

    versions: int
    columns: pa.Schema
    position: int | None
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class History:
    """The shapes of one table of a view since it is followed, the oldest first."""

    shapes: tuple[Shape, ...]

    @staticmethod
    def begin(view: ViewHead, position: int = 0) -> History:
        return History((Shape(len(view.versions), view.shown, position),))

    @property
    def newest(self) -> Shape:
        return self.shapes[-1]

    def seen(self, view: ViewHead) -> History:
        """With the shape that the view has now, if that is another one."""
        known, count = self.newest, len(view.versions)
        if count == known.versions and view.shown.equals(known.columns):
            return self
        between = view.versions[known.versions : count]
        gone = tuple(n for n in known.columns.names if any(n not in v.columns for v in between))
        return History((*self.shapes, Shape(count, view.shown, None, gone)))

    def told(self, position: int) -> History:
        """The same; what was not told is, from a position on."""
        return History(
            tuple(
                s if s.position is not None else replace(s, position=position) for s in self.shapes
            )
        )

    @property
    def is_told(self) -> bool:
        return all(shape.position is not None for shape in self.shapes)

    def identities(self) -> dict[str, str]:
        """The columns of now by name, each with what tells it from any other that was called so."""
        return {name: f"{name}@{self._since(name)}" for name in self.newest.columns.names}

    def _since(self, name: str) -> int:
        first = len(self.shapes) - 1
        while first and goes_on(self.shapes[first - 1], self.shapes[first], name):
            first -= 1
        return first

    def changes(self, handle: str, named: Named) -> Iterator[tuple[int | None, SchemaChange]]:
        """What happened to a handle's columns, each with the position where that is told."""
        for number in range(1, len(self.shapes)):
            before, now = History(self.shapes[:number]), self.shapes[number]
            alive = before.identities()
            for name, identity in named.columns.items():
                if alive.get(name) == identity:
                    for change in _column(handle, name, before.newest, now):
                        yield now.position, change
            for name in now.columns.names:
                if name not in before.newest.columns.names or name in now.gone:
                    yield now.position, SchemaChange("add_column", handle, name)


def goes_on(before: Shape, now: Shape, name: str) -> bool:
    """Whether a column is the same one in the next shape, its values kept."""
    if name in now.gone or not {name} <= {*before.columns.names} & {*now.columns.names}:
        return False
    change = type_change(before.columns.field(name).type, now.columns.field(name).type)
    return change in (None, "widen_type")


def _column(handle: str, name: str, before: Shape, now: Shape) -> Iterator[SchemaChange]:
    if name in now.gone or name not in now.columns.names:
        yield SchemaChange("drop_column", handle, name)
        return
    new = now.columns.field(name).type
    kind = type_change(before.columns.field(name).type, new)
    if kind is not None:
        yield SchemaChange(kind, handle, name, str(new))


def alive(named: Named | None, history: History) -> dict[str, str]:
    """The columns that can be asked for under a handle: all of now, except those that only have
    the name of one that the handle stands for."""
    now = history.identities()
    known = named.columns if named else {}
    return {name: each for name, each in now.items() if known.get(name, each) == each}


def encode(histories: Mapping[str, History]) -> Body:
    return {
        table: [[s.versions, schema_text(s.columns), s.position, list(s.gone)] for s in h.shapes]
        for table, h in histories.items()
    }


def decode(body: Body) -> dict[str, History]:
    return {
        table: History(tuple(Shape(n, schema_of(t), at, tuple(gone)) for n, t, at, gone in shapes))
        for table, shapes in body.items()
    }
