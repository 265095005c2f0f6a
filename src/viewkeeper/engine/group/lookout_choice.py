"""Which lookout a project has: its own order, or that of the group that its registry puts it into.

Everything else of the engine works on what a lookout gives and need not know which one it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from viewkeeper.engine.capture.followed_tables import FollowedTables, LoadPoint
from viewkeeper.engine.capture.lookout import LocalLookout, Lookout
from viewkeeper.engine.capture.sightings import Sightings
from viewkeeper.engine.group.group_lookout import GroupLookout, follow_others
from viewkeeper.engine.group.membership import Membership
from viewkeeper.engine.group.order_client import PATIENCE_SECONDS, OrderClient
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.order.member_secret import member_secret
from viewkeeper.order.registry_address import is_service, open_registry


def make_lookout(workspace: Workspace, load: Callable[[], LoadPoint | None]) -> Lookout:
    """The lookout of a project, in a group if it names a registry; `load` gives the load that is
    under way."""
    named = workspace.settings.registry
    connections, sightings = workspace.connections, Sightings(workspace.store)
    if named is None:
        return LocalLookout(connections, sightings, FollowedTables(workspace, load))
    secret = member_secret(workspace.store.root) if is_service(named.url) else None
    access = (named.token, PATIENCE_SECONDS, secret, named.ca)
    registry = open_registry(named.url, workspace.settings.folder, *access)
    membership = Membership(workspace, registry)
    ordering = OrderClient(membership, registry, workspace.observer.on_trouble)
    tables = FollowedTables(workspace, load, partial(follow_others, membership, ordering))
    local = LocalLookout(connections, sightings, tables)
    return GroupLookout(connections, local, membership, ordering)
