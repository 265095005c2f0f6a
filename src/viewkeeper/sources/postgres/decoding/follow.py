"""Following tables by logical decoding: publication, slot and event triggers; and ending it.

A table must have the old values of every followed column in the stream (REPLICA IDENTITY), or the
user lets its rows be deleted by key; else it is refused with the statement that mends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from viewkeeper.errors import GapError, SchemaError
from viewkeeper.sources.postgres.database_description import FollowableTables, PostgresDescriber
from viewkeeper.sources.postgres.decoding.capture import ANCHOR
from viewkeeper.sources.postgres.decoding.ddl_watch import create_watch, remove_watch
from viewkeeper.sources.postgres.decoding.slot import (
    FollowedTable,
    SlotNames,
    create_slot,
    drop_publication,
    drop_slot,
    emit_mark,
    ensure_publication,
    flushed_position,
    forget_state,
    pass_gate,
    read_state,
)
from viewkeeper.sources.postgres.decoding.source_stream import DecodingLook, SourceStream
from viewkeeper.sources.postgres.schema import PostgresTable
from viewkeeper.sources.postgres.shape_query import read_shapes
from viewkeeper.sources.postgres.types import PgConnection
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import DetachResult, Tables


class SlotFollower:
    """Begins, extends and ends what one source follows."""

    def __init__(
        self, stream: SourceStream, describer: PostgresDescriber, look: DecodingLook
    ) -> None:
        self._stream = stream
        self._capture = stream.capture
        self._describer = describer
        self._look = look

    @property
    def names(self) -> SlotNames:
        return self._capture.names

    def follow_tables(self, tables: Tables) -> int:
        """Capture these columns too, besides what is followed already.

        Makes or extends publication and slot, then waits at the gate, so that every snapshot opened
        later has what the stream lacks. Nothing happens if everything is captured already.
        """
        capture, describer = self._capture, self._describer
        with describer.connections.use_control() as control:
            followable = describer.followable_tables(control, tables)
            self._extend_followed({}, followable)
            listed = [table for table, _ in followable.values()]
            is_made = is_changed = False
            if listed:
                publication = capture.names.publication
                is_made, is_changed = ensure_publication(
                    control, describer.source, publication, listed
                )
            is_new = self._begin_stream(control)
            capture.shapes.set_watched(create_watch(control, capture.names.derived))
            if is_made:
                capture.own_publication()
            wanted = self._extend_followed(capture.followed.tables, followable)
            living = read_shapes(control, [table.oid for table in listed])
            capture.shapes.begin_tables(living.values())
            is_same = wanted == capture.followed.tables and capture.newest_position is not None
            if is_new or is_changed or not is_same:
                self._pass_gate(control, wanted)
            else:
                capture.read_stream(flushed_position(control))
            self._look.compare_shapes(control)
            describer.add_handles(followable)
            assert capture.newest_position is not None, "the gate has left an anchor"
            return capture.newest_position

    def _extend_followed(
        self, followed: Mapping[str, FollowedTable], tables: FollowableTables
    ) -> dict[str, FollowedTable]:
        by_key = deleted_by_key(self._describer.connections.server.settings)
        return extend_followed(self._describer.source, followed, tables, by_key)

    def _begin_stream(self, control: PgConnection) -> bool:
        """Open the stream; whether its slot had to be made, because nothing can go on from it."""
        capture, source = self._capture, self._describer.source
        try:
            self._stream.open_stream(control)
            capture.read_stream(flushed_position(control))
            return False
        except GapError:
            capture.forget_all()
            drop_slot(control, source, capture.names.slot)
            create_slot(control, source, capture.names.slot)
            capture.open_stream(control)
            return True

    def _pass_gate(self, control: PgConnection, wanted: Mapping[str, FollowedTable]) -> None:
        """Change what is kept of the stream; `slot` says what is waited for and why."""
        capture, server = self._capture, self._describer.connections.server
        # To the end of a transaction, so that none is kept with two shapes.
        capture.read_mark(emit_mark(control, ANCHOR))
        capture.keep_tables(wanted)
        pass_gate(control, server.source, emit_mark(control, ANCHOR), server.statement_seconds)
        capture.read_mark(emit_mark(control, ANCHOR))
        capture.save_state(durable=True)

    def find_obstacles(self, table: PostgresTable, columns: Sequence[str]) -> list[SchemaError]:
        """Why a table cannot be followed with these columns, by its handle's names."""
        handle = table.asked
        seen = table.named_by_handle(handle, self._describer.column_numbers(handle))
        found = self._describer.find_obstacles(seen, columns)
        known = seen.column_numbers
        numbers = {column: known[column] for column in columns if column in known}
        try:
            self._extend_followed({}, {handle: (table, numbers)})
        except SchemaError as error:
            found.append(error)
        return found

    def detach_source(self, force: bool = False) -> DetachResult:
        """Drop our slot, and the publication if we made it and nobody else can be using it."""
        capture, describer = self._capture, self._describer
        with describer.connections.use_control() as control:
            remembered = read_state(capture.files)
            capture.close_stream()
            is_dropped = drop_slot(control, describer.source, capture.names.slot)
            capture.forget_all()
            left = remove_watch(control, capture.names.derived)
            describer.handles.forget_all()
            capture.shapes.set_watched(None)
            is_made = remembered is not None and remembered.made_publication
            is_shared = capture.names.publication != capture.names.derived
            if is_made or not is_shared:
                left += drop_publication(control, capture.names.publication, is_shared)
            forget_state(capture.files)
            return DetachResult(is_dropped, capture_dropped=is_dropped, left=left)


