"""The beginning and the end of a batch: what it has to do, and the record of what it brought.

Both are done by the maintaining thread. What lies between them is done there too, or in a lane
(`viewkeeper.engine.lanes`).
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.engine.batch.batch_runner import BatchActivity, BatchOutcome, BatchWork
from viewkeeper.engine.batch.change_archive import ChangeArchive
from viewkeeper.engine.batch.parent_changes import BatchSpan
from viewkeeper.engine.batch.staged_run import BatchView, StoredTable
from viewkeeper.engine.batch.state_indexes import StateIndexes
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoices
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import ExpressionError
from viewkeeper.updates.queue import BatchChanges
from viewkeeper.view.graph import tables_of_view
from viewkeeper.warehouse.metadata.record import ViewChange


class BatchCommits:
    """Begins and commits the batches of one warehouse; used by the maintaining thread."""

    def __init__(
        self, workspace: Workspace, choices: AlgorithmChoices, indexes: StateIndexes
    ) -> None:
        self._settings = workspace.settings
        self._store = workspace.store
        self._choices = choices
        self.activity = BatchActivity(workspace.store, indexes)
        self.history = ChangeArchive(
            workspace.store.local_root / "history", workspace.store.confirm_lock
        )
        with self._store.group.left_changes() as left:
            self.history.recover_archive(left, self._store.ledger.next_ts - 1)
        self._store.group.write_before_flush(self.history.write_held)

    def clear_archive(self) -> None:
        """Remove the changes that were kept, if the project does not keep any."""
        if not self._settings.history:
            self.history.clear_archive()

    def plan_work(
        self, names: Sequence[str], after: int, until: int, merged: bool = False
    ) -> BatchWork:
        """What it takes to bring views from one ts of the ledger to another; states that are
        `merged` become one."""
        members = [self.batch_view(name) for name in names]
        used = {source for member in members for source in member.view.sources}
        span = BatchSpan(after, until, merged or self._has_inexact_parent(members, after))
        entries = [e for e in self._store.ledger.entries_between(after, until) if e.source in used]
        ends = {s: p for name in names for s, p in self._store.positions_until(name, until).items()}
        head = self._store.head
        return BatchWork(head.record + 1, members, entries, ends, span, head.views)

    def batch_view(self, name: str) -> BatchView:
        """A view as a batch takes it: its definition, and what is stored of it."""
        view = self._choices[name].view
        tables = {
            table: StoredTable(self._store.head.views[table], self._store.folder_of(table))
            for table in tables_of_view(view)
        }
        return BatchView(name, view, tables)

    def commit_outcome(self, work: BatchWork, outcome: BatchOutcome, plan: int | None) -> None:
        """Commit what could be done, which finishes the plan if there is one."""
        span = work.span
        kept = self._keep_history(outcome.kept, span.since, span.until)
        changes = [
            change
            for member in work.members
            # One that has no value is tried again, ts by ts.
            if not isinstance(outcome.errors.get(member.name), ExpressionError)
            for change in self._changes_for(member, work, outcome)
        ]
        with outcome.measure_phase("commit"):
            if changes or plan is not None:
                self._store.commit(changes, plan, kept)
        self.activity.note_committed(outcome, span.since, span.until, work.entries)

    def _changes_for(
        self, member: BatchView, work: BatchWork, outcome: BatchOutcome
    ) -> list[ViewChange]:
        until, exact = work.span.until, not work.span.merged
        positions = self._store.positions_until(member.name, until)
        return outcome.changes_for(member, until, positions, exact)

    def _keep_history(self, changes: BatchChanges, after: int, until: int) -> list[bytes]:
        """Remember changes for `verify`; what the journal shall have of them beside the commit."""
        if not self._settings.history:
            return []
        if self._store.group.is_on:
            return self.history.hold_changes(changes, after, until)
        self.history.keep_changes(changes, after, until)
        return []

    def _has_inexact_parent(self, members: Sequence[BatchView], after: int) -> bool:
        """Whether a view that others read has no state of its own for every ts since then."""
        views = self._store.head.views
        parents = {parent for member in members for parent in member.view.parents}
        return any(views[parent].exact_ts > after for parent in parents)
