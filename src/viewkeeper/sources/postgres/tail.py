"""What the spool tells of tables around a snapshot: the cut, and the changes that answers need.

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

import pyarrow as pa
import pyarrow.compute as pc

from viewkeeper.errors import SourceError
from viewkeeper.sources.postgres.capture import Capture
from viewkeeper.sources.postgres.complete import without_absent
from viewkeeper.sources.postgres.rows import Layout, layout
from viewkeeper.sources.postgres.snapshot import Told
from viewkeeper.sources.postgres.spooled import brought
from viewkeeper.sources.postgres.table import Table
from viewkeeper.sources.postgres.visible import Visible
from viewkeeper.sources.spool import Streamed
from viewkeeper.storage import disk
from viewkeeper.updates.protocol import POSITION, Tables

INLINE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Seen:
    """The kept transactions as one snapshot sees them."""

    newest: int
    lacking: tuple[Streamed, ...]
    included: tuple[Streamed, ...]


def seen_by(capture: Capture, visible: Visible) -> Seen:
    """Which of the kept transactions a snapshot includes."""
    kept = capture.spool.transactions(-1)
    included = tuple(each for each in kept if visible.includes(each.id))
    lacking = tuple(each for each in kept if not visible.includes(each.id))
    newest = included[-1].position if included else capture.floor
    return Seen(newest, lacking, included)


def cannot_be_reversed(seen: Seen, after: int, names: frozenset[str]) -> bool:
    """Whether a transaction that the snapshot lacks took rows away without listing them."""
    return any(
        each.position <= after and names.intersection((*each.emptied, *each.keyed))
        for each in seen.lacking
    )


def tell(
    capture: Capture,
    seen: Seen,
    after: int,
    found: Mapping[str, Table],
    tables: Tables,
    home: Path,
) -> dict[str, Told]:
    """What is told of each table, by its handle; large ones in files below `home`."""
    told = {}
    for handle, columns in tables.items():
        table = found[handle]
        key = str(table.oid)
        _check_troubles(capture, seen, after, key)
        changes = _changes(capture, seen, after, table, layout(capture.source, table, columns))
        barriers = (
            each.position
            for each in seen.included
            if each.position > after and key in (*each.emptied, *each.keyed)
        )
        told[handle] = Told(_packed(changes, home), tuple(barriers))
    return told


def _check_troubles(capture: Capture, seen: Seen, after: int, table: str) -> None:
    lacking = {each.position for each in seen.lacking}
    for position, troubles in sorted(capture.troubles.items()):
        if table in troubles and (position > after or position in lacking):
            error: SourceError = troubles[table]
            raise error


def _changes(capture: Capture, seen: Seen, after: int, table: Table, shape: Layout) -> pa.Table:
    lacking = pa.array([each.position for each in seen.lacking], pa.int64())
    start = min([after, *(each.position - 1 for each in seen.lacking)])
    columns = table.spooled(shape.names)
    batches = []
    for batch in capture.spool.changes(str(table.oid), start, 1 << 62):
        positions = batch.column(POSITION)
        wanted = pc.greater(positions, pa.scalar(after, pa.int64()))
        if start < after:
            wanted = pc.or_(wanted, pc.is_in(positions, value_set=lacking))
        texts = without_absent(brought(batch.filter(wanted), columns), shape.names)
        batches.append(shape.from_spool(texts))
    return pa.Table.from_batches(batches, shape.changes)


def _packed(changes: pa.Table, home: Path) -> bytes | Path:
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
