"""The tables behind handles as the server describes them now.

What a handle means is followed up to this moment first: the log says what its table and columns are
called now, and the server describes the table of that name. Where the log does not lead from what
is remembered to now, every handle is a name, as it is when the source is followed again.
"""

from __future__ import annotations

from dataclasses import dataclass

from viewkeeper.errors import GapError, SchemaError
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.mariadb.binlog.capture import BinlogCapture
from viewkeeper.sources.mariadb.bound_handles import current_form_of, meaning_of
from viewkeeper.sources.mariadb.logged_shapes import LoggedShape, LoggedShapes
from viewkeeper.sources.mariadb.schema import has_folded_names, read_table, read_table_of_handle
from viewkeeper.sources.mariadb.server_connection import Connection
from viewkeeper.updates.source_protocol import TableDescription


@dataclass(frozen=True, slots=True)
class TableDescriber:
    """Describes the tables of one source, by the shapes that its capture knows."""

    capture: BinlogCapture

    def handle_of(self, name: str) -> str:
        capture = self.capture
        with capture.session.use_connection() as connection:
            handles, shapes = self._known_shapes(connection)
            table = read_table(connection, capture.source, capture.database, name)
            shape = shapes.find_shape(*table.place)
            if shape is None:
                return handles.choose_handle(name, "", {})
            return handles.choose_handle(name, shape.id, shape.table_shape().identities_by_name())

    def describe_table(self, handle: str) -> TableDescription:
        """The table of a handle now; every kind of value that is kept can be compared."""
        capture = self.capture
        source, database = capture.source, capture.database
        with capture.session.use_connection() as connection:
            handles, shapes = self._known_shapes(connection)
            target, shape = handles.target_of(handle), None
            if target is None:
                table = read_table_of_handle(connection, source, database, handle)
            else:
                shape = shapes.shape_by_id(target.identity)
                if shape is None:
                    raise SchemaError(source, f'table "{handle}" is not there any more')
                table = read_table(connection, source, database, shape.full_name)
        refusal = table.refusal_error()
        if refusal is not None:
            raise refusal
        found = meaning_of(table, target, shape)
        kept = found.columns
        now = shape or LoggedShape("", *table.place, ())
        columns = [column.name for column in table.columns]
        return TableDescription(
            current_form_of(handle, target, now, database, columns),
            kept.fields,
            kept.refused,
            found.key,
            found.indexed_columns,
            frozenset(field.name for field in kept.fields),
        )

    def _known_shapes(self, connection: Connection) -> tuple[SourceHandles, LoggedShapes]:
        """The handles and the shapes now; none, if the log does not lead to now."""
        try:
            return self.capture.handles, self.capture.shapes_now(connection)
        except GapError:
            return SourceHandles(None), LoggedShapes({}, has_folded_names(connection))
