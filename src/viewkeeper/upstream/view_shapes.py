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

from viewkeeper.sources.handles import HandleTarget
from viewkeeper.sources.tables.widening import classify_type_change
from viewkeeper.storage.sealed_json import Body
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.schema_text import schema_of, schema_text


@dataclass(frozen=True, slots=True)
class ViewShape:
    """The columns of a view from its version number `versions` on.

    `position` is where the child was told; None if it has not been yet. `gone` are columns that
    some version since the shape before had not, whatever is called so now.
    """

    versions: int
    columns: pa.Schema
    position: int | None
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewShapeHistory:
    """The shapes of one table of a view since it is followed, the oldest first."""

    shapes: tuple[ViewShape, ...]

    @staticmethod
    def start_history(view: ViewHead, position: int = 0) -> ViewShapeHistory:
        return ViewShapeHistory((ViewShape(len(view.versions), view.shown_schema, position),))

    @property
    def newest_shape(self) -> ViewShape:
        return self.shapes[-1]

    def add_seen(self, view: ViewHead) -> ViewShapeHistory:
        """With the shape that the view has now, if that is another one."""
        known, count = self.newest_shape, len(view.versions)
        if count == known.versions and view.shown_schema.equals(known.columns):
            return self
        between = view.versions[known.versions : count]
        gone = tuple(n for n in known.columns.names if any(n not in v.columns for v in between))
        return ViewShapeHistory((*self.shapes, ViewShape(count, view.shown_schema, None, gone)))

    def mark_reported(self, position: int) -> ViewShapeHistory:
        """The same history, with all shapes reported from a position on."""
        return ViewShapeHistory(
            tuple(
                s if s.position is not None else replace(s, position=position) for s in self.shapes
            )
        )

    @property
    def is_reported(self) -> bool:
        return all(shape.position is not None for shape in self.shapes)

    def column_identities(self) -> dict[str, str]:
        """The current columns by name, each with an identity that no earlier one so named had."""
        return {
            name: f"{name}@{self._first_shape(name)}" for name in self.newest_shape.columns.names
        }

    def _first_shape(self, name: str) -> int:
        first = len(self.shapes) - 1
        while first and is_continued(self.shapes[first - 1], self.shapes[first], name):
            first -= 1
        return first

    def changes_of(
        self, handle: str, named: HandleTarget
    ) -> Iterator[tuple[int | None, SchemaChange]]:
        """The changes of a handle's columns, each with the position that reports it."""
        for number in range(1, len(self.shapes)):
            before, now = ViewShapeHistory(self.shapes[:number]), self.shapes[number]
            alive = before.column_identities()
            for name, identity in named.columns.items():
                if alive.get(name) == identity:
                    for change in _column_changes(handle, name, before.newest_shape, now):
                        yield now.position, change
            for name in now.columns.names:
                if name not in before.newest_shape.columns.names or name in now.gone:
                    yield now.position, SchemaChange("add_column", handle, name)


def is_continued(before: ViewShape, now: ViewShape, name: str) -> bool:
    """Whether a column is the same one in the next shape, its values kept."""
    if name in now.gone or not {name} <= {*before.columns.names} & {*now.columns.names}:
        return False
    change = classify_type_change(before.columns.field(name).type, now.columns.field(name).type)
    return change in (None, "widen_type")


def _column_changes(
    handle: str, name: str, before: ViewShape, now: ViewShape
) -> Iterator[SchemaChange]:
    if name in now.gone or name not in now.columns.names:
        yield SchemaChange("drop_column", handle, name)
        return
    new = now.columns.field(name).type
    kind = classify_type_change(before.columns.field(name).type, new)
    if kind is not None:
        yield SchemaChange(kind, handle, name, str(new))


def live_columns_of(named: HandleTarget | None, history: ViewShapeHistory) -> dict[str, str]:
    """The columns that can be asked for under a handle: all of now, except those that only have
    the name of one that the handle stands for."""
    now = history.column_identities()
    known = named.columns if named else {}
    return {name: each for name, each in now.items() if known.get(name, each) == each}


def encode_histories(histories: Mapping[str, ViewShapeHistory]) -> Body:
    return {
        table: [[s.versions, schema_text(s.columns), s.position, list(s.gone)] for s in h.shapes]
        for table, h in histories.items()
    }


def decode_histories(body: Body) -> dict[str, ViewShapeHistory]:
    return {
        table: ViewShapeHistory(
            tuple(ViewShape(n, schema_of(t), at, tuple(gone)) for n, t, at, gone in shapes)
        )
        for table, shapes in body.items()
    }
