"""Views as of one head, each an immutable global temporary view of Spark under a name of its own.

A query reads versions that were made from one head, so it sees one committed state, however long it
runs and whatever is committed meanwhile. A version is made when it is first asked for, is shared by
all queries that find the view unchanged, and is dropped when a newer one is there and the last
query that reads it has ended.

Views of a head can be at different ts: an expensive one may be behind (`viewkeeper.engine.lanes`),
and one that has stopped stays where it is. Several of them are read as of the ts that they share.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from viewkeeper.engine.spark.spark_session import SparkHandle
from viewkeeper.errors import CorruptError, HorizonError
from viewkeeper.storage.storage_path import StoragePath
from viewkeeper.warehouse.metadata.head import Head, ViewHead, read_head
from viewkeeper.warehouse.rows.spark_frames import state_frame
from viewkeeper.warehouse.rows.view_state import ATTEMPTS

DATABASE = "global_temp"


@dataclass(frozen=True, slots=True)
class ViewRead:
    """A view that a query reads, as of a ts; None is the newest."""

    view: str
    as_of: int | None = None


@dataclass(slots=True)
class ViewVersion:
    """What was committed of a view, as Spark reads it, and how many queries do."""

    view: ViewHead
    name: str
    staging: Path
    users: int = 0

    @property
    def identifier(self) -> str:
        """How Spark names it."""
        return f"{DATABASE}.{self.name}"


@dataclass(frozen=True, slots=True)
class ViewPin:
    """The versions that one query reads."""

    versions: Mapping[ViewRead, ViewVersion]


def shared_ts_of(views: Collection[ViewHead]) -> int | None:
    """The ts as of which a query reads these views of a head; None where the newest state of each
    is of one ts already. HorizonError if there is no ts of which all have a state."""
    if len({(view.ts, view.ahead) for view in views}) < 2:
        return None
    ts = min(view.ts for view in views)
    for view in views:
        first = max(view.horizon, view.exact_ts)
        if ts < view.ts and ts < first:
            behind = next(each for each in views if each.ts == ts)
            raise HorizonError(
                f"{behind.view} and {view.view} have no state of one ts",
                detail=f"{behind.view} is at ts {ts}, and {view.view} has states from {first} on",
                hint=f"wait until {behind.view} has caught up (`viewkeeper status` says why it is "
                "behind), or read the views by a query each",
            )
    return ts


class PinnedViews:
    """The versions that there are; for any thread."""

    def __init__(self, root: StoragePath, spark: SparkHandle) -> None:
        self.root = root
        self._spark = spark
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._newest: dict[str, ViewVersion] = {}
        self._older: list[ViewVersion] = []

    def read_newest(self) -> Head:
        """The head that a query reads which comes now."""
        return read_head(self.root)

    def pin_views(self, head: Head, wanted: Iterable[ViewRead]) -> ViewPin:
        """Versions of these views from one head, to be given back with `release_pin`.

        Files of a head can be replaced before they are read; then the next head is taken for all.
        """
        reads = tuple(wanted)
        for _ in range(ATTEMPTS):
            try:
                return self._pin_head(head, reads)
            except CorruptError:
                newer = self.read_newest()
                if newer == head:
                    raise
                head = newer
        return self._pin_head(head, reads)

    def _pin_head(self, head: Head, reads: Iterable[ViewRead]) -> ViewPin:
        newest = [head.require_view(read.view) for read in reads if read.as_of is None]
        shared = shared_ts_of(newest)
        with self._lock:
            found = {
                read: self._find_version(
                    head.require_view(read.view), shared if read.as_of is None else read.as_of
                )
                for read in reads
            }
            for version in found.values():
                version.users += 1
            for gone in self._newest.keys() - head.views.keys():
                self._older.append(self._newest.pop(gone))
            self._drop_unused()
        return ViewPin(found)

    def _find_version(self, view: ViewHead, as_of: int | None) -> ViewVersion:
        """The version of a view's state. Threads may come with heads in any order, so an older one
        than the newest can be asked for: it is made, used and dropped, as one of the past is."""
        known = self._newest.get(view.view)
        if as_of is None and known is not None and known.view == view:
            return known
        made = self._make_version(view, as_of)
        is_older = known is not None and known.view.ts > view.ts and known.view.table == view.table
        if as_of is not None or is_older:
            self._older.append(made)
            return made
        if known is not None:
            self._older.append(known)
        self._newest[view.view] = made
        return made

    def _make_version(self, view: ViewHead, as_of: int | None) -> ViewVersion:
        name = f"viewkeeper_{next(self._numbers)}"
        staging = self._spark.staging_folder / name
        frame = state_frame(self._spark.get_session(), self.root, view, staging, as_of)
        frame.createOrReplaceGlobalTempView(name)
        return ViewVersion(view, name, staging)

    def release_pin(self, pin: ViewPin) -> None:
        """The query that read these versions has ended."""
        with self._lock:
            for version in pin.versions.values():
                version.users -= 1
                assert version.users >= 0
            self._drop_unused()

    def _drop_unused(self) -> None:
        for version in [version for version in self._older if version.users == 0]:
            self._older.remove(version)
            self._spark.get_session().catalog.dropGlobalTempView(version.name)
            shutil.rmtree(version.staging, ignore_errors=True)
