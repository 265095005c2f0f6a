"""How fast changes come from a source: transactions that are there already, read to Arrow.

The source is followed and closed, then the changes are committed, then it is opened anew and the
clock starts. So nothing was decoded, sent or buffered before, and connecting is in the figure; the
modules that a source loads when it reads for the first time are not, because lookups came first.
What is timed is looking until nothing more is reported, then reading all changes of all six
columns. A change is a row that was inserted or updated; its signed rows must all be there.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.source_worlds import COLUMNS, TABLE, SourceWorld
from viewkeeper.updates.source_protocol import COUNT, Source

# A source may find that what it looks at is not at rest yet, and says so by reporting nothing.
_PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Captured:
    """One kind and one size of transactions: the median of some rounds."""

    kind: str
    changes: int
    size: int
    """Changes per transaction, version or state."""
    reported: int
    """Transactions that the source reported."""
    signed_rows: int
    looking: float
    """Seconds of looking, connecting included."""
    reading: float
    """Seconds of reading the changes."""
    load: float

    @property
    def seconds(self) -> float:
        return self.looking + self.reading

    @property
    def changes_per_second(self) -> float:
        return self.changes / self.seconds


def measure(world: SourceWorld, changes: int, size: int, rounds: int) -> Captured:
    """Write and capture some rounds; the one in the middle."""
    found = [_round(world, changes, size) for _ in range(rounds)]
    middle = statistics.median_low(each.seconds for each in found)
    return next(each for each in found if each.seconds == middle)


def _round(world: SourceWorld, changes: int, size: int) -> Captured:
    tables = {TABLE: COLUMNS}
    with closing(world.open()) as source:
        after = source.follow_tables(tables)
    expected = world.write(changes, size)
    with closing(world.open()) as source:
        started = time.perf_counter()
        reported, until = _look(source, after)
        looked = time.perf_counter()
        batches = [batch for _, batch in source.read_changes(tables, after, until)]
        ended = time.perf_counter()
        rows = _checked(world, batches, expected)
        source.acknowledge_position(until)
    return Captured(
        kind=world.label,
        changes=changes,
        size=size,
        reported=reported,
        signed_rows=rows,
        looking=looked - started,
        reading=ended - looked,
        load=os.getloadavg()[0],
    )


def _checked(world: SourceWorld, batches: Sequence[pa.RecordBatch], expected: int) -> int:
    """How many signed rows there are: all, and a third of them more that came than that went."""
    table = pa.Table.from_batches(batches)
    net = pc.sum(table[COUNT]).as_py()
    found = (table.num_rows, net)
    assert found == (expected, expected // 3), f"{world.label}: {found}, expected {expected} rows"
    return table.num_rows


def _look(source: Source, after: int) -> tuple[int, int]:
    """Look until there is nothing more: how many transactions there are, and the newest."""
    reported, until = 0, after
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        found = source.look_for_transactions(until)
        if found:
            reported += len(found)
            until = found[-1].position
        elif reported:
            return reported, until
    raise AssertionError(f"{source.describe_source()}: no end of looking")


HEADER = (
    f"{'kind':<24}{'per transaction':>16}{'changes':>9}{'reported':>9}"
    f"{'looking s':>11}{'reading s':>11}{'changes/s':>11}{'load':>6}"
)


def line(found: Captured) -> str:
    return (
        f"{found.kind:<24}{found.size:>16,}{found.changes:>9,}{found.reported:>9,}"
        f"{found.looking:>11.3f}{found.reading:>11.3f}{found.changes_per_second:>11,.0f}"
        f"{found.load:>6.1f}"
    )
