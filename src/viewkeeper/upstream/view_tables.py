"""A parent's views described as tables: their handles, names and columns as they are now.

A handle shows only columns that it stands for, or that came later under a new name: a column that
only has the name of an earlier one is another column. A view that was loaded again is another
table, and its old handles show nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from viewkeeper.errors import SchemaError
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import CurrentNames
from viewkeeper.upstream.followed_views import FollowedViews
from viewkeeper.upstream.view_shapes import live_columns_of
from viewkeeper.view.definition import Field


class ViewTables:
    """Describes the views of a parent; used under the source's lock."""

    def __init__(self, views: FollowedViews) -> None:
        self._views = views

    def handle_of(self, name: str) -> str:
        view = self._views.find_loaded(name)
        identities = self._views.shapes_of(view).column_identities()
        return self._views.names.choose_handle(name, view.table, identities)

    def current_names_of(self, handle: str) -> CurrentNames | None:
        """What a handle's view and columns are called; None if its table is not there any more."""
        head, named = self._views.files.current_head(), self._views.names.target_of(handle)
        view = head.views.get(name_of_handle(handle))
        if view is None or (named is not None and named.identity != view.table):
            return None
        there = live_columns_of(named, self._views.shapes_of(view))
        wanted = named.columns if named else there
        return CurrentNames(view.view, {name: name for name in wanted if name in there})

    def schema_of(self, table: str) -> tuple[Field, ...]:
        view = self._views.find_loaded(name_of_handle(table))
        named = self._views.names.target_of(table)
        if named is not None and named.identity != view.table:
            raise SchemaError(
                self._views.parent.name,
                f'view "{view.view}" was loaded again, and is another table now',
                hint="nothing to do: the next look reports that, and the views follow it",
            )
        there = live_columns_of(named, self._views.shapes_of(view))
        return tuple(Field(f.name, f.type) for f in view.shown_schema if f.name in there)

    def types_of(self, table: str, columns: Sequence[str]) -> list[pa.DataType]:
        """The types of some columns; an error if the view does not have one of them."""
        types = {field.name: field.type for field in self.schema_of(table)}
        for column in columns:
            if column not in types:
                raise self._views.no_column(name_of_handle(table), column, types)
        return [types[column] for column in columns]
