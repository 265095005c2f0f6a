"""A view computed from scratch on Spark, from scans of running sources, as of given positions.

The initial load of plain views, verification and the specification are this one function. Each
relation is scanned
by a task under its own cut while writers go on; what the cut includes beyond the wanted position is
in the scan's tail and counts the other way. Since the join is bilinear, signed rows can be joined
as they are: the user's own SELECT runs with the product of the counts beside it, and one sum per
row gives the bag. A row that changed a thousand times since would be joined a thousand times with
each of the others, though, so what cancels out within a tail is left out before. A report is not
bilinear: its relations are netted to the bags that they were before the user's text runs over them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.delta.kernel import Kernel
from viewkeeper.engine.batch.part_sweep import cast_rows, types_of
from viewkeeper.engine.connections.guarded_source import unwrap_opener
from viewkeeper.engine.connections.open_sources import Openers
from viewkeeper.engine.spark.completed_order import complete_frame
from viewkeeper.engine.spark.error_silence import silence_errors
from viewkeeper.engine.spark.job_control import spark_schema
from viewkeeper.engine.spark.parsed_plan import check_plan, check_report
from viewkeeper.engine.spark.task_errors import Courier
from viewkeeper.errors import DefinitionError
from viewkeeper.updates.source_protocol import COUNT, TS, KeyRange, Opener, Snapshot
from viewkeeper.upstream.any_source import view_opener_of
from viewkeeper.view.definition import Field, Place, Relation, ViewDefinition
from viewkeeper.view.render import extend_query, quote_name, spark_type_of
from viewkeeper.warehouse.metadata.head import ViewHead

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


NETTED_ROWS = 500_000
"""So many changes of a tail are held in memory at a time."""


ROWS_PER_TASK = 50_000
"""For fewer values of a key, another task would cost more than it takes over."""

ROWS_PER_PART = 250_000
PARTS_MAX = 64
"""A range has about so many values where there are many, and a relation at most so many ranges:
what a load that is killed has to do again is what was under way."""


ParentFrames = Callable[[str], "DataFrame"]
"""The rows of a view of the project, a row as often as it occurs, as of the positions."""


def recompute_view(
    spark: SparkSession,
    view: ViewDefinition,
    openers: Openers,
    positions: Mapping[str, int],
    courier: Courier,
    parents: ParentFrames = lambda _: _no_parent(),
) -> DataFrame:
    """The view's rows and `_count` as of the positions: one row per tuple, no zeros."""
    bases = signed_bases(spark, view, openers, positions, courier, parents)
    if view.graph is not None:
        return count_report_rows(spark, view, bases)
    return count_view_rows(spark, view, bases)


def _no_parent() -> DataFrame:
    raise AssertionError("it reads no view of the project")


def signed_bases(
    spark: SparkSession,
    view: ViewDefinition,
    openers: Openers,
    positions: Mapping[str, int],
    courier: Courier,
    parents: ParentFrames,
) -> dict[Relation, DataFrame]:
    """What a view reads, with signed counts."""
    found = {}
    for relation in view.relations:
        fields = view.fields_of(relation)
        if relation.is_own:
            rows = count_once(parents(relation.table), fields)
        else:
            opener, position = openers[relation.source], positions[relation.source]
            rows = scan_relation(spark, relation, fields, opener, position, courier)
        found[relation] = rows
    return found


def count_once(rows: DataFrame, fields: Sequence[Field]) -> DataFrame:
    """These columns of a bag of rows, each row with a count of one."""
    return rows.selectExpr(*(quote_name(field.name) for field in fields), f"1L AS `{COUNT}`")


