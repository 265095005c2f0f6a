"""Upkeep: what keeps a warehouse small and readable, done when there is nothing more urgent.

Small files are merged when a view has many; what is older than the retention is folded; what no
reader can still use is deleted; indexes are compared with their tables; plain tables are published
at their cadence. Each step is short or rare, and none of it changes a state that is still promised.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from viewkeeper.engine.batch.change_archive import ChangeArchive
from viewkeeper.engine.batch.state_indexes import FOLDER as INDEXES
from viewkeeper.engine.lanes.lane_batch import Lanes
from viewkeeper.engine.repeated_work import repeating_work
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import CorruptError
from viewkeeper.storage import disk
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.upstream import leases
from viewkeeper.view.definition import PROJECT
from viewkeeper.warehouse.lake.data_files import is_unordered
from viewkeeper.warehouse.merge import merge_tail
from viewkeeper.warehouse.metadata.head import Head, owner_of
from viewkeeper.warehouse.metadata.plan_files import Ledger
from viewkeeper.warehouse.metadata.record import Stop
from viewkeeper.warehouse.retention import clean_warehouse
from viewkeeper.warehouse.store import Store

MERGE_FILES = 50
ROUTINE_SECONDS = 600.0
FLUSH_SECONDS = 1.0
"""So old is what readers of the Delta Lake tables see, at most, and the length of a flush."""


@contextmanager
def grouping_commits(store: Store, settings: Settings) -> Iterator[None]:
    """Let small commits go into the journal, and the tables follow every second, in a thread."""
    # In a group, others are told of a ts before the record that it is for.
    store.group.begin(threading.RLock, plans_first=settings.registry is not None)
    with repeating_work("viewkeeper-flush", FLUSH_SECONDS, store.group.flush_tables):
        yield
    store.group.end()


class Upkeep:
    """The upkeep of a running maintainer, one small step at a time."""

    def __init__(self, workspace: Workspace, lanes: Lanes) -> None:
        """The `lanes` know whose thread an index belongs to."""
        self._lanes = lanes
        self._store = workspace.store
        self._settings = workspace.settings
        self._spark = workspace.spark
        self._routine = time.monotonic()
        self._published = time.monotonic()
        self._merged: dict[str, int] = {}

    def run_due_steps(self) -> None:
        """Whatever is due, at most one thing of each kind."""
        self._store.confirm_usable()
        merge_where_due(self._store, self._merged)
        now = time.monotonic()
        if now - self._routine > ROUTINE_SECONDS:
            self._routine = now
            fold_old(self._store, self._settings, self._spark, lambda _: None)
            for name in self._store.head.views:
                with stopping_damaged(self._store, name):
                    self._lanes.compare_indexes(name)
            self._lanes.forget_indexes()
        every = self._settings.publish
        if every is not None and now - self._published > every:
            self._published = now
            shown = tuple(self._store.head.shown_views)
            publish_views(self._store, self._spark, shown, lambda _: None)


def merge_where_due(store: Store, merged: dict[str, int]) -> None:
    """Merge the small files of views that gained many since they were last merged."""
    for name, view in store.head.views.items():
        if view.files - merged.get(name, 0) >= MERGE_FILES and not view.stopped:
            with stopping_damaged(store, name):
                merge_tail(store, name)
            merged[name] = store.head.views[name].files


def keep_small(store: Store) -> None:
    """What a single refresh does for its warehouse: merge where it is due, and clean up with it.

    Who never runs for long would have more files and records to read at every start.
    """
    before = store.head.record
    merge_where_due(store, {})
    if store.head.record > before:
        clean_warehouse(store)


@contextmanager
def stopping_damaged(store: Store, name: str) -> Iterator[None]:
    """Stop a view whose files, or those of its folds, turn out to be damaged; the others go on."""
    try:
        yield
    except CorruptError as error:
        store.commit([Stop(each, str(error)) for each in sorted({name, owner_of(name)})])


def fold_old(
    store: Store, settings: Settings, spark: SparkHandle, told: Callable[[str], None]
) -> None:
    """Fold and forget what is older than the settings keep, and what no child still needs."""
    now = time.time()
    horizon = ts_before(store.ledger, now - settings.retention)
    needed = leases.find_oldest_ts(store.root, now)
    if needed is not None and needed < horizon:
        holders = [str(each) for each in leases.active_leases(store.root, now) if each.ts < horizon]
        told(f"states from ts {needed} on are kept for {', '.join(holders)}")
        horizon = needed
    children = _oldest_children(store.head)
    for name, view in store.head.views.items():
        target = min(horizon, view.ts, children.get(name, view.ts))
        if target > view.horizon:
            from viewkeeper.warehouse.compact import compact_view

            told(f"{name}: folding states before ts {target}")
            with stopping_damaged(store, name):
                compact_view(store, spark.get_session(), name, target)
    history = ChangeArchive(store.local_root / "history", store.confirm_lock)
    with store.group.at_rest():
        history.forget_before(ts_before(store.ledger, now - settings.history))
    clean_warehouse(store)
    remove_unused_indexes(store)


def remove_unused_indexes(store: Store) -> None:
    """Remove the indexes of tables that no view has any more."""
    used = {view.table for view in store.head.views.values()}
    for folder in (store.local_root / INDEXES).glob("*"):
        if folder.name not in used:
            store.confirm_lock()
            disk.remove_tree(folder)


def _oldest_children(head: Head) -> dict[str, int]:
    """Per view of the project that others read, the ts of the slowest reader."""
    oldest: dict[str, int] = {}
    for view in head.shown_views.values():
        for table in view.versions[-1].bound if view.versions else ():
            if table.source == PROJECT:
                oldest[table.table] = min(view.ts, oldest.get(table.table, view.ts))
    return oldest


def ts_before(ledger: Ledger, moment: float) -> int:
    """The newest ts of which everything up to it was committed before a moment; 0 if none."""
    newest = 0
    for entry in ledger.entries:
        if entry.committed_at >= moment:
            break
        newest = entry.ts
    return newest


def compact_views(
    store: Store, settings: Settings, spark: SparkHandle, told: Callable[[str], None]
) -> None:
    """Everything that compaction can do now, for all views."""
    for name in store.head.views:
        told(f"{name}: merging small files")
        merge_tail(store, name)
    fold_old(store, settings, spark, told)
    order_bodies(store, spark, told)


def order_bodies(store: Store, spark: SparkHandle, told: Callable[[str], None]) -> None:
    """Put large bodies in order that are not; those of loads, mostly, too young to be folded."""
    for name, view in store.head.views.items():
        body = [file for file in store.active_files(name) if file.ts_max <= view.horizon]
        with stopping_damaged(store, name):
            if is_unordered(store.folder_of(name), body, name):
                from viewkeeper.warehouse.compact import compact_view

                told(f"{name}: putting rows in order")
                compact_view(store, spark.get_session(), name, view.horizon)


@dataclass(frozen=True, slots=True)
class WarehouseReader:
    """The newest state of a warehouse, for those who only read it."""

    root: StoragePath
    head: Head
    now: Callable[[], float] = time.time

    @contextmanager
    def staging_folder(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="viewkeeper-publish-") as folder:
            yield Path(folder)


def publish_views(
    store: Store | WarehouseReader,
    spark: SparkHandle,
    names: Sequence[str],
    told: Callable[[str], None],
) -> None:
    """Publish plain tables of these views."""
    from viewkeeper.warehouse.publish import publish_view

    for name in names:
        version = publish_view(store, spark.get_session(), name)
        told(f"{name}: published as version {version} of {store.root / 'published' / name}")
