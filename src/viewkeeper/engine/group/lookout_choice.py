"""Which lookout a project has: its own order, or that of the group that its registry puts it into.

Everything else of the engine works on what a lookout gives and need not know which one it is.
"""

from __future__ import annotations

from collections.abc import Callable

from viewkeeper.engine.capture.lookout import LoadPoint, Lookout
from viewkeeper.engine.group.group_lookout import GroupLookout
from viewkeeper.engine.group.membership import Membership
from viewkeeper.engine.group.order_client import PATIENCE_SECONDS, OrderClient
from viewkeeper.engine.views.workspace import Workspace
from viewkeeper.order.member_secret import member_secret
from viewkeeper.order.registry_address import is_service, open_registry


def make_lookout(workspace: Workspace, load: Callable[[], LoadPoint | None]) -> Lookout:
    """The lookout of a project, in a group if it names a registry; `load` gives the load that is
    under way."""
    named = workspace.settings.registry
    if named is None:
        return Lookout(workspace, load)
    secret = member_secret(workspace.store.root) if is_service(named.url) else None
    access = (named.token, PATIENCE_SECONDS, secret, named.ca)
    registry = open_registry(named.url, workspace.settings.folder, *access)
    membership = Membership(workspace, registry)
    ordering = OrderClient(membership, registry, workspace.observer.on_trouble)
    return GroupLookout(workspace, load, membership, ordering)
