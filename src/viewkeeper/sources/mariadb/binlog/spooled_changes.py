"""The transactions and the changes of followed tables, from the spool that the stream fills.

A look reads what the binlog has got since the last one, up to what every snapshot from now on
includes, so that no cut is ever behind a position that was reported. Transactions are reported by
the handles of the tables that they changed, and changes come under the handles' names.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa

from viewkeeper.errors import GapError, SchemaError, reload_hint
from viewkeeper.sources.mariadb.binlog.capture import BinlogCapture
from viewkeeper.sources.mariadb.binlog.log import read_newest_position
from viewkeeper.sources.mariadb.binlog.rows import select_columns
from viewkeeper.sources.mariadb.binlog.stream import BinlogStream
from viewkeeper.sources.mariadb.bound_handles import find_first_column, schema_changes_of
from viewkeeper.sources.mariadb.position import file_of, offset_of, spell_place
from viewkeeper.sources.stream.socket_hint import NO_STREAM, SocketHint
from viewkeeper.sources.stream.spool import SpooledTransaction
from viewkeeper.updates.source_protocol import (
    LOOK_SECONDS,
    LOOK_TRANSACTIONS,
    Boundary,
    TableBatches,
    Tables,
)

# The next look goes on where this one stopped.
_LOOK_SECONDS = LOOK_SECONDS
# Changes of others are reported, as an empty transaction, once the log has grown by so much: else
# the files of the binlog that we still ask for would be removed while our tables rest.
_IDLE_BYTES = 16 << 20


class SpooledChanges:
    """What the capture of one source has read, for the maintainer of its project."""

    def __init__(self, capture: BinlogCapture) -> None:
        self._capture = capture
        self._passed = 0
        self._hint = SocketHint()

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """The transactions that changed followed tables.

        While nothing was committed a look costs one short statement. Where only other tables
        were changed, an empty one is reported now and then, so that we do not stay behind.
        """
        capture = self._capture
        with capture.session.use_connection() as connection:
            stream = capture.stream_from(connection, after)
            waiting = stream.waiting_bytes
            end = read_newest_position(connection)
            has_more = end > stream.position
            if end < max(after, stream.position):
                place = spell_place(max(after, stream.position))
                raise GapError(
                    capture.source,
                    f"position {place} lies beyond its binlog, which ends at {spell_place(end)}",
                    detail="its data were restored, or its binlog was reset",
                    hint=reload_hint(),
                )
            if has_more and self._has_room(after):
                capture.advance_stream(stream, end, _LOOK_SECONDS, LOOK_TRANSACTIONS)
            capture.audit_shapes(connection, stream)
            found = capture.spool.transactions_after(after, LOOK_TRANSACTIONS)
            self._passed = (
                found[-1].position if len(found) >= LOOK_TRANSACTIONS else stream.position
            )
            boundaries = [self._make_boundary(stream, one) for one in found]
            # A change of shape that concerns no handle is nothing to report.
            reported = [b for b in boundaries if b.changes or b.emptied or b.reshaped]
            self._hint.note_look(waiting, has_more, bool(reported))
            if reported:
                return tuple(reported)
            if stream.halted is not None:
                if not capture.drop_unread_table(stream):
                    raise stream.halted
                if capture.stream is None:
                    return self.look_for_transactions(after)
            return _idle_boundary(after, stream.position)

    def has_news(self) -> bool | None:
        """Whether the server has sent something since the last look."""
        stream = self._capture.stream
        return self._hint.has_news(NO_STREAM if stream is None else stream.waiting_bytes)

    def has_passed(self, position: int) -> bool:
        return position <= self._passed

    def _make_boundary(self, stream: BinlogStream, one: SpooledTransaction) -> Boundary:
        handles = self._capture.handles
        emptied = tuple(name for table in one.emptied for name in handles.handles_of(table))
        changes = stream.tracker.changes_between(one.position - 1, one.position)
        # Most transactions change no shape, and there are many.
        reshaped = schema_changes_of(changes, handles, self._capture.database) if changes else ()
        return Boundary(one.position, one.committed_at, one.changes, emptied, reshaped=reshaped)

    def _has_room(self, after: int) -> bool:
        waiting = self._capture.spool.transactions_after(after, LOOK_TRANSACTIONS)
        return len(waiting) < LOOK_TRANSACTIONS

    def read_changes(self, tables: Tables, after: int, until: int) -> TableBatches:
        """From the spool; what is not in it any more, or not yet, is read from the log."""
        capture = self._capture
        with capture.session.use_connection() as connection:
            stream = capture.stream_from(connection, after)
            capture.read_to(stream, until)
            columns = {
                handle: self._types_of(stream, handle, asked, until)
                for handle, asked in tables.items()
            }
        for handle, (table, kinds) in columns.items():
            changes = capture.spool.changes_of(table, after, until)
            for batch in select_columns(changes, kinds):
                yield handle, batch

    def _types_of(
        self, stream: BinlogStream, handle: str, columns: Sequence[str], until: int
    ) -> tuple[str, dict[str, tuple[str, pa.DataType]]]:
        """The identity of a handle's table, and of its columns each with the type that it has now,
        or had last."""
        capture, tracker = self._capture, stream.tracker
        target = capture.handles.target_of(handle)
        if target is None:
            raise SchemaError(capture.source, f'table "{handle}" is not followed')
        versions = [
            shapes.tables.get(target.identity)
            for shapes in (
                tracker.shapes,
                tracker.shapes_at(until),
                tracker.shapes_at(capture.start),
            )
        ]
        own = {name.lower(): id for name, id in target.columns.items()}
        found: dict[str, tuple[str, pa.DataType]] = {}
        for name in columns:
            if name.lower() not in own:
                raise SchemaError(
                    capture.source, f'column "{name}" of table "{handle}" is not followed'
                )
            column = find_first_column(own[name.lower()], versions)
            kind = None if column is None else column.kind
            found[name] = (own[name.lower()], pa.null() if kind is None else kind.arrow)
        return target.identity, found


def _idle_boundary(after: int, reached: int) -> tuple[Boundary, ...]:
    grown = offset_of(reached - after) > _IDLE_BYTES
    if reached > after and (grown or file_of(reached) > file_of(after)):
        return (Boundary(reached, time.time(), 0),)
    return ()
