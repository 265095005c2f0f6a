"""Why views wait: what is said of each view that does not stand at the newest ts.

A view may have stopped, its load may have failed, a source may have lost what it still needs or be
away, a view that it reads may wait; the first of these that holds is what the user has to know.
"""

from __future__ import annotations

from collections.abc import Mapping

from viewkeeper.engine.capture.lookout import Lookout
from viewkeeper.engine.views.workspace import Workspace


def explain_waiting(
    workspace: Workspace, lookout: Lookout, failed: Mapping[str, object]
) -> dict[str, str]:
    """The views that do not stand at the newest ts, and why; `failed` are known to be in trouble
    of their own."""
    store, catalogue, connections = workspace.store, workspace.catalogue, workspace.connections
    reasons = {}
    newest = store.ledger.next_ts - 1
    for name in catalogue:
        stored = store.head.views.get(name)
        if stored is not None and stored.stopped:
            reasons[name] = stored.stopped
        elif broken := [s for s in catalogue.sources_of(name) if s in lookout.tables.broken]:
            reasons[name] = str(lookout.tables.broken[broken[0]])
        elif name in failed:
            reasons[name] = str(failed[name])
        elif away := [s for s in catalogue.sources_of(name) if s in connections.away]:
            # Also where nothing is known to wait: nobody can say what the source has committed.
            reasons[name] = "\n".join(str(connections.away[source].error) for source in away)
        elif lookout.waiting_reason is not None:
            reasons[name] = lookout.waiting_reason
        elif held := [p for p in catalogue.parents_of(name) if p in reasons]:
            reasons[name] = f'it reads view "{held[0]}", which waits or has stopped'
        elif stored is None or stored.ts < newest:
            reasons[name] = "not maintained yet"
    return reasons
