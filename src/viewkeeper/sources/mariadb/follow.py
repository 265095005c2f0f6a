"""Beginning to follow: which table and which columns a handle is to stand for.

A table that is not followed yet is described while we hold it, so that nobody can alter it between
its description and the position from which it counts. A column that a handle stands for already
stays what it is; one that is gone, as a table that is gone, is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from viewkeeper.errors import SchemaError
from viewkeeper.sources.handles import Named, Names
from viewkeeper.sources.mariadb.binlog.log import log_end
from viewkeeper.sources.mariadb.logged_shapes import Shape, ShapedColumn, Shapes, shape_of
from viewkeeper.sources.mariadb.requirements import require_logged
from viewkeeper.sources.mariadb.schema import Table, nearest, read_named, read_table
from viewkeeper.sources.mariadb.server_connection import Connection, Server, execute, texts
from viewkeeper.updates.source_protocol import Tables

ShapesAt = Callable[[int], Shapes]


@dataclass(frozen=True, slots=True)
class Followed:
    """A handle, the shape of its table now, and its columns' identities by the handle's names."""

    handle: str
    shape: Shape
    columns: Mapping[str, str]


def hold(connection: Connection, source: str, database: str, handle: str) -> tuple[Table, int]:
    """A table as it is at a position of the log, exactly."""
    execute(connection, "START TRANSACTION")
    try:
        found = read_named(connection, source, database, handle)
        texts(connection, f"SELECT 1 FROM {found.quoted} LIMIT 1")
        return read_table(connection, source, database, found.full_name), log_end(connection)
    finally:
        execute(connection, "ROLLBACK")


def follow_all(
    connection: Connection,
    server: Server,
    names: Names,
    shapes: Shapes,
    shapes_at: ShapesAt,
    tables: Tables,
    passed_over: Sequence[str] = (),
) -> tuple[list[Followed], Shapes]:
    """What handles are to stand for, and the shapes with those of new tables.

    `shapes` are those of now, `shapes_at` gives them as of a position of the log. `passed_over`
    are handles that stood for something whose fate is not known.
    """
    found = []
    for handle, columns in tables.items():
        try:
            asked = (handle, columns)
            one = _resolve(connection, server, names.get(handle), shapes, shapes_at, asked)
        except SchemaError:
            if handle in passed_over:
                continue
            raise
        if one is not None:
            found.append(one)
            shapes = shapes.with_table(one.shape)
    require_logged(connection, server.source, {one.shape.database for one in found})
    return found, shapes


def _resolve(
    connection: Connection,
    server: Server,
    named: Named | None,
    shapes: Shapes,
    shapes_at: ShapesAt,
    asked: tuple[str, Sequence[str]],
) -> Followed | None:
    """What a handle with some columns is to stand for; None if its table is gone."""
    handle, columns = asked
    source, database = server.source, server.address().database
    if named is not None:
        shape = shapes.get(named.identity)
        own = {name.lower() for name in named.columns}
        columns = [name for name in columns if name.lower() not in own]
        if shape is None:
            return None
        if any(shape.called(name) is None for name in columns):
            table, position = hold(connection, source, database, shape.full_name)
            shape = shapes_at(position).get(shape.id) or shape
            shape = _with_columns(shape, table, columns, position)
        return Followed(handle, shape, _by_name(source, shape, columns))
    table, position = hold(connection, source, database, handle)
    refusal = table.refusal()
    if refusal is not None:
        raise refusal
    for column in columns:
        table.kept(column)
    shape = shapes_at(position).find(*table.place) or shapes.find(*table.place)
    if shape is None:
        shape = shape_of(table, f"{position}-{len(shapes.tables)}", position)
    shape = _with_columns(shape, table, columns, position)
    return Followed(handle, shape, _by_name(source, shape, columns))


def _with_columns(shape: Shape, table: Table, columns: Sequence[str], position: int) -> Shape:
    """A table that only some columns are known of, with more of them, from now on."""
    missing = [table.column(name) for name in columns if shape.called(name) is None]
    if not missing:
        return shape
    added = (
        ShapedColumn(f"{position}-{number}", one.name, one.declared, one.nullable, one.generated)
        for number, one in enumerate(missing)
    )
    return replace(shape, columns=(*shape.columns, *added), since=position)


def _by_name(source: str, shape: Shape, columns: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in columns:
        column = shape.called(name)
        if column is None:
            raise SchemaError(
                source,
                f'table "{shape.full_name}" has no column "{name}"',
                hint=nearest(name, list(shape.names)),
            )
        found[column.name] = column.id
    return found
