"""The stages of a batch: the plain views and graph nodes of all its members, inputs before readers.

Cores are swept, all that are ready together; what lies between them - folds, unions - is computed
in the driver from what they gave. Each stage leaves the signed rows of its view or node, with their
ts, as changes that later stages read like those of any table. A stage that fails is the trouble of
its own view; views that read that view wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import assert_never

import pyarrow as pa

from viewkeeper.delta.kernel import Kernel, distinct_rows
from viewkeeper.engine.batch.own_relations import (
    changes_of_rows,
    expand_rows,
    keyed_lookup,
    matching_rows,
    renamed_rows,
)
from viewkeeper.engine.batch.part_sweep import (
    Batch,
    BatchMember,
    LookupTally,
    PartResult,
    open_lookups,
)
from viewkeeper.errors import (
    CorruptError,
    HorizonError,
    ViewkeeperError,
    WarehouseError,
    blame_view,
)
from viewkeeper.stages.fold import advance_fold, combine_partials, pre_aggregate
from viewkeeper.stages.fold_layout import layout_of
from viewkeeper.stages.key_recompute import advance_recompute, touched_keys
from viewkeeper.stages.scalar_side import (
    ScalarChanges,
    SideChanges,
    compare_side,
    is_comparable,
)
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.updates.queue import BatchChanges
from viewkeeper.updates.source_protocol import COUNT, POSITION, TS, Lookup
from viewkeeper.view.definition import (
    PROJECT,
    Constant,
    Core,
    Expand,
    Field,
    Fold,
    Generate,
    KeyRecompute,
    Node,
    Place,
    Relation,
    Union,
    ViewDefinition,
    relation_of_node,
)
from viewkeeper.view.expression import type_of
from viewkeeper.view.sweep_plan import sweep_plan_of
from viewkeeper.warehouse.lake.data_files import read_rows, stored_schema
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.record import DataFile

SweepCores = Callable[[Batch, Sequence[BatchMember]], list[PartResult]]
FindGroups = Callable[[ViewHead, Fold, pa.Table, int], pa.Table]
"""What is stored of groups of a fold as of a ts, given their keys."""

GenerateRows = Callable[[Generate, pa.Table], pa.Table]
"""What a generator makes of signed rows."""

KeepRows = Callable[[StoragePath, pa.Schema, pa.Table, int, int], DataFile]
"""Keeps the signed rows of a table, given its folder and its schema, for a record; the numbers of
the batch and of the part name them."""


@dataclass(frozen=True, slots=True)
class StoredTable:
    """The Delta Lake table of a view or a fold."""

    head: ViewHead
    folder: StoragePath


@dataclass(frozen=True, slots=True)
class BatchView:
    """A view in a batch: its definition, its table, and those of its folds by their names."""

    name: str
    view: ViewDefinition
    tables: Mapping[str, StoredTable]

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What is computed for it, inputs before readers."""
        if self.view.graph is None:
            return (Stage(self, self.name, None),)
        *inner, root = self.view.graph.nodes
        names = [relation_of_node(node.number, self.name).table for node in inner]
        stages = [Stage(self, name, node) for name, node in zip(names, inner, strict=True)]
        return (*stages, Stage(self, self.name, root))


@dataclass(frozen=True, slots=True)
class Stage:
    """A plain view, or a node of a graph; its rows are those of `Relation(PROJECT, name)`."""

    member: BatchView
    name: str
    node: Node | None

    @property
    def relation(self) -> Relation:
        return Relation(PROJECT, self.name)

    @property
    def reads(self) -> tuple[Relation, ...]:
        """The views and nodes of the project that must be there before it."""
        inputs = self.member.view.relations if self.node is None else self.node.inputs
        return tuple(relation for relation in inputs if relation.is_own)

    @property
    def swept(self) -> ViewDefinition | None:
        """What a sweep computes for it; None if it is none."""
        if self.node is None:
            return self.member.view
        return self.node.view if isinstance(self.node, Core) else None

    @property
    def is_computed(self) -> bool:
        """Whether the driver computes it from the changes of its inputs, without a sweep."""
        return self.swept is None or (isinstance(self.node, Core) and is_comparable(self.node))

    @property
    def table(self) -> StoredTable | None:
        return self.member.tables.get(self.name)


