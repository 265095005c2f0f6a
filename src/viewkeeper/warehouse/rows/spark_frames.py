"""Reading a view with Spark: the same states and changes as `read`, as DataFrames.

*Merge on read*. The body, what lies at or before the horizon, has one row per tuple and may be
large; the tail is small. So the tail is netted per row in Arrow; rows with a negative net are
broadcast and subtracted from the body by a left join on all columns, null-safely; rows with a
positive net are added. The body is never shuffled: on 3 million rows with a tail of 20,000, 1.1 s
against 4.7 s. Where the body is not one row per tuple, or has a count below zero, or the tail is
large, all is grouped.

Small files are read in Arrow and handed to Spark as one staged file, because Spark pays for every
file; rows never pass through the JVM from Python, which would change naive timestamps. The caller
names the folder for staged files, which must live as long as the DataFrame, and be reachable by the
executors.

Spark compares the checksums of the pages that it reads. What it then says is text, in which rows
may be quoted; so the text is only asked which files it names, and `find_read_damage` looks at those
itself.

Merging and grouping need the stored columns; hidden ones are dropped last.
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
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # py4j has no types
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses
from pyspark.sql.pandas.types import from_arrow_schema

from viewkeeper.errors import CorruptError
from viewkeeper.storage import disk
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake.data_files import stored_schema, write_stream
from viewkeeper.warehouse.lake.lake_table import ActiveFile
from viewkeeper.warehouse.lake.verified_files import check_footer, is_data_file_name, read_whole
from viewkeeper.warehouse.metadata.head import ViewHead, read_head
from viewkeeper.warehouse.metadata.record import DataFile
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

_NET = "__net"
_DESCRIPTOR = "descriptor"
_FILE = re.compile(r"file:(/[^\s'\"?*]*?\.parquet)")
_CHECKSUMS = "parquet.page.verify-checksum.enabled"


def state_frame(
    spark: SparkSession, root: Path, view: ViewHead, staging: Path, as_of: int | None = None
) -> DataFrame:
    """The view's rows as of a ts, a row as often as it occurs."""
    until = state_ts(view, as_of)
    files = files_until(root, view, until)
    body = [file for file in files if file.ts_max <= view.horizon]
    tail = [file for file in files if file.ts_max > view.horizon]
    mergeable = view.distinct and all(file.count_min > 0 for file in body)
    if mergeable and sum(file.rows for file in tail) <= NETTED_ROWS:
        net = sum_rows(read_signed(root, view, tail, until=until))
        rows = _merge_body(spark, root, view, body, net, staging)
    else:
        signed = signed_frame(spark, root, view, files, staging, until=until)
        rows = _repeat_rows(sum_counts(signed, view.schema.names).where(F.col(COUNT) > 0), view)
    return rows.select(*map(exact_column, view.shown_schema.names)) if view.hidden else rows


def changes_frame(
    spark: SparkSession,
    root: Path,
    view: ViewHead,
    staging: Path,
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
    root: Path,
    view: ViewHead,
    files: Sequence[ActiveFile],
    staging: Path,
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


def frame_of(spark: SparkSession, paths: Sequence[Path], schema: pa.Schema) -> DataFrame:
    """Parquet files as a DataFrame of exactly this schema; empty for no files."""
    types = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    if not paths:
        return spark.createDataFrame([], types)
    reader = spark.read.schema(types).option(_CHECKSUMS, "true")
    return reader.parquet(*map(str, paths))


def stage_rows(rows: pa.Table, staging: Path) -> list[Path]:
    """Rows as one staged file; none for no rows."""
    if rows.num_rows == 0:
        return []
    disk.make_folder(staging)
    path = staging.absolute() / f"tail-{uuid.uuid4().hex}.parquet"
    pq.write_table(rows, path, write_page_checksum=True)
    disk.protect_file(path)
    return [path]


def write_frame(
    frame: DataFrame, folder: Path, stored: pa.Schema, batch: int
) -> tuple[DataFile, ...]:
    """Write a DataFrame with exactly the columns of `stored` as data files of a folder.

    The rows never come to the driver: each task streams its partition through the one writer and
    returns descriptors. Only those of successful attempts arrive; other files are orphans.
    """
    write: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    write = partial(_write_partition, folder=folder.absolute(), stored=stored, batch=batch)
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
    root: Path,
    view: ViewHead,
    body: Sequence[ActiveFile],
    net: pa.Table,
    staging: Path,
) -> DataFrame:
    less = net.filter(pc.field(COUNT) < 0)
    more = net.filter(pc.field(COUNT) > 0)
    frame = signed_frame(spark, root, view, body, staging, until=view.horizon).drop(TS)
    if less.num_rows:
        frame = _subtract_rows(frame, frame_of(spark, stage_rows(less, staging), less.schema), view)
    rows = _repeat_rows(frame, view) if any(f.count_max > 1 for f in body) else frame.drop(COUNT)
    if not more.num_rows:
        return rows
    added = frame_of(spark, stage_rows(more, staging), more.schema)
    return rows.unionAll(_repeat_rows(added, view))


def _subtract_rows(body: DataFrame, less: DataFrame, view: ViewHead) -> DataFrame:
    names = view.schema.names
    renamed = less.toDF(*(f"__{i}" for i in range(len(names))), _NET)
    same = [exact_column(name).eqNullSafe(F.col(f"__{i}")) for i, name in enumerate(names)]
    joined = body.join(F.broadcast(renamed), reduce(Column.__and__, same), "left")
    left = F.col(COUNT) + F.coalesce(F.col(_NET), F.lit(0))
    return joined.select(*map(exact_column, names), left.alias(COUNT)).where(F.col(COUNT) > 0)


def sum_counts(signed: DataFrame, names: Sequence[str]) -> DataFrame:
    """Counts summed per value of these columns, without zeros."""
    return (
        signed.groupBy(*map(exact_column, names))
        .agg(F.sum(COUNT).alias(COUNT))
        .where(F.col(COUNT) != 0)
    )


def _repeat_rows(counted: DataFrame, view: ViewHead) -> DataFrame:
    return repeat_counted(counted, view.schema.names)


def repeat_counted(counted: DataFrame, names: Sequence[str]) -> DataFrame:
    """The bag that counted rows stand for; all counts are above zero."""
    columns = [exact_column(name) for name in names]
    copies = F.explode(F.sequence(F.lit(1).cast("bigint"), F.col(COUNT)))
    return counted.select(*columns, copies.alias(_NET)).drop(_NET)


def exact_column(name: str) -> Column:
    """A column by its exact name, whatever characters it has."""
    return F.col(f"`{name.replace('`', '``')}`")


def _write_partition(
    batches: Iterator[pa.RecordBatch], *, folder: Path, stored: pa.Schema, batch: int
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    part = context.partitionId() if context else 0
    rows = (pa.RecordBatch.from_arrays(b.columns, names=stored.names) for b in batches)
    written = list(write_stream(folder, stored, rows, batch, part))
    lines = [json.dumps(asdict(file)) for file in written]
    yield pa.RecordBatch.from_pydict({_DESCRIPTOR: pa.array(lines, pa.string())})
