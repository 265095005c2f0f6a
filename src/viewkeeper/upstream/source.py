"""A view as a source: the views of another project, read from its warehouse.

Source kind `warehouse`. A table is a view of the parent, a position is a ts of the parent. The
change feed is the signed rows of the view's Delta Lake table, in ts order; a ts in which the view
did not change is a transaction without changes. Answers are exact as of any ts that is kept, and a
lease in the parent's warehouse keeps what we still need (`viewkeeper.upstream.leases`).

Several views are taken together only as far as all of them are committed, and only states that
each of them shows on its own: ts that one of them shows as one state are one transaction.

Nothing runs at the parent for us. While it commits nothing, a look is one question to the file
system (`viewkeeper.upstream.parent_project`).
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from viewkeeper.errors import ProjectError, SourceAwayError
from viewkeeper.order.mediator import OrderMark
from viewkeeper.sources.bucket_state import open_state_files
from viewkeeper.sources.settings import SourceSettings
from viewkeeper.updates.source_protocol import (
    Boundary,
    DetachResult,
    Finding,
    Health,
    Opener,
    TableBatches,
    TableDescription,
    Tables,
    TableSize,
)
from viewkeeper.upstream.doctor import diagnose_parent, health_of
from viewkeeper.upstream.followed_views import FollowedViews, ViewTables, look_for_transactions
from viewkeeper.upstream.leases import ChildLeases
from viewkeeper.upstream.order_marks import marks_of
from viewkeeper.upstream.parent_project import ParentProject
from viewkeeper.upstream.snapshot import ViewOpener, ViewReader


def open_source(settings: SourceSettings, reader: str) -> WarehouseSource:
    """The source; the parent's files are not touched yet."""
    return WarehouseSource(settings, reader)


class WarehouseSource:
    """The views of another project."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        self.name = settings.name
        self.reader = reader
        self.parent = ParentProject(settings.name, settings.read_path().absolute())
        self.project = Path(settings.folder).absolute()
        if self.parent.folder.resolve() == self.project.resolve():
            raise ProjectError(
                f'source "{self.name}": this is the project itself',
                hint="`path` is the folder of another project; a view of this one can be written "
                "into the SQL of the other",
            )
        self._files = open_state_files(settings) if settings.home else None
        self._home = self._files.local if self._files is not None else None
        self._views = FollowedViews(self.parent, self._files, time.monotonic)
        self._tables = ViewTables(self._views)
        self._leases = ChildLeases(self.parent, reader, str(self.project))
        self._lock = threading.RLock()

    def describe_source(self) -> str:
        return f"the views of the project in {self.parent.folder}"

    def handle_of(self, name: str) -> str:
        with self._lock:
            return self._tables.handle_of(name)

    def describe_table(self, handle: str) -> TableDescription:
        with self._lock:
            return self._tables.describe_table(handle)

    def estimate_size(self, table: str) -> TableSize:
        """The rows that the view has now."""
        view = self.parent.load_head().shown_views.get(table)
        return TableSize(None if view is None else view.rows)

    def follow_tables(self, tables: Tables) -> int:
        """Have the parent keep its past for us from now on; the ts that these views have reached.

        Whoever goes on from an earlier position looks first: what is found here becomes the truth.
        """
        with self._lock:
            self._views.follow_tables(tables)
            progress = self._views.common_progress()
            if not progress.is_shown:
                raise self.parent.away_error(
                    "its views show no common state yet",
                    f"all are committed up to ts {progress.reach}, "
                    f"and one has states of its own from ts {progress.exact} on",
                )
            self._leases.begin_lease(progress.reach)
            return progress.reach

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """One transaction per ts of the parent; those that share a state are one."""
        with self._lock:
            return look_for_transactions(self._views, after)

    def has_passed(self, position: int) -> bool:
        """Whether looks have reported everything up to a position."""
        return self._views.reported >= position

    def group_marks(
        self, identity: str, beyond: OrderMark | None = None, needed: int = 0
    ) -> tuple[list[OrderMark], int] | None:
        """Which ts of the parent stand for which numbers of a group (see `marks_of`)."""
        with self._lock:
            progress = self._views.common_progress()
            return marks_of(self._views.files, progress, identity, beyond, needed)

    def read_changes(self, tables: Tables, after: int, until: int) -> TableBatches:
        reader = self._make_reader()
        for handle, columns in tables.items():
            for batch in reader.signed_changes(handle, columns, after, until):
                yield handle, batch

    @contextmanager
    def prepare_snapshots(self, after: int, tables: Tables) -> Iterator[Opener]:
        """Every snapshot reads the views as of the ts that it is asked for."""
        if self._home is not None:
            self._home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._home, prefix="scan-") as staging:
            yield ViewOpener(self._make_reader(), Path(staging).absolute())

    def _make_reader(self) -> ViewReader:
        with self._lock:
            return self._views.make_reader()

    def acknowledge_position(self, position: int) -> None:
        with self._lock:
            self._leases.move_lease(position)
            self._views.note_acknowledged(position)

    def begin_hold(self, name: str, seconds: float) -> None:
        with self._lock:
            ours = self._leases.own_lease()
            ts = ours.ts if ours else self._views.common_progress().reach
            self._leases.begin_hold(name, ts, time.time() + seconds)

    def end_hold(self, name: str) -> None:
        self._leases.end_hold(name)

    def read_health(self, positions: Iterable[int]) -> Health:
        with self._lock:
            book = self._views.names.copy_book()
            reader, files = self._views.make_reader(), self._views.files
            return health_of(reader, files, book, self.reader, tuple(positions), time.time())

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        with self._lock:
            return diagnose_parent(self.parent, self.reader, tables)

    def detach_source(self, force: bool = False) -> DetachResult:
        """End our leases, and by `force` those of all other projects, and although the parent may
        be gone; nothing of the parent's own is changed."""
        with self._lock:
            try:
                left = self._leases.end_all(force, time.time())
            except SourceAwayError:
                if not force:
                    raise
                left = ()
            return DetachResult(self._views.forget_all(), not left, left)

    def close(self) -> None:
        pass
