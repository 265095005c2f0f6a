"""A look at a database that is captured by logical decoding: what was committed since.

It asks the server how far its log is flushed, on the control connection, and reads the stream until
it has passed that. While nothing was written it costs one round trip. Schema changes are in the
stream too: event triggers put them there, or a look does, which compares the catalogue with the
history of shapes (`ddl_watch`).

From time to time a look also keeps house: a slot that would fill the server's disk is dropped, and
one that is idle is let advance.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg

from viewkeeper.sources.postgres.answers.questions import PostgresQuestions
from viewkeeper.sources.postgres.database_description import PostgresDescriber
from viewkeeper.sources.postgres.decoding.capture import ANCHOR
from viewkeeper.sources.postgres.decoding.ddl_watch import emit_shapes, is_watched
from viewkeeper.sources.postgres.decoding.slot import drop_slot, emit_mark, read_slot
from viewkeeper.sources.postgres.decoding.source_stream import SourceStream
from viewkeeper.sources.postgres.errors import format_size, retention_error
from viewkeeper.sources.postgres.shape_steps import schema_changes_of, unexplained_shapes
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.sources.stream.spool import SpooledTransaction
from viewkeeper.updates.source_protocol import LOOK_TRANSACTIONS, Boundary

_HOUSEKEEPING_SECONDS = 5.0
# So much of the log may follow the newest transaction that we know before we put an empty one of
# our own behind it, which the slot can then be advanced to.
IDLE_BYTES = 16 << 20
# So long after a comparison of shapes the next one is made at the earliest, if no event triggers
# report them, and if they do.
_UNWATCHED_SECONDS = 0.2
_WATCHED_SECONDS = 5.0
RETENTION_BYTES = 10 << 30


def retention_of(settings: SourceSettings) -> int:
    """How many bytes of the server's log our slot may keep."""
    return settings.read_size("retention", RETENTION_BYTES)


class DecodingLook:
    """Looks of one source; it remembers what the last ones have compared and written down."""

    def __init__(
        self, stream: SourceStream, describer: PostgresDescriber, questions: PostgresQuestions
    ) -> None:
        self._stream = stream
        self._capture = stream.capture
        self._describer = describer
        self._questions = questions
        self._house_at = 0.0
        self._saved_position = 0
        self._compared_until = 0
        self._compare_at = 0.0

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """What was committed after a position, one boundary per transaction.

        An empty transaction is reported only where nothing else would let the slot advance.
        """
        capture = self._capture
        with self._describer.connections.use_control() as control:
            self._stream.open_stream(control)
            is_read = self._stream.read_flushed(control, after, LOOK_TRANSACTIONS)
            if is_read and self._is_compare_due():
                self.compare_shapes(control)
                self._compared_until = self._stream.flushed
            self._stream.check_known(after)
            self._keep_house(control)
            newest = capture.newest_position
            if newest is not None and newest != self._saved_position:
                capture.save_state(durable=False)
                self._saved_position = newest
            return self._report_boundaries(after)

    def has_passed(self, position: int) -> bool:
        """A transaction lies before the end of its commit, which is flushed when it is reported."""
        return position <= self._stream.flushed

    def _is_compare_due(self) -> bool:
        """Whether something may have changed that the stream does not report."""
        if self._questions.has_suspicion:
            return True
        has_grown = self._stream.flushed != self._compared_until
        return has_grown and time.monotonic() >= self._compare_at

    def compare_shapes(self, control: psycopg.Connection[Any]) -> None:
        """Have the shapes in the stream that the catalogue has by now."""
        shapes = self._capture.shapes
        pause = _WATCHED_SECONDS if shapes.is_watched else _UNWATCHED_SECONDS
        self._compare_at = time.monotonic() + pause
        unexplained = unexplained_shapes(control, shapes.history)
        if unexplained:
            shapes.set_watched(is_watched(control, self._capture.names.derived))
            xid = emit_shapes(control, unexplained, bool(shapes.is_watched))
            if xid is None:
                self._questions.set_suspicion(True)
                return
            self._capture.read_mark(xid)
        self._questions.set_suspicion(False)

    def _report_boundaries(self, after: int) -> tuple[Boundary, ...]:
        ended = self._capture.spool.transactions_after(after, LOOK_TRANSACTIONS)
        # A full report has the empty ones too, so that it is seen to be full.
        is_full = len(ended) >= LOOK_TRANSACTIONS
        steps = self._capture.shapes.history.step_positions()
        boundaries = [self._boundary_of(each, each.position in steps) for each in ended]
        reported = tuple(b for b in boundaries if is_full or b.changes or b.emptied or b.reshaped)
        if not reported and ended and ended[-1].position - after >= IDLE_BYTES:
            return (boundaries[-1],)
        return reported

    def _boundary_of(self, each: SpooledTransaction, is_reshaped: bool) -> Boundary:
        history, handles = self._capture.shapes.history, self._describer.handles
        changes = history.changes_at(each.position) if is_reshaped else []
        return Boundary(
            each.position,
            each.committed_at,
            each.changes,
            tuple(handle for table in each.emptied for handle in handles.handles_of(table)),
            tuple(handle for table in each.keyed for handle in handles.handles_of(table)),
            schema_changes_of(handles, changes, self._describer.connections.search_path),
        )

    def _keep_house(self, control: psycopg.Connection[Any]) -> None:
        """From time to time: watch what the slot keeps, and let it advance over what is not ours.

        A slot that would fill the server's disk is dropped, whatever that costs us.
        """
        capture = self._capture
        if time.monotonic() < self._house_at or capture.is_copy:
            return
        self._house_at = time.monotonic() + _HOUSEKEEPING_SECONDS
        capture.keep_alive()
        slot, source = read_slot(control, capture.names.slot), self._describer.source
        retained = slot.retained if slot else None
        allowed = retention_of(self._describer.connections.server.settings)
        if retained is not None and retained > allowed:
            capture.forget_all()
            drop_slot(control, source, capture.names.slot)
            raise retention_error(source, format_size(retained), format_size(allowed))
        newest = capture.newest_position
        if self._stream.flushed - (capture.floor if newest is None else newest) > IDLE_BYTES:
            capture.read_mark(emit_mark(control, ANCHOR))
