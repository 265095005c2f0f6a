"""The shape of a MariaDB table: columns, keys and indexes, and what would make it uncapturable.

All of it comes from information_schema. A table is refused where its binlog cannot be trusted to
list every change of it: another engine than InnoDB (its rows are in no snapshot), a child of a
foreign key that deletes or updates by itself (InnoDB does that below the binlog), a table with
system versioning (it keeps rows that are gone), a view or a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from viewkeeper.errors import SchemaError, suggest_names
from viewkeeper.sources.mariadb.server_connection import Connection, fetch_texts, quote_name
from viewkeeper.sources.mariadb.types import DeclaredType, MariadbKind, kind_of
from viewkeeper.sources.tables.column_type import ColumnRefusal
from viewkeeper.updates.schema_change import name_of_handle

_EVERY_BYTE = bytes(range(256)).hex()


@dataclass(frozen=True, slots=True)
class MariadbColumn:
    """A column: how it is kept, or why it is not."""

    name: str
    declared: DeclaredType
    kind: MariadbKind | ColumnRefusal
    nullable: bool
    generated: bool = False


@dataclass(frozen=True, slots=True)
class MariadbIndex:
    """The columns of an index, in order; `whole` unless it has only the start of a value."""

    name: str
    columns: tuple[str, ...]
    unique: bool
    whole: bool


@dataclass(frozen=True)
class MariadbTable:
    """A table; `database` and `name` as the server spells them, `charset` that of new texts."""

    source: str
    database: str
    name: str
    engine: str
    type: str
    columns: tuple[MariadbColumn, ...]
    indexes: tuple[MariadbIndex, ...]
    cascades: tuple[str, ...]
    charset: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def place(self) -> tuple[str, str]:
        return self.database, self.name

    @property
    def quoted_name(self) -> str:
        return f"{quote_name(self.database)}.{quote_name(self.name)}"

    @cached_property
    def _columns_by_name(self) -> dict[str, MariadbColumn]:
        return {column.name.lower(): column for column in self.columns}

    def find_column(self, name: str) -> MariadbColumn:
        """A column by its name, in MariaDB's way: without regard to case."""
        found = self._columns_by_name.get(name.lower())
        if found is None:
            names = [column.name for column in self.columns]
            raise SchemaError(
                self.source,
                f'table "{self.full_name}" has no column "{name}"',
                hint=suggest_names(name, names),
            )
        return found

    def has_column(self, name: str) -> bool:
        return name.lower() in self._columns_by_name

    def require_kept_column(self, name: str) -> tuple[str, MariadbKind]:
        """The column's own name and kind; a SchemaError if it cannot be kept."""
        column = self.find_column(name)
        if isinstance(column.kind, ColumnRefusal):
            raise SchemaError(
                self.source,
                f'table "{self.full_name}": column "{column.name}" cannot be kept exactly',
                detail=column.kind.reason,
                hint=column.kind.hint,
            )
        return column.name, column.kind

    def index_prefix_of(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The longest start of an index that consists of these columns."""
        wanted = set(columns)
        best: tuple[str, ...] = ()
        for index in self.indexes:
            length = next(
                (i for i, name in enumerate(index.columns) if name not in wanted),
                len(index.columns),
            )
            best = max(best, index.columns[:length], key=len)
        return best

    @property
    def strict_key(self) -> tuple[str, ...]:
        """The columns of a key that no two rows share and that cannot be NULL; the primary key
        if it is one."""
        found = [index for index in self.indexes if index.unique and self._is_strict(index)]
        found.sort(key=lambda index: (index.name != "PRIMARY", len(index.columns), index.columns))
        return found[0].columns if found else ()

    @property
    def exact_key(self) -> tuple[str, ...]:
        """The strict key, if all of its columns can be kept."""
        columns = [self.find_column(name) for name in self.strict_key]
        refused = any(isinstance(column.kind, ColumnRefusal) for column in columns)
        return () if refused else self.strict_key

    def _is_strict(self, index: MariadbIndex) -> bool:
        columns = [self.find_column(name) for name in index.columns]
        return index.whole and not any(column.nullable for column in columns)

    def refusal_error(self) -> SchemaError | None:
        """Why the table cannot be captured, with the way out; None if it can."""
        reason: tuple[str, str] | None = None
        if self.type == "VIEW":
            reason = ("is a view, whose changes are not logged", "use the tables that it reads")
        elif self.type != "BASE TABLE":
            reason = (
                f"is a table of the type {self.type.lower()}, which cannot be captured",
                f"ALTER TABLE {self.quoted_name} DROP SYSTEM VERSIONING"
                if self.type == "SYSTEM VERSIONED"
                else "use an ordinary table",
            )
        elif self.engine.lower() != "innodb":
            reason = (
                f"has the engine {self.engine}, which ignores snapshots",
                f"ALTER TABLE {self.quoted_name} ENGINE=InnoDB",
            )
        elif self.cascades:
            reason = (
                "is changed by a foreign key itself, which the binlog does not show "
                f"({', '.join(self.cascades)})",
                "; ".join(self._recreate_statement(name) for name in self.cascades)
                + "; and let the application or a trigger on the parent do what the key did",
            )
        if reason is None:
            return None
        return SchemaError(self.source, f'"{self.full_name}" {reason[0]}', hint=reason[1])

    def _recreate_statement(self, constraint: str) -> str:
        name = quote_name(constraint.partition(" ")[0])
        return (
            f"ALTER TABLE {self.quoted_name} DROP FOREIGN KEY {name}, ADD CONSTRAINT {name}"
            " FOREIGN KEY (...) REFERENCES ... ON DELETE RESTRICT ON UPDATE RESTRICT"
        )


def read_table_of_handle(
    connection: Connection, source: str, database: str, handle: str
) -> MariadbTable:
    """The table that a handle is the name of, now; `orders#2` is called `orders`, unless there is
    a table with just that name."""
    try:
        return read_table(connection, source, database, handle)
    except SchemaError:
        if name_of_handle(handle) == handle:
            raise
        return read_table(connection, source, database, name_of_handle(handle))


def read_table(connection: Connection, source: str, database: str, table: str) -> MariadbTable:
    """The shape of a table now; a SchemaError with the nearest names if there is none."""
    place, _, rest = table.partition(".")
    schema, name = (place, rest) if rest else (database, table)
    query = (
        "SELECT table_schema, table_name, engine, table_type, table_collation"
        " FROM information_schema.tables"
        " WHERE table_schema = %s AND table_name = %s"
    )
    found = fetch_texts(connection, query, (schema, name))
    if not found:
        raise SchemaError(
            source, f'there is no table "{table}"', hint=_nearest_tables(connection, schema, name)
        )
    schema, name, engine, kind, collation = found[0]
    return MariadbTable(
        source,
        schema,
        name,
        engine,
        kind,
        _read_columns(connection, schema, name),
        _read_indexes(connection, schema, name),
        _read_cascades(connection, schema, name),
        collation.split("_")[0],
    )


def has_folded_names(connection: Connection) -> bool:
    """Whether upper and lower case are the same in the names of tables, at this server."""
    return fetch_texts(connection, "SELECT @@lower_case_table_names")[0][0] != "0"


def _read_columns(connection: Connection, schema: str, table: str) -> tuple[MariadbColumn, ...]:
    rows = fetch_texts(
        connection,
        "SELECT c.column_name, c.column_type, c.character_set_name, c.collation_name,"
        " c.is_nullable, s.maxlen, c.is_generated FROM information_schema.columns AS c"
        " LEFT JOIN information_schema.character_sets AS s"
        " ON s.character_set_name = c.character_set_name"
        " WHERE c.table_schema = %s AND c.table_name = %s ORDER BY c.ordinal_position",
        (schema, table),
    )
    charsets = {charset for _, _, charset, _, _, width, _ in rows if charset and width == "1"}
    characters = {
        charset: characters_of(connection, charset) for charset in sorted(charsets - {"ascii"})
    }
    found = []
    for name, declared_type, charset, collation, nullable, _, generated in rows:
        declared = DeclaredType(declared_type, charset, collation, characters.get(charset, ""))
        kind = kind_of(declared)
        found.append(MariadbColumn(name, declared, kind, nullable == "YES", generated == "ALWAYS"))
    return tuple(found)


def characters_of(connection: Connection, charset: str) -> str:
    """The characters that a one-byte character set has for the bytes 0 to 255, as the server
    itself converts them; "" for any other character set."""
    query = "SELECT maxlen FROM information_schema.character_sets WHERE character_set_name = %s"
    if fetch_texts(connection, query, (charset,)) != [("1",)] or not charset.isalnum():
        return ""
    query = f"SELECT CONVERT(_{charset} X'{_EVERY_BYTE}' USING utf8mb4)"
    return fetch_texts(connection, query)[0][0]


def _read_indexes(connection: Connection, schema: str, table: str) -> tuple[MariadbIndex, ...]:
    rows = fetch_texts(
        connection,
        "SELECT index_name, column_name, non_unique, sub_part FROM information_schema.statistics"
        " WHERE table_schema = %s AND table_name = %s AND index_type = 'BTREE'"
        " ORDER BY index_name, seq_in_index",
        (schema, table),
    )
    names = dict.fromkeys(name for name, *_ in rows)
    found = []
    for name in names:
        parts = [row for row in rows if row[0] == name]
        columns = tuple(column for _, column, _, _ in parts)
        unique = parts[0][2] == "0"
        found.append(MariadbIndex(name, columns, unique, not any(part for *_, part in parts)))
    return tuple(found)


def _read_cascades(connection: Connection, schema: str, table: str) -> tuple[str, ...]:
    """The foreign keys by which InnoDB changes rows of this table by itself."""
    rows = fetch_texts(
        connection,
        "SELECT constraint_name, delete_rule, update_rule"
        " FROM information_schema.referential_constraints"
        " WHERE constraint_schema = %s AND table_name = %s ORDER BY constraint_name",
        (schema, table),
    )
    acting = {"CASCADE", "SET NULL", "SET DEFAULT"}
    return tuple(
        f"{name} ON DELETE {on_delete} ON UPDATE {on_update}"
        for name, on_delete, on_update in rows
        if acting & {on_delete, on_update}
    )


def _nearest_tables(connection: Connection, schema: str, name: str) -> str:
    query = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
    return suggest_names(name, [row[0] for row in fetch_texts(connection, query, (schema,))])
