"""What became of a captured table: found by our own triggers, which SQLite takes along.

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
import re
import sqlite3
from dataclasses import dataclass

from viewkeeper.errors import GapError, SchemaError, reload_hint
from viewkeeper.sources.sqlite.capture.capture_tables import TableCapture
from viewkeeper.sources.sqlite.capture.recorded_shapes import SqliteShape, shape_of
from viewkeeper.sources.sqlite.capture.trigger_sql import (
    LOG,
    CaptureStatements,
    pending_name,
    trigger_prefix,
)
from viewkeeper.sources.sqlite.schema import SqliteTable, is_before_trigger, read_table
from viewkeeper.sources.tables.shape import TableFate

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
