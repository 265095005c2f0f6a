"""What tests of changing shapes read of a source: changes, and rows as of a position.

Rows as of a position are those of a snapshot minus its tail; scan and lookup must agree on them.
The opener travels through a pickle, as it does to tasks.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa

from viewkeeper.updates.source_protocol import Lookup, Snapshot, Source, Tables
from viewkeeper.view.definition import Relation

Row = tuple[object, ...]
BEFORE: Counter[Row] = Counter({(1, 10): 1, (2, 20): 1})
"""The rows, id and v, that every table `t` has at the beginning."""


def snapshot_of(source: Source, after: int) -> Snapshot:
    with source.prepare_snapshots(after, {}) as opener:
        snapshot: Snapshot = pickle.loads(pickle.dumps(opener))()
        return snapshot


def bag(batches: Iterable[pa.RecordBatch], sign: int = 1) -> Counter[Row]:
    """Rows with their counts, which a change batch has itself; the position is left out."""
    found: Counter[Row] = Counter()
    for batch in batches:
        names = [name for name in batch.schema.names if name not in ("_count", "_position")]
        counts = batch.to_pydict().get("_count", [1] * batch.num_rows)
        columns = [batch.column(name).to_pylist() for name in names]
        for *row, count in zip(*columns, counts, strict=True):
            found[tuple(row)] += sign * count
    return found


def plus(*bags: Counter[Row]) -> dict[Row, int]:
    total: Counter[Row] = Counter()
    for each in bags:
        for row, count in each.items():
            total[row] += count
    return {row: count for row, count in total.items() if count}


def changed(source: Source, tables: Tables, after: int, until: int) -> dict[Row, int]:
    return plus(bag(batch for _, batch in source.read_changes(tables, after, until)))


def scanned(source: Source, handle: str, columns: Sequence[str], after: int) -> dict[Row, int]:
    """The rows as of a position, by a scan and by a lookup, which must agree."""
    snapshot = snapshot_of(source, after)
    try:
        relation = Relation(source.name, handle)
        scan = snapshot.scan_relation(relation, columns, after)
        rows = plus(bag(scan.batches), bag(scan.tail, -1))
        numbers = [row[0] for row in rows if isinstance(row[0], int)]
        for keys in (range(10_000), numbers[:1]):
            table = pa.table({columns[0]: pa.array(keys, pa.int64())})
            lookup = Lookup(0, relation, tuple(columns), (columns[0],), (False,), table)
            answer = snapshot.answer_lookup(lookup, after)
            found = plus(bag(answer.rows.to_batches()), bag(answer.tail.to_batches(), -1))
            wanted = {row: count for row, count in rows.items() if row[0] in keys}
            assert {row: n for row, n in found.items() if row[0] in keys} == wanted
        return rows
    finally:
        snapshot.close()
