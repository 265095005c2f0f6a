"""Views that are not maintained in batches: each is brought up to date by its own machine.

What a machine commits becomes a record of its own: signed rows as files, key deletes and inserts
evaluated against what is stored. Every record stands for a ts of the ledger, so a view may change
its algorithm between two runs, and one that stopped in the middle goes on from its last record.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import pyarrow as pa

from viewkeeper.engine.algorithms.action_interpreter import ActionInterpreter, LedgerCommit
from viewkeeper.engine.algorithms.asker import Asker
from viewkeeper.engine.batch.batch_runner import BatchRunner
from viewkeeper.engine.batch.change_archive import ChangeArchive
from viewkeeper.engine.capture.lookout import Lookout
from viewkeeper.engine.report import BatchReport
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoice
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import ViewkeeperError
from viewkeeper.maintain.algorithm_catalogue import KINDS
from viewkeeper.updates.queue import BatchChanges
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.updates.view_actions import (
    AddRows,
)
from viewkeeper.view.sweep_plan import sweep_plan_of
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.plan_files import BatchPlan, LedgerEntry
from viewkeeper.warehouse.metadata.record import Advance, DataFile
from viewkeeper.warehouse.rows.stored_actions import evaluate_actions

WORKERS = 4
"""Questions at the same time, where the algorithm does not say."""

QUIET_SECONDS = 30.0
"""How long an algorithm that needs a quiet moment waits for one before others have their turn."""


@dataclass(slots=True)
class StepTotals:
    """What bringing a view up to date took."""

    transactions: int = 0
    changes: int = 0
    rows: int = 0
    commits: int = 0
    lookups: Counter[str] = field(default_factory=Counter)
    ended: bool = True
    """Whether the view came to where it should; if not, the next run goes on."""

    def report_steps(
        self, number: int, view: ViewHead, seconds: float, freshness: float
    ) -> BatchReport:
        return BatchReport(
            number=number,
            where="inline",
            views=(view.view,),
            transactions=self.transactions,
            changes=self.changes,
            rows=self.rows,
            lookups=dict(self.lookups),
            parts=self.commits,
            seconds=seconds,
            freshness=freshness,
            ts=view.ts,
            view_rows={view.view: self.rows},
            view_lookups={view.view: self.lookups.total()},
        )


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """What the runs of all views use."""

    workspace: Workspace
    batches: BatchRunner
    lookout: Lookout
    history: ChangeArchive


class AlgorithmRunner:
    """Runs the machines of a project's views, one view at a time."""

    def __init__(
        self,
        workspace: Workspace,
        batches: BatchRunner,
        lookout: Lookout,
        history: ChangeArchive,
    ) -> None:
        self._store = workspace.store
        self._parts = RunnerParts(workspace, batches, lookout, history)

    def advance_view(
        self, choice: AlgorithmChoice, until: int, stopping: Callable[[], bool]
    ) -> StepTotals:
        """Bring a view from its own ts to a later one of the ledger, or beyond; less if stopped."""
        stepped = StepTotals()
        ahead = self._store.head.views[choice.view.name].ahead
        if ahead and (choice.kind.arrival or choice.kind.caught_up):
            # What lacks below commits ahead must be signed rows, each under its own ts.
            lacking = replace(choice, kind=KINDS["sweep"], options={}, keyed=None)
            self._advance_until(lacking, ahead[-1], stopping, stepped)
        if stepped.ended:
            self._advance_until(choice, until, stopping, stepped)
        return stepped

    def _advance_until(
        self, choice: AlgorithmChoice, until: int, stopping: Callable[[], bool], stepped: StepTotals
    ) -> None:
        end = time.monotonic() + QUIET_SECONDS
        quiet = choice.kind.quiescence
        run = _ViewRun(
            self._parts,
            choice,
            lambda: stopping() or (quiet and time.monotonic() > end),
            stepped,
        )
        name = choice.view.name
        while stepped.ended and (entries := run.next_entries(until)):
            run.run_machine(entries)
        if stepped.ended and self._store.head.views[name].ts < until:
            run.archive_changes(run.queue_entries(()), until)
            self._store.commit([Advance(name, until, self._store.positions_until(name, until))])


