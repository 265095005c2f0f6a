"""A PostgreSQL database that answers questions about its tables, whatever way it is captured.

Both ways of capture have this in common: one control connection under one lock, opened when it is
first needed and again after it broke, and what the catalogues say of tables, columns and keys.

A handle that is followed stands for a table by its oid and for columns by their numbers, and what
is said of it is said by the handle's names. Any other handle is a name of now.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from viewkeeper.errors import SchemaError, SourceAwayError, SourceError
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.postgres.answers.lookup import is_indexed, key_columns
from viewkeeper.sources.postgres.decoding.follow import check_privilege
from viewkeeper.sources.postgres.postgres_server import OLDEST_VERSION, PostgresServer
from viewkeeper.sources.postgres.schema import PostgresTable, find_table, read_table, table_with_oid
from viewkeeper.sources.postgres.shape_query import prepare_shapes
from viewkeeper.sources.postgres.types import PostgresRefusal
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import CurrentNames, TableDescription, Tables
from viewkeeper.view.definition import Field


class PostgresDatabase:
    """What every PostgreSQL source can say of itself."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        self.name = settings.name
        self.settings = settings
        self.reader = reader
        self._server = PostgresServer(settings)
        self._lock = threading.RLock()
        self._control: psycopg.Connection[Any] | None = None
        self._free: list[psycopg.Connection[Any]] = []
        self._names = SourceHandles(self.home)
        self._path: tuple[str, ...] = ()

    @property
    def home(self) -> Path:
        return Path(self.settings.home or self.settings.folder)

    def describe_source(self) -> str:
        return self._server.describe_location()

    def handle_of(self, name: str) -> str:
        """The handle of the table that is called `name` now."""
        with self._use_control() as control:
            table = read_table(control, self.name, name)
        numbers = {column: str(number) for column, number in table.column_numbers.items()}
        return self._names.choose_handle(name, str(table.oid), numbers)

    def describe_table(self, handle: str) -> TableDescription:
        """The key is enforced at once; all kinds of columns can be compared, if need be by their
        text."""
        with self._use_control() as control:
            table = self._table_by_handle(control, handle)
            names = self._names_of(control, handle, table)
        refused = self._find_refusals(table)
        kinds = ((c.name, c.kind) for c in table.columns if c.name not in refused)
        kept = {n: k.arrow for n, k in kinds if not isinstance(k, PostgresRefusal)}
        return TableDescription(
            names,
            tuple(Field(name, kind) for name, kind in kept.items()),
            refused,
            next((key for key in table.keys if not refused.keys() & set(key)), ()),
            frozenset(
                name
                for name in kept
                if is_indexed(table, key_columns(self.name, table, [name], [False]))
            ),
            frozenset(kept),
        )

    def _names_of(
        self, control: psycopg.Connection[Any], handle: str, table: PostgresTable
    ) -> CurrentNames:
        """What a table is called now, and the columns of its handle."""
        visible = control.execute("SELECT pg_table_is_visible(%s::oid)", (table.oid,))
        row = visible.fetchone()
        plain = bool(row and row[0]) and "." not in table.name
        is_plain = plain and (
            self._names.target_of(handle) is None or "." not in name_of_handle(handle)
        )
        columns = {column.number: column.called for column in table.columns}
        numbers = self._column_numbers(handle) or table.column_numbers
        return CurrentNames(
            table.name if is_plain else f"{table.schema}.{table.name}",
            {name: columns[number] for name, number in numbers.items() if number in columns},
        )

    def _column_numbers(self, handle: str) -> dict[str, int]:
        """The numbers of the columns that are followed under a handle, by its names for them."""
        named = self._names.target_of(handle)
        return {c: int(number) for c, number in named.columns.items()} if named else {}

    def _oid_of(self, handle: str) -> int:
        """The table behind a handle that is followed."""
        named = self._names.target_of(handle)
        if named is None:
            raise SchemaError(
                self.name,
                f'table "{name_of_handle(handle)}" is not followed',
                hint="nothing to do: it is followed when a view that reads it is loaded",
            )
        return int(named.identity)

    def _find_table(self, control: psycopg.Connection[Any], handle: str) -> PostgresTable | None:
        """The table behind a handle, as it is called now; None if it is gone."""
        if self._names.target_of(handle) is not None:
            return table_with_oid(control, self.name, handle, self._oid_of(handle))
        name = handle if find_table(control, handle) is not None else name_of_handle(handle)
        oid = find_table(control, name)
        return None if oid is None else table_with_oid(control, self.name, handle, oid)

    def _table_by_handle(self, control: psycopg.Connection[Any], handle: str) -> PostgresTable:
        """The table by the handle's names; a SchemaError if it is gone."""
        table = self._find_table(control, handle)
        if table is None and self._names.target_of(handle) is not None:
            raise SchemaError(
                self.name,
                f'table "{name_of_handle(handle)}" was dropped',
                hint="change the views that use it, or name a substitute",
            )
        table = table or read_table(control, self.name, name_of_handle(handle))
        return table.named_by_handle(handle, self._column_numbers(handle))

    def _find_refusals(self, table: PostgresTable) -> dict[str, str]:
        kinds = ((column.name, column.kind) for column in table.columns)
        return {n: f"{k.reason}; {k.hint}" for n, k in kinds if isinstance(k, PostgresRefusal)}

    def _followable_tables(
        self, control: psycopg.Connection[Any], tables: Tables
    ) -> dict[str, tuple[PostgresTable, dict[str, int]]]:
        """The tables that can be followed, with the numbers of their columns by the handles'
        names; what a handle stands for and is gone is passed over."""
        found = {}
        for handle, columns in tables.items():
            known = self._column_numbers(handle)
            table = self._find_table(control, handle)
            if table is None and self._names.target_of(handle) is not None:
                continue
            seen = self._table_by_handle(control, handle)
            self._check_columns(seen, [column for column in columns if column not in known])
            check_privilege(control, self.name, seen)
            assert table is not None, "what is not there was an error"
            there = seen.column_numbers
            found[handle] = (table, {c: there[c] for c in columns if c in there})
        return found

    def _add_handles(self, found: Mapping[str, tuple[PostgresTable, Mapping[str, int]]]) -> None:
        """Let handles stand for what is followed under them from now on."""
        for handle, (table, numbers) in found.items():
            texts = {name: str(number) for name, number in numbers.items()}
            self._names.add_target(handle, str(table.oid), texts)

    def _check_columns(self, table: PostgresTable, columns: Sequence[str]) -> None:
        """A SchemaError if a column is not there or cannot be used."""
        refused = self._find_refusals(table)
        for column in columns:
            table.column_named(self.name, column)
            if column in refused:
                reason, _, hint = refused[column].partition("; ")
                raise SchemaError(
                    self.name,
                    f'table "{name_of_handle(table.asked)}": column "{column}" cannot be used',
                    detail=reason,
                    hint=hint,
                )
        if table.inherited:
            raise SchemaError(
                self.name,
                f'table "{name_of_handle(table.asked)}" has tables that inherit from it',
                detail="a query shows their rows too, the change stream does not",
                hint="follow the tables that have the rows, or use declarative partitioning",
            )

    @contextmanager
    def _use_control(self) -> Iterator[psycopg.Connection[Any]]:
        """The control connection, under the lock; a broken one is replaced the next time."""
        with self._lock:
            if self._control is None or self._control.closed:
                self._control = self._connect_control()
            try:
                with self._server.translate_errors():
                    yield self._control
            except SourceAwayError:
                # The server can end only when we let go of it.
                self._close_connections()
                raise

    @contextmanager
    def _use_coordinator(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection for one shared snapshot; one that is free again is kept for the next."""
        with self._lock:
            free = self._free.pop() if self._free else None
        connection = free if free and not free.closed else self._server.open_connection()
        try:
            if connection is not free:
                with self._server.translate_errors():
                    prepare_shapes(connection)
            yield connection
            with self._server.translate_errors():
                connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._free.append(connection)

    def _connect_control(self) -> psycopg.Connection[Any]:
        control = self._server.open_connection()
        try:
            with self._server.translate_errors():
                self._check_server(control)
                prepare_shapes(control)
        except BaseException:
            control.close()
            raise
        return control

    def _check_server(self, control: psycopg.Connection[Any]) -> None:
        if control.info.server_version < OLDEST_VERSION:
            raise SourceError(
                self.name,
                f"PostgreSQL {control.info.server_version // 10000} is too old",
                hint="Viewkeeper needs PostgreSQL 14 or newer",
            )
        query = "SELECT pg_is_in_recovery(), current_schemas(false)::text[]"
        row = control.execute(query).fetchone()
        assert row is not None
        self._path = tuple(row[1])
        if row[0]:
            raise SourceAwayError(
                self.name,
                "this is a standby server",
                detail="the changes and the queries of a source must come from one server",
                hint="let the url name the primary, or add target_session_attrs=read-write",
            )

    def _close_connections(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control = None
        while self._free:
            self._free.pop().close()

    def close(self) -> None:
        with self._lock:
            self._close_connections()
