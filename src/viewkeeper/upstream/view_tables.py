"""A parent's views described as tables: their handles, names and columns as they are now.

A handle shows only columns that it stands for, or that came later under a new name: a column that
only has the name of an earlier one is another column. A view that was loaded again is another
table, and its old handles show nothing.
"""

from __future__ import annotations

from viewkeeper.errors import SchemaError
from viewkeeper.sources.tables.column_type import TableColumns
from viewkeeper.sources.tables.description import describe_file_table
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import CurrentNames, TableDescription
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

    def describe_table(self, handle: str) -> TableDescription:
        """Whatever a view can show, a view can read; a view is a bag, so it has no key."""
        view = self._views.find_loaded(name_of_handle(handle))
        named = self._views.names.target_of(handle)
        if named is not None and named.identity != view.table:
            raise SchemaError(
                self._views.parent.name,
                f'view "{view.view}" was loaded again, and is another table now',
                hint="nothing to do: the next look reports that, and the views follow it",
            )
        there = live_columns_of(named, self._views.shapes_of(view))
        fields = tuple(Field(f.name, f.type) for f in view.shown_schema if f.name in there)
        names = {name: name for name in (named.columns if named else there) if name in there}
        return describe_file_table(CurrentNames(view.view, names), TableColumns(fields, {}))
