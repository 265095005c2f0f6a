"""Following and leaving: captures are made, made again and dropped as readers need them.

Before anything is done to a capture, what became of its table is written down (`record_shapes`):
the old triggers know the names that its columns have now, and go. A capture that is made again
begins where the old one ends; where changes may have been missed between them it has a gap, and the
shape says that values were rewritten, so that whoever looks learns of it.

Everything here runs inside the caller's BEGIN IMMEDIATE, so that two projects cannot interfere.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from viewkeeper.errors import SchemaError
from viewkeeper.sources.sqlite.capture import recorded_shapes
from viewkeeper.sources.sqlite.capture.capture_tables import (
    LOG,
    TableCapture,
    active_capture,
    foreign_users,
    is_installed,
    is_needed,
    is_recorded,
    lease_name,
    needed_columns,
    newest_position,
    pending_name,
    read_captures,
    register_reader,
    remove_all,
    set_recorded,
    write_mark,
)
from viewkeeper.sources.sqlite.capture.recorded_shapes import (
    LivingTable,
    SqliteShape,
    capture_on_table,
    form_of,
    observe_table,
    own_triggers,
    refuse_uncapturable,
    shape_of,
)
from viewkeeper.sources.sqlite.capture.trigger_sql import CaptureStatements
from viewkeeper.sources.sqlite.schema import SqliteTable, quote_name
from viewkeeper.sources.sqlite.types import kind_or_refuse
from viewkeeper.sources.tables.shape import TableFate
from viewkeeper.updates.source_protocol import DetachResult


def record_shapes(connection: sqlite3.Connection, source: str, *, mend: bool = False) -> None:
    """Write down what became of all captured tables, and make triggers again where needed.

    All that changed gets one position, after which nothing has been done yet. A GapError where
    changes were lost, unless that is to be mended.
    """
    if is_recorded(connection):
        return
    found = [
        (each, *_observe_capture(connection, source, each, mend))
        for each in _active_captures(connection)
    ]
    marked: int | None = None
    for capture, known, seen in found:
        shape = seen.shape if isinstance(seen, LivingTable) else replace(known, gone=seen)
        if shape != known:
            marked = marked or write_mark(connection)
            recorded_shapes.write_shape(connection, capture.relation, shape, marked)
        if not isinstance(seen, LivingTable):
            drop_capture(connection, capture)
        elif seen.outrun:
            make_capture(connection, capture.relation, seen.table, shape, gap=seen.missed)
    set_recorded(connection)


def _active_captures(connection: sqlite3.Connection) -> list[TableCapture]:
    return [each for each in read_captures(connection) if each.active]


def _observe_capture(
    connection: sqlite3.Connection, source: str, capture: TableCapture, mend: bool
) -> tuple[SqliteShape, LivingTable | TableFate]:
    """The shape that is written down, and what became of it."""
    known = _known_shape(connection, capture.relation)
    found = observe_table(connection, source, capture, known)
    if isinstance(found, LivingTable) and not mend:
        found.require_intact(source)
    return known, found


def follow_for_reader(
    connection: sqlite3.Connection,
    source: str,
    reader: str,
    wanted: Sequence[tuple[SqliteTable, Sequence[str]]],
) -> list[tuple[int, SqliteShape]]:
    """Register the reader and capture what it and all others need.

    What is wanted are tables and columns by their names now; for each, the table's number and
    shape.
    """
    for table, columns in wanted:
        for column in columns:
            kind_or_refuse(source, table, column)
        refuse_uncapturable(connection, source, table)
    found = [(_number_of(connection, table), columns) for table, columns in wanted]
    numbered: dict[int, list[int]] = {}
    for relation, columns in found:
        numbered.setdefault(relation, []).extend(_column_ids(connection, relation, columns))
    register_reader(connection, reader, numbered)
    for (table, _), (relation, _) in zip(wanted, found, strict=True):
        _cover_needed(connection, source, relation, table)
    set_recorded(connection)
    return [(relation, _known_shape(connection, relation)) for relation, _ in found]


def _known_shape(connection: sqlite3.Connection, relation: int) -> SqliteShape:
    shape = recorded_shapes.newest_shape(connection, relation)
    if shape is None:
        raise LookupError("a captured table has no shape")
    return shape


def _column_ids(connection: sqlite3.Connection, relation: int, columns: Sequence[str]) -> list[int]:
    ids = {column.name: column.id for column in _known_shape(connection, relation).columns}
    return [ids[name] for name in columns]


def _number_of(connection: sqlite3.Connection, table: SqliteTable) -> int:
    """The number of a table; a new one, with its first shape, if nobody captures it."""
    capture = capture_on_table(connection, table.name)
    if capture is not None:
        query = "SELECT relation FROM main._viewkeeper_capture WHERE id = ?"
        return int(connection.execute(query, (capture,)).fetchone()[0])
    row = connection.execute("SELECT max(relation) FROM main._viewkeeper_shape").fetchone()
    relation = int(row[0] or 0) + 1
    recorded_shapes.write_shape(
        connection, relation, shape_of(table, {}, None), newest_position(connection)
    )
    return relation


def _cover_needed(
    connection: sqlite3.Connection, source: str, relation: int, table: SqliteTable
) -> None:
    """Make the table's active capture one of exactly what its readers need, now."""
    active, shape = active_capture(connection, relation), _known_shape(connection, relation)
    columns = _captured_columns(connection, shape, relation)
    if active is not None:
        found = observe_table(connection, source, active, shape)
        if not isinstance(found, LivingTable):
            raise LookupError("a captured table is gone, and that was not written down")
        if active.columns == columns and not found.outrun:
            return
        shape = _note_added(connection, relation, shape, active)
    make_capture(connection, relation, table, shape, gap=active is None)


