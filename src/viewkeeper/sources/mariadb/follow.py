"""Following tables: the table and the columns that a handle is to mean, and what is kept of them.

A table that is not followed yet is described while we hold it, so that nobody can alter it between
its description and the position from which it counts. A column that a handle means already
stays what it is; one that is gone, as a table that is gone, is passed over.

What a server must be like is checked before anything is followed, and said with the statement that
mends it. The same checks, one by one, are part of what `doctor` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from viewkeeper.errors import SchemaError, suggest_names
from viewkeeper.sources.handles import SourceHandles
from viewkeeper.sources.mariadb.binlog.capture import BinlogCapture
from viewkeeper.sources.mariadb.binlog.log import make_server_id, read_log_end, read_newest_position
from viewkeeper.sources.mariadb.bound_handles import wanted_columns_of
from viewkeeper.sources.mariadb.logged_shapes import (
    LoggedShape,
    LoggedShapes,
    ShapedColumn,
    shape_of,
)
from viewkeeper.sources.mariadb.schema import (
    MariadbTable,
    has_folded_names,
    read_table,
    read_table_of_handle,
)
from viewkeeper.sources.mariadb.server_connection import (
    Connection,
    MariadbServer,
    fetch_pairs,
    fetch_texts,
    run_statement,
)
from viewkeeper.sources.mariadb.state import MariadbState, read_file_time, read_gtid_at
from viewkeeper.updates.source_protocol import Tables

_OLDEST = (10, 5)
_SETTINGS = {
    "log_bin": (
        "ON",
        "-- start the server with log_bin=binlog and server_id=1 in its configuration",
    ),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = ROW;"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = FULL;"),
    "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata = FULL;"),
}


def read_variables(connection: Connection) -> dict[str, str]:
    """The server's global variables, by their names."""
    return fetch_pairs(connection, "SHOW GLOBAL VARIABLES")


def version_of(text: str) -> tuple[int, int]:
    """
    >>> version_of("10.11.19-MariaDB-log")
    (10, 11)
    """
    major, minor, *_ = text.split(".")
    return int(major), int(minor.partition("-")[0])


def find_version_shortcoming(known: Mapping[str, str]) -> tuple[str, str] | None:
    """What is wrong with the version, and what mends it."""
    version = known["version"]
    if "mariadb" in version.lower() and version_of(version) >= _OLDEST:
        return None
    return (
        f"version {version} is not MariaDB 10.5 or newer",
        "update the server; MySQL has no snapshots that know their place in the binlog",
    )


def find_shortcomings(known: Mapping[str, str]) -> dict[str, tuple[str, str] | None]:
    """By setting: what is wrong with it and what mends it, or None."""
    found: dict[str, tuple[str, str] | None] = {"version": find_version_shortcoming(known)}
    for name, (wanted, mend) in _SETTINGS.items():
        value = known.get(name, "")
        is_wrong = value.upper() != wanted
        found[name] = (
            (f"{name} is {value or 'not known'}, not {wanted}", mend) if is_wrong else None
        )
    if known.get("binlog_storage_engine"):
        found["log_bin"] = (
            f"its binlog is kept by {known['binlog_storage_engine']}, whose places are not known",
            "remove binlog_storage_engine from the server's configuration and restart it",
        )
    return found


def find_unlogged(connection: Connection, databases: Iterable[str]) -> list[str]:
    """Those of some databases whose changes the server does not log."""
    status = fetch_texts(connection, "SHOW MASTER STATUS")
    if not status:
        return []
    only, never = (set(filter(None, names.split(","))) for names in status[0][2:4])
    return sorted(name for name in set(databases) if name in never or (only and name not in only))


def require_followable(connection: Connection, source: str) -> None:
    """A SchemaError that names everything that must be changed about the server."""
    wrong = [found for found in find_shortcomings(read_variables(connection)).values() if found]
    if wrong:
        raise SchemaError(
            source,
            "its server cannot be followed as it is set up",
            detail="; ".join(text for text, _ in wrong),
            hint=" ".join(mend for _, mend in wrong)
            + " -- write it into the server's configuration too, and end the sessions that are "
            "older than that",
        )


def require_logged(connection: Connection, source: str, databases: Iterable[str]) -> None:
    missing = find_unlogged(connection, databases)
    if missing:
        raise SchemaError(
            source,
            f'changes of the database "{missing[0]}" are not logged',
            detail="binlog_do_db or binlog_ignore_db of the server leaves it out",
            hint="remove these options from the server's configuration and restart it",
        )


ShapesAt = Callable[[int], LoggedShapes]


