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
from viewkeeper.order.mediator import Mark
from viewkeeper.sources.handles import Named, Names
from viewkeeper.sources.settings import SourceSettings, nearest
from viewkeeper.updates.schema_change import called
from viewkeeper.updates.source_protocol import (
    LOOK_TRANSACTIONS,
    Became,
    Boundary,
    Detached,
    Finding,
    Health,
    Opener,
    Tables,
)
from viewkeeper.upstream import leases
from viewkeeper.upstream.doctor import diagnose, health_of
from viewkeeper.upstream.leases import Lease
from viewkeeper.upstream.order_marks import marks_of
from viewkeeper.upstream.parent_files import ParentFiles, Standing, shared, standing
from viewkeeper.upstream.parent_project import Parent
from viewkeeper.upstream.schema_change_positions import told_changes
from viewkeeper.upstream.snapshot import Meant, ViewOpener, ViewReader
from viewkeeper.upstream.state import Continuity, Followed, Memory, transaction
from viewkeeper.upstream.view_shapes import History, alive
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
        self.parent = Parent(settings.name, settings.path().absolute())
        if self.parent.folder.resolve() == self.project.resolve():
            raise ProjectError(
                f'source "{self.name}": this is the project itself',
                hint="`path` is the folder of another project; a view of this one can be written "
                "into the SQL of the other",
            )
        self._home = Path(settings.home) if settings.home else None
        self._names = Names(self._home)
        self._memory = Memory(self._home)
        self._files = ParentFiles(self.parent)
        self._same = Continuity(self.parent, self._files, self._memory)
        self._lock = threading.RLock()
        self._wanted: set[str] = set()
        self._looked = 0

    def describe(self) -> str:
        return f"the views of the project in {self.parent.folder}"

    def advice(self) -> str | None:
        return None

    # -- shapes --------------------------------------------------------------------------------

    def handle(self, name: str) -> str:
        with self._lock:
            view = self._loaded(name)
            return self._names.handle(name, view.table, self._history(view).identities())

    def became(self, handle: str) -> Became | None:
        with self._lock:
            view, named = self._head().views.get(called(handle)), self._names.get(handle)
            if view is None or (named is not None and named.identity != view.table):
                return None
            there = alive(named, self._history(view))
            wanted = named.columns if named else there
            return Became(view.view, {name: name for name in wanted if name in there})

    def schema(self, table: str) -> tuple[Field, ...]:
        with self._lock:
            view, named = self._loaded(called(table)), self._names.get(table)
            if named is not None and named.identity != view.table:
                raise SchemaError(
                    self.name,
                    f'view "{view.view}" was loaded again, and is another table now',
                    hint="nothing to do: the next look reports that, and the views follow it",
                )
            there = alive(named, self._history(view))
            return tuple(Field(f.name, f.type) for f in view.shown if f.name in there)

    def refused(self, table: str) -> Mapping[str, str]:
        """None: whatever a view can show, a view can read."""
        return {}

    def key(self, table: str) -> tuple[str, ...]:
        """None: a view is a bag."""
        return ()

    def indexed(self, table: str, columns: Sequence[str]) -> bool:
        """Never: a lookup skips row groups by their statistics, and reads the others."""
        self._types(table, columns)
        return False

    def finds_by_key(self, table: str, columns: Sequence[str]) -> bool:
        return any(not pa.types.is_floating(kind) for kind in self._types(table, columns))

    def _types(self, table: str, columns: Sequence[str]) -> list[pa.DataType]:
        types = {field.name: field.type for field in self.schema(table)}
        for column in columns:
            if column not in types:
                raise self._no_column(called(table), column, types)
        return [types[column] for column in columns]

    def _no_column(self, view: str, column: str, known: Iterable[str]) -> SchemaError:
        return SchemaError(
            self.name,
            f'view "{view}" has no column "{column}"',
            hint=f"its columns: {', '.join(known)}{nearest(column, known)}",
        )

    def _loaded(self, name: str) -> ViewHead:
        views = self._head().views
        if name in views:
            return views[name]
        if self.parent.defines(name):
            raise self.parent.away(f'its view "{name}" is not loaded yet')
        known = tuple(views)
        raise SchemaError(
            self.name,
            f'there is no view "{name}" in {self.parent.folder}',
            detail=f"views that are loaded there: {', '.join(known) or 'none'}",
            hint=f"`viewkeeper run` there loads its views{nearest(name, known)}",
        )

    def _history(self, view: ViewHead) -> History:
        """The shapes of a view's table up to now; only that of now if it is not followed."""
        known = self._memory.now.tables.get(view.table) if self._memory.now else None
        return History.begin(view) if known is None else known.seen(view)

    def _head(self) -> Head:
        return self._files.head()

    # -- following -----------------------------------------------------------------------------

    def follow(self, tables: Tables) -> int:
        """Have the parent keep its past for us from now on; the ts that these views have reached.

        Whoever goes on from an earlier position looks first: what is found here becomes the truth.
        """
        with self._lock:
            self._head()
            if self._memory.now is None or not self._same.holds():
                self._names.clear()
                self._memory.put(Followed(self.parent.identity()))
            for handle, columns in tables.items():
                self._follow(handle, columns)
            self._wanted |= {*tables}
            stands = self._standing()
            if not stands.is_shown:
                raise self.parent.away(
                    "its views show no common state yet",
                    f"all are committed up to ts {stands.reach}, "
                    f"and one has states of its own from ts {stands.exact} on",
                )
            if leases.of(self.parent.root, self.reader) is None:
                self._take(self.reader, stands.reach)
            return stands.reach

    def _follow(self, handle: str, columns: Sequence[str]) -> None:
        """Let a handle stand for columns; a table that is gone is passed over."""
        named = self._names.get(handle)
        if named is None:
            view = self._loaded(called(handle))
        else:
            found = self._head().views.get(called(handle))
            if found is None or found.table != named.identity:
                return
            view = found
        history, known = self._history(view), named.columns if named else {}
        there = history.identities()
        for column in columns:
            if column not in there and column not in known:
                raise self._no_column(view.view, column, there)
        self._remember(view, history)
        fresh = {column: there[column] for column in columns if column not in known}
        self._names.follow(handle, view.table, {**known, **fresh})

    def _remember(self, view: ViewHead, history: History) -> None:
        assert self._memory.now is not None
        if view.table not in self._memory.now.since:
            # What was reported before may lie between two states of this view.
            since = view.exact_ts if self._looked <= view.ts else self._looked + 1
            known = {**self._memory.now.since, view.table: max(since, view.horizon)}
            self._memory.put(replace(self._memory.now, since=known))
        self._memory.table(view.table, history)

    def _standing(self) -> Standing:
        """How far the views that are read have come together."""
        views = self._head().views
        names = dict.fromkeys(called(handle) for handle in self._wanted or self._names)
        return standing((views[n] for n in names if n in views), self._files.last_ts)

    def reach(self) -> int:
        """The ts up to which every view that is followed is committed."""
        with self._lock:
            return self._standing().reach

    def look(self, after: int) -> tuple[Boundary, ...]:
        """One transaction per ts of the parent; those that share a state are one."""
        with self._lock:
            head = self._head()
            self._same.check(after)
            stands = self._standing()
            if after >= stands.reach or not stands.is_shown:
                self._looked = max(self._looked, after)
                return ()
            entries = self._files.entries(after, stands.reach)
            merged = shared(entries, stands, LOOK_TRANSACTIONS)
            last = max(merged, default=after)
            reshaped = told_changes(head, self._names.book(), self._memory, after, sorted(merged))
            counts = self._counts(head, after, last)
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

    def _counts(self, head: Head, after: int, until: int) -> dict[int, int]:
        """How many rows changed per ts in the views that are followed."""
        reader, found = self._view_reader(), dict[int, int]()
        for handle, view in self._alive(head, after):
            if view.horizon > after:
                raise reader.gap(view, after)
            for ts, rows in reader.counts(handle, after, until).items():
                found[ts] = found.get(ts, 0) + rows
        return found

    def _alive(self, head: Head, after: int) -> Iterator[tuple[str, ViewHead]]:
        """The views that are read and were followed at a ts, each under one of its handles."""
        since = self._memory.now.since if self._memory.now else {}
        seen: set[str] = set()
        for handle in self._wanted or self._names:
            named, view = self._names.get(handle), head.views.get(called(handle))
            if named is None or view is None or named.identity != view.table:
                continue
            if since.get(view.table, after + 1) <= after and view.table not in seen:
                seen.add(view.table)
                yield handle, view

    def passed(self, position: int) -> bool:
        """Whether looks have reported everything up to a position."""
        return self._looked >= position

    def marks(
        self, identity: str, beyond: Mark | None = None, needed: int = 0
    ) -> tuple[list[Mark], int] | None:
        """Which ts of the parent stand for which numbers of a group (see `marks_of`)."""
        with self._lock:
            self._head()
            return marks_of(self._files, self._standing(), identity, beyond, needed)

    def changes(
        self, tables: Tables, after: int, until: int
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        reader = self._view_reader()
        for handle, columns in tables.items():
            for batch in reader.changes(handle, columns, after, until):
                yield handle, batch

    @contextmanager
    def snapshots(self, after: int, tables: Tables) -> Iterator[Opener]:
        """Every snapshot reads the views as of the ts that it is asked for."""
        with tempfile.TemporaryDirectory(dir=self._scratch(), prefix="scan-") as staging:
            yield ViewOpener(self._view_reader(), Path(staging).absolute())

    def _scratch(self) -> Path | None:
        if self._home is None:
            return None
        self._home.mkdir(parents=True, exist_ok=True)
        return self._home

    def _view_reader(self) -> ViewReader:
        with self._lock:
            known = self._memory.now
            meant = (
                {} if known is None else {h: self._meant(n) for h, n in self._names.book().items()}
            )
            return ViewReader(self.parent, meant, self._looked)

    def _meant(self, named: Named) -> Meant:
        assert self._memory.now is not None
        history = self._memory.now.tables[named.identity]
        return Meant(named, history, self._memory.now.since[named.identity])

    # -- what is kept --------------------------------------------------------------------------

    def acknowledge(self, position: int) -> None:
        with self._lock:
            known = leases.of(self.parent.root, self.reader)
            if known is None or known.ts < position:
                self._take(self.reader, position)
            if self._memory.now is not None and self._memory.now.ts < position:
                here = transaction(self._files.entries(position - 1, position))
                self._memory.put(replace(self._memory.now, ts=position, transaction=here))
                self._files.trim(position)

    def hold(self, name: str, seconds: float) -> None:
        with self._lock:
            ours = leases.of(self.parent.root, self.reader)
            at = ours.ts if ours else self._standing().reach
            self._take(self._held(name), at, time.time() + seconds)

    def release(self, name: str) -> None:
        leases.end(self.parent.root, self._held(name))

    def _held(self, name: str) -> str:
        return f"{self.reader}-{name}"

    def _take(self, child: str, ts: int, until: float | None = None) -> None:
        try:
            leases.take(self.parent.root, Lease(child, ts, str(self.project), until))
        except WarehouseError as error:
            raise self.parent.away("a lease cannot be left there", str(error)) from error

    # -- looking after it ----------------------------------------------------------------------

    def health(self, positions: Iterable[int]) -> Health:
        with self._lock:
            reader, book = self._view_reader(), self._names.book()
            wanted = tuple(positions)
            return health_of(reader, self._files, book, self.reader, wanted, time.time())

    def diagnose(self, tables: Tables) -> list[Finding]:
        with self._lock:
            return diagnose(self.parent, self.reader, tables)

    def detach(self, force: bool = False) -> Detached:
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
            self._names.clear()
            self._memory.clear()
            self._wanted.clear()
            return Detached(was, not left, left)

    def _end_leases(self, force: bool) -> tuple[str, ...]:
        """End leases; whose are left."""
        root, left = self.parent.root, []
        for lease in leases.leases(root, time.time()):
            if force or (self.reader and lease.child.startswith(self.reader)):
                leases.end(root, lease.child)
            else:
                left.append(str(lease))
        return tuple(sorted(left))

    def close(self) -> None:
        pass
