"""What a registry is: members, the groups that it puts them into, and one order for each group.

Members say what they read; the registry finds out which of them must agree (`member_groups`) and
puts them into groups. One member of a group reports each source, under a lease; what it reports
gets the numbers 1, 2, ... without gaps; everybody reads the order from any number on. What must
hold:

1. an id has one number, however often it is sent, and a number never gets another id;
2. the positions of one source are numbered in increasing order;
3. what was answered to a caller survives any crash of the registry;
4. a reporter whose lease was taken over cannot register any more, whenever it wakes up;
5. a group has one registry: its identity is random, made once, and remembered by every member;
6. an order belongs to one set of members: when that changes, the group is *closed*. Its order ends
   there, can be read by whoever has to take it, and goes on in the groups that follow, each with
   its own numbers;
7. nothing goes that a member has still to take (`retention` has the rule).

Implementations differ in where they keep it, never in this: `stored_order` has the rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from viewkeeper.order.global_id import GlobalId

VOID = ""
"""The source of an id that was taken back: it keeps its number, and concerns nobody."""


@dataclass(frozen=True, slots=True, order=True)
class OrderedId:
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
class MemberFacts:
    """What a member says about itself when it joins; names are kept in order, each once.

    >>> repeated = MemberFacts({"shop": ("orders", "items", "orders")})
    >>> repeated == MemberFacts({"shop": ("items", "orders")})
    True
    """

    sources: Mapping[str, tuple[str, ...]]
    """The sources that it reads, by their global names, each with the tables that it reads."""
    parents: tuple[str, ...] = ()
    """The members whose views it reads."""
    together: str = ""
    """Members with the same label are in one group, whatever they read; empty: no wish."""
    awaits: Mapping[str, int] = field(default_factory=dict)
    """Sources that it begins to follow, with a position: once that or a later one is registered,
    a number stands for where it begins. Reporters see to it, also where nothing happens."""
    warehouse: str = ""
    """The identity of its warehouse: two of them cannot be one member."""

    def __post_init__(self) -> None:
        sources = {name: tuple(sorted(set(self.sources[name]))) for name in sorted(self.sources)}
        object.__setattr__(self, "sources", sources)
        object.__setattr__(self, "parents", tuple(sorted(set(self.parents))))

    @property
    def read_names(self) -> frozenset[str]:
        """The sources and members that it reads; no source is called like a member."""
        return frozenset((*self.sources, *self.parents))


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group; `seen` is how many seconds ago it said something."""

    name: str
    facts: MemberFacts
    reached: int
    seen: float


@dataclass(frozen=True, slots=True)
class Assignment:
    """The group whose order a member has to take now, with all its members.

    It may be closed already, where the member was away while groups changed: then the order is
    taken to its end, like that of any group that is closed meanwhile. Groups that are `opened`
    later have greater numbers.
    """

    group: str
    identity: str
    members: tuple[GroupMember, ...]
    closed: bool = False
    opened: int = 0

    @property
    def is_alone(self) -> bool:
        """A member that has nobody to agree with needs no order: ids need not be registered."""
        return len(self.members) == 1


@dataclass(frozen=True, slots=True)
class ReportStatus:
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
    members: tuple[GroupMember, ...]
    reports: tuple[ReportStatus, ...]
    closed: bool = False

    @property
    def is_alone(self) -> bool:
        """One member needs no order."""
        return len(self.members) == 1

    @property
    def waiting_members(self) -> Mapping[str, tuple[str, ...]]:
        """Members that are behind, and the parents that have not committed their next id either.

        A member that waits for nobody has work of its own to do.
        """
        reached = {member.name: member.reached for member in self.members}
        return {
            member.name: tuple(
                parent
                for parent in member.facts.parents
                if reached.get(parent, self.last) <= member.reached
            )
            for member in self.members
            if member.reached < self.last
        }

    @property
    def unreported_sources(self) -> tuple[str, ...]:
        """What the group reads from outside and nobody reports now: sources, views of others."""
        if self.closed or self.is_alone:
            return ()
        inside = {member.name for member in self.members}
        read = {name for member in self.members for name in member.facts.read_names} - inside
        return tuple(sorted(read - {each.source for each in self.reports if each.lease > 0}))


