"""How far everything is: gathered from the warehouse's files and the sources, nothing started.

No lock is taken and no JVM is started, so it works beside a running maintainer, and when a source
is away. A view's lag at a source is what the source has beyond the view's position: how many
changes, and how old the oldest of them is, where it can count that beside whoever maintains;
elsewhere what the ledger knows. Transactions are counted where they have a ts, in the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from viewkeeper.engine.connections.guarded_source import contain_errors
from viewkeeper.engine.connections.open_sources import reader_of
from viewkeeper.engine.evolution.proposals import HELD, Proposals
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.views.written_views import edit_refusal
from viewkeeper.errors import ViewkeeperError, WarehouseError, reload_hint
from viewkeeper.sources.kinds import is_clock, position_style_of
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.storage.local_lock import LockHolder
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import local_folder, storage_of
from viewkeeper.updates.source_protocol import ChangesBehind, RetainedLog
from viewkeeper.upstream import leases
from viewkeeper.upstream.any_source import open_source
from viewkeeper.upstream.leases import Lease
from viewkeeper.view.definition import PROJECT
from viewkeeper.warehouse.activity import ViewActivity, read_activity
from viewkeeper.warehouse.metadata.head import Head, ViewHead, read_head
from viewkeeper.warehouse.metadata.plan_files import Ledger, load_ledger
from viewkeeper.warehouse.rows.view_state import files_of, table_folder
from viewkeeper.warehouse.scrub import find_damage
from viewkeeper.warehouse.waiting_reasons import WaitingReasons, read_waiting


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source now; `error` says why it does not answer, `retained` is how much it keeps for its
    readers, in `unit`."""

    name: str
    kind: str
    error: str | None = None
    followed: bool = False
    position: int | None = None
    retained: int = 0
    unit: str = "changes"
    readers: tuple[RetainedLog, ...] = ()
    warnings: tuple[str, ...] = ()
    positions: str = "number"
    """How positions of it are written: as a number, as the server's LSN or place in the binlog."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a view is behind one source.

    `transactions` have a ts and are not applied; `more` says whether the source has changes beyond
    those, or where it cannot say, whether its log goes on. `changes` and `seconds` (the age of
    the oldest change) are None while it is away, or if nothing captures its changes any more.
    """

    source: str
    position: int | None
    transactions: int
    more: bool
    changes: int | None
    seconds: float | None
    captured: bool = True


@dataclass(frozen=True, slots=True)
class StoredNode:
    """A fold inside a view: how much is stored of it, and the rows behind its largest key."""

    name: str
    rows: int
    files: int
    bytes: int
    largest_key: int | None = None


ViewState = Literal[
    "maintained", "waiting", "refreshing", "refused", "removed", "held", "stopped", "unloaded"
]

STATE_WORDS: Mapping[ViewState, str] = {
    "maintained": "maintained",
    "waiting": "waits",
    "refreshing": "loads again",
    "refused": "goes on by its stored SQL",
    "removed": "its file is gone",
    "held": "held: needs approval",
    "stopped": "stopped",
    "unloaded": "not loaded yet",
}
"""What people read of each state, in `status`, on the live display and on the web page."""


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """A view as committed; `loaded` is False before its initial load.

    `state` says how it is, and `problem` why it is not simply maintained. A view that is loaded
    again shows its last state until then, and one whose file is edited or refused goes on by its
    stored SQL: neither is down.
    """

    name: str
    loaded: bool
    ts: int | None
    horizon: int | None
    rows: int | None
    files: int | None
    committed_at: float | None
    lags: tuple[Lag, ...]
    problem: str | None
    state: ViewState
    stored: tuple[StoredNode, ...] = ()
    """The folds that it keeps beside its own rows."""
    asked_rows: int | None = None
    """The rows that its sources gave for the lookups of its last batch; None before any."""
    largest_key: int | None = None
    """The rows behind the largest key of its own table, where that is a fold's."""
    freshness: tuple[float, ...] = ()
    """Median, 95th and 99th percentile of the seconds from commit at a source to commit here, over
    its last batches."""
    recomputed: str | None = None
    """Why it is computed again instead of maintained from changes."""
    bytes: int | None = None
    """The size of all that is stored of it, its folds included."""
    refreshing: bool = False
    """Whether it is to be loaded again, and shows its last state until then."""
    apart: str | None = None
    """Why it advances apart from the others while `run` is at work, if it does."""

    @property
    def state_words(self) -> str:
        return STATE_WORDS[self.state]

    @property
    def is_up(self) -> bool:
        """Whether it is loaded, and will advance without anybody's help."""
        return self.loaded and self.state not in ("held", "stopped")

    @property
    def lag_seconds(self) -> float | None:
        """The age of the oldest change that it does not show; None if a source is away."""
        ages = [lag.seconds for lag in self.lags]
        known = [age for age in ages if age is not None]
        return max(known, default=0.0) if len(known) == len(ages) else None


