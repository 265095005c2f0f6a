"""The shapes that a captured table had, and what changed from one of them to another.

    _viewkeeper_shape      from a position on, the name of a table, its columns and its key

A table keeps its number whatever it is called, and so does each of its columns: those that are
captured by the triggers that SQLite rewrites (`observe`), the others by name. A shape is written
together with a row in the log that says nothing else, so that it has a position of its own; a
schema change is the difference of two shapes, and is the same for whoever looks again. What was
done between two looks belongs to one report, whatever its order was.

A number of a *rewrite* in a column says that values changed and no trigger saw it: what lies before
cannot be asked for.

SQLite rewrites the triggers of a table when the table or a column is renamed, and drops them with
the table. So the table that a capture's triggers sit on is the captured one, whatever it is
called, and the names in them are those that the captured columns have now.

- No trigger, and no table of its name that is older than our side table: it was dropped, or
  another one has taken its place. An older one is the captured table: somebody removed the
  triggers, and changes were lost.
- Triggers on a table that is younger than our side table: it was made again, triggers included, as
  tools do that rebuild a table. Its rows may be any.
- Triggers whose text is not ours but for the names: somebody meddled; changes may be lost.
- A unique key that the triggers do not watch: REPLACE may have deleted rows through it unseen.

Rows of `sqlite_master` have increasing numbers, which VACUUM changes and keeps in their order.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

import pyarrow as pa

from viewkeeper.errors import GapError, SchemaError, reload_hint
from viewkeeper.sources.handles import HandleTarget
from viewkeeper.sources.sqlite.capture.capture_tables import LOG, TableCapture, pending_name
from viewkeeper.sources.sqlite.capture.trigger_sql import (
    CaptureStatements,
    trigger_prefix,
)
from viewkeeper.sources.sqlite.schema import SqliteTable, fold_case, is_before_trigger, read_table
from viewkeeper.sources.sqlite.types import kind_of
from viewkeeper.sources.tables.column_type import ColumnRefusal
from viewkeeper.sources.tables.shape import ShapeColumn, TableFate, TableShape
from viewkeeper.sources.tables.shape_changes import list_shape_changes, report_changes
from viewkeeper.storage.typed_json import read_typed
from viewkeeper.updates.schema_change import SchemaChange


@dataclass(frozen=True, slots=True)
class SqliteShapeColumn:
    """A column by its number. `filled`: rows from before it was added have a value in it.

    `added` is one that the table did not have when it was first captured; `blank` one of those that
    was NULL in all rows when it was captured itself.
    """

    id: int
    name: str
    declared: str
    filled: bool = False
    added: bool = False
    blank: bool = False
    rewritten: int = 0

    @property
    def type(self) -> pa.DataType | None:
        """How its values are kept; None if they cannot be."""
        kind = kind_of(self.declared)
        return None if isinstance(kind, ColumnRefusal) else kind.arrow


@dataclass(frozen=True, slots=True)
class SqliteShape:
    """A table; `next_id` is the number that the next new column gets."""

    name: str
    columns: tuple[SqliteShapeColumn, ...]
    key: tuple[int, ...] = ()
    next_id: int = 1
    gone: TableFate = ""

    def column_numbered(self, number: int) -> SqliteShapeColumn | None:
        return next((column for column in self.columns if column.id == number), None)

    def table_shape(self) -> TableShape:
        """The shape as all kinds have it; a number is a place and an identity."""
        columns = (
            ShapeColumn(str(c.id), str(c.id), c.name, c.type, c.declared, c.filled, c.rewritten)
            for c in self.columns
        )
        return TableShape("", self.name, tuple(columns), tuple(map(str, self.key)), self.gone)

    def as_rewritten(self) -> SqliteShape:
        """The same, its values changed in a way that was not listed."""
        columns = (replace(column, rewritten=column.rewritten + 1) for column in self.columns)
        return replace(self, columns=tuple(columns))


def key_of(table: SqliteTable) -> tuple[str, ...]:
    """The columns, by their names now, of a key that SQLite enforces and that cannot be NULL.

    Rows that it tells apart must be told apart by the values that are kept, so a timestamp, which
    has several spellings, is part of no key.
    """
    kinds = {column.name: kind_of(column.declared) for column in table.columns}
    exact = {n for n, k in kinds.items() if not isinstance(k, ColumnRefusal) and k.one_spelling}
    return next((key for key in table.strict_keys if exact.issuperset(key)), ())


def shape_of(
    table: SqliteTable, numbers: Mapping[str, int], known: SqliteShape | None
) -> SqliteShape:
    """The shape of a table now. `numbers` are columns whose numbers are certain, by their names
    now; the others are those that are known by their names or their places, or new."""
    certain = set(numbers.values())
    before = {c.id: c for c in known.columns} if known else {}
    by_name = _by_place(table, numbers, known)
    by_name |= {c.name: c.id for c in before.values() if c.id not in certain}
    next_id = known.next_id if known else 1
    columns = []
    for column in table.columns:
        number = numbers.get(column.name, by_name.get(column.name))
        if number is None:
            number, next_id = next_id, next_id + 1
        old = before.get(number)
        new = SqliteShapeColumn(
            number, column.name, column.declared, column.is_filled, known is not None
        )
        if old is not None:
            new = replace(old, name=column.name, declared=column.declared)
        columns.append(new)
    ids = {column.name: column.id for column in columns}
    key = tuple(ids[name] for name in key_of(table))
    return SqliteShape(table.name, tuple(columns), key, next_id)


def _by_place(
    table: SqliteTable, numbers: Mapping[str, int], known: SqliteShape | None
) -> dict[str, int]:
    """Columns that nobody follows and that were renamed, as it seems: in the place of one of the
    same type that is not there any more, none being more or fewer."""
    if known is None or len(known.columns) != len(table.columns):
        return {}
    there = {column.name for column in table.columns if column.name not in numbers}
    certain = set(numbers.values())
    return {
        now.name: was.id
        for was, now in zip(known.columns, table.columns, strict=True)
        if was.name not in there and was.id not in certain and was.declared == now.declared
    }


def newest_shape(connection: sqlite3.Connection, relation: int) -> SqliteShape | None:
    return shape_at(connection, relation, None)


def shaped_since(connection: sqlite3.Connection, relation: int) -> int | None:
    """The position from which on a table has its newest shape."""
    query = "SELECT max(seq) FROM main._viewkeeper_shape WHERE relation = ?"
    found: int | None = connection.execute(query, (relation,)).fetchone()[0]
    return found


def shape_at(
    connection: sqlite3.Connection, relation: int, position: int | None
) -> SqliteShape | None:
    """The shape that a table had at a position, or has as far as it is written down."""
    query = (
        "SELECT shape FROM main._viewkeeper_shape WHERE relation = ?1 AND (?2 IS NULL OR seq <= ?2)"
        " ORDER BY seq DESC LIMIT 1"
    )
    row = connection.execute(query, (relation, position)).fetchone()
    return None if row is None else _read_shape(row[0])


@lru_cache(maxsize=1024)
def _read_shape(text: str) -> SqliteShape:
    """A shape that is written down; it is asked for with every lookup, and hardly ever another."""
    return read_typed(SqliteShape, json.loads(text))


def has_shapes_between(connection: sqlite3.Connection, after: int, until: int) -> bool:
    """Whether any shape was written down in a range; mostly there is none."""
    query = "SELECT 1 FROM main._viewkeeper_shape WHERE seq > ? AND seq <= ? LIMIT 1"
    return connection.execute(query, (after, until)).fetchone() is not None


def write_shape(
    connection: sqlite3.Connection, relation: int, shape: SqliteShape, seq: int
) -> None:
    """From a position on, this is the shape; one that was written for it before is replaced."""
    connection.execute(
        "INSERT OR REPLACE INTO _viewkeeper_shape VALUES (?, ?, ?)",
        (relation, seq, json.dumps(asdict(shape))),
    )


def schema_changes(
    handle: str, named: HandleTarget, before: SqliteShape | None, now: SqliteShape | None
) -> Iterator[SchemaChange]:
    """What happened to the table behind a handle and to its columns, by the handle's names."""
    if before is not None and now is not None and not before.gone:
        changes = list_shape_changes(before.table_shape(), now.table_shape())
        yield from report_changes(handle, named, changes, _is_called)


