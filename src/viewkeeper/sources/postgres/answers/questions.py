"""Questions by handles: which tables and columns are meant, and whether they can be asked for.

A question locks its tables and exports a snapshot. A lock names a table as it is called, and the
snapshot is taken after it: another table may have that name by then. So the shapes that the
snapshot shows are compared with those that were locked, by oid. While the locks are held nobody can
change the tables, so tasks that import the snapshot can use these names.

Both ways of capture have a history of shapes. The steps between the asked position and the snapshot
decide: if one took values away, or gave others without listing them, the question is a broken one.
Then the next look compares shapes, so that it reports the change that was met here.

The description of a table is kept, and read again when its shape is another one, or after a while,
because its size decides how lookups are put.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from psycopg import errors

from viewkeeper.errors import BrokenQueryError, SchemaError, SourceAwayError
from viewkeeper.sources.postgres.answers.snapshot import BEGIN, SharedSnapshot
from viewkeeper.sources.postgres.database_description import PostgresDescriber
from viewkeeper.sources.postgres.schema import PostgresTable, table_with_oid
from viewkeeper.sources.postgres.shape_query import PostgresShape, PostgresShapeColumn, read_shapes
from viewkeeper.sources.postgres.shape_steps import PostgresShapeHistory, ShapeStep
from viewkeeper.sources.postgres.types import PgConnection, PostgresKind, read_row
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.tables.column_type import ColumnRefusal
from viewkeeper.sources.tables.shape_changes import ShapeChange, broken_query_error
from viewkeeper.updates.schema_change import name_of_handle

_TABLES_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LockedSnapshot:
    """An exported snapshot, and the shapes of the locked tables that it shows, by their handles."""

    shared: SharedSnapshot
    shapes: Mapping[str, PostgresShape]


class TableLocks:
    """Locks the tables behind handles; used by one source, under any number of connections."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._source = settings.name
        self._known: dict[int, tuple[PostgresTable, PostgresShape]] = {}
        self._until = 0.0

    def lock_tables(
        self, coordinator: PgConnection, oids: Mapping[str, int], seconds: float
    ) -> LockedSnapshot:
        """Lock, then take and export a snapshot; a BrokenQueryError if a table is gone."""
        if time.monotonic() > self._until:
            self._known.clear()
            self._until = time.monotonic() + _TABLES_SECONDS
        end = time.monotonic() + seconds
        while True:
            known = {
                handle: self._known_table(coordinator, handle, oid) for handle, oid in oids.items()
            }
            locked = self._try_lock(coordinator, known)
            if locked is not None:
                return locked
            coordinator.execute("ROLLBACK")
            self._known.clear()
            if time.monotonic() > end:
                raise SourceAwayError(
                    self._source,
                    "its tables are renamed all the time",
                    hint="nothing to do: it is tried again",
                )

    def _known_table(
        self, coordinator: PgConnection, handle: str, oid: int
    ) -> tuple[PostgresTable, PostgresShape]:
        known = self._known.get(oid)
        if known is None:
            known = self._read_table(
                coordinator, handle, oid, read_shapes(coordinator, (oid,)).get(oid)
            )
        return known

    def _read_table(
        self, coordinator: PgConnection, handle: str, oid: int, shape: PostgresShape | None
    ) -> tuple[PostgresTable, PostgresShape]:
        table = table_with_oid(coordinator, self._source, handle, oid)
        if table is None or shape is None:
            raise BrokenQueryError(self._source, handle, "it is gone")
        self._known[oid] = (table, shape)
        return table, shape

    def _try_lock(
        self, coordinator: PgConnection, known: Mapping[str, tuple[PostgresTable, PostgresShape]]
    ) -> LockedSnapshot | None:
        """None if a table was renamed meanwhile, or another one was locked in its place."""
        names = dict.fromkeys(table.quoted_name for table, _ in known.values())
        coordinator.execute(BEGIN.encode())
        if names:
            try:
                lock = f"LOCK TABLE {', '.join(names)} IN ACCESS SHARE MODE"
                coordinator.execute(lock.encode())
            except (errors.UndefinedTable, errors.InvalidSchemaName):
                return None
        query = "SELECT pg_current_snapshot()::text, pg_export_snapshot()"
        snapshot, exported = read_row(coordinator, query)
        shapes = read_shapes(coordinator, {shape.oid for _, shape in known.values()})
        tables: dict[str, PostgresTable] = {}
        seen: dict[str, PostgresShape] = {}
        for handle, (table, before) in known.items():
            shape = shapes.get(before.oid)
            if shape is None or (shape.schema, shape.name) != (table.schema, table.name):
                return None
            if shape != before:
                table, _ = self._read_table(coordinator, handle, shape.oid, shape)
            tables[handle], seen[handle] = table, shape
        return LockedSnapshot(SharedSnapshot(self._settings, exported, snapshot, tables), seen)


