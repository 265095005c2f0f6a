"""The commit that takes one view over a barrier, to a state without rows that nobody listed.

What went is taken out of the stored view, everything else up to the barrier is maintained as one
transaction, and both are one commit (`viewkeeper.engine.batch.barrier` says why that is exact).
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.engine.batch.barrier import Sieve, keys_of, removal_files
from viewkeeper.engine.batch.batch_runner import BatchOutcome, BatchRunner
from viewkeeper.engine.batch.staged_run import BatchView
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import SourceError
from viewkeeper.warehouse.metadata.batch_plan import BatchPlan, LedgerEntry


class BarrierCrossing:
    """Brings views over barriers, one view at a time."""

    def __init__(self, workspace: Workspace, batches: BatchRunner) -> None:
        self._store = workspace.store
        self._connections = workspace.connections
        self._batches = batches

    def record_barriers(self, entries: Sequence[LedgerEntry]) -> bool:
        """Give entries their ts at once if there is a barrier or a schema change among them, which
        views must find in the ledger; whether that was so."""
        if not any(e.emptied or e.keyed or e.reshaped or e.gap for e in entries):
            return False
        plan = BatchPlan(self._store.next_plan, tuple(entries))
        self._store.write_plan(plan)
        self._store.commit([], plan.n)
        return True

    def commit_crossing(
        self, plan: BatchPlan, member: BatchView
    ) -> tuple[list[LedgerEntry], BatchOutcome]:
        """Do the work of a plan that takes one view over a barrier, and commit it."""
        view, (after, until) = member.view, plan.views[member.name]
        ledger = self._store.ledger.entries_between(after, until)
        entries = [entry for entry in ledger if entry.source in view.sources]
        ends = self._store.positions_until(member.name, until)
        number = self._store.head.record + 1
        try:
            sieve = Sieve(entries, keys_of(view, entries, self._connections))
        except SourceError as error:
            outcome = self._batches.failed_outcome(member, error)
        else:
            outcome = self._batches.cross_barrier(number, member, entries, ends, sieve)
        if member.name not in outcome.errors:
            gone = removal_files(self._store, view, sieve, until, number)
            outcome.files[member.name] = (*gone, *outcome.files.get(member.name, ()))
        self._store.commit(outcome.changes_for(member, until, ends, exact=False), plan.n)
        self._batches.clean_spool()
        return entries, outcome
