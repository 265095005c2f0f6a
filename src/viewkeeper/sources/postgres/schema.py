"""A table of PostgreSQL as its catalogues describe it: columns, keys, partitions, identity.

A table is asked for as `name`, which the search path finds, or as `schema.name`. Types are those
below all domains. The *identity* of a table says what the change stream tells of old rows; that of
a partitioned table is what its partitions agree on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from psycopg import errors

from viewkeeper.errors import SchemaError, suggest_nearest
from viewkeeper.sources.postgres.types import (
    PgConnection,
    PostgresKind,
    kind_of,
    quote_name,
    read_row,
)
from viewkeeper.sources.tables.column_type import ColumnRefusal
from viewkeeper.updates.schema_change import name_of_handle


@dataclass(frozen=True, slots=True)
class PostgresColumn:
    """`type` and `modifier` are as declared; a domain's base decides how values are kept.

    `name` is what those who ask call it, `called` what it is called now, if that is another name.
    """

    name: str
    number: int
    type: int
    modifier: int
    declared: str
    base: str
    base_modifier: int
    is_enum: bool
    not_null: bool
    generated: bool
    called: str = ""

    @property
    def sql(self) -> str:
        """Its name in a query."""
        return quote_name(self.called or self.name)

    @property
    def kind(self) -> PostgresKind | ColumnRefusal:
        return kind_of(self.base, self.base_modifier, self.is_enum, self.declared)


@dataclass(frozen=True, slots=True)
class PostgresIndex:
    """The columns of an index in order; None for an expression."""

    columns: tuple[str | None, ...]
    primary: bool
    unique: bool
    identity: bool
    searchable: bool


@dataclass(frozen=True, slots=True)
class LeafTable:
    """A table that has rows, the table itself or a partition: its oid, name and identity."""

    oid: int
    name: str
    identity: str


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """What the catalogues say of one table; `asked` is how the views call it."""

    asked: str
    oid: int
    schema: str
    name: str
    partitioned: bool
    inherited: bool
    identity: str
    rows: float
    columns: tuple[PostgresColumn, ...]
    indexes: tuple[PostgresIndex, ...]
    parts: tuple[LeafTable, ...]

    @property
    def quoted_name(self) -> str:
        return f"{quote_name(self.schema)}.{quote_name(self.name)}"

    @property
    def column_numbers(self) -> dict[str, int]:
        return {column.name: column.number for column in self.columns}

    def spool_types(self, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """The numbers and types of columns."""
        facts = {column.name: (column.number, column.type) for column in self.columns}
        return {name: facts[name] for name in names}

    def named_by_handle(self, handle: str, numbers: Mapping[str, int]) -> PostgresTable:
        """The table as a handle has it, which has these names for columns by their numbers.

        A column whose name means another one there is left out.
        """
        names = {number: name for name, number in numbers.items()}
        shown = {
            column.name: replace(
                column, name=names.get(column.number, column.name), called=column.name
            )
            for column in self.columns
            if column.number in names or column.name not in numbers
        }
        indexes = tuple(
            replace(
                index, columns=tuple(shown[c].name if c in shown else None for c in index.columns)
            )
            for index in self.indexes
        )
        return replace(self, asked=handle, columns=tuple(shown.values()), indexes=indexes)

    def column_named(self, source: str, name: str) -> PostgresColumn:
        for column in self.columns:
            if column.name == name:
                return column
        known = [column.name for column in self.columns]
        raise SchemaError(
            source,
            f'table "{self.asked}" has no column "{name}"',
            hint=f"its columns are {', '.join(known)}{suggest_nearest(name, known)}",
        )

    def kind_of_column(self, source: str, name: str) -> PostgresKind:
        """How a column is kept; a SchemaError if it cannot be."""
        kind = self.column_named(source, name).kind
        if isinstance(kind, ColumnRefusal):
            raise SchemaError(
                source,
                f'table "{self.asked}": column "{name}" cannot be kept exactly',
                detail=kind.reason,
                hint=kind.hint,
            )
        return kind

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """Keys that are enforced at once and cannot be NULL, the primary key first."""
        strict = {column.name for column in self.columns if column.not_null}
        found = [
            (not index.primary, tuple(name for name in index.columns if name is not None))
            for index in self.indexes
            if index.unique and strict.issuperset(index.columns)
        ]
        return tuple(columns for _, columns in sorted(found, key=lambda each: each[0]))

    @property
    def primary_key(self) -> tuple[str, ...]:
        found = (index.columns for index in self.indexes if index.primary)
        return tuple(name for name in next(found, ()) if name is not None)

    def parts_without_old(self, columns: Sequence[str]) -> list[LeafTable]:
        """The tables, partitions or the table itself, whose old rows would lack one of these
        columns."""
        return [part for part in self.parts if not self._has_old_values(part, columns)]

    def _has_old_values(self, part: LeafTable, columns: Sequence[str]) -> bool:
        covering = [
            index
            for index in self.indexes
            if (index.primary and part.identity == "d") or (index.identity and part.identity == "i")
        ]
        return part.identity == "f" or any(
            set(index.columns).issuperset(columns) for index in covering
        )


_CLASS = """
SELECT c.oid::int8, n.nspname, c.relname, c.relkind, c.relreplident, c.reltuples,
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = %s
"""
_COLUMNS = """
WITH RECURSIVE base AS (
  SELECT a.attnum, a.atttypid AS type, a.atttypmod AS modifier, 0 AS depth FROM pg_attribute a
   WHERE a.attrelid = %(table)s AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT b.attnum, t.typbasetype, t.typtypmod, b.depth + 1
    FROM base b JOIN pg_type t ON t.oid = b.type WHERE t.typtype = 'd')
