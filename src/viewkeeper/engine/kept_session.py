"""The kept session: what one refresh leaves to the next, so that it need not begin from nothing.

A refresh opens the warehouse, parses and binds the views, connects to the sources and finds where
each was left. All that is as true a moment later, unless somebody has changed something. So an open
project keeps it, on these conditions:

1. Between two refreshes nothing is held that another could wait for: no lock of the warehouse, no
   transaction, no slot. A source that cannot rest so is closed and followed again.
2. It counts only while the warehouse is exactly as we left it (`Store.resume_work`), and so is what
   the project keeps of its sources.
3. It is kept only when the refresh had nothing to say: no trouble, no schema change, no load, no
   view that waits or has stopped, no source that is away. Whatever is out of the ordinary is found
   again by a start from nothing, as if nothing had been kept.
4. It serves the settings and the very definitions that it was made from, and the thread that made
   it.

Sources look after themselves: one whose file was replaced, or whose connection has gone, finds that
out as it does while the loop runs.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from viewkeeper.engine.maintainer import Maintainer
from viewkeeper.engine.report import BatchReport, Observer, StateChange
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.views.view_catalogue import ViewCatalogue
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import LockedError, ViewkeeperError


class RelayedObserver:
    """Passes everything on to the present observer, and remembers whether it was ordinary."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.is_ordinary = True
        """Whether there were batches and nothing else since somebody began to watch."""

    def pass_to(self, observer: Observer) -> None:
        """Somebody else watches from now on."""
        self._observer, self.is_ordinary = observer, True

    def on_load_progress(self, view: str, stage: str) -> None:
        self.is_ordinary = False
        self._observer.on_load_progress(view, stage)

    def on_load_end(self, view: str, rows: int, seconds: float) -> None:
        self.is_ordinary = False
        self._observer.on_load_end(view, rows, seconds)

    def on_batch_commit(self, report: BatchReport) -> None:
        self._observer.on_batch_commit(report)

    def on_schema_change(self, view: str, what: str) -> None:
        self.is_ordinary = False
        self._observer.on_schema_change(view, what)

    def on_trouble(self, error: ViewkeeperError) -> None:
        self.is_ordinary = False
        self._observer.on_trouble(error)

    def on_state_change(self, change: StateChange) -> None:
        self.is_ordinary = False
        self._observer.on_state_change(change)


class KeptSession:
    """A maintainer with all that it works with, between two refreshes; used by one thread."""

    def __init__(
        self, workspace: Workspace, maintainer: Maintainer, relay: RelayedObserver
    ) -> None:
        self._workspace = workspace
        self._relay = relay
        self._thread = threading.get_ident()
        self._left = workspace.catalogue.copy_definitions()
        self.maintainer = maintainer

    def rest(self) -> KeptSession | None:
        """Acknowledge, and let go of all that others could wait for; None if the session cannot be
        kept.

        Refreshes that follow each other closely acknowledge once a second, as the loop does.
        """
        is_kept = self._relay.is_ordinary and self.maintainer.is_at_rest
        self.maintainer.acknowledge_commits(now=not is_kept)
        if not (is_kept and self._relay.is_ordinary):
            return None
        # Sources that cannot rest are followed again from where they were left.
        for name in self._workspace.connections.close_restless():
            self.maintainer.lookout.sightings.forget_source(name)
        self._left = self._workspace.catalogue.copy_definitions()
        self._workspace.store.pause_work()
        return self

    def resume(
        self, settings: Settings, catalogue: ViewCatalogue, observer: Observer
    ) -> KeptSession | None:
        """Take the lock and go on for another observer; None if something has changed."""
        work = self._workspace
        if (settings, catalogue) != (work.settings, work.catalogue):
            return None
        if threading.get_ident() != self._thread:
            return None
        # Others who read the project, like a verification, bind its views again.
        if not self._left.is_same(catalogue.copy_definitions()):
            return None
        if work.store.resume_work("viewkeeper refresh") is None:
            return None
        self._relay.pass_to(observer)
        return self

    def close(self) -> None:
        """Let go of everything."""
        with suppress(LockedError):
            self.maintainer.lookout.close()
        self._workspace.connections.close()
        self._workspace.store.close()