@dataclass(slots=True)
class StagedResult:
    """The new files of every table, and why some views have none.

    `written_rows` are the rows in those of folds and, as far as this process has them, of views
    that others read.
    """

    files: dict[str, tuple[DataFile, ...]] = field(default_factory=dict)
    written_rows: dict[str, pa.Table] = field(default_factory=dict)
    errors: dict[str, ViewkeeperError] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    merged: set[str] = field(default_factory=set)
    """Views for which all of the batch is one state: it would have had too many rows."""
    asked: dict[str, LookupTally] = field(default_factory=dict)
    """Per view, what its stages asked the sources for."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Per view, how long its parts and what is computed for it took."""

    def add_asked(self, name: str, lookups: Mapping[str, int], rows: int) -> None:
        """Sources were asked for a view, and gave so many rows."""
        self.asked.setdefault(name, LookupTally()).add_lookups(lookups, rows)

    def add_seconds(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


@dataclass(frozen=True, slots=True)
class StageTools:
    """What stages are computed with: sweeps, stored groups, generators, and a place for rows."""

    sweep: SweepCores
    find_groups: FindGroups
    generate: GenerateRows
    keep_rows: KeepRows


class StagedRun:
    """One batch on its way through the stages of its members."""

    def __init__(
        self,
        batch: Batch,
        members: Sequence[BatchView],
        tools: StageTools,
    ) -> None:
        """`batch.changes` has the changes of all tables, and those of views that are read and are
        no members; what the stages leave is added to it."""
        self._batch = batch
        self._known = dict(batch.changes.relations)
        self._stages = [stage for member in members for stage in member.stages]
        self._read = frozenset(relation for stage in self._stages for relation in stage.reads)
        self._tools = tools
        self._partials: dict[str, list[pa.Table]] = {}
        self.result = StagedResult()

    def run_stages(self) -> StagedResult:
        """Compute every stage, as far as nothing fails."""
        waiting = self._stages
        while waiting:
            ready = [stage for stage in waiting if self._is_ready(stage)]
            assert ready, f"{waiting[0].name} waits for what nobody computes"
            computed = [stage for stage in ready if stage.is_computed]
            if computed:
                for stage in computed:
                    with self._contain_errors(stage):
                        self._compute_stage(stage)
            else:
                self._sweep_stages(ready)
            done = {stage.name for stage in (computed or ready)}
            self._note_waiting(waiting)
            self._note_merged(waiting)
            failed = self.result.errors.keys() | self.result.waiting
            waiting = [s for s in waiting if s.name not in done and s.member.name not in failed]
        return self.result

    def _is_ready(self, stage: Stage) -> bool:
        return all(relation in self._known for relation in stage.reads)

    def _note_waiting(self, stages: Iterable[Stage]) -> None:
        """Views that read one that could not advance wait for it."""
        for stage in stages:
            failed = self.result.errors.keys() | self.result.waiting
            parents = {relation.table for relation in stage.reads}
            if parents & failed and stage.member.name not in failed:
                self.result.waiting.add(stage.member.name)

    def _note_merged(self, stages: Iterable[Stage]) -> None:
        """Views that read one for which the batch is one state have no more states than that."""
        for stage in stages:
            parents = {relation.table for relation in stage.reads}
            if parents & self.result.merged:
                self.result.merged.add(stage.member.name)

    @contextmanager
    def _contain_errors(self, stage: Stage) -> Iterator[None]:
        """Whatever fails for a stage is the trouble of its view."""
        name, began = stage.member.name, time.perf_counter()
        try:
            with blame_view(name):
                yield
        except (CorruptError, HorizonError) as error:
            # What is stored of it, or of a view that it reads, cannot be read.
            self.result.errors[name] = error
        except WarehouseError:
            raise
        except ViewkeeperError as error:
            self.result.errors[name] = error
        finally:
            self.result.add_seconds(name, time.perf_counter() - began)

    # -- cores ---------------------------------------------------------------------------------

    def _sweep_stages(self, stages: Sequence[Stage]) -> None:
        members = {stage.name: self._swept_member(stage) for stage in stages}
        results = self._tools.sweep(self._batch_with(members), list(members.values()))
        by_stage: dict[str, list[PartResult]] = {stage.name: [] for stage in stages}
        for result in results:
            by_stage[result.view].append(result)
        for stage in stages:
            mine = by_stage[stage.name]
            for each in mine:
                self.result.add_asked(stage.member.name, each.lookups, each.asked_rows)
            self.result.add_seconds(stage.member.name, sum(each.seconds for each in mine))
            with self._contain_errors(stage):
                self._gather_results(stage, members[stage.name], mine)

    def _batch_with(self, members: Mapping[str, BatchMember]) -> Batch:
        """The batch as it is now, for these members."""
        return replace(self._batch, views=members, changes=BatchChanges(dict(self._known)))

    def _swept_member(self, stage: Stage) -> BatchMember:
        swept, table = stage.swept, stage.table
        assert swept is not None, "only cores are swept"
        core = stage.node if isinstance(stage.node, Core) else None
        schema = table.head.schema if table else _output_schema(swept)
        fold = None if table else self._only_fold(stage)
        folder = table.folder if table else None
        return BatchMember(stage.name, sweep_plan_of(swept), schema, folder, core, fold)

    def _only_fold(self, stage: Stage) -> Fold | None:
        """The fold that alone reads a core, if it can do with partial sums of its rows."""
        graph = stage.member.view.graph
        readers = [n for n in graph.nodes if stage.relation in n.inputs] if graph else []
        fold = readers[0] if len(readers) == 1 else None
        # A group that loses its smallest or largest value is computed from the rows themselves.
        return fold if isinstance(fold, Fold) and not layout_of(fold).extremes else None

    def _gather_results(
        self, stage: Stage, member: BatchMember, results: Sequence[PartResult]
    ) -> None:
        failed = next((result.error for result in results if result.error), None)
        if failed is not None:
            raise failed
        rows = [result.rows for result in results if result.rows is not None]
        if member.fold is not None:
            self._partials[stage.name] = rows
            self._known[stage.relation] = changes_of_rows(empty_delta(stage_fields(stage)))
            return
        if stage.table is None:
            self._leave_rows(stage, _add_rows(stage, rows))
            return
        files = [file for result in results for file in result.files]
        is_read = self._is_read(stage)
        written = [read_rows(stage.table.folder, file) for file in files] if is_read else []
        if is_read and not files:
            empty = stored_schema(stage.table.head.schema).empty_table()
            self.result.written_rows[stage.name] = pa.concat_tables(
                [empty, *(piece.select(empty.column_names).cast(empty.schema) for piece in rows)]
            )
        if rows:
            together = pa.concat_tables(rows)
            files.append(self._write_rows(stage.table, together, len(results)))
        self.result.files[stage.name] = tuple(files)
        if is_read:
            self._leave_rows(stage, _add_rows(stage, [*written, *rows]))

    # -- what is computed here -----------------------------------------------------------------

    def _compute_stage(self, stage: Stage) -> None:
        node = stage.node
        match node:
            case Fold():
                rows = self._fold_rows(stage, node)
                self.result.written_rows[stage.name] = rows
                self._keep_rows(stage, rows)
            case Union():
                pieces = [
                    renamed_rows(self._rows_of(relation), columns, node.fields)
                    for relation, columns in zip(node.inputs, node.columns, strict=True)
                ]
                self._keep_rows(stage, _add_rows(stage, pieces))
            case Expand():
                pieces = [expand_rows(node, self._rows_of(node.input))]
                self._keep_rows(stage, _add_rows(stage, pieces))
            case Generate():
                made = self._tools.generate(node, self._rows_of(node.input))
                self._keep_rows(stage, _add_rows(stage, [made]))
            case KeyRecompute():
                self._keep_rows(stage, self._recomputed_rows(stage, node))
            case Constant():
                self._keep_rows(stage, empty_delta(node.fields))
            case Core():
                compared = self._compare_side(stage, node)
                if compared.merged:
                    self.result.merged.add(stage.member.name)
                self._keep_rows(stage, _add_rows(stage, [compared.rows]))
            case None:
                raise AssertionError("a plain view is swept")
            case _:
                assert_never(node)

    def _fold_rows(self, stage: Stage, fold: Fold) -> pa.Table:
        """What the changes of its input change in a fold: its stored columns, `_ts`, `_count`."""
        partials = self._partials.pop(fold.input.table, None)
        rows = self._rows_of(fold.input)
        if partials is None:
            partials = [pre_aggregate(fold, rows)] if rows.num_rows else []
        assert stage.table is not None, "every fold is stored"
        if not partials:
            return stored_schema(stage.table.head.schema).empty_table()
        together = combine_partials(fold, partials)
        keys = distinct_rows(together.select([group.name for group in fold.groups]))
        before = self._tools.find_groups(stage.table.head, fold, keys, self._batch.own.since)
        tally = LookupTally()
        with open_lookups(self._batch_with({}), tally) as ask:

            def ask_input(keys: pa.Table) -> pa.Table:
                lookup = _input_lookup(fold, keys)
                found = self._batch.own.rows_before(lookup, BatchChanges(self._known), ask)
                return matching_rows(found.select([*lookup.columns, COUNT]), keys)

            made = advance_fold(
                fold, together, before, ask_input, lambda keys: matching_rows(rows, keys)
            )
        self.result.add_asked(stage.member.name, tally.lookups, tally.rows)
        return made

    def _recomputed_rows(self, stage: Stage, node: KeyRecompute) -> pa.Table:
        """What the changes of its input change in a recompute, whose touched keys are asked for."""
        delta = self._rows_of(node.input)
        if not delta.num_rows:
            return empty_delta(node.fields)
        keys = touched_keys(node, delta)
        tally = LookupTally()
        with open_lookups(self._batch_with({}), tally) as ask:
            lookup = keyed_lookup(node.input, [field.name for field in node.read], keys)
            found = self._batch.own.rows_before(lookup, BatchChanges(self._known), ask)
        self.result.add_asked(stage.member.name, tally.lookups, tally.rows)
        return advance_recompute(node, delta, matching_rows(found, keys))

    def _compare_side(self, stage: Stage, core: Core) -> SideChanges:
        """What changes in a core over a side and the values of scalar subqueries."""
        side, *scalars = core.view.places
        tally = LookupTally()
        with open_lookups(self._batch_with({}), tally) as ask:

            def read_whole(place: Place) -> pa.Table:
                lookup = Lookup(0, place.relation, place.columns, (), (), None)
                return self._batch.own.rows_before(lookup, BatchChanges(self._known), ask)

            made = compare_side(
                core,
                lambda: read_whole(side),
                self._rows_of(side.relation),
                [
                    ScalarChanges(place, read_whole(place), self._rows_of(place.relation))
                    for place in scalars
                ],
            )
        self.result.add_asked(stage.member.name, tally.lookups, tally.rows)
        return made

    # -- what stages leave ---------------------------------------------------------------------

    def _rows_of(self, relation: Relation) -> pa.Table:
        """The signed rows of an input in this batch, with their ts."""
        found = self._known[relation].rows_between(0, self._known[relation].rows)
        return found.drop_columns([POSITION])

    def _keep_rows(self, stage: Stage, rows: pa.Table) -> None:
        if stage.table is not None:
            made = (self._write_rows(stage.table, rows, 0),) if rows.num_rows else ()
            self.result.files[stage.name] = made
        if stage.table is None or self._is_read(stage):
            self._leave_rows(stage, rows)

    def _write_rows(self, table: StoredTable, rows: pa.Table, part: int) -> DataFile:
        ordered = rows.select([*table.head.schema.names, COUNT, TS])
        schema, number = table.head.schema, self._batch.number
        return self._tools.keep_rows(table.folder, schema, ordered, number, part)

    def _is_read(self, stage: Stage) -> bool:
        """Whether another stage reads what this one stores."""
        return stage.relation in self._read

    def _leave_rows(self, stage: Stage, rows: pa.Table) -> None:
        names = [field.name for field in stage_fields(stage)]
        shown = rows.select([*names, TS, COUNT])
        self._known[stage.relation] = changes_of_rows(Kernel().consolidate(shown))


def stage_fields(stage: Stage) -> tuple[Field, ...]:
    """The columns that readers of a stage see."""
    if stage.node is not None:
        return stage.node.fields
    assert stage.table is not None, "a plain view is stored"
    return tuple(Field(f.name, f.type) for f in stage.table.head.shown_schema)


def empty_delta(fields: Sequence[Field]) -> pa.Table:
    """No signed rows, with these columns."""
    return delta_schema(fields).empty_table()


def delta_schema(fields: Sequence[Field]) -> pa.Schema:
    """The schema of signed rows with their ts."""
    columns = [(field.name, field.type) for field in fields]
    return pa.schema([*columns, (TS, pa.int64()), (COUNT, pa.int64())])


def _output_schema(view: ViewDefinition) -> pa.Schema:
    kinds = [(output.name, type_of(output.expression)) for output in view.outputs]
    return pa.schema([(name, kind) for name, kind in kinds if kind is not None])


def _add_rows(stage: Stage, pieces: Sequence[pa.Table]) -> pa.Table:
    """Signed rows together, as the stage has them."""
    schema = delta_schema(stage_fields(stage))
    exact = [piece.select(schema.names).cast(schema) for piece in pieces]
    return pa.concat_tables([schema.empty_table(), *exact])


def _input_lookup(fold: Fold, keys: pa.Table) -> Lookup:
    columns = [*fold.groups, *(field for call in fold.calls for field in call.arguments)]
    extra = [call.where for call in fold.calls if call.where is not None]
    names = tuple(dict.fromkeys([*(field.name for field in columns), *extra]))
    return keyed_lookup(fold.input, names, keys)
