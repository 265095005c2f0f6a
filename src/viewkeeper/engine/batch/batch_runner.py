"""One batch of maintenance: read its changes, sweep every view, gather what came out.

A batch takes a group of views that stand at the same ts to a later one. Its changes are read once
per relation for all of them, stamped with the ts that the ledger gave them, and kept in the update
queue. What a view cannot do, for a source that is away or a value that does not fit, is its own
trouble: the others go on.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from viewkeeper.delta.algebra import LAST_TS
from viewkeeper.engine.batch.answer_types import cast_rows, types_of
from viewkeeper.engine.batch.barrier import Sieve
from viewkeeper.engine.batch.part_runner import run_inline, run_late, run_on_spark
from viewkeeper.engine.batch.part_sweep import Batch, BatchMember, PartResult, PartTask
from viewkeeper.engine.batch.snapshot_openers import prepare_openers
from viewkeeper.engine.report import BatchReport
from viewkeeper.engine.views.bound_view import columns_of
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import (
    BarrierError,
    ConversionError,
    SourceAwayError,
    UnexpectedViewError,
    ViewkeeperError,
    WarehouseError,
)
from viewkeeper.maintain.sweep_family.batch_sweep import split_origins
from viewkeeper.storage import disk
from viewkeeper.updates.queue import BatchChanges, Stamps, UpdateQueue, change_schema
from viewkeeper.view.definition import Field, Relation, ViewDefinition
from viewkeeper.warehouse.lake.data_files import write_rows
from viewkeeper.warehouse.metadata.batch_plan import LedgerEntry
from viewkeeper.warehouse.metadata.record import Advance, DataFile, Stop, ViewChange


@dataclass(slots=True)
class BatchOutcome:
    """What a batch brought for each view that could do it, and why the others could not."""

    files: dict[str, tuple[DataFile, ...]] = field(default_factory=dict)
    errors: dict[str, ViewkeeperError] = field(default_factory=dict)
    lookups: Counter[str] = field(default_factory=Counter)
    where: Literal["inline", "spark"] = "inline"
    parts: int = 0
    changes: int = 0
    kept: BatchChanges = field(default_factory=lambda: BatchChanges({}))

    @property
    def rows(self) -> int:
        return sum(file.rows for files in self.files.values() for file in files)

    def change_for(
        self, name: str, until: int, positions: Mapping[str, int], exact: bool = True
    ) -> ViewChange | None:
        """What is to be committed of a view that goes to a ts; None if it has to wait."""
        error = self.errors.get(name)
        if isinstance(error, SourceAwayError | BarrierError):
            return None
        if error is not None:
            return Stop(name, str(error))
        return Advance(name, until, positions, self.files.get(name, ()), exact=exact)

    def report_batch(
        self, number: int, entries: Sequence[LedgerEntry], seconds: float, now: float
    ) -> BatchReport:
        """The batch in numbers, `now` that it is committed."""
        return BatchReport(
            number=number,
            where=self.where,
            views=tuple(self.files),
            transactions=len(entries),
            changes=self.changes,
            rows=self.rows,
            lookups=dict(self.lookups),
            parts=self.parts,
            seconds=seconds,
            freshness=max(0.0, now - min(entry.committed_at for entry in entries)),
        )


class BatchRunner:
    """Runs batches for a project."""

    def __init__(
        self, workspace: Workspace, beside: Callable[[int], Iterable[ViewDefinition]]
    ) -> None:
        """`beside` gives all views that were loaded before a ts."""
        self._settings = workspace.settings
        self._connections = workspace.connections
        self._spark = workspace.spark
        self._spool = workspace.store.root / "spool"
        self._beside = beside

    def run_batch(
        self,
        number: int,
        members: Sequence[BatchMember],
        entries: Sequence[LedgerEntry],
        ends: Mapping[str, int],
    ) -> BatchOutcome:
        """Maintain the members for these entries; `ends` are the sources' positions after them.

        Spilled changes stay in the spool until `clean_spool`.
        """
        outcome = BatchOutcome()
        able = self._read_changes(members, entries, outcome)
        self._sweep_members(number, able, ends, outcome)
        return outcome

    def clean_spool(self) -> None:
        """Remove what the last batch spilled."""
        shutil.rmtree(self._spool / "batch", ignore_errors=True)

    def _read_changes(
        self, members: Sequence[BatchMember], entries: Sequence[LedgerEntry], outcome: BatchOutcome
    ) -> list[BatchMember]:
        """Read the changes into `outcome.kept`; the members whose changes could all be read."""
        able = list(members)
        while True:
            try:
                outcome.kept = self.queue_changes([member.plan.view for member in able], entries)
                break
            except WarehouseError:
                # A full disk is nobody's fault among the views.
                raise
            except Exception as error:
                if isinstance(error, SourceAwayError):
                    self._connections.note_error(error)
                found = self._unreadable_members(able, entries)
                if not found:
                    raise
                outcome.errors |= found
                able = [member for member in able if member.name not in found]
        outcome.changes = sum(changes.rows for changes in outcome.kept.relations.values())
        return able

    def queue_changes(
        self, views: Sequence[ViewDefinition], entries: Sequence[LedgerEntry]
    ) -> BatchChanges:
        """The changes of these entries, of the relations that these views read.

        With all columns that any view reads of them by then: so what `history:` keeps of a relation
        is the same whichever view it was read for. But where another view's column cannot be read,
        these views go on without it.
        """
        mine = columns_of(views)
        others = columns_of(self._beside(entries[0].ts if entries else LAST_TS))
        all_columns = {r: _union_fields(fields, others.get(r, ())) for r, fields in mine.items()}
        # Two views may be on both sides of a change of type.
        if any(len(fields) > len({f.name for f in fields}) for fields in all_columns.values()):
            return self._fill_queue(mine, entries)
        try:
            return self._fill_queue(all_columns, entries)
        except (ConversionError, BarrierError):
            if all_columns == mine:
                raise
            return self._fill_queue(mine, entries)

    def cross_barrier(
        self,
        number: int,
        member: BatchMember,
        entries: Sequence[LedgerEntry],
        ends: Mapping[str, int],
        sieve: Sieve,
    ) -> BatchOutcome:
        """Maintain one view for these entries as one transaction, with the last one's ts.

        What the sieve says has gone is for the caller to take out of the view.
        """
        outcome = BatchOutcome()
        try:
            outcome.kept = self._fill_queue(columns_of([member.plan.view]), entries, sieve)
        except WarehouseError:
            raise
        except ViewkeeperError as error:
            return self.failed_outcome(member, error)
        outcome.changes = sum(changes.rows for changes in outcome.kept.relations.values())
        self._sweep_members(number, [member], ends, outcome)
        return outcome

    def failed_outcome(self, member: BatchMember, error: ViewkeeperError) -> BatchOutcome:
        """What a batch brings for a view that cannot do it."""
        if isinstance(error, SourceAwayError):
            self._connections.note_error(error)
        return BatchOutcome(errors={member.name: error})

    def _fill_queue(
        self,
        wanted: Mapping[Relation, Sequence[Field]],
        entries: Sequence[LedgerEntry],
        sieve: Sieve | None = None,
    ) -> BatchChanges:
        self.clean_spool()
        folder = self._spool / "batch"
        with disk.translate_os_errors("create", folder):
            folder.mkdir(parents=True)
        schemas = {relation: change_schema(fields) for relation, fields in wanted.items()}
        types = {relation: types_of(fields) for relation, fields in wanted.items()}
        queue = UpdateQueue(schemas, str(folder), self._settings.batch.memory)
        stamps: dict[str, Stamps] = {}
        for name in dict.fromkeys(entry.source for entry in entries):
            mine = [entry for entry in entries if entry.source == name]
            stamps[name] = Stamps(
                [entry.until for entry in mine],
                [entry.ts if sieve is None else entries[-1].ts for entry in mine],
            )
            tables = {
                relation.table: [field.name for field in fields]
                for relation, fields in wanted.items()
                if relation.source == name
            }
            if not tables:
                # Nobody here reads it: whether it answers is not their trouble.
                continue
            source = self._connections.get_source(name)
            for table, batch in source.read_changes(tables, mine[0].after, mine[-1].until):
                relation = Relation(name, table)
                batch = cast_rows(relation, batch, types[relation])
                for part in (batch,) if sieve is None else sieve.sift_batch(relation, batch):
                    with disk.translate_os_errors("spill into", folder):
                        queue.append_changes(relation, stamps[name], part)
        with disk.translate_os_errors("spill into", folder):
            for relation, batch in () if sieve is None else sieve.sift_remainder():
                queue.append_changes(relation, stamps[relation.source], batch)
            return queue.seal_changes()

    def _unreadable_members(
        self, members: Sequence[BatchMember], entries: Sequence[LedgerEntry]
    ) -> dict[str, ViewkeeperError]:
        """The members whose changes cannot be read, found by reading for each on its own."""
        found: dict[str, ViewkeeperError] = {}
        for member in members:
            try:
                self.queue_changes([member.plan.view], entries)
            except WarehouseError:
                raise
            except ViewkeeperError as error:
                found[member.name] = error
            except Exception as error:  # noqa: BLE001 - whatever it is, it is of this view
                found[member.name] = UnexpectedViewError(member.name, error)
        return found

    def _sweep_members(
        self,
        number: int,
        members: Sequence[BatchMember],
        ends: Mapping[str, int],
        outcome: BatchOutcome,
    ) -> None:
        """Sweep the changes in `outcome.kept` for these members."""
        inline = outcome.changes <= self._settings.batch.inline_rows
        here = inline and not any(member.plan.view.needs_spark for member in members)
        views = [member.plan.view for member in members]
        with prepare_openers(self._connections, ends, views, when_asked=here) as openers:
            by_name = {member.name: member for member in members}
            batch = Batch(number, by_name, outcome.kept, ends, openers, self._connections.reader)
            results = self._run_parts(batch, members, inline, outcome)
        for member in members:
            mine = [result for result in results if result.view == member.name]
            try:
                self._gather_results(batch, member, mine, outcome)
            except WarehouseError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it is of this view
                outcome.errors[member.name] = UnexpectedViewError(member.name, error)

    def _run_parts(
        self, batch: Batch, members: Sequence[BatchMember], inline: bool, outcome: BatchOutcome
    ) -> list[PartResult]:
        early = [m for m in members if not m.plan.view.needs_spark]
        late = [m for m in members if m.plan.view.needs_spark]
        slots = 1 if inline else self._task_slots()
        tasks = [task for m in early for task in self._part_tasks(batch, m, slots)]
        minutes = self._settings.spark.job_minutes
        results: list[PartResult] = []
        if tasks and inline:
            results += run_inline(batch, tasks)
        elif tasks:
            outcome.where = "spark"
            results += run_on_spark(self._spark.get_session(), batch, tasks, minutes)
        outcome.parts = len(tasks)
        for member in late:
            tasks = self._part_tasks(batch, member, slots)
            if tasks:
                outcome.where = "spark"
                outcome.parts += len(tasks)
                results += run_late(self._spark.get_session(), batch, member.name, tasks, minutes)
        return results

    def _task_slots(self) -> int:
        return self._spark.get_session().sparkContext.defaultParallelism

    def _part_tasks(self, batch: Batch, member: BatchMember, slots: int) -> list[PartTask]:
        """Parts of bounded size, as many for every task slot as for the others."""
        places = member.plan.view.places
        rows = {p.index: batch.changes.relations[p.relation].rows for p in places}
        total = sum(rows.values())
        waves = max(1, -(-total // (slots * self._settings.batch.part_rows)))
        parts = split_origins(member.plan, rows, max(1, -(-total // (slots * waves))))
        return [PartTask(member.name, number, part) for number, part in enumerate(parts)]

    def _gather_results(
        self,
        batch: Batch,
        member: BatchMember,
        results: Sequence[PartResult],
        outcome: BatchOutcome,
    ) -> None:
        for result in results:
            outcome.lookups.update(result.lookups)
        failed = next((r.error for r in results if r.error), None)
        if isinstance(failed, WarehouseError):
            raise failed
        if failed is not None:
            if isinstance(failed, SourceAwayError):
                self._connections.note_error(failed)
            outcome.errors[member.name] = failed
            return
        files = [file for result in results for file in result.files]
        small = [result.rows for result in results if result.rows is not None]
        if small:
            rows = pa.concat_tables(small)
            number = len(results)
            files.append(write_rows(member.folder, member.schema, rows, batch.number, number))
        outcome.files[member.name] = tuple(files)


def _union_fields(some: Iterable[Field], others: Iterable[Field]) -> tuple[Field, ...]:
    return tuple(sorted({*some, *others}, key=lambda field: field.name))


def clashing_views(views: Sequence[ViewDefinition]) -> set[str]:
    """The views that know a column by another type than some other of these views does: one is
    held before a schema change that the other has followed. They are not swept together."""
    types: dict[tuple[Relation, str], set[pa.DataType]] = {}
    for view in views:
        for relation in view.relations:
            for each in view.fields_of(relation):
                types.setdefault((relation, each.name), set()).add(each.type)
    clashes = {relation for (relation, _), found in types.items() if len(found) > 1}
    return {view.name for view in views if clashes & {*view.relations}}
