"""The task: one part of a batch, swept from its origin rows to files of the view.

This function is what a Spark task runs and what the driver runs inline; there is no second way. It
opens its own snapshots of the sources that it has to ask, each with its own cut and tail, sweeps,
and writes the result with the one writer of data files. What it returns is small: descriptors, or
the rows themselves where they are few, so that a batch of many small parts becomes one file.

An error that concerns one view (a source is away, a value does not fit) is returned, not raised, so
that the views beside it go on; so is what nobody foresaw, with its traceback.

A source gives values in the type that a column has now. A type that was widened while a batch is
under way still holds every value that the definition knows; one that no longer fits shows that a
schema change came in between, and the question counts as broken.

The parts of a batch are swept inline in the driver, or as one Spark job. On Spark the batch is
broadcast once, as Arrow, and every task picks its part by number; rows never pass through the JVM,
and there is no shuffle. An RDD carries the numbers out and the descriptors back, which costs half
of what a DataFrame does. A view with expressions that only Spark can evaluate has a job of its own:
sweep, Spark SQL, write, three stages of one pipeline in one task.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from viewkeeper.delta.exact_cast import exact_cast
from viewkeeper.delta.kernel import Kernel
from viewkeeper.engine.batch.own_relations import Ask, OwnRelations, multiply_copies
from viewkeeper.engine.connections.open_sources import Openers
from viewkeeper.engine.spark.job_control import limit_job, spark_schema
from viewkeeper.engine.spark.task_errors import Courier, shorten_detail
from viewkeeper.errors import BrokenQueryError, JobLostError, ViewkeeperError, blame_view
from viewkeeper.maintain.sweep_family.batch_sweep import Part, slice_origins
from viewkeeper.maintain.view_change import change_in_pages, project_outputs, run_pages
from viewkeeper.stages.fold import combine_partials, pre_aggregate
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.updates.queue import BatchChanges
from viewkeeper.updates.source_protocol import COUNT, TS, Answer, Lookup, Snapshot
from viewkeeper.view.definition import Core, Field, Fold, Relation, ViewDefinition
from viewkeeper.view.expression import Expression
from viewkeeper.view.render import quote_name, spark_sql_of, spark_type_of
from viewkeeper.view.sweep_plan import SweepPlan
from viewkeeper.warehouse.lake.data_files import stored_schema, write_rows, write_stream
from viewkeeper.warehouse.metadata.record import DataFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def typed_answer(view: ViewDefinition, lookup: Lookup, answer: Answer) -> Answer:
    """The same answer in the types of the place that asked."""
    fields = {field.name: field.type for field in view.places[lookup.place].fields}
    rows = cast_rows(lookup.relation, answer.rows, fields)
    tail = cast_rows(lookup.relation, answer.tail, fields)
    if rows is answer.rows and tail is answer.tail and answer.pages is None:
        return answer
    pages = answer.pages and answer.pages.with_conversion(
        partial(cast_rows, lookup.relation, types=fields)
    )
    return replace(answer, rows=rows, tail=tail, pages=pages)


def cast_rows(relation: Relation, rows: Rows, types: Mapping[str, pa.DataType]) -> Rows:
    """The rows with these columns in these types."""
    known = rows.schema
    if all(types.get(field.name, field.type) == field.type for field in known):
        return rows
    wanted = pa.schema([(f.name, types.get(f.name, f.type)) for f in known])
    try:
        arrays = [exact_cast(rows.column(f.name), f.type) for f in wanted]
        return type(rows).from_arrays(arrays, schema=wanted)
    except (ValueError, pa.ArrowNotImplementedError) as error:
        what = f"values do not fit the type that their column had: {error}"
        raise BrokenQueryError(relation.source, relation.table, what) from error


def types_of(fields: Sequence[Field]) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in fields}


RETURN_BYTES = 256 << 10
"""Results below this size come back to the driver instead of becoming a file of their own."""

FOLDED_ROWS = 100_000
"""Partial sums of pieces are added up when they have more rows than this."""


@dataclass(frozen=True, slots=True)
class BatchMember:
    """What is swept in a batch: a plain view, or a core of a graph.

    `schema` and `folder` are those of its Delta Lake table; a core without one gives its rows back,
    or what a `fold` that alone reads them makes of them.
    """

    name: str
    plan: SweepPlan
    schema: pa.Schema
    folder: StoragePath | None
    core: Core | None = None
    fold: Fold | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """What all tasks of a batch share; sent to them once."""

    number: int
    views: Mapping[str, BatchMember]
    changes: BatchChanges
    ends: Mapping[str, int]
    """Per source, the position where the batch ends; changes after it are an answer's tail."""
    openers: Openers
    reader: str
    """Whose batch it is: several projects may share a Spark session."""
    own: OwnRelations


@dataclass(frozen=True, slots=True)
class PartTask:
    """One part of one view."""

    view: str
    number: int
    part: Part


