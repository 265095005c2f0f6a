"""Folding what is older than the window into one row per tuple.

Everything with `_ts` <= horizon becomes the *body*: counts summed, zeros dropped, `_ts` = horizon.
States from the horizon on are unchanged; older ones can no longer be told apart and are refused
from then on. Where nothing changed since the last horizon, only the horizon moves. Spark groups,
the one writer writes, and the exchange of files is a record of its own, with the crash behaviour of
every record. Files that reach across the horizon are split: what lies beyond it is written again as
it was. A horizon lies at or below the mark, so what is ahead stays as it is; a count below zero,
which only a view that was maintained wrongly has there, stays too.

The sum of all counts must be the same before and after; that is checked before the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from viewkeeper.updates.source_protocol import COUNT, TS
from viewkeeper.warehouse.lake import data_files
from viewkeeper.warehouse.lake.lake_table import ActiveFile
from viewkeeper.warehouse.metadata.head import Head, ViewHead
from viewkeeper.warehouse.metadata.record import DataFile, Rewrite
from viewkeeper.warehouse.rows.spark_frames import (
    exact_column,
    signed_frame,
    sum_counts,
    write_frame,
)
from viewkeeper.warehouse.rows.view_state import read_signed, state_ts
from viewkeeper.warehouse.store import Store


def compact_view(store: Store, spark: SparkSession, view: str, horizon: int) -> Head:
    """Fold a view up to a horizon between its present one and its ts; HorizonError otherwise."""
    head = store.head.require_view(view)
    state_ts(head, horizon)
    olds = [file for file in store.active_files(view) if file.ts_min <= horizon]
    # The table is what the head says, unless somebody else has taken over since.
    store.confirm_lock()
    if head.distinct and all(file.ts_max <= head.horizon for file in olds):
        return store.commit([Rewrite(view, (), (), horizon)])
    batch = store.head.record + 1
    folder = store.folder_of(view)
    with store.staging_folder() as staging:
        body = _fold_body(spark, store.root, head, olds, staging, horizon)
        news = write_frame(body, folder, data_files.stored_schema(head.schema), batch)
    news += _write_beyond(store, head, olds, horizon, batch)
    _refuse_change(folder, olds, news)
    removes = tuple(file.path for file in olds)
    return store.commit([Rewrite(view, news, removes, horizon)])


def _fold_body(
    spark: SparkSession,
    root: Path,
    view: ViewHead,
    olds: Sequence[ActiveFile],
    staging: Path,
    horizon: int,
) -> DataFrame:
    signed = signed_frame(spark, root, view, olds, staging, until=horizon)
    parts = 1 + sum(file.rows for file in olds) // data_files.ROWS_PER_FILE
    stamped = sum_counts(signed, view.schema.names).withColumn(TS, F.lit(horizon).cast("bigint"))
    names = [exact_column(name) for name in (*view.schema.names, COUNT, TS)]
    return stamped.select(*names).coalesce(parts)


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


def _refuse_change(folder: Path, olds: Sequence[ActiveFile], news: Sequence[DataFile]) -> None:
    before = data_files.count_sum(folder / file.path for file in olds)
    after = sum(file.count_sum for file in news)
    assert before == after, f"compaction would turn {before} rows into {after}"
