"""The scans of a load as parts: tasks that read a range of a relation each, and write files.

There are two ways. A view over one table that shows the key by which its scan is divided is loaded
*directly*: each task evaluates the view on the rows that it reads and writes them as a file of the
view's table. Rows of different ranges differ in the key, and so do rows of one scan; rows that
somebody changed since the position are held back until they are netted with the tail of the scan.
So every row of the view is written once, with its count, and nothing passes through the JVM.

Any other view has its scans *staged*: each task writes the signed rows of its range to a file that
Spark reads. Then Spark knows how large the relations are before it plans the join.

Either way a part that is done is kept when the load dies
(`viewkeeper.warehouse.metadata.unfinished_load`).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.kernel import Kernel
from viewkeeper.engine.connections.open_sources import Openers
from viewkeeper.engine.load.view_recomputation import (
    NETTED_ROWS,
    SignedScan,
    divide_scan,
    read_signed_batches,
)
from viewkeeper.engine.spark.task_errors import Courier
from viewkeeper.errors import ViewkeeperError
from viewkeeper.maintain.view_change import map_changes
from viewkeeper.storage import stored_files
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import storage_of
from viewkeeper.updates.source_protocol import COUNT, TS, KeyRange, Opener
from viewkeeper.view.definition import Field, Relation, ViewDefinition
from viewkeeper.view.expression import Column
from viewkeeper.view.sweep_plan import SweepPlan, sweep_plan_of
from viewkeeper.warehouse.lake.data_files import stored_schema, write_stream
from viewkeeper.warehouse.metadata.record import DataFile
from viewkeeper.warehouse.metadata.unfinished_load import (
    LoadDivision,
    LoadPart,
    find_division,
    find_part,
    forget_part,
    keep_division,
    keep_part,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class RepeatedKeyError(Exception):
    """Two rows of a scan have the same key, or too much has changed meanwhile: the view cannot be
    loaded directly."""


@dataclass(frozen=True, slots=True)
class RelationScan:
    """How a relation is read: as of a position, in ranges."""

    number: int
    relation: Relation
    fields: tuple[Field, ...]
    opener: Opener
    position: int
    ranges: tuple[KeyRange | None, ...]


@dataclass(frozen=True, slots=True)
class ScanTask:
    """One part of a load."""

    scan: RelationScan
    number: int

    @property
    def part(self) -> KeyRange | None:
        return self.scan.ranges[self.number]


def plan_scans(
    view: ViewDefinition,
    openers: Openers,
    positions: Mapping[str, int],
    slots: int,
    folder: StoragePath | None,
) -> list[RelationScan]:
    """The scans of all tables that a view reads; divided as they were by the load that the folder
    is of, if that came so far."""
    relations = [relation for relation in view.relations if not relation.is_own]
    known = None if folder is None else find_division(folder)
    if known is None or len(known.ranges) != len(relations):
        fields = [view.fields_of(relation) for relation in relations]
        known = LoadDivision(
            tuple(
                tuple(divide_scan(r, fs, openers[r.source], slots))
                for r, fs in zip(relations, fields, strict=True)
            )
        )
        if folder is not None:
            keep_division(folder, known)
    return [
        RelationScan(number, r, view.fields_of(r), openers[r.source], positions[r.source], ranges)
        for number, (r, ranges) in enumerate(zip(relations, known.ranges, strict=True))
    ]


def find_direct_key(view: ViewDefinition, scans: Sequence[RelationScan]) -> str | None:
    """The column of the view that is the key of its one scan; None if it is not loaded so."""
    if view.graph is not None or view.needs_spark or view.schema is None or len(view.places) != 1:
        return None
    part = scans[0].ranges[0] if scans else None
    if part is None:
        return None
    columns = {o.name: o.expression for o in view.outputs if isinstance(o.expression, Column)}
    return next((name for name, column in columns.items() if column.name == part.column), None)


@dataclass(frozen=True, slots=True)
class DirectLoad:
    """What the tasks of a direct load share."""

    plan: SweepPlan
    schema: pa.Schema
    table: StoragePath
    kept: StoragePath | None
    batch: int
    ts: int

    def write_part(self, task: ScanTask) -> LoadPart:
        """Write the view's rows for a range, unless that was done before."""
        if self.kept is not None:
            known = _whole_part(self.kept, task, self.table)
            if known is not None:
                return known
        scan, stored = task.scan, stored_schema(self.schema)
        with closing(scan.opener()) as snapshot:
            signed = SignedScan(snapshot, scan.relation, scan.fields, scan.position, task.part)
            rows = self._view_rows(signed, task)
            files = tuple(write_stream(self.table, stored, rows, self.batch, task.number))
        part = LoadPart(files)
        if self.kept is None:
            return part
        return keep_part(self.kept, scan.number, task.number, part)

    def _view_rows(self, signed: SignedScan, task: ScanTask) -> Iterator[pa.RecordBatch]:
        """The view's rows for a range, each once, as of the position."""
        assert task.part is not None, "a direct load is divided by a key"
        key, held, keys = task.part.column, list[pa.RecordBatch](), list[Any]()
        # What was changed since the position comes first: its rows are not to be written as read.
        tail = list(signed.tail)
        if sum(batch.num_rows for batch in tail) > NETTED_ROWS:
            raise RepeatedKeyError
        changed = pa.Table.from_batches(tail, signed.schema)[key].unique()
        for batch in signed.rows:
            values = batch.column(key)
            # A row without a key may be there several times.
            waits = pc.or_(pc.is_in(values, value_set=changed), pc.is_null(values))
            if pc.any(waits, min_count=0).as_py():
                held.append(batch.filter(waits))
                batch = batch.filter(pc.invert(waits))
            keys.append(batch.column(key).to_numpy())
            yield from self._project(pa.Table.from_batches([batch])).to_batches()
        _refuse_repeated(keys)
        if held or tail:
            net = Kernel().consolidate(pa.Table.from_batches([*held, *tail]))
            yield from Kernel().consolidate(self._project(net)).to_batches()

    def _project(self, rows: pa.Table) -> pa.Table:
        stamps = pa.array(np.full(rows.num_rows, self.ts, np.int64))
        found = map_changes(Kernel(), self.plan, rows.append_column(TS, stamps))
        return found.select(stored_schema(self.schema).names)


