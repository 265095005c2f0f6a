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
from viewkeeper.sources.postgres.answers.table_locks import Locked, Locking
from viewkeeper.sources.postgres.database_description import PostgresDatabase
from viewkeeper.sources.postgres.handle_changes import broken
from viewkeeper.sources.postgres.shape_differences import Difference
from viewkeeper.sources.postgres.shape_query import ShapeColumn
from viewkeeper.sources.postgres.shape_steps import History, Step
from viewkeeper.sources.postgres.types import Kind, Refusal
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.schema_change import called


class PostgresAsking(PostgresDatabase):
    """A database whose tables are asked for by handles."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        super().__init__(settings, reader)
        self._locking = Locking(self.name)
        self._suspects = False
        """Whether a question met a shape that may not have been reported."""

    def _lock_tables(self, coordinator: psycopg.Connection[Any], handles: Iterable[str]) -> Locked:
        """Lock tables and export a snapshot that shows them by their handles' names."""
        oids = {handle: self._oid(handle) for handle in handles}
        try:
            with self._server.errors():
                seconds = self._server.statement_seconds
                locked = self._locking.lock(coordinator, oids, seconds)
        except BrokenQueryError:
            self._suspects = True
            raise
        seen = {
            handle: table.seen_as(handle, self._numbers(handle))
            for handle, table in locked.tables.items()
        }
        return replace(locked, tables=seen)

    def _known_numbers(self, handle: str, columns: Sequence[str]) -> dict[str, int]:
        """The numbers of columns that are followed under a handle."""
        numbers = self._numbers(handle)
        for column in columns:
            if column not in numbers:
                raise SchemaError(
                    self.name,
                    f'table "{called(handle)}": column "{column}" is not followed',
                    hint="nothing to do: it is followed when a view that reads it is loaded",
                )
        return {column: numbers[column] for column in columns}

    def _kind(self, handle: str, name: str, column: ShapeColumn) -> Kind:
        """How values of a column are read now."""
        if isinstance(column.kind, Refusal):
            difference = Difference("change_type", column.number, column.declared)
            raise self._broken(handle, difference)
        return column.kind

    def _check_askable(
        self, handle: str, columns: Sequence[str], after: int, history: History
    ) -> None:
        """A BrokenQueryError if what was told since a position ends what can be asked."""
        numbers = set(self._known_numbers(handle, columns).values())
        difference = history.ending(self._oid(handle), numbers, after)
        if difference is not None:
            raise self._broken(handle, difference)
        missing = numbers - history.now(self._oid(handle)).by_number.keys()
        if missing:
            raise self._broken(handle, Difference("drop_column", min(missing)))

    def _check_shown(
        self, handle: str, columns: Sequence[str], after: int, history: History, locked: Locked
    ) -> None:
        """The same, also for what a snapshot shows and nobody has told."""
        self._check_askable(handle, columns, after, history)
        numbers = self._known_numbers(handle, columns)
        shape, known = locked.shapes[handle], history.now(self._oid(handle))
        for difference in history.between(known, Step(0, shape)):
            if difference.ends(numbers.values()):
                raise self._broken(handle, difference)
        for name, number in numbers.items():
            self._kind(handle, name, shape.by_number[number])

    def _broken(self, handle: str, difference: Difference) -> BrokenQueryError:
        self._suspects = True
        return broken(self.name, handle, self._numbers(handle), difference)
