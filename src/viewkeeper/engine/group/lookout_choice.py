"""Which lookout a project has: its own order, or that of the group that its registry puts it into.

Everything else of the engine works on what a lookout gives and need not know which one it is.
"""

from __future__ import annotations

from collections.abc import Callable

from viewkeeper.engine.capture.lookout import Lookout
from viewkeeper.engine.connections.open_sources import Connections
from viewkeeper.engine.group.group_lookout import GroupLookout
from viewkeeper.engine.group.membership import Membership
from viewkeeper.engine.group.order_client import PATIENCE_SECONDS, OrderClient
from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.engine.views.view_catalogue import ViewCatalogue
from viewkeeper.errors import ViewkeeperError
from viewkeeper.order.member_secret import member_secret
from viewkeeper.order.registry_address import is_service, open_registry
from viewkeeper.warehouse.store import Store


def make_lookout(
    settings: Settings,
    store: Store,
    catalogue: ViewCatalogue,
    connections: Connections,
    told: Callable[[ViewkeeperError], None],
) -> Lookout:
    """The lookout of a project, in a group if it names a registry; `told` hears of trouble."""
    if settings.registry is None:
        return Lookout(store, catalogue, connections)
    named = settings.registry
    secret = member_secret(store.root) if is_service(named.url) else None
    access = (named.token, PATIENCE_SECONDS, secret, named.ca)
    registry = open_registry(named.url, settings.folder, *access)
    membership = Membership(settings, store, catalogue, registry)
    ordering = OrderClient(membership, registry, told)
    return GroupLookout(store, catalogue, connections, membership, ordering)
