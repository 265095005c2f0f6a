"""The loads of views: which view is next, what must be captured before it, and what became of it.

A view is loaded when it is new, when a schema change wants other rows, or when it is re-anchored.
What it reads is captured first; then what was committed before that gets its ts, so that the load
starts after it. The others go on meanwhile. A load that ended is committed, and the view goes on
from the load's ts like the others; one that failed is decided about again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from viewkeeper.engine.capture.lookout import Lookout
from viewkeeper.engine.evolution.view_adapter import ViewAdapter
from viewkeeper.engine.load.loader import Loader
from viewkeeper.engine.views.view_troubles import Troubles
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import SchemaError, WarehouseError
from viewkeeper.view.definition import ViewDefinition


@dataclass(frozen=True, slots=True)
class NextLoad:
    """A view that is to be loaded, as it was defined when that was decided."""

    name: str
    view: ViewDefinition


class ViewLoads:
    """The loads of one project, one at a time."""

    def __init__(
        self,
        workspace: Workspace,
        loader: Loader,
        lookout: Lookout,
        adapting: ViewAdapter,
        troubles: Troubles,
    ) -> None:
        self._workspace = workspace
        self._loader = loader
        self._lookout = lookout
        self._adapting = adapting
        self._troubles = troubles

    def choose_next(self, is_able: Callable[[str], bool]) -> NextLoad | None:
        """The next view that is new or to be redefined, once all that it reads is captured."""
        stored, catalogue = self._workspace.store.head.views, self._workspace.catalogue
        new = [name for name in catalogue if name not in stored and is_able(name)]
        waits = [name for name in self._adapting.pending.waits if is_able(name)]
        views = {name: self._adapting.definition_of(name).view for name in (*waits, *new)}
        can_ask = self._workspace.connections.can_ask
        wanted = [
            NextLoad(name, view)
            for name, view in views.items()
            if can_ask(view.sources) and self._has_parents(view)
        ]
        if self._loader.current is not None or not wanted:
            return None
        chosen = wanted[0]
        for source, error in self._lookout.extend_capture(chosen.view.sources).items():
            if isinstance(error, SchemaError):
                self._fail_load(chosen.name, error)
                return None
            self._troubles.stop_source(source, error)
        return None if chosen.name in self.fail_refused() else chosen

    def begin_load(self, chosen: NextLoad, is_able: Callable[[str], bool]) -> None:
        """Begin to load a view as of the newest ts, if it is still to be loaded so."""
        name, view, store = chosen.name, chosen.view, self._workspace.store
        seen = self._lookout.can_load(view.sources)
        stands = name in self._adapting.pending.waits or name not in store.head.views
        able = seen and stands and is_able(name)
        if not able or self._adapting.definition_of(name).view != view:
            return
        ts = store.ledger.next_ts - 1
        if not self._has_parents(view):
            return
        positions = {source: self._lookout.sightings.known[source] for source in view.sources}
        self._adapting.start_load(self._loader, name, ts, positions)
        self._workspace.observer.on_load_progress(name, "scanning and joining")

    def _has_parents(self, view: ViewDefinition) -> bool:
        """Whether the views that a view is loaded from are all at the newest ts; until then those
        that do not have to wait so are loaded."""
        store = self._workspace.store
        newest = store.ledger.next_ts - 1
        return all(store.head.views[parent].ts == newest for parent in view.parents)

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

    def commit_ended(self) -> str | None:
        """Commit a load that has ended; the view that is maintained from its ts on, if any."""
        if not self._loader.has_ended:
            return None
        ended, changes = self._loader.take_ended(), None
        try:
            with self._troubles.contain_view_errors(ended.name):
                changes = ended.take_changes()
        except WarehouseError as error:
            # A load needs far more room than a batch: without it the others may go on.
            self._troubles.fail_view(ended.name, error)
        if changes is None:
            self._adapting.note_load_failure(ended.name)
            return None
        store = self._workspace.store
        store.commit(changes)
        head = store.head.views[ended.name]
        self._workspace.catalogue.note_loaded(ended.name, head.shown_schema)
        self._adapting.note_load_success(ended.name)
        seconds = time.perf_counter() - ended.started
        self._workspace.observer.on_load_end(ended.name, head.rows, seconds)
        return ended.name
