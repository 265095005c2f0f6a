"""Views that are tried again, because somebody may have mended what stopped them.

What is done is what a restart would do for them, and no more: their sources are followed again from
where they were left, so that a table or a log that was replaced meanwhile is found out; then the
views are maintained or loaded. Only a view that came through that is not stopped any more, so
readers of its state are not told of every attempt. When a view is due is decided elsewhere
(`viewkeeper.engine.views.trouble_retries`).
"""

from __future__ import annotations

from collections.abc import Iterable

from viewkeeper.engine.capture.lookout import Lookout
from viewkeeper.engine.views.view_troubles import Troubles
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import GapError
from viewkeeper.warehouse.metadata.record import Resume


class MendedViews:
    """The views of one run that are being tried again; used by its thread."""

    def __init__(self, workspace: Workspace, lookout: Lookout, troubles: Troubles) -> None:
        self._workspace = workspace
        self._lookout = lookout
        self._troubles = troubles
        self._asked: dict[str, None] = {}
        """Views whose sources are being followed again."""

    def begin_retries(self) -> None:
        """Ask the sources of the views whose time has come."""
        for name in self._troubles.retries.take_due():
            if name not in self._workspace.catalogue:
                continue
            if self._ask_sources(name):
                self._troubles.forget_failure(name)
                self._asked[name] = None
            else:
                self._troubles.retries.note_failure(name)

    def take_ready(self) -> list[str]:
        """The views whose sources have answered: they can be tried now."""
        known, broken = self._lookout.sightings.known, self._lookout.tables.broken
        has_failed, catalogue = self._troubles.retries.has_failed, self._workspace.catalogue
        connections, sources_of = self._workspace.connections, catalogue.sources_of
        over = [name for name in self._asked if has_failed(name) or name not in catalogue]
        ready = [
            name
            for name in self._asked
            if name not in over
            and all(each in known and each not in broken for each in sources_of(name))
            and connections.can_ask(sources_of(name))
        ]
        for name in (*over, *ready):
            del self._asked[name]
        return ready

    def end_retries(self, names: Iterable[str]) -> None:
        """What was tried is over: views that did not fail again are not stopped any more."""
        views = self._workspace.store.head.views
        well = [
            name
            for name in names
            if name in views and views[name].stopped and not self._troubles.retries.has_failed(name)
        ]
        if well:
            self._workspace.store.commit(Resume(name) for name in well)

    def _ask_sources(self, name: str) -> bool:
        """Have the sources of a view followed again from where they were left; False if that must
        wait, or cannot help."""
        connections, tables = self._workspace.connections, self._lookout.tables
        sightings, sources = self._lookout.sightings, self._workspace.catalogue.sources_of(name)
        if any(isinstance(tables.broken.get(source), GapError) for source in sources):
            return False
        if any(sightings.changes_of(each) or connections.is_busy(each) for each in sources):
            return False
        for source in sources:
            tables.broken.pop(source, None)
            connections.failed.pop(source, None)
            if self._workspace.settings.registry is None:
                sightings.forget_source(source)
        return True
