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

from viewkeeper.engine.connections.guarded_source import contain_errors
from viewkeeper.engine.connections.open_sources import reader_of
from viewkeeper.engine.evolution.proposals import HELD, Proposals
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.errors import ViewkeeperError, WarehouseError, reload_hint
from viewkeeper.sources.kinds import is_clock
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
from viewkeeper.warehouse.lake.lake_table import files_of
from viewkeeper.warehouse.metadata.head import Head, ViewHead, read_head
from viewkeeper.warehouse.metadata.plan_files import Ledger, load_ledger
from viewkeeper.warehouse.rows.view_state import table_folder
from viewkeeper.warehouse.scrub import find_damage


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


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """A view as committed; `loaded` is False before its initial load."""

    name: str
    loaded: bool
    ts: int | None
    horizon: int | None
    rows: int | None
    files: int | None
    committed_at: float | None
    lags: tuple[Lag, ...]
    problem: str | None
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


def gather_status(settings: Settings, now: float, count_transactions: bool = True) -> ProjectStatus:
    """The status of a project; without `count_transactions` the ledger is not read."""
    head = read_head(settings.warehouse)
    ledger = load_ledger(settings.warehouse) if count_transactions else Ledger()
    reader = reader_of(settings.warehouse)
    wanted = _wanted_positions(head, ledger)
    planned = _planned_views(settings, head)
    used = {name for view in planned.values() for name in view.sources}
    looks = {
        name: _look_at_source(source, reader, wanted.get(name, set()))
        for name, source in settings.sources.items()
        if name in used or not is_clock(source)
    }
    activity = read_activity(local_folder(settings.warehouse))
    held = {p.view for p in Proposals(settings.warehouse).list_proposals()}
    views = [
        _loaded_status(
            view,
            ledger,
            looks,
            now,
            planned,
            held,
            _stored_tables(settings, head, view, activity.get(view.view)),
        )
        for view in head.shown_views.values()
    ]
    views += [
        _unloaded_status(name, found) for name, found in planned.items() if name not in head.views
    ]
    return ProjectStatus(
        at=now,
        folder=settings.folder,
        warehouse=settings.warehouse,
        running=running_holder(settings.warehouse, now),
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
        return SourceStatus(name, kind, error=str(error)), {}
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
    )
    return status, found.behind


@dataclass(frozen=True, slots=True)
class _Planned:
    """A view as the project has it now: its sources, or what is wrong with it."""

    sources: tuple[str, ...]
    problem: str | None


def _planned_views(settings: Settings, head: Head) -> dict[str, _Planned]:
    """The views of the project's folder; those whose text is not the stored one are parsed."""
    stored = {view.definition: view for view in head.shown_views.values()}
    found: dict[str, _Planned] = {}
    for file in sorted((settings.folder / "views").glob("*.sql")):
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            found[file.stem] = _Planned((), f"{file}: {error}")
            continue
        if text in stored:
            found[stored[text].view] = _Planned(tuple(stored[text].positions), None)
        else:
            name, planned = _parse_planned(text, file, head)
            found[name] = planned
    return found


def _parse_planned(text: str, file: Path, head: Head) -> tuple[str, _Planned]:
    from viewkeeper.view.sql.view_statement import parse_view

    try:
        view = parse_view(text, str(file))
    except ViewkeeperError as error:
        return file.stem, _Planned((), str(error))
    sources = tuple(dict.fromkeys(r.source for r in view.relations if not r.is_own))
    changed = (
        "its SQL is not the one that the stored rows were made by\n"
        f"  hint: {reload_hint([view.name])}"
    )
    return view.name, _Planned(sources, changed if view.name in head.views else None)


def _loaded_status(
    view: ViewHead,
    ledger: Ledger,
    looks: Mapping[str, Look],
    now: float,
    planned: Mapping[str, _Planned],
    held: Collection[str],
    stored: _StoredTables,
) -> ViewStatus:
    found = planned.get(view.view)
    gone = "its SQL file is gone: the next run drops it" if found is None else found.problem
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
        problem=_stopped_problem(view)
        or _detached_problem(view, looks)
        or (HELD.format(view.view) if view.view in held else gone)
        or stored.problem,
        stored=stored.nodes,
        asked_rows=stored.activity.asked_rows if stored.activity else None,
        largest_key=stored.activity.largest_keys.get(view.view) if stored.activity else None,
        freshness=stored.activity.freshness if stored.activity else (),
        recomputed=_recomputation_reason(view),
    )


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
    nodes = tuple(
        StoredNode(
            table.view, table.rows, table.files, _table_bytes(root, table), largest.get(table.view)
        )
        for table in tables[1:]
    )
    bound = view.versions[-1].bound if view.versions else ()
    names = [each.table for each in bound if each.source == PROJECT]
    stopped = tuple(n for n in names if n in head.views and head.views[n].stopped)
    return _StoredTables(nodes, found[0] if found else None, stopped, activity)


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


def _unloaded_status(name: str, found: _Planned) -> ViewStatus:
    lags = tuple(Lag(source, None, 0, False, None, None) for source in found.sources)
    return ViewStatus(name, False, None, None, None, None, None, lags, found.problem)
