"""Telling the sources what no view will ask for again, so that they can forget it.

Nothing is acknowledged before it is committed on disk, and nothing that a load under way still has
to take back. A view that waits holds a source's log back, up to a limit; beyond it the view is
stale and stops, so that one view cannot fill a database.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from viewkeeper.engine.capture.lookout import Lookout
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.errors import ViewkeeperError
from viewkeeper.warehouse.metadata.head import ViewHead
from viewkeeper.warehouse.metadata.record import Stop

SECONDS = 1.0
REST_SECONDS = 60.0


class Acknowledger:
    """Acknowledges for all views of a project together."""

    def __init__(self, workspace: Workspace, lookout: Lookout) -> None:
        self._settings = workspace.settings
        self._store = workspace.store
        self._catalogue = workspace.catalogue
        self._connections = workspace.connections
        self._lookout = lookout
        self._told = 0.0
        self._rests: dict[str, float] = {}

    def acknowledge_sources(
        self, held: Callable[[str], list[int]], now: bool, loading: str | None = None
    ) -> list[ViewkeeperError]:
        """Acknowledge, at most once a second unless `now`; what went wrong.

        `held` gives positions of a source that must be kept for other reasons. A view that is
        `loading` again needs nothing of what waits for it, so that it cannot become stale.
        """
        if not now and time.monotonic() - self._told < SECONDS:
            return []
        self._told = time.monotonic()
        views = [v for n, v in self._store.head.views.items() if n in self._catalogue]
        troubles = []
        for source in self._lookout.tables.watched_sources():
            # A view before a gap needs nothing of what follows it but a load.
            gap_after = self._store.ledger.gap_after
            held_by = [view for view in views if source in view.positions]
            using = [view for view in held_by if gap_after(view.ts, (source,)) is None]
            waiting = [view for view in using if view.view != loading]
            stale = [view for view in waiting if self._is_stale(view, source)]
            if any(not view.stopped for view in stale):
                self._store.commit(
                    Stop(v.view, _stale_reason(v, source)) for v in stale if not v.stopped
                )
            positions = [view.positions[source] for view in using if view not in stale]
            positions += held(source)
            if positions:
                troubles += self._acknowledge_source(source, min(positions))
        return troubles

    def _is_stale(self, view: ViewHead, source: str) -> bool:
        """Whether a view that waits would hold back more of a source's log than it may."""
        ledger = self._store.ledger
        waiting = ledger.entries_between(view.ts, ledger.next_ts)
        changes = sum(entry.changes for entry in waiting if entry.source == source)
        return changes + self._lookout.sightings.changes_of(source) > self._settings.batch.wait_rows

    def _acknowledge_source(self, name: str, position: int) -> list[ViewkeeperError]:
        if time.monotonic() < self._rests.get(name, 0.0):
            return []
        try:
            self._connections.try_action(name, lambda source: source.acknowledge_position(position))
        except ViewkeeperError as error:
            # Nothing is lost by trying less often what goes wrong each time.
            self._rests[name] = time.monotonic() + REST_SECONDS
            return [error]
        return []


def _stale_reason(view: ViewHead, source: str) -> str:
    return (
        f'stale: too many changes of source "{source}" came while this view waited\n'
        f"  hint: `viewkeeper run --reanchor {view.view}`"
    )
