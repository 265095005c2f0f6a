"""A parent: another project as its children know it, from its files alone.

Nothing is asked of the parent's process, and nothing is locked. The project file says where its
warehouse is and what its sources are; the head and the ledger of the warehouse say the rest. A ts
of the parent is a position for its children.

Every ts stands for transactions of bases: of the parent's own databases, or of bases further up, if
its sources are warehouses themselves. Their *global ids* are followed up to the bases here, and so
is what a view is ultimately made from.

A child looks every few milliseconds. While nothing is committed there, a look is two questions to
the storage: whether the head, one file that is replaced whole, is the same, and how far the journal
is shown. When one has changed the newest head is read, with the plans that the journal shows and
the files of plans with the numbers that follow. Old plans are folded into one file in time; that is
read only if a plan was folded before it was seen here. In object storage, where every question is a
request that is paid for, a child that has looked often in vain rests in between (`RestingLooks`).

What is read may already have more than the head says: the file of a plan is there before its
record. Nobody takes a ts beyond the head from it. Of the journal only what is shown counts: a plan
behind it may be formed anew, under the same number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

from viewkeeper.errors import (
    DefinitionError,
    GapError,
    ProjectError,
    SourceAwayError,
    ViewkeeperError,
    WarehouseError,
    reload_hint,
)
from viewkeeper.order.global_id import base_name
from viewkeeper.sources.kinds import WAREHOUSE
from viewkeeper.sources.settings import read_yaml
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import open_address, read_mark, storage_of
from viewkeeper.warehouse.metadata.coordination import FILE as COORDINATION
from viewkeeper.warehouse.metadata.coordination import Coordination, read_coordination
from viewkeeper.warehouse.metadata.head import (
    NAME,
    Head,
    ViewHead,
    advance_by_journal,
    read_commit_mark,
    read_head,
    read_journal,
)
from viewkeeper.warehouse.metadata.plan_files import (
    BatchPlan,
    Ledger,
    LedgerEntry,
    decode_plan,
    load_ledger,
    load_plans,
    plans_after,
)
from viewkeeper.warehouse.metadata.record import FOLDER as FOLDER_OF_JOURNAL
from viewkeeper.warehouse.metadata.warehouse_identity import FILE as FILE_OF_IDENTITY
from viewkeeper.warehouse.metadata.warehouse_identity import read_identity

FILE = "viewkeeper.yml"
VIEWS = "views"
DEPTH_MAX = 100
"""Warehouses behind each other; more is a project that reads itself."""

UNREADABLE = (WarehouseError, ProjectError, OSError)
"""What asking a parent's warehouse may meet; it is trouble of that source, not of the child's own
warehouse or project."""


@dataclass(frozen=True)
class ParentProject:
    """The project in a folder, read by the source `name` of another one."""

    name: str
    folder: Path

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The project file; SourceAwayError if it cannot be read."""
        file = self.folder / FILE
        try:
            raw = read_yaml(file)
        except ProjectError as error:
            raise self.away_error(
                f"{file} cannot be read", f"{error.message}: {error.detail}"
            ) from error
        if not isinstance(raw, dict) or not isinstance(raw.get("sources"), dict):
            raise self.away_error(f"{file} is no project file")
        if not isinstance(raw.get("warehouse"), str):
            raise self.away_error(f"{file} names no warehouse")
        return raw

    @cached_property
    def root(self) -> StoragePath:
        """Its warehouse; SourceAwayError if its address or the options for it make no sense."""
        settings, file = self.settings, self.folder / FILE
        local = settings.get("local")
        try:
            return open_address(
                settings["warehouse"],
                self.folder,
                settings.get("storage"),
                str(local) if local else None,
                str(file),
            )
        except ProjectError as error:
            raise self.away_error(error.message, error.detail or "") from error

    def load_head(self) -> Head:
        """What is committed there; SourceAwayError if that cannot be read."""
        try:
            self._require_warehouse()
            return read_head(self.root)
        except UNREADABLE as error:
            raise self.damaged_error(error) from error

    def load_journal(self) -> tuple[Head, list[BatchPlan]]:
        """What is committed there, and the plans that only the journal may have."""
        try:
            self._require_warehouse()
            head, tail = read_journal(self.root)
            plans = [decode_plan(data, self.root / FOLDER_OF_JOURNAL) for data in tail.plans]
            return advance_by_journal(head, tail), plans
        except UNREADABLE as error:
            raise self.damaged_error(error) from error

    def _require_warehouse(self) -> None:
        if not (self.root / NAME).is_file():
            raise self.away_error(f"there is no warehouse in {self.root}")

    def has_definition(self, view: str) -> bool:
        """Whether its project has a view of this name, loaded or not."""
        from viewkeeper.view.sql.view_statement import parse_view

        for file in sorted((self.folder / VIEWS).glob("*.sql")):
            try:
                if parse_view(file.read_text(encoding="utf-8"), str(file)).name == view:
                    return True
            except (OSError, UnicodeDecodeError, DefinitionError):
                # Its own run says what is wrong with it.
                continue
        return False

    def read_ledger(self) -> Ledger:
        """Its ledger; SourceAwayError if that cannot be read."""
        try:
            return load_ledger(self.root)
        except UNREADABLE as error:
            raise self.damaged_error(error) from error

    def load_identity(self) -> str:
        """What tells its warehouse from any other, made with it."""
        try:
            return read_identity(self.root)
        except UNREADABLE as error:
            raise self.away_error(
                f"{self.root / FILE_OF_IDENTITY} cannot be read", str(error)
            ) from error

    def away_error(self, message: str, detail: str = "") -> SourceAwayError:
        return SourceAwayError(
            self.name,
            message,
            detail=detail or None,
            hint="`path` is the folder of the other project, with its viewkeeper.yml; its views "
            "are loaded by `viewkeeper run` there",
        )

    def damaged_error(self, error: Exception) -> SourceAwayError:
        """A file of its warehouse cannot be believed; it is waited for until it can."""
        hint = error.hint if isinstance(error, ViewkeeperError) else None
        return SourceAwayError(
            self.name,
            f"the warehouse in {self.root} cannot be read",
            detail=" ".join(str(error).split()),
            hint=f"mend it there: {hint or 'look at the disk'}",
        )

    def parent_of(self, source: str) -> ParentProject | None:
        """The warehouse behind one of this project's sources; None for a database."""
        facts = self._source_settings(source)
        if facts.get("kind") != WAREHOUSE:
            return None
        return ParentProject(source, self.folder / str(facts.get("path", "")))

    @property
    def member_name(self) -> str:
        """What it is called among the members of its registry."""
        registry = self.settings.get("registry")
        named = registry.get("member") if isinstance(registry, dict) else None
        return str(named or self.folder.resolve().name)

    def positions_at(self, ts: int) -> dict[str, int]:
        """Where its sources stood as of a ts."""
        ledger, found = self.read_ledger(), dict[str, int]()
        for view in self.load_head().views.values():
            found |= ledger.positions_at(view.positions, ts)
        return found

    def base_name(self, source: str) -> str:
        """What a database is called in ids."""
        kind = str(self._source_settings(source).get("kind"))
        return base_name(self.member_name, source, kind, self.global_name(source))

    def global_name(self, source: str) -> str:
        """What a database is called in every project."""
        return str(self._source_settings(source).get("global", source))

    def bases_of(self, view: ViewHead, depth: int = 0) -> frozenset[str]:
        """The global names of all databases that a view is ultimately made from."""
        if depth > DEPTH_MAX:
            raise self.away_error(f'view "{view.view}" is made from itself')
        found: set[str] = set()
        for source in view.positions:
            parent = self.parent_of(source)
            if parent is None:
                found.add(self.global_name(source))
                continue
            views = parent.load_head().views
            for table in {b.table for b in view.versions[-1].bound if b.source == source}:
                if table in views:
                    found |= parent.bases_of(views[table], depth + 1)
        return frozenset(found)

    def _source_settings(self, source: str) -> Mapping[str, Any]:
        facts = self.settings["sources"].get(source, {})
        return facts if isinstance(facts, dict) else {}


