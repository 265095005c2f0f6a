"""SQL that the user has edited since its rows were stored.

A view is stored by a definition. Other SQL needs other rows, and is refused unless the view is to
be loaded again; but SQL that says what the view has become anyhow, like the new name of a column
whose rename was followed, is taken as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from viewkeeper.engine.binding import bind_again, same_meaning
from viewkeeper.engine.catalogue import ViewCatalogue
from viewkeeper.engine.connections import Connections
from viewkeeper.errors import ProjectError, ViewkeeperError
from viewkeeper.warehouse.head import ViewHead
from viewkeeper.warehouse.record import Redefine
from viewkeeper.warehouse.store import Store


def take_edits(
    store: Store, catalogue: ViewCatalogue, connections: Connections, again: Sequence[str]
) -> None:
    """Take what means the same; refuse the rest, but for views that are loaded again."""
    for name, stored in list(store.head.views.items()):
        if name not in catalogue or name in again or catalogue.text(name) == stored.definition:
            continue
        if not _taken(store, catalogue, connections, stored):
            raise ProjectError(
                f'view "{name}": its SQL is not the one that the stored rows were made by',
                hint=f"`viewkeeper run --full-refresh {name}` loads it again",
            )


def _taken(
    store: Store, catalogue: ViewCatalogue, connections: Connections, stored: ViewHead
) -> bool:
    if not stored.versions:
        return False
    try:
        written = catalogue.as_written(stored.view, connections)
    except ViewkeeperError:
        # Whatever is wrong with it, it is not what is stored.
        return False
    if not same_meaning(written.view, bind_again(stored.versions[-1], None).view):
        return False
    change = Redefine(
        stored.view,
        catalogue.text(stored.view),
        written.version(stored.ts, store.now(), ("its SQL was edited",)),
        stored.schema,
        stored.ts,
        stored.positions,
        hidden=stored.hidden,
        distinct=True,
    )
    store.commit([change])
    catalogue.put(stored.view, written)
    return True