SELECT a.attname, a.attnum, a.atttypid::int8, a.atttypmod, format_type(a.atttypid, a.atttypmod),
       coalesce(e.typname || '[]', t.typname), b.modifier, coalesce(e.typtype, t.typtype) = 'e',
       a.attnotnull, a.attgenerated <> ''
  FROM base b JOIN pg_type t ON t.oid = b.type AND t.typtype <> 'd'
  LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
  JOIN pg_attribute a ON a.attrelid = %(table)s AND a.attnum = b.attnum ORDER BY a.attnum
"""
_INDEXES = """
SELECT array(SELECT a.attname::text FROM unnest(i.indkey[0:i.indnkeyatts - 1])
             WITH ORDINALITY AS k(number, place)
             LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
             ORDER BY k.place),
       i.indisprimary, i.indisunique AND i.indimmediate AND i.indpred IS NULL AND i.indisvalid,
       i.indisreplident, i.indpred IS NULL AND i.indisvalid AND m.amname IN ('btree', 'hash')
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
 WHERE i.indrelid = %s ORDER BY i.indexrelid
"""
_PARTS = """
SELECT c.oid::int8, format('"%%s"."%%s"', replace(n.nspname, '"', '""'),
       replace(c.relname, '"', '""')), c.relreplident, c.reltuples
  FROM pg_partition_tree(%s) p JOIN pg_class c ON c.oid = p.relid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE p.isleaf AND c.relkind <> 'p' ORDER BY 2
"""
_NEAR = """
SELECT CASE WHEN pg_table_is_visible(c.oid) THEN relname::text ELSE nspname || '.' || relname END
  FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
 WHERE relkind IN ('r', 'p') AND NOT relispartition
   AND nspname NOT IN ('pg_catalog', 'information_schema', 'viewkeeper') ORDER BY 1 LIMIT 1000
