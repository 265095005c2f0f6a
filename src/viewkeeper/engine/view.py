"""A view as a reader sees it: its rows now or as of any kept ts, its changes, its positions.

Everything starts from the committed head, so a reader never sees half a batch. `df` and `changes`
are Spark DataFrames; `arrow` and `positions` start no JVM.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.errors import HorizonError
from viewkeeper.warehouse.metadata.head import ViewHead, read_head
from viewkeeper.warehouse.rows import view_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class View:
    """One view of a project."""

    def __init__(self, name: str, root: Path, spark: SparkHandle) -> None:
        self.name = name
        self._root = root
        self._spark = spark

    @property
    def head(self) -> ViewHead:
        """What is committed of this view."""
        views = read_head(self._root).views
        if self.name not in views:
            raise HorizonError(
                f'view "{self.name}": not loaded yet',
                hint="`viewkeeper run --once` loads it",
            )
        return views[self.name]

    def df(self, as_of: int | None = None) -> DataFrame:
        """The rows, a row as often as it occurs, as a Spark DataFrame."""
        from viewkeeper.warehouse.rows.spark_frames import state_frame

        spark = self._spark.get_shared()
        return state_frame(spark, self._root, self.head, self._spark.staging_folder, as_of)

    def arrow(self, as_of: int | None = None) -> pa.Table:
        """The rows, a row as often as it occurs, as an Arrow table."""
        _ = self.head
        return view_state.newest_state(self._root, self.name, as_of)[1]

    def changes(self, since: int, until: int | None = None) -> DataFrame:
        """Signed rows with `since` < `_ts` <= `until`: the view's columns, `_count`, `_ts`.

        `since` 0 means from the initial load on.
        """
        from viewkeeper.warehouse.rows.spark_frames import changes_frame

        spark = self._spark.get_shared()
        return changes_frame(spark, self._root, self.head, self._spark.staging_folder, since, until)

    def positions(self) -> dict[str, int]:
        """Per source, the position up to which its transactions are in the newest state."""
        return dict(self.head.positions)

    @property
    def ts(self) -> int:
        """The ts up to which everything is in the newest state, and to which as-of reads reach."""
        return self.head.ts
