"""Initial load: a view computed from running sources, as of positions that the ledger knows.

The positions are chosen before the scans; every scan's cut lies at or after them, and what a scan
saw too early is in its tail and counts the other way. So the load stands for one ts, exactly, while
writers go on, and maintenance continues from that ts. A stored view whose definition has changed
is repaired in the same way, by the difference between what is computed and what is stored.

Views over few rows are loaded here, without Spark (`viewkeeper.engine.load.inline_load`). Others
are read in parts (`viewkeeper.engine.load.scan_parts`), and those that are done are kept when a
load dies, if the target says where.

A view with a graph has several tables: one for each stored node, and its own. A fold is loaded by
the very functions that maintain it, from the rows of its input, so that what is retracted later has
the very bits of what was inserted; the nodes above it read what was written. So
is a recompute, which has no table unless it is the view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from viewkeeper.delta.arrow_compute import pc
from viewkeeper.engine.connections.open_sources import Openers
from viewkeeper.engine.load.inline_load import InlineLoad, can_load_inline, read_few_rows
from viewkeeper.engine.load.scan_parts import (
    direct_load,
    find_direct_key,
    load_directly,
    plan_scans,
    stage_scans,
)
from viewkeeper.engine.load.view_recomputation import (
    bag_of,
    count_once,
    count_report_rows,
    count_rows,
    count_view_rows,
    signed_bases,
)
from viewkeeper.engine.spark.job_control import limit_job, spark_schema
from viewkeeper.engine.spark.spark_session import SparkHandle, child_session
from viewkeeper.engine.spark.task_errors import Courier
from viewkeeper.errors import ExpressionError, UnsupportedError
from viewkeeper.stages.fold import (
    combine_partials,
    load_groups,
    pre_aggregate,
    stored_schema_of,
)
from viewkeeper.stages.fold_layout import layout_of
from viewkeeper.stages.key_recompute import ROWS_MAX, evaluate_rows, too_many_rows
from viewkeeper.storage import stored_files
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.view.definition import (
    Field,
    Fold,
    Graph,
    KeyRecompute,
    Relation,
    ViewDefinition,
    relation_of_node,
)
from viewkeeper.view.graph import stored_nodes
from viewkeeper.view.graph_sql import node_query
from viewkeeper.warehouse.lake.data_files import stored_schema, write_rows
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.record import DataFile
from viewkeeper.warehouse.metadata.unfinished_load import forget_parts
from viewkeeper.warehouse.rows.view_state import (
    files_until,
    read_counted,
    read_stored,
    sum_rows,
    table_folder,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """The files of a loaded table, the schema of its rows, and which columns are not shown."""

    schema: pa.Schema
    files: tuple[DataFile, ...]
    hidden: tuple[str, ...] = ()


HELD_ROWS = 200_000
"""So many partial sums a task of a load holds in memory."""

LoadedTables = Mapping[str, LoadedTable]
"""What was loaded of a view: its own table, and those of its folds, by their names."""


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """The target of a load: its ts, the number of its batch, and per table the folder, and the
    stored rows if only the difference is to be written."""

    ts: int
    batch: int
    folders: Mapping[str, StoragePath]
    stored: Mapping[str, StoredRows]
    hidden: tuple[str, ...] = ()
    keep_parts: Callable[[], StoragePath] | None = None
    """Begins to keep the parts of this load, and gives the folder in which they are kept."""
    is_resumed: bool = False
    """Whether parts of it may be there already."""


@dataclass(frozen=True, slots=True)
class StoredParents:
    """The views of the project that another one is loaded from, as they are stored."""

    spark: SparkHandle
    root: StoragePath
    heads: Mapping[str, ViewHead]
    ts: int | None = None
    """As of which ts they are read; the newest if there is none."""

    def frame_of(self, name: str, session: SparkSession | None = None) -> DataFrame:
        """The rows of a view, each as often as it occurs, in a session of ours."""
        from viewkeeper.warehouse.rows.spark_frames import state_frame

        within = session or self.spark.get_session()
        return state_frame(within, self.root, self.heads[name], self.spark.staging_folder, self.ts)

    def few_rows_of(self, name: str, rows_max: int) -> pa.Table | None:
        """The rows of a view, each once, with `_count`; None if its files hold too many."""
        head = self.heads[name]
        until = head.reach_ts if self.ts is None else self.ts
        if sum(file.rows for file in files_until(self.root, head, until)) > rows_max:
            return None
        return read_counted(self.root, head, self.ts)


@dataclass(frozen=True, slots=True)
class LoadOrigin:
    """From what a view is loaded: sources at their positions, and the project's own views."""

    openers: Openers
    positions: Mapping[str, int]
    parents: StoredParents


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Up to how many rows a view is loaded without Spark, and how long a job of Spark may take."""

    inline_rows: int
    job_minutes: float


def load_view(
    spark: SparkHandle,
    view: ViewDefinition,
    origin: LoadOrigin,
    target: LoadTarget,
    limits: LoadLimits,
) -> LoadedTables:
    """Compute a view and write all its tables, or by what they differ from what is stored."""
    if not target.is_resumed:
        loaded = _load_inline(view, origin, target, limits.inline_rows)
        if loaded is not None:
            return loaded
    return _load_on_spark(spark.get_session(), view, origin, target, limits.job_minutes)


def _load_inline(
    view: ViewDefinition, origin: LoadOrigin, target: LoadTarget, rows_max: int
) -> LoadedTables | None:
    """The same without Spark; None if that cannot be, or if there are too many rows for it."""
    if not can_load_inline(view) or any(s.row_count > rows_max for s in target.stored.values()):
        return None
    assert view.schema is not None, "the kernel knows its types"
    check_kept_types(view, view.schema)
    bases = _read_bases(view, origin, rows_max)
    if bases is None:
        return None
    tables = InlineLoad(view, bases, target.ts, rows_max).compute_tables(target.hidden)
    if tables is None:
        return None
    return {
        name: write_few_rows(target, name, table.rows, table.schema, table.hidden)
        for name, table in tables.items()
    }


def _read_bases(
    view: ViewDefinition, origin: LoadOrigin, rows_max: int
) -> dict[Relation, pa.Table] | None:
    """What a view reads, with signed counts; None if it is too much."""
    bases: dict[Relation, pa.Table] = {}
    left = rows_max
    for relation in view.relations:
        fields = view.fields_of(relation)
        if relation.is_own:
            found = origin.parents.few_rows_of(relation.table, left)
        else:
            opener, position = origin.openers[relation.source], origin.positions[relation.source]
            found = read_few_rows(relation, fields, opener, position, left)
        if found is None:
            return None
        left -= found.num_rows
        bases[relation] = found.select([*(field.name for field in fields), COUNT])
    return bases


def _load_on_spark(
    spark: SparkSession,
    view: ViewDefinition,
    origin: LoadOrigin,
    target: LoadTarget,
    minutes: float,
) -> LoadedTables:
    courier = Courier()
    # Several loads may run at a time, and each calls its tables alike.
    spark = child_session(spark)
    with limit_job(spark, f"load of {view.name}", minutes, pool="load"):
        loaded, bases = _read_parts(spark, view, origin, target, courier)
        if loaded is not None:
            return {view.name: loaded}
        writer = _TableWriter(spark, view, target, courier)
        if view.graph is None or view.graph.recomputed is not None:
            count = count_view_rows if view.graph is None else count_report_rows
            rows = count(spark, view, bases)
            return {view.name: writer.write_table(view.name, rows, row_schema(rows, view))}
        return _load_graph(spark, view, view.graph, bases, writer)


def _read_parts(
    spark: SparkSession,
    view: ViewDefinition,
    origin: LoadOrigin,
    target: LoadTarget,
    courier: Courier,
) -> tuple[LoadedTable | None, dict[Relation, DataFrame]]:
    """A view that tasks could load by themselves; or else what a view reads, with signed counts."""
    kept = target.keep_parts() if target.keep_parts is not None else None
    slots = spark.sparkContext.defaultParallelism
    scans = plan_scans(view, origin.openers, origin.positions, slots, kept)
    if not target.stored and find_direct_key(view, scans) is not None:
        assert view.schema is not None, "the kernel knows its types"
        check_kept_types(view, view.schema)
        folder = target.folders[view.name]
        stored_files.make_folder(folder)
        load = direct_load(view, folder, kept, target.batch, target.ts)
        files = load_directly(spark, scans, load, courier)
        if files is not None:
            return LoadedTable(view.schema, files, target.hidden), {}
        if kept is not None:
            forget_parts(kept)
    bases = partial(origin.parents.frame_of, session=spark)
    if kept is None:
        return None, signed_bases(spark, view, origin.openers, origin.positions, courier, bases)
    staged = stage_scans(spark, scans, kept, courier)
    owned = {r: count_once(bases(r.table), view.fields_of(r)) for r in view.relations if r.is_own}
    return None, {**staged, **owned}


def _load_graph(
    spark: SparkSession,
    view: ViewDefinition,
    graph: Graph,
    bases: Mapping[Relation, DataFrame],
    writer: _TableWriter,
) -> LoadedTables:
    names: dict[Relation, str] = {}
    for number, (relation, frame) in enumerate(bases.items()):
        names[relation] = f"__base_{number}"
        bag_of(frame).createOrReplaceTempView(names[relation])
    loaded: dict[str, LoadedTable] = {}
    stored = stored_nodes(graph)
    for node in graph.nodes:
        relation = relation_of_node(node.number, view.name)
        is_root = node is graph.root
        name = view.name if is_root else relation.table
        if isinstance(node, Fold):
            loaded[name] = _load_fold(
                _partial_frame(spark, graph, node, names, writer), node, name, writer
            )
        elif isinstance(node, KeyRecompute):
            rows = _recompute_frame(spark, graph, node, names, writer)
            if is_root:
                loaded[name] = writer.write_table(name, rows, _schema_of(node.fields))
            else:
                names[relation] = f"__recompute_{node.number}"
                bag_of(rows).createOrReplaceTempView(names[relation])
        elif is_root or node.number in stored:
            rows = count_rows(spark.sql(node_query(graph, node.number, names)))
            schema = row_schema(rows, view) if is_root else _schema_of(node.fields)
            loaded[name] = writer.write_table(name, rows, schema, None if is_root else ())
        if name in loaded and not is_root:
            shown = [_column(field.name) for field in node.fields]
            names[relation] = f"__stored_{node.number}"
            kept = writer.read_table(name, loaded[name]).select(*shown)
            kept.createOrReplaceTempView(names[relation])
    return loaded


def _schema_of(fields: Sequence[Field]) -> pa.Schema:
    return pa.schema([(field.name, field.type) for field in fields])


def _partial_frame(
    spark: SparkSession,
    graph: Graph,
    fold: Fold,
    names: Mapping[Relation, str],
    writer: _TableWriter,
) -> DataFrame:
    """Partial sums of the rows of a fold's input.

    A task holds `HELD_ROWS` of them at most: where its rows have many groups, partial sums go on
    before all rows were seen.
    """
    ts, partial = writer.target.ts, layout_of(fold).partial
    rows = spark.sql(_input_query(graph, fold, names))
    schema = _input_schema(graph, fold)

    def sum_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: list[pa.Table] = []
        rows = 0
        for batch in batches:
            exact = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
            stamps = pa.array(np.full(batch.num_rows, ts, np.int64))
            counts = pa.array(np.ones(batch.num_rows, np.int64))
            signed = exact.append_column(TS, stamps).append_column(COUNT, counts)
            held.append(pre_aggregate(fold, signed))
            rows += held[-1].num_rows
            if rows >= HELD_ROWS:
                held = [combine_partials(fold, held)]
                rows = held[0].num_rows
                if rows > HELD_ROWS // 2:
                    yield from held[0].select(partial.names).cast(partial).to_batches()
                    held, rows = [], 0
        if held:
            together = combine_partials(fold, held)
            yield from together.select(partial.names).cast(partial).to_batches()

    return rows.mapInArrow(writer.courier.wrap_stage(sum_up), spark_schema(partial))


def _load_fold(partials: DataFrame, fold: Fold, name: str, writer: _TableWriter) -> LoadedTable:
    """Make whole groups of partial sums, and write them."""
    partial, (schema, hidden) = layout_of(fold).partial, stored_schema_of(fold)
    if fold.is_global:
        # Its one row is there whatever Spark makes of an empty input.
        found = writer.courier.run_job(lambda: partials.toArrow()).cast(partial)
        one = load_groups(fold, _whole_sums(fold, found))
        return write_few_rows(writer.target, name, one, schema, hidden)
    kept = pa.schema([*schema, (COUNT, pa.int64())])

    def finish(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [pa.Table.from_batches([batch]).cast(partial) for batch in batches]
        table = pa.concat_tables([partial.empty_table(), *found])
        if table.num_rows:
            whole = load_groups(fold, _whole_sums(fold, table))
            yield from whole.select(kept.names).cast(kept).to_batches()

    parted = partials.repartition(*(_column(field.name) for field in fold.groups))
    rows = parted.mapInArrow(writer.courier.wrap_stage(finish), spark_schema(kept))
    return writer.write_table(name, rows, schema, hidden)


def _recompute_frame(
    spark: SparkSession,
    graph: Graph,
    node: KeyRecompute,
    names: Mapping[Relation, str],
    writer: _TableWriter,
) -> DataFrame:
    """The rows of a recompute with their counts, by the function that maintains it."""
    read = pa.schema([(field.name, field.type) for field in node.read])
    made = pa.schema([*((f.name, f.type) for f in node.fields), (COUNT, pa.int64())])
    rows = spark.sql(_input_query(graph, node, names)).select(*map(_column, read.names))
    ts = writer.target.ts

    def evaluate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [pa.Table.from_batches([batch]).cast(read) for batch in batches]
        table = pa.concat_tables([read.empty_table(), *found])
        ones = pa.array(np.ones(table.num_rows, np.int64))
        shown = evaluate_rows(node, table.append_column(COUNT, ones), ts)
        yield from shown.select(made.names).cast(made).to_batches()

    if not node.keys:
        # All rows belong together; a row is there even if Spark makes nothing of an empty input.
        found = writer.courier.run_job(lambda: rows.limit(ROWS_MAX + 1).toArrow())
        if found.num_rows > ROWS_MAX:
            raise too_many_rows()
        pieces = list(evaluate(iter(found.cast(read).to_batches())))
        return spark.createDataFrame(pa.Table.from_batches(pieces, made), spark_schema(made))
    parted = rows.repartition(*(_grouping_column(read.field(name)) for name in node.keys))
    return parted.mapInArrow(writer.courier.wrap_stage(evaluate), spark_schema(made))


def _grouping_column(field: pa.Field[Any]) -> Any:
    """A column by which equal keys come together: zero has no sign."""
    column = _column(field.name)
    if not pa.types.is_floating(field.type):
        return column
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark programs use

    return F.when(column == 0, F.lit(0)).otherwise(column)


def _whole_sums(fold: Fold, partials: pa.Table) -> pa.Table:
    """Partials of several tasks together, each group once."""
    return combine_partials(fold, [partials, partials.schema.empty_table()])


def _input_schema(graph: Graph, fold: Fold) -> pa.Schema:
    """What a fold reads of its input."""
    if fold.input.node is not None:
        return pa.schema([(f.name, f.type) for f in graph.nodes[fold.input.node].fields])
    used = [*fold.groups, *(field for call in fold.calls for field in call.arguments)]
    return pa.schema([(field.name, field.type) for field in dict.fromkeys(used)])


def _input_query(graph: Graph, node: Fold | KeyRecompute, names: Mapping[Relation, str]) -> str:
    """The rows of a node's input; a node that was computed before is read."""
    if node.input in names or node.input.node is None:
        return f"SELECT * FROM {names[node.input]}"
    return node_query(graph, node.input.node, names)


