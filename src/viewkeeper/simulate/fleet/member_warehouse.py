"""The durable part of a simulated member: what it has committed, and in which groups.

A commit is one atomic step: rows of all views, the entries of the ledger, where the sources stand.
A crash loses everything else. Others read it like a source, and in the group also which ts stands
for which number of the order (`viewkeeper.warehouse.metadata.coordination` has the same spans).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from viewkeeper.check.fleet.fleet_history import MemberHistory, MemberState
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.mediator import OrderMark
from viewkeeper.simulate.fleet.fleet_scenario import MemberPlan
from viewkeeper.simulate.fleet.signed_log import Signed, SignedLog
from viewkeeper.view.sweep_plan import SweepPlan, sweep_plan_of
from viewkeeper.warehouse.metadata.coordination import GroupSpan


@dataclass(frozen=True, slots=True)
class MemberEntry:
    """A line of the ledger: number n of a group became part of a ts, with the next one or not."""

    ts: int
    group: str
    n: int
    id: GlobalId
    shown: bool
    positions: Mapping[str, int]
    """Where all sources stand with it."""


class MemberWarehouse:
    """One member's files."""

    def __init__(self, plan: MemberPlan) -> None:
        self.plan = plan
        self.plans: dict[str, SweepPlan] = {n: sweep_plan_of(v) for n, v in plan.views.items()}
        self.log: SignedLog | None = None
        self.positions: dict[str, int] = {}
        self.entries: list[MemberEntry] = []
        self.spans: list[GroupSpan] = []
        self._loaded: dict[str, int] = {}

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def ts(self) -> int:
        return self.log.position if self.log is not None else 0

    @property
    def span(self) -> GroupSpan:
        """The newest."""
        return self.spans[-1]

    def load_rows(self, rows: Signed, positions: Mapping[str, int], group: str, n: int) -> None:
        """The first state, as of a number of the group."""
        self.log = SignedLog(rows)
        self.positions = dict(positions)
        self._loaded = dict(positions)
        self.spans = [GroupSpan(group, group, 0, n, 0)]
        self._first = n

    def enter_group(self, group: str) -> None:
        """Go on in another group, from its beginning."""
        self.spans.append(GroupSpan(group, group, self.ts, 0, self.ts))

    def note_reached(self, n: int) -> None:
        """Note that everything up to a number is in the ledger."""
        self.spans[-1] = replace(self.span, n=max(self.span.n, n), ts=self.ts)

    def commit_entries(
        self, entries: Sequence[MemberEntry], rows: Mapping[int, Signed], n: int
    ) -> None:
        """One atomic step: entries of one or several ts, with the rows that each ts changes."""
        assert self.log is not None, "it is loaded"
        for ts in dict.fromkeys(entry.ts for entry in entries):
            self.log.commit_changes(ts, rows.get(ts, {}))
        self.entries += entries
        self.positions = dict(entries[-1].positions)
        self.note_reached(n)

    def marks_of(self, group: str) -> tuple[list[OrderMark], int]:
        """Which ts stands for which number of a group, and up to which everything is there."""
        at = next((i for i, span in enumerate(self.spans) if span.group == group), None)
        if at is None:
            return [], 0
        span = self.spans[at]
        first = OrderMark(self._first if at == 0 else 0, span.since)
        mine = [OrderMark(e.n, e.ts, e.shown) for e in self.entries if e.group == group]
        return [first, *mine], span.n

    def positions_at(self, ts: int) -> Mapping[str, int]:
        """Where the sources stood at a ts."""
        return next((e.positions for e in reversed(self.entries) if e.ts <= ts), self._loaded)

    def member_history(self, settled: Mapping[str, int]) -> MemberHistory:
        """Everything that it showed, for the checker; in groups from where they are settled."""
        assert self.log is not None, "it is loaded"
        states = [MemberState(0, self.log.tables_at(0), self._loaded)]
        for entry in self.entries:
            if entry.shown:
                rows = self.log.tables_at(entry.ts)
                promised = entry.n >= settled[entry.group]
                after = (entry.group, str(entry.id)) if promised else ("", "")
                states.append(MemberState(entry.ts, rows, entry.positions, *after))
        return MemberHistory(self.name, self.plan.views, tuple(states))
