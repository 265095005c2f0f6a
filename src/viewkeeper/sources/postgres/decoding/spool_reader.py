"""Reading a followed PostgreSQL database: changes from the spool, answers in shared snapshots.

The changes of a range are in the spool once the stream was read so far. Where rows are deleted by
key, values that did not come are read from the table.

For answers, the coordinator's transaction locks the tables and exports a snapshot (`questions`).
Then the stream is read past a watermark that was committed after the snapshot: nothing that the
snapshot sees can come later. From there on everything is computed from the spool: the cut, and the
changes that answers need. A transaction is in the snapshot if its id is visible there, wherever its
commit lies in the log. So the snapshot contains everything up to the newest visible position,
except for those below it that are not visible. The tail of a table has its changes after the asked
position and, from the whole spool, those that the snapshot lacks.

A column is spooled under its number and the type that it had (`spooled_name`). Text that was
written in an earlier type reads the same in a wider one, with one exception: a `real` has fewer
digits than the `double precision` that it becomes.

In a table whose rows are deleted by key, a large value that an update left as it was comes with
neither the old row, which is not logged, nor the new one. If the row was changed again in the range
that is read, nobody needs the value: it stays NULL. If not, the row is read by its key, in a
snapshot that has every event of that key up to there and none after. If there is one after, a
BarrierError names its position: read as one range, the value is not needed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import BarrierError
from viewkeeper.sources.postgres.answers.lookup import (
    PostgresLayout,
    key_columns,
    key_conditions,
    layout_of,
)
from viewkeeper.sources.postgres.answers.questions import PostgresQuestions
from viewkeeper.sources.postgres.answers.snapshot import (
    PostgresOpener,
    SharedSnapshot,
    TableTail,
    VisibleTransactions,
    query_of,
    wait_for_visibility,
)
from viewkeeper.sources.postgres.database_description import PostgresDescriber
from viewkeeper.sources.postgres.decoding.capture import SlotCapture
from viewkeeper.sources.postgres.decoding.pgoutput import ABSENT
from viewkeeper.sources.postgres.decoding.source_stream import SourceStream
from viewkeeper.sources.postgres.errors import partition_gone_error
from viewkeeper.sources.postgres.schema import PostgresTable
from viewkeeper.sources.postgres.types import PgConnection, convert_text
from viewkeeper.sources.stream.spool import SpooledTransaction
from viewkeeper.storage import disk
from viewkeeper.updates.source_protocol import COUNT, POSITION, TableBatches, Tables

_REAL = 700


def select_spooled(batch: pa.RecordBatch, columns: Mapping[str, tuple[int, int]]) -> pa.RecordBatch:
    """The columns with these numbers by their names, as text in these types; NULL for those that
    were not there yet."""
    held: dict[int, tuple[str, int]] = {}
    for name in batch.schema.names:
        number, mark, kind = name.partition(":")
        if mark:
            held[int(number)] = (name, int(kind))
    arrays: list[Any] = []
    for wanted, now in columns.values():
        if wanted not in held:
            arrays.append(pa.nulls(batch.num_rows, pa.binary()))
            continue
        name, then = held[wanted]
        values = batch.column(name)
        arrays.append(_widen_real(values) if then == _REAL != now else values)
    arrays += [batch.column(COUNT), batch.column(POSITION)]
    return pa.RecordBatch.from_arrays(arrays, [*columns, COUNT, POSITION])


def _widen_real(values: Any) -> Any:
    """The text of a real as that of the double precision with the same value."""
    doubles = values.cast(pa.string()).cast(pa.float32()).cast(pa.float64())
    texts = [None if value is None else repr(value).encode() for value in doubles.to_pylist()]
    return pa.array(texts, pa.binary())


Key = tuple[bytes | None, ...]
Batches = Callable[[], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class IncompleteRows:
    """Rows that lack a value and are the last of their key: by their number in the range."""

    rows: Mapping[int, Key]

    @property
    def keys(self) -> list[Key]:
        return list(dict.fromkeys(self.rows.values()))


def without_absent(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """The batch with NULL for what did not come."""
    for name in names:
        column = batch.column(name)
        absent = pc.equal(column, pa.scalar(ABSENT, pa.binary()))
        if pc.any(absent, min_count=0).as_py():
            cleared = pc.if_else(absent, pa.scalar(None, pa.binary()), column)
            batch = batch.set_column(batch.schema.get_field_index(name), name, cleared)
    return batch


def find_incomplete(batches: Batches, key: Sequence[str], names: Sequence[str]) -> IncompleteRows:
    """The rows of a range that have to be completed."""
    lacking = {
        row for batch in batches() for row, lacks in _keys_lacking(batch, key, names) if lacks
    }
    if not lacking:
        return IncompleteRows({})
    last: dict[Key, tuple[int, bool]] = {}
    number = 0
    for batch in batches():
        for row, lacks in _keys_lacking(batch, key, names):
            if row in lacking:
                last[row] = (number, lacks)
            number += 1
    return IncompleteRows({at: row for row, (at, lacks) in last.items() if lacks})


def _keys_lacking(
    batch: pa.RecordBatch, key: Sequence[str], names: Sequence[str]
) -> Iterator[tuple[Key, bool]]:
    """Per row its key, and whether it lacks one of the named values."""
    lacks: Any = pa.repeat(pa.scalar(False), batch.num_rows)
    for name in names:
        absent: Any = pc.equal(batch.column(name), pa.scalar(ABSENT, pa.binary()))
        lacks = pc.or_(lacks, absent.fill_null(False))
    columns = [batch.column(name).to_pylist() for name in key]
    return zip(zip(*columns, strict=True), lacks.to_pylist(), strict=True)


def later_event(
    batches: Iterable[pa.RecordBatch],
    key: Sequence[str],
    keys: Sequence[Key],
    holes: Collection[int],
) -> int | None:
    """The last position at which one of these keys was changed, leaving out what is not visible."""
    asked, last = set(keys), None
    for batch in batches:
        positions = batch.column(POSITION).to_pylist()
        for (row, _), position in zip(_keys_lacking(batch, key, ()), positions, strict=True):
            if row in asked and position not in holes:
                last = position
    return last


def complete_rows(
    batches: Batches,
    shape: PostgresLayout,
    rows: IncompleteRows,
    values: Mapping[Key, Mapping[str, object]],
) -> Iterator[pa.RecordBatch]:
    """The batches typed, with the values that were read put in."""
    number = 0
    for batch in batches():
        typed = shape.from_spool(without_absent(batch, shape.names))
        inside = {at - number: k for at, k in rows.rows.items() if 0 <= at - number < len(batch)}
        for index, name in enumerate(shape.names):
            places = {
                at: values[key][name]
                for at, key in inside.items()
                if batch.column(name)[at].as_py() == ABSENT
            }
            if places:
                column = typed.column(name).to_pylist()
                for at, value in places.items():
                    column[at] = value
                typed = typed.set_column(index, name, pa.array(column, shape.kinds[index].arrow))
        number += len(batch)
        yield typed.select([*shape.names, COUNT, POSITION])


Texts = Mapping[str, tuple[int, int]]
INLINE_BYTES = 64 << 20
"""Larger tails go to files instead of into the opener."""
_LEAVES = "SELECT relid::oid::int8 FROM pg_partition_tree(%s::oid::regclass) WHERE isleaf"
_END = 1 << 62


class SpoolReader:
    """Reads changes and prepares snapshots of a source that is captured by logical decoding."""

    def __init__(
        self, stream: SourceStream, describer: PostgresDescriber, questions: PostgresQuestions
    ) -> None:
        self._stream = stream
        self._capture = stream.capture
        self._describer = describer
        self._questions = questions
        self._connections = describer.connections
        self._server = describer.connections.server
        self._source = describer.source

    def read_changes(self, tables: Tables, after: int, until: int) -> TableBatches:
        """Streamed from the spool; `_position` is that of the commit."""
        self._stream.read_until(until)
        for handle, columns in tables.items():
            with self._connections.lock:
                table = str(self._describer.oid_of(handle))
                self._questions.check_askable(handle, columns, after, self._capture.shapes.history)
                shape, texts = self._seen_layout(handle, columns)
                self._check_readable(table, after, until)
                key = self._capture.followed.tables[table].key
            if key:
                for batch in self._read_completed(handle, key, shape, texts, after, until):
                    yield handle, batch
                continue
            for batch in self._read_spool(table, texts, after, until):
                yield handle, shape.from_spool(batch)

    def _seen_layout(self, handle: str, columns: Sequence[str]) -> tuple[PostgresLayout, Texts]:
        """How columns are read from the spool, in the types that they had last in the stream."""
        numbers = self._questions.known_numbers(handle, columns)
        shape = self._capture.shapes.history.latest_shape(self._describer.oid_of(handle))
        known = {name: shape.by_number[number] for name, number in numbers.items()}
        kinds = tuple(
            self._questions.kind_of_column(handle, name, column) for name, column in known.items()
        )
        texts = {name: (column.number, column.type) for name, column in known.items()}
        return PostgresLayout(self._source, handle, tuple(columns), kinds), texts

    def _read_spool(
        self, table: str, texts: Texts, after: int, until: int
    ) -> Iterator[pa.RecordBatch]:
        """Batch by batch under the lock, because others read the stream meanwhile."""
        batches = self._capture.spool.changes_of(table, after, until)
        while True:
            with self._connections.lock:
                batch = next(batches, None)
            if batch is None:
                return
            yield select_spooled(batch, texts)

    def _check_readable(self, table: str, after: int, until: int) -> None:
        for position, troubles in sorted(self._capture.intake.troubles.items()):
            if after < position <= until and table in troubles:
                raise troubles[table]

    def _read_completed(
        self,
        handle: str,
        key: tuple[int, ...],
        shape: PostgresLayout,
        texts: Texts,
        after: int,
        until: int,
    ) -> Iterator[pa.RecordBatch]:
        """The changes of a table whose rows are deleted by key; the module says what they may
        lack."""
        oid, numbers = self._describer.oid_of(handle), self._describer.column_numbers(handle)
        table, by_number = str(oid), self._capture.shapes.history.latest_shape(oid).by_number
        handle_names = {number: name for name, number in numbers.items()}
        names = tuple(handle_names.get(number, by_number[number].name) for number in key)
        keyed = {
            name: (number, by_number[number].type) for name, number in zip(names, key, strict=True)
        }

        def batches() -> Iterator[pa.RecordBatch]:
            return self._read_spool(table, {**texts, **keyed}, after, until)

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
        with self._connections.use_coordinator() as coordinator:
            while True:
                locked = self._questions.lock_tables(coordinator, [handle])
                with self._connections.use_control() as control:
                    self._stream.open_stream(control)
                    self._stream.read_past_watermark(control)
                    seen = _seen_by(self._capture, self._source, locked.shared.snapshot)
                    self._questions.check_shown(
                        handle, shape.names, until, capture.shapes.history, locked
                    )
                if all(each.position > until for each in seen.lacking):
                    break
                with self._server.translate_errors():
                    coordinator.execute("ROLLBACK")
                wait_for_visibility(self._source, end)
            table = locked.shared.tables[handle]
            whole = layout_of(self._source, table, [*key, *shape.names])
            arrays = [
                convert_text(
                    pa.array([row[index] for row in keys], pa.binary()), whole.kinds[index]
                )
                for index in range(len(key))
            ]
            asked = pa.table(dict(zip(key, arrays, strict=True)))
            columns = key_columns(self._source, table, key, [False] * len(key))
            later = self._read_spool(str(table.oid), keyed, until, _END)
            changed = later_event(later, key, keys, seen.holes)
            if changed is not None:
                raise BarrierError(self._source, handle, changed)
            values: dict[Key, dict[str, object]] = {}
            with self._server.translate_errors():
                for condition in key_conditions(columns, asked):
                    query = query_of(table, whole, condition, native=False)
                    result = coordinator.execute(query.encode()).pgresult
                    assert result is not None
                    for number, row in enumerate(whole.from_result(result).to_pylist()):
                        spelled = tuple(result.get_value(number, i) for i in range(len(key)))
                        values[spelled] = row
        return values

    @contextmanager
    def prepare_snapshots(self, after: int, tables: Tables) -> Iterator[PostgresOpener]:
        """One snapshot, exported; it can be imported until the context ends."""
        with self._connections.use_coordinator() as coordinator:
            opener = self._export_snapshot(coordinator, after, tables)
            try:
                yield opener
            finally:
                for tail in opener.tails.values():
                    if isinstance(tail.changes, Path):
                        tail.changes.unlink(missing_ok=True)

    def _export_snapshot(
        self, coordinator: PgConnection, after: int, tables: Tables
    ) -> PostgresOpener:
        """Export a snapshot and read the stream past everything that it can contain."""
        end = time.monotonic() + self._server.statement_seconds
        while True:
            locked = self._questions.lock_tables(coordinator, tables)
            with self._connections.use_control() as control:
                self._stream.open_stream(control)
                self._stream.read_past_watermark(control)
                self._stream.check_known(after)
                history = self._capture.shapes.history
                for handle, columns in tables.items():
                    self._questions.check_shown(handle, columns, after, history, locked)
                    table = locked.shared.tables[handle]
                    _check_partitions(coordinator, self._source, self._capture, table)
                seen = _seen_by(self._capture, self._source, locked.shared.snapshot)
                opener = seen.make_opener(locked.shared, after, tables)
            if opener is not None:
                return opener
            with self._server.translate_errors():
                coordinator.execute("ROLLBACK")
            wait_for_visibility(self._source, end)


def _check_partitions(
    coordinator: PgConnection, source: str, capture: SlotCapture, table: PostgresTable
) -> None:
    """A GapError if partitions of a table were removed with their rows."""
    followed = capture.followed.tables[str(table.oid)]
    if followed.leaves:
        there = {int(oid) for (oid,) in coordinator.execute(_LEAVES, (followed.oid,))}
        if not there.issuperset(followed.leaves):
            raise partition_gone_error(source, table.asked)


@dataclass(frozen=True, slots=True)
class SeenTransactions:
    """The spooled transactions as one snapshot sees them."""

    capture: SlotCapture
    newest: int
    lacking: tuple[SpooledTransaction, ...]
    included: tuple[SpooledTransaction, ...]

    @property
    def holes(self) -> frozenset[int]:
        """The positions that the snapshot lacks."""
        return frozenset(each.position for each in self.lacking)

    def make_opener(
        self, shared: SharedSnapshot, after: int, tables: Tables
    ) -> PostgresOpener | None:
        """The opener; None if a commit that took rows away without listing them is not visible
        yet."""
        names = {str(each.oid) for each in shared.tables.values()}
        for each in self.lacking:
            if each.position <= after and names.intersection((*each.emptied, *each.keyed)):
                return None
        tails = {}
        for handle, columns in tables.items():
            table = shared.tables[handle]
            layout = layout_of(shared.settings.name, table, columns)
            tails[handle] = self._collect_tail(after, table, layout)
        return PostgresOpener(shared, self.newest, self.holes, after, tails)

    def _collect_tail(self, after: int, table: PostgresTable, layout: PostgresLayout) -> TableTail:
        """The changes of a table around the snapshot; a large tail is in a file."""
        key, holes = str(table.oid), self.holes
        for position, troubles in sorted(self.capture.intake.troubles.items()):
            if key in troubles and (position > after or position in holes):
                raise troubles[key]
        changes = self._table_changes(after, table, layout)
        barriers = (
            each.position
            for each in self.included
            if each.position > after and key in (*each.emptied, *each.keyed)
        )
        return TableTail(_pack_changes(changes, self.capture.files.local), tuple(barriers))

    def _table_changes(self, after: int, table: PostgresTable, layout: PostgresLayout) -> pa.Table:
        lacking = pa.array(sorted(self.holes), pa.int64())
        start = min([after, *(position - 1 for position in self.holes)])
        columns = table.spool_types(layout.names)
        batches = []
        for batch in self.capture.spool.changes_of(str(table.oid), start, _END):
            positions = batch.column(POSITION)
            wanted = pc.greater(positions, pa.scalar(after, pa.int64()))
            if start < after:
                wanted = pc.or_(wanted, pc.is_in(positions, value_set=lacking))
            texts = without_absent(select_spooled(batch.filter(wanted), columns), layout.names)
            batches.append(layout.from_spool(texts))
        return pa.Table.from_batches(batches, layout.change_schema)


def _seen_by(capture: SlotCapture, source: str, snapshot: str) -> SeenTransactions:
    """Which of the spooled transactions a snapshot includes."""
    visible = VisibleTransactions.parse_snapshot(source, snapshot)
    spooled = capture.spool.transactions_after(-1)
    included = tuple(each for each in spooled if visible.has_transaction(each.id))
    lacking = tuple(each for each in spooled if not visible.has_transaction(each.id))
    newest = included[-1].position if included else capture.floor
    return SeenTransactions(capture, newest, lacking, included)


def _pack_changes(changes: pa.Table, home: Path) -> bytes | Path:
    if changes.nbytes <= INLINE_BYTES:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, changes.schema) as writer:
            writer.write_table(changes)
        return sink.getvalue().to_pybytes()
    # A folder of the process, which the next process removes if we die.
    folder = home / f"spool-{os.getpid()}-tails"
    disk.make_folder(folder)
    file = folder / f"{time.time_ns()}.arrow"
    with pa.OSFile(str(file), "wb") as out, pa.ipc.new_stream(out, changes.schema) as writer:
        writer.write_table(changes)
    disk.protect_file(file)
    return file
