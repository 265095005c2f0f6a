"""Reading a view with Spark: the same states and changes as `read`, as DataFrames.

*Merge on read*. The body of a state may be large and is read as it is, without the rows that later
commits may have changed (`viewkeeper.warehouse.rows.touched_rows`): those are left out by their
positions in the files, and what they and the tail add up to is computed in Arrow and added. Nothing
is shuffled, and columns that nobody asks for are not read. Where too many rows may have changed,
all is grouped.

Small files are read in Arrow and handed to Spark as one staged file, because Spark pays for every
file; rows never pass through the JVM from Python, which would change naive timestamps. The caller
names the folder for staged files, which must live as long as the DataFrame, and be reachable by the
executors.

Spark compares the checksums of the pages that it reads. What it then says is text, in which rows
may be quoted; so the text is only asked which files it names, and `find_read_damage` looks at those
itself.

Summing needs the stored columns; hidden ones are dropped last.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial, reduce
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql.pandas.types import from_arrow_schema

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.errors import CorruptError
from viewkeeper.storage import stored_files
from viewkeeper.storage.named_digest import write_parquet
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake.data_files import stored_schema, write_stream
from viewkeeper.warehouse.lake.listed_files import ActiveFile
from viewkeeper.warehouse.lake.verified_files import (
    check_footer,
    is_data_file_name,
    open_parquet,
    read_whole,
)
from viewkeeper.warehouse.metadata.head import ViewHead, read_head
from viewkeeper.warehouse.metadata.record import DataFile
from viewkeeper.warehouse.rows.file_search import fit_columns, has_columns
from viewkeeper.warehouse.rows.touched_rows import TouchedRows, find_touched, split_layers
from viewkeeper.warehouse.rows.view_state import (
    change_span,
    files_until,
    read_signed,
    state_ts,
    sum_rows,
    table_folder,
)

SMALL_ROWS = 100_000
NETTED_ROWS = 1_000_000
REMOTE_ROWS = 65_536
MAPPED_ROWS = 8_000_000
"""A body of so many rows has its touched ones in a bit map, which is a literal of Spark's plan: 64
rows are a number. A join of all positions with the touched ones costs a broadcast, and several
times what the map does for each row."""

LISTED_ROWS = 100_000
"""So many positions go into Spark's plan: a file of them costs a job that others wait for."""

_NET = "__net"
_METADATA = "_metadata"
_POSITION_BITS = 24
"""Positions in a file are below 2 to this power: files have a sixteenth of so many rows."""
_DESCRIPTOR = "descriptor"
_FILE = re.compile(r"file:(/[^\s'\"?*]*?\.parquet)")
_CHECKSUMS = "parquet.page.verify-checksum.enabled"


def state_frame(
    spark: SparkSession,
    root: StoragePath,
    view: ViewHead,
    staging: StoragePath,
    as_of: int | None = None,
) -> DataFrame:
    """The view's rows as of a ts, a row as often as it occurs."""
    until = state_ts(view, as_of)
    files = files_until(root, view, until)
    body, tail = _layers_for_spark(root, view, files, until)
    if _can_merge(view, body, tail):
        read = partial(read_signed, root, view, until=until)
        touched = find_touched(table_folder(root, view), view, body, tail, read)
        if touched is not None:
            changes = pa.concat_tables([read(tail).drop_columns([TS]), touched.rows])
            net = sum_rows(changes).filter(pc.field(COUNT) > 0)
            return _merge_body(spark, root, view, body, touched, net, staging)
    signed = signed_frame(spark, root, view, files, staging, until=until)
    rows = repeat_counted(
        sum_counts(signed, view.schema.names).where(F.col(COUNT) > 0), view.schema.names
    )
    return rows.select(*map(exact_column, view.shown_schema.names)) if view.hidden else rows


def _layers_for_spark(
    root: StoragePath, view: ViewHead, files: Sequence[ActiveFile], until: int
) -> tuple[list[ActiveFile], list[ActiveFile]]:
    """The body that Spark reads, and the tail, which Arrow sums.

    A small body is summed too: one staged file costs Spark less than several. So are small files
    with columns of before, whose values Arrow brings into the types of now.
    """
    body, tail = split_layers(files, until, view.horizon)
    if sum(file.rows for file in body) < SMALL_ROWS:
        return [], [*body, *tail]
    folder, stored = table_folder(root, view), stored_schema(view.schema)
    read = [f for f in body if f.rows >= SMALL_ROWS or has_columns(folder, view.view, f, stored)]
    return read, [*(file for file in body if file not in read), *tail]