@dataclass(frozen=True, slots=True)
class ProjectStatus:
    """Everything at one moment, `at`, in seconds since the epoch."""

    at: float
    folder: Path
    warehouse: StoragePath
    running: LockHolder | None
    views: tuple[ViewStatus, ...]
    sources: tuple[SourceStatus, ...]
    leases: tuple[Lease, ...] = ()
    """What other projects that read these views still need of their past."""

    @property
    def ok(self) -> bool:
        """Whether nothing needs anybody's attention."""
        away = any(source.error for source in self.sources)
        return not away and all(view.loaded and view.problem is None for view in self.views)

    def lag_of(self, source: str) -> tuple[int, float] | None:
        """How many changes of a source some view lacks, and the age of the oldest; None if nobody
        can say."""
        lags = [lag for view in self.views for lag in view.lags if lag.source == source]
        known = [(lag.changes, lag.seconds or 0.0) for lag in lags if lag.changes is not None]
        if not known:
            return None
        return max(changes for changes, _ in known), max(seconds for _, seconds in known)


def gather_status(settings: Settings, now: float, count_transactions: bool = True) -> ProjectStatus:
    """The status of a project; without `count_transactions` the ledger is not read."""
    head = read_head(settings.warehouse)
    ledger = load_ledger(settings.warehouse) if count_transactions else Ledger()
    reader = reader_of(settings.warehouse)
    wanted = _wanted_positions(head, ledger)
    planned = _planned_views(settings, head)
    settings.check_named_views({*planned, *head.shown_views})
    used = {name for view in planned.values() for name in view.sources}
    looks = {
        name: _look_at_source(source, reader, wanted.get(name, set()))
        for name, source in settings.sources.items()
        if name in used or not is_clock(source)
    }
    activity = read_activity(local_folder(settings.warehouse))
    running = running_holder(settings.warehouse, now)
    known = _known_reasons(settings.warehouse, head, ledger, running is not None)
    views = [
        _loaded_status(
            view,
            ledger,
            looks,
            now,
            planned,
            known,
            _stored_tables(settings, head, view, activity.get(view.view)),
        )
        for view in head.shown_views.values()
    ]
    views += [
        _unloaded_status(name, found, known)
        for name, found in planned.items()
        if name not in head.views
    ]
    return ProjectStatus(
        at=now,
        folder=settings.folder,
        warehouse=settings.warehouse,
        running=running,
        views=tuple(sorted(views, key=lambda view: view.name)),
        sources=tuple(status for status, _ in looks.values()),
        leases=tuple(leases.active_leases(settings.warehouse, now)),
    )


def running_holder(warehouse: StoragePath, now: float) -> LockHolder | None:
    """Who maintains the warehouse now, if anybody does."""
    return storage_of(warehouse).commits.running_holder(warehouse, now)


def _wanted_positions(head: Head, ledger: Ledger) -> dict[str, set[int]]:
    """The positions from which on changes are to be counted, per source."""
    wanted: dict[str, set[int]] = {}
    for view in head.views.values():
        for source, position in view.positions.items():
            known = ledger.position_at(source, ledger.next_ts)
            wanted.setdefault(source, set()).update((position, max(position, known or 0)))
    return wanted


Look = tuple[SourceStatus, Mapping[int, ChangesBehind]]


def _look_at_source(settings: SourceSettings, reader: str, positions: set[int]) -> Look:
    """A source as it is now."""
    name, kind = settings.name, settings.kind
    try:
        with contain_errors(name), closing(open_source(settings, reader)) as source:
            found = source.read_health(positions)
    except ViewkeeperError as error:
        style = position_style_of(settings)
        return SourceStatus(name, kind, error=str(error), positions=style), {}
    status = SourceStatus(
        name,
        kind,
        None,
        found.followed,
        found.position,
        found.retained,
        found.unit,
        found.readers,
        found.warnings,
        position_style_of(settings),
    )
    return status, found.behind


@dataclass(frozen=True, slots=True)
class _Planned:
    """A view as the project has it now: its sources, and what is wrong with its file.

    With something wrong, a stored view `goes_on` by its stored SQL, if the sources of that exist.
    """

    sources: tuple[str, ...]
    problem: str | None
    goes_on: bool = True


