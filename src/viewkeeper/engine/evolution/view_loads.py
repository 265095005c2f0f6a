"""The loads of views: which view is next, what must be captured before it, and what became of it.

A view is loaded when it is new, when a schema change wants other rows, or when it is re-anchored.
What it reads is captured first; then what was committed before that gets its ts, so that the load
starts after it. The others go on meanwhile, and other loads too. A load that ended is committed,
and the view goes on from the load's ts like the others; one that failed is decided about again.
A load that an earlier run left unfinished goes on where it was, if its sources can still answer as
of its positions; otherwise it begins again, and that is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from viewkeeper.engine.capture.lookout import Lookout
from viewkeeper.engine.evolution.view_adapter import ViewAdapter
from viewkeeper.engine.load.loader import Loader, ViewLoad
from viewkeeper.engine.views.view_troubles import Troubles
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import (
    SchemaError,
    SourceAwayError,
    SourceError,
    ViewkeeperError,
    WarehouseError,
)
from viewkeeper.view.definition import ViewDefinition
from viewkeeper.warehouse.metadata.unfinished_load import remove_strangers


@dataclass(frozen=True, slots=True)
class NextLoad:
    """A view that is to be loaded, as it was defined when that was decided."""

    name: str
    view: ViewDefinition


class ViewLoads:
    """The loads of one project."""

    def __init__(
        self,
        workspace: Workspace,
        loader: Loader,
        lookout: Lookout,
        adapting: ViewAdapter,
        troubles: Troubles,
    ) -> None:
        self._workspace = workspace
        self.loader = loader
        self._lookout = lookout
        self._adapting = adapting
        self._troubles = troubles

    def choose_next(self, is_able: Callable[[str], bool]) -> NextLoad | None:
        """The next view that is new or to be redefined, once all that it reads is captured."""
        stored, catalogue = self._workspace.store.head.maintained_views, self._workspace.catalogue
        if not self.loader.has_room:
            return None
        free = [name for name in catalogue if not self.loader.is_loading(name) and is_able(name)]
        new = [name for name in free if name not in stored]
        waits = [name for name in self._adapting.pending.waits if name in free]
        views = {name: self._adapting.definition_of(name).view for name in (*waits, *new)}
        can_ask = self._workspace.connections.can_ask
        wanted = [
            NextLoad(name, view)
            for name, view in views.items()
            if can_ask(view.sources) and self._has_parents(view)
        ]
        if not wanted:
            return None
        chosen = wanted[0]
        for source, error in self._lookout.extend_capture(chosen.view.sources).items():
            if isinstance(error, SchemaError):
                self._fail_load(chosen.name, error)
                return None
            self._troubles.stop_source(source, error)
        return None if chosen.name in self.fail_refused() else chosen

    def begin_load(self, chosen: NextLoad, is_able: Callable[[str], bool]) -> bool:
        """Begin to load a view as of the newest ts, if it is still to be loaded so; whether it
        was begun."""
        name, view, store = chosen.name, chosen.view, self._workspace.store
        seen = self._lookout.can_load(view.sources)
        stands = name in self._adapting.pending.waits or name not in store.head.maintained_views
        able = seen and stands and is_able(name)
        if not able or self._adapting.definition_of(name).view != view:
            return False
        ts = store.ledger.next_ts - 1
        if not self._has_parents(view):
            return False
        positions = {source: self._lookout.sightings.known[source] for source in view.sources}
        self._adapting.start_load(self.loader, name, ts, positions)
        parts = self.loader.parts_of(name)
        kept = f", {parts} parts of a load that was interrupted are there" if parts else ""
        self._workspace.observer.on_load_progress(name, f"scanning and joining{kept}")
        return True

    def begin_again_without(self, source: str, error: SourceError) -> bool:
        """A source cannot be followed from where it was left; whether that matters only to loads
        that might have gone on. They are given up, and begin again."""
        names = self.loader.unfinished.give_up(lambda load: source in load.positions)
        for name in names:
            self._say_begins_again(name, error)
        stored = self._workspace.store.head.maintained_views.values()
        if not names or any(source in view.positions for view in stored):
            return False
        self._lookout.tables.broken.pop(source, None)
        return True

    def forget_strangers(self) -> None:
        """Give up loads that might have gone on, of views that are not to be loaded any more."""
        stored, catalogue = self._workspace.store.head.maintained_views, self._workspace.catalogue
        self.loader.unfinished.give_up(
            lambda load: load.view in stored or load.view not in catalogue
        )
        remove_strangers(self._workspace.store.root)

    def _say_begins_again(self, name: str, error: ViewkeeperError) -> None:
        told = f"begins again: what was loaded before is of no use ({error.message})"
        self._workspace.observer.on_load_progress(name, told)

    def _has_parents(self, view: ViewDefinition) -> bool:
        """Whether the views that a view is loaded from are all at the newest ts; until then those
        that do not have to wait so are loaded."""
        store = self._workspace.store
        newest = store.ledger.next_ts - 1
        views = store.head.maintained_views
        return all(p in views and views[p].ts == newest for p in view.parents)

    def awaited_parents(self, is_able: Callable[[str], bool]) -> set[str]:
        """The views that must come to the newest ts, because others are to be loaded from them."""
        stored, catalogue = self._workspace.store.head.maintained_views, self._workspace.catalogue
        waits = self._adapting.pending.waits
        return {
            parent
            for name in catalogue
            if (name not in stored or name in waits) and not self.loader.is_loading(name)
            if is_able(name)
            for parent in catalogue.parents_of(name)
        }

    def fail_refused(self) -> set[str]:
        """Stop the views whose tables cannot be followed, and no others; their names."""
        refused = self._lookout.tables.take_refused()
        for name, error in refused.items():
            self._fail_load(name, error)
        return {*refused}

    def _fail_load(self, name: str, error: SchemaError) -> None:
        """What a view is to be loaded from cannot be followed, or has moved on."""
        moved = self._adapting.has_moved(name)
        self._adapting.note_load_failure(name)
        if moved:
            self._troubles.note_barrier()
        else:
            self._troubles.fail_view(name, error)

    def commit_ended(self) -> list[str]:
        """Commit the loads that have ended; the views that are maintained from their ts on."""
        return [load.name for load in self.loader.take_ended() if self._commit_load(load)]

    def _commit_load(self, ended: ViewLoad) -> bool:
        """Commit a load; whether it succeeded. What went wrong is the trouble of its view."""
        changes, error = None, ended.find_error()
        if error is not None and ended.is_resumed and not isinstance(error, SourceAwayError):
            # What it went on with, or what it needed beside that, is of no use any more.
            self.loader.end_parts(ended)
            self._say_begins_again(ended.name, error)
            self._adapting.note_load_failure(ended.name)
            return False
        try:
            with self._troubles.contain_view_errors(ended.name):
                changes = ended.take_changes()
        except WarehouseError as refused:
            # A load needs far more room than a batch: without it the others may go on.
            self._troubles.fail_view(ended.name, refused)
        if changes is None:
            self.loader.end_parts(ended, keep=isinstance(error, SourceAwayError))
            self._adapting.note_load_failure(ended.name)
            return False
        store = self._workspace.store
        store.commit(changes)
        self.loader.end_parts(ended)
        head = store.head.views[ended.name]
        self._workspace.catalogue.note_loaded(ended.name, head.shown_schema)
        self._adapting.note_load_success(ended.name)
        seconds = time.perf_counter() - ended.started
        self._workspace.observer.on_load_end(ended.name, head.rows, seconds)
        return True