def _can_merge(view: ViewHead, body: Sequence[ActiveFile], tail: Sequence[ActiveFile]) -> bool:
    """Whether the tail is small, and rows of the body have positions that Spark can name."""
    small = sum(file.rows for file in tail) <= NETTED_ROWS
    named = _METADATA not in (name.lower() for name in view.schema.names)
    return small and named and all(file.rows >> _POSITION_BITS == 0 for file in body)


def changes_frame(
    spark: SparkSession,
    root: StoragePath,
    view: ViewHead,
    staging: StoragePath,
    since: int,
    until: int | None = None,
) -> DataFrame:
    """The signed rows with `since` < `_ts` <= `until`, summed per row and ts."""
    since, until = change_span(view, since, until)
    files = [file for file in files_until(root, view, until) if file.ts_max > since]
    signed = signed_frame(spark, root, view, files, staging, after=since, until=until)
    names = stored_schema(view.shown_schema).names
    return sum_counts(signed, [name for name in names if name != COUNT]).select(
        *map(exact_column, names)
    )


def signed_frame(
    spark: SparkSession,
    root: StoragePath,
    view: ViewHead,
    files: Sequence[ActiveFile],
    staging: StoragePath,
    *,
    after: int = -1,
    until: int,
) -> DataFrame:
    """The signed rows of files with `after` < `_ts` <= `until`, as they are stored."""
    stored = stored_schema(view.schema)
    small = [file for file in files if file.rows < SMALL_ROWS]
    paths = []
    for file in files:
        if file.rows >= SMALL_ROWS:
            # Spark leaves an empty file out, and compares pages only.
            paths.append(table_folder(root, view) / file.path)
            check_footer(paths[-1], file.size, view.view)
    paths += stage_rows(read_signed(root, view, small, until=until), staging)
    frame = frame_of(spark, paths, stored)
    return frame.where((F.col(TS) > after) & (F.col(TS) <= until))


def frame_of(spark: SparkSession, paths: Sequence[StoragePath], schema: pa.Schema) -> DataFrame:
    """Parquet files as a DataFrame of exactly this schema; empty for no files."""
    types = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    if not paths:
        return spark.createDataFrame([], types)
    local = [path for path in paths if isinstance(path, Path)]
    remote = [path for path in paths if not isinstance(path, Path)]
    frames = [_remote_frame(spark, remote, schema)] if remote else []
    if local:
        reader = spark.read.schema(types).option(_CHECKSUMS, "true")
        frames.append(reader.parquet(*map(str, local)))
    return reduce(DataFrame.unionAll, frames)


def _remote_frame(
    spark: SparkSession,
    paths: Sequence[StoragePath],
    schema: pa.Schema,
    skipped: Sequence[Any] | None = None,
) -> DataFrame:
    """The same of files in object storage, which tasks read by themselves: Spark's own reader needs
    libraries of Hadoop for that. Of each file, the rows at the positions `skipped` are left out."""
    types = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    read: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    read = partial(_read_remote, paths=[*paths], schema=schema, skipped=skipped)
    numbers = spark.range(0, len(paths), 1, len(paths))
    return numbers.mapInArrow(read, types)


def _read_remote(
    batches: Iterator[pa.RecordBatch],
    *,
    paths: Sequence[StoragePath],
    schema: pa.Schema,
    skipped: Sequence[Any] | None,
) -> Iterator[pa.RecordBatch]:
    for number in (int(n) for batch in batches for n in batch.column(0).to_numpy()):
        gone, at = np.zeros(0, np.int64) if skipped is None else skipped[number], 0
        with open_parquet(paths[number]) as file:
            there = [name for name in schema.names if name in file.schema_arrow.names]
            # A name with a dot would be taken for a path.
            columns = None if any("." in name for name in there) else there
            for batch in file.iter_batches(batch_size=REMOTE_ROWS, columns=columns):
                rows = pa.Table.from_batches([batch]).replace_schema_metadata(None)
                inside = gone[(gone >= at) & (gone < at + batch.num_rows)] - at
                if len(inside):
                    kept = np.ones(batch.num_rows, bool)
                    kept[inside] = False
                    rows = rows.filter(pa.array(kept))
                at += batch.num_rows
                yield from fit_columns(rows, schema).to_batches()


