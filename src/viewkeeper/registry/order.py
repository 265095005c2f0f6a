"""What a registry is: one order for the ids of a group, the same for every member, for ever.

Members of a group join it; one of them reports each source, under a lease; what it reports gets the
numbers 1, 2, ... without gaps; everybody reads the order from any number on. What must hold:

1. an id has one number, however often it is sent, and a number never gets another id;
2. the positions of one source are numbered in increasing order;
3. what was answered to a caller survives any crash of the registry;
4. a reporter whose lease was taken over cannot register any more, whenever it wakes up;
5. a group has one registry: its identity is random, made once, and remembered by every member.

Implementations differ in where they keep it, never in this: `stored_order` has the rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from viewkeeper.registry.ids import GlobalId


@dataclass(frozen=True, slots=True, order=True)
class Ordered:
    """An id and its number in the order of its group."""

    n: int
    id: GlobalId


@dataclass(frozen=True, slots=True)
class Reporter:
    """A granted claim: the right to report one source until a later claim is granted.

    `position` is the last one registered when the claim was granted, None if there is none; nobody
    else can have registered since, so the reporter goes on right after it.
    """

    group: str
    source: str
    member: str
    token: int
    position: int | None


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group; `seen` is how many seconds ago it said something."""

    name: str
    sources: tuple[str, ...]
    parents: tuple[str, ...]
    reached: int
    seen: float


@dataclass(frozen=True, slots=True)
class Reports:
    """Who reports a source; `lease` is how many seconds are left, negative after its end."""

    source: str
    member: str
    token: int
    lease: float
    position: int | None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Everything about one group; `last` is the greatest number of its order."""

    name: str
    identity: str
    last: int
    members: tuple[Member, ...]
    reports: tuple[Reports, ...]

    @property
    def waiting(self) -> Mapping[str, tuple[str, ...]]:
        """Members that are behind, and the parents that have not committed their next id either.

        A member that waits for nobody has work of its own to do.
        """
        reached = {member.name: member.reached for member in self.members}
        return {
            member.name: tuple(
                parent
                for parent in member.parents
                if reached.get(parent, self.last) <= member.reached
            )
            for member in self.members
            if member.reached < self.last
        }

    @property
    def unreported(self) -> tuple[str, ...]:
        """Sources that members name and nobody reports now."""
        named = {source for member in self.members for source in member.sources}
        return tuple(sorted(named - {each.source for each in self.reports if each.lease > 0}))


@dataclass(frozen=True, slots=True)
class Owner:
    """The service that owns the store, for `lease` more seconds."""

    holder: str
    epoch: int
    lease: float


@dataclass(frozen=True, slots=True)
class RegistryStatus:
    """A registry at one moment; `owner` is None where members use the store directly."""

    registry: str
    owner: Owner | None
    groups: tuple[GroupStatus, ...]


class Registry(Protocol):
    """The order of any number of groups; may be used by several threads.

    Every call may raise a RegistryAwayError; then it may or may not have happened, and is simply
    made again.
    """

    @property
    def name(self) -> str:
        """Where it is, without secrets."""

    def join(
        self,
        group: str,
        member: str,
        sources: Sequence[str],
        remembered: str | None = None,
        parents: Sequence[str] = (),
    ) -> str:
        """Become a member, or say again what one reads; the group's identity.

        The first to join makes the group. A member keeps the identity and hands it in as
        `remembered` ever after: an IdentityError says that this is another registry. `parents` are
        the members whose views it reads.
        """

    def members(self, group: str) -> tuple[Member, ...]:
        """All that ever joined, by name."""

    def claim(self, group: str, source: str, member: str, seconds: float) -> Reporter | None:
        """Become the reporter of a source, or stay it; None while another member's lease lasts.

        Every granted claim has a greater token than those before, and makes them stale.
        """

    def release(self, reporter: Reporter) -> None:
        """End the lease, so that another member need not wait; nothing if it is stale."""

    def register(self, group: str, ids: Sequence[GlobalId], reporter: Reporter) -> int:
        """Give numbers to the ids that have none; the number of the last of `ids`, 0 for none.

        All of them are accepted or none: an OrderError if one is at or below what is registered of
        its source and was never registered itself, a StaleReporterError after another claim.
        """

    def order(
        self, group: str, after: int, limit: int, wait_seconds: float = 0.0
    ) -> tuple[Ordered, ...]:
        """What follows number `after`, at most `limit`; waits so long if there is nothing yet."""

    def reached(self, group: str, member: str, n: int) -> None:
        """Note that a member has committed everything up to number n."""

    def status(self) -> RegistryStatus:
        """All groups, as of one moment."""

    def close(self) -> None:
        """Let go of connections; the registry stays as it is."""
