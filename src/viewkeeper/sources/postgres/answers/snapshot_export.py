"""Telling what the stream knows around an exported snapshot.

The coordinator's transaction has locked the tables and exported a snapshot (`locking`). Then the
stream is read past a watermark that was committed after the snapshot: nothing that the snapshot
sees can come later. From there on everything is computed from the spool.

What the spool tells of tables around a snapshot: the cut, and the changes that answers need.

A transaction is in the snapshot if its id is visible there, wherever its commit lies in the log.
So what it contains is everything up to the newest visible position, without those below it that
are not visible. Told of a table are its changes after the asked position and, from the whole spool,
those that the snapshot lacks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import SourceAwayError, SourceError
from viewkeeper.sources.postgres.answers.rows import PostgresLayout, layout_of
from viewkeeper.sources.postgres.answers.snapshot import PostgresOpener, TableTail
from viewkeeper.sources.postgres.answers.table_locks import LockedSnapshot
from viewkeeper.sources.postgres.decoding.capture import WATERMARK, SlotCapture
from viewkeeper.sources.postgres.decoding.partial_rows import without_absent
from viewkeeper.sources.postgres.decoding.slot import emit_mark
from viewkeeper.sources.postgres.decoding.spooled_columns import select_spooled
from viewkeeper.sources.postgres.decoding.visibility import VisibleTransactions
from viewkeeper.sources.postgres.errors import partition_gone_error
from viewkeeper.sources.postgres.postgres_server import PostgresServer
from viewkeeper.sources.postgres.schema import PostgresTable
from viewkeeper.sources.stream.spool import StreamedTransaction
from viewkeeper.storage import disk
from viewkeeper.updates.source_protocol import POSITION, Tables

_LEAVES = "SELECT relid::oid::int8 FROM pg_partition_tree(%s::oid::regclass) WHERE isleaf"
_PAUSE_SECONDS = 0.02


def make_opener(
    server: PostgresServer,
    capture: SlotCapture,
    locked: LockedSnapshot,
    after: int,
    tables: Tables,
) -> PostgresOpener | None:
    """The opener; None if a commit that took rows away without listing them is not visible yet."""
    found = locked.tables
    seen = seen_by(capture, VisibleTransactions.parse_snapshot(server.source, locked.snapshot))
    kept = frozenset(str(table.oid) for table in found.values())
    if is_irreversible(seen, after, kept):
        return None
    told = collect_tails(capture, seen, after, found, tables, capture.home)
    lacking = frozenset(each.position for each in seen.lacking)
    return PostgresOpener(
        server.settings,
        locked.exported,
        locked.snapshot,
        seen.newest,
        lacking,
        after,
        dict(found),
        told,
    )


def read_past_watermark(control: psycopg.Connection[Any], capture: SlotCapture) -> None:
    """Read the stream past everything that a snapshot taken before can contain."""
    capture.read_mark(emit_mark(control, WATERMARK))


def wait_for_visibility(source: str, end: float) -> None:
    if time.monotonic() > end:
        raise SourceAwayError(
            source,
            "a commit that was logged does not become visible",
            hint="look whether a synchronous standby is away",
        )
    time.sleep(_PAUSE_SECONDS)


def check_partitions(
    coordinator: psycopg.Connection[Any], source: str, capture: SlotCapture, table: PostgresTable
) -> None:
    """A GapError if partitions of a table went with their rows."""
    followed = capture.state.tables[str(table.oid)]
    if followed.leaves:
        there = {int(oid) for (oid,) in coordinator.execute(_LEAVES, (followed.oid,))}
        if not there.issuperset(followed.leaves):
            raise partition_gone_error(source, table.asked)


INLINE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class SeenTransactions:
    """The kept transactions as one snapshot sees them."""

    newest: int
    lacking: tuple[StreamedTransaction, ...]
    included: tuple[StreamedTransaction, ...]


def seen_by(capture: SlotCapture, visible: VisibleTransactions) -> SeenTransactions:
    """Which of the kept transactions a snapshot includes."""
    kept = capture.spool.transactions_after(-1)
    included = tuple(each for each in kept if visible.has_transaction(each.id))
    lacking = tuple(each for each in kept if not visible.has_transaction(each.id))
    newest = included[-1].position if included else capture.floor
    return SeenTransactions(newest, lacking, included)


def is_irreversible(seen: SeenTransactions, after: int, names: frozenset[str]) -> bool:
    """Whether a transaction that the snapshot lacks took rows away without listing them."""
    return any(
        each.position <= after and names.intersection((*each.emptied, *each.keyed))
        for each in seen.lacking
    )


def collect_tails(
    capture: SlotCapture,
    seen: SeenTransactions,
    after: int,
    found: Mapping[str, PostgresTable],
    tables: Tables,
    home: Path,
) -> dict[str, TableTail]:
    """What is told of each table, by its handle; large ones in files below `home`."""
    told = {}
    for handle, columns in tables.items():
        table = found[handle]
        key = str(table.oid)
        _check_troubles(capture, seen, after, key)
        changes = _table_changes(
            capture, seen, after, table, layout_of(capture.source, table, columns)
        )
        barriers = (
            each.position
            for each in seen.included
            if each.position > after and key in (*each.emptied, *each.keyed)
        )
        told[handle] = TableTail(_pack_changes(changes, home), tuple(barriers))
    return told


def _check_troubles(capture: SlotCapture, seen: SeenTransactions, after: int, table: str) -> None:
    lacking = {each.position for each in seen.lacking}
    for position, troubles in sorted(capture.troubles.items()):
        if table in troubles and (position > after or position in lacking):
            error: SourceError = troubles[table]
            raise error


def _table_changes(
    capture: SlotCapture,
    seen: SeenTransactions,
    after: int,
    table: PostgresTable,
    shape: PostgresLayout,
) -> pa.Table:
    lacking = pa.array([each.position for each in seen.lacking], pa.int64())
    start = min([after, *(each.position - 1 for each in seen.lacking)])
    columns = table.spool_types(shape.names)
    batches = []
    for batch in capture.spool.changes_of(str(table.oid), start, 1 << 62):
        positions = batch.column(POSITION)
        wanted = pc.greater(positions, pa.scalar(after, pa.int64()))
        if start < after:
            wanted = pc.or_(wanted, pc.is_in(positions, value_set=lacking))
        texts = without_absent(select_spooled(batch.filter(wanted), columns), shape.names)
        batches.append(shape.from_spool(texts))
    return pa.Table.from_batches(batches, shape.change_schema)


def _pack_changes(changes: pa.Table, home: Path) -> bytes | Path:
    if changes.nbytes <= INLINE_BYTES:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, changes.schema) as writer:
            writer.write_table(changes)
        return sink.getvalue().to_pybytes()
    # A folder of the process, which whoever comes after us removes if we die.
    folder = home / f"spool-{os.getpid()}-tails"
    disk.make_folder(folder)
    file = folder / f"{time.time_ns()}.arrow"
    with pa.OSFile(str(file), "wb") as out, pa.ipc.new_stream(out, changes.schema) as writer:
        writer.write_table(changes)
    disk.protect_file(file)
    return file
