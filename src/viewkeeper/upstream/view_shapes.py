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
from viewkeeper.sources.tables.shape import ShapeColumn, TableShape
from viewkeeper.sources.tables.shape_changes import list_shape_changes, report_changes
from viewkeeper.sources.tables.shape_history import ShapeHistory, current_columns_of, name_lives
from viewkeeper.storage.sealed_json import Body
from viewkeeper.updates.schema_change import SchemaChange
from viewkeeper.warehouse.metadata.definition_version import schema_of, schema_text
from viewkeeper.warehouse.metadata.head import ViewHead


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

    def table_shape(self) -> TableShape:
        columns = (ShapeColumn(f.name, "", f.name, f.type, str(f.type)) for f in self.columns)
        return TableShape("", "", tuple(columns), lost=frozenset(self.gone))


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

    def table_shapes(self) -> ShapeHistory[TableShape]:
        """The same as shapes of a table, by their numbers."""
        return name_lives((number, shape.table_shape()) for number, shape in enumerate(self.shapes))

    def column_identities(self) -> dict[str, str]:
        """The current columns by name, each with an identity that no earlier one so named had."""
        return self.table_shapes().newest.identities_by_name()

    def changes_of(
        self, handle: str, named: HandleTarget
    ) -> Iterator[tuple[int | None, SchemaChange]]:
        """The changes of a handle's columns, each with the position that reports it."""
        for number, before, now in self.table_shapes().pairs_between(0, len(self.shapes)):
            for change in report_changes(handle, named, list_shape_changes(before, now)):
                yield self.shapes[number].position, change


def live_columns_of(named: HandleTarget | None, history: ViewShapeHistory) -> dict[str, str]:
    """The columns that can be asked for under a handle: all present ones, except those that only
    have the name of one that the handle stands for."""
    return current_columns_of(named, history.table_shapes().newest, whole=True)


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