def _captured_columns(
    connection: sqlite3.Connection, shape: SqliteShape, relation: int
) -> tuple[int, ...]:
    wanted = needed_columns(connection, relation)
    return tuple(column.id for column in shape.columns if column.id in wanted)


def _note_added(
    connection: sqlite3.Connection, relation: int, shape: SqliteShape, active: TableCapture
) -> SqliteShape:
    """Columns that were added and are captured from now on: until now they were NULL in all rows,
    or values came into them that no trigger saw."""
    fresh = set(_captured_columns(connection, shape, relation)) - set(active.columns)
    columns = []
    for column in shape.columns:
        if column.id in fresh and column.added and not column.blank:
            query = (
                f"SELECT 1 FROM main.{quote_name(shape.name)} WHERE "
                f"{quote_name(column.name)} NOT NULL"
            )
            if connection.execute(f"{query} LIMIT 1").fetchone() is None:
                column = replace(column, blank=True)
            else:
                column = replace(column, rewritten=column.rewritten + 1)
        columns.append(column)
    noted = replace(shape, columns=tuple(columns))
    if noted != shape:
        recorded_shapes.write_shape(connection, relation, noted, write_mark(connection))
    return noted


def make_capture(
    connection: sqlite3.Connection,
    relation: int,
    table: SqliteTable,
    shape: SqliteShape,
    *,
    gap: bool,
) -> None:
    """Capture what is needed of a table, in place of the capture that it has."""
    for capture in read_captures(connection, relation):
        if capture.active:
            drop_capture(connection, capture)
    columns = _captured_columns(connection, shape, relation)
    cursor = connection.execute(
        "INSERT INTO _viewkeeper_capture (relation, columns, since, gap, active, form)"
        " VALUES (?, ?, ?, ?, 1, '')",
        (relation, json.dumps(columns), newest_position(connection), int(gap)),
    )
    assert cursor.lastrowid is not None, "an insert has a rowid"
    _widen_log(connection, len(columns))
    names = {column.id: column.name for column in shape.columns}
    capturing = CaptureStatements(
        cursor.lastrowid, table, tuple(names[number] for number in columns)
    )
    triggers = capturing.trigger_statements()
    for statement in (*capturing.table_statements(), *triggers.values()):
        connection.execute(statement)
    connection.execute(
        "UPDATE _viewkeeper_capture SET form = ? WHERE id = ?",
        (form_of(triggers), cursor.lastrowid),
    )


def _widen_log(connection: sqlite3.Connection, columns: int) -> None:
    present = (
        connection.execute("SELECT count(*) FROM pragma_table_info(?)", (LOG,)).fetchone()[0] - 4
    )
    for number in range(present, columns):
        connection.execute(f"ALTER TABLE {LOG} ADD COLUMN c{number}")


def drop_capture(connection: sqlite3.Connection, capture: TableCapture) -> None:
    """Take a capture out of force; what it wrote stays."""
    for name in own_triggers(connection, capture.id):
        connection.execute(f"DROP TRIGGER main.{quote_name(name)}")
    connection.execute(f"DROP TABLE IF EXISTS {pending_name(capture.id)}")
    connection.execute("UPDATE _viewkeeper_capture SET active = 0 WHERE id = ?", (capture.id,))


def detach_reader(
    connection: sqlite3.Connection, source: str, reader: str, force: bool
) -> DetachResult:
    """Remove a reader, and everything of Viewkeeper once nobody else follows (or by force)."""
    if not is_installed(connection):
        return DetachResult(False, False)
    removed = connection.execute(
        "DELETE FROM _viewkeeper_reader WHERE reader = ?", (reader,)
    ).rowcount
    prefix = lease_name(reader, "")
    connection.execute(
        "DELETE FROM _viewkeeper_reader WHERE lease_until IS NOT NULL AND substr(reader, 1, ?) = ?",
        (len(prefix), prefix),
    )
    query = "SELECT reader FROM _viewkeeper_reader WHERE lease_until IS NULL ORDER BY reader"
    others = tuple(str(name) for (name,) in connection.execute(query))
    if force or not others:
        if users := foreign_users(connection):
            raise SchemaError(
                source,
                "objects that are not Viewkeeper's use its tables",
                detail=", ".join(users),
                hint="drop or change them, then `viewkeeper detach` again; nothing was removed",
            )
        remove_all(connection)
        return DetachResult(bool(removed), True, others)
    _narrow_captures(connection, source)
    return DetachResult(bool(removed), False, others)


def _narrow_captures(connection: sqlite3.Connection, source: str) -> None:
    """Capture no more than those who stay need."""
    record_shapes(connection, source, mend=True)
    for capture in _active_captures(connection):
        if not is_needed(connection, capture.relation):
            drop_capture(connection, capture)
            continue
        shape = _known_shape(connection, capture.relation)
        found = observe_table(connection, source, capture, shape)
        if isinstance(found, LivingTable):
            _cover_needed(connection, source, capture.relation, found.table)
    set_recorded(connection)