def common_base(bases: Mapping[str, frozenset[str]]) -> tuple[str, str, str] | None:
    """The first two of some sources that share a base, and that base; `bases` are those of each.

    >>> common_base({"crm": frozenset({"crm"}), "sales": frozenset({"shop", "crm"})})
    ('crm', 'sales', 'crm')
    >>> common_base({"crm": frozenset({"crm"}), "sales": frozenset({"shop"})}) is None
    True
    """
    for one, other in combinations(bases, 2):
        if shared := bases[one] & bases[other]:
            return one, other, min(shared)
    return None


TRIM_ENTRIES = 10_000

LOOKS_IN_VAIN = 20
REST_SECONDS = 0.25
"""After so many looks in a row without news the next one is no sooner than that."""


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


class RestingLooks:
    """Whether it is time to ask object storage again.

    Only who asks all the time has to wait: a refresh now and then sees what was committed before.
    """

    def __init__(self, steady: Callable[[], float]) -> None:
        """`steady` gives seconds that never decrease."""
        self._steady = steady
        self._asked_at = 0.0
        self._vain = 0

    def is_due(self) -> bool:
        return self._vain < LOOKS_IN_VAIN or self._steady() >= self._asked_at + REST_SECONDS

    def note_look(self, is_news: bool) -> None:
        """Storage was asked, and had news or not."""
        now = self._steady()
        is_soon = now < self._asked_at + 2 * REST_SECONDS
        self._vain = self._vain + 1 if is_soon and not is_news else 0
        self._asked_at = now