@dataclass(frozen=True, slots=True)
class TableFollower:
    """Lets a capture follow tables, besides what it follows already."""

    capture: BinlogCapture

    def follow_tables(self, tables: Tables) -> int:
        """Capture these columns too; the position of the server before it was begun.

        Nothing is changed at the server. What was read ahead is read again if columns are new,
        because it was read without them. If the server is not the one that was followed, it is
        from now on.
        """
        capture = self.capture
        with capture.session.use_connection() as connection:
            capture.note_readers(tables)
            require_followable(connection, capture.source)
            position = read_newest_position(connection)
            state = capture.state_of_same_server(connection)
            if state is not None:
                self._extend_following(connection, state, tables)
            else:
                self._begin_following(connection, position, tables)
            return position

    def _begin_following(self, connection: Connection, position: int, tables: Tables) -> None:
        """Follow a server that was not followed, or is not the one that was."""
        capture = self.capture
        born = read_file_time(capture.server, make_server_id(capture.reader), position)
        nothing = LoggedShapes({}, has_folded_names(connection))
        resolver = HandleResolver(
            connection, capture.server, SourceHandles(None), lambda _: nothing
        )
        found, shapes = resolver.resolve_all(tables, nothing, list(capture.handles))
        gtid = read_gtid_at(connection, position)
        capture.write_state(MariadbState(position, gtid, born, shapes))
        capture.handles.forget_all()
        self._add_targets(found)
        capture.forget_stream()

    def _extend_following(
        self, connection: Connection, state: MariadbState, tables: Tables
    ) -> None:
        """Follow more, besides what is followed."""
        capture = self.capture
        now = capture.shapes_now(connection)
        shapes_at = partial(capture.shapes_at, connection, state)
        resolver = HandleResolver(connection, capture.server, capture.handles, shapes_at)
        found, after = resolver.resolve_all(tables, now)
        added = [shape for id, shape in after.tables.items() if now.tables.get(id) != shape]
        before = wanted_columns_of(capture.handles)
        if added:
            shapes = state.shapes
            for shape in added:
                shapes = shapes.with_table(shape)
            capture.write_state(replace(state, shapes=shapes))
        self._add_targets(found)
        if wanted_columns_of(capture.handles) != before:
            capture.forget_stream()

    def _add_targets(self, found: Sequence[FollowedHandle]) -> None:
        """Only when the tables are remembered: a handle must not mean what is not known."""
        for one in found:
            self.capture.handles.add_target(one.handle, one.shape.id, one.columns)


@dataclass(frozen=True, slots=True)
class FollowedHandle:
    """A handle, the shape of its table now, and its columns' identities by the handle's names."""

    handle: str
    shape: LoggedShape
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HandleResolver:
    """Finds what handles are to stand for; `shapes_at` are those as of a position of the log."""

    connection: Connection
    server: MariadbServer
    names: SourceHandles
    shapes_at: ShapesAt

    def resolve_all(
        self, tables: Tables, shapes: LoggedShapes, passed_over: Sequence[str] = ()
    ) -> tuple[list[FollowedHandle], LoggedShapes]:
        """What handles are to stand for, and the current shapes with those of new tables.

        `passed_over` are handles that stood for something whose fate is not known.
        """
        found = []
        for handle, columns in tables.items():
            try:
                one = self._resolve_handle(handle, columns, shapes)
            except SchemaError:
                if handle in passed_over:
                    continue
                raise
            if one is not None:
                found.append(one)
                shapes = shapes.with_table(one.shape)
        databases = {one.shape.database for one in found}
        require_logged(self.connection, self.server.source, databases)
        return found, shapes

    def _resolve_handle(
        self, handle: str, columns: Sequence[str], shapes: LoggedShapes
    ) -> FollowedHandle | None:
        """What a handle with some columns is to stand for; None if its table is gone."""
        source, named = self.server.source, self.names.target_of(handle)
        if named is not None:
            shape = shapes.shape_by_id(named.identity)
            own = {name.lower() for name in named.columns}
            columns = [name for name in columns if name.lower() not in own]
            if shape is None:
                return None
            if any(shape.column_named(name) is None for name in columns):
                table, position = self._hold_table(shape.full_name)
                shape = self.shapes_at(position).shape_by_id(shape.id) or shape
                shape = _with_columns(shape, table, columns, position)
            return FollowedHandle(handle, shape, _column_ids_of(source, shape, columns))
        table, position = self._hold_table(handle)
        refusal = table.refusal_error()
        if refusal is not None:
            raise refusal
        for column in columns:
            table.require_kept_column(column)
        known = self.shapes_at(position).find_shape(*table.place)
        shape = known or shapes.find_shape(*table.place)
        if shape is None:
            shape = shape_of(table, f"{position}-{len(shapes.tables)}", position)
        shape = _with_columns(shape, table, columns, position)
        return FollowedHandle(handle, shape, _column_ids_of(source, shape, columns))

    def _hold_table(self, handle: str) -> tuple[MariadbTable, int]:
        """A table as it is at a position of the log, exactly."""
        place = (self.connection, self.server.source, self.server.parse_address().database)
        run_statement(self.connection, "START TRANSACTION")
        try:
            found = read_table_of_handle(*place, handle)
            fetch_texts(self.connection, f"SELECT 1 FROM {found.quoted_name} LIMIT 1")
            return read_table(*place, found.full_name), read_log_end(self.connection)
        finally:
            run_statement(self.connection, "ROLLBACK")


def _with_columns(
    shape: LoggedShape, table: MariadbTable, columns: Sequence[str], position: int
) -> LoggedShape:
    """A table that only some columns are known of, with more of them, from now on."""
    missing = [table.find_column(name) for name in columns if shape.column_named(name) is None]
    if not missing:
        return shape
    added = (
        ShapedColumn(f"{position}-{number}", one.name, one.declared, one.nullable, one.generated)
        for number, one in enumerate(missing)
    )
    return replace(shape, columns=(*shape.columns, *added), since=position)


def _column_ids_of(source: str, shape: LoggedShape, columns: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in columns:
        column = shape.column_named(name)
        if column is None:
            raise SchemaError(
                source,
                f'table "{shape.full_name}" has no column "{name}"',
                hint=suggest_names(name, [column.name for column in shape.columns]),
            )
        found[column.name] = column.id
    return found
