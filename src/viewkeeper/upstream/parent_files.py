"""The head and the ledger of a parent's warehouse, read again only where they changed.

A child looks every few milliseconds. While nothing is committed there, a look is one question to
the file system: the head is one file that is replaced by rename. When it was replaced it is read,
and the plans with the numbers that follow. Old plans are folded into one file in time; that is
read only if a plan was folded before it was seen here.

What is read may already have more than the head says: a plan is there before its record. Nobody
takes a ts beyond the head from it.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from viewkeeper.errors import CorruptError, GapError, reload_hint
from viewkeeper.upstream.parent_project import ParentProject
from viewkeeper.warehouse.metadata.batch_plan import LedgerEntry
from viewkeeper.warehouse.metadata.coordination import FILE as COORDINATION
from viewkeeper.warehouse.metadata.coordination import Coordination, read_coordination
from viewkeeper.warehouse.metadata.head import NAME, Head, ViewHead
from viewkeeper.warehouse.metadata.plan_files import load_plans, plan_after

TRIM_ENTRIES = 10_000

Mark = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ParentProgress:
    """How far some views of a parent have come together.

    All of them are committed up to `reach`. From `exact` on every ts has a state of its own; at or
    before `reach` there may be none that has.
    """

    reach: int
    exact: int

    @property
    def is_shown(self) -> bool:
        """Whether the newest common ts has a state of its own."""
        return self.exact <= self.reach


def progress_of(views: Iterable[ViewHead], last_ts: int) -> ParentProgress:
    """How far views have come; if there are none, nothing holds anybody back up to `last_ts`."""
    found = list(views)
    reach = min((view.ts for view in found), default=last_ts)
    return ParentProgress(reach, max((view.exact_ts for view in found), default=0))


def group_by_state(
    entries: Iterable[LedgerEntry], stands: ParentProgress, limit: int
) -> dict[int, list[LedgerEntry]]:
    """Transactions by the ts whose state is theirs, that of at most so many ts."""
    found: dict[int, list[LedgerEntry]] = {}
    for entry in entries:
        at = max(entry.ts, stands.exact)
        if at not in found and len(found) >= limit:
            break
        found.setdefault(at, []).append(entry)
    return found


class ParentFiles:
    """What is known of a parent's warehouse; used under the source's lock."""

    def __init__(self, parent: ParentProject) -> None:
        self._parent = parent
        self._head = Head()
        self._mark: Mark | None = None
        self._entries: list[LedgerEntry] = []
        self._plan = 0
        self._identity = ""
        self._coordination: tuple[Mark | None, Coordination | None] = (None, None)
        self.readings = 0
        """How often everything was read, because it was the first time or did not continue."""

    def current_head(self) -> Head:
        """What is committed now; SourceAwayError if that cannot be read."""
        mark = _file_mark(self._parent.root / NAME)
        if mark is None or mark != self._mark:
            head, identity = self._parent.load_head(), self._parent.load_identity()
            if identity != self._identity:
                # Numbers of another warehouse continue nothing.
                self._identity, self._plan = identity, 0
            try:
                self._read_plans(head)
            except (CorruptError, OSError) as error:
                self._mark = None
                raise self._parent.damaged_error(error) from error
            self._head, self._mark = head, mark
        return self._head

    @property
    def last_ts(self) -> int:
        """The greatest ts that was given there; 1 is the beginning, before the first of them."""
        return self._entries[-1].ts if self._entries else 1

    def entries_between(self, after: int, until: int) -> Sequence[LedgerEntry]:
        """The ledger's entries with `after` < ts <= `until`."""
        first = bisect_right(self._entries, after, key=_ts_of)
        return self._entries[first : bisect_right(self._entries, until, key=_ts_of)]

    def current_coordination(self) -> Coordination | None:
        """What the warehouse says of the groups that it has been in."""
        mark = _file_mark(self._parent.root / COORDINATION)
        if mark is None:
            return None
        if mark != self._coordination[0]:
            try:
                self._coordination = mark, read_coordination(self._parent.root)
            except (CorruptError, OSError) as error:
                raise self._parent.damaged_error(error) from error
        return self._coordination[1]

    def forgotten_error(self, told: Coordination) -> GapError:
        """A group is waited for that the parent has left so long ago that it forgot it."""
        return GapError(
            self._parent.name,
            f'"{told.member}" does not say any more what it took in the group of this project',
            detail=f"groups have changed more often since than the {len(told.spans)} times that "
            f"{self._parent.root / COORDINATION} remembers",
            hint=reload_hint(),
        )

    def trim_entries(self, ts: int) -> None:
        """Forget what lies before a ts, once there is enough of it."""
        before = bisect_right(self._entries, ts - 1, key=_ts_of)
        if before >= TRIM_ENTRIES:
            del self._entries[:before]

    def _read_plans(self, head: Head) -> None:
        root = self._parent.root
        if head.record >= self._head.record and self._plan:
            while (plan := plan_after(root, self._plan)) is not None:
                self._entries += plan.entries
                self._plan = plan.n
            if self._plan >= head.plan:
                return
        entries, through, plans = load_plans(root)
        self._entries = [*entries, *(entry for plan in plans for entry in plan.entries)]
        self._plan = plans[-1].n if plans else through
        self.readings += 1


def _file_mark(path: Path) -> Mark | None:
    """What changes whenever a file is replaced; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _ts_of(entry: LedgerEntry) -> int:
    return entry.ts