class ParentFiles:
    """What is known of a parent's warehouse; used under the source's lock."""

    def __init__(self, parent: ParentProject, steady: Callable[[], float]) -> None:
        """`steady` gives seconds that never decrease, by which looks in object storage rest."""
        self._parent = parent
        self._head = Head()
        self._mark: tuple[object, object] | None = None
        self._looks = RestingLooks(steady)
        self._entries: list[LedgerEntry] = []
        self._plan = 0
        self._identity = ""
        self._coordination: tuple[object, Coordination | None] = (None, None)
        self.readings = 0
        """How often everything was read, because it was the first time or did not continue."""

    def current_head(self) -> Head:
        """What is committed now; SourceAwayError if that cannot be read."""
        is_remote = storage_of(self._parent.root).has_lasting_journal
        if is_remote and not self._looks.is_due():
            return self._head
        mark = self._current_mark()
        self._looks.note_look(is_news=mark is None or mark != self._mark)
        if mark is None or mark != self._mark:
            (head, shown), identity = self._parent.load_journal(), self._parent.load_identity()
            if identity != self._identity:
                # Numbers of another warehouse continue nothing.
                self._identity, self._plan = identity, 0
            try:
                self._read_plans(head, shown)
            except UNREADABLE as error:
                self._mark = None
                raise self._parent.damaged_error(error) from error
            # What is committed since the mark was taken is seen by the next look.
            self._head, self._mark = head, mark
        return self._head

    def _current_mark(self) -> tuple[object, object] | None:
        """What changes with every commit there; None if there is no head."""
        try:
            return read_commit_mark(self._parent.root, self._head)
        except UNREADABLE as error:
            raise self._parent.damaged_error(error) from error

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
        try:
            mark = read_mark(self._parent.root / COORDINATION)
            if mark is None:
                return None
            if mark != self._coordination[0]:
                self._coordination = mark, read_coordination(self._parent.root)
        except UNREADABLE as error:
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

    def _read_plans(self, head: Head, shown: Sequence[BatchPlan]) -> None:
        root = self._parent.root
        if head.record >= self._head.record and self._plan:
            while plans := plans_after(root, self._plan):
                self._take_plans(plans)
            self._take_plans(shown)
            if self._plan >= head.plan:
                return
        entries, through, plans = load_plans(root)
        self._entries = [*entries, *(entry for plan in plans for entry in plan.entries)]
        self._plan = plans[-1].n if plans else through
        self.readings += 1

    def _take_plans(self, plans: Sequence[BatchPlan]) -> None:
        """Those that follow what is known already."""
        for plan in plans:
            if plan.n == self._plan + 1:
                self._entries += plan.entries
                self._plan = plan.n


def _ts_of(entry: LedgerEntry) -> int:
    return entry.ts