def _column(name: str) -> Any:
    from viewkeeper.warehouse.rows.spark_frames import exact_column

    return exact_column(name)


def write_few_rows(
    target: LoadTarget, name: str, rows: pa.Table, schema: pa.Schema, hidden: tuple[str, ...]
) -> LoadedTable:
    """Write counted rows, or the difference from what is stored under this name, as one file."""
    if name in target.stored:
        stored = target.stored[name]
        fitted = replace(stored.head, schema=schema)
        old = read_stored(stored.root, fitted).select([*schema.names, COUNT])
        minus = old.set_column(len(schema), COUNT, pc.negate(old[COUNT]))
        rows = sum_rows(pa.concat_tables([rows.select([*schema.names, COUNT]), minus]))
    if not rows.num_rows:
        return LoadedTable(schema, (), hidden)
    stamps = pa.array(np.full(rows.num_rows, target.ts, np.int64))
    stamped = rows.append_column(TS, stamps).select([*schema.names, COUNT, TS])
    file = write_rows(target.folders[name], schema, stamped, target.batch, 0)
    return LoadedTable(schema, (file,), hidden)


@dataclass(frozen=True, slots=True)
class _TableWriter:
    """Writes the tables of one load."""

    spark: SparkSession
    view: ViewDefinition
    target: LoadTarget
    courier: Courier

    def write_table(
        self, name: str, rows: DataFrame, schema: pa.Schema, hidden: tuple[str, ...] | None = None
    ) -> LoadedTable:
        """Write counted rows, or the difference from what is stored under this name."""
        from pyspark.sql import functions as F  # noqa: N812 - the name that Spark programs use

        from viewkeeper.warehouse.rows.spark_frames import sum_counts, write_frame

        columns = [_column(field) for field in schema.names]
        made = rows.select(*columns, F.col(COUNT))
        if name in self.target.stored:
            stored = self.target.stored[name].stored_frame(self.spark, schema)
            old = stored.select(*columns, (-F.col(COUNT)).alias(COUNT))
            made = sum_counts(made.unionAll(old), schema.names)
        stamp = F.lit(self.target.ts).cast("bigint").alias(TS)
        stamped = made.select(*columns, F.col(COUNT), stamp)
        folder, kept = self.target.folders[name], stored_schema(schema)
        files = self.courier.run_job(lambda: write_frame(stamped, folder, kept, self.target.batch))
        return LoadedTable(schema, files, self.target.hidden if hidden is None else hidden)

    def read_table(self, name: str, loaded: LoadedTable) -> DataFrame:
        """The rows that a table has after the load, each as often as it occurs."""
        from viewkeeper.warehouse.rows.spark_frames import frame_of

        paths = [self.target.folders[name] / file.path for file in loaded.files]
        rows = frame_of(self.spark, paths, stored_schema(loaded.schema)).drop(TS)
        if name in self.target.stored:
            before = self.target.stored[name].stored_frame(self.spark, loaded.schema).drop(TS)
            rows = rows.unionByName(before)
        return bag_of(rows)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The newest rows of a view that nobody changes meanwhile, hidden columns too."""

    root: StoragePath
    head: ViewHead
    staging: StoragePath

    @property
    def folder(self) -> StoragePath:
        return table_folder(self.root, self.head)

    @property
    def row_count(self) -> int:
        """How many rows its files have, those that cancel each other too."""
        files = files_until(self.root, self.head, self.head.reach_ts)
        return sum(file.rows for file in files)

    def stored_frame(self, spark: SparkSession, schema: pa.Schema) -> DataFrame:
        """The signed rows, under the columns that the view is going to have."""
        from viewkeeper.warehouse.rows.spark_frames import signed_frame

        fitted = replace(self.head, schema=schema)
        files = files_until(self.root, self.head, self.head.reach_ts)
        return signed_frame(spark, self.root, fitted, files, self.staging, until=self.head.reach_ts)


def row_schema(frame: DataFrame, view: ViewDefinition) -> pa.Schema:
    """The Arrow schema of the view's rows by Spark's analysis; it must be the one we computed."""
    from pyspark.sql.pandas.types import to_arrow_schema

    analysed = to_arrow_schema(frame.drop(COUNT).schema, timezone="UTC")
    plain = pa.schema([(field.name, _naive_or_utc(field.type)) for field in analysed])
    check_kept_types(view, plain)
    expected = view.schema
    if expected is not None and not plain.equals(expected):
        raise ExpressionError(
            f'view "{view.name}": Spark types its columns otherwise than the kernel',
            detail=f"Spark: {plain}; kernel: {expected}",
            hint="write the types out with CAST in the view's select list, and report this view",
        )
    return plain


def check_kept_types(view: ViewDefinition, schema: pa.Schema) -> None:
    """Refuse columns of a view whose types a table cannot have."""
    for field in schema:
        if pa.types.is_nested(field.type) or pa.types.is_null(field.type) or _is_span(field.type):
            raise UnsupportedError(
                f'view "{view.name}": column "{field.name}" has a type that cannot be kept',
                detail=f"its type is {field.type}",
                path=view.path,
                hint="show its parts as plain columns, or CAST it to STRING",
            )


def _is_span(kind: pa.DataType) -> bool:
    return pa.types.is_duration(kind) or pa.types.is_interval(kind)


def _naive_or_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", "UTC") if isinstance(kind, pa.TimestampType) and kind.tz else kind
