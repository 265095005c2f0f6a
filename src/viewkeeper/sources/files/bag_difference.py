"""Signed rows summed per tuple, in bounded memory: the difference of two bags.

    net(new, each counted 1, and old, each counted -1)  =  new - old

Rows are kept in memory while they are few. Beyond a limit they are split by a hash of the whole row
into parts on disk, so that equal rows meet in one part; then each part is summed on its own, split
again if it is still too large. Equal means as Spark says it: NULL equals NULL, NaN equals NaN.
Values must be in their canonical form (`parquet`).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.updates.source_protocol import COUNT

MEMORY_BYTES = 64 << 20
PARTS = 32
# A part that is still too large after so many splits consists of a few tuples, each very often.
_DEPTH_MAX = 3
_WEIGHTS = 1 << 12


def add_count(batches: Iterable[pa.RecordBatch], count: int) -> Iterator[pa.RecordBatch]:
    """The same rows with a `_count`."""
    for batch in batches:
        yield batch.append_column(COUNT, pa.repeat(pa.scalar(count, pa.int64()), batch.num_rows))


def sum_signed_rows(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    scratch: Path,
    memory_bytes: int = MEMORY_BYTES,
) -> Iterator[pa.Table]:
    """Each tuple once, with its non-zero count; `schema` has the columns and `_count`.

    `scratch` is a folder for parts; what is put there is gone at the end.
    """
    yield from _sum_or_split(iter(batches), schema, scratch, memory_bytes, 0)


def _sum_or_split(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, scratch: Path, limit: int, depth: int
) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > limit and depth < _DEPTH_MAX:
            summed = _sum_table(pa.Table.from_batches(held, schema))
            held, size = summed.to_batches(), summed.nbytes
            # Where most rows cancel each other, going on in memory is cheaper than a split.
            if size > limit // 2:
                yield from _split_by_hash(
                    _chain_batches(held, batches), schema, scratch, limit, depth
                )
                return
    yield _sum_table(pa.Table.from_batches(held, schema))


def _chain_batches(
    held: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    while held:
        yield held.pop(0)
    yield from rest


def _split_by_hash(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, scratch: Path, limit: int, depth: int
) -> Iterator[pa.Table]:
    scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="net-", dir=scratch))
    try:
        paths = [folder / f"{number}.arrow" for number in range(PARTS)]
        with ExitStack() as stack:
            writers = [stack.enter_context(pa.ipc.new_stream(str(path), schema)) for path in paths]
            for batch in batches:
                _deal_rows(batch, writers, depth)
        for path in paths:
            yield from _sum_or_split(_read_part(path), schema, scratch, limit, depth + 1)
            path.unlink()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _deal_rows(batch: pa.RecordBatch, writers: list[Any], depth: int) -> None:
    parts = hash_rows(batch.drop_columns([COUNT]), depth) % np.uint64(PARTS)
    order = np.argsort(parts, kind="stable")
    bounds = np.searchsorted(parts[order], np.arange(PARTS + 1))
    dealt = batch.take(pa.array(order, pa.int64()))
    for number, writer in enumerate(writers):
        if bounds[number + 1] > bounds[number]:
            writer.write_batch(dealt.slice(bounds[number], bounds[number + 1] - bounds[number]))


def _read_part(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
        yield from reader


def _sum_table(table: pa.Table) -> pa.Table:
    names = [name for name in table.column_names if name != COUNT]
    grouped = table.group_by(names, use_threads=False).aggregate([(COUNT, "sum")])
    summed = grouped.select([*names, f"{COUNT}_sum"]).rename_columns([*names, COUNT])
    return summed.filter(pc.not_equal(summed[COUNT], 0)).select(table.column_names)


def repeat_by_count(table: pa.Table) -> pa.Table:
    """Each tuple as often as its count says, counted 1 or -1 each.

    >>> repeat_by_count(pa.table({"a": [1, 2], "_count": [2, -1]})).to_pydict()
    {'a': [1, 1, 2], '_count': [1, 1, -1]}
    """
    counts = table[COUNT].to_numpy()
    if not len(counts) or (np.abs(counts) == 1).all():
        return table
    rows = np.repeat(np.arange(len(counts)), np.abs(counts))
    signs = pa.array(np.sign(counts)[rows], pa.int64())
    index = table.column_names.index(COUNT)
    return table.take(pa.array(rows, pa.int64())).set_column(
        index, table.schema.field(COUNT), signs
    )


def hash_rows(batch: pa.RecordBatch, seed: int) -> Any:
    """A 64-bit number per row; equal rows have equal numbers."""
    numbers = np.full(batch.num_rows, seed + 1, np.uint64)
    for column in batch.columns:
        numbers = _mix_bits(numbers * np.uint64(0x9E3779B97F4A7C15) + _column_hashes(column))
    return numbers


def _mix_bits(numbers: Any) -> Any:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers = (numbers ^ (numbers >> np.uint64(shift))) * np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))


def _column_hashes(column: Any) -> Any:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashes = _byte_hashes(column.cast(pa.binary()))
    elif pa.types.is_decimal(kind):
        hashes = _byte_hashes(column.cast(pa.string()).cast(pa.binary()))
    else:
        hashes = _word_hashes(column)
    return np.where(column.is_null().to_numpy(zero_copy_only=False), np.uint64(7), hashes)


def _word_hashes(column: Any) -> Any:
    kind = column.type
    if pa.types.is_floating(kind):
        bits = column.fill_null(0.0).to_numpy().astype(np.float64).view(np.uint64)
    else:
        whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        bits = column.cast(whole).cast(pa.int64()).fill_null(0).to_numpy().view(np.uint64)
    return _mix_bits(bits)


def _byte_hashes(column: Any) -> Any:
    """Each byte times a weight that depends on its place in the value, summed per value."""
    filled = column.fill_null(b"")
    lengths = pc.binary_length(filled).to_numpy().astype(np.int64)
    data = np.frombuffer(b"".join(filled.to_pylist()), np.uint8).astype(np.uint64)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    places = np.arange(len(data)) - np.repeat(starts[:-1], lengths)
    weights = _mix_bits(np.arange(1, _WEIGHTS + 1, dtype=np.uint64))[places % _WEIGHTS]
    sums = np.concatenate(([np.uint64(0)], np.cumsum((data + np.uint64(1)) * weights)))
    return _mix_bits(sums[starts[1:]] - sums[starts[:-1]] + lengths.astype(np.uint64))
