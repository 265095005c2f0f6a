"""A view as a reader sees it: its rows now or as of any kept ts, its changes, its positions.

Everything starts from the committed head, so a reader never sees half a batch. `df` and `changes`
are Spark DataFrames; `arrow` and `positions` start no JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute

from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.errors import DefinitionError, ExpressionError, HorizonError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.storage.stored_files import local_folder
from viewkeeper.warehouse.metadata.head import ViewHead, read_head
from viewkeeper.warehouse.rows import view_state
from viewkeeper.warehouse.waiting_reasons import read_waiting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class View:
    """One view of a project: its rows, now or as of a ts, and its changes.

    >>> import sqlite3, tempfile, viewkeeper
    >>> from pathlib import Path
    >>> place = tempfile.TemporaryDirectory()
    >>> folder = Path(place.name)
    >>> (folder / "views").mkdir()
    >>> database = sqlite3.connect(folder / "shop.db")
    >>> _ = database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, city TEXT)")
    >>> _ = database.execute("INSERT INTO orders VALUES (1, 'Berlin')")
    >>> database.commit()
    >>> settings = "warehouse: w\\nsources: {shop: {kind: sqlite, path: shop.db}}"
    >>> _ = (folder / "viewkeeper.yml").write_text(settings)
    >>> text = "CREATE MATERIALIZED VIEW cities AS SELECT o.id, o.city FROM shop.orders o"
    >>> _ = (folder / "views" / "cities.sql").write_text(text)
    >>> project = viewkeeper.open(folder)
    >>> _ = project.refresh()
    >>> view = project.view("cities")
    >>> before = view.ts
    >>> _ = database.execute("UPDATE orders SET city = 'Ulm'")
    >>> database.commit()
    >>> _ = project.refresh()

    >>> view.arrow().to_pylist(), view.arrow(as_of=before, columns=["city"]).to_pylist()
    ([{'id': 1, 'city': 'Ulm'}], [{'city': 'Berlin'}])
    >>> view.ts - before, list(view.positions())
    (1, ['shop'])
    >>> project.close(), database.close(), place.cleanup()
    (None, None, None)
    """

    def __init__(self, name: str, root: StoragePath, spark: SparkHandle) -> None:
        self.name = name
        self._root = root
        self._spark = spark
        self._frame: tuple[ViewHead, int | None, SparkSession, DataFrame] | None = None
        """The DataFrame that was made last, and of which state in which session."""

    def __repr__(self) -> str:
        head = read_head(self._root).views.get(self.name)
        if head is None:
            return f"<View {self.name}: not loaded yet>"
        rows = "1 row" if head.rows == 1 else f"{head.rows:,} rows"
        return f"<View {self.name}: {rows}, ts {head.ts}{', stopped' if head.stopped else ''}>"

    @property
    def head(self) -> ViewHead:
        """What is committed of this view."""
        views = read_head(self._root).views
        if self.name not in views:
            reason = read_waiting(local_folder(self._root)).views.get(self.name)
            raise HorizonError(
                f'view "{self.name}": not loaded yet',
                detail=None if reason is None else f"when it was last tried: {reason}",
                hint="`viewkeeper run --once` loads it",
            )
        return views[self.name]

    def df(self, as_of: int | None = None) -> DataFrame:
        """The rows, a row as often as it occurs, as a Spark DataFrame.

        It is the state of now for as long as it is used; asked again, a newer one is made if
        something has been committed since.
        """
        from viewkeeper.warehouse.rows.spark_frames import state_frame

        head = self.head
        spark = self._spark.get_shared()
        if self._frame is None or self._frame[:3] != (head, as_of, spark):
            frame = state_frame(spark, self._root, head, self._spark.staging_folder, as_of)
            self._frame = head, as_of, spark, frame
        return self._frame[3]

    def arrow(
        self,
        as_of: int | None = None,
        columns: Sequence[str] | None = None,
        where: pa.compute.Expression | None = None,
    ) -> pa.Table:
        """The rows, a row as often as it occurs, as an Arrow table.

        `columns` are those that are wanted, all if none are named. `where` is an expression of
        Arrow over columns of the view, with Arrow's meaning: rows for which it does not hold are
        left out, and parts of files that cannot have others are not read.
        """
        head = self.head
        if where is not None and not isinstance(where, pa.compute.Expression):
            raise DefinitionError(
                f'view "{self.name}": `where` is an expression of Arrow, not a '
                f"{type(where).__name__}",
                hint='where=pyarrow.compute.field("name") == "Ada"; SQL: `view.df().where("...")`',
            )
        for name in columns or ():
            if name not in head.shown_schema.names:
                raise DefinitionError(
                    f'view "{self.name}": no column {name}',
                    hint=f"columns: {', '.join(head.shown_schema.names)}",
                )
        try:
            return view_state.newest_state(self._root, self.name, as_of, columns, where)[1]
        except pa.ArrowException as error:
            raise ExpressionError(
                f'view "{self.name}": the condition has no value', detail=str(error)
            ) from error

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
