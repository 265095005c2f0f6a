"""A view as a source: the views of another project, read from its warehouse.

Source kind `warehouse`. A table is a view of the parent, a position is a ts of the parent. The
change feed is the signed rows of the view's Delta Lake table, in ts order; a ts in which the view
did not change is a transaction without changes. Answers are exact as of any ts that is kept, and a
lease in the parent's warehouse keeps what we still need (`viewkeeper.upstream.leases`).

Several views are taken together only as far as all of them are committed, and only states that
each of them shows on its own: ts that one of them shows as one state are one transaction.

Nothing runs at the parent for us. While it commits nothing, a look is one question to the file
system (`viewkeeper.upstream.parent_files`).
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from viewkeeper.errors import ProjectError, SchemaError, SourceAwayError, WarehouseError
from viewkeeper.order.mediator import OrderMark
from viewkeeper.sources.handles import HandleTarget, SourceHandles
from viewkeeper.sources.settings import SourceSettings, suggest_nearest
from viewkeeper.updates.schema_change import name_of_handle
from viewkeeper.updates.source_protocol import (
    LOOK_TRANSACTIONS,
    Boundary,
    CurrentNames,
    DetachResult,
    Finding,
    Health,
    Opener,
    Tables,
)
from viewkeeper.upstream import leases
from viewkeeper.upstream.doctor import diagnose_parent, health_of
from viewkeeper.upstream.leases import Lease
from viewkeeper.upstream.order_marks import marks_of
from viewkeeper.upstream.parent_files import (
    ParentFiles,
    ParentProgress,
    group_by_state,
    progress_of,
)
from viewkeeper.upstream.parent_project import ParentProject
from viewkeeper.upstream.schema_change_positions import place_schema_changes
from viewkeeper.upstream.snapshot import HandleMeaning, ViewOpener, ViewReader
from viewkeeper.upstream.state import (
    FollowedParent,
    ParentContinuity,
    ParentMemory,
    transaction_text,
)
from viewkeeper.upstream.view_shapes import ViewShapeHistory, live_columns_of
from viewkeeper.view.definition import Field
from viewkeeper.warehouse.metadata.head import Head, ViewHead


def open_source(settings: SourceSettings, reader: str) -> WarehouseSource:
    """The source; the parent's files are not touched yet."""
    return WarehouseSource(settings, reader)