@dataclass(slots=True)
class LookupTally:
    """What was asked of the sources: the lookups of each, and the rows that they gave."""

    lookups: Counter[str] = field(default_factory=Counter)
    rows: int = 0

    def add_lookups(self, lookups: Mapping[str, int], rows: int) -> None:
        """Count what was asked elsewhere, and the rows that came."""
        self.lookups.update(lookups)
        self.rows += rows


@dataclass(frozen=True, slots=True)
class PartResult:
    """What became of a part: files or rows, and what it cost."""

    view: str
    files: tuple[DataFile, ...] = ()
    rows: pa.Table | None = None
    lookups: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    error: ViewkeeperError | None = None
    asked_rows: int = 0


def sweep_part(batch: Batch, task: PartTask) -> PartResult:
    """Sweep one part; errors of the view are in the result."""
    started = time.perf_counter()
    view = batch.views[task.view]
    tally = LookupTally()
    try:
        with blame_view(task.view), open_lookups(batch, tally) as ask:
            pieces = swept_pieces(batch, task, ask, partial(project_outputs, Kernel(), view.plan))
            files, small = _keep_pieces(batch, task, view, pieces)
    except ViewkeeperError as error:
        return PartResult(task.view, lookups=tally.lookups, error=error)
    seconds = time.perf_counter() - started
    lookups = dict(tally.lookups)
    return PartResult(task.view, files, small, lookups, seconds, asked_rows=tally.rows)


def swept_pieces(
    batch: Batch, task: PartTask, ask: Ask, finish: Callable[[pa.Table], pa.Table] | None = None
) -> Iterator[pa.Table]:
    """The joined rows of a part in pieces, each as `finish` makes it; Spark finishes some views."""
    plan, known = batch.views[task.view].plan, batch.changes.relations
    places = plan.view.places
    origins = {
        piece.place: slice_origins(plan, piece, known[places[piece.place].relation])
        for piece in task.part
    }
    sweep = change_in_pages(Kernel(), plan, origins, batch.changes, batch.own.paging, finish)
    return run_pages(sweep, partial(ask, plan.view))


@contextmanager
def open_lookups(batch: Batch, tally: LookupTally) -> Iterator[Ask]:
    """A way to ask the sources of a batch; snapshots are opened when first needed, and closed."""
    snapshots: dict[str, Snapshot] = {}
    with ExitStack() as closing:

        def ask(view: ViewDefinition, lookup: Lookup) -> Answer:
            name = lookup.relation.source
            if lookup.relation.is_own:
                return batch.own.answer_lookup(lookup, batch.changes, ask)
            if name not in snapshots:
                snapshots[name] = batch.openers[name]()
                closing.callback(snapshots[name].close)
            tally.lookups[name] += 1
            answer = snapshots[name].answer_lookup(lookup, batch.ends[name])
            tally.rows += answer.row_count
            return typed_answer(view, lookup, answer)

        yield ask


def _keep_pieces(
    batch: Batch, task: PartTask, view: BatchMember, pieces: Iterator[pa.Table]
) -> tuple[tuple[DataFile, ...], pa.Table | None]:
    """Rows as files where they are many, as they are where they are few; what a fold makes of them
    piece by piece."""
    if view.core is not None:
        core = view.core
        pieces = (multiply_copies(core, piece) for piece in pieces)
    pieces = (piece for piece in pieces if piece.num_rows)
    if view.fold is not None:
        return (), _fold_pieces(view.fold, pieces)
    if view.folder is None:
        held = list(pieces)
        return (), pa.concat_tables(held).combine_chunks() if held else None
    names = [*view.schema.names, COUNT, TS]
    return _write_pieces(batch, task, view.folder, view.schema, (p.select(names) for p in pieces))


def _write_pieces(
    batch: Batch, task: PartTask, folder: StoragePath, schema: pa.Schema, pieces: Iterator[pa.Table]
) -> tuple[tuple[DataFile, ...], pa.Table | None]:
    held: list[pa.Table] = []
    for piece in pieces:
        held.append(piece)
        if sum(each.nbytes for each in held) >= RETURN_BYTES:
            break
    else:
        return (), pa.concat_tables(held).combine_chunks() if held else None
    following = next(pieces, None)
    if following is None:
        rows = pa.concat_tables(held)
        return (write_rows(folder, schema, rows, batch.number, task.number),), None
    batches = (b for piece in chain(held, [following], pieces) for b in piece.to_batches())
    stored = stored_schema(schema)
    return tuple(write_stream(folder, stored, batches, batch.number, task.number)), None


def _fold_pieces(fold: Fold, pieces: Iterator[pa.Table]) -> pa.Table | None:
    """Partial sums of all pieces, added up whenever they have become many."""
    held: list[pa.Table] = []
    least = FOLDED_ROWS
    for piece in pieces:
        held.append(pre_aggregate(fold, piece))
        if sum(each.num_rows for each in held) > least:
            held = [combine_partials(fold, held)]
            least = max(FOLDED_ROWS, 2 * held[0].num_rows)
    return combine_partials(fold, held) if held else None