def _refuse_repeated(keys: Sequence[Any]) -> None:
    """A key that is no key: the database may not enforce what it declares."""
    values = np.sort(np.concatenate(keys)) if keys else np.empty(0, np.int64)
    if len(values) > 1 and bool((values[1:] == values[:-1]).any()):
        raise RepeatedKeyError


def load_directly(
    spark: SparkSession, scans: Sequence[RelationScan], load: DirectLoad, courier: Courier
) -> tuple[DataFile, ...] | None:
    """The files of a view over one table; None if it turns out that it cannot be loaded so."""
    tasks = [ScanTask(scan, number) for scan in scans for number in range(len(scan.ranges))]
    done = _run_tasks(spark, tasks, load.write_part, courier)
    if any(part is None for part in done):
        return None
    return tuple(file for part in done if part is not None for file in part.files)


def direct_load(
    view: ViewDefinition, table: StoragePath, kept: StoragePath | None, batch: int, ts: int
) -> DirectLoad:
    """What the tasks of a direct load need to know of a view."""
    assert view.schema is not None, "the kernel knows its types"
    return DirectLoad(sweep_plan_of(view), view.schema, table, kept, batch, ts)


@dataclass(frozen=True, slots=True)
class StagedScans:
    """The scans of a view as files in the folder of its load."""

    folder: StoragePath

    def write_part(self, task: ScanTask) -> LoadPart:
        """Write the signed rows of a range, unless that was done before."""
        known = _whole_part(self.folder, task, self.folder)
        if known is not None:
            return known
        scan, schema = task.scan, _staged_schema(task.scan.fields)
        name = f"rows-{scan.number}-{task.number}-{uuid.uuid4().hex}.parquet"
        batches = read_signed_batches(
            scan.relation, scan.fields, scan.opener, scan.position, task.part
        )
        with closing(batches):
            written = _stage_file(self.folder, name, schema, batches)
        return keep_part(self.folder, scan.number, task.number, LoadPart((written,)))

    def read_frame(
        self, spark: SparkSession, scan: RelationScan, parts: Sequence[LoadPart]
    ) -> DataFrame:
        """The signed rows of a relation, from its parts."""
        from viewkeeper.warehouse.rows.spark_frames import frame_of

        files = [file for part in parts for file in part.files]
        paths = [self.folder / file.path for file in files if file.rows]
        names = [*(field.name for field in scan.fields), COUNT]
        return frame_of(spark, paths, _staged_schema(scan.fields)).toDF(*names)


