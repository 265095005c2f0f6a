"""The shape of a SQLite table: columns, what identifies a row, and its unique keys and indexes.

A row is identified by its rowid, under whichever of its names no column has taken, or by the
primary key of a WITHOUT ROWID table. Unique keys matter to capture, because REPLACE deletes the
rows that collide on one of them; other indexes matter to lookups. Every part carries its own
collation: `UNIQUE (a COLLATE NOCASE)` collides where the column itself would not.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from viewkeeper.errors import SchemaError, suggest_names

OWN_PREFIX = "_viewkeeper_"
# What SQLite itself brings; any other collation exists only in the application's connections.
_BUILT_IN = frozenset({"BINARY", "NOCASE", "RTRIM"})
_ACTIONS = """
SELECT 1 FROM main.sqlite_master AS m, pragma_foreign_key_list(m.name, 'main') AS f
 WHERE m.type = 'table' AND f."table" = ? COLLATE NOCASE
   AND f.on_delete IN ('CASCADE', 'SET NULL', 'SET DEFAULT') LIMIT 1
"""
_ROWID_NAMES = ("rowid", "_rowid_", "oid")


@dataclass(frozen=True, slots=True)
class SqliteColumn:
    """A column as declared; `default` is SQL text."""

    name: str
    declared: str
    not_null: bool
    default: str | None
    generated: bool = False

    @property
    def is_filled(self) -> bool:
        """Whether rows have a value in it that nobody gave them."""
        default = (self.default or "NULL").strip("() ").upper()
        return self.generated or default != "NULL"


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One column of a key, with the collation that the key compares it by."""

    column: str
    collation: str


@dataclass(frozen=True, slots=True)
class SqliteIndex:
    """An index: its plain columns, and whether it covers only some rows or values of expressions.

    `leading` counts the columns before the first expression: only those can be searched for.
    """

    parts: tuple[KeyPart, ...]
    unique: bool
    partial: bool
    leading: int
    primary: bool


@dataclass(frozen=True, slots=True)
class SqliteTable:
    """A table that can be captured. `rowid` names the rowid, or is None without one.

    `nests` says that, before a statement has written its row, a foreign key's action or a trigger
    of the application may write other rows of the table. `called` are names that a handle has for
    columns, each with the name that the column has now.
    """

    name: str
    columns: tuple[SqliteColumn, ...]
    identity: tuple[KeyPart, ...]
    rowid: str | None
    keys: tuple[SqliteIndex, ...]
    nests: bool
    called: Mapping[str, str] = field(default_factory=dict)

    @property
    def current_names(self) -> dict[str, str]:
        """The name that each column has now, by the one that it is asked for by, in their order."""
        by_handle = {now: name for name, now in self.called.items()}
        taken = {fold_case(name) for name in self.called}
        free = {c.name for c in self.columns if fold_case(c.name) not in taken}
        return {
            by_handle.get(c.name, c.name): c.name
            for c in self.columns
            if c.name in by_handle or c.name in free
        }

    @property
    def unique_keys(self) -> tuple[SqliteIndex, ...]:
        """The keys, besides the identity, on which an insert can collide."""
        return tuple(key for key in self.keys if key.unique and key.parts != self.identity)

    @property
    def strict_keys(self) -> tuple[tuple[str, ...], ...]:
        """The columns of every key that no two rows share and that is never NULL, the best first.

        That is the primary key, then the shortest. SQLite lets NULL into the primary key of a table
        with rowids, and into any UNIQUE, as often as it comes. A collation other than BINARY calls
        values equal that we tell apart, so its keys are left out.
        """
        places = {column.name: i for i, column in enumerate(self.columns)}
        full = {column.name for column in self.columns if column.not_null}
        found = []
        for key in self.keys:
            names = tuple(dict.fromkeys(part.column for part in key.parts))
            exact = all(part.collation == "BINARY" for part in key.parts)
            if key.unique and not key.partial and exact and full.issuperset(names):
                found.append((not key.primary, len(names), [places[n] for n in names], names))
        rowid = [(self.rowid,)] if self.rowid in places else []
        return tuple(rowid + [names for *_, names in sorted(found)])

    def column_named(self, source: str, name: str) -> SqliteColumn:
        """A column by its name, in SQLite's way: without regard to ASCII case."""
        names = self.current_names
        now = next((now for each, now in names.items() if fold_case(each) == fold_case(name)), None)
        for column in self.columns:
            if column.name == now:
                return column
        raise SchemaError(
            source,
            f'table "{self.name}" has no column "{name}"',
            hint=suggest_names(name, list(names)),
        )


def quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def affinity_of(declared: str) -> str:
    """The affinity that SQLite derives from a declared type (datatype3.html, section 3.1)."""
    text = declared.upper()
    if "INT" in text:
        return "INTEGER"
    if any(word in text for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in text or not text:
        return "BLOB"
    if any(word in text for word in ("REAL", "FLOA", "DOUB")):
        return "REAL"
    return "NUMERIC"


def fold_case(name: str) -> str:
    if name.isascii():
        return name.lower()
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


def resolve_name(connection: sqlite3.Connection, source: str, table: str) -> str:
    """The table's name as the database spells it, given in any case, with or without `main`."""
    rows = connection.execute("SELECT name, type, sql FROM main.sqlite_master").fetchall()
    kinds = {name: (kind, sql or "") for name, kind, sql in rows if kind in ("table", "view")}
    spelled: dict[str, str] = {fold_case(name): name for name in kinds}
    prefix, _, rest = table.partition(".")
    found = spelled.get(fold_case(table)) or (
        spelled.get(fold_case(rest)) if fold_case(prefix) == "main" else None
    )
    if found is None or found.startswith(OWN_PREFIX):
        known = [name for name in kinds if not name.startswith((OWN_PREFIX, "sqlite_"))]
        raise SchemaError(source, f'there is no table "{table}"', hint=suggest_names(table, known))
    _refuse_kind(source, found, *kinds[found])
    return found


def _refuse_kind(source: str, name: str, kind: str, sql: str) -> None:
    if kind == "view":
        raise SchemaError(
            source,
            f'"{name}" is a view, and changes of a view cannot be captured',
            hint="use the tables that it reads",
        )
    if sql.upper().startswith("CREATE VIRTUAL") or name.startswith("sqlite_"):
        raise SchemaError(
            source,
            f'"{name}" is a virtual or internal table, and SQLite allows no triggers on it',
            hint="use an ordinary table",
        )


def read_table(connection: sqlite3.Connection, source: str, table: str) -> SqliteTable:
    """The shape of a table now, read inside the caller's transaction if there is one."""
    name = resolve_name(connection, source, table)
    query = 'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?, ?)'
    rows = connection.execute(query, (name, "main")).fetchall()
    without_rowid = bool(
        connection.execute(
            "SELECT wr FROM pragma_table_list(?) WHERE schema = 'main'", (name,)
        ).fetchone()[0]
    )
    columns = tuple(
        SqliteColumn(
            each, _declared_type(kind), bool(full or (without_rowid and pk)), default, hidden > 1
        )
        for each, kind, full, default, pk, hidden in rows
    )
    keys, primary = _read_indexes(connection, name)
    if without_rowid:
        assert primary is not None, "a WITHOUT ROWID table has a primary key index"
        return SqliteTable(
            name, columns, primary.parts, None, keys, _has_nested_writes(connection, name)
        )
    alias = next((row[0] for row in rows if row[4]), None) if primary is None else None
    rowid = alias or _rowid_name(source, name, columns)
    identity = (KeyPart(rowid, "BINARY"),)
    return SqliteTable(name, columns, identity, rowid, keys, _has_nested_writes(connection, name))


def _has_nested_writes(connection: sqlite3.Connection, table: str) -> bool:
    query = "SELECT 1 FROM pragma_foreign_key_list(?, ?) LIMIT 1"
    if connection.execute(query, (table, "main")).fetchone():
        return True
    query = "SELECT name, sql FROM main.sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
    rows = connection.execute(query, (table,)).fetchall()
    theirs = [sql for name, sql in rows if not name.startswith(OWN_PREFIX)]
    # A row that is replaced may be deleted with its triggers, and with foreign-key actions.
    return (
        any(is_before_trigger(sql) or _is_delete_trigger(sql) for sql in theirs)
        or connection.execute(_ACTIONS, (table,)).fetchone() is not None
    )


def is_before_trigger(trigger: str) -> bool:
    return bool(re.search(r"\bbefore\s+(insert|update|delete)\b", trigger, re.IGNORECASE))


def _is_delete_trigger(trigger: str) -> bool:
    return bool(re.search(r"\bdelete\s+on\b", trigger, re.IGNORECASE))


def _declared_type(text: str) -> str:
    return text.upper().replace("GENERATED ALWAYS", "").strip()


def _rowid_name(source: str, table: str, columns: tuple[SqliteColumn, ...]) -> str:
    taken = {fold_case(column.name) for column in columns}
    for name in _ROWID_NAMES:
        if name not in taken:
            return name
    raise SchemaError(
        source,
        f'table "{table}" has columns rowid, _rowid_ and oid, so its rows cannot be told apart',
        hint="rename one of these columns",
    )


def _read_indexes(
    connection: sqlite3.Connection, table: str
) -> tuple[tuple[SqliteIndex, ...], SqliteIndex | None]:
    """All indexes of a table, and the one of its primary key if that is not the rowid itself."""
    keys: list[SqliteIndex] = []
    primary = None
    query = 'SELECT name, "unique", origin, partial FROM pragma_index_list(?, ?)'
    for index, unique, origin, partial in connection.execute(query, (table, "main")).fetchall():
        parts = connection.execute(
            "SELECT cid, name, coll FROM pragma_index_xinfo(?, ?) WHERE key ORDER BY seqno",
            (index, "main"),
        ).fetchall()
        plain = tuple(KeyPart(name, coll) for cid, name, coll in parts if cid >= 0)
        leading = next((i for i, part in enumerate(parts) if part[0] < 0), len(parts))
        covers_some = bool(partial) or leading < len(parts)
        key = SqliteIndex(plain, bool(unique), covers_some, leading, origin == "pk")
        keys.append(key)
        primary = key if key.primary else primary
    return tuple(keys), primary


def prefix_of(table: SqliteTable, columns: Sequence[str]) -> tuple[KeyPart, ...]:
    """The longest start of an index, or the rowid, that consists of these columns."""
    wanted = set(columns)
    best: tuple[KeyPart, ...] = ()
    for parts in _searchable_indexes(table):
        length = next((i for i, p in enumerate(parts) if not _is_usable(p, wanted)), len(parts))
        if length > len(best):
            best = parts[:length]
    return best


def _searchable_indexes(table: SqliteTable) -> Iterator[tuple[KeyPart, ...]]:
    yield table.identity
    for key in table.keys:
        if not key.partial:
            yield key.parts


def _is_usable(part: KeyPart, wanted: set[str]) -> bool:
    return part.column in wanted and part.collation in _BUILT_IN