class _ViewRun:
    """One view on its way."""

    def __init__(
        self,
        parts: RunnerParts,
        choice: AlgorithmChoice,
        stopping: Callable[[], bool],
        stepped: StepTotals,
    ) -> None:
        self._parts = parts
        self._store = parts.workspace.store
        self.is_stopping = stopping
        self._choice = choice
        self._plan = sweep_plan_of(choice.view)
        self._name = choice.view.name
        self._kept = self._view_head.ts
        self.stepped = stepped

    @property
    def _view_head(self) -> ViewHead:
        return self._store.head.views[self._name]

    def next_entries(self, until: int) -> list[LedgerEntry]:
        """What comes next: as much as a batch may have, or all where arrival order is emulated."""
        ledger, kind = self._store.ledger, self._choice.kind
        # Beyond `until` the ledger has what answers for an earlier view showed; ours show it too.
        end = ledger.next_ts if kind.arrival or kind.caught_up else until
        found = [
            entry
            for entry in ledger.entries_between(self._view_head.ts, end)
            if entry.source in self._choice.view.sources
        ]
        if kind.arrival or kind.caught_up:
            return found
        limit = self._parts.workspace.settings.batch.rows
        last_ahead = max(self._view_head.ahead, default=0)
        totals = accumulate(entry.changes for entry in found)
        chosen = {
            entry.ts
            for entry, total in zip(found, totals, strict=True)
            if total - entry.changes < limit or entry.ts <= last_ahead
        }
        # A ts is taken with the entries of all its sources, or a part of it would never be.
        return [entry for entry in found if entry.ts in chosen]

    def run_machine(self, entries: Sequence[LedgerEntry]) -> None:
        workers = max(WORKERS, int(self._choice.options.get("parallel", 0)))
        with Asker(self._plan, self._parts.workspace.connections, workers) as asker:
            machine = ActionInterpreter(self._choice, self._plan, asker, self)
            self.stepped.ended = machine.run_entries(
                entries, self._view_head.positions, self._view_head.ahead
            )
            self.stepped.lookups += asker.lookups
        self.stepped.changes += machine.changes
        self._parts.batches.clean_spool()

    def queue_entries(self, entries: Sequence[LedgerEntry]) -> BatchChanges:
        return self._parts.batches.queue_changes([self._plan.view], entries)

    def archive_changes(self, changes: BatchChanges, until: int) -> None:
        """Remember the changes, so that past states can be verified."""
        if self._parts.workspace.settings.history:
            self._parts.history.keep_changes(changes, self._kept, until)
        self._kept = until

    def read_entries(self, entries: Sequence[LedgerEntry]) -> BatchChanges:
        self.stepped.transactions += len(entries)
        changes = self.queue_entries(entries)
        self.archive_changes(changes, entries[-1].ts)
        return changes

    def look_further(self, source: str, position: int) -> tuple[LedgerEntry, ...]:
        """What a cut has shown gets its ts, in a plan of its own that is finished at once."""
        store = self._store
        entries = self._parts.lookout.entries_until(source, position)
        if entries:
            plan = BatchPlan(store.next_plan, entries)
            store.write_plan(plan)
            store.commit([], plan.n)
        return entries

    def write_commit(self, written: LedgerCommit) -> None:
        store, head = self._store, self._view_head
        ts = max(written.ts, head.ts)
        files = self._commit_files(written, ts)
        positions = store.positions_until(self._name, ts)
        exact = written.exact
        store.commit([Advance(self._name, ts, positions, files, written.ahead, exact)])
        self.stepped.commits += 1
        self.stepped.rows += sum(file.rows for file in files)

    def _commit_files(self, written: LedgerCommit, ts: int) -> tuple[DataFile, ...]:
        store, head = self._store, self._view_head
        added = [change.rows for change in written.changes if isinstance(change, AddRows)]
        others = [change for change in written.changes if not isinstance(change, AddRows)]
        assert not (added and others), "an algorithm adds rows or acts on those that are stored"
        if others:
            signed = evaluate_actions(store.root, head, others)
            stamps = pa.array([ts] * signed.num_rows, pa.int64())
            added = [signed.append_column(TS, stamps)]
        columns = [*head.schema.names, COUNT, TS]
        rows = [table.select(columns) for table in added if table.num_rows]
        if not rows:
            return ()
        number = store.head.record + 1
        whole = pa.concat_tables(rows)
        return (store.group.keep_rows(store.folder_of(self._name), head.schema, whole, number, 0),)


def no_quiet_error(choice: AlgorithmChoice) -> ViewkeeperError:
    """What to say of a view whose algorithm waited in vain."""
    return ViewkeeperError(
        f'view "{choice.view.name}": no quiet moment within {QUIET_SECONDS:.0f} s',
        detail=f"{choice.kind.name} shows changes only when no question is unanswered, and "
        "updates keep coming",
        hint="batch_sweep, sweep and pvm_cc need no quiet moment",
    )