def _planned_views(settings: Settings, head: Head) -> dict[str, _Planned]:
    """The views of the project's folder; files are parsed unless all of them are stored so."""
    from viewkeeper.engine.views.view_files import read_view_files, settle_views

    sources = frozenset(settings.sources)
    found = _unchanged_views(settings.folder / "views", head, sources)
    texts = {name: view.definition for name, view in head.shown_views.items()}
    if found is None:
        files = read_view_files(settings.folder, texts)
        settled, found = settle_views(files, texts, sources, {}), {}
        for name, refused in settled.refused.items():
            found[name] = _Planned((), f"refused: {refused.error}", goes_on=False)
        for name, view in settled.parsed.items():
            own = tuple(dict.fromkeys(r.source for r in view.relations if not r.is_own))
            is_edited = name in texts and view.text != texts[name]
            refusal = str(edit_refusal(name)).removeprefix(f'view "{name}": ')
            changed = refusal if is_edited else None
            problem = found[name].problem if name in found else changed
            found[name] = _Planned(own, problem)
    return found


def _unchanged_views(
    folder: Path, head: Head, sources: frozenset[str]
) -> dict[str, _Planned] | None:
    """The views of a folder, if every file is stored as it is and its sources are there."""
    stored = {view.definition: view for view in head.shown_views.values()}
    found: dict[str, _Planned] = {}
    for file in folder.glob("*.sql"):
        try:
            view = stored.pop(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, KeyError):
            return None
        found[view.view] = _Planned(tuple(view.positions), None)
    is_known = all(sources.issuperset(each.sources) for each in found.values())
    return found if is_known and not (stored and _reads_views(found, head)) else None


def _reads_views(names: Collection[str], head: Head) -> bool:
    """Whether some of these views read others of the project."""
    return any(head.views[name].parent_tables for name in names)


@dataclass(frozen=True, slots=True)
class _KnownReasons:
    """What was written down of views that do not advance: those that are held at a schema change,
    those that are to be loaded again, and what the last maintainer noted."""

    held: frozenset[str]
    refreshing: frozenset[str]
    noted: WaitingReasons
    newest: int
    is_running: bool

    def refresh_state(self, view: ViewHead) -> tuple[ViewState, str]:
        """The state of a view that is to be loaded again; where that has gone wrong it has stopped,
        until somebody mends the cause."""
        name = view.view
        if name in self.noted.failed and (failed := self.noted_reason(name)):
            return "stopped", f"being loaded again: {failed}"
        shown = f"it shows its state of ts {view.ts:,} until then"
        return "refreshing", f"being loaded again: {shown}"

    def noted_reason(self, name: str) -> str | None:
        """What the maintainer that runs, or the last one, has noted of a view."""
        reason = self.noted.views.get(name)
        if reason is None or self.is_running:
            return reason
        return f"when the last run ended: {reason}"


def _known_reasons(
    warehouse: StoragePath, head: Head, ledger: Ledger, is_running: bool
) -> _KnownReasons:
    held = {proposed.view for proposed in Proposals(warehouse).list_proposals()}
    noted = read_waiting(local_folder(warehouse))
    return _KnownReasons(
        frozenset(held),
        frozenset(head.refreshes),
        noted,
        ledger.next_ts - 1,
        is_running,
    )


def _loaded_status(
    view: ViewHead,
    ledger: Ledger,
    looks: Mapping[str, Look],
    now: float,
    planned: Mapping[str, _Planned],
    known: _KnownReasons,
    stored: _StoredTables,
) -> ViewStatus:
    state, problem = _state_of(view, planned.get(view.view), looks, known, stored)
    return ViewStatus(
        name=view.view,
        loaded=True,
        ts=view.ts,
        horizon=view.horizon,
        rows=view.rows,
        files=view.files,
        committed_at=view.committed_at,
        lags=tuple(
            _source_lag(view, name, ledger, looks.get(name), now) for name in view.positions
        ),
        problem=problem,
        state=state,
        stored=stored.nodes,
        asked_rows=stored.activity.asked_rows if stored.activity else None,
        largest_key=stored.activity.largest_keys.get(view.view) if stored.activity else None,
        freshness=stored.activity.freshness if stored.activity else (),
        recomputed=_recomputation_reason(view),
        bytes=stored.bytes,
        refreshing=view.view in known.refreshing,
        apart=(stored.activity.apart or None) if stored.activity else None,
    )