@dataclass(frozen=True, slots=True)
class StoreOwner:
    """The service that owns the store, for `lease` more seconds."""

    holder: str
    epoch: int
    lease: float


@dataclass(frozen=True, slots=True)
class RegistryStatus:
    """A registry at one moment; `owner` is None where members use the store directly."""

    registry: str
    owner: StoreOwner | None
    groups: tuple[GroupStatus, ...]


class Registry(Protocol):
    """The order of any number of groups; may be used by several threads.

    Every call may raise a RegistryAwayError; then it may or may not have happened, and is simply
    made again.
    """

    @property
    def name(self) -> str:
        """Where it is, without secrets."""

    def join_registry(
        self, member: str, facts: MemberFacts, remembered: str | None = None
    ) -> Assignment:
        """Become a member, or say again what one reads; the group whose order to take now.

        A new member, or other facts, may close groups and open others, in one step. `remembered` is
        the identity of the group that the member was in last, open or closed: an IdentityError says
        that this is another registry. The answer is that group while it is open, else the next one
        after it in which the member has ids to take; who skipped one would meet parents beyond it.
        A parent may join later than its children. A RegistryError, and no change, if members would
        read each other in a circle, or if a source is called like a member.
        """

    def leave_registry(self, member: str) -> None:
        """Be no member any more, anywhere; nothing if it is none.

        Its claims end, and its group is closed. For those who read its views it becomes a member
        that reads nothing. In closed groups it stays, and may still note what it reaches there.
        """

    def fetch_members(self, group: str) -> tuple[GroupMember, ...]:
        """The members of a group, by name; of a closed group, those that it had at its end.

        Tables can change while a group is open: reporters read this again when they claim again.
        """

    def claim_source(self, group: str, source: str, member: str, seconds: float) -> Reporter | None:
        """Become the reporter of a source, or stay it; None while another member's lease lasts.

        Every granted claim has a greater token than those before, and makes them stale. A
        ClosedGroupError on a closed group, an OrderError for what the member does not read.
        """

    def release_claim(self, reporter: Reporter) -> None:
        """End the lease, so that another member need not wait; nothing if it is stale."""

    def register_ids(self, group: str, ids: Sequence[GlobalId], reporter: Reporter) -> int:
        """Give numbers to the ids that have none; the number of the last of `ids`, 0 for none.

        All of them are accepted or none: an OrderError if one is at or below what is registered of
        its source and was never registered itself, a StaleReporterError after another claim, a
        ClosedGroupError on a closed group.
        """

    def fetch_order(
        self, group: str, after: int, limit: int, wait_seconds: float = 0.0
    ) -> tuple[OrderedId, ...]:
        """What follows number `after`, at most `limit`; waits so long if there is nothing yet.

        A ClosedGroupError, at once, where a closed group's order has nothing more; a TrimmedError
        where `after` lies before what is kept.
        """

    def note_reached(self, group: str, member: str, n: int) -> None:
        """Note that a member has committed everything up to number n; also in a closed group."""

    def fetch_status(self) -> RegistryStatus:
        """All groups, as of one moment."""

    def take_back(self, group: str, source: str, position: int) -> int:
        """Let ids of a source at or beyond a position be void; how many there were.

        For positions that the source never had. Numbers stay; who waits for them passes them, and
        the source is reported anew behind what is left. An OrderError, and no change, where a
        member that reads the source has committed one of them: then the source did have it.
        """

    def forget_secret(self, member: str) -> None:
        """Let a member that has lost its secret join with another one."""

    def close(self) -> None:
        """Let go of connections; the registry stays as it is."""
