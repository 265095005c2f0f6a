"""The registry of a simulated fleet: the real rules, over lists instead of tables.

Who is in which group follows from `viewkeeper.order.member_groups`, which positions get a number
from `viewkeeper.order.admission`, what may go from `viewkeeper.order.retention_rule`, with nothing
kept beyond what members have still to take; leases are measured in steps of the world. It keeps
what it answered. An answer may be lost on its way, and while it is down nobody gets one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from viewkeeper.errors import SimulationError
from viewkeeper.order.admission import AdmissionRefusal, admit_positions
from viewkeeper.order.global_id import GlobalId
from viewkeeper.order.member_groups import Names, regroup_members
from viewkeeper.order.registry_protocol import MemberFacts, OrderedId, Reporter
from viewkeeper.order.retention_rule import RetentionWindows, is_done, order_cut

LEASE = 60
"""How many steps a claim lasts."""
WINDOWS = RetentionWindows(order=0, groups=0, step=1)


class RegistryLink:
    """How members reach the registry: outages, answers that get lost, and the clock of leases."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._loss = 0.0
        self.clock = 0
        self.is_down = False

    @property
    def can_reach(self) -> bool:
        """Whether the registry answers this time."""
        return not self.is_down and self._rng.random() >= self._loss

    def pass_time(self, steps: int) -> None:
        self.clock += steps

    def toggle_outage(self) -> None:
        """An outage begins, or ends."""
        self.is_down = not self.is_down

    def lose_answers(self, share: float) -> None:
        """From now on this share of all answers is lost."""
        self._loss = share

    def end_faults(self) -> None:
        """From now on the registry always answers."""
        self.is_down, self._loss = False, 0.0


@dataclass(slots=True)
class GroupOrder:
    """One group: its members with what they read, and its order."""

    name: str
    facts: dict[str, MemberFacts]
    opened: int = 0
    closed: int = 0
    """The regroupings that opened and closed it; 0 while it is open."""
    order: list[OrderedId] = field(default_factory=list)
    """All of it, for the checker; members have it from after number `trimmed` on."""
    trimmed: int = 0
    reached: dict[str, int] = field(default_factory=dict)
    """How far each member has said that it has committed."""
    reporters: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """Per source the member, its token, and the step at which its lease ends."""
    numbers: dict[str, dict[int, int]] = field(default_factory=dict)

    @property
    def is_alone(self) -> bool:
        return len(self.facts) == 1

    @property
    def last_number(self) -> int:
        return len(self.order)

    @property
    def outside_bases(self) -> set[str]:
        """What the group reads from outside."""
        return {name for facts in self.facts.values() for name in facts.read_names} - set(
            self.facts
        )

    def ordered_after(self, after: int, limit: int) -> list[OrderedId]:
        """What follows a number, if that is kept."""
        if after < self.trimmed:
            raise SimulationError(f"{self.name} is kept from {self.trimmed} on, not from {after}")
        return self.order[after : after + limit]

    def bases_behind(self, member: str) -> frozenset[str]:
        """The bases of the group from which a member of it derives."""
        found: set[str] = set()
        for name in self.facts[member].read_names:
            found |= self.bases_behind(name) if name in self.facts else {name}
        return frozenset(found)


class FleetRegistry:
    """Groups in the order in which they were opened."""

    def __init__(self) -> None:
        self.facts: dict[str, MemberFacts] = {}
        self.groups: list[GroupOrder] = []
        self.removed: list[GroupOrder] = []
        """Groups that everybody has left behind, for the checker."""
        self._regroupings = 0
        self._places: dict[str, int] = {}
        """The regrouping that opened the group which each member is in."""

    def change_members(self, joins: dict[str, MemberFacts], leaves: Sequence[str] = ()) -> None:
        """Members come or go: groups are closed and opened, in one step."""
        after = {name: said for name, said in self.facts.items() if name not in leaves} | joins
        is_open = {group.name: frozenset(group.facts) for group in self.groups if not group.closed}
        found = regroup_members(is_open, self.facts, after)
        self._regroupings += 1
        for group in self.groups:
            group.closed = group.closed or self._regroupings * (group.name in found.closed)
        for members in found.opened:
            self._open_group(frozenset(members), after)
        self.facts = after

    def _open_group(self, members: Names, facts: dict[str, MemberFacts]) -> None:
        name = f"G{len(self.groups) + len(self.removed) + 1}"
        inside = {member: facts[member] for member in sorted(members)}
        self.groups.append(GroupOrder(name, inside, self._regroupings))

    def group_named(self, name: str) -> GroupOrder:
        """A group that a member remembers."""
        found = [group for group in self.groups if group.name == name]
        if not found:
            raise SimulationError(f"{name} was removed, and a member is still in it")
        return found[0]

    def next_group(self, member: str, after: str | None) -> GroupOrder | None:
        """The group that a member is in after another one, or first of all."""
        mine = [group for group in self.groups if member in group.facts]
        if after is None:
            found = mine[-1] if mine else None
            self._places[member] = found.opened if found else 0
            return found
        at = mine.index(self.group_named(after))
        return mine[at + 1] if at + 1 < len(mine) else None

    def note_progress(self, member: str, group: GroupOrder, n: int) -> None:
        """Note a member's group and how far it is; forget what no member needs any more."""
        self._places[member] = group.opened
        group.reached[member] = max(n, group.reached.get(member, 0))
        if not group.closed:
            self._trim_order(group)
        for old in [each for each in self.groups if each.closed and self._is_done(each)]:
            self.groups.remove(old)
            self.removed.append(old)

    def _trim_order(self, group: GroupOrder) -> None:
        reached = [group.reached.get(member, 0) for member in group.facts]
        group.trimmed = order_cut(reached, group.last_number, group.trimmed, WINDOWS)
        for source, numbers in group.numbers.items():
            last = max(numbers)
            kept = {at: n for at, n in numbers.items() if n > group.trimmed or at == last}
            group.numbers[source] = kept

    def _is_done(self, group: GroupOrder) -> bool:
        places = [self._places.get(member) for member in group.facts if member in self.facts]
        return is_done(group.opened, group.closed, self._regroupings, places, WINDOWS)

    def claim_source(
        self, group: GroupOrder, source: str, member: str, now: int
    ) -> Reporter | None:
        """The right to report a source, unless another one's lease lasts."""
        holder, token, until = group.reporters.get(source, (member, 0, 0))
        if group.closed or (holder != member and until > now):
            return None
        group.reporters[source] = (member, token + 1, now + LEASE)
        registered = max(group.numbers.get(source, {}), default=None)
        return Reporter(group.name, source, member, token + 1, registered)

    def renew_claim(self, group: GroupOrder, reporter: Reporter, now: int) -> None:
        """Keep a claim, unless another one came later."""
        member, token, _ = group.reporters[reporter.source]
        if token == reporter.token:
            group.reporters[reporter.source] = (member, token, now + LEASE)

    def register_positions(
        self, group: GroupOrder, positions: Sequence[int], reporter: Reporter
    ) -> bool:
        """Order these positions; False if the group is closed, or another claim came later."""
        token = group.reporters[reporter.source][1]
        if group.closed or token != reporter.token:
            return False
        numbers = group.numbers.setdefault(reporter.source, {})
        found = admit_positions(positions, numbers, max(numbers, default=None), group.last_number)
        assert not isinstance(found, AdmissionRefusal), (
            "a reporter goes on after what is registered"
        )
        for position in found.new:
            group.order.append(
                OrderedId(group.last_number + 1, GlobalId(reporter.source, position))
            )
            numbers[position] = group.last_number
        return True