class PostgresQuestions:
    """Checks the questions to one source, whichever way it is captured."""

    def __init__(self, describer: PostgresDescriber) -> None:
        self._describer = describer
        self._source = describer.source
        self._server = describer.connections.server
        self._locks = TableLocks(self._server.settings)
        self.has_suspicion = False
        """Whether a question met a shape that may not have been reported."""

    def set_suspicion(self, has_suspicion: bool) -> None:
        """Say whether the catalogue may have shapes that were not reported."""
        self.has_suspicion = has_suspicion

    def lock_tables(self, coordinator: PgConnection, handles: Iterable[str]) -> LockedSnapshot:
        """Lock tables and export a snapshot that shows them by their handles' names."""
        oids = {handle: self._describer.oid_of(handle) for handle in handles}
        try:
            with self._server.translate_errors():
                seconds = self._server.statement_seconds
                locked = self._locks.lock_tables(coordinator, oids, seconds)
        except BrokenQueryError:
            self.has_suspicion = True
            raise
        seen = {
            handle: table.named_by_handle(handle, self._describer.column_numbers(handle))
            for handle, table in locked.shared.tables.items()
        }
        return replace(locked, shared=replace(locked.shared, tables=seen))

    def known_numbers(self, handle: str, columns: Sequence[str]) -> dict[str, int]:
        """The numbers of columns that are followed under a handle."""
        numbers = self._describer.column_numbers(handle)
        for column in columns:
            if column not in numbers:
                raise SchemaError(
                    self._source,
                    f'table "{name_of_handle(handle)}": column "{column}" is not followed',
                    hint="nothing to do: it is followed when a view that reads it is loaded",
                )
        return {column: numbers[column] for column in columns}

    def kind_of_column(self, handle: str, name: str, column: PostgresShapeColumn) -> PostgresKind:
        """How values of a column are read now."""
        if isinstance(column.kind, ColumnRefusal):
            change = ShapeChange("change_type", str(column.number), column.declared)
            raise self._broken_query(handle, change)
        return column.kind

    def check_askable(
        self, handle: str, columns: Sequence[str], after: int, history: PostgresShapeHistory
    ) -> None:
        """A BrokenQueryError if a step since a position ends what can be asked."""
        oid, numbers = self._describer.oid_of(handle), self.known_numbers(handle, columns).values()
        change = history.find_ending(oid, {str(number) for number in numbers}, after)
        if change is not None:
            raise self._broken_query(handle, change)
        missing = set(numbers) - history.latest_shape(oid).by_number.keys()
        if missing:
            raise self._broken_query(handle, ShapeChange("drop_column", str(min(missing))))

    def check_shown(
        self,
        handle: str,
        columns: Sequence[str],
        after: int,
        history: PostgresShapeHistory,
        locked: LockedSnapshot,
    ) -> None:
        """The same, also for the step that a snapshot shows and nobody has reported."""
        self.check_askable(handle, columns, after, history)
        numbers = self.known_numbers(handle, columns)
        shape, known = locked.shapes[handle], history.latest_shape(self._describer.oid_of(handle))
        identities = {str(number) for number in numbers.values()}
        for change in history.changes_between(known, ShapeStep(0, shape)):
            if change.is_ending(identities):
                raise self._broken_query(handle, change)
        for name, number in numbers.items():
            self.kind_of_column(handle, name, shape.by_number[number])

    def _broken_query(self, handle: str, change: ShapeChange) -> BrokenQueryError:
        self.has_suspicion = True
        named = self._describer.handles.target_of(handle)
        return broken_query_error(self._source, handle, named.columns if named else {}, change)
