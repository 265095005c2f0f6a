"""What is captured at the sources: all that the views read, and all that they are going to read.

A source is followed from a position on; what it has is captured since then. A table that cannot be
followed is the trouble of the views that read it, and of no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from viewkeeper.engine.views.bound_view import columns_of
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import SchemaError, SourceError
from viewkeeper.updates.source_protocol import Source, Tables
from viewkeeper.view.definition import ViewDefinition


class LoadPoint(Protocol):
    """The ts of a load that is under way, and the positions of its sources at that ts."""

    @property
    def ts(self) -> int: ...

    @property
    def positions(self) -> Mapping[str, int]: ...


class FollowedTables:
    """What the views of one project have captured."""

    def __init__(
        self,
        workspace: Workspace,
        loads: Callable[[], Iterable[LoadPoint]],
        also: Callable[[Source, int], int] = lambda _, position: position,
    ) -> None:
        """`loads` gives the loads that are under way. `also` follows more at a source that is
        followed from a position; it gives the position then."""
        self._store = workspace.store
        self._catalogue = workspace.catalogue
        self._connections = workspace.connections
        self._loads = loads
        self._also = also
        self._refused: dict[str, SchemaError] = {}
        self.broken: dict[str, SourceError] = {}
        """Sources that have lost what is still needed, or their shape; not looked at again."""

    def note_failed(self, failed: Mapping[str, SourceError]) -> dict[str, SourceError]:
        """Look no more at sources that have failed; those of which that was not known."""
        new = {name: error for name, error in failed.items() if name not in self.broken}
        self.broken |= new
        return new

    def note_refused(self, refused: Mapping[str, SchemaError]) -> None:
        """Views whose tables turned out not to be followable."""
        self._refused |= refused

    def take_refused(self) -> dict[str, SchemaError]:
        """The views whose tables turned out not to be followable; each is returned once."""
        refused, self._refused = self._refused, {}
        return refused

    def list_views(self) -> list[ViewDefinition]:
        """The definitions that views have, and those that they are on their way to."""
        return [*self._catalogue.bound_views(), *self._catalogue.coming.values()]

    def watched_sources(self) -> list[str]:
        """The sources that are looked at."""
        used = dict.fromkeys(s for view in self.list_views() for s in view.sources)
        return [source for source in used if source not in self.broken]

    def loaded_before(self, ts: int) -> list[ViewDefinition]:
        """The views that were loaded before a ts and go on: since then all that they read is
        captured."""
        views = self._store.head.maintained_views
        return [
            view
            for view in self._catalogue.bound_views()
            if view.name in views
            and views[view.name].created_ts < ts
            and not views[view.name].stopped
        ]

    def tables_by_view(self, source: str) -> dict[str, dict[str, list[str]]]:
        """Per view, what it reads of a source."""
        found: dict[str, dict[str, list[str]]] = {}
        for view in self.list_views():
            if source in view.sources:
                mine = captured_tables([view], source)
                found[view.name] = union_tables([found.get(view.name, {}), mine])
        return found

    def tables_of(self, source: str) -> dict[str, list[str]]:
        """What all views together read of a source."""
        return captured_tables(self.list_views(), source)

    def left_position(self, name: str) -> int | None:
        """Where the ledger says that a source was left; None if no view has it, or gets it now."""
        holders = (*self._store.head.maintained_views.values(), *self._loads())
        using = [(each.ts, each.positions[name]) for each in holders if name in each.positions]
        if not using:
            return None
        ts, position = max(using, key=lambda each: each[0])
        ledger = self._store.ledger
        since = [e for e in ledger.entries_between(ts, ledger.next_ts) if e.source == name]
        return since[-1].until if since else position

    def follow_source(self, source: Source) -> int:
        """Have everything captured that the known views read; the source's position now.

        Where something cannot be captured, that is the trouble of the views that read it.
        """
        position, refused = follow_each(source, self.tables_by_view(source.name))
        self._refused |= refused
        return self._also(source, position)

    def follow_after(self, source: Source, after: int) -> int:
        """Follow what views read now, where we go on after a position."""
        # Looking first finds a log that was lost; following would silently begin a new one.
        source.look_for_transactions(after)
        return self.follow_source(source)

    def start_position(self, source: Source) -> int:
        """The position from which on we read a source: its present one if no view has it."""
        position = self.left_position(source.name)
        if position is None:
            return self.follow_source(source)
        self.follow_after(source, position)
        return position

    def extend_capture(
        self, names: Iterable[str], follow: Callable[[Source], object]
    ) -> dict[str, SourceError]:
        """Have these sources capture also what new views read; those that turned out to be broken.

        A source that has not what a view reads is not broken; its error is that view's.
        """
        found: dict[str, SourceError] = {}
        for name in names:
            try:
                self._connections.try_action(name, follow)
            except SourceError as error:
                found[name] = error
        self.broken |= {n: e for n, e in found.items() if not isinstance(e, SchemaError)}
        return found


def captured_tables(views: Iterable[ViewDefinition], source: str) -> dict[str, list[str]]:
    """What some views read of a source."""
    wanted = columns_of(views)
    return {r.table: [f.name for f in fs] for r, fs in wanted.items() if r.source == source}


def position_of(
    source: Source, left: int | None, views: Mapping[str, Tables]
) -> tuple[int, dict[str, SchemaError]]:
    """Where a source's stream stands for us, now that what views read is followed; the views that
    cannot be."""
    if left is not None:
        # Looking first finds a log that was lost; following would silently begin a new one.
        source.look_for_transactions(left)
    now, refused = follow_each(source, views)
    return now if left is None else left, refused


def follow_each(source: Source, views: Mapping[str, Tables]) -> tuple[int, dict[str, SchemaError]]:
    """Have what views read captured; the position, and the views that it cannot be done for."""
    try:
        return source.follow_tables(union_tables(views.values())), {}
    except SchemaError:
        position, refused = None, dict[str, SchemaError]()
        for name, tables in views.items():
            try:
                position = source.follow_tables(tables)
            except SchemaError as error:
                refused[name] = error
        if position is None:
            raise
        return position, refused


def union_tables(wanted: Iterable[Tables]) -> dict[str, list[str]]:
    """Every column of every table that somebody wants."""
    found: dict[str, list[str]] = {}
    for tables in wanted:
        for table, columns in tables.items():
            mine = found.setdefault(table, [])
            mine += [column for column in columns if column not in mine]
    return found