def _state_of(
    view: ViewHead,
    found: _Planned | None,
    looks: Mapping[str, Look],
    known: _KnownReasons,
    stored: _StoredTables,
) -> tuple[ViewState, str | None]:
    """The state of a stored view, and why it is in it; what keeps it from advancing comes first."""
    if stopped := _stopped_problem(view) or _detached_problem(view, looks):
        return "stopped", stopped
    if view.view in known.refreshing:
        return known.refresh_state(view)
    if view.view in known.held:
        return "held", HELD.format(view.view)
    if stored.problem is not None:
        return "stopped", stored.problem
    if found is None:
        return "removed", "its SQL file is gone: the next run drops it"
    if found.problem is not None:
        return "refused" if found.goes_on else "stopped", found.problem
    noted = known.noted_reason(view.view) if view.ts < known.newest else None
    is_away = any(looks[name][0].error for name in view.positions if name in looks)
    return "waiting" if is_away or noted is not None else "maintained", noted


def _recomputation_reason(view: ViewHead) -> str | None:
    graph = view.versions[-1].graph if view.versions else None
    found = None if graph is None else json.loads(graph).get("recomputed")
    return None if found is None else str(found)


@dataclass(frozen=True, slots=True)
class _StoredTables:
    """What is stored of a view beside its rows, what is wrong with any of its tables, which of the
    views that it reads have stopped, and what its last batch did."""

    nodes: tuple[StoredNode, ...]
    damage: WarehouseError | None
    stopped: tuple[str, ...]
    activity: ViewActivity | None
    bytes: int

    @property
    def problem(self) -> str | None:
        if self.damage is None and self.stopped:
            return f'it waits: view "{self.stopped[0]}", which it reads, has stopped'
        return str(self.damage) if self.damage else None


def _stored_tables(
    settings: Settings, head: Head, view: ViewHead, activity: ViewActivity | None
) -> _StoredTables:
    tables = head.tables_of(view.view)
    root = settings.warehouse
    found = [error for table in tables if (error := find_damage(root, table)) is not None]
    largest = activity.largest_keys if activity else {}
    own, *sizes = [_table_bytes(root, table) for table in tables]
    nodes = tuple(
        StoredNode(table.view, table.rows, table.files, size, largest.get(table.view))
        for table, size in zip(tables[1:], sizes, strict=True)
    )
    bound = view.versions[-1].bound if view.versions else ()
    names = [each.table for each in bound if each.source == PROJECT]
    stopped = tuple(n for n in names if n in head.views and head.views[n].stopped)
    damage = found[0] if found else None
    return _StoredTables(nodes, damage, stopped, activity, own + sum(sizes))


def _table_bytes(root: StoragePath, table: ViewHead) -> int:
    try:
        return sum(file.size for file in files_of(table_folder(root, table), table))
    except WarehouseError:
        # What is wrong with it is said as the view's problem.
        return 0


def _detached_problem(view: ViewHead, looks: Mapping[str, Look]) -> str | None:
    """Whether what a view still needs of a source is not captured any more."""
    for name in view.positions:
        if name in looks and not (looks[name][0].followed or looks[name][0].error):
            return (
                f'source "{name}" is detached: its changes are not captured for this project\n'
                f"  hint: `viewkeeper run --reanchor {view.view}` commits the difference as one "
                f"state, {reload_hint([view.view])}"
            )
    return None


def _stopped_problem(view: ViewHead) -> str | None:
    if view.stopped is None or view.stopped_at is None:
        return view.stopped
    since = datetime.fromtimestamp(view.stopped_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"stale since {since}: {view.stopped}"


def _source_lag(view: ViewHead, source: str, ledger: Ledger, look: Look | None, now: float) -> Lag:
    position = view.positions[source]
    waiting = [e for e in ledger.entries_between(view.ts, ledger.next_ts) if e.source == source]
    known = max(position, ledger.position_at(source, ledger.next_ts) or 0)
    behind = look[1] if look else {}
    if look is not None and not (look[0].followed or look[0].error):
        return Lag(source, position, len(waiting), False, None, None, captured=False)
    if position not in behind:
        age = max((now - entry.committed_at for entry in waiting), default=None)
        if look is None or look[0].error:
            return Lag(source, position, len(waiting), False, None, age)
        changes = sum(entry.changes for entry in waiting)
        more = (look[0].position or 0) > known
        return Lag(source, position, len(waiting), more, changes, age or 0.0)
    here = behind[position]
    age = max(0.0, now - here.oldest_at) if here.changes else 0.0
    more = known in behind and behind[known].changes > 0
    return Lag(source, position, len(waiting), more, here.changes, age)


def _unloaded_status(name: str, found: _Planned, known: _KnownReasons) -> ViewStatus:
    lags = tuple(Lag(source, None, 0, False, None, None) for source in found.sources)
    problem = found.problem or known.noted_reason(name)
    return ViewStatus(name, False, None, None, None, None, None, lags, problem, "unloaded")
