"""This project among the members of its registry, for `status`: its group, and whom it waits for.

Asked of the registry itself, so it is also known while this project is not being maintained.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from viewkeeper.engine.settings.project_file import Settings
from viewkeeper.errors import ViewkeeperError

if TYPE_CHECKING:
    from viewkeeper.order.registry_protocol import GroupStatus


@dataclass(frozen=True, slots=True)
class GroupNow:
    """The group whose order a member takes now; `error` says why the registry cannot tell."""

    registry: str
    member: str
    group: str | None = None
    alone: bool = False
    committed: int = 0
    last: int = 0
    waits_for: tuple[str, ...] = ()
    unreported: tuple[str, ...] = ()
    error: str | None = None


def gather_group(settings: Settings) -> GroupNow | None:
    """How far this project is in the order of its group; None if it names no registry."""
    if settings.registry is None:
        return None
    # Most projects have no registry, and need none of its clients.
    from viewkeeper.order.registry_address import open_registry

    url, member = settings.registry.url, settings.registry.member
    try:
        named = settings.registry
        registry = open_registry(url, settings.folder, named.token, ca=named.ca)
        with closing(registry):
            groups, name = registry.fetch_status().groups, registry.name
    except ViewkeeperError as error:
        # An address may hold a secret; the error does not.
        return GroupNow("", member, error=str(error))
    mine = [group for group in groups if any(m.name == member for m in group.members)]
    behind = [g for g in mine if g.closed and _committed_number(g, member) < g.last]
    now = next(iter(behind or [g for g in mine if not g.closed]), None)
    if now is None:
        return GroupNow(name, member)
    waits = tuple(now.waiting_members.get(member, ()))
    facts = (now.name, now.is_alone, _committed_number(now, member), now.last)
    return GroupNow(name, member, *facts, waits, now.unreported_sources)


def _committed_number(group: GroupStatus, member: str) -> int:
    return next(each.reached for each in group.members if each.name == member)
