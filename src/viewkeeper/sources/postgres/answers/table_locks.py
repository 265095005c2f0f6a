"""Tables locked, a snapshot of them exported, and their shapes read in that snapshot.

A lock names a table as it is called, and a snapshot is taken after it: what was called so a moment
ago may be another table by then. So the shapes that the snapshot shows are compared with what was
locked, by oid. While the locks are held nobody can change them any more, so whoever imports the
snapshot can use the names that were found.

What the catalogues say of a table is kept, and read again when its shape is another one, or after a
while, because its size decides how lookups are put.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors

from viewkeeper.errors import BrokenQueryError, SourceAwayError
from viewkeeper.sources.postgres.answers.snapshot import BEGIN
from viewkeeper.sources.postgres.schema import PostgresTable, table_with_oid
from viewkeeper.sources.postgres.shape_query import PostgresShape, read_shapes

_TABLES_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class LockedSnapshot:
    """A snapshot: what it sees, the name that it is exported under, and what it shows of tables."""

    snapshot: str
    exported: str
    tables: Mapping[str, PostgresTable]
    shapes: Mapping[str, PostgresShape]


class TableLocks:
    """Locks the tables behind handles; used by one source, under any number of connections."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._known: dict[int, tuple[PostgresTable, PostgresShape]] = {}
        self._until = 0.0

    def forget_tables(self) -> None:
        self._known.clear()

    def lock_tables(
        self, coordinator: psycopg.Connection[Any], oids: Mapping[str, int], seconds: float
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
        self, coordinator: psycopg.Connection[Any], handle: str, oid: int
    ) -> tuple[PostgresTable, PostgresShape]:
        known = self._known.get(oid)
        if known is None:
            known = self._read_table(
                coordinator, handle, oid, read_shapes(coordinator, (oid,)).get(oid)
            )
        return known

    def _read_table(
        self,
        coordinator: psycopg.Connection[Any],
        handle: str,
        oid: int,
        shape: PostgresShape | None,
    ) -> tuple[PostgresTable, PostgresShape]:
        table = table_with_oid(coordinator, self._source, handle, oid)
        if table is None or shape is None:
            raise BrokenQueryError(self._source, handle, "it is gone")
        self._known[oid] = (table, shape)
        return table, shape

    def _try_lock(
        self,
        coordinator: psycopg.Connection[Any],
        known: Mapping[str, tuple[PostgresTable, PostgresShape]],
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
        row = coordinator.execute(query).fetchone()
        assert row is not None
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
        return LockedSnapshot(str(row[0]), str(row[1]), tables, seen)
