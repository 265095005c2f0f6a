"""Questions by handles: which table and columns are meant, and whether they can still be asked for.

Both ways of capture have a history of shapes, and a snapshot that shows the shapes of now. What
lies between the asked position and the snapshot decides: if it took values away, or gave others
without listing them, the question is a broken one. Then the next look compares shapes, so that it
reports what was met here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import psycopg

from viewkeeper.errors import BrokenQueryError, SchemaError
from viewkeeper.sources.postgres.answers.table_locks import LockedSnapshot, TableLocks
from viewkeeper.sources.postgres.database_description import PostgresDatabase
from viewkeeper.sources.postgres.handle_changes import broken_query_error
from viewkeeper.sources.postgres.shape_differences import ShapeDifference
from viewkeeper.sources.postgres.shape_query import PostgresShapeColumn
from viewkeeper.sources.postgres.shape_steps import PostgresShapeHistory, ShapeStep
from viewkeeper.sources.postgres.types import PostgresKind, PostgresRefusal
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.schema_change import name_of_handle


class PostgresQuestions(PostgresDatabase):
    """A database whose tables are asked for by handles."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        super().__init__(settings, reader)
        self._locking = TableLocks(self.name)
        self._suspects = False
        """Whether a question met a shape that may not have been reported."""

    def _lock_tables(
        self, coordinator: psycopg.Connection[Any], handles: Iterable[str]
    ) -> LockedSnapshot:
        """Lock tables and export a snapshot that shows them by their handles' names."""
        oids = {handle: self._oid_of(handle) for handle in handles}
        try:
            with self._server.translate_errors():
                seconds = self._server.statement_seconds
                locked = self._locking.lock_tables(coordinator, oids, seconds)
        except BrokenQueryError:
            self._suspects = True
            raise
        seen = {
            handle: table.named_by_handle(handle, self._column_numbers(handle))
            for handle, table in locked.tables.items()
        }
        return replace(locked, tables=seen)

    def _known_numbers(self, handle: str, columns: Sequence[str]) -> dict[str, int]:
        """The numbers of columns that are followed under a handle."""
        numbers = self._column_numbers(handle)
        for column in columns:
            if column not in numbers:
                raise SchemaError(
                    self.name,
                    f'table "{name_of_handle(handle)}": column "{column}" is not followed',
                    hint="nothing to do: it is followed when a view that reads it is loaded",
                )
        return {column: numbers[column] for column in columns}

    def _kind_of_column(self, handle: str, name: str, column: PostgresShapeColumn) -> PostgresKind:
        """How values of a column are read now."""
        if isinstance(column.kind, PostgresRefusal):
            difference = ShapeDifference("change_type", column.number, column.declared)
            raise self._broken_query(handle, difference)
        return column.kind

    def _check_askable(
        self, handle: str, columns: Sequence[str], after: int, history: PostgresShapeHistory
    ) -> None:
        """A BrokenQueryError if what was told since a position ends what can be asked."""
        numbers = set(self._known_numbers(handle, columns).values())
        difference = history.find_ending(self._oid_of(handle), numbers, after)
        if difference is not None:
            raise self._broken_query(handle, difference)
        missing = numbers - history.latest_shape(self._oid_of(handle)).by_number.keys()
        if missing:
            raise self._broken_query(handle, ShapeDifference("drop_column", min(missing)))

    def _check_shown(
        self,
        handle: str,
        columns: Sequence[str],
        after: int,
        history: PostgresShapeHistory,
        locked: LockedSnapshot,
    ) -> None:
        """The same, also for what a snapshot shows and nobody has told."""
        self._check_askable(handle, columns, after, history)
        numbers = self._known_numbers(handle, columns)
        shape, known = locked.shapes[handle], history.latest_shape(self._oid_of(handle))
        for difference in history.differences_between(known, ShapeStep(0, shape)):
            if difference.is_ending(numbers.values()):
                raise self._broken_query(handle, difference)
        for name, number in numbers.items():
            self._kind_of_column(handle, name, shape.by_number[number])

    def _broken_query(self, handle: str, difference: ShapeDifference) -> BrokenQueryError:
        self._suspects = True
        return broken_query_error(self.name, handle, self._column_numbers(handle), difference)
