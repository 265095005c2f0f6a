"""What PostgreSQL's catalogues say of tables, put in the names that handles have for them.

A handle that is followed stands for a table by its oid and for columns by their numbers, whatever
both are called now. Any other handle is the name that a table has now. Both ways of capture
describe tables alike, except that generated columns are not in the change stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from viewkeeper.errors import SchemaError
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.postgres.answers.lookup import is_indexed, key_columns
from viewkeeper.sources.postgres.postgres_server import PostgresConnections
from viewkeeper.sources.postgres.schema import (
    PostgresTable,
    check_privilege,
    find_table,
    read_table,
    table_with_oid,
)
from viewkeeper.sources.postgres.types import PgConnection, read_row
from viewkeeper.sources.state_files import StateFiles
from viewkeeper.sources.tables.column_type import ColumnRefusal
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import (
    CurrentNames,
    TableDescription,
    Tables,
    TableSize,
)
from viewkeeper.view.definition import Field

FollowableTables: TypeAlias = Mapping[str, tuple[PostgresTable, Mapping[str, int]]]
"""Tables by their handles, with the numbers of the asked columns by the handles' names."""
_GENERATED = (
    "generated columns are not in PostgreSQL's change stream; use the columns that it is computed"
    " from, or `capture: triggers`"
)
_SIZE = """SELECT bool_and(reltuples >= 0), sum(reltuples)::bigint, sum(pg_relation_size(oid))
FROM pg_class WHERE relkind = 'r' AND
(oid = %s OR oid IN (SELECT relid FROM pg_partition_tree(%s::oid::regclass)))"""