def _is_called(name: str, now: str) -> bool:
    """Whether a handle has this current name; that of a table may have the schema before it."""
    return fold_case(name) in (fold_case(now), fold_case(f"main.{now}"))


_NAME = r'"((?:[^"]|"")*)"'


@dataclass(frozen=True, slots=True)
class LivingTable:
    """The table is there. `intact`: so are all its triggers; `missed`: changes may have gone by
    them all the same; `outrun`: they have to be made again (`triggers`, invariant 4)."""

    table: SqliteTable
    shape: SqliteShape
    intact: bool
    missed: bool
    outrun: bool

    def require_intact(self, source: str) -> None:
        if not self.intact:
            raise GapError(
                source,
                f'table "{self.table.name}" was changed so that its capture is no longer complete',
                detail="triggers of Viewkeeper were removed or changed",
                hint=reload_hint(),
            )


def observe_table(
    connection: sqlite3.Connection, source: str, capture: TableCapture, known: SqliteShape
) -> LivingTable | TableFate:
    """What a captured table is now."""
    triggers = own_triggers(connection, capture.id)
    name = _table_of(connection, capture.id) if triggers else known.name
    made, ours = _made_at(connection, name), _made_at(connection, pending_name(capture.id))
    if made is None:
        return "dropped"
    if ours is not None and made > ours:
        return "replaced"
    try:
        table = read_table(connection, source, name)
        refuse_uncapturable(connection, source, table)
    except SchemaError:
        return "replaced"
    if ours is None or form_of(triggers) != capture.form:
        shape = shape_of(table, {}, known).as_rewritten()
        return LivingTable(table, shape, intact=False, missed=True, outrun=True)
    names = slot_names(triggers[f"{trigger_prefix(capture.id)}insert"])
    shape = shape_of(table, dict(zip(names, capture.columns, strict=True)), known)
    capturing = CaptureStatements(capture.id, table, names)
    outrun = triggers != capturing.trigger_statements() or not _is_youngest(
        connection, capture.id, name
    )
    missed = not capturing.is_watched_by(triggers) and _has_written(connection, capture)
    return LivingTable(table, shape.as_rewritten() if missed else shape, True, missed, outrun)


