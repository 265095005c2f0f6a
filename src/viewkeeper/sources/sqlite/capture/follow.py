"""Following and leaving: captures are made, made again and dropped as readers need them.

Before anything is done to a capture, what became of its table is written down (`record`): the old
triggers know the names that its columns have now, and go. A capture that is made again begins
where the old one ends; where changes may have been missed between them it has a gap, and the shape
says that values were rewritten, so that whoever looks learns of it.

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
    Capture,
    active_capture,
    captures,
    foreign_users,
    is_installed,
    is_needed,
    is_recorded,
    lease_name,
    mark,
    needed,
    position,
    register,
    remove_all,
    set_recorded,
)
from viewkeeper.sources.sqlite.capture.captured_table import (
    Alive,
    captured_as,
    form_of,
    observe,
    own_triggers,
    refuse_uncapturable,
)
from viewkeeper.sources.sqlite.capture.recorded_shapes import Shape, shape_of
from viewkeeper.sources.sqlite.capture.trigger_sql import LOG, Capturing, pending_name
from viewkeeper.sources.sqlite.rows import kind_or_refuse
from viewkeeper.sources.sqlite.schema import Table, quote
from viewkeeper.updates.source_protocol import Detached


def record(connection: sqlite3.Connection, source: str, *, mend: bool = False) -> None:
    """Write down what became of all captured tables, and make triggers again where needed.

    All that changed gets one position, after which nothing has been done yet. A GapError where
    changes were lost, unless that is to be mended.
    """
    if is_recorded(connection):
        return
    found = [(each, *_seen(connection, source, each, mend)) for each in _active(connection)]
    marked: int | None = None
    for capture, known, seen in found:
        shape = seen.shape if isinstance(seen, Alive) else replace(known, gone=seen)
        if shape != known:
            marked = marked or mark(connection)
            recorded_shapes.write(connection, capture.relation, shape, marked)
        if not isinstance(seen, Alive):
            drop(connection, capture)
        elif seen.outrun:
            make(connection, capture.relation, seen.table, shape, gap=seen.missed)
    set_recorded(connection)


def _active(connection: sqlite3.Connection) -> list[Capture]:
    return [each for each in captures(connection) if each.active]


def _seen(
    connection: sqlite3.Connection, source: str, capture: Capture, mend: bool
) -> tuple[Shape, Alive | recorded_shapes.Gone]:
    """The shape that is written down, and what became of it."""
    known = _shape(connection, capture.relation)
    found = observe(connection, source, capture, known)
    if isinstance(found, Alive) and not mend:
        found.require_intact(source)
    return known, found


def follow(
    connection: sqlite3.Connection,
    source: str,
    reader: str,
    wanted: Sequence[tuple[Table, Sequence[str]]],
) -> list[tuple[int, Shape]]:
    """Register the reader and capture what it and all others need.

    What is wanted are tables and columns by their names now; for each, the table's number and
    shape.
    """
    for table, columns in wanted:
        for column in columns:
            kind_or_refuse(source, table, column)
        refuse_uncapturable(connection, source, table)
    found = [(_number(connection, table), columns) for table, columns in wanted]
    numbered: dict[int, list[int]] = {}
    for relation, columns in found:
        numbered.setdefault(relation, []).extend(_ids(connection, relation, columns))
    register(connection, reader, numbered)
    for (table, _), (relation, _) in zip(wanted, found, strict=True):
        _cover(connection, source, relation, table)
    set_recorded(connection)
    return [(relation, _shape(connection, relation)) for relation, _ in found]


def _shape(connection: sqlite3.Connection, relation: int) -> Shape:
    shape = recorded_shapes.newest(connection, relation)
    if shape is None:
        raise LookupError("a captured table has no shape")
    return shape


def _ids(connection: sqlite3.Connection, relation: int, columns: Sequence[str]) -> list[int]:
    ids = {column.name: column.id for column in _shape(connection, relation).columns}
    return [ids[name] for name in columns]


def _number(connection: sqlite3.Connection, table: Table) -> int:
    """The number of a table; a new one, with its first shape, if nobody captures it."""
    capture = captured_as(connection, table.name)
    if capture is not None:
        query = "SELECT relation FROM main._viewkeeper_capture WHERE id = ?"
        return int(connection.execute(query, (capture,)).fetchone()[0])
    row = connection.execute("SELECT max(relation) FROM main._viewkeeper_shape").fetchone()
    relation = int(row[0] or 0) + 1
    recorded_shapes.write(connection, relation, shape_of(table, {}, None), position(connection))
    return relation


def _cover(connection: sqlite3.Connection, source: str, relation: int, table: Table) -> None:
    """Make the table's active capture one of exactly what its readers need, now."""
    active, shape = active_capture(connection, relation), _shape(connection, relation)
    columns = _captured(connection, shape, relation)
    if active is not None:
        found = observe(connection, source, active, shape)
        if not isinstance(found, Alive):
            raise LookupError("a captured table is gone, and that was not written down")
        if active.columns == columns and not found.outrun:
            return
        shape = _noted(connection, relation, shape, active)
    make(connection, relation, table, shape, gap=active is None)