def count_view_rows(
    spark: SparkSession, view: ViewDefinition, bases: Mapping[Relation, DataFrame]
) -> DataFrame:
    """The view over base rows with signed counts: one row per tuple, no zeros."""
    for place in view.places:
        bases[place.relation].createOrReplaceTempView(f"__place_{place.index}")
    product = " * ".join(f"{quote_name(place.alias)}.`{COUNT}`" for place in view.places)
    query = extend_query(view, [f"{product} AS `{COUNT}`"])
    check_plan(spark, query, {f"__place_{place.index}" for place in view.places})
    from viewkeeper.engine.compile.query_compiler import definition_errors
    from viewkeeper.warehouse.rows.spark_frames import sum_counts

    try:
        with definition_errors():
            rows = spark.sql(query)
    except DefinitionError as error:
        message = error.message.partition(": ")[2] if error.line is not None else error.message
        raise DefinitionError(f'view "{view.name}": {message}') from error
    return sum_counts(rows, [output.name for output in view.outputs])


def count_report_rows(
    spark: SparkSession, view: ViewDefinition, bases: Mapping[Relation, DataFrame]
) -> DataFrame:
    """A report, by the user's own text, over base rows with signed counts."""
    for place in view.places:
        rows = bag_of(bases[place.relation])
        shown = [_column_text(field, place) for field in place.known]
        rows.selectExpr(*shown).createOrReplaceTempView(f"__place_{place.index}")
    check_report(spark, view.query)
    with silence_errors():
        rows = complete_frame(spark.sql(view.query))
    return count_rows(rows.toDF(*(output.name for output in view.outputs)))


def _column_text(field: Field, place: Place) -> str:
    """A column as the table has it; NULL if the report names it and does not need it."""
    name = quote_name(field.name)
    return name if field in place.fields else f"CAST(NULL AS {spark_type_of(field.type)}) AS {name}"


def bag_of(signed: DataFrame) -> DataFrame:
    """The bag of rows that signed rows add up to, a row as often as it occurs."""
    from viewkeeper.warehouse.rows.spark_frames import repeat_counted, sum_counts

    names = [name for name in signed.columns if name not in (COUNT, TS)]
    return repeat_counted(sum_counts(signed, names), names)


def count_rows(rows: DataFrame) -> DataFrame:
    """Each row once, with `_count`."""
    from viewkeeper.warehouse.rows.spark_frames import exact_column

    columns = [exact_column(name) for name in rows.columns]
    return rows.groupBy(*columns).count().withColumnRenamed("count", COUNT)


