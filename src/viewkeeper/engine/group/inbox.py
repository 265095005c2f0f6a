"""What has come from one source and has not had its turn: one queue of a mediator's RMQ.

Reports are kept as the source made them, up to where it was looked at. When an id is taken, all
that was reported up to its position becomes one entry; a report that goes beyond it stays, because
it was made of several commits, and the rows of each are found in the log by their positions.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from viewkeeper.errors import GapError
from viewkeeper.order.mediator import TakenIds
from viewkeeper.updates.source_protocol import Boundary, Source, Tables
from viewkeeper.warehouse.metadata.batch_plan import LedgerEntry

OVERDUE_SECONDS = 3.0


@dataclass(slots=True)
class Inbox:
    """What was received of one source: taken up to `at`, looked at up to `read`."""

    at: int
    read: int
    began: int | None = None
    """Where it began to be followed, until a number stands for where it is."""
    required: int | None = None
    """Where all that a new view reads began to be captured; to be taken before that is loaded."""
    captured: Tables = field(default_factory=dict)
    """What is captured since then."""
    beyond: int | None = None
    """The last position that was registered before it began to be followed, if that lies beyond."""
    reports: deque[Boundary] = field(default_factory=deque)
    since: float = 0.0
    """When the first of them became the first."""

    def add_reports(self, boundaries: Sequence[Boundary]) -> None:
        if not self.reports:
            self.since = time.monotonic()
        self.reports.extend(boundaries)
        if boundaries:
            self.read = boundaries[-1].position

    def note_registered(self, registered: Iterable[int]) -> None:
        """Note what was registered before it began to be followed, and lies beyond that."""
        last = max(registered, default=0)
        if self.began is not None and last > self.at:
            self.beyond = last

    def settle_place(self) -> None:
        """The position of the source has a number in the order now."""
        self.began = None

    def require_captured(self, tables: Tables) -> None:
        """These are captured from where it was looked at; what came before is to be taken first."""
        self.required, self.captured = self.read, tables

    def drop_requirement(self) -> None:
        """What a new view reads is loaded."""
        self.required = None

    def has_gone_back(self, source: Source) -> bool:
        """Whether a database that was just looked at has less than its group has ordered."""
        if self.beyond is None:
            return False
        return max(self.at, self.read) < self.beyond and not source.has_passed(self.beyond)

    @property
    def overdue_position(self) -> int | None:
        """The position of a report that has waited for long; its reporter may not see it."""
        late = bool(self.reports) and time.monotonic() - self.since > OVERDUE_SECONDS
        return self.reports[0].position if late else None

    def has_captured(self, tables: Tables) -> bool:
        """Whether these are captured, and what came before that waits to be taken."""
        return self.required is not None and self.captured == tables

    @property
    def is_ready(self) -> bool:
        """Whether all that was captured with too few columns is taken."""
        return self.required is None or not self.reports or self.at >= self.required

    def take_entry(
        self, source: str, until: int, ts: int, taken: TakenIds, now: float
    ) -> LedgerEntry:
        """What an id is at this source: all that was reported up to its position."""
        after, self.at, self.read = self.at, until, max(self.read, until)
        found: list[Boundary] = []
        while self.reports and self.reports[0].position <= until:
            found.append(self.reports.popleft())
            self.since = time.monotonic()
        # Changes of a report that goes beyond are counted at its end.
        rest = [self.reports[0]] if self.reports else []
        times = [boundary.committed_at for boundary in (*found, *rest)]
        return LedgerEntry(
            ts,
            source,
            after,
            until,
            min(times, default=now),
            sum(boundary.changes for boundary in found),
            _joined_names(boundary.emptied for boundary in found),
            _joined_names(boundary.keyed for boundary in found),
            tuple(change for boundary in found for change in boundary.reshaped),
            taken.n,
            taken.first,
        )


def gone_back_error(source: str, received: Inbox) -> GapError:
    """The error of a database whose log ends before a position that its group has registered."""
    return GapError(
        source,
        "it has gone back behind what its group has ordered",
        detail=f"it is at position {received.at}, and {received.beyond} is registered: it was "
        "replaced, or restored from a backup",
        hint="begin a new order: `viewkeeper registry leave URL MEMBER` with this member, then run "
        "all members that read it again",
    )


def _joined_names(parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in parts for name in part))