def _has_written(connection: sqlite3.Connection, capture: TableCapture) -> bool:
    """Whether rows were written since a position at which the known shapes held for certain.

    A look reports nothing before it has written shapes down, so what a reader has acknowledged is
    such a position, and so is that of every shape.
    """
    query = (
        f"SELECT 1 FROM main.{LOG} WHERE capture = ? AND seq > max("
        " coalesce((SELECT max(position) FROM main._viewkeeper_reader), 0),"
        " coalesce((SELECT max(seq) FROM main._viewkeeper_shape), 0)) LIMIT 1"
    )
    return connection.execute(query, (capture.id,)).fetchone() is not None


def own_triggers(connection: sqlite3.Connection, capture: int) -> dict[str, str]:
    query = (
        "SELECT name, sql FROM main.sqlite_master WHERE type = 'trigger' AND substr(name, 1, ?) = ?"
    )
    prefix = trigger_prefix(capture)
    return dict(connection.execute(query, (len(prefix), prefix)).fetchall())


def form_of(triggers: dict[str, str]) -> str:
    """What stays of the text of triggers when names change."""
    texts = (re.sub(_NAME, '""', triggers[name]) for name in sorted(triggers))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def slot_names(trigger: str) -> tuple[str, ...]:
    """The columns that the trigger of inserts logs, by their names now.

    >>> slot_names('... BEGIN INSERT INTO l VALUES (1, NEW."id", NEW."a b"); END')
    ('id', 'a b')
    """
    # The table's name comes before, and may itself have such a word in it.
    before = re.match(r'(?:[^"]|"(?:[^"]|"")*")*? BEGIN ', trigger)
    body = trigger[before.end() :] if before else ""
    return tuple(name.replace('""', '"') for name in re.findall(rf"NEW\.{_NAME}", body))


def capture_on_table(connection: sqlite3.Connection, name: str) -> int | None:
    """The capture whose triggers sit on a table, if any."""
    query = (
        "SELECT id FROM main._viewkeeper_capture WHERE active AND EXISTS (SELECT 1 FROM"
        " main.sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
        " AND name = '_viewkeeper_' || id || '_insert')"
    )
    row = connection.execute(query, (name,)).fetchone()
    return None if row is None else int(row[0])


def _table_of(connection: sqlite3.Connection, capture: int) -> str:
    query = (
        "SELECT tbl_name FROM main.sqlite_master WHERE type = 'trigger' AND substr(name, 1, ?) = ?"
    )
    prefix = trigger_prefix(capture)
    return str(connection.execute(query, (len(prefix), prefix)).fetchone()[0])


def _made_at(connection: sqlite3.Connection, table: str) -> int | None:
    """When a table was made, in the order of all tables; None if there is none."""
    query = "SELECT rowid FROM main.sqlite_master WHERE type = 'table' AND name = ?"
    row = connection.execute(query, (table,)).fetchone()
    return None if row is None else int(row[0])


def _is_youngest(connection: sqlite3.Connection, capture: int, table: str) -> bool:
    query = (
        "SELECT max(rowid) FILTER (WHERE substr(name, 1, ?1) = ?2), max(rowid)"
        " FROM main.sqlite_master WHERE type = 'trigger' AND tbl_name = ?3"
    )
    prefix = trigger_prefix(capture)
    ours, newest = connection.execute(query, (len(prefix), prefix, table)).fetchone()
    return bool(ours == newest)


def refuse_uncapturable(connection: sqlite3.Connection, source: str, table: SqliteTable) -> None:
    if any(not key.parts for key in table.unique_keys):
        raise SchemaError(
            source,
            f'table "{table.name}" has a unique index on an expression alone',
            detail="the rows that REPLACE deletes through it cannot be found",
            hint="put the expression into a generated column and make that unique",
        )
    # The table's own AFTER triggers could stop ours from being run for a row that is written.
    query = "SELECT name, sql FROM main.sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
    for name, sql in connection.execute(query, (table.name,)).fetchall():
        ignores = re.search(r"raise\s*\(\s*ignore", sql, re.IGNORECASE)
        if ignores and not is_before_trigger(sql):
            raise SchemaError(
                source,
                f'table "{table.name}": its trigger "{name}" uses RAISE(IGNORE) after a change',
                detail="that skips every other trigger while the change stays",
                hint="make it a BEFORE trigger, or raise an error that takes the change back",
            )