def deleted_by_key(settings: SourceSettings) -> Sequence[str]:
    """The tables whose rows the user lets be deleted by key."""
    by_key = settings.options.get("delete_by_key", ())
    assert isinstance(by_key, list | tuple)
    return by_key


def extend_followed(
    source: str,
    followed: Mapping[str, FollowedTable],
    tables: FollowableTables,
    by_key: Sequence[str],
) -> dict[str, FollowedTable]:
    """What is followed, and these columns, by their numbers, of these tables too.

    A table is kept once, under its oid, however many handles it is asked for by. A SchemaError if
    the old values of one of the columns would not be in the stream.
    """
    result = dict(followed)
    for table, columns in tables.values():
        name = str(table.oid)
        before = result.get(name)
        key = _key_of_deletes(source, table, by_key)
        wanted = [*(before.columns if before else ()), *columns.values(), *key]
        numbers = tuple(dict.fromkeys(wanted))
        if not key:
            _check_identity(source, table, [c.name for c in table.columns if c.number in numbers])
        leaves = tuple(part.oid for part in table.parts) if table.partitioned else ()
        result[name] = FollowedTable(table.oid, numbers, key, leaves)
    return result


def _key_of_deletes(source: str, table: PostgresTable, by_key: Sequence[str]) -> tuple[int, ...]:
    """The key by which rows of a table are deleted; () if old rows come as a whole."""
    names = {table.asked, name_of_handle(table.asked), table.name, f"{table.schema}.{table.name}"}
    if not names.intersection(by_key):
        return ()
    if not table.primary_key or any(part.identity not in "df" for part in table.parts):
        raise SchemaError(
            source,
            f'table "{name_of_handle(table.asked)}" cannot go by key',
            detail="delete_by_key needs a primary key that is the table's replica identity",
            hint=f"ALTER TABLE {table.quoted_name} REPLICA IDENTITY DEFAULT;",
        )
    return tuple(table.column_numbers[name] for name in table.primary_key)


def _check_identity(source: str, table: PostgresTable, columns: Sequence[str]) -> None:
    """A SchemaError if the old values of one of these columns would not be in the stream."""
    lacking = table.parts_without_old(columns)
    if lacking:
        mend = " ".join(f"ALTER TABLE {part.name} REPLICA IDENTITY FULL;" for part in lacking)
        more = (
            f", or list it in delete_by_key, which needs its key {', '.join(table.primary_key)}"
            if table.primary_key
            else ""
        )
        raise SchemaError(
            source,
            f'table "{name_of_handle(table.asked)}" does not tell the old values of changed rows',
            detail="its replica identity does not cover every column that the views read",
            hint=f"{mend} -- as its owner{more}",
        )
