"""Folding what is older than the window into one row per tuple.

Everything with `_ts` <= horizon becomes the *body*: counts summed, zeros dropped, `_ts` = horizon.
States from the horizon on are unchanged; older ones can no longer be told apart and are refused
from then on. Where nothing changed since the last horizon, only the horizon moves. Spark groups,
the one writer writes, and the exchange of files is a record of its own, with the crash behaviour of
every record. Files that reach across the horizon are split: what lies beyond it is written again as
it was. A horizon lies at or below the mark, so what is ahead stays as it is; a count below zero,
which only a view that was maintained wrongly has there, stays too.

The body is written in the order of the column that tells its rows apart best, and says so: readers
that ask for some values of it, or for a range, then find most row groups ruled out. A large body
that is not in such an order yet, such as that of a load, is written again even where there is
nothing to fold.

The sum of all counts must be the same before and after; that is checked before the record.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake import data_files
from viewkeeper.warehouse.lake.listed_files import ActiveFile
from viewkeeper.warehouse.lake.verified_files import open_parquet, translate_read_errors
from viewkeeper.warehouse.metadata.head import Head, ViewHead
from viewkeeper.warehouse.metadata.record import DataFile, Rewrite
from viewkeeper.warehouse.rows.file_search import fit_columns
from viewkeeper.warehouse.rows.spark_frames import (
    exact_column,
    signed_frame,
    sum_counts,
    write_frame,
)
from viewkeeper.warehouse.rows.touched_rows import telling_columns
from viewkeeper.warehouse.rows.view_state import read_signed, state_ts
from viewkeeper.warehouse.store import Store


def compact_view(store: Store, spark: SparkSession, view: str, horizon: int) -> Head:
    """Fold a view up to a horizon between its present one and its ts; HorizonError otherwise.

    Up to the present one, it puts the body in order, if that is large and not in order yet.
    """
    store.group.flush_tables()
    head = store.head.require_view(view)
    state_ts(head, horizon)
    olds = [file for file in store.active_files(view) if file.ts_min <= horizon]
    # The table is what the head says, unless somebody else has taken over since.
    store.confirm_lock()
    folder = store.folder_of(view)
    folded = head.distinct and all(file.ts_max <= head.horizon for file in olds)
    if folded and not data_files.is_unordered(folder, olds, view):
        return store.commit([Rewrite(view, (), (), horizon)])
    batch = store.head.record + 1
    order = _choose_order(folder, head, olds)
    with store.staging_folder() as staging:
        body = _fold_body(spark, store.root, head, olds, staging, horizon, order)
        news = write_frame(body, folder, data_files.stored_schema(head.schema), batch, order)
    news += _write_beyond(store, head, olds, horizon, batch)
    _refuse_change(folder, olds, news)
    removes = tuple(file.path for file in olds)
    return store.commit([Rewrite(view, news, removes, horizon)])


def _choose_order(folder: StoragePath, view: ViewHead, olds: Sequence[ActiveFile]) -> str | None:
    """The column that tells rows apart best, by a part of the largest file; None without one."""
    largest = max(olds, key=lambda file: file.rows)
    path = folder / largest.path
    with (
        translate_read_errors(path, view.view),
        open_parquet(path) as file,
    ):
        sample = file.read_row_group(0).replace_schema_metadata(None)
    telling = telling_columns(fit_columns(sample, view.shown_schema.remove_metadata()))
    return telling[0] if telling else None


def _fold_body(
    spark: SparkSession,
    root: StoragePath,
    view: ViewHead,
    olds: Sequence[ActiveFile],
    staging: StoragePath,
    horizon: int,
    order: str | None,
) -> DataFrame:
    signed = signed_frame(spark, root, view, olds, staging, until=horizon)
    parts = 1 + sum(file.rows for file in olds) // data_files.ROWS_PER_FILE
    stamped = sum_counts(signed, view.schema.names).withColumn(TS, F.lit(horizon).cast("bigint"))
    names = [exact_column(name) for name in (*view.schema.names, COUNT, TS)]
    rows = stamped.select(*names)
    if order is None:
        return rows.coalesce(parts)
    key = exact_column(order)
    placed = rows.coalesce(1) if parts == 1 else rows.repartitionByRange(parts, key)
    return placed.sortWithinPartitions(key)


def _write_beyond(
    store: Store, view: ViewHead, olds: Sequence[ActiveFile], horizon: int, batch: int
) -> tuple[DataFile, ...]:
    across = [file for file in olds if file.ts_max > horizon]
    rows = read_signed(store.root, view, across, after=horizon, until=view.reach_ts)
    if not rows.num_rows:
        return ()
    folder = store.folder_of(view.view)
    stored = data_files.stored_schema(view.schema)
    return tuple(data_files.write_stream(folder, stored, rows.to_batches(), batch, 0))


def _refuse_change(
    folder: StoragePath, olds: Sequence[ActiveFile], news: Sequence[DataFile]
) -> None:
    before = data_files.count_sum(folder / file.path for file in olds)
    after = sum(file.count_sum for file in news)
    assert before == after, f"compaction would turn {before} rows into {after}"