def scan_relation(
    spark: SparkSession,
    relation: Relation,
    fields: Sequence[Field],
    opener: Opener,
    position: int,
    courier: Courier,
) -> DataFrame:
    """The relation's rows, counted, as of a position: those of a parent's view are read by Spark,
    a database by several tasks, each of which reads a range of a key, or by one."""
    if (rows := _scan_parent_view(spark, relation, fields, opener, position)) is not None:
        return rows
    schema = pa.schema([*((f.name, f.type) for f in fields), (COUNT, pa.int64())])
    parts = divide_scan(relation, fields, opener, spark.sparkContext.defaultParallelism)

    def scan(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_numpy():
                part = parts[int(number)]
                yield from read_signed_batches(relation, fields, opener, position, part)

    tasks = spark.range(0, len(parts), 1, len(parts))
    return tasks.mapInArrow(courier.wrap_stage(scan), spark_schema(schema))


def divide_scan(
    relation: Relation, fields: Sequence[Field], opener: Opener, slots: int
) -> Sequence[KeyRange | None]:
    """The ranges of a key that tasks read side by side; None alone where one task reads all.

    A range is a condition on the row alone, so that each has its own cut and its own tail.
    """
    whole = [field.name for field in fields if pa.types.is_integer(field.type)]
    if not whole:
        return (None,)
    with closing(opener()) as snapshot:
        found = snapshot.find_key_range(relation, whole)
    if found is None or found.low is None or found.high is None:
        return (None,)
    values = found.high - found.low
    many = min(values // ROWS_PER_PART, PARTS_MAX)
    return found.split_range(max(min(slots, values // ROWS_PER_TASK), many))


def read_signed_batches(
    relation: Relation,
    fields: Sequence[Field],
    opener: Opener,
    position: int,
    part: KeyRange | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a table, or of a range of it, with `_count`: what a scan finds, and what it saw
    too early, negated."""
    with closing(opener()) as snapshot:
        scan = SignedScan(snapshot, relation, fields, position, part)
        yield from scan.rows
        yield from scan.tail


class SignedScan:
    """A scan of a table, or of a range of it, in exact types and with `_count`.

    `rows` are what it finds; `tail` is what it saw too early, negated and netted. Both are read
    once, as they are asked for, in any order.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        relation: Relation,
        fields: Sequence[Field],
        position: int,
        part: KeyRange | None,
    ) -> None:
        self._relation = relation
        self._types = types_of(fields)
        self._columns = [field.name for field in fields]
        self.schema = pa.schema([*self._types.items(), (COUNT, pa.int64())])
        found = snapshot.scan_relation(relation, self._columns, position, part)
        ones = ((b, pa.array(np.ones(b.num_rows, np.int64))) for b in found.batches)
        changes = ((b, pc.negate(b.column(COUNT))) for b in found.tail)
        self.rows = (rows_in_range(self._make_exact(*each), part) for each in ones)
        self.tail = net_changes(rows_in_range(self._make_exact(*each), part) for each in changes)

    def _make_exact(self, rows: pa.RecordBatch, counts: pa.Array[Any]) -> pa.RecordBatch:
        exact = cast_rows(self._relation, rows.select(self._columns), self._types)
        return pa.record_batch([*exact.columns, counts], schema=self.schema)


def rows_in_range(rows: pa.RecordBatch, part: KeyRange | None) -> pa.RecordBatch:
    """Those rows that are of a range; a row without a value is of the first."""
    if part is None:
        return rows
    key = rows.column(part.column)
    inside = pa.array(np.ones(rows.num_rows, bool))
    if part.low is not None:
        inside = pc.greater_equal(key, part.low)
    if part.high is not None:
        inside = pc.and_(inside, pc.less(key, part.high))
    inside = pc.fill_null(inside, part.low is None)
    # A source that knows ranges gives no other rows, and then nothing has to be copied.
    return rows if pc.all(inside, min_count=0).as_py() else rows.filter(inside)


def net_changes(
    changes: Iterable[pa.RecordBatch], rows_max: int = NETTED_ROWS
) -> Iterator[pa.RecordBatch]:
    """The same signed rows, without those that cancel each other among some `rows_max`."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in changes:
        held.append(batch)
        rows += batch.num_rows
        if rows >= rows_max:
            held = _net_pieces(held)
            rows = sum(piece.num_rows for piece in held)
            if rows > rows_max // 2:
                yield from held
                held, rows = [], 0
    yield from _net_pieces(held)


def _net_pieces(changes: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if not changes or changes[0].num_columns == 1:
        return changes
    return Kernel().consolidate(pa.Table.from_batches(changes)).to_batches()


def _scan_parent_view(
    spark: SparkSession,
    relation: Relation,
    fields: Sequence[Field],
    opener: Opener,
    position: int,
) -> DataFrame | None:
    """The rows of a view of another project, each counted once; None if it is none, or if its
    values have to be brought into other types."""
    from viewkeeper.warehouse.rows.spark_frames import exact_column, state_frame

    views = view_opener_of(unwrap_opener(opener))
    if views is None:
        return None
    root, staging, types = views.reader.parent.root, views.staging, types_of(fields)

    def rows(view: ViewHead) -> DataFrame | None:
        if any(view.schema.field(name).type != kind for name, kind in types.items()):
            return None
        frame = state_frame(spark, root, view, staging, position).select(*map(exact_column, types))
        return frame.selectExpr("*", f"1L AS `{COUNT}`")

    return views.reader.apply_to_view(relation.table, tuple(types), position, rows)