class PostgresDescriber:
    """Describes the tables of one source; it also keeps the handles that stand for them."""

    def __init__(
        self, connections: PostgresConnections, files: StateFiles, is_streamed: bool
    ) -> None:
        self.source = connections.server.source
        self.connections = connections
        self.files = files
        self.handles = SourceHandles(files)
        self._is_streamed = is_streamed

    def reload_handles(self) -> None:
        """Read the handles again: another process may have followed tables since."""
        self.files.reload_files()
        self.handles.reload_handles()

    def handle_of(self, name: str) -> str:
        """The handle of the table that is called `name` now."""
        with self.connections.use_control() as control:
            table = read_table(control, self.source, name)
        numbers = {column: str(number) for column, number in table.column_numbers.items()}
        return self.handles.choose_handle(name, str(table.oid), numbers)

    def describe_table(self, handle: str) -> TableDescription:
        """The key is enforced at once; all kinds of columns can be compared, if need be by their
        text."""
        with self.connections.use_control() as control:
            table = self.read_by_handle(control, handle)
            names = self._names_of(control, handle, table)
        refused = self._find_refusals(table)
        kinds = ((c.name, c.kind) for c in table.columns if c.name not in refused)
        kept = {n: k.arrow for n, k in kinds if not isinstance(k, ColumnRefusal)}
        return TableDescription(
            names,
            tuple(Field(name, kind) for name, kind in kept.items()),
            refused,
            next((key for key in table.keys if not refused.keys() & set(key)), ()),
            frozenset(
                name
                for name in kept
                if is_indexed(table, key_columns(self.source, table, [name], [False]))
            ),
            frozenset(kept),
        )

    def estimate_size(self, table: str) -> TableSize:
        """By the statistics of the planner, partitions included; rows are not known before the
        first ANALYZE."""
        with self.connections.use_control() as control:
            oid = read_table(control, self.source, table).oid
            known, rows, size = read_row(control, _SIZE, (oid, oid))
        return TableSize(int(rows) if known else None, int(size))

    def _names_of(self, control: PgConnection, handle: str, table: PostgresTable) -> CurrentNames:
        """What a table is called now, and the columns of its handle."""
        query = "SELECT pg_table_is_visible(%s::oid)"
        is_plain = (
            read_row(control, query, (table.oid,))[0]
            and "." not in table.name
            and (self.handles.target_of(handle) is None or "." not in name_of_handle(handle))
        )
        columns = {column.number: column.called for column in table.columns}
        numbers = self.column_numbers(handle) or table.column_numbers
        return CurrentNames(
            table.name if is_plain else f"{table.schema}.{table.name}",
            {name: columns[number] for name, number in numbers.items() if number in columns},
        )

    def column_numbers(self, handle: str) -> dict[str, int]:
        """The numbers of the columns that are followed under a handle, by its names for them."""
        named = self.handles.target_of(handle)
        return {c: int(number) for c, number in named.columns.items()} if named else {}

    def oid_of(self, handle: str) -> int:
        """The table behind a handle that is followed."""
        named = self.handles.target_of(handle)
        if named is None:
            raise SchemaError(
                self.source,
                f'table "{name_of_handle(handle)}" is not followed',
                hint="nothing to do: it is followed when a view that reads it is loaded",
            )
        return int(named.identity)

    def find_by_handle(self, control: PgConnection, handle: str) -> PostgresTable | None:
        """The table behind a handle, as it is called now; None if it is gone."""
        if self.handles.target_of(handle) is not None:
            return table_with_oid(control, self.source, handle, self.oid_of(handle))
        name = handle if find_table(control, handle) is not None else name_of_handle(handle)
        oid = find_table(control, name)
        return None if oid is None else table_with_oid(control, self.source, handle, oid)

    def read_by_handle(self, control: PgConnection, handle: str) -> PostgresTable:
        """The table by the handle's names; a SchemaError if it is gone."""
        table = self.find_by_handle(control, handle)
        if table is None and self.handles.target_of(handle) is not None:
            raise SchemaError(
                self.source,
                f'table "{name_of_handle(handle)}" was dropped',
                hint="change the views that use it, or name a substitute",
            )
        table = table or read_table(control, self.source, name_of_handle(handle))
        return table.named_by_handle(handle, self.column_numbers(handle))

    def _find_refusals(self, table: PostgresTable) -> dict[str, str]:
        kinds = ((column.name, column.kind) for column in table.columns)
        refused = {n: str(k) for n, k in kinds if isinstance(k, ColumnRefusal)}
        if self._is_streamed:
            generated = (column.name for column in table.columns if column.generated)
            refused.update(dict.fromkeys(generated, _GENERATED))
        return refused

    def followable_tables(self, control: PgConnection, tables: Tables) -> FollowableTables:
        """The tables that can be followed; a followed table that is gone is passed over."""
        found = {}
        for handle, columns in tables.items():
            known = self.column_numbers(handle)
            table = self.find_by_handle(control, handle)
            if table is None and self.handles.target_of(handle) is not None:
                continue
            seen = self.read_by_handle(control, handle)
            self.check_columns(seen, [column for column in columns if column not in known])
            check_privilege(control, self.source, seen)
            assert table is not None, "what is not there was an error"
            there = seen.column_numbers
            found[handle] = (table, {c: there[c] for c in columns if c in there})
        return found

    def add_handles(self, tables: FollowableTables) -> None:
        """Let handles stand for what is followed under them from now on."""
        for handle, (table, numbers) in tables.items():
            texts = {name: str(number) for name, number in numbers.items()}
            self.handles.add_target(handle, str(table.oid), texts)

    def find_obstacles(self, table: PostgresTable, columns: Sequence[str]) -> list[SchemaError]:
        """What `check_columns` has against each of some columns, and against the table."""
        found = []
        for asked in ([], *([column] for column in columns)):
            try:
                self.check_columns(table, asked)
            except SchemaError as error:
                found.append(error)
                if not asked:
                    break
        return found

    def check_columns(self, table: PostgresTable, columns: Sequence[str]) -> None:
        """A SchemaError if a column is not there or cannot be used."""
        refused = self._find_refusals(table)
        for column in columns:
            table.column_named(self.source, column)
            if column in refused:
                reason, _, hint = refused[column].partition("; ")
                raise SchemaError(
                    self.source,
                    f'table "{name_of_handle(table.asked)}": column "{column}" cannot be used',
                    detail=reason,
                    hint=hint,
                )
        if table.inherited:
            raise SchemaError(
                self.source,
                f'table "{name_of_handle(table.asked)}" has tables that inherit from it',
                detail="a query shows their rows too, the change stream does not",
                hint="follow the tables that have the rows, or use declarative partitioning",
            )