def run_inline(batch: Batch, tasks: Sequence[PartTask]) -> list[PartResult]:
    """Every part, one after the other, here."""
    return [sweep_part(batch, task) for task in tasks]


def run_on_spark(
    spark: SparkSession, batch: Batch, tasks: Sequence[PartTask], minutes: float
) -> list[PartResult]:
    """Every part as a task of one job; if the job is lost, that is every view's error."""
    from py4j.protocol import Py4JJavaError

    shared = spark.sparkContext.broadcast((_for_tasks(batch), tuple(tasks)))

    def sweep(number: int) -> PartResult:
        mine, parts = shared.value
        return sweep_part(mine, parts[number])

    try:
        with limit_job(spark, f"batch {batch.number} of {batch.reader}", minutes):
            numbers = spark.sparkContext.parallelize(range(len(tasks)), len(tasks))
            return numbers.map(sweep).collect()
    except Py4JJavaError as error:
        # A task returns what is wrong with its view: this is of the cluster.
        detail = shorten_detail(str(error.java_exception))
        lost: ViewkeeperError = JobLostError("Spark gave up a job of the batch", detail=detail)
    except JobLostError as error:
        lost = error
    finally:
        shared.destroy()
    return [PartResult(view, error=lost) for view in dict.fromkeys(task.view for task in tasks)]


def _for_tasks(batch: Batch) -> Batch:
    """The batch without the indexes, which only this process has."""
    return replace(batch, own=replace(batch.own, find_stored=None))


def run_late(
    spark: SparkSession, batch: Batch, view: str, tasks: Sequence[PartTask], minutes: float
) -> list[PartResult]:
    """The parts of one view whose last expressions Spark evaluates, as one job."""
    courier, began = Courier(), time.perf_counter()
    shared = spark.sparkContext.broadcast((_for_tasks(batch), tuple(tasks)))
    target = batch.views[view]
    asked = {name: spark.sparkContext.accumulator(0) for name in batch.ends}
    asked_rows = spark.sparkContext.accumulator(0)

    def sweep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine, parts = shared.value
        for numbers in batches:
            for number in numbers.column(0).to_numpy():
                tally = LookupTally()
                with open_lookups(mine, tally) as ask:
                    for rows in swept_pieces(mine, parts[number], ask):
                        yield from rows.to_batches()
                for name, count in tally.lookups.items():
                    asked[name].add(count)
                asked_rows.add(tally.rows)

    try:
        with limit_job(spark, f"batch {batch.number} of {view} of {batch.reader}", minutes):
            numbers = spark.range(0, len(tasks), 1, len(tasks))
            stage = courier.wrap_stage(sweep)
            joined = numbers.mapInArrow(stage, _joined_schema(target.plan))
            rows = apply_late_expressions(joined, target.plan, target.schema)
            files, table = courier.run_job(lambda: _keep_frame(rows, batch, target))
    except ViewkeeperError as error:
        return [PartResult(view, error=error)]
    finally:
        shared.destroy()
    lookups = {name: a.value for name, a in asked.items()}
    seconds = time.perf_counter() - began
    return [PartResult(view, files, table, lookups, seconds, asked_rows=asked_rows.value)]


def _keep_frame(
    rows: DataFrame, batch: Batch, target: BatchMember
) -> tuple[tuple[DataFile, ...], pa.Table | None]:
    """Write the rows of a view; those of a core that has no table come back."""
    from viewkeeper.warehouse.rows.spark_frames import write_frame

    stored = stored_schema(target.schema)
    if target.folder is not None:
        return write_frame(rows, target.folder, stored, batch.number), None
    table = rows.toArrow().select(stored.names).cast(stored)
    if target.core is not None:
        table = multiply_copies(target.core, table)
    return (), pre_aggregate(target.fold, table) if target.fold else table


def apply_late_expressions(joined: DataFrame, plan: SweepPlan, schema: pa.Schema) -> DataFrame:
    """Spark's share of a view change: its conditions and its outputs.

    Counts are not summed here: a sum would need a shuffle, and readers sum anyway.
    """
    for condition in plan.late:
        joined = joined.where(spark_sql_of(condition))
    outputs = zip(plan.view.outputs, schema, strict=True)
    columns = [
        f"{_canonical_sql(o.expression, f.type)} AS {quote_name(o.name)}" for o, f in outputs
    ]
    return joined.selectExpr(*columns, f"`{COUNT}`", f"`{TS}`")


def _canonical_sql(expression: Expression, kind: pa.DataType) -> str:
    """The expression with one bit pattern for zero, as the kernel has it."""
    text = spark_sql_of(expression)
    return f"({text} + CAST(0 AS {spark_type_of(kind)}))" if pa.types.is_floating(kind) else text


def _joined_schema(plan: SweepPlan) -> Any:
    fields = [(f"{p.index}.{f.name}", f.type) for p in plan.view.places for f in p.shown_fields]
    schema = pa.schema([*fields, (TS, pa.int64()), (COUNT, pa.int64())])
    return spark_schema(schema)
