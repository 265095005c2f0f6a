"""Reading a followed PostgreSQL database: changes from the spool, answers in shared snapshots.

Both need the stream to have been read far enough; a stream that is not open, or was ended by the
server, is opened when it is needed, and goes on where it was left.

Whether a question can be answered is decided by shapes: the one that its snapshot shows, and those
that the stream has told up to a watermark behind that snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from viewkeeper.errors import BarrierError, GapError, reload_hint
from viewkeeper.sources.postgres.answers.lookup import key_columns, key_conditions
from viewkeeper.sources.postgres.answers.questions import PostgresQuestions
from viewkeeper.sources.postgres.answers.rows import PostgresLayout, layout_of
from viewkeeper.sources.postgres.answers.snapshot import PostgresOpener, query_of
from viewkeeper.sources.postgres.answers.snapshot_export import (
    check_partitions,
    make_opener,
    read_past_watermark,
    seen_by,
    wait_for_visibility,
)
from viewkeeper.sources.postgres.decoding.capture import SlotCapture
from viewkeeper.sources.postgres.decoding.partial_rows import (
    Key,
    complete_rows,
    find_incomplete,
    later_event,
)
from viewkeeper.sources.postgres.decoding.slot import publication_name, read_slot, slot_name
from viewkeeper.sources.postgres.decoding.slot_copy import CopyKeeper, copy_name
from viewkeeper.sources.postgres.decoding.spooled_columns import select_spooled
from viewkeeper.sources.postgres.decoding.visibility import VisibleTransactions
from viewkeeper.sources.postgres.errors import hold_lost_error
from viewkeeper.sources.postgres.types import convert_text
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import Tables

Texts = Mapping[str, tuple[int, int]]


class SpoolReader(PostgresQuestions):
    """What can be read of a database whose changes are captured by logical decoding."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        super().__init__(settings, reader)
        slot, publication = slot_name(settings, reader), publication_name(settings, reader)
        self._capture = SlotCapture(self._server, slot, publication, self.home)
        self._flushed = 0
        self._keeper: CopyKeeper | None = None

    def _open_stream(self, control: psycopg.Connection[Any]) -> None:
        """Have a stream that answers; one that the server ended meanwhile is opened again."""
        capture = self._capture
        if capture.is_copy:
            self._open_copy(control)
        elif not capture.is_open or not capture.is_alive():
            self._flushed = 0
            capture.open_stream(control)

    def _begin_copy(self, control: psycopg.Connection[Any]) -> None:
        """Read a copy of the slot from now on, beside whoever has the slot itself."""
        self._flushed = 0
        self._capture.open_stream(control, copy=copy_name(control, self._capture.slot))
        self._keeper = CopyKeeper(self._read_copy)

    def _open_copy(self, control: psycopg.Connection[Any]) -> None:
        """Have a copy of the slot that answers; never the slot itself, which is somebody else's.

        A copy that was lost can be made again as long as nobody has advanced the slot.
        """
        capture, held = self._capture, self._capture.floor
        if not capture.is_alive():
            self._flushed = 0
            slot = read_slot(control, capture.slot)
            if slot is not None and (slot.confirmed or 0) > held:
                raise hold_lost_error(self.name)
            capture.open_stream(control, copy=copy_name(control, capture.slot))
            if capture.floor > held:
                raise hold_lost_error(self.name)

    def _read_copy(self) -> None:
        with self._use_control() as control:
            if self._capture.is_copy:
                self._open_copy(control)
                self._capture.keep_alive()
                self._capture.read_stream(flushed_now(control))

    def _end_copy(self) -> None:
        if self._keeper is not None:
            self._keeper.stop_reading()
        self._keeper = None
        self._capture.close()

    def _read_until(self, position: int) -> None:
        """Have read the stream up to a position that was reported earlier."""
        capture = self._capture
        with self._use_control() as control:
            self._open_stream(control)
            newest = capture.newest.position if capture.newest else 0
            if newest < position:
                read_past_watermark(control, capture)

    def _check_known(self, after: int) -> None:
        """A GapError if what was committed after the position cannot be known any more.

        It need not be that of a transaction in our stream: another reader may have reported it. A
        server that was restored is noticed when the stream is opened.
        """
        capture = self._capture
        if after < capture.floor:
            raise GapError(
                self.name,
                f"position {after} is not one of this server's stream, which begins at "
                f"{capture.floor}",
                detail="its slot is a new one, or it was restored from a backup",
                hint=reload_hint(),
            )

    def _close_connections(self) -> None:
        super()._close_connections()
        self._capture.close_stream()

    def close(self) -> None:
        with self._lock:
            super().close()
            self._end_copy()

    def read_changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Streamed from the spool; `_position` is that of the commit."""
        self._read_until(until)
        for handle, columns in tables.items():
            with self._lock:
                kept = str(self._oid_of(handle))
                self._check_askable(handle, columns, after, self._capture.shapes.history)
                shape, texts = self._seen_layout(handle, columns)
                self._check_readable(kept, after, until)
                key = self._capture.state.tables[kept].key
            if key:
                for batch in self._read_completed(handle, key, shape, texts, after, until):
                    yield handle, batch
                continue
            for batch in self._read_spool(kept, texts, after, until):
                yield handle, shape.from_spool(batch)

    def _seen_layout(self, handle: str, columns: Sequence[str]) -> tuple[PostgresLayout, Texts]:
        """How columns are read from the spool, in the types that the stream has told last."""
        numbers = self._known_numbers(handle, columns)
        shape = self._capture.shapes.latest_shape(self._oid_of(handle))
        found = {name: shape.by_number[number] for name, number in numbers.items()}
        kinds = tuple(self._kind_of_column(handle, name, column) for name, column in found.items())
        texts = {name: (column.number, column.type) for name, column in found.items()}
        return PostgresLayout(self.name, handle, tuple(columns), kinds), texts

    def _read_spool(
        self, kept: str, texts: Texts, after: int, until: int
    ) -> Iterator[pa.RecordBatch]:
        """Batch by batch under the lock, because others read the stream meanwhile."""
        batches = self._capture.spool.changes_of(kept, after, until)
        while True:
            with self._lock:
                batch = next(batches, None)
            if batch is None:
                return
            yield select_spooled(batch, texts)

    def _check_readable(self, kept: str, after: int, until: int) -> None:
        for position, troubles in sorted(self._capture.troubles.items()):
            if after < position <= until and kept in troubles:
                raise troubles[kept]

    def _read_completed(
        self,
        handle: str,
        key: tuple[int, ...],
        shape: PostgresLayout,
        texts: Texts,
        after: int,
        until: int,
    ) -> Iterator[pa.RecordBatch]:
        """The changes of a table that goes by key; `complete` says what they may lack."""
        kept, known = (
            str(self._oid_of(handle)),
            self._capture.shapes.latest_shape(self._oid_of(handle)),
        )
        called = {number: name for name, number in self._column_numbers(handle).items()}
        by_number = known.by_number
        names = tuple(called.get(number, by_number[number].name) for number in key)
        keyed = {
            name: (number, by_number[number].type) for name, number in zip(names, key, strict=True)
        }

        def batches() -> Iterator[pa.RecordBatch]:
            return self._read_spool(kept, {**texts, **keyed}, after, until)

        rows = find_incomplete(batches, names, shape.names)
        values: dict[Key, dict[str, object]] = {}
        if rows.rows:
            values = self._read_rows(handle, keyed, shape, rows.keys, until)
        return complete_rows(batches, shape, rows, values)

    def _read_rows(
        self, handle: str, keyed: Texts, shape: PostgresLayout, keys: Sequence[Key], until: int
    ) -> dict[Key, dict[str, object]]:
        """The rows with these keys as of a position, if no key was changed after it."""
        capture, key = self._capture, tuple(keyed)
        end = time.monotonic() + self._server.statement_seconds
        with self._use_coordinator() as coordinator:
            while True:
                locked = self._lock_tables(coordinator, [handle])
                with self._use_control() as control:
                    self._open_stream(control)
                    read_past_watermark(control, capture)
                    seen = seen_by(
                        capture, VisibleTransactions.parse_snapshot(self.name, locked.snapshot)
                    )
                    self._check_shown(handle, shape.names, until, capture.shapes.history, locked)
                if all(each.position > until for each in seen.lacking):
                    break
                with self._server.translate_errors():
                    coordinator.execute("ROLLBACK")
                wait_for_visibility(self.name, end)
            table = locked.tables[handle]
            whole = layout_of(self.name, table, [*key, *shape.names])
            arrays = [
                convert_text(
                    pa.array([row[index] for row in keys], pa.binary()), whole.kinds[index]
                )
                for index in range(len(key))
            ]
            asked = pa.table(dict(zip(key, arrays, strict=True)))
            columns = key_columns(self.name, table, key, [False] * len(key))
            holes = {each.position for each in seen.lacking}
            later = self._read_spool(str(table.oid), keyed, until, 1 << 62)
            changed = later_event(later, key, keys, holes)
            if changed is not None:
                raise BarrierError(self.name, handle, changed)
            found: dict[Key, dict[str, object]] = {}
            with self._server.translate_errors():
                for condition in key_conditions(columns, asked):
                    query = query_of(table, whole, condition, native=False)
                    result = coordinator.execute(query.encode()).pgresult
                    assert result is not None
                    for number, row in enumerate(whole.from_result(result).to_pylist()):
                        spelled = tuple(result.get_value(number, i) for i in range(len(key)))
                        found[spelled] = row
        return found

    @contextmanager
    def prepare_snapshots(self, after: int, tables: Tables) -> Iterator[PostgresOpener]:
        """One snapshot, exported; it can be imported until the context ends."""
        with self._use_coordinator() as coordinator:
            opener = self._export_snapshot(coordinator, after, tables)
            try:
                yield opener
            finally:
                for told in opener.told.values():
                    if isinstance(told.changes, Path):
                        told.changes.unlink(missing_ok=True)

    def _export_snapshot(
        self, coordinator: psycopg.Connection[Any], after: int, tables: Tables
    ) -> PostgresOpener:
        """Export a snapshot and read the stream past everything that it can contain."""
        end = time.monotonic() + self._server.statement_seconds
        while True:
            locked = self._lock_tables(coordinator, tables)
            with self._use_control() as control:
                self._open_stream(control)
                read_past_watermark(control, self._capture)
                self._check_known(after)
                history = self._capture.shapes.history
                for handle, columns in tables.items():
                    self._check_shown(handle, columns, after, history, locked)
                    table = locked.tables[handle]
                    check_partitions(coordinator, self.name, self._capture, table)
                opener = make_opener(self._server, self._capture, locked, after, tables)
            if opener is not None:
                return opener
            with self._server.translate_errors():
                coordinator.execute("ROLLBACK")
            wait_for_visibility(self.name, end)


def flushed_now(control: psycopg.Connection[Any]) -> int:
    row = control.execute("SELECT (pg_current_wal_flush_lsn() - '0/0')::int8").fetchone()
    assert row is not None
    return int(row[0])