def stage_rows(rows: pa.Table, staging: StoragePath) -> list[StoragePath]:
    """Rows as one staged file; none for no rows."""
    if rows.num_rows == 0:
        return []
    stored_files.make_folder(staging)
    path = staging.absolute() / f"tail-{uuid.uuid4().hex}.parquet"
    with write_parquet(path, rows.schema, durable=False) as file:
        file.write(rows)
    return [file.path]


def write_frame(
    frame: DataFrame,
    folder: StoragePath,
    stored: pa.Schema,
    batch: int,
    sorted_by: str | None = None,
) -> tuple[DataFile, ...]:
    """Write a DataFrame with exactly the columns of `stored` as data files of a folder.

    `sorted_by` is the column by which the rows of every partition are in order, if they are.

    The rows never come to the driver: each task streams its partition through the one writer and
    returns descriptors. Only those of successful attempts arrive; other files are orphans.
    """
    write: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    write = partial(
        _write_partition,
        folder=folder.absolute(),
        stored=stored,
        batch=batch,
        sorted_by=sorted_by,
    )
    # A view may call a column what Spark cannot resolve by name.
    numbered = frame.toDF(*(f"c{i}" for i in range(len(stored))))
    with blame_data_files():
        found = numbered.mapInArrow(write, f"{_DESCRIPTOR} string").collect()
    files = [DataFile(**json.loads(row[_DESCRIPTOR])) for row in found]
    return tuple(sorted(files, key=lambda file: file.path))


@contextmanager
def blame_data_files() -> Iterator[None]:
    """Turn what Spark says of a damaged data file into the error for that file."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        damage = find_read_damage(str(error))
        if damage is None:
            raise
        raise damage from error


def find_read_damage(text: str) -> CorruptError | None:
    """What is wrong with a data file of a view that Spark's error names; None if nothing is."""
    for found in dict.fromkeys(_FILE.findall(text)):
        path = Path("/" + unquote(found).lstrip("/"))
        if not is_data_file_name(path.name) or path.parents[1].name != "views":
            continue
        try:
            views = read_head(path.parents[2]).views.values()
            names = [view.view for view in views if view.table == path.parent.name]
            read_whole(path, names[0] if names else path.parent.name)
        except CorruptError as error:
            return error
    return None


def _merge_body(
    spark: SparkSession,
    root: StoragePath,
    view: ViewHead,
    body: Sequence[ActiveFile],
    touched: TouchedRows,
    net: pa.Table,
    staging: StoragePath,
) -> DataFrame:
    """The body without its touched rows, and what these and the tail add up to."""
    names = view.shown_schema.names
    folder = table_folder(root, view)
    frames = []
    for numbers in _files_of_distinct_sizes(body):
        paths = [folder / body[number].path for number in numbers]
        for number, path in zip(numbers, paths, strict=True):
            # Spark leaves an empty file out, and compares pages only.
            check_footer(path, body[number].size, view.view)
        if isinstance(folder, Path):
            frame = frame_of(spark, paths, _counted_schema(view))
            if sum(body[number].rows for number in numbers) <= MAPPED_ROWS:
                kept = _leave_mapped(frame, body, numbers, touched)
            else:
                keys = _position_keys(body, numbers, touched)
                kept = _leave_positions(spark, frame, keys, staging)
        else:
            skipped = [touched.positions_in(number) for number in numbers]
            kept = _remote_frame(spark, paths, _counted_schema(view), skipped)
        frames.append(_repeat_where_needed(kept, [body[n].count_max for n in numbers], names))
    if net.num_rows or not frames:
        added = frame_of(spark, stage_rows(net, staging), _counted_schema(view))
        most = pc.max(net[COUNT]).as_py() or 1
        frames.append(_repeat_where_needed(added, [most], names))
    return reduce(DataFrame.unionAll, frames)


def _counted_schema(view: ViewHead) -> pa.Schema:
    return pa.schema([*view.schema.remove_metadata(), pa.field(COUNT, pa.int64())])


def _repeat_where_needed(
    counted: DataFrame, counts_max: Sequence[int], names: Sequence[str]
) -> DataFrame:
    if max(counts_max) > 1:
        return repeat_counted(counted, names)
    return counted.select(*map(exact_column, names))


def _files_of_distinct_sizes(body: Sequence[ActiveFile]) -> list[list[int]]:
    """The numbers of the body's files, in groups within which a size tells them apart."""
    groups: list[dict[int, int]] = []
    for number, file in enumerate(body):
        group = next((g for g in groups if file.size not in g), None)
        if group is None:
            groups.append(group := {})
        group[file.size] = number
    return [list(group.values()) for group in groups]