def _captured(connection: sqlite3.Connection, shape: Shape, relation: int) -> tuple[int, ...]:
    wanted = needed(connection, relation)
    return tuple(column.id for column in shape.columns if column.id in wanted)


def _noted(connection: sqlite3.Connection, relation: int, shape: Shape, active: Capture) -> Shape:
    """Columns that were added and are captured from now on: until now they were NULL in all rows,
    or values came into them that no trigger saw."""
    fresh = set(_captured(connection, shape, relation)) - set(active.columns)
    columns = []
    for column in shape.columns:
        if column.id in fresh and column.added and not column.blank:
            query = f"SELECT 1 FROM main.{quote(shape.name)} WHERE {quote(column.name)} NOT NULL"
            if connection.execute(f"{query} LIMIT 1").fetchone() is None:
                column = replace(column, blank=True)
            else:
                column = replace(column, rewritten=column.rewritten + 1)
        columns.append(column)
    noted = replace(shape, columns=tuple(columns))
    if noted != shape:
        recorded_shapes.write(connection, relation, noted, mark(connection))
    return noted


def make(
    connection: sqlite3.Connection, relation: int, table: Table, shape: Shape, *, gap: bool
) -> None:
    """Capture what is needed of a table, in place of the capture that it has."""
    for capture in captures(connection, relation):
        if capture.active:
            drop(connection, capture)
    columns = _captured(connection, shape, relation)
    cursor = connection.execute(
        "INSERT INTO _viewkeeper_capture (relation, columns, since, gap, active, form)"
        " VALUES (?, ?, ?, ?, 1, '')",
        (relation, json.dumps(columns), position(connection), int(gap)),
    )
    assert cursor.lastrowid is not None, "an insert has a rowid"
    _widen(connection, len(columns))
    names = {column.id: column.name for column in shape.columns}
    capturing = Capturing(cursor.lastrowid, table, tuple(names[number] for number in columns))
    triggers = capturing.triggers()
    for statement in (*capturing.tables(), *triggers.values()):
        connection.execute(statement)
    connection.execute(
        "UPDATE _viewkeeper_capture SET form = ? WHERE id = ?",
        (form_of(triggers), cursor.lastrowid),
    )


def _widen(connection: sqlite3.Connection, columns: int) -> None:
    present = (
        connection.execute("SELECT count(*) FROM pragma_table_info(?)", (LOG,)).fetchone()[0] - 4
    )
    for number in range(present, columns):
        connection.execute(f"ALTER TABLE {LOG} ADD COLUMN c{number}")


def drop(connection: sqlite3.Connection, capture: Capture) -> None:
    """Take a capture out of force; what it wrote stays."""
    for name in own_triggers(connection, capture.id):
        connection.execute(f"DROP TRIGGER main.{quote(name)}")
    connection.execute(f"DROP TABLE IF EXISTS {pending_name(capture.id)}")
    connection.execute("UPDATE _viewkeeper_capture SET active = 0 WHERE id = ?", (capture.id,))


def detach(connection: sqlite3.Connection, source: str, reader: str, force: bool) -> Detached:
    """Remove a reader, and everything of Viewkeeper once nobody else follows (or by force)."""
    if not is_installed(connection):
        return Detached(False, False)
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
        return Detached(bool(removed), True, others)
    _narrow(connection, source)
    return Detached(bool(removed), False, others)


def _narrow(connection: sqlite3.Connection, source: str) -> None:
    """Capture no more than those who stay need."""
    record(connection, source, mend=True)
    for capture in _active(connection):
        if not is_needed(connection, capture.relation):
            drop(connection, capture)
            continue
        shape = _shape(connection, capture.relation)
        found = observe(connection, source, capture, shape)
        if isinstance(found, Alive):
            _cover(connection, source, capture.relation, found.table)
    set_recorded(connection)