class WarehouseSource:
    """The views of another project."""

    def __init__(self, settings: SourceSettings, reader: str) -> None:
        self.name = settings.name
        self.reader = reader
        self.project = Path(settings.folder).absolute()
        self.parent = ParentProject(settings.name, settings.read_path().absolute())
        if self.parent.folder.resolve() == self.project.resolve():
            raise ProjectError(
                f'source "{self.name}": this is the project itself',
                hint="`path` is the folder of another project; a view of this one can be written "
                "into the SQL of the other",
            )
        self._home = Path(settings.home) if settings.home else None
        self._names = SourceHandles(self._home)
        self._memory = ParentMemory(self._home)
        self._files = ParentFiles(self.parent)
        self._same = ParentContinuity(self.parent, self._files, self._memory)
        self._lock = threading.RLock()
        self._wanted: set[str] = set()
        self._looked = 0

    def describe_source(self) -> str:
        return f"the views of the project in {self.parent.folder}"

    def advise_setup(self) -> str | None:
        return None

    # -- shapes --------------------------------------------------------------------------------

    def handle_of(self, name: str) -> str:
        with self._lock:
            view = self._find_loaded(name)
            return self._names.choose_handle(
                name, view.table, self._shapes_of(view).column_identities()
            )

    def current_names_of(self, handle: str) -> CurrentNames | None:
        with self._lock:
            view, named = (
                self._current_head().views.get(name_of_handle(handle)),
                self._names.target_of(handle),
            )
            if view is None or (named is not None and named.identity != view.table):
                return None
            there = live_columns_of(named, self._shapes_of(view))
            wanted = named.columns if named else there
            return CurrentNames(view.view, {name: name for name in wanted if name in there})

    def schema_of(self, table: str) -> tuple[Field, ...]:
        with self._lock:
            view, named = self._find_loaded(name_of_handle(table)), self._names.target_of(table)
            if named is not None and named.identity != view.table:
                raise SchemaError(
                    self.name,
                    f'view "{view.view}" was loaded again, and is another table now',
                    hint="nothing to do: the next look reports that, and the views follow it",
                )
            there = live_columns_of(named, self._shapes_of(view))
            return tuple(Field(f.name, f.type) for f in view.shown_schema if f.name in there)

    def refusals_of(self, table: str) -> Mapping[str, str]:
        """None: whatever a view can show, a view can read."""
        return {}

    def key_of(self, table: str) -> tuple[str, ...]:
        """None: a view is a bag."""
        return ()

    def is_indexed(self, table: str, columns: Sequence[str]) -> bool:
        """Never: a lookup skips row groups by their statistics, and reads the others."""
        self._column_types(table, columns)
        return False

    def can_find_by_key(self, table: str, columns: Sequence[str]) -> bool:
        return any(not pa.types.is_floating(kind) for kind in self._column_types(table, columns))

    def _column_types(self, table: str, columns: Sequence[str]) -> list[pa.DataType]:
        types = {field.name: field.type for field in self.schema_of(table)}
        for column in columns:
            if column not in types:
                raise self._no_column(name_of_handle(table), column, types)
        return [types[column] for column in columns]

    def _no_column(self, view: str, column: str, known: Iterable[str]) -> SchemaError:
        return SchemaError(
            self.name,
            f'view "{view}" has no column "{column}"',
            hint=f"its columns: {', '.join(known)}{suggest_nearest(column, known)}",
        )

    def _find_loaded(self, name: str) -> ViewHead:
        views = self._current_head().views
        if name in views:
            return views[name]
        if self.parent.has_definition(name):
            raise self.parent.away_error(f'its view "{name}" is not loaded yet')
        known = tuple(views)
        raise SchemaError(
            self.name,
            f'there is no view "{name}" in {self.parent.folder}',
            detail=f"views that are loaded there: {', '.join(known) or 'none'}",
            hint=f"`viewkeeper run` there loads its views{suggest_nearest(name, known)}",
        )

    def _shapes_of(self, view: ViewHead) -> ViewShapeHistory:
        """The shapes of a view's table up to now; only that of now if it is not followed."""
        known = self._memory.now.tables.get(view.table) if self._memory.now else None
        return ViewShapeHistory.start_history(view) if known is None else known.add_seen(view)

    def _current_head(self) -> Head:
        return self._files.current_head()

    # -- following -----------------------------------------------------------------------------

    def follow_tables(self, tables: Tables) -> int:
        """Have the parent keep its past for us from now on; the ts that these views have reached.

        Whoever goes on from an earlier position looks first: what is found here becomes the truth.
        """
        with self._lock:
            self._current_head()
            if self._memory.now is None or not self._same.is_same():
                self._names.forget_all()
                self._memory.save_parent(FollowedParent(self.parent.load_identity()))
            for handle, columns in tables.items():
                self._follow_handle(handle, columns)
            self._wanted |= {*tables}
            stands = self._common_progress()
            if not stands.is_shown:
                raise self.parent.away_error(
                    "its views show no common state yet",
                    f"all are committed up to ts {stands.reach}, "
                    f"and one has states of its own from ts {stands.exact} on",
                )
            if leases.lease_of(self.parent.root, self.reader) is None:
                self._take_lease(self.reader, stands.reach)
            return stands.reach

    def _follow_handle(self, handle: str, columns: Sequence[str]) -> None:
        """Let a handle stand for columns; a table that is gone is passed over."""
        named = self._names.target_of(handle)
        if named is None:
            view = self._find_loaded(name_of_handle(handle))
        else:
            found = self._current_head().views.get(name_of_handle(handle))
            if found is None or found.table != named.identity:
                return
            view = found
        history, known = self._shapes_of(view), named.columns if named else {}
        there = history.column_identities()
        for column in columns:
            if column not in there and column not in known:
                raise self._no_column(view.view, column, there)
        self._remember_shapes(view, history)
        fresh = {column: there[column] for column in columns if column not in known}
        self._names.add_target(handle, view.table, {**known, **fresh})

    def _remember_shapes(self, view: ViewHead, history: ViewShapeHistory) -> None:
        assert self._memory.now is not None
        if view.table not in self._memory.now.since:
            # What was reported before may lie between two states of this view.
            since = view.exact_ts if self._looked <= view.ts else self._looked + 1
            known = {**self._memory.now.since, view.table: max(since, view.horizon)}
            self._memory.save_parent(replace(self._memory.now, since=known))
        self._memory.save_shapes(view.table, history)

    def _common_progress(self) -> ParentProgress:
        """How far the views that are read have come together."""
        views = self._current_head().views
        names = dict.fromkeys(name_of_handle(handle) for handle in self._wanted or self._names)
        return progress_of((views[n] for n in names if n in views), self._files.last_ts)

    def common_reach(self) -> int:
        """The ts up to which every view that is followed is committed."""
        with self._lock:
            return self._common_progress().reach

    def look_for_transactions(self, after: int) -> tuple[Boundary, ...]:
        """One transaction per ts of the parent; those that share a state are one."""
        with self._lock:
            head = self._current_head()
            self._same.check_position(after)
            stands = self._common_progress()
            if after >= stands.reach or not stands.is_shown:
                self._looked = max(self._looked, after)
                return ()
            entries = self._files.entries_between(after, stands.reach)
            merged = group_by_state(entries, stands, LOOK_TRANSACTIONS)
            last = max(merged, default=after)
            reshaped = place_schema_changes(
                head, self._names.copy_book(), self._memory, after, sorted(merged)
            )
            counts = self._count_rows(head, after, last)
            found = tuple(
                Boundary(
                    at,
                    min(entry.committed_at for entry in together),
                    sum(counts.get(ts, 0) for ts in {entry.ts for entry in together}),
                    reshaped=reshaped.get(at, ()),
                )
                for at, together in merged.items()
            )
            self._looked = max(self._looked, last)
            return found

    def _count_rows(self, head: Head, after: int, until: int) -> dict[int, int]:
        """How many rows changed per ts in the views that are followed."""
        reader, found = self._view_reader(), dict[int, int]()
        for handle, view in self._followed_views(head, after):
            if view.horizon > after:
                raise reader.gap_error(view, after)
            for ts, rows in reader.count_changes(handle, after, until).items():
                found[ts] = found.get(ts, 0) + rows
        return found

    def _followed_views(self, head: Head, after: int) -> Iterator[tuple[str, ViewHead]]:
        """The views that are read and were followed at a ts, each under one of its handles."""
        since = self._memory.now.since if self._memory.now else {}
        seen: set[str] = set()
        for handle in self._wanted or self._names:
            named, view = self._names.target_of(handle), head.views.get(name_of_handle(handle))
            if named is None or view is None or named.identity != view.table:
                continue
            if since.get(view.table, after + 1) <= after and view.table not in seen:
                seen.add(view.table)
                yield handle, view

    def has_passed(self, position: int) -> bool:
        """Whether looks have reported everything up to a position."""
        return self._looked >= position

    def group_marks(
        self, identity: str, beyond: OrderMark | None = None, needed: int = 0
    ) -> tuple[list[OrderMark], int] | None:
        """Which ts of the parent stand for which numbers of a group (see `marks_of`)."""
        with self._lock:
            self._current_head()
            return marks_of(self._files, self._common_progress(), identity, beyond, needed)

    def read_changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        reader = self._view_reader()
        for handle, columns in tables.items():
            for batch in reader.signed_changes(handle, columns, after, until):
                yield handle, batch

    @contextmanager
    def prepare_snapshots(self, after: int, tables: Tables) -> Iterator[Opener]:
        """Every snapshot reads the views as of the ts that it is asked for."""
        with tempfile.TemporaryDirectory(dir=self._scratch_folder(), prefix="scan-") as staging:
            yield ViewOpener(self._view_reader(), Path(staging).absolute())

    def _scratch_folder(self) -> Path | None:
        if self._home is None:
            return None
        self._home.mkdir(parents=True, exist_ok=True)
        return self._home

    def _view_reader(self) -> ViewReader:
        with self._lock:
            known = self._memory.now
            meant = (
                {}
                if known is None
                else {h: self._meaning_of(n) for h, n in self._names.copy_book().items()}
            )
            return ViewReader(self.parent, meant, self._looked)

    def _meaning_of(self, named: HandleTarget) -> HandleMeaning:
        assert self._memory.now is not None
        history = self._memory.now.tables[named.identity]
        return HandleMeaning(named, history, self._memory.now.since[named.identity])

    # -- what is kept --------------------------------------------------------------------------

    def acknowledge_position(self, position: int) -> None:
        with self._lock:
            known = leases.lease_of(self.parent.root, self.reader)
            if known is None or known.ts < position:
                self._take_lease(self.reader, position)
            if self._memory.now is not None and self._memory.now.ts < position:
                here = transaction_text(self._files.entries_between(position - 1, position))
                self._memory.save_parent(replace(self._memory.now, ts=position, transaction=here))
                self._files.trim_entries(position)

    def begin_hold(self, name: str, seconds: float) -> None:
        with self._lock:
            ours = leases.lease_of(self.parent.root, self.reader)
            at = ours.ts if ours else self._common_progress().reach
            self._take_lease(self._hold_name(name), at, time.time() + seconds)

    def end_hold(self, name: str) -> None:
        leases.end_lease(self.parent.root, self._hold_name(name))

    def _hold_name(self, name: str) -> str:
        return f"{self.reader}-{name}"

    def _take_lease(self, child: str, ts: int, until: float | None = None) -> None:
        try:
            leases.take_lease(self.parent.root, Lease(child, ts, str(self.project), until))
        except WarehouseError as error:
            raise self.parent.away_error("a lease cannot be left there", str(error)) from error

    # -- looking after it ----------------------------------------------------------------------

    def read_health(self, positions: Iterable[int]) -> Health:
        with self._lock:
            reader, book = self._view_reader(), self._names.copy_book()
            wanted = tuple(positions)
            return health_of(reader, self._files, book, self.reader, wanted, time.time())

    def diagnose_source(self, tables: Tables) -> list[Finding]:
        with self._lock:
            return diagnose_parent(self.parent, self.reader, tables)

    def detach_source(self, force: bool = False) -> DetachResult:
        """End our leases, and by `force` those of all other projects, and although the parent may
        be gone; nothing of the parent's own is changed."""
        with self._lock:
            was = self._memory.now is not None
            try:
                left = self._end_leases(force)
            except SourceAwayError:
                if not force:
                    raise
                left = ()
            self._names.forget_all()
            self._memory.forget_parent()
            self._wanted.clear()
            return DetachResult(was, not left, left)

    def _end_leases(self, force: bool) -> tuple[str, ...]:
        """End leases; whose are left."""
        root, left = self.parent.root, []
        for lease in leases.active_leases(root, time.time()):
            if force or (self.reader and lease.child.startswith(self.reader)):
                leases.end_lease(root, lease.child)
            else:
                left.append(str(lease))
        return tuple(sorted(left))

    def close(self) -> None:
        pass