def _position_keys(
    body: Sequence[ActiveFile], numbers: Sequence[int], touched: TouchedRows
) -> pa.Array[Any]:
    """Touched rows as one number each, made of the size of their file and their position."""
    keys = [
        (body[number].size << _POSITION_BITS) + touched.positions_in(number) for number in numbers
    ]
    return pa.array(np.concatenate(keys), pa.int64())


def _leave_mapped(
    frame: DataFrame, body: Sequence[ActiveFile], numbers: Sequence[int], touched: TouchedRows
) -> DataFrame:
    """A frame over these files of a body without their touched rows.

    One bit for each row, the files one behind the other; a file is known by its size. The optimizer
    knows that positions and columns are apart: what is not asked for is not read.
    """
    places, words, start = list[Column](), list[Any](), 0
    size, row = F.col(f"{_METADATA}.file_size"), F.col(f"{_METADATA}.row_index")
    for number in numbers:
        gone = touched.positions_in(number)
        if len(gone):
            places.append(F.when(size == body[number].size, row + start))
            bits = np.zeros(-(-body[number].rows // 64) * 64, np.uint8)
            bits[gone] = 1
            words.append(np.packbits(bits, bitorder="little").view("<i8"))
            start += len(bits)
    if not words:
        return frame
    # Spark makes a constant of the text before it runs anything; one by one, the numbers would be
    # as many calls into the JVM.
    listed = ",".join(map(str, np.concatenate(words).tolist()))
    bit_map, place = F.split(F.lit(listed), ",").cast("array<bigint>"), F.coalesce(*places)
    bit = F.getbit(F.get(bit_map, F.shiftright(place, 6).cast("int")), (place % 64).cast("int"))
    return frame.where(F.coalesce(bit, F.lit(0)) == 0)


def _leave_positions(
    spark: SparkSession, frame: DataFrame, keys: pa.Array[Any], staging: StoragePath
) -> DataFrame:
    """A frame over data files without the rows at some positions.

    The optimizer knows that positions and columns are apart: what is not asked for is not read.
    """
    if not len(keys):
        return frame
    names = frame.columns
    size, row = F.col(f"{_METADATA}.file_size"), F.col(f"{_METADATA}.row_index")
    place = (F.shiftleft(size, _POSITION_BITS) + row).alias("place")
    columns = [exact_column(name).alias(f"c{number}") for number, name in enumerate(names)]
    listed = pa.table({"touched": keys})
    if len(keys) <= LISTED_ROWS:
        touched = spark.createDataFrame(listed)
    else:
        touched = frame_of(spark, stage_rows(listed, staging), listed.schema)
    broadcast = F.broadcast(touched)
    kept = frame.select(*columns, place).join(broadcast, F.expr("place = touched"), "left_anti")
    return kept.drop("place").toDF(*names)


def sum_counts(signed: DataFrame, names: Sequence[str]) -> DataFrame:
    """Counts summed per value of these columns, without zeros."""
    return (
        signed.groupBy(*map(exact_column, names))
        .agg(F.sum(COUNT).alias(COUNT))
        .where(F.col(COUNT) != 0)
    )


def repeat_counted(counted: DataFrame, names: Sequence[str]) -> DataFrame:
    """The bag that counted rows stand for; all counts are above zero."""
    columns = [exact_column(name) for name in names]
    copies = F.explode(F.sequence(F.lit(1).cast("bigint"), F.col(COUNT)))
    return counted.select(*columns, copies.alias(_NET)).drop(_NET)


def exact_column(name: str) -> Column:
    """A column by its exact name, whatever characters it has."""
    return F.col(f"`{name.replace('`', '``')}`")


def _write_partition(
    batches: Iterator[pa.RecordBatch],
    *,
    folder: StoragePath,
    stored: pa.Schema,
    batch: int,
    sorted_by: str | None,
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    part = context.partitionId() if context else 0
    rows = (pa.RecordBatch.from_arrays(b.columns, names=stored.names) for b in batches)
    written = list(write_stream(folder, stored, rows, batch, part, sorted_by=sorted_by))
    lines = [json.dumps(asdict(file)) for file in written]
    yield pa.RecordBatch.from_pydict({_DESCRIPTOR: pa.array(lines, pa.string())})