"""


_FIND = """
SELECT coalesce(
  CASE WHEN %(schema)s::text IS NULL THEN to_regclass(%(quoted)s)::oid END,
  (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = %(name)s AND n.nspname = %(schema)s),
  (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = %(name)s AND %(schema)s::text IS NULL AND c.relkind IN ('r', 'p')
      AND NOT has_schema_privilege(n.oid, 'USAGE') AND n.nspname =
          ANY(string_to_array(replace(current_setting('search_path'), ' ', ''), ',')) LIMIT 1)
)::int8
"""


def quote_table(asked: str) -> str:
    """
    >>> quote_table("public.Order")
    '"public"."Order"'
    """
    return ".".join(quote_name(part) for part in asked.split(".", 1))


def find_table(connection: PgConnection, asked: str) -> int | None:
    """The oid of what a name means now, whether or not the role may enter its schema."""
    schema, _, name = asked.rpartition(".") if asked.count(".") < 2 else asked.partition(".")
    names = {"quoted": quote_table(asked), "schema": schema or None, "name": name}
    oid: int | None
    (oid,) = read_row(connection, _FIND, names)
    return oid


def read_table(connection: PgConnection, source: str, asked: str) -> PostgresTable:
    """A table, as this connection sees it now; a SchemaError with the nearest names if it is not
    there or is no plain or partitioned table."""
    oid = find_table(connection, asked)
    table = None if oid is None else table_with_oid(connection, source, asked, oid)
    if table is None:
        known = [str(each) for (each,) in connection.execute(_NEAR)]
        hint = f"its tables are {', '.join(known[:20]) or 'none'}{suggest_nearest(asked, known)}"
        raise SchemaError(source, f'there is no table "{asked}"', hint=hint)
    return table


def table_with_oid(
    connection: PgConnection, source: str, asked: str, oid: int
) -> PostgresTable | None:
    """The table with an oid, whatever it is called; None if it is gone."""
    row = connection.execute(_CLASS, (oid,)).fetchone()
    if row is None:
        return None
    oid, schema, name, relkind, identity, rows, inherited = row
    if relkind not in ("r", "p"):
        raise SchemaError(
            source,
            f'"{asked}" is no table',
            hint="views, foreign and temporary tables cannot be followed; name the tables below",
        )
    columns = tuple(PostgresColumn(*each) for each in connection.execute(_COLUMNS, {"table": oid}))
    indexes = tuple(
        PostgresIndex(tuple(each[0]), *each[1:]) for each in connection.execute(_INDEXES, [oid])
    )
    leaves = connection.execute(_PARTS, [oid]).fetchall() if relkind == "p" else []
    parts = tuple(LeafTable(*leaf[:3]) for leaf in leaves)
    if relkind == "p":
        rows = sum(max(0.0, float(leaf[3])) for leaf in leaves)
    else:
        parts = (LeafTable(oid, f"{quote_name(schema)}.{quote_name(name)}", identity),)
    return PostgresTable(
        asked,
        oid,
        schema,
        name,
        relkind == "p",
        inherited,
        identity,
        float(rows),
        columns,
        indexes,
        parts,
    )


_PRIVILEGES = """
SELECT has_schema_privilege(relnamespace, 'USAGE'), has_table_privilege(oid, 'SELECT')
  FROM pg_class WHERE oid = %s
"""


def missing_grants(control: PgConnection, table: PostgresTable) -> list[str]:
    """The statements after which the role may read the table; none if it may."""
    may_enter, may_read = read_row(control, _PRIVILEGES, (table.oid,))
    role, grants = quote_name(control.info.user), []
    if not may_enter:
        grants.append(f"GRANT USAGE ON SCHEMA {quote_name(table.schema)} TO {role};")
    if not may_read:
        grants.append(f"GRANT SELECT ON {table.quoted_name} TO {role};")
    return grants


def check_privilege(control: PgConnection, source: str, table: PostgresTable) -> None:
    """A SchemaError with the grants that are missing if the role may not read the table."""
    if grants := missing_grants(control, table):
        raise SchemaError(
            source,
            f'the role may not read table "{name_of_handle(table.asked)}"',
            hint=" ".join(grants),
        )


_LEFT = """
SELECT pg_describe_object(d.classid, d.objid, d.objsubid)
  FROM pg_depend d WHERE d.refclassid = 'pg_namespace'::regclass
   AND d.refobjid = to_regnamespace(%s) ORDER BY 1
"""


def drop_empty_schema(connection: PgConnection, schema: str) -> tuple[str, ...]:
    """Drop a schema of ours that has nothing in it; else what it has, or whose it is."""
    left = connection.execute(_LEFT, (quote_name(schema),)).fetchall()
    if left:
        return tuple(f"{what} in schema {schema}" for (what,) in left)
    try:
        with connection.transaction():
            connection.execute(f"DROP SCHEMA IF EXISTS {quote_name(schema)}".encode())
    except errors.InsufficientPrivilege:
        return (f"schema {schema}, which belongs to another role",)
    return ()
