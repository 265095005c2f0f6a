"""The plain table of a view: rows only, for tools that read Delta Lake tables directly.

Each publication replaces the whole content of `published/<view>` in one log entry; its metadata
says as of which ts, and which ts above that are in it too. There is no record: a crash leaves the
old content or the new, and publishing again is always right. An entry torn by a power cut is found
by its missing last line and deleted first. Replaced files stay for the retention, for readers that
still use them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from viewkeeper.storage.local_lock import LockHolder
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import make_folder, remove_file, require_facts, storage_of
from viewkeeper.warehouse.lake import data_files, delta_log
from viewkeeper.warehouse.lake.lake_table import LakeTable
from viewkeeper.warehouse.lake.verified_files import PATTERN
from viewkeeper.warehouse.metadata.head import Head
from viewkeeper.warehouse.rows.spark_frames import state_frame, write_frame

RETENTION_S = 3600.0


class PublishableStore(Protocol):
    """As much of a warehouse as publishing reads; an open store is one, and so is a bare reader."""

    @property
    def root(self) -> StoragePath: ...

    @property
    def head(self) -> Head: ...

    @property
    def now(self) -> Callable[[], float]: ...

    def staging_folder(self) -> AbstractContextManager[StoragePath]: ...


def publish_view(
    store: PublishableStore, spark: SparkSession, view: str, retention_s: float = RETENTION_S
) -> int:
    """Publish the newest state of a view; the version of the published table that holds it.

    Publishing needs no writer's lock, only its own: a maintainer may go on meanwhile. In object
    storage it needs none: of two who publish at a time, the log's conditional put refuses one.
    """
    if storage_of(store.root).has_lasting_journal:
        return _publish_state(store, spark, view, retention_s)
    make_folder(store.root / "published")
    holder = LockHolder.this_process("viewkeeper publish", store.now())
    published = store.root / "published"
    lock = storage_of(published).commits.take_lock(published, holder, store.now, None)
    try:
        return _publish_state(store, spark, view, retention_s)
    finally:
        lock.release_lock()


def _publish_state(
    store: PublishableStore, spark: SparkSession, view: str, retention_s: float
) -> int:
    head = store.head.require_view(view)
    folder = store.root / "published" / view
    make_folder(folder)
    schema = head.shown_schema.remove_metadata()
    table = _open_table(folder, schema, view, store.now())
    n = table.applied_record() + 1
    with store.staging_folder() as staging:
        frame = state_frame(spark, store.root, head, staging)
        news = write_frame(_sized_frame(frame, head.rows), folder, schema, n)
    for file in news:
        data_files.check_file(folder, schema, file)
    table.allow_naive_timestamps()
    # A file's time of last change becomes the time of its replacement, which the retention counts
    # from; before the commit, so that a crash in between can only keep a file longer.
    for old in table.active_files():
        storage_of(folder).touch_file(folder / old.path, store.now())
    facts = {"viewkeeper_ts": head.ts, "viewkeeper_ahead": list(head.ahead)}
    version = table.replace_files(n, store.now(), news, facts)
    _remove_replaced(table, store.now() - retention_s)
    return version


def _open_table(folder: StoragePath, schema: pa.Schema, view: str, now: float) -> LakeTable:
    delta_log.drop_torn(folder)
    if any((folder / "_delta_log").glob("*.json")):
        return LakeTable.open(folder, schema)
    return LakeTable.create(folder, schema, view, now)


def _sized_frame(frame: DataFrame, rows: int) -> DataFrame:
    return frame.coalesce(1 + max(0, rows) // data_files.ROWS_PER_FILE)


def _remove_replaced(table: LakeTable, older_than: float) -> None:
    active = {file.path for file in table.active_files()}
    for path in table.folder.glob(PATTERN):
        if path.name not in active and require_facts(path).changed_at < older_than:
            remove_file(path)
