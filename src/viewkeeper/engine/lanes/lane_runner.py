"""Lanes at work: which families go apart now, how far, and whether what they bring still counts.

A lane has no plan: its ts are in the ledger already, with a record behind them. So at most one plan
is open at any time, and a crash leaves nothing to replay of a lane.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from viewkeeper.engine.batch.batch_commit import BatchCommits
from viewkeeper.engine.batch.batch_runner import BatchOutcome
from viewkeeper.engine.batch.staged_run import BatchView
from viewkeeper.engine.lanes.lane_batch import LaneBatch, Lanes
from viewkeeper.engine.lanes.lane_choice import LaneChoice
from viewkeeper.engine.views.algorithm_choice import AlgorithmChoices
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.warehouse.metadata.plan_files import LedgerEntry

LANE_ROWS = 100_000
"""A lane takes so many changes at a time, or one transaction: the others wait while they are
read."""

Span = tuple[int, int, str]
"""From which ts to which a view goes, and with which others."""


class LaneRunner:
    """Begins and ends the lanes of one warehouse; used by the maintaining thread."""

    def __init__(
        self,
        workspace: Workspace,
        choices: AlgorithmChoices,
        commits: BatchCommits,
        under_way: Lanes,
    ) -> None:
        self._settings = workspace.settings
        self._store = workspace.store
        self._choices = choices
        self._commits = commits
        self._choice = LaneChoice(workspace.settings.batch.inline_rows)
        self._awaited: Callable[[], Collection[str]] = tuple
        self._is_allowed = False
        self.under_way = under_way

    def await_parents(self, awaited: Callable[[], Collection[str]]) -> None:
        """Keep the families of views together that somebody waits for to be at the newest ts."""
        self._awaited = awaited

    def allow_lanes(self) -> None:
        """Let views advance apart from now on, unless the project forbids it, or is in a group,
        whose members follow one order."""
        self._is_allowed = self._settings.lanes == "auto" and self._settings.registry is None

    @property
    def has_ended(self) -> bool:
        """Whether a lane has brought something that is to be committed."""
        return self.under_way.has_ended

    def has_to_wait(self, name: str) -> bool:
        """Whether nothing can be done for a view before a lane has ended."""
        return self.under_way.is_held(name) or self.under_way.is_waiting(name)

    @property
    def reasons(self) -> Mapping[str, str]:
        """The views that advance apart, and why."""
        return self._choice.reasons

    def note_batch(self, outcome: BatchOutcome) -> None:
        """A batch is done: what its views cost."""
        self._choice.note_batch(outcome.view_seconds)

    def choose_families(
        self,
        spans: Mapping[str, Span],
        entries: Sequence[LedgerEntry],
        alone: Collection[str],
    ) -> list[frozenset[str]]:
        """The families that go apart; `entries` are not in the ledger yet. Views that go `alone`
        afterwards, here, read what their parents have stored."""
        if not self._is_allowed or len(spans) < 2:
            return []
        awaited, choices = self._awaited, self._choices
        return self._choice.divide_views(
            {name: choices[name].view for name in spans},
            self._count_changes(spans, entries),
            lambda: {*awaited(), *(parent for n in alone for parent in choices[n].view.parents)},
        )

    def _count_changes(
        self, spans: Mapping[str, Span], entries: Sequence[LedgerEntry]
    ) -> Callable[[str], int] | None:
        """Counts the changes before each view; None if none can have many."""
        ledger, new = self._store.ledger, sum(entry.changes for entry in entries)
        last = ledger.next_ts - 1
        if new <= self._settings.batch.inline_rows and all(s[0] >= last for s in spans.values()):
            return None

        def changes_of(name: str) -> int:
            known = ledger.entries_between(*spans[name][:2])
            sources = self._choices[name].view.sources
            return sum(e.changes for e in (*known, *entries) if e.source in sources)

        return changes_of

    def begin_family(self, family: frozenset[str], spans: Mapping[str, Span]) -> None:
        """Begin a batch of a family, of those of its views that are furthest behind."""
        groups = sorted({spans[name] for name in family if spans[name][0] < spans[name][1]})
        if not groups or not self.under_way.can_begin(family):
            return
        names = [name for name, span in spans.items() if name in family and span == groups[0]]
        since, until, _ = groups[0]
        sources = {source for name in names for source in self._choices[name].view.sources}
        work = self._commits.plan_work(names, since, self._limit_span(since, until, sources))
        self.under_way.begin_batch(work, family)

    def _limit_span(self, since: int, until: int, sources: Collection[str]) -> int:
        """The last ts up to which a lane reads no more of its sources than it may; at least the
        first one."""
        total, reached = 0, since
        for entry in self._store.ledger.entries_between(since, until):
            total += entry.changes if entry.source in sources else 0
            if total > min(LANE_ROWS, self._settings.batch.rows) and reached > since:
                return entry.ts - 1
            reached = entry.ts
        return until

    def take_ended(self) -> list[LaneBatch]:
        """The batches that have ended and still count; what others were to bring is forgotten."""
        ended = self.under_way.take_ended()
        counting = [lane for lane in ended if self._is_as_begun(lane)]
        for lane in (lane for lane in ended if lane not in counting):
            lane.runner.clean_spool()
        return counting

    def _is_as_begun(self, lane: LaneBatch) -> bool:
        """Whether the views of a lane are as they were when it began: nobody has stopped, redefined
        or replaced them, and no source has lost what they still need."""
        since = lane.work.span.since
        return all(
            self._is_same(member)
            and self._store.ledger.gap_after(since, member.view.sources) is None
            for member in lane.work.members
        )

    def _is_same(self, member: BatchView) -> bool:
        if member.name not in self._choices or self._choices[member.name].view != member.view:
            return False
        views = self._store.head.maintained_views
        for name, table in member.tables.items():
            now, then = views.get(name), table.head
            if now is None or now.stopped or (now.table, now.ts) != (then.table, then.ts):
                return False
            if now.schema != then.schema or now.versions != then.versions:
                return False
        return True