def _stage_file(
    folder: StoragePath, name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> DataFile:
    """Write rows to a file that only Spark reads; it has its name when it is whole."""
    rows, file = 0, stored_files.begin_file(folder, name)
    try:
        with pq.ParquetWriter(
            file.sink, schema, compression="lz4", use_dictionary=False, write_page_checksum=True
        ) as writer:
            for batch in batches:
                writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
                rows += batch.num_rows
        place, size = file.finish_file(lambda path: path.name)
    except BaseException:
        file.abandon_file()
        raise
    return DataFile(place.name, size, rows, 0, 1, 1, 0, 0)


def _staged_schema(fields: Sequence[Field]) -> pa.Schema:
    """Columns by their numbers: a table may call its own what Spark cannot tell apart."""
    kinds = [*(field.type for field in fields), pa.int64()]
    return pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)])


def stage_scans(
    spark: SparkSession, scans: Sequence[RelationScan], folder: StoragePath, courier: Courier
) -> dict[Relation, DataFrame]:
    """The signed rows of relations, read by tasks side by side and written to files first."""
    staged = StagedScans(folder)
    tasks = [ScanTask(scan, number) for scan in scans for number in range(len(scan.ranges))]
    done = _run_tasks(spark, tasks, staged.write_part, courier)
    parts = {
        scan.relation: [
            part
            for task, part in zip(tasks, done, strict=True)
            if task.scan is scan and part is not None
        ]
        for scan in scans
    }
    return {scan.relation: staged.read_frame(spark, scan, parts[scan.relation]) for scan in scans}


def _run_tasks(
    spark: SparkSession,
    tasks: Sequence[ScanTask],
    write: Callable[[ScanTask], LoadPart],
    courier: Courier,
) -> list[LoadPart | None]:
    """What every part has written; None for one that has a repeated key."""
    if not tasks:
        return []
    shared = spark.sparkContext.broadcast(tuple(tasks))

    def run(number: int) -> LoadPart | ViewkeeperError | None:
        try:
            return write(shared.value[number])
        except RepeatedKeyError:
            return None
        except ViewkeeperError as error:
            return error

    try:
        numbers = spark.sparkContext.parallelize(range(len(tasks)), len(tasks))
        found = courier.run_job(lambda: numbers.map(run).collect())
    finally:
        shared.destroy()
    done = []
    for part in found:
        if isinstance(part, ViewkeeperError):
            raise part
        done.append(part)
    return done


def _whole_part(folder: StoragePath, task: ScanTask, home: StoragePath) -> LoadPart | None:
    """What a part has written, if its files are all there with their sizes."""
    part = find_part(folder, task.scan.number, task.number)
    if part is None:
        return None
    for file in part.files:
        found = storage_of(home).file_facts(home / file.path)
        if found is None or found.size != file.size:
            forget_part(folder, task.scan.number, task.number)
            return None
    return part
