"""Views that are not maintained from changes but computed again, and when.

A view is computed again when something that it reads has changed: as of the newest ts, by the
user's own text, compared with what is stored, and the difference is committed as one state. So
readers never see an empty view, and whoever follows it gets the difference as any other change. It
is *strong*: its states are right, and those of the ts in between are not shown.

It is not done more often than the freshness of the project asks for, and never so often that the
view would do nothing else: between two computations there is at least as much time as one takes.
While nothing that it reads changes, it goes along with the others for free.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Sequence

from viewkeeper.engine.evolution.view_adapter import ViewAdapter
from viewkeeper.engine.load.loader import RECOMPUTED
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import ProjectError, reload_hint
from viewkeeper.warehouse.metadata.plan_files import LedgerEntry

REST_SECONDS = 1.0
"""A view rests at least so long before it is computed again."""


class RecomputedViews:
    """The views of one warehouse that are computed again."""

    def __init__(self, workspace: Workspace, adapting: ViewAdapter) -> None:
        self._settings = workspace.settings
        self._store = workspace.store
        self._catalogue = workspace.catalogue
        self._adapting = adapting
        self._began: dict[str, float] = {}
        self._next: dict[str, float] = {}
        """When a view may be computed again, by the clock that never goes back."""

    def is_recomputed(self, name: str) -> bool:
        return self._reason(name) is not None

    def is_due(self, name: str) -> bool:
        """Whether a view may be computed again now."""
        return time.monotonic() >= self._next.get(name, 0.0)

    def advance_to(
        self, name: str, target: int | None, entries: Sequence[LedgerEntry]
    ) -> int | None:
        """The ts to which a view is taken with the others; None if it has to be computed again,
        for which it waits from now on if it is due. `entries` are not in the ledger yet."""
        if target is None or name in self._adapting.pending.waits:
            return None
        at, sources = self._store.head.views[name].ts, self._catalogue.stored[name].sources
        known = self._store.ledger.entries_between(at, target)
        if not any(entry.source in sources for entry in (*known, *entries)):
            return target
        if self.is_due(name):
            self._began[name] = time.monotonic()
            self._adapting.anchor_view(name, f"{RECOMPUTED} {self._reason(name)}")
        return None

    def note_loaded(self, name: str) -> None:
        """A view was loaded, or computed again: it rests for a while."""
        now = time.monotonic()
        took = now - self._began.pop(name, now)
        self._next[name] = now + max(took, self._settings.freshness, REST_SECONDS)

    def find_refused(self, again: Container[str]) -> Iterator[tuple[str, ProjectError]]:
        """The views that are stored for another mode than the project file names now."""
        for name in (name for name in self._catalogue.bindings if name not in again):
            mode, reason = self._settings.refresh.word_of(name), self._reason(name)
            if (mode == "full" and reason is None) or (mode == "incremental" and reason):
                was = "maintained from changes" if reason is None else "computed again"
                text = f'its refresh is "{mode}" now, and it was loaded to be {was}'
                yield name, ProjectError(f'view "{name}": {text}', hint=reload_hint([name]))

    def _reason(self, name: str) -> str | None:
        view = self._catalogue.stored.get(name)
        if view is None:
            binding = self._catalogue.bindings.get(name)
            view = binding.view if binding else None
        return view.graph.recomputed if view is not None and view.graph is not None else None
